"""What a coordinator needs of a group, whatever its protocol, and what a protocol may use of the coordinator.

A group has a durable part, which is what its records say and which only `apply` changes, and a live part, which no
record tells of: who waits, until when a member is believed to live. A protocol decides on drafts: it lays one over a
group and changes it. Of the durable part the records go out, of the live part the draft itself, as the note `LiveIs`.
So a decision that never happens leaves no trace, and one that does costs what it changes.
"""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from msgspec import Struct

from skidway.groups.committed import CommittedOffset
from skidway.groups.offsets import Offsets
from skidway.groups.operations import GroupType
from skidway.groups.records import GroupRecord
from skidway.groups.settings import GroupSettings
from skidway.ports import Random
from skidway.runtime.replicated import Decision, Now, Operation

GroupDecision = Decision[GroupRecord, Any]


class Topics(Protocol):
    """The cluster's topics, read only."""

    def partition_count(self, name: str) -> int | None: ...

    def id_of(self, name: str) -> bytes | None: ...

    def name_of(self, topic_id: bytes) -> str | None: ...

    def names(self) -> Iterable[str]: ...

    @property
    def epoch(self) -> int:
        """Changes when any of the answers may have changed."""
        ...


class Group(Protocol):
    """A group in memory. The checks raise what the client is told."""

    @property
    def group_id(self) -> str: ...

    @property
    def type(self) -> GroupType: ...

    @property
    def state_name(self) -> str: ...

    @property
    def protocol_type(self) -> str: ...

    @property
    def is_empty(self) -> bool: ...

    @property
    def bytes(self) -> int:
        """Of memory, without the offsets; an estimate."""
        ...

    @property
    def deadline_ms(self) -> int | None:
        """When the group wants a tick, on the monotonic clock."""
        ...

    def renew_session(self, member_id: str, deadline_ms: int) -> None: ...

    def move(self, draft: Any) -> int | None:
        """The live part is now what the draft says, which is of the type that the group has. Returns the first deadline
        of those that may be new."""
        ...

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, version: int) -> None: ...

    def check_commit_in_transaction(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """Who names neither a member nor a generation passes: the transaction is what fences it."""
        ...

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def check_offset_deletion(self) -> None: ...

    def check_deletion(self) -> None: ...

    def is_subscribed(self, topic: str) -> bool: ...

    def retained_since_ms(self, committed: CommittedOffset) -> int | None:
        """The wall time from which an offset's retention counts; None when it does not count yet."""
        ...

    def tombstones(self) -> list[GroupRecord]:
        """The records that take away everything but the offsets."""
        ...


class Context(Struct):
    """What the protocols share. Decisions read it; only `apply` and `note` change `groups` and `offsets`."""

    settings: GroupSettings
    topics: Topics
    random: Random
    groups: dict[str, Group]
    offsets: Offsets
    timeouts: Callable[[str], tuple[int, int]]
    """Of a group of the consumer protocol: session timeout and heartbeat interval, which groups may set for
    themselves."""


class GroupKind(Protocol):
    """One protocol: the decisions on its groups and the records that only it writes."""

    def decide(self, operation: Operation[Any], now: Now) -> GroupDecision: ...

    def decide_tick(self, group: Group, now: Now) -> GroupDecision:
        """`group.deadline_ms` has come."""
        ...

    def decide_metadata_changed(self, now: Now) -> GroupDecision: ...

    def decide_start(self, now: Now) -> GroupDecision:
        """Once after loading: the loaded members get a session each."""
        ...

    def apply(self, record: GroupRecord) -> None:
        """Records other than offsets and classic groups."""
        ...

    def note(self, note: Any) -> None:
        """Notes other than those below."""
        ...


class LiveIs(Struct):
    """Note: the live part of the group is now what this draft says, and belongs to the coordinator."""

    group_id: str
    live: Any
    group_bytes: int
    """What the group takes when the records beside this note are applied; an estimate."""


class SessionRenewed(Struct):
    """Note: the member was heard of."""

    group_id: str
    member_id: str
    deadline_ms: int


def nothing() -> GroupDecision:
    return Decision([], None)
