"""A classic group in memory: what its last record says, and what this coordinator knows beside it.

A record is written when the group becomes empty and when the leader has assigned. In between the next generation is in
the making, in `ClassicLive`: a coordinator that is loaded then falls back to the generation before, and its members
join again.
"""

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field

from skidway.errors import (
    FencedInstanceId,
    IllegalGeneration,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from skidway.groups.bounds import GROUP_BYTES, INVITED_BYTES
from skidway.groups.classic.generation import CONSUMER_PROTOCOL_TYPE, Generation, Member
from skidway.groups.classic.offers import Offers, Protocols
from skidway.groups.classic.states import SETTLED, Completing, Empty, Preparing, Stable, State
from skidway.groups.committed import CommittedOffset
from skidway.groups.operations import GroupType
from skidway.groups.overlay import Layered, changes
from skidway.groups.records import GroupRecord
from skidway.wire.schema.group_records import GroupMetadataKey, GroupMetadataValue


@dataclass(slots=True)
class ClassicLive(Layered):
    """What no record says: gone when the coordinator is loaded anew."""

    current: Generation
    """The one recorded, in the states that are settled; else the next one."""
    state: State
    offers: Offers
    invited: MutableMapping[str, int] = field(default_factory=dict)
    """Ids given out with MEMBER_ID_REQUIRED, and until when they are good."""
    sessions: MutableMapping[str, int] = field(default_factory=dict)
    """Until when each member is believed to live. A member that waits for an answer may have none."""

    @classmethod
    def of(cls, recorded: Generation) -> "ClassicLive":
        """As much as a record tells."""
        offers = Offers()
        for member in recorded.members.values():
            offers.put(member.member_id, [(recorded.protocol_name or "", member.subscription)])
        return cls(recorded, Stable() if recorded.members else Empty(), offers)

    def draft(self) -> "ClassicLive":
        draft = Layered.draft(self)
        draft.current = self.current.draft()
        draft.state = self.state.draft()
        draft.offers = self.offers.draft()
        return draft

    def settle_over(self, recorded: Generation) -> int | None:
        """The draft becomes what it was laid over. Returns the first deadline of those that may be new."""
        deadlines = [*changes(self.sessions).values(), *changes(self.invited).values()]
        deadline_ms = self.state.deadline_ms
        if deadline_ms is not None:
            deadlines.append(deadline_ms)
        if isinstance(self.state, SETTLED):
            self.current = recorded
        else:
            self.current.settle()
        self.state.settle()
        self.offers.settle()
        self.settle()
        return min(deadlines, default=None)

    @property
    def bytes(self) -> int:
        """Of the group, as far as it varies."""
        return self.current.member_bytes + self.offers.bytes + len(self.invited) * INVITED_BYTES

    @property
    def deadline_ms(self) -> int | None:
        deadlines = [*self.sessions.values(), *self.invited.values()]
        deadline_ms = self.state.deadline_ms
        if deadline_ms is not None:
            deadlines.append(deadline_ms)
        return min(deadlines, default=None)

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols could belong here."""
        if isinstance(self.state, Empty):
            return bool(protocol_type) and any(True for _ in names)
        return protocol_type == self.current.protocol_type and self.offers.includes_any(names)

    def put(self, member: Member, protocols: Protocols) -> None:
        self.current.put(member)
        self.offers.put(member.member_id, protocols)

    def remove(self, member_id: str) -> None:
        """Its parked calls are the caller's to answer."""
        self.current.remove(member_id)
        self.offers.remove(member_id)
        self.sessions.pop(member_id, None)
        match self.state:
            case Preparing(newcomers=newcomers):
                newcomers.pop(member_id, None)
            case Completing(unsynced=unsynced) | Stable(unsynced=unsynced):
                unsynced.pop(member_id, None)

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            holder = self.current.instances.get(instance_id)
            if holder is None:
                raise UnknownMemberId()
            if holder != member_id:
                raise FencedInstanceId()
        if member_id not in self.current.members:
            raise UnknownMemberId()


class ClassicGroup:
    __slots__ = ("durable", "group_id", "live")

    def __init__(self, group_id: str, durable: Generation) -> None:
        self.group_id = group_id
        self.durable = durable
        """As the last record says. Never changed: the next record makes a new one."""
        self.live = ClassicLive.of(durable)

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        return cls(group_id, Generation.from_record(value))

    def tombstones(self) -> list[GroupRecord]:
        return [GroupRecord(GroupMetadataKey(self.group_id), None)]

    def move(self, draft: ClassicLive) -> int | None:
        """The volatile part is now what the draft says. Returns the first deadline of those that may be new."""
        self.live = draft
        return draft.settle_over(self.durable)

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def state_name(self) -> str:
        return self.live.state.name

    @property
    def protocol_type(self) -> str:
        return self.live.current.protocol_type

    @property
    def is_empty(self) -> bool:
        return isinstance(self.live.state, Empty)

    @property
    def bytes(self) -> int:
        return GROUP_BYTES + len(self.group_id) + self.live.bytes

    @property
    def deadline_ms(self) -> int | None:
        return self.live.deadline_ms

    def renew_session(self, member_id: str, deadline_ms: int) -> None:
        self.live.sessions[member_id] = deadline_ms

    # Checks.

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, version: int) -> None:
        live = self.live
        if generation < 0 and isinstance(live.state, Empty):
            return
        if generation >= 0 or member_id or instance_id is not None:
            live.check_member(member_id, instance_id)
            if generation != live.current.number:
                raise IllegalGeneration()
        else:
            # Someone who does not take part may move the offsets of nobody's group only.
            raise UnknownMemberId()
        if isinstance(live.state, Completing):
            raise RebalanceInProgress()

    def check_commit_in_transaction(self, member_id: str, instance_id: str | None, generation: int) -> None:
        """A rebalance is no reason to refuse: the offsets are those of the generation that is over."""
        live = self.live
        if generation < 0 and (isinstance(live.state, Empty) or (not member_id and instance_id is None)):
            return
        live.check_member(member_id, instance_id)
        if generation != live.current.number:
            raise IllegalGeneration()

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anyone may."""

    def check_offset_deletion(self) -> None:
        if not self.is_empty and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroup()

    def check_deletion(self) -> None:
        if not self.is_empty:
            raise NonEmptyGroup()

    # Offsets.

    def is_subscribed(self, topic: str) -> bool:
        current = self.live.current
        if current.topics is None:
            return current.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in current.topics

    def retained_since_ms(self, committed: CommittedOffset) -> int | None:
        current, state = self.live.current, self.live.state
        if not current.protocol_type:
            return committed.commit_ms
        if isinstance(state, Empty):
            return committed.commit_ms if current.since_ms == -1 else current.since_ms
        if current.protocol_type == CONSUMER_PROTOCOL_TYPE and current.topics is not None and isinstance(state, Stable):
            return committed.commit_ms
        return None
