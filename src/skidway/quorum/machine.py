"""One member of the metadata quorum: who leads, in which epoch, and what a majority holds.

Step and outbox: the caller feeds events (`on_…`), carries what is in `outbox` and wakes it at `deadline_ms`. Answers
to others are returned at once; the facts they promise are durable by then (see `storage`). What is appended counts
once `on_synced` says so.

A member whose id is not among the voters is an observer: it fetches and does not stand (but see `may_stand`).

This is what it hears and what it asks. What it is and what it becomes is in `member`, how it becomes leader in
`elections`, how the log moves in `replication`.
"""

from __future__ import annotations

from skidway.errors import ErrorCode, StorageError
from skidway.ports import Random
from skidway.quorum import elections, replication
from skidway.quorum.member import QuorumMember
from skidway.quorum.messages import (
    NO_LEADER,
    Answer,
    BeginEpoch,
    EndEpoch,
    EpochAnswer,
    Fetch,
    FetchAnswer,
    FetchSnapshot,
    Request,
    SnapshotAnswer,
    Vote,
    VoteAnswer,
)
from skidway.quorum.role import Role
from skidway.quorum.settings import QuorumSettings
from skidway.quorum.storage import Memory, QuorumLog
from skidway.quorum.voters import Member, Voter, VoterHistory, Voters


class Quorum(QuorumMember):
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
        super().__init__(me, history, log, memory, random, settings)
        self._told = history.sets[0][1].ids
        """The voters that this node was started with."""
        self._random = random
        self._resume(now_ms)

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
                elections.stand(self, now_ms)
            case Role.FOLLOWER:
                self.become_unattached(self.epoch, now_ms)
            case Role.PROSPECTIVE:
                elections.give_up(self, now_ms)
            case Role.CANDIDATE:
                elections.stand(self, now_ms)
            case Role.UNATTACHED | Role.RESIGNED if self.may_stand:
                elections.stand(self, now_ms)
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
            elections.begin_epoch(self, now_ms)
        elif self.remembered.leader != NO_LEADER:
            self.follow(now_ms)
        else:
            self.role = Role.UNATTACHED
            self.patience.await_election(now_ms)
        if self.role is Role.RESIGNED and self.is_majority:
            elections.begin_epoch(self, now_ms)
        self.act(now_ms)

    # --- acting ---

    def act(self, now_ms: int) -> None:
        """Ask what the role has to ask, of everybody who is not being asked already."""
        if not self.requests.may_begin(now_ms):
            return
        match self.role:
            case Role.PROSPECTIVE | Role.CANDIDATE:
                elections.ask(self, now_ms)
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
                    elections.on_answer(self, node_id, request, answer, now_ms)
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
                elections.on_unanswered(self, node_id, now_ms)
            if self.role is not Role.LEADER:
                self.try_later(now_ms)

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
                self.become_follower(epoch, leader, now_ms)
        elif leader not in (NO_LEADER, self.me.node_id) and (
            # A voter that lost its leader is not told so by others who have not noticed yet; an observer is.
            known == NO_LEADER or (self.role is Role.UNATTACHED and not self.is_voter)
        ):
            self.become_follower(epoch, leader, now_ms)
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
                elections.begin_epoch(self, now_ms)
            else:
                wait_ms = min(self.settings.retry_ms * 2**place, self.settings.fetch_timeout_ms)
                self.patience.end_by(now_ms + wait_ms)
        self.act(now_ms)
        return EpochAnswer(self.epoch, self.leader)

    # --- votes ---

    def on_vote(self, request: Vote, now_ms: int) -> VoteAnswer:
        answer = elections.on_vote(self, request, now_ms)
        if not answer.error:
            self.act(now_ms)
        return answer

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
