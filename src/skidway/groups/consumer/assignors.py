"""The assignors of the consumer protocol: who should have which partition.

`uniform` gives everyone the same number, as far as subscriptions allow, and moves as little as it can. `range` gives
each member a run of each topic, the same run in topics of the same size, so that they can be joined.
"""

from collections.abc import Callable, Mapping
from itertools import islice

from msgspec import Struct

from skidway.groups.consumer.reconciliation import NO_PARTITIONS, Partition, Partitions


class Candidate(Struct):
    """A member as an assignor sees it."""

    instance_id: str | None
    topics: frozenset[bytes]
    """Ids of topics that exist."""
    current: Partitions = NO_PARTITIONS
    """Its part of the last target."""


Candidates = Mapping[str, Candidate]
PartitionCounts = Mapping[bytes, int]
Assignor = Callable[[Candidates, PartitionCounts], dict[str, Partitions]]


def assign_range(candidates: Candidates, counts: PartitionCounts) -> dict[str, Partitions]:
    assigned: dict[str, set[Partition]] = {member_id: set() for member_id in candidates}
    # An instance keeps its place in the row when its member id changes.
    row = sorted(candidates, key=lambda each: _place(each, candidates[each]))
    for topic_id, count in counts.items():
        subscribers = [member_id for member_id in row if topic_id in candidates[member_id].topics]
        start = 0
        for number, member_id in enumerate(subscribers):
            share = count // len(subscribers) + (number < count % len(subscribers))
            assigned[member_id].update((topic_id, partition) for partition in range(start, start + share))
            start += share
    return {member_id: frozenset(partitions) for member_id, partitions in assigned.items()}


def _place(member_id: str, candidate: Candidate) -> tuple[bool, str]:
    if candidate.instance_id is not None:
        return False, candidate.instance_id
    return True, member_id


def assign_uniform(candidates: Candidates, counts: PartitionCounts) -> dict[str, Partitions]:
    if len({candidate.topics for candidate in candidates.values()}) <= 1:
        return _uniform_among_equals(candidates, counts)
    return _Uniform(candidates, counts).assigned()


def _uniform_among_equals(candidates: Candidates, counts: PartitionCounts) -> dict[str, Partitions]:
    """All subscribe to the same topics. Most keep what they have: that is taken as it is, not copied."""
    topics = next(iter(candidates.values())).topics if candidates else frozenset()
    unassigned = {(topic_id, partition) for topic_id in topics for partition in range(counts[topic_id])}
    assigned = {
        member_id: candidate.current if candidate.current <= unassigned else candidate.current & unassigned
        for member_id, candidate in candidates.items()
    }
    # Those who have most keep most: then the fewest partitions move.
    row = sorted(candidates, key=lambda each: (-len(assigned[each]), each))
    share, more = divmod(len(unassigned), len(row)) if row else (0, 0)
    missing: dict[str, int] = {}
    for number, member_id in enumerate(row):
        quota = share + (number < more)
        partitions = assigned[member_id]
        if len(partitions) > quota:
            partitions = assigned[member_id] = frozenset(sorted(partitions)[:quota])
        elif len(partitions) < quota:
            missing[member_id] = quota - len(partitions)
        unassigned -= partitions
    rest = iter(sorted(unassigned))
    for member_id in sorted(missing):
        assigned[member_id] |= frozenset(islice(rest, missing[member_id]))
    return assigned


class _Uniform:
    """For members that subscribe to different topics: first all partitions find a place, then they move from the
    rich to the poor as long as that makes the two more equal. Each move lowers the sum of the squares, so it ends."""

    def __init__(self, candidates: Candidates, counts: PartitionCounts) -> None:
        self._subscribers: dict[bytes, list[str]] = {}
        for member_id in sorted(candidates):
            for topic_id in candidates[member_id].topics:
                self._subscribers.setdefault(topic_id, []).append(member_id)
        self._by_topic: dict[str, dict[bytes, set[int]]] = {member_id: {} for member_id in sorted(candidates)}
        self._load = dict.fromkeys(candidates, 0)
        unassigned = {(topic_id, number) for topic_id in self._subscribers for number in range(counts[topic_id])}
        for member_id in self._by_topic:
            candidate = candidates[member_id]
            for partition in sorted(candidate.current & unassigned):
                if partition[0] in candidate.topics:
                    self._give(member_id, partition)
                    unassigned.discard(partition)
        # The topics that few want have the least choice.
        for partition in sorted(unassigned, key=lambda each: (len(self._subscribers[each[0]]), each)):
            self._give(self._poorest(partition[0]), partition)
        self._balance()

    def assigned(self) -> dict[str, Partitions]:
        return {
            member_id: frozenset((topic_id, number) for topic_id, numbers in topics.items() for number in numbers)
            for member_id, topics in self._by_topic.items()
        }

    def _give(self, member_id: str, partition: Partition) -> None:
        self._by_topic[member_id].setdefault(partition[0], set()).add(partition[1])
        self._load[member_id] += 1

    def _poorest(self, topic_id: bytes) -> str:
        return min(self._subscribers[topic_id], key=lambda member_id: self._load[member_id])

    def _balance(self) -> None:
        while self._balance_once():
            pass

    def _balance_once(self) -> bool:
        moved = False
        for member_id in sorted(self._load, key=lambda each: -self._load[each]):
            for topic_id, numbers in self._by_topic[member_id].items():
                while numbers:
                    poorest = self._poorest(topic_id)
                    if self._load[member_id] - self._load[poorest] < 2:
                        break
                    self._load[member_id] -= 1
                    self._give(poorest, (topic_id, numbers.pop()))
                    moved = True
        return moved


ASSIGNORS: dict[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
