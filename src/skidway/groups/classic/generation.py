"""One generation of a classic group: who is in it, who leads it, and what was assigned.

It is what a record of a group says, no more. The last one recorded is the group's durable state; the next one is in the
making while the group rebalances. `Member` is never changed, only replaced, so that generations may share members.
"""

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, field

import msgspec

from skidway.errors import InvalidRequest
from skidway.groups.bounds import MEMBER_BYTES
from skidway.groups.overlay import Layered
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


class Member(msgspec.Struct):
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: Buffer = b""
    """What it said for the protocol that was chosen; nothing before one is."""
    assignment: Buffer = b""

    @property
    def bytes(self) -> int:
        """Without the subscription: it is one of the member's offers, which are counted."""
        return MEMBER_BYTES + len(self.member_id) + len(self.instance_id or "") + len(self.assignment)


@dataclass(slots=True)
class Generation(Layered):
    number: int = 0
    protocol_type: str = ""
    """Empty as long as the group never had members: a simple consumer's."""
    protocol_name: str | None = None
    leader: str | None = None
    since_ms: int = -1
    """Wall time from which the group was as the record says; -1 in records of old brokers."""
    members: MutableMapping[str, Member] = field(default_factory=dict)
    """Changed only by the methods here."""
    instances: MutableMapping[str, str] = field(default_factory=dict)
    """Static members: instance id to member id."""
    topics: frozenset[str] | None = None
    """What the members subscribe to; None where that cannot be known."""
    member_bytes: int = 0

    @property
    def rebalance_timeout_ms(self) -> int:
        asked = [member.rebalance_timeout_ms for member in self.members.values()]
        return max(REBALANCE_TIMEOUT_MS_MIN, max(asked, default=0))

    def put(self, member: Member) -> None:
        """A new member, or another state of one that is here, of the same instance."""
        known = self.members.get(member.member_id)
        self.members[member.member_id] = member
        self.member_bytes += member.bytes
        if known is not None:
            self.member_bytes -= known.bytes
        elif member.instance_id is not None:
            self.instances[member.instance_id] = member.member_id

    def remove(self, member_id: str) -> None:
        """Its place as the leader is the caller's to give away."""
        member = self.members.pop(member_id, None)
        if member is None:
            return
        self.member_bytes -= member.bytes
        if member.instance_id is not None:
            self.instances.pop(member.instance_id, None)
        if self.leader == member_id:
            self.leader = None

    def choose(self, protocol_name: str, subscriptions: Mapping[str, Buffer]) -> None:
        """The protocol this generation follows, and what each member said for it."""
        self.protocol_name = protocol_name
        for member in list(self.members.values()):
            subscription = subscriptions[member.member_id]
            if member.subscription != subscription:
                self.members[member.member_id] = _with(member, subscription, member.assignment)
        self.topics = self._subscribed_topics()

    def assign(self, assignments: Mapping[str, Buffer]) -> None:
        """Who is not named gets nothing."""
        for member in list(self.members.values()):
            assignment = assignments.get(member.member_id, b"")
            self.member_bytes += len(assignment) - len(member.assignment)
            self.members[member.member_id] = _with(member, member.subscription, assignment)

    def _subscribed_topics(self) -> frozenset[str] | None:
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
        for metadata in {bytes(member.subscription) for member in self.members.values()}:
            subscribed = _subscribed(metadata, names_left)
            if subscribed is None:
                return None
            names_left -= len(subscribed)
            topics.update(subscribed)
        return frozenset(topics)

    def end(self, wall_ms: int) -> None:
        """Nobody is left: the generation of an empty group."""
        assert not self.members
        self.protocol_name = None
        self.since_ms = wall_ms
        self.topics = self._subscribed_topics()

    # Records.

    def record(self, group_id: str) -> GroupRecord:
        value = GroupMetadataValue(
            protocol_type=self.protocol_type,
            generation=self.number,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp=self.since_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.subscription,
                    assignment=member.assignment,
                )
                for member in self.members.values()
            ],
        )
        return GroupRecord(GroupMetadataKey(group_id), value)

    @classmethod
    def from_record(cls, value: GroupMetadataValue) -> "Generation":
        generation = cls(
            value.generation, value.protocol_type, value.protocol, value.leader, value.current_state_timestamp
        )
        for each in value.members:
            generation.put(
                Member(
                    each.member_id,
                    each.group_instance_id,
                    each.client_id,
                    each.client_host,
                    each.session_timeout if each.rebalance_timeout == -1 else each.rebalance_timeout,
                    each.session_timeout,
                    bytes(each.subscription),
                    bytes(each.assignment),
                )
            )
        generation.topics = generation._subscribed_topics()
        return generation


def _with(member: Member, subscription: Buffer, assignment: Buffer) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.session_timeout_ms,
        subscription,
        assignment,
    )


def _subscribed(metadata: Buffer, names_max: int) -> list[str] | None:
    """Every version of the subscription begins as version 0 does; None when it is not one, or too long to read."""
    try:
        subscription, _ = codec(ConsumerProtocolSubscription).decoder(0)(metadata, 2, names_max)
    except InvalidRequest:
        return None
    topics: list[str] = subscription.topics
    return topics
