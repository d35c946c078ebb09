"""What a classic group should do, said as simply as possible: a model to hold the coordinator against.

Written from the protocol (JoinGroup, SyncGroup, Heartbeat, LeaveGroup) and Kafka's behaviour. Everything is worked out
anew from plain dicts whenever it is asked for. Where Kafka leaves a choice open (who leads when the leader is gone,
which of two protocols with as many votes) the model asks `choose` and checks that the choice was a legal one.

Where Kafka would keep a caller waiting for nothing, the model wants an answer, as this coordinator does: a second
call of a member answers its first with REBALANCE_IN_PROGRESS, a member that leaves hears UNKNOWN_MEMBER_ID for its
sync, and when a member without a place is sent away the others go on at once. A rebalance takes 100 ms at least.
"""

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from skidway.groups.operations import CommitOffsets, Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from skidway.groups.settings import GroupSettings

EMPTY, PREPARING, COMPLETING, STABLE = "Empty", "PreparingRebalance", "CompletingRebalance", "Stable"
ANYONE = "(anyone who joined)"
REBALANCE_MS_MIN = 100
NEW_MEMBER_JOIN_MS = 5 * 60_000


@dataclass
class NaiveMember:
    instance: str | None
    client: tuple[str, str]
    session_ms: int
    rebalance_ms: int
    protocols: list[tuple[str, bytes]]
    assignment: bytes = b""
    join: int | None = None
    """The call that waits to be joined."""
    sync: int | None = None
    expires_ms: int | None = None
    is_new: bool = False
    """It has never been told that it joined."""
    unsynced: bool = False

    def metadata(self, protocol: str | None) -> bytes:
        return dict(reversed(self.protocols))[protocol or ""]


@dataclass
class Durable:
    generation: int = 0
    protocol_type: str = ""
    protocol: str | None = None
    leader: str | None = None
    members: dict[str, NaiveMember] = field(default_factory=dict)
    since_ms: int = 0


def error(name: str) -> tuple[str, ...]:
    return ("error", name)


def read_topics(metadata: bytes) -> set[str] | None:
    """Of a consumer's subscription: version, number of topics, names."""
    try:
        topics, position = set(), 6
        for _ in range(int.from_bytes(metadata[2:6], "big", signed=True)):
            size = int.from_bytes(metadata[position : position + 2], "big")
            topics.add(metadata[position + 2 : position + 2 + size].decode())
            position += 2 + size
    except UnicodeDecodeError:
        return None
    return topics if 6 <= position <= len(metadata) else None


