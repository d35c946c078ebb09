"""The classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and DescribeGroups.

The members agree on an assignment themselves: all join, the one that was made leader is told of everyone, assigns,
and the others get their part through SyncGroup. What they say to each other is opaque here; only for the protocol type
"consumer" the subscribed topics are read, to know which offsets are in use.
"""

from dataclasses import replace
from typing import Any

from skidway.errors import (
    ErrorCode,
    GroupIdNotFound,
    GroupMaxSizeReached,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    MemberIdRequired,
    ProtocolError,
    RebalanceInProgress,
    UnknownMemberId,
)
from skidway.groups.kinds import Context, Group, GroupDecision, SessionRenewed, nothing
from skidway.groups.members import ClassicGroup, State
from skidway.groups.operations import (
    DescribedGroup,
    DescribedMember,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    Leaving,
    SyncGroup,
)
from skidway.groups.rebalance import Rebalance, join_reply, sync_reply
from skidway.groups.records import GroupRecord
from skidway.runtime.replicated import PARKED, Decision, Operation


class Classic:
    def __init__(self, context: Context) -> None:
        self._context = context

    def decide(self, operation: Operation[Any], now_ms: int) -> GroupDecision:
        match operation:
            case Heartbeat():
                return self._heartbeat(operation, now_ms)
            case JoinGroup():
                return self._join(operation, now_ms)
            case SyncGroup():
                return self._sync(operation, now_ms)
            case LeaveGroup():
                return self._leave(operation, now_ms)
            case DescribeGroup():
                return Decision([], self._described(operation.group_id))
        raise AssertionError(operation)

    def decide_tick(self, group: Group, now_ms: int) -> GroupDecision:
        assert isinstance(group, ClassicGroup)
        deadline_ms = group.deadline_ms
        if deadline_ms is None or deadline_ms > now_ms:
            return nothing()
        rebalance = Rebalance(self._context, group, now_ms)
        rebalance.expire()
        return rebalance.decision(None)

    def decide_metadata_changed(self, now_ms: int) -> GroupDecision:
        """Its members find out themselves."""
        return nothing()

    def decide_start(self, now_ms: int) -> GroupDecision:
        decision = nothing()
        for group in self._context.groups.values():
            if not isinstance(group, ClassicGroup):
                continue
            if group.members and group.leader is None:
                # It had just come from the consumer protocol, and somebody's partitions wait for a leader.
                rebalance = Rebalance(self._context, group, now_ms)
                for member_id in group.members:
                    rebalance.renew(member_id)
                rebalance.prepare()
                decision.notes += rebalance.decision(None).notes
                continue
            for member in group.members.values():
                if member.member_id not in group.sessions:
                    deadline_ms = now_ms + member.session_timeout_ms
                    decision.notes.append(SessionRenewed(group.group_id, member.member_id, deadline_ms))
        return decision

    def apply(self, record: GroupRecord) -> None:
        raise AssertionError(record)

    def note(self, note: Any) -> None:
        raise AssertionError(note)

    def renewed_by_commit(self, group: Group | None, member_id: str, now_ms: int) -> list[SessionRenewed]:
        """A commit is a sign of life."""
        if not isinstance(group, ClassicGroup) or group.state not in (State.STABLE, State.PREPARING):
            return []
        return self._renewed(group, member_id, now_ms) if member_id in group.members else []

    def _renewed(self, group: ClassicGroup, member_id: str, now_ms: int) -> list[SessionRenewed]:
        deadline_ms = now_ms + group.members[member_id].session_timeout_ms
        return [SessionRenewed(group.group_id, member_id, deadline_ms)]

    def _known(self, group_id: str) -> ClassicGroup:
        group = self._context.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise UnknownMemberId(f"Group {group_id} not found.")
        return group

    # JoinGroup.

    def _join(self, call: JoinGroup, now_ms: int) -> GroupDecision:
        settings = self._context.settings
        if not settings.session_timeout_ms_min <= call.session_timeout_ms <= settings.session_timeout_ms_max:
            raise InvalidSessionTimeout()
        found = self._context.groups.get(call.group_id)
        if isinstance(found, ClassicGroup):
            return self._join_group(call, found, now_ms)
        if call.member_id:
            raise UnknownMemberId()
        # The record makes the group known at once: its first member may be told to come back with an id.
        group = ClassicGroup(call.group_id, state_since_ms=self._context.clock.wall_ms())
        decision = self._join_group(call, group, now_ms)
        previous = [] if found is None else found.tombstones()
        decision.records = [*previous, group.record(), *decision.records]
        return decision

    def _join_group(self, call: JoinGroup, group: ClassicGroup, now_ms: int) -> GroupDecision:
        if not self._has_room(group, call.member_id):
            rebalance = Rebalance(self._context, group, now_ms)
            rebalance.group.invited.pop(call.member_id, None)
            rebalance.remove(call.member_id)
            rebalance.complete_if_everyone_joined()
            return rebalance.decision(GroupMaxSizeReached())
        if not group.supports(call.protocol_type, [name for name, _ in call.protocols]):
            raise InconsistentGroupProtocol()
        if not call.member_id:
            return self._join_new(call, group, now_ms)
        return self._join_again(call, group, now_ms)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        size_max = self._context.settings.size_max
        if group.state == State.EMPTY:
            return True
        if group.state == State.PREPARING:
            # Those who joined count, not the members: the last ones to come back are those without a place.
            return member_id in group.joins or len(group.joins) < size_max
        return member_id in group.members or len(group.members) < size_max

    def _join_new(self, call: JoinGroup, group: ClassicGroup, now_ms: int) -> GroupDecision:
        new_id = f"{call.client_id if call.instance_id is None else call.instance_id}-{self._uuid()}"
        rebalance = Rebalance(self._context, group, now_ms)
        if call.instance_id is not None:
            current = group.instances.get(call.instance_id)
            if current is not None:
                return self._join_static(call, rebalance, current, new_id)
        elif call.member_id_required:
            if len(group.invited) >= self._context.settings.invited_max:
                raise GroupMaxSizeReached()
            rebalance.invite(new_id, call.session_timeout_ms)
            return rebalance.decision(MemberIdRequired(new_id))
        rebalance.add(new_id, call)
        return rebalance.decision(PARKED)

    def _join_static(self, call: JoinGroup, rebalance: Rebalance, current: str, new_id: str) -> GroupDecision:
        """An instance that comes back to a stable group takes its old place, and nobody else notices."""
        group, leader_before = rebalance.group, rebalance.group.leader
        rebalance.replace_static(current, new_id, call)
        if group.state != State.STABLE or group.elected_protocol() != group.protocol_name:
            rebalance.await_static(new_id, call)
            return rebalance.decision(PARKED)
        rebalance.persist()
        reply = join_reply(group, new_id)
        is_leader = group.leader == new_id
        if call.can_skip_assignment:
            return rebalance.decision(replace(reply, skip_assignment=is_leader))
        # An old client that hears it is the leader would assign; it is not told.
        assert leader_before is not None
        return rebalance.decision(replace(reply, leader=leader_before, members=[]))

    def _join_again(self, call: JoinGroup, group: ClassicGroup, now_ms: int) -> GroupDecision:
        member_id = call.member_id
        if member_id in group.invited and call.instance_id is None:
            rebalance = Rebalance(self._context, group, now_ms)
            rebalance.add(member_id, call)
            return rebalance.decision(PARKED)
        group.check_member(member_id, call.instance_id)
        unchanged = group.members[member_id].protocols == call.protocols
        if group.state == State.COMPLETING and unchanged:
            # The answer to its first join got lost.
            return Decision([], join_reply(group, member_id))
        if group.state == State.STABLE and unchanged and member_id != group.leader:
            return Decision([], join_reply(group, member_id))
        # The leader of a stable group asks for a rebalance by joining: only it knows what has changed.
        rebalance = Rebalance(self._context, group, now_ms)
        rebalance.rejoin(member_id, call)
        return rebalance.decision(PARKED)

    def _uuid(self) -> str:
        number = bytearray(self._context.random.randbytes(16))
        number[6] = number[6] & 0x0F | 0x40
        number[8] = number[8] & 0x3F | 0x80
        text = number.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    # SyncGroup.

    def _sync(self, call: SyncGroup, now_ms: int) -> GroupDecision:
        group = self._known(call.group_id)
        group.check_member(call.member_id, call.instance_id)
        if call.generation != group.generation:
            raise IllegalGeneration()
        if call.protocol_type not in (None, group.protocol_type) or call.protocol_name not in (
            None,
            group.protocol_name,
        ):
            raise InconsistentGroupProtocol()
        if group.state == State.PREPARING:
            raise RebalanceInProgress()
        if group.state == State.STABLE and call.member_id not in group.unsynced:
            return Decision([], sync_reply(group, call.member_id))
        rebalance = Rebalance(self._context, group, now_ms)
        rebalance.synced(call.member_id)
        if group.state == State.STABLE:
            return rebalance.decision(sync_reply(group, call.member_id))
        rebalance.await_sync(call.member_id, call)
        if call.member_id == group.leader:
            rebalance.assign(call.assignments)
        else:
            # Nobody will read what it says of others, and it may wait for long.
            call.assignments = []
        return rebalance.decision(PARKED)

    # Heartbeat.

    def _heartbeat(self, call: Heartbeat, now_ms: int) -> GroupDecision:
        group = self._known(call.group_id)
        group.check_member(call.member_id, call.instance_id)
        if call.generation != group.generation:
            raise IllegalGeneration()
        reply = RebalanceInProgress() if group.state == State.PREPARING else None
        return Decision([], reply, self._renewed(group, call.member_id, now_ms))

    # LeaveGroup.

    def _leave(self, call: LeaveGroup, now_ms: int) -> GroupDecision:
        group = self._context.groups.get(call.group_id)
        if not isinstance(group, ClassicGroup):
            return Decision([], [ErrorCode.UNKNOWN_MEMBER_ID] * len(call.members))
        rebalance = Rebalance(self._context, group, now_ms)
        codes = [self._leave_one(rebalance, leaving) for leaving in call.members]
        if ErrorCode.NONE not in codes:
            return Decision([], codes)
        if rebalance.group.state != State.EMPTY:
            rebalance.prepare_or_complete()
        return rebalance.decision(codes)

    def _leave_one(self, rebalance: Rebalance, leaving: Leaving) -> ErrorCode:
        group = rebalance.group
        member_id: str | None = leaving.member_id
        if not member_id:
            member_id = group.instances.get(leaving.instance_id) if leaving.instance_id is not None else None
            if member_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif group.invited.pop(member_id, None) is not None:
            return ErrorCode.NONE
        else:
            try:
                group.check_member(member_id, leaving.instance_id)
            except ProtocolError as refusal:
                return refusal.code
        rebalance.remove(member_id)
        return ErrorCode.NONE

    # DescribeGroups.

    def _described(self, group_id: str) -> DescribedGroup:
        group = self._context.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise GroupIdNotFound(f"Group {group_id} not found.")
        stable = group.state == State.STABLE
        members = [
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.metadata(group.protocol_name) if stable else b"",
                member.assignment,
            )
            for member in group.members.values()
        ]
        protocol_name = group.protocol_name if stable else None
        return DescribedGroup(group_id, group.state_name, group.protocol_type, protocol_name or "", members)
