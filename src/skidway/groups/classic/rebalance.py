"""A classic group on its way through a rebalance: the moves, on a draft.

Every decision of the classic protocol that changes a group makes a `Rebalance` of it, moves it, and turns it into a
decision: the records to write, the answers to calls that waited, and the draft of what no record says.
"""

from typing import Any

from msgspec.structs import replace

from skidway.errors import FencedInstanceId, ProtocolError, RebalanceInProgress, UnknownMemberId
from skidway.groups.bounds import GROUP_BYTES
from skidway.groups.classic.generation import Generation, Member
from skidway.groups.classic.group import ClassicLive
from skidway.groups.classic.offers import Protocols
from skidway.groups.classic.states import (
    SETTLED,
    Completing,
    Empty,
    InitialDelay,
    JoinTimeout,
    Preparing,
    Stable,
    State,
    Syncing,
)
from skidway.groups.kinds import Context, GroupDecision, LiveIs
from skidway.groups.news import GroupNews, GroupRebalanced, MembersExpired
from skidway.groups.operations import JoinedMember, JoinGroup, JoinReply, SyncGroup, SyncReply
from skidway.groups.records import GroupRecord
from skidway.ports import Buffer
from skidway.runtime.replicated import Decision, Now, Operation


class Rebalance:
    def __init__(self, context: Context, group_id: str, live: ClassicLive, now: Now) -> None:
        self.group_id = group_id
        self.live = live.draft()
        self.records: list[GroupRecord] = []
        self.answers: list[tuple[Operation[Any], Any]] = []
        self.news: list[GroupNews] = []
        self._settings = context.settings
        self._now_ms = now.monotonic_ms
        self._wall_ms = now.wall_ms

    def decision(self, reply: Any) -> GroupDecision:
        current = self.live.current
        if current.leader is None:
            # Once, for all that were removed: a whole group may leave with one request.
            current.leader = next(iter(current.members), None)
        return Decision(self.records, reply, self.notes(), self.answers)

    def notes(self) -> list[Any]:
        group_bytes = GROUP_BYTES + len(self.group_id) + self.live.bytes
        return [*self.news, LiveIs(self.group_id, self.live, group_bytes)]

    # Calls that wait.

    def _answer_join(self, member_id: str, reply: JoinReply | ProtocolError) -> None:
        state = self.live.state
        call = state.joins.pop(member_id, None) if isinstance(state, Preparing) else None
        if call is not None:
            self.answers.append((call, reply))

    def _answer_sync(self, member_id: str, reply: SyncReply | ProtocolError) -> bool:
        state = self.live.state
        call = state.syncs.pop(member_id, None) if isinstance(state, Completing) else None
        if call is not None:
            self.answers.append((call, reply))
        return call is not None

    # Members.

    def renew(self, member_id: str) -> None:
        self.live.sessions[member_id] = self._now_ms + self.live.current.members[member_id].session_timeout_ms

    def invite(self, member_id: str, session_timeout_ms: int) -> None:
        self.live.invited[member_id] = self._now_ms + session_timeout_ms

    def add(self, member_id: str, call: JoinGroup) -> None:
        live, current = self.live, self.live.current
        if not current.members:
            current.protocol_type = call.protocol_type
        live.invited.pop(member_id, None)
        live.put(_member_of(member_id, call), owned(call.protocols))
        if current.leader is None:
            current.leader = member_id
        # It has no id yet and cannot send heartbeats; but it must not stay for ever when its client is gone.
        live.sessions[member_id] = self._now_ms + self._settings.new_member_join_timeout_ms
        before = live.state
        preparing = self._preparing()
        if preparing is before and isinstance(preparing.wait, InitialDelay):
            preparing.wait = replace(preparing.wait, more_came=True)
        preparing.newcomers[member_id] = None
        preparing.joins[member_id] = call
        self._complete_if_over(before)

    def rejoin(self, member_id: str, call: JoinGroup) -> None:
        known = self.live.current.members[member_id]
        self.live.put(_updated(member_id, known, call), owned(call.protocols))
        self.await_join(member_id, call)

    def await_join(self, member_id: str, call: JoinGroup) -> None:
        # A client that asks again has given up on its first call.
        self._answer_join(member_id, RebalanceInProgress())
        before = self.live.state
        self._preparing().joins[member_id] = call
        self._complete_if_over(before)

    def replace_static(self, old_id: str, new_id: str, call: JoinGroup) -> None:
        """The instance came back under a new id; whoever still uses the old one is fenced."""
        live, current, state = self.live, self.live.current, self.live.state
        self._answer_join(old_id, FencedInstanceId())
        self._answer_sync(old_id, FencedInstanceId())
        member, was_leader = current.members[old_id], current.leader == old_id
        was_unsynced = isinstance(state, Syncing) and old_id in state.unsynced
        live.remove(old_id)
        live.put(_updated(new_id, member, call), owned(call.protocols))
        if was_leader:
            current.leader = new_id
        if isinstance(state, Syncing) and was_unsynced:
            state.unsynced[new_id] = None
        self.renew(new_id)

    def keep_generation(self) -> None:
        """After `replace_static`, when the group can stay as it is: the new member is written down."""
        current, offers = self.live.current, self.live.offers
        assert current.protocol_name is not None
        current.choose(current.protocol_name, offers.subscriptions(current.protocol_name))
        self.records.append(current.record(self.group_id))

    def remove(self, member_id: str) -> None:
        self._answer_join(member_id, UnknownMemberId())
        self._answer_sync(member_id, UnknownMemberId())
        self.live.remove(member_id)

    # Phases.

    def prepare(self) -> None:
        """Begin a join phase, if there is none: everyone is to join again."""
        before = self.live.state
        self._preparing()
        self._complete_if_over(before)

    def _preparing(self) -> Preparing:
        live, before = self.live, self.live.state
        if isinstance(before, Preparing):
            return before
        if isinstance(before, Completing):
            self._withdraw_assignment()
        if isinstance(before, SETTLED):
            live.current.detach()
        timeout_ms = live.current.rebalance_timeout_ms
        delay_ms = self._settings.initial_rebalance_delay_ms
        wait: InitialDelay | JoinTimeout = JoinTimeout(self._now_ms + timeout_ms)
        if isinstance(before, Empty) and delay_ms > 0:
            wait = InitialDelay(self._now_ms + delay_ms, delay_ms, max(timeout_ms - delay_ms, 0))
        live.state = Preparing(wait)
        return live.state

    def _complete_if_over(self, before: State) -> None:
        if isinstance(before, Empty) and self._settings.initial_rebalance_delay_ms <= 0:
            self._complete()
        else:
            self.complete_if_everyone_joined()

    def _withdraw_assignment(self) -> None:
        current = self.live.current
        current.assign({})
        for member in current.members.values():
            if self._answer_sync(member.member_id, RebalanceInProgress()):
                self.renew(member.member_id)

    def complete_if_everyone_joined(self) -> None:
        live, state = self.live, self.live.state
        if not isinstance(state, Preparing) or isinstance(state.wait, InitialDelay):
            return
        if len(state.joins) == len(live.current.members) and not live.invited:
            self._complete()

    def _complete(self) -> None:
        """End the join phase with those who joined. Static members stay, even silent: they may be restarting."""
        current, preparing = self.live.current, self.live.state
        assert isinstance(preparing, Preparing)
        for member in list(current.members.values()):
            if member.member_id not in preparing.joins and member.instance_id is None:
                self._expire(member.member_id)
        if current.members and not self._elect_leader(preparing):
            preparing.wait = JoinTimeout(self._now_ms + current.rebalance_timeout_ms)
            return
        current.number += 1
        if current.members:
            self._begin_generation()
        else:
            current.end(self._wall_ms)
            self.live.state = Empty()
            self.records.append(current.record(self.group_id))

    def _elect_leader(self, preparing: Preparing) -> bool:
        """The leader stays unless it did not join. False when nobody joined."""
        current = self.live.current
        if current.leader not in preparing.joins:
            joined = next((member_id for member_id in current.members if member_id in preparing.joins), None)
            if joined is None:
                return False
            current.leader = joined
        return True

    def _begin_generation(self) -> None:
        live, current = self.live, self.live.current
        protocol_name = live.offers.elected()
        current.choose(protocol_name, live.offers.subscriptions(protocol_name))
        self.news.append(GroupRebalanced(self.group_id, current.number, len(current.members)))
        for member in current.members.values():
            self._answer_join(member.member_id, join_reply(current, member.member_id))
            self.renew(member.member_id)
        live.state = Completing(self._now_ms + current.rebalance_timeout_ms, dict.fromkeys(current.members))

    # Assignment.

    def synced(self, member_id: str) -> None:
        state = self.live.state
        assert isinstance(state, Syncing)
        state.unsynced.pop(member_id, None)

    def await_sync(self, member_id: str, call: SyncGroup) -> None:
        self._answer_sync(member_id, RebalanceInProgress())
        state = self.live.state
        assert isinstance(state, Completing)
        state.syncs[member_id] = call

    def assign(self, assignments: list[tuple[str, Buffer]]) -> None:
        """The leader has spoken; whom it forgot gets nothing."""
        current, completing = self.live.current, self.live.state
        assert isinstance(completing, Completing)
        current.assign({member_id: bytes(assignment) for member_id, assignment in assignments})
        current.since_ms = self._wall_ms
        self.records.append(current.record(self.group_id))
        for member_id in [each for each in current.members if each in completing.syncs]:
            self._answer_sync(member_id, sync_reply(current, member_id))
            self.renew(member_id)
        self.live.state = Stable(completing.until_ms, completing.unsynced)

    # Time.

    def expire(self) -> None:
        """Whatever is over by now, in the order of time."""
        live = self.live
        for deadline_ms, member_id in self._due():
            if live.invited.get(member_id) == deadline_ms:
                del live.invited[member_id]
                self.complete_if_everyone_joined()
            elif live.sessions.get(member_id) == deadline_ms:
                self._expire_session(member_id)
        phase_ends_ms = live.state.deadline_ms
        if phase_ends_ms is None or phase_ends_ms > self._now_ms:
            return
        if isinstance(live.state, Preparing):
            self._expire_join_phase(live.state)
        else:
            self._expire_sync()

    def _due(self) -> list[tuple[int, str]]:
        waiting = [*self.live.sessions.items(), *self.live.invited.items()]
        return sorted((deadline_ms, member_id) for member_id, deadline_ms in waiting if deadline_ms <= self._now_ms)

    def _expire(self, member_id: str) -> None:
        self.news.append(MembersExpired(self.group_id, (member_id,)))
        self.remove(member_id)

    def _expire_session(self, member_id: str) -> None:
        match self.live.state:
            case Preparing(joins=joins, newcomers=newcomers):
                waits = member_id in joins and member_id not in newcomers
            case Completing(syncs=syncs):
                waits = member_id in syncs
            case _:
                waits = False
        if waits:
            # It is we who owe an answer; the session begins again with it.
            del self.live.sessions[member_id]
            return
        self._expire(member_id)
        self.prepare()

    def _expire_join_phase(self, preparing: Preparing) -> None:
        wait = preparing.wait
        if isinstance(wait, JoinTimeout) or not wait.more_came or not wait.remaining_ms:
            self._complete()
            return
        delay_ms = min(self._settings.initial_rebalance_delay_ms, wait.remaining_ms)
        preparing.wait = InitialDelay(self._now_ms + delay_ms, delay_ms, max(wait.remaining_ms - wait.delay_ms, 0))

    def _expire_sync(self) -> None:
        state = self.live.state
        assert isinstance(state, Syncing)
        silent = set(state.unsynced)
        for member_id in [each for each in self.live.current.members if each in silent]:
            self._expire(member_id)
        self.prepare()


