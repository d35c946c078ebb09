"""Where a classic group is, and what it waits for there. The names are those of the protocol.

Empty -> PreparingRebalance -> CompletingRebalance -> Stable
  ^------------'   ^-----------------'------------------'
"""

from collections.abc import MutableMapping
from dataclasses import dataclass, field
from typing import ClassVar

import msgspec

from skidway.groups.operations import JoinGroup, SyncGroup
from skidway.groups.overlay import Layered, Overlay


class InitialDelay(msgspec.Struct):
    """The group was empty: more members may come. Never changed, only replaced, as is the next."""

    deadline_ms: int
    delay_ms: int
    remaining_ms: int
    more_came: bool = False


class JoinTimeout(msgspec.Struct):
    """Members of the generation before have this long to join again."""

    deadline_ms: int


@dataclass(slots=True)
class Empty(Layered):
    name: ClassVar[str] = "Empty"
    deadline_ms: ClassVar[None] = None


@dataclass(slots=True)
class Preparing(Layered):
    """Everyone is to join."""

    name: ClassVar[str] = "PreparingRebalance"

    wait: InitialDelay | JoinTimeout
    joins: MutableMapping[str, JoinGroup] = field(default_factory=dict)
    """Calls that wait for this to end, by member."""
    newcomers: MutableMapping[str, None] = field(default_factory=dict)
    """Members that never had an answer to a join, so cannot send heartbeats."""

    @property
    def deadline_ms(self) -> int:
        return self.wait.deadline_ms


@dataclass(slots=True)
class Syncing(Layered):
    """A generation has begun."""

    until_ms: int = 0
    """When who has not asked for its assignment is over."""
    unsynced: MutableMapping[str, None] = field(default_factory=dict)
    """Members that have not asked yet."""

    @property
    def deadline_ms(self) -> int | None:
        return self.until_ms if self.unsynced else None


@dataclass(slots=True)
class Completing(Syncing):
    """The leader is to assign."""

    name: ClassVar[str] = "CompletingRebalance"

    syncs: MutableMapping[str, SyncGroup] = field(default_factory=dict)
    """Calls that wait for the assignment, by member."""

    def settle(self) -> None:
        if type(self.syncs) is Overlay:
            for call in self.syncs.changed.values():
                # Nobody will read what it says of others, and it may wait for long.
                call.assignments = []
        Layered.settle(self)


@dataclass(slots=True)
class Stable(Syncing):
    name: ClassVar[str] = "Stable"


State = Empty | Preparing | Completing | Stable
SETTLED = (Empty, Stable)
"""The group is what its last record says."""
