"""A group of the consumer protocol in memory.

Everything but `ConsumerLive` is durable, in one record each: the group's epoch with a hash of the topics it was last
assigned by, the target's epoch, what each regular expression takes, and for each member what it subscribes to, its
target, and what it has now. That changes by records only, in a draft as well, so what a decision sees of itself is what
a rebuilt group would be.
"""

from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from skidway.errors import (
    FencedInstanceId,
    IllegalGeneration,
    NonEmptyGroup,
    StaleMemberEpoch,
    UnknownMemberId,
    UnsupportedVersion,
)
from skidway.groups.bounds import GROUP_BYTES, MEMBER_BYTES, NAME_BYTES
from skidway.groups.classic.generation import CONSUMER_PROTOCOL_TYPE
from skidway.groups.committed import CommittedOffset
from skidway.groups.consumer.metadata_hash import NO_TOPICS
from skidway.groups.consumer.reconciliation import (
    NO_PARTITIONS,
    ClassicSide,
    ConsumerMember,
    MemberState,
    Partition,
    Partitions,
    by_topic,
    partitions_of,
)
from skidway.groups.operations import GroupType
from skidway.groups.overlay import Layered, changes
from skidway.groups.records import GroupRecord
from skidway.wire.schema.group_records import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    TopicPartition,
    TopicPartitions,
)

OFFSET_COMMIT_VERSION_WITH_EPOCHS = 9
NO_EPOCH = -1

TopicSizes = dict[str, tuple[bytes, int]]
"""Topics that exist, by name: id and number of partitions."""


@dataclass(slots=True)
class ConsumerLive(Layered):
    """What no record says: when a member is over unless something happens before, and what the cluster looked like."""

    sessions: MutableMapping[str, int] = field(default_factory=dict)
    revocations: MutableMapping[str, int] = field(default_factory=dict)
    """Members that are to give partitions up."""
    joins: MutableMapping[str, int] = field(default_factory=dict)
    """Members of the classic protocol that are to join again."""
    syncs: MutableMapping[str, int] = field(default_factory=dict)
    """Members of the classic protocol that joined and are to fetch their assignment."""
    topics_epoch: int | None = None
    """Of the cluster's topics, when the group last looked."""
    topics: TopicSizes = field(default_factory=dict)
    """What the members subscribed to then. Replaced as a whole."""

    @property
    def timers(self) -> tuple[MutableMapping[str, int], ...]:
        return self.sessions, self.revocations, self.joins, self.syncs

    def forget(self, member_id: str) -> None:
        for timer in self.timers:
            timer.pop(member_id, None)