class NaiveClassicGroup:
    def __init__(self, settings: GroupSettings, choose: Callable[[str, Iterable[str]], str]) -> None:
        self.settings = settings
        self.choose = choose
        self.exists = False
        self.state = EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader: str | None = None
        self.members: dict[str, NaiveMember] = {}
        self.pending: dict[str, int] = {}
        """Ids given away and not used yet, and when they expire."""
        self.delay: tuple[int, int, int, bool] | None = None
        """Of an empty group that waits for more members: ends, its length, what may be added, whether more came."""
        self.join_ends_ms: int | None = None
        self.sync_ends_ms: int | None = None
        self.since_ms = 0
        self.topics: set[str] | None = None
        """What the last generation subscribes to; None when that cannot be known."""
        self.durable = Durable()
        self.answers: dict[int, Any] = {}
        self.now_ms = 0

    # Small questions.

    def rebalance_ms(self) -> int:
        return max([REBALANCE_MS_MIN, *(member.rebalance_ms for member in self.members.values())])

    def instance_owner(self, instance: str) -> str | None:
        return next((each for each, member in self.members.items() if member.instance == instance), None)

    def common_protocols(self) -> set[str]:
        offered = [{name for name, _ in member.protocols} for member in self.members.values()]
        return set.intersection(*offered) if offered else set()

    def winners(self) -> set[str]:
        """Each member votes for the first of its protocols that all have; those with most votes may be chosen."""
        common = self.common_protocols()
        votes = [next(n for n, _ in member.protocols if n in common) for member in self.members.values()]
        most = max(votes.count(name) for name in votes)
        return {name for name in votes if votes.count(name) == most}

    def everyone_joined(self) -> bool:
        return all(member.join is not None for member in self.members.values()) and not self.pending

    def wrong_member(self, member_id: str, instance: str | None) -> str | None:
        if instance is not None:
            owner = self.instance_owner(instance)
            if owner is None:
                return "UNKNOWN_MEMBER_ID"
            if owner != member_id:
                return "FENCED_INSTANCE_ID"
        return None if member_id in self.members else "UNKNOWN_MEMBER_ID"

    # JoinGroup.

    def join(self, number: int, call: JoinGroup, uuid: str) -> None:
        refusal = self._join_refusal(call)
        if refusal is not None:
            self.answers[number] = error(refusal)
            return
        if not self.exists:
            self.exists, self.since_ms = True, self.now_ms
            self._save()
        if not self._has_room(call.member_id):
            self.pending.pop(call.member_id, None)
            if call.member_id in self.members:
                self._remove(call.member_id)
            self._go_on_if_everyone_joined()
            self.answers[number] = error("GROUP_MAX_SIZE_REACHED")
        elif not self._fits(call):
            self.answers[number] = error("INCONSISTENT_GROUP_PROTOCOL")
        elif call.member_id:
            self._join_again(number, call)
        else:
            self._join_first(number, call, uuid)

    def _join_refusal(self, call: JoinGroup) -> str | None:
        settings = self.settings
        if not settings.session_timeout_ms_min <= call.session_timeout_ms <= settings.session_timeout_ms_max:
            return "INVALID_SESSION_TIMEOUT"
        if not self.exists and call.member_id:
            return "UNKNOWN_MEMBER_ID"
        if not self.exists and not (call.protocol_type and call.protocols):
            return "INCONSISTENT_GROUP_PROTOCOL"
        return None

    def _has_room(self, member_id: str) -> bool:
        if self.state == EMPTY:
            return True
        if self.state == PREPARING:
            joined = [each for each, member in self.members.items() if member.join is not None]
            return member_id in joined or len(joined) < self.settings.size_max
        return member_id in self.members or len(self.members) < self.settings.size_max

    def _fits(self, call: JoinGroup) -> bool:
        if self.state == EMPTY:
            return bool(call.protocol_type and call.protocols)
        if call.protocol_type != self.protocol_type:
            return False
        return not self.members or any(name in self.common_protocols() for name, _ in call.protocols)

    def _join_first(self, number: int, call: JoinGroup, uuid: str) -> None:
        if call.instance_id is not None:
            owner = self.instance_owner(call.instance_id)
            new_id = f"{call.instance_id}-{uuid}"
            if owner is not None:
                self._take_over(number, call, owner, new_id)
            else:
                self._add(number, call, new_id)
        elif call.member_id_required:
            self.pending[f"{call.client_id}-{uuid}"] = self.now_ms + call.session_timeout_ms
            self.answers[number] = ("id required", f"{call.client_id}-{uuid}")
        else:
            self._add(number, call, f"{call.client_id}-{uuid}")

    def _add(self, number: int, call: JoinGroup, member_id: str) -> None:
        if not self.members:
            self.protocol_type = call.protocol_type
        if self.leader is None:
            self.leader = member_id
        if self.delay is not None:
            self.delay = (*self.delay[:3], True)
        self.pending.pop(member_id, None)
        self.members[member_id] = NaiveMember(
            call.instance_id,
            (call.client_id, call.client_host),
            call.session_timeout_ms,
            call.rebalance_timeout_ms,
            [(name, bytes(metadata)) for name, metadata in call.protocols],
            join=number,
            expires_ms=self.now_ms + NEW_MEMBER_JOIN_MS,
            is_new=True,
        )
        self._rebalance()

    def _take_over(self, number: int, call: JoinGroup, old_id: str, new_id: str) -> None:
        """A static member comes back under a new id."""
        before = self.members[old_id]
        for waiting in (before.join, before.sync):
            if waiting is not None:
                self.answers[waiting] = error("FENCED_INSTANCE_ID")
        told_leader = self.leader
        if self.leader == old_id:
            self.leader = new_id
        member = copy.copy(before)
        member.join = member.sync = None
        member.is_new = False
        self.members = {(new_id if each == old_id else each): found for each, found in self.members.items()}
        self.members[new_id] = member
        self._update(member, call)
        member.expires_ms = self.now_ms + member.session_ms
        if self.state == STABLE and self._protocol_stays():
            self._save()
            reply = self._joined(new_id)
            if call.can_skip_assignment:
                self.answers[number] = (*reply[:-1], self.leader == new_id)
            else:
                # An old client that heard it is the leader would assign.
                self.answers[number] = (*reply[:5], told_leader, (), False)
            return
        member.join = number
        self._rebalance()

    def _protocol_stays(self) -> bool:
        winners = self.winners()
        if self.protocol not in winners:
            return False
        return len(winners) == 1 or self.choose("stays", ["yes", "no"]) == "yes"

    def _update(self, member: NaiveMember, call: JoinGroup) -> None:
        member.protocols = [(name, bytes(metadata)) for name, metadata in call.protocols]
        member.session_ms, member.rebalance_ms = call.session_timeout_ms, call.rebalance_timeout_ms

    def _join_again(self, number: int, call: JoinGroup) -> None:
        if call.member_id in self.pending and call.instance_id is None:
            self._add(number, call, call.member_id)
            return
        refusal = self.wrong_member(call.member_id, call.instance_id)
        if refusal is not None:
            self.answers[number] = error(refusal)
            return
        member = self.members[call.member_id]
        unchanged = member.protocols == [(name, bytes(metadata)) for name, metadata in call.protocols]
        if unchanged and (self.state == COMPLETING or (self.state == STABLE and self.leader != call.member_id)):
            self.answers[number] = self._joined(call.member_id)
            return
        self._update(member, call)
        if member.join is not None:
            self.answers[member.join] = error("REBALANCE_IN_PROGRESS")
        member.join = number
        self._rebalance()

    def _joined(self, member_id: str) -> tuple[Any, ...]:
        everyone: tuple[Any, ...] = ()
        if member_id == self.leader:
            everyone = tuple(
                sorted((each, m.instance or "", m.metadata(self.protocol)) for each, m in self.members.items())
            )
        return ("joined", member_id, self.generation, self.protocol_type, self.protocol, self.leader, everyone, False)

    # Rebalances.

    def _rebalance(self) -> None:
        """Something has changed: a join phase begins, or the one that is under way may be over."""
        if self.state == PREPARING:
            self._go_on_if_everyone_joined()
        else:
            self._prepare()

    def _go_on_if_everyone_joined(self) -> None:
        if self.state == PREPARING and self.delay is None and self.everyone_joined():
            self._complete()

    def _prepare(self) -> None:
        if self.state == COMPLETING:
            for member in self.members.values():
                member.assignment = b""
                if member.sync is not None:
                    self.answers[member.sync] = error("REBALANCE_IN_PROGRESS")
                    member.sync, member.expires_ms = None, self.now_ms + member.session_ms
        for member in self.members.values():
            member.unsynced = False
        self.sync_ends_ms = None
        was_empty = self.state == EMPTY
        self.state, self.since_ms = PREPARING, self.now_ms
        delay_ms = self.settings.initial_rebalance_delay_ms
        if was_empty and delay_ms:
            self.delay = (self.now_ms + delay_ms, delay_ms, max(self.rebalance_ms() - delay_ms, 0), False)
        elif was_empty or self.everyone_joined():
            self._complete()
        else:
            self.join_ends_ms = self.now_ms + self.rebalance_ms()

    def _complete(self) -> None:
        self.delay = self.join_ends_ms = None
        for member_id in [e for e, member in self.members.items() if member.join is None and member.instance is None]:
            self._remove(member_id)
        joined = [each for each, member in self.members.items() if member.join is not None]
        if self.members and not joined:
            # Static members that are away keep their place, and there is nobody to lead.
            self.join_ends_ms = self.now_ms + self.rebalance_ms()
            return
        self.generation += 1
        self.since_ms = self.now_ms
        if not self.members:
            self.state, self.protocol = EMPTY, None
            self.topics = self._subscribed()
            self._save()
            return
        if self.leader not in joined:
            self.leader = self.choose("leader", joined)
        self.protocol = self.choose("protocol", self.winners())
        self.topics = self._subscribed()
        self.state = COMPLETING
        self.sync_ends_ms = self.now_ms + self.rebalance_ms()
        for member_id, member in self.members.items():
            if member.join is not None:
                self.answers[member.join] = self._joined(member_id)
            member.join, member.is_new, member.unsynced = None, False, True
            member.expires_ms = self.now_ms + member.session_ms

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        for waiting in (member.join, member.sync):
            if waiting is not None:
                self.answers[waiting] = error("UNKNOWN_MEMBER_ID")
        if self.leader == member_id:
            self.leader = ANYONE if self.members else None

    # SyncGroup, Heartbeat, LeaveGroup.

    def sync(self, number: int, call: SyncGroup) -> None:
        refusal = self.wrong_member(call.member_id, call.instance_id)
        if refusal is None and call.generation != self.generation:
            refusal = "ILLEGAL_GENERATION"
        if refusal is None and (
            call.protocol_type not in (None, self.protocol_type) or call.protocol_name not in (None, self.protocol)
        ):
            refusal = "INCONSISTENT_GROUP_PROTOCOL"
        if refusal is None and self.state == PREPARING:
            refusal = "REBALANCE_IN_PROGRESS"
        if refusal is not None:
            self.answers[number] = error(refusal)
            return
        member = self.members[call.member_id]
        member.unsynced = False
        if not any(each.unsynced for each in self.members.values()):
            self.sync_ends_ms = None
        if self.state == STABLE:
            self.answers[number] = ("synced", self.protocol_type, self.protocol, member.assignment)
            return
        if member.sync is not None:
            self.answers[member.sync] = error("REBALANCE_IN_PROGRESS")
        member.sync = number
        if call.member_id == self.leader:
            self._assign({each: bytes(assignment) for each, assignment in call.assignments})

    def _assign(self, assignments: dict[str, bytes]) -> None:
        self.state, self.since_ms = STABLE, self.now_ms
        for member_id, member in self.members.items():
            member.assignment = assignments.get(member_id, b"")
            if member.sync is not None:
                self.answers[member.sync] = ("synced", self.protocol_type, self.protocol, member.assignment)
                member.sync, member.expires_ms = None, self.now_ms + member.session_ms
        self._save()

    def heartbeat(self, number: int, call: Heartbeat) -> None:
        refusal = self.wrong_member(call.member_id, call.instance_id)
        if refusal is None and call.generation != self.generation:
            refusal = "ILLEGAL_GENERATION"
        if refusal is None:
            member = self.members[call.member_id]
            member.expires_ms = self.now_ms + member.session_ms
            if self.state == PREPARING:
                refusal = "REBALANCE_IN_PROGRESS"
        self.answers[number] = ("done",) if refusal is None else error(refusal)

    def leave(self, number: int, call: LeaveGroup) -> None:
        codes = [self._leave_one(each.member_id, each.instance_id) for each in call.members]
        if "NONE" in codes and self.state != EMPTY:
            self._rebalance()
        self.answers[number] = ("codes", *codes)

    def _leave_one(self, member_id: str, instance: str | None) -> str:
        if not member_id:
            member_id = (self.instance_owner(instance) if instance is not None else None) or ""
            if not member_id:
                return "UNKNOWN_MEMBER_ID"
        elif member_id in self.pending:
            del self.pending[member_id]
            return "NONE"
        else:
            refusal = self.wrong_member(member_id, instance)
            if refusal is not None:
                return refusal
        self._remove(member_id)
        return "NONE"

    def delete(self, number: int) -> None:
        if not self.exists:
            self.answers[number] = error("GROUP_ID_NOT_FOUND")
        elif self.state != EMPTY:
            self.answers[number] = error("NON_EMPTY_GROUP")
        else:
            self.forget()
            self.answers[number] = ("done",)

    def forget(self) -> None:
        """The group is gone, and the ids it has given away with it."""
        answers, now_ms = self.answers, self.now_ms
        self.__init__(self.settings, self.choose)  # type: ignore[misc]
        self.answers, self.now_ms = answers, now_ms

    def commit_refusal(self, call: CommitOffsets) -> str | None:
        if not self.exists:
            if call.generation < 0:
                return None
            return "GROUP_ID_NOT_FOUND" if call.version >= 9 else "ILLEGAL_GENERATION"
        if call.generation < 0 and self.state == EMPTY:
            return None
        if call.generation < 0 and not call.member_id and call.instance_id is None:
            return "UNKNOWN_MEMBER_ID"
        refusal = self.wrong_member(call.member_id, call.instance_id)
        if refusal is None and call.generation != self.generation:
            refusal = "ILLEGAL_GENERATION"
        if refusal is None and self.state == COMPLETING:
            refusal = "REBALANCE_IN_PROGRESS"
        if refusal is None:
            # A commit is a sign of life.
            member = self.members[call.member_id]
            member.expires_ms = self.now_ms + member.session_ms
        return refusal

    # Time, and the end of a coordinator.

    def next_ms(self) -> int | None:
        return min((at_ms for at_ms, _, _ in self._events()), default=None)

    def _events(self) -> list[tuple[int, int, str]]:
        """When, in which order within a millisecond, whom."""
        events = [(m.expires_ms, 0, each) for each, m in self.members.items() if m.expires_ms is not None]
        events += [(at_ms, 0, each) for each, at_ms in self.pending.items()]
        phases = [(1, None if self.delay is None else self.delay[0]), (1, self.join_ends_ms), (2, self.sync_ends_ms)]
        return events + [(at_ms, order, "") for order, at_ms in phases if at_ms is not None]

    def pass_time(self, now_ms: int) -> None:
        while True:
            at_ms, order, member_id = min(self._events(), default=(now_ms + 1, 0, ""))
            if at_ms > now_ms:
                break
            self.now_ms = at_ms
            if order == 2:
                self._sync_ends()
            elif order == 1:
                self._phase_ends()
            else:
                self._expires(member_id)
        self.now_ms = now_ms

    def _expires(self, member_id: str) -> None:
        if self.pending.pop(member_id, None) is not None:
            self._go_on_if_everyone_joined()
            return
        member = self.members[member_id]
        if (member.join is not None or member.sync is not None) and not member.is_new:
            # It is the coordinator that owes an answer.
            member.expires_ms = None
            return
        self._remove(member_id)
        self._rebalance()

    def _phase_ends(self) -> None:
        if self.delay is not None:
            _, delay_ms, more_ms, more_came = self.delay
            if more_came and more_ms:
                next_ms = min(self.settings.initial_rebalance_delay_ms, more_ms)
                self.delay = (self.now_ms + next_ms, next_ms, max(more_ms - delay_ms, 0), False)
                return
        self._complete()

    def _sync_ends(self) -> None:
        self.sync_ends_ms = None
        for member_id in [each for each, member in self.members.items() if member.unsynced]:
            self._remove(member_id)
        self._prepare()

    def _save(self) -> None:
        self.durable = Durable(
            self.generation, self.protocol_type, self.protocol, self.leader, copy.deepcopy(self.members), self.since_ms
        )

    def restart(self) -> None:
        """Everything but the last record is forgotten; who waited was told to look for the coordinator."""
        for member in self.members.values():
            for waiting in (member.join, member.sync):
                if waiting is not None:
                    self.answers[waiting] = error("NOT_COORDINATOR")
        exists, durable, answers, now_ms = self.exists, copy.deepcopy(self.durable), self.answers, self.now_ms
        self.__init__(self.settings, self.choose)  # type: ignore[misc]
        self.exists, self.answers, self.now_ms = exists, answers, now_ms
        self.generation, self.protocol_type, self.protocol = durable.generation, durable.protocol_type, durable.protocol
        self.leader, self.members, self.since_ms = durable.leader, durable.members, durable.since_ms
        self.state = STABLE if self.members else EMPTY
        for member in self.members.values():
            member.protocols = [(self.protocol or "", member.metadata(self.protocol))]
            member.join = member.sync = None
            member.unsynced = member.is_new = False
            member.expires_ms = now_ms + member.session_ms
        self.topics = self._subscribed()
        self._save()

    # Offsets.

    def _subscribed(self) -> set[str] | None:
        if self.protocol_type != "consumer":
            return None
        topics: set[str] = set()
        for member in self.members.values():
            read = read_topics(member.metadata(self.protocol))
            if read is None:
                return None
            topics |= read
        return topics

    def is_subscribed(self, topic: str) -> bool:
        """A group of consumers whose subscription nobody can read may read everything."""
        return self.protocol_type == "consumer" if self.topics is None else topic in self.topics

    def retained_since_ms(self, committed_ms: int) -> int | None:
        """From when on the time counts after which an offset is forgotten; None when it does not."""
        if not self.protocol_type:
            return committed_ms
        if self.state == EMPTY:
            return self.since_ms
        if self.protocol_type == "consumer" and self.topics is not None and self.state == STABLE:
            return committed_ms
        return None

    # How it looks.

    def described(self) -> tuple[Any, ...]:
        if not self.exists:
            return error("GROUP_ID_NOT_FOUND")
        stable = self.state == STABLE
        return (
            self.state,
            self.protocol_type,
            (self.protocol if stable else None) or "",
            {
                each: (m.instance, m.client, m.metadata(self.protocol) if stable else b"", m.assignment)
                for each, m in self.members.items()
            },
        )

    def described_from_log(self) -> tuple[Any, ...]:
        fresh = NaiveClassicGroup(self.settings, self.choose)
        fresh.exists, fresh.durable = self.exists, self.durable
        fresh.restart()
        return fresh.described()
