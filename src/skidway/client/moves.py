"""Where replicas go when brokers come, leave or are asked to share: as few moves as possible, racks spread, leads even.

Pure: partitions and brokers in, new replica lists out. The first replica of a list is the preferred leader.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

PartitionKey = tuple[str, int]
"""(topic, partition)"""


class NotEnoughBrokers(ValueError):
    """The text says which partition cannot be placed, and why."""


@dataclass(slots=True)
class Place:
    """A broker that may get replicas."""

    id: int
    rack: str | None = None


def spread(
    partitions: Mapping[PartitionKey, list[int]],
    places: Iterable[Place],
    replication: int | None = None,
    elsewhere: Mapping[PartitionKey, list[int]] | None = None,
) -> dict[PartitionKey, list[int]]:
    """New replicas, on these places alone, of the partitions that must change.

    What lies on one of the places stays there; `replication` None keeps the number of replicas. `elsewhere` are
    partitions that stay as they are and count for the load of the places.
    """
    plan = _Plan(places, [*partitions.values(), *(elsewhere or {}).values()])
    wanted: dict[PartitionKey, list[int]] = {}
    for key, replicas in partitions.items():
        wanted[key] = plan.place(key, replicas, len(replicas) if replication is None else replication)
    for key, replicas in sorted(wanted.items()):
        wanted[key] = plan.order(partitions[key], replicas)
    return {key: replicas for key, replicas in wanted.items() if replicas != partitions[key]}


class _Plan:
    def __init__(self, places: Iterable[Place], assignments: Iterable[list[int]]) -> None:
        self._racks = {place.id: place.rack for place in places}
        self._replicas: Counter[int] = Counter()
        self._leads: Counter[int] = Counter()
        for replicas in assignments:
            self._replicas.update(replicas)
            self._leads.update(replicas[:1])

    def place(self, key: PartitionKey, replicas: list[int], count: int) -> list[int]:
        if count > len(self._racks):
            text = f"{key[0]} partition {key[1]} needs {count} brokers for its replicas"
            raise NotEnoughBrokers(f"{text}, and there are {len(self._racks)} to choose from")
        kept = [broker for broker in replicas if broker in self._racks][:count]
        for broker in set(replicas) - set(kept):
            self._replicas[broker] -= 1
        while len(kept) < count:
            used = Counter(self._racks[broker] for broker in kept)
            candidates = [broker for broker in self._racks if broker not in kept]
            best = min(candidates, key=lambda broker: (used[self._racks[broker]], self._replicas[broker], broker))
            self._replicas[best] += 1
            kept.append(best)
        return kept

    def order(self, before: list[int], replicas: list[int]) -> list[int]:
        """The leader leads on where it can; a partition that loses it goes to whoever of its replicas leads least."""
        if replicas[:1] == before[:1]:
            return replicas
        self._leads[before[0]] -= 1
        first = min(replicas, key=lambda broker: (self._leads[broker], replicas.index(broker)))
        self._leads[first] += 1
        return [first, *(broker for broker in replicas if broker != first)]
