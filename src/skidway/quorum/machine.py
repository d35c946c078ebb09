"""One member of the metadata quorum: who leads, in which epoch, and what a majority holds.

Step and outbox: the caller feeds events (`on_…`), carries what is in `outbox` and wakes it at `deadline_ms`. Answers
to others are returned at once; the facts they promise are durable by then (see `storage`). What is appended counts
once `on_synced` says so.

A member whose id is not among the voters is an observer: it fetches and does not stand (but see `may_stand`).

This is who it is and what it becomes (`role`); how it becomes leader is in `elections`, how the log moves in
`replication`.
"""

from __future__ import annotations

from skidway.errors import ErrorCode, StorageError
from skidway.ports import Random
from skidway.quorum import replication
from skidway.quorum.elections import Elections
from skidway.quorum.followers import Followers
from skidway.quorum.messages import (
    NO_LEADER,
    Answer,
    Ask,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    EpochEnd,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Request,
    SnapshotAnswer,
    Vote,
    VoteAnswer,
)
from skidway.quorum.patience import Patience
from skidway.quorum.requests import Requests
from skidway.quorum.role import Role
from skidway.quorum.settings import QuorumSettings
from skidway.quorum.storage import Memory, QuorumLog, Remembered
from skidway.quorum.voters import Member, Voter, VoterHistory, Voters


