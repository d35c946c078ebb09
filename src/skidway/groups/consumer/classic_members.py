"""Classic requests of a consumer group's members: a member's epoch is its generation, and a rebalance is the member on
its way to its target."""

from msgspec.structs import replace

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
from skidway.groups.classic.generation import CONSUMER_PROTOCOL_TYPE
from skidway.groups.consumer.change import Change
from skidway.groups.consumer.embedded import read_subscription, with_ids, write_assignment
from skidway.groups.consumer.group import ConsumerGroup
from skidway.groups.consumer.reconciliation import NO_PARTITIONS, ClassicSide, ConsumerMember, MemberState
from skidway.groups.kinds import Context, GroupDecision, LiveIs, SessionRenewed
from skidway.groups.migration import became_classic, classic_side, downgrade
from skidway.groups.operations import Heartbeat, JoinGroup, JoinReply, LeaveGroup, Leaving, SyncGroup, SyncReply
from skidway.runtime.replicated import Decision, Now
from skidway.wire.schema.consumer_protocol import ConsumerProtocolSubscription


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
        classic=classic_side(call.session_timeout_ms, call.protocols),
    )
    bump = change.subscribe(before, member)
    if bump or group.live.topics_epoch != context.topics.epoch:
        change.refresh(bump=bump)
    change.assign()
    owned = with_ids([(each.topic, each.partitions) for each in subscription.owned_partitions], context)
    change.reconcile(member.member_id, owned)
    reply = JoinReply(
        member.member_id,
        group.members[member.member_id].epoch,
        CONSUMER_PROTOCOL_TYPE,
        call.protocols[0][0],
        # Nobody leads: everyone asks the coordinator for its part.
        "",
    )
    if became_classic(change):
        return downgrade(change, None, reply)
    group.live.joins.pop(member.member_id, None)
    change.renew(member.member_id)
    group.live.syncs[member.member_id] = change.now_ms + max(call.rebalance_timeout_ms, 0)
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


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None
) -> tuple[ConsumerMember, ClassicSide]:
    member = group.member(member_id, instance_id)
    if member.classic is None:
        raise UnknownMemberId(f"Member {member_id} does not use the classic protocol.")
    return member, member.classic


def sync(call: SyncGroup, group: ConsumerGroup, context: Context, now: Now) -> GroupDecision:
    member, classic = _classic_member(group, call.member_id, call.instance_id)
    if call.generation != member.epoch:
        raise IllegalGeneration()
    protocol_name, metadata = classic.protocols[0]
    if call.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE) or call.protocol_name not in (None, protocol_name):
        raise InconsistentGroupProtocol()
    draft = group.live.draft()
    if group.epoch > member.epoch and member.state != MemberState.UNREVOKED:
        draft.joins.setdefault(member.member_id, now.monotonic_ms + member.rebalance_timeout_ms)
        return Decision([], RebalanceInProgress(), [LiveIs(group.group_id, draft, group.bytes)])
    draft.syncs.pop(member.member_id, None)
    draft.sessions[member.member_id] = now.monotonic_ms + classic.session_timeout_ms
    reply = SyncReply(CONSUMER_PROTOCOL_TYPE, protocol_name, write_assignment(member.assigned, metadata, context))
    return Decision([], reply, [LiveIs(group.group_id, draft, group.bytes)])


def heartbeat(call: Heartbeat, group: ConsumerGroup, now: Now) -> GroupDecision:
    member, classic = _classic_member(group, call.member_id, call.instance_id)
    if call.generation != member.epoch:
        raise IllegalGeneration()
    deadline_ms = now.monotonic_ms + classic.session_timeout_ms
    if not _should_join(group, member):
        return Decision([], None, [SessionRenewed(group.group_id, member.member_id, deadline_ms)])
    draft = group.live.draft()
    draft.sessions[member.member_id] = deadline_ms
    draft.joins.setdefault(member.member_id, now.monotonic_ms + member.rebalance_timeout_ms)
    return Decision([], RebalanceInProgress(), [LiveIs(group.group_id, draft, group.bytes)])


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