def owned(protocols: Protocols) -> Protocols:
    """Not views of a request that is long gone when they are read."""
    return [(name, bytes(metadata)) for name, metadata in protocols]


def _member_of(member_id: str, call: JoinGroup) -> Member:
    return Member(
        member_id,
        call.instance_id,
        call.client_id,
        call.client_host,
        call.rebalance_timeout_ms,
        call.session_timeout_ms,
    )


def _updated(member_id: str, known: Member, call: JoinGroup) -> Member:
    """The same member, with what it says now, maybe under another id."""
    return Member(
        member_id,
        known.instance_id,
        known.client_id,
        known.client_host,
        call.rebalance_timeout_ms,
        call.session_timeout_ms,
        known.subscription,
        known.assignment,
    )


def join_reply(current: Generation, member_id: str) -> JoinReply:
    assert current.protocol_name is not None
    assert current.leader is not None
    return JoinReply(
        member_id,
        current.number,
        current.protocol_type,
        current.protocol_name,
        current.leader,
        _joined_members(current) if member_id == current.leader else [],
    )


def _joined_members(current: Generation) -> list[JoinedMember]:
    return [
        JoinedMember(member.member_id, member.instance_id, member.subscription) for member in current.members.values()
    ]


def sync_reply(current: Generation, member_id: str) -> SyncReply:
    assert current.protocol_name is not None
    return SyncReply(current.protocol_type, current.protocol_name, current.members[member_id].assignment)
