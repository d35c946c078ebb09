"""A share group in memory.

Everything but `ShareLive` is durable, in one record each: the group's epoch with a hash of its topics, the target's
epoch, for each member what it subscribes to, its target and what it has now; and which share-partitions are being
initialised, are initialised, are being deleted. That changes by records only, in a draft as well.
"""

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec.structs import replace

from skidway.errors import FencedMemberEpoch, GroupIdNotFound, NonEmptyGroup, UnknownMemberId
from skidway.groups.bounds import GROUP_BYTES, MEMBER_BYTES, NAME_BYTES
from skidway.groups.committed import CommittedOffset
from skidway.groups.consumer.metadata_hash import NO_TOPICS
from skidway.groups.consumer.reconciliation import NO_PARTITIONS, Partition, Partitions, by_topic, partitions_of
from skidway.groups.operations import GroupType
from skidway.groups.overlay import Layered, changes
from skidway.groups.records import GroupRecord
from skidway.groups.share.operations import StateEffect
from skidway.runtime.replicated import Operation
from skidway.wire.schema.share_records import (
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupCurrentMemberAssignmentValue,
    ShareGroupMemberMetadataKey,
    ShareGroupMemberMetadataValue,
    ShareGroupMetadataKey,
    ShareGroupMetadataValue,
    ShareGroupStatePartitionMetadataKey,
    ShareGroupStatePartitionMetadataValue,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupTargetAssignmentMemberValue,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMetadataValue,
    TopicInfo,
    TopicPartition,
    TopicPartitions,
    TopicPartitionsInfo,
)

NO_EPOCH = -1
PROTOCOL_TYPE = "share"
STABLE = 0
STATE_BYTES = 20
"""Of each share-partition that has a state."""

Names = dict[bytes, str]
TopicIds = frozenset[bytes]


class ShareMember(msgspec.Struct, frozen=True):
    member_id: str
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    topics: frozenset[str] = frozenset()
    epoch: int = 0
    previous_epoch: int = 0
    assigned: Partitions = NO_PARTITIONS

    def check_epoch(self, epoch: int) -> None:
        if epoch not in (self.epoch, self.previous_epoch):
            raise FencedMemberEpoch(f"Member {self.member_id} is in epoch {self.epoch}, not {epoch}.")


class Work(msgspec.Struct, frozen=True):
    """An effect that has not been answered."""

    effect: StateEffect
    asked: Operation[Any] | None = None
    """Who waits for it."""


@dataclass(slots=True)
class ShareLive(Layered):
    """What no record says."""

    sessions: MutableMapping[str, int] = field(default_factory=dict)
    works: MutableMapping[int, Work] = field(default_factory=dict)
    """By the number of the effect."""
    retries: MutableMapping[str, int] = field(default_factory=dict)
    """When share-partitions are initialised again whose coordinator was not there; one entry, if any."""
    topics_epoch: int | None = None
    """Of the cluster's topics, when the group last looked."""
    topics: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """What the members subscribed to then. Replaced as a whole."""

    @property
    def timers(self) -> tuple[MutableMapping[str, int], ...]:
        return self.sessions, self.retries


