"""Where a reset would take a group: computed first, so that it can be shown before anything is changed."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from skidway.cli.places import AtOffset, Place, find
from skidway.cli.reachable import listed

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.reader import Place as PartitionPlace


@dataclass(slots=True, frozen=True)
class Shift:
    """From the committed offset, on or back."""

    count: int


Target = Place | Shift


@dataclass(slots=True)
class Move:
    topic: str
    partition: int
    old: int | None
    new: int
    note: str = ""

    @property
    def change(self) -> str:
        if self.old is None:
            return "new"
        return f"{self.new - self.old:+d}" if self.new != self.old else "none"


def plan(
    cluster: "Cluster",
    committed: "Mapping[PartitionPlace, int]",
    group: str,
    target: Target,
    topics: list[str],
    partitions: list[int],
) -> list[Move]:
    """One move for each partition chosen: of the topics named, or of all that have an offset: one that was committed,
    or where a share group starts."""
    from skidway.blocking_client.errors import ClientError

    moves: list[Move] = []
    for topic in topics or sorted({topic for topic, _ in committed}):
        existing = list(cluster.look_up(topic).partitions)
        chosen = _chosen(existing, topic, partitions)
        if not topics and not isinstance(target, Shift):
            chosen = [partition for partition in chosen if partitions or (topic, partition) in committed]
        if isinstance(target, Shift):
            chosen = [partition for partition in chosen if (topic, partition) in committed]
        unserved = cluster.unserved(topic, chosen)
        if unserved:
            raise ClientError(f"{listed(topic, unserved)}; nothing was reset, --partition names the others")
        moves += _moves(cluster, topic, chosen, target, committed)
    if not moves:
        raise ClientError(f"group {group} has no offset to move; name a topic with --topic and a place with --to")
    return moves


def _chosen(existing: list[int], topic: str, wanted: list[int]) -> list[int]:
    from skidway.blocking_client.cluster import NoSuchPartition

    for partition in wanted:
        if partition not in existing:
            raise NoSuchPartition(topic, partition, len(existing))
    return wanted or existing


def _moves(
    cluster: "Cluster", topic: str, partitions: list[int], target: Target, committed: "Mapping[PartitionPlace, int]"
) -> list[Move]:
    from skidway.blocking_client.offsets import EARLIEST, LATEST, offsets_at

    if not partitions:
        return []
    if not isinstance(target, Shift | AtOffset):
        places = find(cluster, topic, partitions, target, 0)
        return [
            Move(topic, partition, committed.get((topic, partition)), places[partition]) for partition in partitions
        ]
    starts = offsets_at(cluster, topic, partitions, EARLIEST)
    ends = offsets_at(cluster, topic, partitions, LATEST)
    moves: list[Move] = []
    for partition in partitions:
        old = committed.get((topic, partition))
        wanted = target.offset if isinstance(target, AtOffset) else (old or 0) + target.count
        new = min(max(wanted, starts[partition]), ends[partition])
        note = "" if new == wanted else f"{wanted} is {'before the start' if new > wanted else 'after the end'}"
        moves.append(Move(topic, partition, old, new, note))
    return moves
