"""A classic group on its way through a rebalance: the moves, on a draft.

Every decision of the classic protocol that changes a group makes a `Rebalance` of it, moves it, and turns it into a
decision: the records to write, the answers to calls that waited, and the draft as the group's next state in memory.
"""

from dataclasses import replace
from typing import Any

from skidway.errors import FencedInstanceId, ProtocolError, RebalanceInProgress, UnknownMemberId
from skidway.groups.kinds import Context, GroupDecision, GroupIs
from skidway.groups.members import ClassicGroup, InitialDelay, JoinTimeout, Member, State
from skidway.groups.operations import JoinedMember, JoinGroup, JoinReply, SyncGroup, SyncReply
from skidway.groups.records import GroupRecord
from skidway.ports import Buffer
from skidway.runtime.replicated import Decision, Operation


class Rebalance:
    def __init__(self, context: Context, group: ClassicGroup, now_ms: int) -> None:
        self.group = group.draft()
        self.records: list[GroupRecord] = []
        self.answers: list[tuple[Operation[Any], Any]] = []
        self._settings = context.settings
        self._clock = context.clock
        self._now_ms = now_ms

    def decision(self, reply: Any) -> GroupDecision:
        if self.group.leader is None:
            # Once, for all that were removed: a whole group may leave with one request.
            self.group.leader = next(iter(self.group.members), None)
        return Decision(self.records, reply, [GroupIs(self.group)], self.answers)

    # Calls that wait.

    def _answer_join(self, member_id: str, reply: JoinReply | ProtocolError) -> None:
        call = self.group.joins.pop(member_id, None)
        if call is not None:
            self.answers.append((call, reply))

    def _answer_sync(self, member_id: str, reply: SyncReply | ProtocolError) -> bool:
        call = self.group.syncs.pop(member_id, None)
        if call is not None:
            self.answers.append((call, reply))
        return call is not None

    def _await_join(self, member_id: str, call: JoinGroup) -> None:
        # A client that asks again has given up on its first call.
        self._answer_join(member_id, RebalanceInProgress())
        self.group.joins[member_id] = call

    def await_sync(self, member_id: str, call: SyncGroup) -> None:
        self._answer_sync(member_id, RebalanceInProgress())
        self.group.syncs[member_id] = call

    # Members.

    def renew(self, member_id: str) -> None:
        self.group.sessions[member_id] = self._now_ms + self.group.members[member_id].session_timeout_ms

    def invite(self, member_id: str, session_timeout_ms: int) -> None:
        self.group.invited[member_id] = self._now_ms + session_timeout_ms

    def add(self, member_id: str, call: JoinGroup) -> None:
        group = self.group
        if not group.members:
            group.protocol_type = call.protocol_type
        if isinstance(group.join_phase, InitialDelay):
            group.join_phase.more_came = True
        group.invited.pop(member_id, None)
        group.put(member_of(member_id, call))
        if group.leader is None:
            group.leader = member_id
        group.newcomers[member_id] = None
        group.joins[member_id] = call
        # It has no id yet and cannot send heartbeats; but it must not stay for ever when its client is gone.
        group.sessions[member_id] = self._now_ms + self._settings.new_member_join_timeout_ms
        self.prepare_or_complete()

    def rejoin(self, member_id: str, call: JoinGroup) -> None:
        self._update(member_id, call)
        self._await_join(member_id, call)
        self.prepare_or_complete()

    def _update(self, member_id: str, call: JoinGroup) -> None:
        known = self.group.members[member_id]
        self.group.put(
            Member(
                member_id,
                known.instance_id,
                known.client_id,
                known.client_host,
                call.rebalance_timeout_ms,
                call.session_timeout_ms,
                owned(call.protocols),
                known.assignment,
            )
        )

    def replace_static(self, old_id: str, new_id: str, call: JoinGroup) -> None:
        """The instance came back under a new id; whoever still uses the old one is fenced."""
        group = self.group
        self._answer_join(old_id, FencedInstanceId())
        self._answer_sync(old_id, FencedInstanceId())
        member, was_leader, was_unsynced = group.members[old_id], group.leader == old_id, old_id in group.unsynced
        group.remove(old_id)
        group.put(replace(member, member_id=new_id))
        if was_leader:
            group.leader = new_id
        if was_unsynced:
            group.unsynced[new_id] = None
        self._update(new_id, call)
        self.renew(new_id)

    def await_static(self, member_id: str, call: JoinGroup) -> None:
        """After `replace_static`, when the group cannot stay as it is."""
        self._await_join(member_id, call)
        self.prepare_or_complete()

    def persist(self) -> None:
        self.group.topics = self.group.subscribed_topics()
        self.records.append(self.group.record())

    def remove(self, member_id: str) -> None:
        self._answer_join(member_id, UnknownMemberId())
        self._answer_sync(member_id, UnknownMemberId())
        self.group.remove(member_id)

    # Phases.

    def _enter(self, state: State) -> None:
        self.group.state = state
        self.group.state_since_ms = self._clock.wall_ms()

    def prepare_or_complete(self) -> None:
        if self.group.state == State.PREPARING:
            self.complete_if_everyone_joined()
        else:
            self.prepare()

    def prepare(self) -> None:
        """Begin a join phase: everyone is to join again."""
        group = self.group
        if group.state == State.COMPLETING:
            self._withdraw_assignment()
        group.unsynced.clear()
        group.sync_deadline_ms = None
        was_empty = group.state == State.EMPTY
        self._enter(State.PREPARING)
        delay_ms = self._settings.initial_rebalance_delay_ms
        if was_empty and delay_ms > 0:
            remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            group.join_phase = InitialDelay(self._now_ms + delay_ms, delay_ms, remaining_ms)
        elif was_empty or group.everyone_joined:
            self.complete()
        else:
            self._wait_for_joins()

    def _wait_for_joins(self) -> None:
        self.group.join_phase = JoinTimeout(self._now_ms + self.group.rebalance_timeout_ms)

    def _withdraw_assignment(self) -> None:
        for member in list(self.group.members.values()):
            self.group.assign(member, b"")
            if self._answer_sync(member.member_id, RebalanceInProgress()):
                self.renew(member.member_id)

    def complete_if_everyone_joined(self) -> None:
        group = self.group
        if group.state != State.PREPARING or isinstance(group.join_phase, InitialDelay):
            return
        if group.everyone_joined:
            self.complete()

    def complete(self) -> None:
        """End the join phase with those who joined. Static members stay, even silent: they may be restarting."""
        group = self.group
        group.join_phase = None
        for member in list(group.members.values()):
            if member.member_id not in group.joins and member.instance_id is None:
                self.remove(member.member_id)
        if group.members and not self._elect_leader():
            self._wait_for_joins()
            return
        group.generation += 1
        group.unsynced.clear()
        if group.members:
            self._begin_generation()
        else:
            group.protocol_name = None
            self._enter(State.EMPTY)
            self.persist()

    def _elect_leader(self) -> bool:
        """The leader stays unless it did not join. False when nobody joined."""
        group = self.group
        if group.leader not in group.joins:
            joined = next((member_id for member_id in group.members if member_id in group.joins), None)
            if joined is None:
                return False
            group.leader = joined
        return True

    def _begin_generation(self) -> None:
        group = self.group
        group.protocol_name = group.elected_protocol()
        group.topics = group.subscribed_topics()
        self._enter(State.COMPLETING)
        for member_id in group.members:
            self._answer_join(member_id, join_reply(group, member_id))
            self.renew(member_id)
        group.newcomers.clear()
        group.unsynced.update(dict.fromkeys(group.members))
        group.sync_deadline_ms = self._now_ms + group.rebalance_timeout_ms

    # Assignment.

    def synced(self, member_id: str) -> None:
        self.group.unsynced.pop(member_id, None)
        if not self.group.unsynced:
            self.group.sync_deadline_ms = None

    def assign(self, assignments: list[tuple[str, Buffer]]) -> None:
        """The leader has spoken; whom it forgot gets nothing."""
        group = self.group
        assigned = {member_id: bytes(assignment) for member_id, assignment in assignments}
        for member in list(group.members.values()):
            group.assign(member, assigned.get(member.member_id, b""))
        self._enter(State.STABLE)
        self.records.append(group.record())
        for member_id in [each for each in group.members if each in group.syncs]:
            self._answer_sync(member_id, sync_reply(group, member_id))
            self.renew(member_id)

    # Time.

    def expire(self) -> None:
        """Whatever is over by now, in the order of time."""
        group = self.group
        for deadline_ms, member_id in self._due():
            if group.invited.get(member_id) == deadline_ms:
                del group.invited[member_id]
                self.complete_if_everyone_joined()
            elif group.sessions.get(member_id) == deadline_ms:
                self._expire_session(member_id)
        if group.join_phase is not None and group.join_phase.deadline_ms <= self._now_ms:
            self._expire_join_phase(group.join_phase)
        if group.sync_deadline_ms is not None and group.sync_deadline_ms <= self._now_ms:
            self._expire_sync()

    def _due(self) -> list[tuple[int, str]]:
        waiting = [*self.group.sessions.items(), *self.group.invited.items()]
        return sorted((deadline_ms, member_id) for member_id, deadline_ms in waiting if deadline_ms <= self._now_ms)

    def _expire_session(self, member_id: str) -> None:
        group = self.group
        waits = member_id in group.joins or member_id in group.syncs
        if waits and member_id not in group.newcomers:
            # It is we who owe an answer; the session begins again with it.
            del group.sessions[member_id]
            return
        self.remove(member_id)
        self.prepare_or_complete()

    def _expire_join_phase(self, phase: InitialDelay | JoinTimeout) -> None:
        if isinstance(phase, JoinTimeout) or not phase.more_came or not phase.remaining_ms:
            self.complete()
            return
        delay_ms = min(self._settings.initial_rebalance_delay_ms, phase.remaining_ms)
        remaining_ms = max(phase.remaining_ms - phase.delay_ms, 0)
        self.group.join_phase = InitialDelay(self._now_ms + delay_ms, delay_ms, remaining_ms)

    def _expire_sync(self) -> None:
        silent = set(self.group.unsynced)
        self.group.sync_deadline_ms = None
        for member_id in [each for each in self.group.members if each in silent]:
            self.remove(member_id)
        self.prepare()


def owned(protocols: list[tuple[str, Buffer]]) -> list[tuple[str, Buffer]]:
    """Not views of a request that is long gone when they are read."""
    return [(name, bytes(metadata)) for name, metadata in protocols]


def member_of(member_id: str, call: JoinGroup) -> Member:
    return Member(
        member_id,
        call.instance_id,
        call.client_id,
        call.client_host,
        call.rebalance_timeout_ms,
        call.session_timeout_ms,
        owned(call.protocols),
    )


def join_reply(group: ClassicGroup, member_id: str) -> JoinReply:
    assert group.protocol_name is not None
    assert group.leader is not None
    return JoinReply(
        member_id,
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader,
        joined_members(group) if member_id == group.leader else [],
    )


def joined_members(group: ClassicGroup) -> list[JoinedMember]:
    return [
        JoinedMember(member.member_id, member.instance_id, member.metadata(group.protocol_name))
        for member in group.members.values()
    ]


def sync_reply(group: ClassicGroup, member_id: str) -> SyncReply:
    assert group.protocol_name is not None
    return SyncReply(group.protocol_type, group.protocol_name, group.members[member_id].assignment)
