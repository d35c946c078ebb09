"""The classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and DescribeGroups.

The members agree on an assignment themselves: all join, the one that was made leader is told of everyone, assigns,
and the others get their part through SyncGroup. What they say to each other is opaque here; only for the protocol type
"consumer" the subscribed topics are read, to know which offsets are in use.
"""

from typing import Any

from msgspec.structs import replace

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
from skidway.groups.classic.generation import Generation
from skidway.groups.classic.group import ClassicGroup
from skidway.groups.classic.rebalance import Rebalance, join_reply, sync_reply
from skidway.groups.classic.states import Completing, Empty, Preparing, Stable
from skidway.groups.kinds import Context, Group, GroupDecision, SessionRenewed, nothing
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
from skidway.groups.records import GroupRecord
from skidway.runtime.replicated import PARKED, Decision, Now, Operation


class ClassicProtocol:
    def __init__(self, context: Context) -> None:
        self._context = context

    def decide(self, operation: Operation[Any], now: Now) -> GroupDecision:
        match operation:
            case Heartbeat():
                return self._heartbeat(operation, now)
            case JoinGroup():
                return self._join(operation, now)
            case SyncGroup():
                return self._sync(operation, now)
            case LeaveGroup():
                return self._leave(operation, now)
            case DescribeGroup():
                return Decision([], self._described(operation.group_id))
        raise AssertionError(operation)

    def decide_tick(self, group: Group, now: Now) -> GroupDecision:
        assert isinstance(group, ClassicGroup)
        deadline_ms = group.deadline_ms
        if deadline_ms is None or deadline_ms > now.monotonic_ms:
            return nothing()
        rebalance = self._rebalance(group, now)
        rebalance.expire()
        return rebalance.decision(None)

    def decide_metadata_changed(self, now: Now) -> GroupDecision:
        """Its members find out themselves."""
        return nothing()

    def decide_start(self, now: Now) -> GroupDecision:
        decision = nothing()
        for group in self._context.groups.values():
            if not isinstance(group, ClassicGroup):
                continue
            current = group.live.current
            if current.members and current.leader is None:
                # It had just come from the consumer protocol, and somebody's partitions wait for a leader.
                rebalance = self._rebalance(group, now)
                for member_id in current.members:
                    rebalance.renew(member_id)
                rebalance.prepare()
                decision.notes += rebalance.decision(None).notes
                continue
            for member in current.members.values():
                if member.member_id not in group.live.sessions:
                    deadline_ms = now.monotonic_ms + member.session_timeout_ms
                    decision.notes.append(SessionRenewed(group.group_id, member.member_id, deadline_ms))
        return decision

    def apply(self, record: GroupRecord) -> None:
        raise AssertionError(record)

    def note(self, note: Any) -> None:
        raise AssertionError(note)

    def renewed_by_commit(self, group: Group | None, member_id: str, now: Now) -> list[SessionRenewed]:
        """A commit is a sign of life."""
        if not isinstance(group, ClassicGroup) or not isinstance(group.live.state, (Stable, Preparing)):
            return []
        return self._renewed(group, member_id, now) if member_id in group.live.current.members else []

    def _renewed(self, group: ClassicGroup, member_id: str, now: Now) -> list[SessionRenewed]:
        deadline_ms = now.monotonic_ms + group.live.current.members[member_id].session_timeout_ms
        return [SessionRenewed(group.group_id, member_id, deadline_ms)]

    def _known(self, group_id: str) -> ClassicGroup:
        group = self._context.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise UnknownMemberId(f"Group {group_id} not found.")
        return group

    def _rebalance(self, group: ClassicGroup, now: Now) -> Rebalance:
        return Rebalance(self._context, group.group_id, group.live, now)

    # JoinGroup.

    def _join(self, call: JoinGroup, now: Now) -> GroupDecision:
        settings = self._context.settings
        if not settings.session_timeout_ms_min <= call.session_timeout_ms <= settings.session_timeout_ms_max:
            raise InvalidSessionTimeout()
        found = self._context.groups.get(call.group_id)
        if isinstance(found, ClassicGroup):
            return self._join_group(call, found, now)
        if call.member_id:
            raise UnknownMemberId()
        # The record makes the group known at once: its first member may be told to come back with an id.
        group = ClassicGroup(call.group_id, Generation(since_ms=now.wall_ms))
        decision = self._join_group(call, group, now)
        previous = [] if found is None else found.tombstones()
        decision.records = [*previous, group.durable.record(call.group_id), *decision.records]
        return decision

    def _join_group(self, call: JoinGroup, group: ClassicGroup, now: Now) -> GroupDecision:
        if not self._has_room(group, call.member_id):
            rebalance = self._rebalance(group, now)
            rebalance.live.invited.pop(call.member_id, None)
            rebalance.remove(call.member_id)
            rebalance.complete_if_everyone_joined()
            return rebalance.decision(GroupMaxSizeReached())
        if not group.live.supports(call.protocol_type, [name for name, _ in call.protocols]):
            raise InconsistentGroupProtocol()
        if not call.member_id:
            return self._join_new(call, group, now)
        return self._join_again(call, group, now)

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        size_max = self._context.settings.size_max
        members = group.live.current.members
        match group.live.state:
            case Empty():
                return True
            case Preparing(joins=joins):
                # Those who joined count, not the members: the last ones to come back are those without a place.
                return member_id in joins or len(joins) < size_max
        return member_id in members or len(members) < size_max

    def _join_new(self, call: JoinGroup, group: ClassicGroup, now: Now) -> GroupDecision:
        new_id = f"{call.client_id if call.instance_id is None else call.instance_id}-{self._uuid()}"
        rebalance = self._rebalance(group, now)
        if call.instance_id is not None:
            old_id = group.live.current.instances.get(call.instance_id)
            if old_id is not None:
                return self._join_static(call, rebalance, old_id, new_id)
        elif call.member_id_required:
            if len(group.live.invited) >= self._context.settings.invited_max:
                raise GroupMaxSizeReached()
            rebalance.invite(new_id, call.session_timeout_ms)
            return rebalance.decision(MemberIdRequired(new_id))
        rebalance.add(new_id, call)
        return rebalance.decision(PARKED)

    def _join_static(self, call: JoinGroup, rebalance: Rebalance, old_id: str, new_id: str) -> GroupDecision:
        """An instance that comes back to a stable group takes its old place, and nobody else notices."""
        live, current = rebalance.live, rebalance.live.current
        leader_before = current.leader
        rebalance.replace_static(old_id, new_id, call)
        if not isinstance(live.state, Stable) or live.offers.elected() != current.protocol_name:
            rebalance.await_join(new_id, call)
            return rebalance.decision(PARKED)
        rebalance.keep_generation()
        reply = join_reply(current, new_id)
        is_leader = current.leader == new_id
        if call.can_skip_assignment:
            return rebalance.decision(replace(reply, skip_assignment=is_leader))
        # An old client that hears it is the leader would assign; it is not told.
        assert leader_before is not None
        return rebalance.decision(replace(reply, leader=leader_before, members=[]))

    def _join_again(self, call: JoinGroup, group: ClassicGroup, now: Now) -> GroupDecision:
        member_id = call.member_id
        live, current = group.live, group.live.current
        if member_id in live.invited and call.instance_id is None:
            rebalance = self._rebalance(group, now)
            rebalance.add(member_id, call)
            return rebalance.decision(PARKED)
        live.check_member(member_id, call.instance_id)
        unchanged = live.offers.by_member[member_id] == call.protocols
        if isinstance(live.state, Completing) and unchanged:
            # The answer to its first join got lost.
            return Decision([], join_reply(current, member_id))
        if isinstance(live.state, Stable) and unchanged and member_id != current.leader:
            return Decision([], join_reply(current, member_id))
        # The leader of a stable group asks for a rebalance by joining: only it knows what has changed.
        rebalance = self._rebalance(group, now)
        rebalance.rejoin(member_id, call)
        return rebalance.decision(PARKED)

    def _uuid(self) -> str:
        number = bytearray(self._context.random.randbytes(16))
        number[6] = number[6] & 0x0F | 0x40
        number[8] = number[8] & 0x3F | 0x80
        text = number.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    # SyncGroup.

    def _sync(self, call: SyncGroup, now: Now) -> GroupDecision:
        group = self._known(call.group_id)
        state, current = group.live.state, group.live.current
        group.live.check_member(call.member_id, call.instance_id)
        if call.generation != current.number:
            raise IllegalGeneration()
        if call.protocol_type not in (None, current.protocol_type) or call.protocol_name not in (
            None,
            current.protocol_name,
        ):
            raise InconsistentGroupProtocol()
        if isinstance(state, Preparing):
            raise RebalanceInProgress()
        if isinstance(state, Stable) and call.member_id not in state.unsynced:
            return Decision([], sync_reply(current, call.member_id))
        rebalance = self._rebalance(group, now)
        rebalance.synced(call.member_id)
        if isinstance(state, Stable):
            return rebalance.decision(sync_reply(current, call.member_id))
        rebalance.await_sync(call.member_id, call)
        if call.member_id == current.leader:
            rebalance.assign(call.assignments)
        return rebalance.decision(PARKED)

    # Heartbeat.

    def _heartbeat(self, call: Heartbeat, now: Now) -> GroupDecision:
        group = self._known(call.group_id)
        live = group.live
        live.check_member(call.member_id, call.instance_id)
        if call.generation != live.current.number:
            raise IllegalGeneration()
        reply = RebalanceInProgress() if isinstance(live.state, Preparing) else None
        return Decision([], reply, self._renewed(group, call.member_id, now))

    # LeaveGroup.

    def _leave(self, call: LeaveGroup, now: Now) -> GroupDecision:
        group = self._context.groups.get(call.group_id)
        if not isinstance(group, ClassicGroup):
            return Decision([], [ErrorCode.UNKNOWN_MEMBER_ID] * len(call.members))
        rebalance = self._rebalance(group, now)
        codes = [self._leave_one(rebalance, leaving) for leaving in call.members]
        if ErrorCode.NONE not in codes:
            return Decision([], codes)
        if not isinstance(rebalance.live.state, Empty):
            rebalance.prepare()
        return rebalance.decision(codes)

    def _leave_one(self, rebalance: Rebalance, leaving: Leaving) -> ErrorCode:
        live = rebalance.live
        member_id: str | None = leaving.member_id
        if not member_id:
            member_id = live.current.instances.get(leaving.instance_id) if leaving.instance_id is not None else None
            if member_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
        elif live.invited.pop(member_id, None) is not None:
            return ErrorCode.NONE
        else:
            try:
                live.check_member(member_id, leaving.instance_id)
            except ProtocolError as refusal:
                return refusal.code
        rebalance.remove(member_id)
        return ErrorCode.NONE

    # DescribeGroups.

    def _described(self, group_id: str) -> DescribedGroup:
        group = self._context.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            raise GroupIdNotFound(f"Group {group_id} not found.")
        current, stable = group.live.current, isinstance(group.live.state, Stable)
        members = [
            DescribedMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.subscription if stable else b"",
                member.assignment,
            )
            for member in current.members.values()
        ]
        protocol_name = current.protocol_name if stable else None
        return DescribedGroup(group_id, group.state_name, group.protocol_type, protocol_name or "", members)
