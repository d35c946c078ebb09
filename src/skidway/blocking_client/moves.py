"""Where replicas go when brokers come, leave or are asked to share: as few moves as possible, racks spread, leads even.

Pure: partitions and brokers in, new replica lists out. The first replica of a list is the preferred leader.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

PartitionKey = tuple[str, int]
"""(topic, partition)"""
Step = tuple[PartitionKey, int, int]
"""In this partition the second broker takes the part of the first."""


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
    *,
    even: bool = False,
) -> dict[PartitionKey, list[int]]:
    """New replicas, on these places alone, of the partitions that must change.

    What lies on one of the places stays there, unless `even`: then as much moves as it takes for each topic to have
    equally many replicas on all places, as far as racks allow. `replication` None keeps the number of replicas.
    `elsewhere` are partitions that stay where they are and count for the load of the places. At last the leads of each
    topic of `partitions` are evened out by the order of replicas alone, those of its partitions `elsewhere` too.
    """
    plan = _Plan({**(elsewhere or {}), **partitions}, places)
    for key, replicas in partitions.items():
        plan.place(key, len(replicas) if replication is None else replication)
    for topic in sorted({topic for topic, _ in partitions}):
        if even:
            plan.even_replicas([key for key in partitions if key[0] == topic])
        plan.even_leads([key for key in plan.wanted if key[0] == topic])
    return {key: replicas for key, replicas in plan.wanted.items() if replicas != plan.before[key]}


class _Plan:
    def __init__(self, before: Mapping[PartitionKey, list[int]], places: Iterable[Place]) -> None:
        self.before = before
        self.wanted = {key: list(replicas) for key, replicas in before.items()}
        self._racks = {place.id: place.rack for place in places}
        self._load = Counter(broker for replicas in before.values() for broker in replicas)
        self._leads = Counter(replicas[0] for replicas in before.values() if replicas)

    def place(self, key: PartitionKey, count: int) -> None:
        """Replicas that may stay do, at their position; others take the positions of those that may not."""
        if count > len(self._racks):
            text = f"{key[0]} partition {key[1]} needs a broker for each of its {count} replicas"
            raise NotEnoughBrokers(f"{text}, and there are {len(self._racks)} to choose from")
        before = self.before[key]
        kept = [broker for broker in before if broker in self._racks][:count]
        gone = [broker for broker in before if broker not in self._racks][: count - len(kept)]
        self._load.subtract(set(before) - set(kept))
        replicas: list[int | None] = [None if each in gone else each for each in before if each in kept or each in gone]
        replicas += [None] * (count - len(replicas))
        for position, broker in enumerate(replicas):
            if broker is None:
                best = self._best({each for each in replicas if each is not None})
                self._load[best] += 1
                replicas[position] = best
        self._leads[before[0]] -= 1
        self.wanted[key] = [each for each in replicas if each is not None]
        self._leads[self.wanted[key][0]] += 1

    def _best(self, used: set[int]) -> int:
        racks = Counter(self._racks[broker] for broker in used)
        candidates = [broker for broker in self._racks if broker not in used]
        return min(candidates, key=lambda broker: (racks[self._racks[broker]], self._load[broker], broker))

    def even_replicas(self, keys: list[PartitionKey]) -> None:
        load = Counter(dict.fromkeys(self._racks, 0))
        load.update(broker for key in keys for broker in self.wanted[key])

        def step(source: int, target: int) -> Step | None:
            able = [key for key in keys if self._may_move(key, source, target)]
            return (min(able, key=lambda key: self._cost(key, source, target)), source, target) if able else None

        while path := self._path(load, self._load, step):
            for key, source, target in path:
                self.wanted[key] = [target if each == source else each for each in self.wanted[key]]
                for counter in (load, self._load):
                    counter.update({source: -1, target: 1})
        # Who leads was not looked at above: it follows from what came of it.
        self._leads = Counter(replicas[0] for replicas in self.wanted.values() if replicas)

    def _may_move(self, key: PartitionKey, source: int, target: int) -> bool:
        replicas = self.wanted[key]
        return source in replicas and target not in replicas and self._crowding(key, source, target) <= 0

    def _crowding(self, key: PartitionKey, source: int, target: int) -> int:
        """By how much replicas share racks more than before."""
        racks = Counter(self._racks[broker] for broker in self.wanted[key] if broker != source)
        return racks[self._racks[target]] - racks[self._racks[source]]

    def _cost(self, key: PartitionKey, source: int, target: int) -> tuple[int, int, bool, PartitionKey]:
        """What was to move anyway comes first, then what frees a rack, then what changes no leader."""
        before = self.before[key]
        moved = (source in before) - (target in before)
        return moved, self._crowding(key, source, target), self.wanted[key][0] == source, key

    def even_leads(self, keys: list[PartitionKey]) -> None:
        leads = Counter(dict.fromkeys(self._racks, 0))
        leads.update(self.wanted[key][0] for key in keys if self.wanted[key])

        def step(source: int, target: int) -> Step | None:
            able = [key for key in keys if self.wanted[key][:1] == [source] and target in self.wanted[key]]
            return (min(able, key=lambda key: self._reluctance(key, target)), source, target) if able else None

        while path := self._path(leads, self._leads, step):
            for key, source, target in path:
                self.wanted[key] = [target, *(each for each in self.wanted[key] if each != target)]
                for counter in (leads, self._leads):
                    counter.update({source: -1, target: 1})

    def _reluctance(self, key: PartitionKey, target: int) -> tuple[bool, bool, bool, PartitionKey]:
        """A leader that could stay is asked last, one of a partition that changes anyway before others."""
        before = self.before[key]
        return before[0] != target, self.wanted[key][0] == before[0], self.wanted[key] == before, key

    def _path(
        self, counts: Counter[int], overall: Counter[int], step: Callable[[int, int], Step | None]
    ) -> list[Step] | None:
        """The shortest way from a broker that has more to one that has at least two less; None if all is even.

        A way of several steps is needed where no partition can go from the one to the other directly.
        """
        least = min(counts[broker] for broker in self._racks)
        fullest = [broker for broker in counts if counts[broker] - least >= 2]
        for source in sorted(fullest, key=lambda broker: (-counts[broker], -overall[broker], broker)):
            ways: dict[int, list[Step]] = {source: []}
            layer = [source]
            while layer:
                reached: list[int] = []
                for target in sorted(self._racks, key=lambda broker: (counts[broker], overall[broker], broker)):
                    if target in ways:
                        continue
                    for at in layer:
                        found = step(at, target)
                        if found is not None and found[0] not in {key for key, _, _ in ways[at]}:
                            ways[target] = [*ways[at], found]
                            reached.append(target)
                            break
                    if target in ways and counts[source] - counts[target] >= 2:
                        return ways[target]
                layer = reached
        return None
