"""Groups that change their protocol while they run, in both directions, and the time in between.

A join by the consumer protocol makes a consumer group of a classic one; its members keep what they have and go on with
the classic requests, which the consumer group answers: a member's epoch is its generation, a rebalance is the member
on its way to its target. When the last member of the consumer protocol is gone, the group is a classic one again.
"""

from dataclasses import replace
from typing import Any

from skidway.errors import (
    ErrorCode,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidRequest,
    InvalidSessionTimeout,
    MemberIdRequired,
    ProtocolError,
    RebalanceInProgress,
    UnknownMemberId,
)
from skidway.groups.consumer_change import Change
from skidway.groups.consumer_group import (
    ConsumerGroup,
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from skidway.groups.kinds import Context, GroupDecision, GroupIs, SessionRenewed
from skidway.groups.members import CONSUMER_PROTOCOL_TYPE, ClassicGroup, Member, State
from skidway.groups.operations import Heartbeat, JoinGroup, JoinReply, LeaveGroup, Leaving, SyncGroup, SyncReply
from skidway.groups.rebalance import Rebalance
from skidway.groups.reconciliation import (
    NO_PARTITIONS,
    ClassicSide,
    ConsumerMember,
    MemberState,
    Partition,
    Partitions,
    by_topic,
)
from skidway.ports import Buffer, FileSlice
from skidway.runtime.replicated import Decision
from skidway.wire.registry import codec
from skidway.wire.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)

EMBEDDED_VERSION_MAX = 3

# What consumers say to each other in the classic protocol.


def read_subscription(metadata: Buffer) -> ConsumerProtocolSubscription:
    """Raises InvalidRequest."""
    message: ConsumerProtocolSubscription
    message, _ = codec(ConsumerProtocolSubscription).decoder(_embedded_version(metadata))(metadata, 2)
    return message


def _embedded_version(data: Buffer) -> int:
    version = int.from_bytes(data[:2], "big", signed=True)
    if len(data) < 2 or version < 0:
        raise InvalidRequest("not a message of the consumer protocol")
    return min(version, EMBEDDED_VERSION_MAX)


def read_assignment(data: Buffer, context: Context) -> Partitions:
    """Partitions of topics that exist. A member that was never assigned anything has no bytes at all."""
    if not len(data):
        return NO_PARTITIONS
    message: ConsumerProtocolAssignment
    message, _ = codec(ConsumerProtocolAssignment).decoder(_embedded_version(data))(data, 2)
    return _with_ids([(each.topic, each.partitions) for each in message.assigned_partitions], context)


def _with_ids(named: list[tuple[str, list[int]]], context: Context) -> Partitions:
    partitions: set[Partition] = set()
    for name, numbers in named:
        topic_id, count = context.topics.id_of(name), context.topics.partition_count(name)
        if topic_id is not None and count is not None:
            partitions.update((topic_id, number) for number in numbers if 0 <= number < count)
    return frozenset(partitions)


def write_assignment(partitions: Partitions, metadata: Buffer, context: Context) -> bytes:
    """In the version the member's own metadata has."""
    version = _embedded_version(metadata)
    topics = []
    for topic_id, numbers in by_topic(partitions):
        name = context.topics.name_of(topic_id)
        if name is not None:
            topics.append(ConsumerProtocolAssignmentTopicPartition(name, numbers))
    parts: list[Buffer | FileSlice] = [version.to_bytes(2, "big")]
    codec(ConsumerProtocolAssignment).encoder(version)(ConsumerProtocolAssignment(topics), parts)
    return b"".join(part for part in parts if not isinstance(part, FileSlice))


# From the classic protocol.


def can_upgrade(group: ClassicGroup, context: Context) -> bool:
    settings = context.settings
    if settings.consumer_migration_policy not in ("upgrade", "bidirectional"):
        return False
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE or len(group.members) > settings.consumer_size_max:
        return False
    # What an assignor told its members beside their partitions would be lost.
    return not any(_assigned_data(member.assignment) for member in group.members.values())


def _assigned_data(data: Buffer) -> Buffer | None:
    if not len(data):
        return None
    try:
        message, _ = codec(ConsumerProtocolAssignment).decoder(_embedded_version(data))(data, 2)
    except InvalidRequest:
        return None  # the upgrade itself finds out
    return message.user_data


