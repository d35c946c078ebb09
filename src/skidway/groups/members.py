"""A classic group in memory: its members, and where it is in a rebalance.

    Empty -> PreparingRebalance -> CompletingRebalance -> Stable
      ^------------'   ^-----------------'------------------'

Durable is what the last record says: generation, protocol, leader, members with subscription and assignment. It is
written when the group becomes empty and when the leader has assigned; a group in between falls back to the generation
before when the coordinator is loaded anew, and its members join again. `Member` is never changed, only replaced, so
that a draft of a group may share its members.
"""

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from skidway.errors import (
    FencedInstanceId,
    IllegalGeneration,
    InvalidRequest,
    NonEmptyGroup,
    RebalanceInProgress,
    UnknownMemberId,
)
from skidway.groups.bounds import GROUP_BYTES, INVITED_BYTES, MEMBER_BYTES
from skidway.groups.offsets import CommittedOffset
from skidway.groups.operations import GroupType, JoinGroup, SyncGroup
from skidway.groups.overlay import Overlay, changes, settled
from skidway.groups.records import GroupRecord
from skidway.ports import Buffer
from skidway.wire.registry import codec
from skidway.wire.schema.consumer_protocol import ConsumerProtocolSubscription
from skidway.wire.schema.group_records import GroupMetadataKey, GroupMetadataValue, MemberMetadata

CONSUMER_PROTOCOL_TYPE = "consumer"
REBALANCE_TIMEOUT_MS_MIN = 100
"""A client may ask for none at all; a phase that ends as it begins would keep the coordinator busy for nothing."""


SUBSCRIBED_NAMES_MAX = 200_000
"""Topics to be read from what the members of one group say. With more, all offsets count as in use."""


class State(StrEnum):
    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(slots=True)
class Member:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: list[tuple[str, Buffer]]
    """What it could follow, the best first, each with its own metadata."""
    assignment: Buffer = b""

    @property
    def names(self) -> set[str]:
        """Of the protocols; a client may name one twice."""
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str | None) -> Buffer:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        raise AssertionError(f"{self.member_id} does not support {protocol}")

    def assigned(self, assignment: Buffer) -> "Member":
        return Member(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.protocols,
            assignment,
        )

    @property
    def bytes(self) -> int:
        said = sum(len(name) + len(metadata) for name, metadata in self.protocols)
        return MEMBER_BYTES + len(self.member_id) + len(self.instance_id or "") + said + len(self.assignment)


@dataclass(slots=True)
class InitialDelay:
    """The group was empty: more members may come."""

    deadline_ms: int
    delay_ms: int
    remaining_ms: int
    more_came: bool = False


@dataclass(slots=True)
class JoinTimeout:
    """Members of the generation before have this long to join again."""

    deadline_ms: int