@dataclass(slots=True)
class ShareGroup(Layered):
    group_id: str
    epoch: int = 0
    metadata_hash: int = NO_TOPICS
    target_epoch: int = NO_EPOCH
    members: MutableMapping[str, ShareMember] = field(default_factory=dict)
    target: MutableMapping[str, Partitions] = field(default_factory=dict)
    # Replaced as a whole.
    initializing: Partitions = NO_PARTITIONS
    initialized: Partitions = NO_PARTITIONS
    deleting: TopicIds = frozenset()
    names: Names = field(default_factory=dict)
    """Of the topics in the three above, when they were written down."""
    member_bytes: int = 0
    live: ShareLive = field(default_factory=ShareLive)

    @property
    def type(self) -> GroupType:
        return GroupType.SHARE

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def bytes(self) -> int:
        states = len(self.initializing) + len(self.initialized)
        return GROUP_BYTES + len(self.group_id) + self.member_bytes + STATE_BYTES * states

    @property
    def deadline_ms(self) -> int | None:
        return min([deadline_ms for timer in self.live.timers for deadline_ms in timer.values()], default=None)

    @property
    def is_pending(self) -> bool:
        """Whether a member will soon be assigned more than it is."""
        return bool(self.initializing) or self.epoch > self.target_epoch

    def renew_session(self, member_id: str, deadline_ms: int) -> None:
        self.live.sessions[member_id] = deadline_ms

    def draft(self) -> "ShareGroup":
        draft = Layered.draft(self)
        draft.live = self.live.draft()
        return draft

    def move(self, draft: ShareLive) -> int | None:
        deadline_ms = min([at_ms for timer in draft.timers for at_ms in changes(timer).values()], default=None)
        draft.settle()
        self.live = draft
        return deadline_ms

    def member(self, member_id: str) -> ShareMember:
        member = self.members.get(member_id)
        if member is None:
            raise UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    # Checks. Offsets of share groups are no committed offsets.

    def check_commit(self, member_id: str, instance_id: str | None, generation: int, version: int) -> None:
        raise self._not_a_consumer_group()

    def check_commit_in_transaction(self, member_id: str, instance_id: str | None, generation: int) -> None:
        raise self._not_a_consumer_group()

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        raise self._not_a_consumer_group()

    def check_offset_deletion(self) -> None:
        raise self._not_a_consumer_group()

    @property
    def topic_ids(self) -> TopicIds:
        """Of all share-partitions that may have a state."""
        return frozenset(topic_id for topic_id, _ in self.initializing | self.initialized) | self.deleting

    def check_deletion(self) -> None:
        if self.members:
            raise NonEmptyGroup()

    def _not_a_consumer_group(self) -> GroupIdNotFound:
        return GroupIdNotFound(f"Group {self.group_id} is not a consumer group.")

    def is_subscribed(self, topic: str) -> bool:
        return any(topic in member.topics for member in self.members.values())

    def retained_since_ms(self, committed: CommittedOffset) -> int | None:
        return None

    # Records.

    def apply(self, record: GroupRecord) -> None:
        """Records of compacted logs come in an order of their own: each is taken for itself."""
        value = record.value
        match record.key:
            case ShareGroupMetadataKey():
                assert isinstance(value, ShareGroupMetadataValue)
                self.epoch, self.metadata_hash = value.epoch, value.metadata_hash
            case ShareGroupTargetAssignmentMetadataKey():
                assert value is None or isinstance(value, ShareGroupTargetAssignmentMetadataValue)
                self.target_epoch = NO_EPOCH if value is None else value.assignment_epoch
            case ShareGroupTargetAssignmentMemberKey(member_id=member_id):
                assert value is None or isinstance(value, ShareGroupTargetAssignmentMemberValue)
                if value is None:
                    self.target.pop(member_id, None)
                else:
                    self.target[member_id] = partitions_of((t.topic_id, t.partitions) for t in value.topic_partitions)
            case ShareGroupMemberMetadataKey(member_id=member_id):
                assert value is None or isinstance(value, ShareGroupMemberMetadataValue)
                self._apply_member(member_id, value)
            case ShareGroupCurrentMemberAssignmentKey(member_id=member_id):
                assert value is None or isinstance(value, ShareGroupCurrentMemberAssignmentValue)
                self._apply_current(member_id, value)
            case ShareGroupStatePartitionMetadataKey():
                assert value is None or isinstance(value, ShareGroupStatePartitionMetadataValue)
                self._apply_states(value or ShareGroupStatePartitionMetadataValue())

    def _apply_member(self, member_id: str, value: ShareGroupMemberMetadataValue | None) -> None:
        known = self.members.get(member_id)
        self.member_bytes -= _bytes_of_member(known)
        if value is None:
            self.members.pop(member_id, None)
            return
        member = self.members[member_id] = replace(
            known or ShareMember(member_id),
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topics=frozenset(value.subscribed_topic_names),
        )
        self.member_bytes += _bytes_of_member(member)

    def _apply_current(self, member_id: str, value: ShareGroupCurrentMemberAssignmentValue | None) -> None:
        known = self.members.get(member_id)
        if value is None:
            if known is not None:
                self.members[member_id] = replace(known, epoch=0, previous_epoch=0, assigned=NO_PARTITIONS)
            return
        if known is None:
            known = ShareMember(member_id)
            self.member_bytes += _bytes_of_member(known)
        self.members[member_id] = replace(
            known,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            assigned=partitions_of((each.topic_id, each.partitions) for each in value.assigned_partitions),
        )

    def _apply_states(self, value: ShareGroupStatePartitionMetadataValue) -> None:
        self.initializing = partitions_of((each.topic_id, each.partitions) for each in value.initializing_topics)
        self.initialized = partitions_of((each.topic_id, each.partitions) for each in value.initialized_topics)
        self.deleting = frozenset(bytes(each.topic_id) for each in value.deleting_topics)
        named: list[TopicPartitionsInfo | TopicInfo] = [
            *value.initializing_topics,
            *value.initialized_topics,
            *value.deleting_topics,
        ]
        self.names = {bytes(each.topic_id): each.topic_name for each in named}

    def tombstones(self) -> list[GroupRecord]:
        group_id, members = self.group_id, self.members
        return [
            *(GroupRecord(ShareGroupCurrentMemberAssignmentKey(group_id, each), None) for each in members),
            *(GroupRecord(ShareGroupTargetAssignmentMemberKey(group_id, each), None) for each in members),
            GroupRecord(ShareGroupTargetAssignmentMetadataKey(group_id), None),
            *(GroupRecord(ShareGroupMemberMetadataKey(group_id, each), None) for each in members),
            GroupRecord(ShareGroupStatePartitionMetadataKey(group_id), None),
            GroupRecord(ShareGroupMetadataKey(group_id), None),
        ]