@dataclass(slots=True)
class ConsumerGroup(Layered):
    group_id: str
    matches: Callable[[str, str], bool] = field(repr=False, compare=False)
    """Whether a regular expression takes a topic."""
    epoch: int = 0
    target_epoch: int = NO_EPOCH
    members: MutableMapping[str, ConsumerMember] = field(default_factory=dict)
    instances: MutableMapping[str, str] = field(default_factory=dict)
    """Static members: instance id to member id."""
    target: MutableMapping[str, Partitions] = field(default_factory=dict)
    holders: MutableMapping[Partition, int] = field(default_factory=dict)
    """How many members hold each partition: never more than one, once a log has been read to its end."""
    metadata_hash: int = NO_TOPICS
    """Of what the members subscribe to, as it was when the group's epoch was set."""
    patterns: dict[str, frozenset[str]] = field(default_factory=dict)
    """What each regular expression of a member takes. Replaced as a whole."""
    has_topics_record: bool = False
    """Brokers before 4.1 wrote the topics down in a record of their own, which the hash replaces."""
    member_bytes: int = 0
    live: ConsumerLive = field(default_factory=ConsumerLive)

    @property
    def type(self) -> GroupType:
        return GroupType.CONSUMER

    @property
    def protocol_type(self) -> str:
        return CONSUMER_PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        reconciled = all(member.is_reconciled_to(self.target_epoch) for member in self.members.values())
        return "Stable" if reconciled else "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def bytes(self) -> int:
        return GROUP_BYTES + len(self.group_id) + self.member_bytes

    @property
    def deadline_ms(self) -> int | None:
        return min([deadline_ms for timer in self.live.timers for deadline_ms in timer.values()], default=None)

    def renew_session(self, member_id: str, deadline_ms: int) -> None:
        self.live.sessions[member_id] = deadline_ms

    def draft(self) -> "ConsumerGroup":
        draft = Layered.draft(self)
        draft.live = self.live.draft()
        return draft

    def move(self, draft: ConsumerLive) -> int | None:
        """The live part is now what the draft says. Returns the first deadline of those that may be new."""
        deadline_ms = min([at_ms for timer in draft.timers for at_ms in changes(timer).values()], default=None)
        draft.settle()
        self.live = draft
        return deadline_ms

    # Members.

    def member(self, member_id: str, instance_id: str | None) -> ConsumerMember:
        if instance_id is not None:
            current = self.instances.get(instance_id)
            if current is None:
                raise UnknownMemberId(f"Instance id {instance_id} is unknown.")
            if current != member_id:
                raise FencedInstanceId(f"Instance id {instance_id} belongs to member {current}.")
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def held_by_others(self, member: ConsumerMember, wanted: Partitions) -> Partitions:
        """Which of those somebody else has not given up yet."""
        own = member.held
        return frozenset(each for each in wanted if self.holders.get(each, 0) > (each in own))

    def _put(self, member_id: str, member: ConsumerMember | None) -> None:
        """Another state of a member, a new one, or none any more."""
        known = self.members.pop(member_id, None) if member is None else self.members.get(member_id)
        before = NO_PARTITIONS if known is None else known.held
        after = NO_PARTITIONS if member is None else member.held
        if member is not None:
            self.members[member_id] = member
        if before is after:
            return
        for partition in before - after:
            count = self.holders[partition] - 1
            if count:
                self.holders[partition] = count
            else:
                del self.holders[partition]
        for partition in after - before:
            self.holders[partition] = self.holders.get(partition, 0) + 1

    def classic_protocols(self) -> tuple[dict[str, int], int]:
        """How many members of the classic protocol support each of theirs, and how many there are."""
        supporters: dict[str, int] = {}
        members = [member.classic for member in self.members.values() if member.classic is not None]
        for classic in members:
            for name in {name for name, _ in classic.protocols}:
                supporters[name] = supporters.get(name, 0) + 1
        return supporters, len(members)

    # Checks.

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, version: int) -> None:
        if generation < 0 and not self.members:
            return
        member = self.member(member_id, None)
        if member.classic is None and version < OFFSET_COMMIT_VERSION_WITH_EPOCHS:
            raise UnsupportedVersion("Members of consumer groups must commit with OffsetCommit version 9 or above.")
        _check_epoch(member, generation)

    def check_commit_in_transaction(self, member_id: str, instance_id: str | None, generation: int) -> None:
        if generation < 0 and (not self.members or (not member_id and instance_id is None)):
            return
        _check_epoch(self.member(member_id, None), generation)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        _check_epoch(self.member(member_id or "", None), member_epoch)

    def check_offset_deletion(self) -> None:
        """Which topics are in use is looked at one by one."""

    def check_deletion(self) -> None:
        if self.members:
            raise NonEmptyGroup()

    # Offsets.

    def is_subscribed(self, topic: str) -> bool:
        return any(
            topic in member.topics or (member.regex is not None and self.matches(member.regex, topic))
            for member in self.members.values()
        )

    def retained_since_ms(self, committed: CommittedOffset) -> int | None:
        return committed.commit_ms

    # Records.

    def apply(self, record: GroupRecord) -> None:
        """Records of compacted logs come in an order of their own: each is taken for itself."""
        value = record.value
        match record.key:
            case ConsumerGroupMetadataKey():
                assert isinstance(value, ConsumerGroupMetadataValue)
                self.epoch = value.epoch
                self.metadata_hash = value.metadata_hash
            case ConsumerGroupPartitionMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupPartitionMetadataValue)
                self.has_topics_record = value is not None
            case ConsumerGroupRegularExpressionKey(regular_expression=regex):
                assert value is None or isinstance(value, ConsumerGroupRegularExpressionValue)
                others = {each: topics for each, topics in self.patterns.items() if each != regex}
                self.patterns = others if value is None else {**others, regex: frozenset(value.topics)}
            case ConsumerGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMetadataValue)
                self.target_epoch = NO_EPOCH if value is None else value.assignment_epoch
            case ConsumerGroupTargetAssignmentMemberKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
                if value is None:
                    self.target.pop(member_id, None)
                else:
                    self.target[member_id] = partitions_of((t.topic_id, t.partitions) for t in value.topic_partitions)
            case ConsumerGroupMemberMetadataKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupMemberMetadataValue)
                self._apply_member(member_id, value)
            case ConsumerGroupCurrentMemberAssignmentKey(member_id=member_id):
                assert value is None or isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
                self._apply_current(member_id, value)

    def _apply_member(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        known = self.members.get(member_id)
        self.member_bytes -= bytes_of_member(known)
        if value is None:
            self._put(member_id, None)
            if (
                known is not None
                and known.instance_id is not None
                and self.instances.get(known.instance_id) == member_id
            ):
                del self.instances[known.instance_id]
            return
        classic = value.classic_member_metadata
        member = replace(
            known or ConsumerMember(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            topics=frozenset(value.subscribed_topic_names),
            regex=value.subscribed_topic_regex or None,
            assignor=value.server_assignor,
            classic=None if classic is None else _classic_side(classic),
        )
        self._put(member_id, member)
        self.member_bytes += bytes_of_member(member)
        if value.instance_id is not None:
            self.instances[value.instance_id] = member_id

    def _apply_current(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        known = self.members.get(member_id)
        if value is None:
            if known is not None:
                gone = replace(known, epoch=-1, previous_epoch=-1, assigned=NO_PARTITIONS, revoking=NO_PARTITIONS)
                self._put(member_id, gone)
            return
        if known is None:
            self.member_bytes += bytes_of_member(ConsumerMember(member_id))
        member = replace(
            known or ConsumerMember(member_id),
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState(value.state),
            assigned=partitions_of((each.topic_id, each.partitions) for each in value.assigned_partitions),
            revoking=partitions_of((each.topic_id, each.partitions) for each in value.partitions_pending_revocation),
        )
        self._put(member_id, member)

    def tombstones(self) -> list[GroupRecord]:
        group_id, members = self.group_id, self.members
        return [
            *(GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, each), None) for each in members),
            *(GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, each), None) for each in members),
            GroupRecord(ConsumerGroupTargetAssignmentMetadataKey(group_id), None),
            *(GroupRecord(ConsumerGroupMemberMetadataKey(group_id, each), None) for each in members),
            *(GroupRecord(ConsumerGroupRegularExpressionKey(group_id, each), None) for each in self.patterns),
            *([topics_tombstone(group_id)] if self.has_topics_record else []),
            GroupRecord(ConsumerGroupMetadataKey(group_id), None),
        ]