@dataclass(slots=True)
class ClassicGroup:
    group_id: str
    state: State = State.EMPTY
    generation: int = 0
    protocol_type: str = ""
    """Empty as long as the group never had members: a simple consumer's."""
    protocol_name: str | None = None
    leader: str | None = None
    state_since_ms: int = -1
    """Wall time; -1 in records of old brokers."""
    members: MutableMapping[str, Member] = field(default_factory=dict)
    """Changed only by `put` and `remove`."""
    instances: MutableMapping[str, str] = field(default_factory=dict)
    """Static members: instance id to member id."""
    supporters: MutableMapping[str, int] = field(default_factory=dict)
    """How many members support each protocol."""
    topics: frozenset[str] | None = None
    """What the members subscribe to; None where that cannot be known."""
    member_bytes: int = 0

    # Known to this coordinator only, not to the log.
    joins: MutableMapping[str, JoinGroup] = field(default_factory=dict)
    """Calls that wait for the join phase to end, by member."""
    syncs: MutableMapping[str, SyncGroup] = field(default_factory=dict)
    """Calls that wait for the leader's assignment, by member."""
    invited: MutableMapping[str, int] = field(default_factory=dict)
    """Ids given out with MEMBER_ID_REQUIRED, and until when they are good."""
    newcomers: MutableMapping[str, None] = field(default_factory=dict)
    """Members that never had an answer to a join, so cannot send heartbeats."""
    unsynced: MutableMapping[str, None] = field(default_factory=dict)
    """Members of this generation that have not asked for their assignment yet."""
    sessions: MutableMapping[str, int] = field(default_factory=dict)
    """Until when each member is believed to live. A member that waits for an answer may have none."""
    join_phase: InitialDelay | JoinTimeout | None = None
    sync_deadline_ms: int | None = None

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state == State.EMPTY

    @property
    def bytes(self) -> int:
        return GROUP_BYTES + len(self.group_id) + self.member_bytes + len(self.invited) * INVITED_BYTES

    @property
    def deadline_ms(self) -> int | None:
        deadlines = [*self.sessions.values(), *self.invited.values()]
        if self.join_phase is not None:
            deadlines.append(self.join_phase.deadline_ms)
        if self.sync_deadline_ms is not None:
            deadlines.append(self.sync_deadline_ms)
        return min(deadlines, default=None)

    def draft(self) -> "ClassicGroup":
        join_phase = self.join_phase
        return ClassicGroup(
            self.group_id,
            self.state,
            self.generation,
            self.protocol_type,
            self.protocol_name,
            self.leader,
            self.state_since_ms,
            Overlay(self.members),
            Overlay(self.instances),
            Overlay(self.supporters),
            self.topics,
            self.member_bytes,
            Overlay(self.joins),
            Overlay(self.syncs),
            Overlay(self.invited),
            Overlay(self.newcomers),
            Overlay(self.unsynced),
            Overlay(self.sessions),
            None if join_phase is None else replace(join_phase),
            self.sync_deadline_ms,
        )

    def settle(self) -> int | None:
        deadlines = [*changes(self.sessions).values(), *changes(self.invited).values()]
        if self.join_phase is not None:
            deadlines.append(self.join_phase.deadline_ms)
        if self.sync_deadline_ms is not None:
            deadlines.append(self.sync_deadline_ms)
        self.members = settled(self.members)
        self.instances = settled(self.instances)
        self.supporters = settled(self.supporters)
        self.joins = settled(self.joins)
        self.syncs = settled(self.syncs)
        self.invited = settled(self.invited)
        self.newcomers = settled(self.newcomers)
        self.unsynced = settled(self.unsynced)
        self.sessions = settled(self.sessions)
        return min(deadlines, default=None)

    def renew_session(self, member_id: str, deadline_ms: int) -> None:
        self.sessions[member_id] = deadline_ms

    # Members.

    @property
    def rebalance_timeout_ms(self) -> int:
        asked = (member.rebalance_timeout_ms for member in self.members.values())
        return max(REBALANCE_TIMEOUT_MS_MIN, max(asked, default=0))

    @property
    def everyone_joined(self) -> bool:
        return len(self.joins) == len(self.members) and not self.invited

    def supports(self, protocol_type: str, names: Iterable[str]) -> bool:
        """Whether a member with these protocols could belong here."""
        if self.state == State.EMPTY:
            return bool(protocol_type) and any(True for _ in names)
        if protocol_type != self.protocol_type:
            return False
        return any(self.supporters.get(name, 0) == len(self.members) for name in names)

    def elected_protocol(self) -> str:
        """Each member votes for the first it likes of those that all support."""
        votes: dict[str, int] = {}
        everyone = len(self.members)
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if self.supporters[name] == everyone)
            votes[choice] = votes.get(choice, 0) + 1
        return max(votes, key=lambda name: votes[name])

    def put(self, member: Member) -> None:
        """A new member, or another state of one that is here."""
        known = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self.member_bytes += member.bytes
        if known is not None:
            self.member_bytes -= known.bytes
            if known.instance_id == member.instance_id and known.names == member.names:
                return
            self._discount(known)
        if member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id
        for name in member.names:
            self.supporters[name] = self.supporters.get(name, 0) + 1

    def assign(self, member: Member, assignment: Buffer) -> None:
        """The same member with another assignment."""
        self.member_bytes += len(assignment) - len(member.assignment)
        self.members[member.member_id] = member.assigned(assignment)

    def _discount(self, member: Member) -> None:
        if member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        for name in member.names:
            self.supporters[name] -= 1
            if not self.supporters[name]:
                del self.supporters[name]

    def remove(self, member_id: str) -> None:
        """Its parked calls are the caller's to answer, and its place as the leader the caller's to give away."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.member_bytes -= member.bytes
            self._discount(member)
        self.sessions.pop(member_id, None)
        self.newcomers.pop(member_id, None)
        self.unsynced.pop(member_id, None)
        if self.leader == member_id:
            self.leader = None

    # Checks.

    def check_member(self, member_id: str, instance_id: str | None) -> None:
        if instance_id is not None:
            current = self.instances.get(instance_id)
            if current is None:
                raise UnknownMemberId()
            if current != member_id:
                raise FencedInstanceId()
        if member_id not in self.members:
            raise UnknownMemberId()

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, version: int) -> None:
        if generation < 0 and self.state == State.EMPTY:
            return
        if generation >= 0 or member_id or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise IllegalGeneration()
        else:
            # Someone who does not take part may move the offsets of nobody's group only.
            raise UnknownMemberId()
        if self.state == State.COMPLETING:
            raise RebalanceInProgress()

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anyone may."""

    def check_offset_deletion(self) -> None:
        if self.state != State.EMPTY and self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            raise NonEmptyGroup()

    def check_deletion(self) -> None:
        if self.state != State.EMPTY:
            raise NonEmptyGroup()

    # Offsets.

    def is_subscribed(self, topic: str) -> bool:
        if self.topics is None:
            return self.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in self.topics

    def retained_since_ms(self, committed: CommittedOffset) -> int | None:
        if not self.protocol_type:
            return committed.commit_ms
        if self.state == State.EMPTY:
            return committed.commit_ms if self.state_since_ms == -1 else self.state_since_ms
        if self.protocol_type == CONSUMER_PROTOCOL_TYPE and self.topics is not None and self.state == State.STABLE:
            return committed.commit_ms
        return None

    def subscribed_topics(self) -> frozenset[str] | None:
        """Of the members, by the protocol chosen."""
        if self.protocol_type != CONSUMER_PROTOCOL_TYPE:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        names_left = SUBSCRIBED_NAMES_MAX
        # Most members say the same, word for word.
        for metadata in {bytes(member.metadata(self.protocol_name)) for member in self.members.values()}:
            subscribed = _subscribed(metadata, names_left)
            if subscribed is None:
                return None
            names_left -= len(subscribed)
            topics.update(subscribed)
        return frozenset(topics)

    # Records.

    def record(self) -> GroupRecord:
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp=self.state_since_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.metadata(self.protocol_name),
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )
        return GroupRecord(GroupMetadataKey(self.group_id), value)

    def tombstones(self) -> list[GroupRecord]:
        return [GroupRecord(GroupMetadataKey(self.group_id), None)]

    @classmethod
    def from_record(cls, group_id: str, value: GroupMetadataValue) -> "ClassicGroup":
        group = cls(
            group_id,
            State.STABLE if value.members else State.EMPTY,
            value.generation,
            value.protocol_type,
            value.protocol,
            value.leader,
            value.current_state_timestamp,
        )
        group.members = {
            each.member_id: Member(
                each.member_id,
                each.group_instance_id,
                each.client_id,
                each.client_host,
                each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout,
                each.session_timeout,
                [(value.protocol or "", bytes(each.subscription))],
                bytes(each.assignment),
            )
            for each in value.members
        }
        group.member_bytes = sum(member.bytes for member in group.members.values())
        group.instances = {
            each.group_instance_id: each.member_id for each in value.members if each.group_instance_id is not None
        }
        group.supporters = {value.protocol or "": len(group.members)} if group.members else {}
        group.topics = group.subscribed_topics()
        return group


def _subscribed(metadata: Buffer, names_max: int) -> list[str] | None:
    """Every version of the subscription begins as version 0 does; None when it is not one, or too long to read."""
    try:
        subscription, _ = codec(ConsumerProtocolSubscription).decoder(0)(metadata, 2, names_max)
    except InvalidRequest:
        return None
    topics: list[str] = subscription.topics
    return topics
