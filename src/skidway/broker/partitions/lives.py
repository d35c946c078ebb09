"""The life of a partition on this node, from the metadata that places it here to the end of its files.

    (placed here) -> Opening -> Settling -> Serving -> Removing -> (gone)
                      |  ^                   ^  ^
                      v  | tried again       |  | nothing to settle
                     Missing --------------->+--+

What should be here and is not (Opening, Missing) is known by the id of its topic. A copy that is here (Settling,
Serving, Removing) has a directory and is known by its name. It keeps that name until no worker is in the directory. A
new topic of the same name, or the same partition that comes back, has to wait for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from skidway.broker.partitions.partition import Partition
    from skidway.metadata.topic_configs import TopicConfig

Key = tuple[bytes, int]
"""A partition: the id of its topic, and its index."""
Place = tuple[str, int]
"""A directory: the name of a topic, and the index."""


class Opening(msgspec.Struct):
    """It waits for its turn."""

    missed: Missing | None = None
    """What the last try came to, if this is another one."""


class Missing(msgspec.Struct):
    """It should be here and could not be opened. Tried again now and then."""

    why: str
    expected: bool
    """It was here before."""


class Settling(msgspec.Struct):
    """Its log is being synced after a crash: until then it has no part in anything."""

    partition: Partition
    config: TopicConfig
    """What it was opened with."""


class Serving(msgspec.Struct):
    partition: Partition


class Removing(msgspec.Struct):
    """Deleted or given up; its directory still has its name."""

    partition: Partition


Absence: TypeAlias = Opening | Missing
Presence: TypeAlias = Settling | Serving | Removing
Life: TypeAlias = Absence | Presence


class Lives:
    def __init__(self) -> None:
        self._absent: dict[Key, Absence] = {}
        self._present: dict[Place, Presence] = {}
        self.settling_count = 0

    # Asking.

    def absence(self, topic_id: bytes, index: int) -> Absence | None:
        return self._absent.get((topic_id, index))

    def present_at(self, name: str, index: int) -> Presence | None:
        return self._present.get((name, index))

    def is_settling(self, partition: Partition) -> bool:
        life = self._present.get(_place(partition))
        return isinstance(life, Settling) and life.partition is partition

    def is_removing(self, partition: Partition) -> bool:
        life = self._present.get(_place(partition))
        return isinstance(life, Removing) and life.partition is partition

    def why_missing(self, topic_id: bytes, index: int) -> str | None:
        """Why it could not be opened; also while that is tried again."""
        life = self._missed((topic_id, index))
        return None if life is None else life.why

    def was_expected(self, topic_id: bytes, index: int) -> bool:
        """Whether one that could not be opened was here before."""
        life = self._missed((topic_id, index))
        return life is not None and life.expected

    def _missed(self, key: Key) -> Missing | None:
        life = self._absent.get(key)
        return life.missed if isinstance(life, Opening) else life

    @property
    def missing(self) -> dict[Key, str]:
        return {key: why for key in self._absent if (why := self.why_missing(*key)) is not None}

    @property
    def settling(self) -> list[Settling]:
        return [life for life in self._present.values() if isinstance(life, Settling)]

    @property
    def removing(self) -> list[Partition]:
        """Those that wait for the longest time first."""
        return [life.partition for life in self._present.values() if isinstance(life, Removing)]

    # What happens to it.

    def open_later(self, key: Key) -> None:
        assert not isinstance(self._absent.get(key), Opening), f"{key} is going to be opened already"
        self._absent[key] = Opening(self._missed(key))

    def miss(self, key: Key, why: str, *, expected: bool) -> None:
        assert key in self._absent, f"{key} is missing, and nobody wanted it"
        self._absent[key] = Missing(why, expected)

    def forget(self, key: Key) -> None:
        """It was not opened in time: it should not be here any more."""
        self._absent.pop(key, None)

    def settle(self, partition: Partition, config: TopicConfig) -> Settling:
        life = Settling(partition, config)
        self._appear(partition, life)
        self.settling_count += 1
        return life

    def serve(self, partition: Partition) -> None:
        if self.is_settling(partition):
            self.settling_count -= 1
            self._present[_place(partition)] = Serving(partition)
        else:
            self._appear(partition, Serving(partition))

    def _appear(self, partition: Partition, life: Presence) -> None:
        key, place = (partition.topic_id, partition.index), _place(partition)
        assert key in self._absent, f"{partition} was opened, and nobody wanted it"
        assert place not in self._present, f"the directory of {partition} is taken"
        del self._absent[key]
        self._present[place] = life

    def remove(self, partition: Partition) -> None:
        before = self._present.pop(_place(partition), None)
        assert isinstance(before, Settling | Serving), f"{partition} is not here"
        assert before.partition is partition, f"another copy is in the place of {partition}"
        if isinstance(before, Settling):
            self.settling_count -= 1
        partition.removed = True
        self._present[_place(partition)] = Removing(partition)

    def end(self, partition: Partition) -> None:
        assert self.is_removing(partition), f"{partition} is not being removed"
        del self._present[_place(partition)]


def _place(partition: Partition) -> Place:
    return partition.topic, partition.index