def bytes_of_member(member: ConsumerMember | None) -> int:
    if member is None:
        return 0
    names = (member.member_id, member.instance_id or "", member.rack_id or "", member.regex or "")
    protocols = () if member.classic is None else member.classic.protocols
    return (
        MEMBER_BYTES
        + sum(map(len, names))
        + sum(map(len, member.topics))
        + len(member.topics) * NAME_BYTES
        + sum(len(name) + len(metadata) for name, metadata in protocols)
    )


def _check_epoch(member: ConsumerMember, epoch: int) -> None:
    if epoch == member.epoch:
        return
    message = f"Member {member.member_id} is in epoch {member.epoch}, not {epoch}."
    raise StaleMemberEpoch(message) if member.classic is None else IllegalGeneration(message)


def _classic_side(value: ClassicMemberMetadata) -> ClassicSide:
    protocols = tuple((each.name, bytes(each.metadata)) for each in value.supported_protocols)
    return ClassicSide(value.session_timeout_ms, protocols)


# Records of a group.


def epoch_record(group_id: str, epoch: int, metadata_hash: int = NO_TOPICS) -> GroupRecord:
    return GroupRecord(ConsumerGroupMetadataKey(group_id), ConsumerGroupMetadataValue(epoch, metadata_hash))


def topics_tombstone(group_id: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupPartitionMetadataKey(group_id), None)


def pattern_record(group_id: str, regex: str, topics: frozenset[str], version: int, wall_ms: int) -> GroupRecord:
    """`version`: of the cluster's topics when they were looked through."""
    value = ConsumerGroupRegularExpressionValue(sorted(topics), version, wall_ms)
    return GroupRecord(ConsumerGroupRegularExpressionKey(group_id, regex), value)


def pattern_tombstone(group_id: str, regex: str) -> GroupRecord:
    return GroupRecord(ConsumerGroupRegularExpressionKey(group_id, regex), None)


def target_epoch_record(group_id: str, epoch: int) -> GroupRecord:
    return GroupRecord(
        ConsumerGroupTargetAssignmentMetadataKey(group_id), ConsumerGroupTargetAssignmentMetadataValue(epoch)
    )


def target_record(group_id: str, member_id: str, target: Partitions) -> GroupRecord:
    value = ConsumerGroupTargetAssignmentMemberValue([TopicPartition(*each) for each in by_topic(target)])
    return GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), value)


def member_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    classic = member.classic
    value = ConsumerGroupMemberMetadataValue(
        member.instance_id,
        member.rack_id,
        member.client_id,
        member.client_host,
        sorted(member.topics),
        member.regex,
        member.rebalance_timeout_ms,
        member.assignor,
        None
        if classic is None
        else ClassicMemberMetadata(classic.session_timeout_ms, [ClassicProtocol(*each) for each in classic.protocols]),
    )
    return GroupRecord(ConsumerGroupMemberMetadataKey(group_id, member.member_id), value)


def current_record(group_id: str, member: ConsumerMember) -> GroupRecord:
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member.epoch,
        member.previous_epoch,
        member.state.value,
        [TopicPartitions(*each) for each in by_topic(member.assigned)],
        [TopicPartitions(*each) for each in by_topic(member.revoking)],
    )
    return GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member.member_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    return [
        GroupRecord(ConsumerGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        GroupRecord(ConsumerGroupTargetAssignmentMemberKey(group_id, member_id), None),
        GroupRecord(ConsumerGroupMemberMetadataKey(group_id, member_id), None),
    ]