def _bytes_of_member(member: ShareMember | None) -> int:
    if member is None:
        return 0
    names = sum(map(len, member.topics)) + len(member.topics) * NAME_BYTES
    return MEMBER_BYTES + len(member.member_id) + len(member.rack_id or "") + names


# Records of a group.


def epoch_record(group_id: str, epoch: int, metadata_hash: int) -> GroupRecord:
    return GroupRecord(ShareGroupMetadataKey(group_id), ShareGroupMetadataValue(epoch, metadata_hash))


def target_epoch_record(group_id: str, epoch: int, wall_ms: int) -> GroupRecord:
    value = ShareGroupTargetAssignmentMetadataValue(epoch, wall_ms)
    return GroupRecord(ShareGroupTargetAssignmentMetadataKey(group_id), value)


def target_record(group_id: str, member_id: str, target: Partitions) -> GroupRecord:
    value = ShareGroupTargetAssignmentMemberValue([TopicPartition(*each) for each in by_topic(target)])
    return GroupRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), value)


def member_record(group_id: str, member: ShareMember) -> GroupRecord:
    value = ShareGroupMemberMetadataValue(member.rack_id, member.client_id, member.client_host, sorted(member.topics))
    return GroupRecord(ShareGroupMemberMetadataKey(group_id, member.member_id), value)


def current_record(group_id: str, member: ShareMember) -> GroupRecord:
    assigned = [TopicPartitions(*each) for each in by_topic(member.assigned)]
    value = ShareGroupCurrentMemberAssignmentValue(member.epoch, member.previous_epoch, STABLE, assigned)
    return GroupRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member.member_id), value)


def member_tombstones(group_id: str, member_id: str) -> list[GroupRecord]:
    return [
        GroupRecord(ShareGroupCurrentMemberAssignmentKey(group_id, member_id), None),
        GroupRecord(ShareGroupTargetAssignmentMemberKey(group_id, member_id), None),
        GroupRecord(ShareGroupMemberMetadataKey(group_id, member_id), None),
    ]


def states_record(
    group_id: str,
    initializing: Iterable[Partition],
    initialized: Iterable[Partition],
    deleting: Iterable[bytes],
    names: Names,
) -> GroupRecord:
    def named(partitions: Iterable[Partition]) -> list[TopicPartitionsInfo]:
        topics = by_topic(frozenset(partitions))
        return [TopicPartitionsInfo(topic_id, names.get(topic_id, ""), numbers) for topic_id, numbers in topics]

    value = ShareGroupStatePartitionMetadataValue(
        named(initializing),
        named(initialized),
        [TopicInfo(topic_id, names.get(topic_id, "")) for topic_id in sorted(deleting)],
    )
    return GroupRecord(ShareGroupStatePartitionMetadataKey(group_id), value)