class Quorum:
    def __init__(
        self,
        me: Member,
        history: VoterHistory,
        log: QuorumLog,
        memory: Memory,
        random: Random,
        settings: QuorumSettings,
        now_ms: int,
    ) -> None:
        """`history` holds the voters this node was started with, and the sets that are in the log already."""
        self.me = me
        self.history = history
        self._told = history.sets[0][1].ids
        self.log = log
        self.settings = settings
        self.outbox: list[Ask] = []
        self.role = Role.UNATTACHED
        self.leader = NO_LEADER
        self.high_watermark = log.start_offset
        """Never above what is known to be committed; after a restart it begins low and the leader tells."""
        self.followers: Followers | None = None
        self._memory = memory
        self._random = random
        self.patience = Patience(settings, random)
        self.requests = Requests(settings)
        self.elections = Elections(self)
        self.fetched_from_leader = False
        self.trouble: str | None = None
        """Why the disk did not let this member stand or lead, the last time it tried."""
        self.snapshot_position = 0
        self.fetching_snapshot: EpochEnd | None = None
        self.remembered = memory.load()
        self._resume(now_ms)

    # --- what is known ---

    @property
    def epoch(self) -> int:
        return self.remembered.epoch

    @property
    def voted(self) -> Member | None:
        return self.remembered.voted

    @property
    def voters(self) -> Voters:
        return self.history.latest

    @property
    def is_voter(self) -> bool:
        return self.me in self.voters

    @property
    def may_stand(self) -> bool:
        """A voter, or who was removed by a record that may not be committed: as long as the others lack it they do not
        elect each other, and none of them has as much of the log as this node."""
        if self.is_voter:
            return True
        removed_at = self.history.latest_offset
        return self.high_watermark <= removed_at and self.me in self.history.at(removed_at)

    @property
    def is_majority(self) -> bool:
        """All by itself."""
        return self.is_voter and self.voters.majority == 1

    @property
    def leads(self) -> bool:
        return self.role is Role.LEADER

    @property
    def deadline_ms(self) -> int:
        return min(self.patience.deadline_ms, self.requests.deadline_ms)

    # --- time ---

    def on_time(self, now_ms: int) -> None:
        self.requests.on_time(now_ms)
        if self.patience.deadline_ms <= now_ms:
            try:
                self._on_patience_over(now_ms)
            except StorageError:
                # What must be remembered could not be written: nothing has changed, and it is tried again later.
                self.patience.await_election(now_ms)
                raise
        self.act(now_ms)

    def _on_patience_over(self, now_ms: int) -> None:
        match self.role:
            case Role.LEADER:
                self._check_quorum(now_ms)
            case Role.FOLLOWER if self._waits_for_own_disk:
                # The leader was not even asked.
                self.patience.deadline_ms = now_ms + self.settings.fetch_timeout_ms
            case Role.FOLLOWER if self.may_stand:
                self.elections.stand(now_ms)
            case Role.FOLLOWER:
                self.become_unattached(self.epoch, now_ms)
            case Role.PROSPECTIVE:
                self.elections.give_up(now_ms)
            case Role.CANDIDATE:
                self.elections.stand(now_ms)
            case Role.UNATTACHED | Role.RESIGNED if self.may_stand:
                self.elections.stand(now_ms)
            case Role.UNATTACHED | Role.RESIGNED:
                self.become_unattached(self.epoch, now_ms)

    def _check_quorum(self, now_ms: int) -> None:
        assert self.followers is not None
        until_ms = self.followers.heard_ms(self.voters, now_ms) + self.settings.check_quorum_ms
        if until_ms <= now_ms:
            self.resign(now_ms)
        else:
            self.patience.deadline_ms = until_ms

    @property
    def _waits_for_own_disk(self) -> bool:
        asking = self.requests.under_way or self.requests.paused
        return not asking and self.log.synced_offset < self.log.end_offset

    @property
    def _place(self) -> int:
        """Of this voter among those who may stand when the leader is lost."""
        others = [member.node_id for member in self.voters.members if member.node_id != self.remembered.leader]
        return others.index(self.me.node_id) if self.me.node_id in others else len(others)

    # --- becoming ---

    def _resume(self, now_ms: int) -> None:
        """After a start: what was remembered decides. A leader never goes on in the epoch it led before."""
        if self.epoch < self.log.last_epoch:
            # A log from before the quorum was one, or brought here without its state.
            self.remember(self.log.last_epoch)
        if self.remembered.leader == self.me.node_id:
            self.role = Role.RESIGNED
            self.leader = self.me.node_id
            self.patience.await_election(now_ms)
        elif self.is_majority:
            # Also one that followed a leader that has removed itself: nobody else can lead any more.
            self.elections.begin_epoch(now_ms)
        elif self.remembered.leader != NO_LEADER:
            self.follow(now_ms)
        else:
            self.role = Role.UNATTACHED
            self.patience.await_election(now_ms)
        if self.role is Role.RESIGNED and self.is_majority:
            self.elections.begin_epoch(now_ms)
        self.act(now_ms)

    def remember(self, epoch: int, leader: int = NO_LEADER, voted: Member | None = None) -> None:
        assert epoch >= self.epoch, "epochs never go back"
        remembered = Remembered(epoch, leader, voted)
        if remembered != self.remembered:
            self._memory.save(remembered)
            self.remembered = remembered

    def leave_role(self) -> None:
        self.elections.end()
        self.requests.forget()
        self.patience.begin_anew()
        self.followers = None
        self.fetched_from_leader = False
        self.fetching_snapshot = None

    def become_unattached(self, epoch: int, now_ms: int, voted: Member | None = None) -> None:
        if epoch > self.epoch:
            self.remember(epoch, voted=voted)
        self.leave_role()
        self.role = Role.UNATTACHED
        # A leader that was lost stays remembered: it is the only one there can be in this epoch.
        self.leader = NO_LEADER
        self.patience.await_election(now_ms)

    def _become_follower(self, epoch: int, leader: int, now_ms: int) -> None:
        assert leader != self.me.node_id, "nobody follows itself"
        self.remember(epoch, leader, self.voted if epoch == self.epoch else None)
        self.follow(now_ms)

    def follow(self, now_ms: int) -> None:
        self.leave_role()
        self.role = Role.FOLLOWER
        self.leader = self.remembered.leader
        self.heard_leader(now_ms)

    def stay_out(self, error: StorageError, now_ms: int) -> None:
        """The disk is full, say: others should lead; this one tries again after a while."""
        self.trouble = str(error)
        self.become_unattached(self.epoch, now_ms)

    def become_leader(self, granted: list[Member], now_ms: int) -> None:
        try:
            self.remember(self.epoch, self.me.node_id, self.me)
            start = self.log.append_leader_change(self.me, self.voters, granted, self.epoch)
        except StorageError as error:
            self.stay_out(error, now_ms)
            return
        self.trouble = None
        self.leave_role()
        self.role = Role.LEADER
        self.leader = self.me.node_id
        self.followers = Followers(self.me, start, now_ms)
        self.patience.deadline_ms = now_ms + self.settings.check_quorum_ms
        for voter in self.voters:
            if voter.member.node_id != self.me.node_id:
                self.ask(voter.member.node_id, BeginEpoch(voter.member, self.me.node_id, self.epoch), now_ms)

    def resign(self, now_ms: int) -> None:
        """Step down and say so: to be stopped, or cut off from the others."""
        if self.role is not Role.LEADER:
            return
        assert self.followers is not None
        successors = self.followers.successors(self.voters)
        self.leave_role()
        self.role = Role.RESIGNED
        self.patience.await_election(now_ms)
        for successor in successors:
            self.ask(successor.node_id, EndEpoch(self.me.node_id, self.epoch, successors), now_ms)

    # --- acting ---

    def ask(self, node_id: int, request: Request, now_ms: int) -> None:
        self.requests.begin(node_id, request, now_ms)
        self.outbox.append(Ask(node_id, request))

    def act(self, now_ms: int) -> None:
        """Ask what the role has to ask, of everybody who is not being asked already."""
        if not self.requests.may_begin(now_ms):
            return
        match self.role:
            case Role.PROSPECTIVE | Role.CANDIDATE:
                self.elections.ask(now_ms)
            case Role.FOLLOWER:
                self._fetch(self.leader, now_ms)
            case Role.UNATTACHED if not self.is_voter:
                self._look_around(now_ms)
            case Role.LEADER:
                self._tell_silent(now_ms)

    def _fetch(self, node_id: int, now_ms: int) -> None:
        if self.requests.under_way:
            return
        log = self.log
        if self.fetching_snapshot is not None:
            request: Request = FetchSnapshot(self.me, self.epoch, self.fetching_snapshot, self.snapshot_position)
        elif log.synced_offset < log.end_offset:
            # A fetch position is a promise: on_synced comes first.
            return
        else:
            request = Fetch(self.me, self.epoch, log.end_offset, log.last_epoch, self.high_watermark)
        self.ask(node_id, request, now_ms)

    def _look_around(self, now_ms: int) -> None:
        """An observer finds the leader by asking any voter, or whom it was started with: its log may be old."""
        others = [each for each in dict.fromkeys([*self.voters.ids, *self._told]) if each != self.me.node_id]
        if others and not self.requests.under_way:
            self._fetch(others[self._random.randrange(len(others))], now_ms)

    def _tell_silent(self, now_ms: int) -> None:
        """A voter that was away may know none of those who vote now but by the names it was started with: it does not
        ask them, but follows the one that says it leads."""
        assert self.followers is not None
        for member in self.followers.silent(self.voters, now_ms - self.settings.fetch_timeout_ms, now_ms):
            if member.node_id not in self.requests.under_way:
                self.ask(member.node_id, BeginEpoch(member, self.me.node_id, self.epoch), now_ms)
        self.requests.pause_until(now_ms + self.settings.fetch_timeout_ms)

    def on_answer(self, node_id: int, request: Request, answer: Answer, now_ms: int) -> None:
        """What a member answered. Whatever it knows of epochs is news; all else only if it was still waited for."""
        awaited = self.requests.finish(node_id, request)
        try:
            fresh = self._notice(answer.epoch, answer.leader, now_ms)
        except StorageError as error:
            self.trouble = str(error)
            self.try_later(now_ms)
            return
        if awaited and fresh and answer.epoch == self.epoch:
            match request, answer:
                case Vote(), VoteAnswer():
                    self.elections.on_answer(node_id, request, answer, now_ms)
                case Fetch(), FetchAnswer() if node_id == self.leader and self.role is Role.FOLLOWER:
                    replication.on_fetch_answer(self, request, answer, now_ms)
                case FetchSnapshot(), SnapshotAnswer() if node_id == self.leader and self.role is Role.FOLLOWER:
                    replication.on_snapshot_answer(self, answer, now_ms)
        if self.role is Role.UNATTACHED:
            # Nobody knows a leader yet: no hurry to hear so again.
            self.try_later(now_ms)
        self.act(now_ms)

    def on_unanswered(self, node_id: int, request: Request, now_ms: int) -> None:
        """The request failed on its way: it is tried again after a pause."""
        if self.requests.finish(node_id, request):
            if isinstance(request, Fetch | FetchSnapshot) and node_id == self.leader:
                self.on_leader_failure(now_ms)
            elif isinstance(request, Vote):
                self.elections.on_unanswered(node_id, now_ms)
            if self.role is not Role.LEADER:
                self.try_later(now_ms)

    def on_leader_failure(self, now_ms: int) -> None:
        """A process that was killed refuses connections at once: no need to wait until patience is over. Standing
        for a pre-vote harms nobody if the leader is still there for the others."""
        if self.patience.on_leader_failure() and self.role is Role.FOLLOWER:
            self.fetched_from_leader = False
            self.patience.await_turn(self._place, now_ms)

    def try_later(self, now_ms: int) -> None:
        self.requests.pause(now_ms)

    def on_synced(self, now_ms: int) -> None:
        """The log is durable up to its `synced_offset`."""
        if self.role is Role.LEADER:
            self.advance(now_ms)
        self.act(now_ms)

    # --- epochs of others ---

    def _notice(self, epoch: int, leader: int, now_ms: int) -> bool:
        """Somebody knows this epoch and its leader. False when that is old news from a past epoch."""
        if epoch < self.epoch:
            return False
        if leader == self.me.node_id and epoch > self.epoch:
            # This node never led that epoch as far as it remembers: whoever says so is not believed.
            leader = NO_LEADER
        known = self.remembered.leader
        if epoch > self.epoch:
            if leader == NO_LEADER:
                self.become_unattached(epoch, now_ms)
            else:
                self._become_follower(epoch, leader, now_ms)
        elif leader not in (NO_LEADER, self.me.node_id) and (
            # A voter that lost its leader is not told so by others who have not noticed yet; an observer is.
            known == NO_LEADER or (self.role is Role.UNATTACHED and not self.is_voter)
        ):
            self._become_follower(epoch, leader, now_ms)
        return True

    def _by_own_word(self, leader: int) -> int:
        """Who says that it leads is followed if this node knows it for a voter. Another one may have been added while
        this node was away, or be a stranger: whoever else is asked knows which."""
        known = [*self.voters.ids, *self._told]
        if self.high_watermark <= self.history.latest_offset:
            # Removed by a record that may not be committed: it may lead once more (see `may_stand`).
            known += self.history.at(self.history.latest_offset).ids
        return leader if leader in known else NO_LEADER

    def on_begin_epoch(self, request: BeginEpoch, now_ms: int) -> EpochAnswer:
        if request.epoch < self.epoch:
            return EpochAnswer(self.epoch, self.leader, ErrorCode.FENCED_LEADER_EPOCH)
        if request.to not in Voters([Voter(self.me)]):
            return EpochAnswer(self.epoch, self.leader, ErrorCode.INVALID_VOTER_KEY)
        self._notice(request.epoch, self._by_own_word(request.leader), now_ms)
        self.act(now_ms)
        return EpochAnswer(self.epoch, self.leader)

    def on_end_epoch(self, request: EndEpoch, now_ms: int) -> EpochAnswer:
        if not self._notice(request.epoch, self._by_own_word(request.leader), now_ms):
            return EpochAnswer(self.epoch, self.leader, ErrorCode.FENCED_LEADER_EPOCH)
        if self.role is Role.FOLLOWER and self.leader == request.leader and self.is_voter:
            places = [candidate.node_id for candidate in request.candidates]
            place = places.index(self.me.node_id) if self.me.node_id in places else len(places)
            if place == 0:
                # The old leader is gone by its own word: nobody has to be asked first.
                self.elections.begin_epoch(now_ms)
            else:
                wait_ms = min(self.settings.retry_ms * 2**place, self.settings.fetch_timeout_ms)
                self.patience.end_by(now_ms + wait_ms)
        self.act(now_ms)
        return EpochAnswer(self.epoch, self.leader)

    # --- votes ---

    def on_vote(self, request: Vote, now_ms: int) -> VoteAnswer:
        return self.elections.on_vote(request, now_ms)

    # --- the log ---

    def on_fetch(self, request: Fetch, now_ms: int) -> FetchAnswer:
        """What the leader has for a replica. An answer without records may be held back until there are some, or the
        high watermark has moved, by whoever carries it."""
        return replication.on_fetch(self, request, now_ms)

    def fetch_answer(self, request: Fetch) -> FetchAnswer:
        """The same for a fetch that was held back: it tells nothing new about the replica."""
        return replication.fetch_answer(self, request)

    def on_fetch_snapshot(self, request: FetchSnapshot, now_ms: int) -> SnapshotAnswer:
        return replication.on_fetch_snapshot(self, request, now_ms)

    def heard_leader(self, now_ms: int) -> None:
        self.patience.await_leader(self._place, now_ms)

    def advance(self, now_ms: int) -> None:
        """The leader counts anew what a majority holds."""
        assert self.followers is not None
        held = self.followers.high_watermark(self.voters, self.log.synced_offset)
        if held > self.high_watermark:
            self.high_watermark = held
        if self.me not in self.voters and self.high_watermark > self.history.latest_offset:
            # It led until the set without it was committed; now it has no part in it.
            self.resign(now_ms)

    # --- changing the voters ---

    def change_voters(self, voters: Voters, now_ms: int) -> int:
        """Append a set that differs by one voter (see `Voters.is_next_to`); it holds at once. Returns the offset past
        its record; committed when the high watermark is there. The caller has checked `may_change_voters`."""
        assert self.may_change_voters is None, self.may_change_voters
        assert voters.is_next_to(self.voters), f"{self.voters} cannot become {voters} in one step"
        offset = self.log.append_voters(voters, self.epoch)
        self.history.add(offset, voters)
        self.advance(now_ms)
        return offset + 1

    @property
    def may_change_voters(self) -> str | None:
        """Why the voters cannot be changed now; None when they can."""
        if self.role is not Role.LEADER or self.followers is None:
            return "this node does not lead the quorum"
        if self.high_watermark <= self.followers.epoch_start:
            return "the leader has not committed anything in its epoch yet"
        if self.history.latest_offset >= self.high_watermark:
            return "another change of the voters is under way"
        return None