def upgrade(classic: ClassicGroup, change: Change) -> None:
    """Make the members of `classic` those of the new group. Whoever waits is told to join again, and that reaches
    the new group; those who never were answered need not be known before."""
    change.answers += [(call, RebalanceInProgress()) for call in classic.joins.values()]
    change.answers += [(call, RebalanceInProgress()) for call in classic.syncs.values()]
    group_id, context = classic.group_id, change.context
    members: list[ConsumerMember] = []
    taken: set[Partition] = set()
    for each in classic.members.values():
        if each.member_id in classic.newcomers:
            continue
        try:
            upgraded = _upgraded(each, classic, context)
        except InvalidRequest:
            raise InconsistentGroupProtocol("The group's members do not speak the consumer protocol.") from None
        # What two believe to own goes to one of them.
        members.append(replace(upgraded, assigned=upgraded.assigned - taken))
        taken |= upgraded.assigned
    change.emit(*(member_record(group_id, member) for member in members))
    change.emit(epoch_record(group_id, classic.generation))
    change.emit(*(target_record(group_id, member.member_id, member.assigned) for member in members))
    change.emit(target_epoch_record(group_id, classic.generation))
    change.emit(*(current_record(group_id, member) for member in members))
    for member in members:
        change.renew(member.member_id)


def _upgraded(member: Member, classic: ClassicGroup, context: Context) -> ConsumerMember:
    protocol = classic.protocol_name
    known = any(name == protocol for name, _ in member.protocols)
    subscription = read_subscription(member.metadata(protocol) if known else member.protocols[0][1])
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        frozenset(subscription.topics),
        classic=_classic_side(member.session_timeout_ms, member.protocols),
        epoch=classic.generation,
        previous_epoch=classic.generation,
        assigned=read_assignment(member.assignment, context),
    )


def _classic_side(session_timeout_ms: int, protocols: list[tuple[str, Buffer]]) -> ClassicSide:
    return ClassicSide(session_timeout_ms, tuple((name, bytes(metadata)) for name, metadata in protocols))


# Back to the classic protocol.


def is_last_of_the_protocol(change: Change, member_id: str) -> bool:
    """Whether a group without this member would be a classic one."""
    settings = change.context.settings
    members = change.group.members
    return (
        members[member_id].classic is None
        and 0 < len(members) - 1 <= settings.size_max
        and all(each.classic is not None for each in members.values() if each.member_id != member_id)
        and settings.consumer_migration_policy in ("downgrade", "bidirectional")
    )


def downgrade(change: Change, leaving: str | None, reply: Any) -> GroupDecision:
    """The others go on as a classic group, which begins with a rebalance: the leader is to assign what is left."""
    group, context = change.group, change.context
    classic = ClassicGroup(
        group.group_id,
        State.STABLE,
        group.epoch,
        CONSUMER_PROTOCOL_TYPE,
        state_since_ms=context.clock.wall_ms(),
    )
    for member in group.members.values():
        if member.member_id != leaving:
            classic.put(_downgraded(member))
    classic.leader = next(iter(classic.members))
    classic.protocol_name = classic.elected_protocol()
    for each in list(classic.members.values()):
        # What it may still have, not what it was to get: a consumer join may come before the rebalance is over.
        held = group.members[each.member_id].held
        assignment = write_assignment(held, each.metadata(classic.protocol_name), context)
        classic.put(replace(each, assignment=assignment))
    classic.topics = classic.subscribed_topics()
    # Without a leader: a coordinator that finds this record, and none of the rebalance after it, begins that anew.
    record = replace(classic, leader=None).record()
    rebalance = Rebalance(context, classic, change.now_ms)
    for member_id in classic.members:
        rebalance.renew(member_id)
    rebalance.prepare()
    records = [*change.records, *group.tombstones(), record, *rebalance.records]
    return Decision(records, reply, [GroupIs(rebalance.group)], [*change.answers, *rebalance.answers])


def _downgraded(member: ConsumerMember) -> Member:
    assert member.classic is not None
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        member.classic.session_timeout_ms,
        list(member.classic.protocols),
    )


# Classic requests of a consumer group's members.


def join(call: JoinGroup, change: Change) -> GroupDecision:
    group, context = change.group, change.context
    settings = context.settings
    if not settings.session_timeout_ms_min <= call.session_timeout_ms <= settings.session_timeout_ms_max:
        raise InvalidSessionTimeout()
    known = None if call.instance_id is None else group.instances.get(call.instance_id)
    if call.member_id not in group.members and known is None and len(group.members) >= settings.consumer_size_max:
        raise GroupMaxSizeReached()
    subscription = _supported(call, group)
    if not call.member_id and call.instance_id is None and call.member_id_required:
        raise MemberIdRequired(_new_id(call, context))
    before = _joining(call, change, known)
    member = before or ConsumerMember(call.member_id or _new_id(call, context))
    member = replace(
        member,
        instance_id=member.instance_id if call.instance_id is None else call.instance_id,
        rack_id=subscription.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        rebalance_timeout_ms=call.rebalance_timeout_ms,
        topics=frozenset(subscription.topics),
        regex=None,
        assignor=None,
        classic=_classic_side(call.session_timeout_ms, call.protocols),
    )
    bump = change.subscribe(before, member)
    if bump or group.topics_epoch != context.topics.epoch:
        change.refresh(bump=bump)
    change.assign()
    owned = _with_ids([(each.topic, each.partitions) for each in subscription.owned_partitions], context)
    change.reconcile(member.member_id, owned)
    reply = JoinReply(
        member.member_id,
        group.members[member.member_id].epoch,
        CONSUMER_PROTOCOL_TYPE,
        call.protocols[0][0],
        # Nobody leads: everyone asks the coordinator for its part.
        "",
    )
    if _became_classic(change):
        return downgrade(change, None, reply)
    group.joins.pop(member.member_id, None)
    change.renew(member.member_id)
    group.syncs[member.member_id] = change.now_ms + max(call.rebalance_timeout_ms, 0)
    return change.decision(reply)


