"""The classic protocol: JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

from typing import Any

from skidway.errors import GroupIdNotFound, UnsupportedVersion
from skidway.groups.kinds import Context, Group, GroupDecision, SessionRenewed, nothing
from skidway.groups.members import ClassicGroup, State
from skidway.groups.operations import DescribedGroup, DescribedMember, DescribeGroup
from skidway.groups.records import GroupRecord
from skidway.runtime.replicated import Decision, Operation


class Classic:
    def __init__(self, context: Context) -> None:
        self._context = context

    def decide(self, operation: Operation[Any], now_ms: int) -> GroupDecision:
        match operation:
            case DescribeGroup():
                return Decision([], self._described(operation.group_id))
        raise UnsupportedVersion()

    def decide_tick(self, group: Group, now_ms: int) -> GroupDecision:
        return nothing()

    def decide_metadata_changed(self, now_ms: int) -> GroupDecision:
        return nothing()

    def decide_start(self, now_ms: int) -> GroupDecision:
        decision = nothing()
        for group in self._context.groups.values():
            if not isinstance(group, ClassicGroup):
                continue
            for member in group.members.values():
                if member.member_id not in group.sessions:
                    deadline_ms = now_ms + member.session_timeout_ms
                    decision.notes.append(SessionRenewed(group.group_id, member.member_id, deadline_ms))
        return decision

    def apply(self, record: GroupRecord) -> None:
        raise AssertionError(record)

    def renewed_by_commit(self, group: Group | None, member_id: str, now_ms: int) -> list[SessionRenewed]:
        """A commit is a sign of life."""
        if not isinstance(group, ClassicGroup) or group.state not in (State.STABLE, State.PREPARING):
            return []
        member = group.members.get(member_id)
        if member is None:
            return []
        return [SessionRenewed(group.group_id, member_id, now_ms + member.session_timeout_ms)]

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