def _supported(call: JoinGroup, group: ConsumerGroup) -> ConsumerProtocolSubscription:
    supporters, classic_members = group.classic_protocols()
    names = [name for name, _ in call.protocols]
    if call.protocol_type != CONSUMER_PROTOCOL_TYPE or not any(
        supporters.get(name, 0) == classic_members for name in names
    ):
        raise InconsistentGroupProtocol()
    try:
        return read_subscription(call.protocols[0][1])
    except InvalidRequest:
        raise InconsistentGroupProtocol("The member does not speak the consumer protocol.") from None


def _joining(call: JoinGroup, change: Change, known: str | None) -> ConsumerMember | None:
    """The member as it was; None for a new one."""
    group = change.group
    if call.instance_id is None:
        return group.members.get(call.member_id)
    if call.member_id:
        return group.member(call.member_id, call.instance_id)
    if known is None:
        return None
    return change.replace_static(group.members[known], _new_id(call, change.context))


def _new_id(call: JoinGroup, context: Context) -> str:
    prefix = call.client_id if call.instance_id is None else call.instance_id
    return f"{prefix}-{context.random.randbytes(16).hex()}"


def _became_classic(change: Change) -> bool:
    """The last member of the consumer protocol was a static one, and came back with the classic protocol."""
    settings = change.context.settings
    members = change.group.members.values()
    return (
        all(member.classic is not None for member in members)
        and len(members) <= settings.size_max
        and settings.consumer_migration_policy in ("downgrade", "bidirectional")
    )


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicSide]:
    member = group.member(member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def sync(call: SyncGroup, group: ConsumerGroup, context: Context, now_ms: int) -> GroupDecision:
    member, classic = _classic_member(group, call.member_id, call.instance_id)
    if call.generation != member.epoch:
        raise IllegalGeneration()
    protocol_name, metadata = classic.protocols[0]
    if call.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or call.protocol_name not in (None, protocol_name):
        raise InconsistentGroupProtocol()
    draft = group.draft()
    if group.epoch > member.epoch and member.state != MemberState.UNREVOKED:
        draft.joins.setdefault(member.member_id, now_ms + member.rebalance_timeout_ms)
        return Decision([], RebalanceInProgress(), [GroupIs(draft)])
    draft.syncs.pop(member.member_id, None)
    draft.sessions[member.member_id] = now_ms + classic.session_timeout_ms
    reply = SyncReply(CONSUMER_PROTOCOL_TYPE, protocol_name, write_assignment(member.assigned, metadata, context))
    return Decision([], reply, [GroupIs(draft)])


def heartbeat(call: Heartbeat, group: ConsumerGroup, now_ms: int) -> GroupDecision:
    member, classic = _classic_member(group, call.member_id, call.instance_id)
    if call.generation != member.epoch:
        raise IllegalGeneration()
    deadline_ms = now_ms + classic.session_timeout_ms
    if not _should_join(group, member):
        return Decision([], None, [SessionRenewed(group.group_id, member.member_id, deadline_ms)])
    draft = group.draft()
    draft.sessions[member.member_id] = deadline_ms
    draft.joins.setdefault(member.member_id, now_ms + member.rebalance_timeout_ms)
    return Decision([], RebalanceInProgress(), [GroupIs(draft)])


def _should_join(group: ConsumerGroup, member: ConsumerMember) -> bool:
    if member.epoch < group.epoch or member.state == MemberState.UNREVOKED:
        return True
    if member.state != MemberState.UNRELEASED:
        return False
    missing = group.target.get(member.member_id, NO_PARTITIONS) - member.assigned
    return not group.held_by_others(member, missing)


def leave(call: LeaveGroup, change: Change) -> GroupDecision:
    codes = [_leave_one(change, leaving) for leaving in call.members]
    if ErrorCode.NONE not in codes:
        return Decision([], codes)
    change.bump_without_removed()
    return change.decision(codes)


def _leave_one(change: Change, leaving: Leaving) -> ErrorCode:
    member_id = leaving.member_id
    if not member_id and leaving.instance_id is not None:
        member_id = change.group.instances.get(leaving.instance_id, "")
    try:
        _classic_member(change.group, member_id, leaving.instance_id)
    except ProtocolError as refusal:
        return refusal.code
    change.remove(member_id)
    return ErrorCode.NONE
