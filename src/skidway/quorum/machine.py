"""One member of the metadata quorum: who leads, in which epoch, and what a majority holds.

Step and outbox: the caller feeds events (`on_…`), carries what is in `outbox` and wakes it at `deadline_ms`. Answers
to others are returned at once; the facts they promise are durable by then (see `storage`). What is appended counts
once `on_synced` says so.

    unattached    no leader is known in this epoch; a voter waits, then stands; an observer asks around
    follower      fetches from the leader
    prospective   asks whether it could win, before it disturbs anybody with a new epoch
    candidate     asks for votes in its new epoch
    leader        appends, counts what a majority holds, resigns when it does not hear of one
    resigned      led this epoch and never will again; others should stand

A member whose id is not among the voters is an observer: it fetches and does not stand (but see `may_stand`).
"""

from __future__ import annotations

from enum import Enum

from skidway.errors import ErrorCode, StorageError
from skidway.limits import INT32_MAX
from skidway.ports import Random
from skidway.quorum import replication
from skidway.quorum.ballot import Ballot
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
from skidway.quorum.settings import QuorumSettings
from skidway.quorum.storage import Memory, QuorumLog, Remembered
from skidway.quorum.voters import Member, Voter, VoterHistory, Voters

NEVER = 2**62
LEADER_FAILURES_MAX = 2
"""Fetches in a row without an answer after which a follower no longer believes in its leader."""


class Role(Enum):
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"


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
        """`history` holds the sets of voters that are in the log already."""
        self.me = me
        self.history = history
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
        self._ballot: Ballot | None = None
        self._asked: dict[int, tuple[int, Request]] = {}
        """Requests under way by node, and when they are given up."""
        self._role_deadline_ms = NEVER
        self._retry_ms = NEVER
        self._leader_failures = 0
        """Fetches in a row that the leader did not answer, or refused."""
        self.fetched_from_leader = False
        self.trouble: str | None = None
        """Why the disk did not let this member stand or lead, the last time it tried."""
        self.snapshot_position = 0
        self.fetching_snapshot: EpochEnd | None = None
        self._remembered = memory.load()
        self._resume(now_ms)

    # --- what is known ---

    @property
    def epoch(self) -> int:
        return self._remembered.epoch

    @property
    def voted(self) -> Member | None:
        return self._remembered.voted

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
    def _is_majority(self) -> bool:
        """All by itself."""
        return self.is_voter and self.voters.majority == 1

    @property
    def leads(self) -> bool:
        return self.role is Role.LEADER

    @property
    def deadline_ms(self) -> int:
        given_up = [when for when, _ in self._asked.values()]
        return min([self._role_deadline_ms, self._retry_ms, *given_up])

    # --- time ---

    def on_time(self, now_ms: int) -> None:
        for node_id in [node_id for node_id, (when, _) in self._asked.items() if when <= now_ms]:
            del self._asked[node_id]
        if self._retry_ms <= now_ms:
            self._retry_ms = NEVER
        if self._role_deadline_ms <= now_ms:
            try:
                self._on_patience_over(now_ms)
            except StorageError:
                # What must be remembered could not be written: nothing has changed, and it is tried again later.
                self._role_deadline_ms = now_ms + self._election_timeout_ms()
                raise
        self._act(now_ms)

    def _on_patience_over(self, now_ms: int) -> None:
        match self.role:
            case Role.LEADER:
                self._check_quorum(now_ms)
            case Role.FOLLOWER if self._waits_for_own_disk:
                # The leader was not even asked.
                self._role_deadline_ms = now_ms + self.settings.fetch_timeout_ms
            case Role.FOLLOWER if self.may_stand:
                self._become_prospective(now_ms)
            case Role.FOLLOWER:
                self._become_unattached(self.epoch, now_ms)
            case Role.PROSPECTIVE:
                self._give_up(now_ms)
            case Role.CANDIDATE:
                self._become_prospective(now_ms)
            case Role.UNATTACHED | Role.RESIGNED if self.may_stand:
                self._become_prospective(now_ms)
            case Role.UNATTACHED | Role.RESIGNED:
                self._become_unattached(self.epoch, now_ms)

    def _check_quorum(self, now_ms: int) -> None:
        assert self.followers is not None
        until_ms = self.followers.heard_ms(self.voters, now_ms) + self.settings.check_quorum_ms
        if until_ms <= now_ms:
            self.resign(now_ms)
        else:
            self._role_deadline_ms = until_ms

    @property
    def _waits_for_own_disk(self) -> bool:
        return not self._asked and self._retry_ms == NEVER and self.log.synced_offset < self.log.end_offset

    def _election_timeout_ms(self) -> int:
        return self.settings.election_timeout_ms + self._random.randrange(self.settings.election_timeout_ms)

    def _turn_ms(self) -> int:
        """Voters that lose their leader at the same time stand one after the other, not against each other."""
        others = [member.node_id for member in self.voters.members if member.node_id != self._remembered.leader]
        place = others.index(self.me.node_id) if self.me.node_id in others else len(others)
        return 2 * self.settings.retry_ms * place + self._random.randrange(self.settings.retry_ms)

    # --- becoming ---

    def _resume(self, now_ms: int) -> None:
        """After a start: what was remembered decides. A leader never goes on in the epoch it led before."""
        if self.epoch < self.log.last_epoch:
            # A log from before the quorum was one, or brought here without its state.
            self._remember(self.log.last_epoch)
        if self._remembered.leader == self.me.node_id:
            self.role = Role.RESIGNED
            self.leader = self.me.node_id
            self._role_deadline_ms = now_ms + self._election_timeout_ms()
        elif self._is_majority:
            # Also one that followed a leader that has removed itself: nobody else can lead any more.
            self._become_candidate(now_ms)
        elif self._remembered.leader != NO_LEADER:
            self._follow(now_ms)
        else:
            self.role = Role.UNATTACHED
            self._role_deadline_ms = now_ms + self._election_timeout_ms()
        if self.role is Role.RESIGNED and self._is_majority:
            self._become_candidate(now_ms)
        self._act(now_ms)

    def _remember(self, epoch: int, leader: int = NO_LEADER, voted: Member | None = None) -> None:
        assert epoch >= self.epoch, "epochs never go back"
        remembered = Remembered(epoch, leader, voted)
        if remembered != self._remembered:
            self._memory.save(remembered)
            self._remembered = remembered

    def _leave_role(self) -> None:
        self._ballot = None
        self._asked.clear()
        self._retry_ms = NEVER
        self.followers = None
        self.fetched_from_leader = False
        self.fetching_snapshot = None
        self._leader_failures = 0

    def _become_unattached(self, epoch: int, now_ms: int, voted: Member | None = None) -> None:
        if epoch > self.epoch:
            self._remember(epoch, voted=voted)
        self._leave_role()
        self.role = Role.UNATTACHED
        # A leader that was lost stays remembered: it is the only one there can be in this epoch.
        self.leader = NO_LEADER
        self._role_deadline_ms = now_ms + self._election_timeout_ms()

    def _become_follower(self, epoch: int, leader: int, now_ms: int) -> None:
        assert leader != self.me.node_id, "nobody follows itself"
        self._remember(epoch, leader, self.voted if epoch == self.epoch else None)
        self._follow(now_ms)

    def _follow(self, now_ms: int) -> None:
        self._leave_role()
        self.role = Role.FOLLOWER
        self.leader = self._remembered.leader
        self.heard_leader(now_ms)

    def _become_prospective(self, now_ms: int) -> None:
        if self._is_majority:
            self._become_candidate(now_ms)
            return
        self._leave_role()
        self.role = Role.PROSPECTIVE
        self._ballot = Ballot(self.voters, self.me.node_id, binding=False)
        self._role_deadline_ms = now_ms + self._election_timeout_ms()

    def _give_up(self, now_ms: int) -> None:
        """It could not win: back to waiting for whoever leads, or will."""
        if self._remembered.leader not in (NO_LEADER, self.me.node_id):
            self._follow(now_ms)
        else:
            self._become_unattached(self.epoch, now_ms)

    def _become_candidate(self, now_ms: int) -> None:
        # Who is a majority of its own leads at once: one thing to remember, not two.
        leader = self.me.node_id if self._is_majority else NO_LEADER
        try:
            if self.epoch >= INT32_MAX:
                raise StorageError("the epochs of this quorum are used up: nobody can be elected any more")
            self._remember(self.epoch + 1, leader, self.me)
        except StorageError as error:
            self._stay_out(error, now_ms)
            return
        self._leave_role()
        self.role = Role.CANDIDATE
        self.leader = NO_LEADER
        self._ballot = Ballot(self.voters, self.me.node_id, binding=True)
        self._role_deadline_ms = now_ms + self._election_timeout_ms()
        self._count(now_ms)

    def _stay_out(self, error: StorageError, now_ms: int) -> None:
        """The disk is full, say: others should lead; this one tries again after a while."""
        self.trouble = str(error)
        self._become_unattached(self.epoch, now_ms)

    def _become_leader(self, granted: list[Member], now_ms: int) -> None:
        try:
            self._remember(self.epoch, self.me.node_id, self.me)
            start = self.log.append_leader_change(self.me, self.voters, granted, self.epoch)
        except StorageError as error:
            self._stay_out(error, now_ms)
            return
        self.trouble = None
        self._leave_role()
        self.role = Role.LEADER
        self.leader = self.me.node_id
        self.followers = Followers(self.me, start, now_ms)
        self._role_deadline_ms = now_ms + self.settings.check_quorum_ms
        for voter in self.voters:
            if voter.member.node_id != self.me.node_id:
                self._ask(voter.member.node_id, BeginEpoch(voter.member, self.me.node_id, self.epoch), now_ms)

    def resign(self, now_ms: int) -> None:
        """Step down and say so: to be stopped, or cut off from the others."""
        if self.role is not Role.LEADER:
            return
        assert self.followers is not None
        successors = self.followers.successors(self.voters)
        self._leave_role()
        self.role = Role.RESIGNED
        self._role_deadline_ms = now_ms + self._election_timeout_ms()
        for successor in successors:
            self._ask(successor.node_id, EndEpoch(self.me.node_id, self.epoch, successors), now_ms)

    # --- acting ---

    def _ask(self, node_id: int, request: Request, now_ms: int) -> None:
        self._asked[node_id] = (now_ms + self.settings.request_timeout_ms, request)
        self.outbox.append(Ask(node_id, request))

    def _act(self, now_ms: int) -> None:
        """Ask what the role has to ask, of everybody who is not being asked already."""
        if self._retry_ms > now_ms and self._retry_ms != NEVER:
            return
        match self.role:
            case Role.PROSPECTIVE | Role.CANDIDATE:
                self._ask_for_votes(now_ms)
            case Role.FOLLOWER:
                self._fetch(self.leader, now_ms)
            case Role.UNATTACHED if not self.is_voter:
                self._look_around(now_ms)

    def _ask_for_votes(self, now_ms: int) -> None:
        assert self._ballot is not None
        for node_id in self._ballot.undecided():
            voter = self._ballot.voters.find(node_id)
            if voter is None or node_id in self._asked:
                continue
            pre_vote = self.role is Role.PROSPECTIVE
            log = self.log
            vote = Vote(voter.member, self.me, self.epoch, log.last_epoch, log.end_offset, pre_vote)
            self._ask(node_id, vote, now_ms)

    def _fetch(self, node_id: int, now_ms: int) -> None:
        if self._asked:
            return
        log = self.log
        if self.fetching_snapshot is not None:
            request: Request = FetchSnapshot(self.me, self.epoch, self.fetching_snapshot, self.snapshot_position)
        elif log.synced_offset < log.end_offset:
            # A fetch position is a promise: on_synced comes first.
            return
        else:
            request = Fetch(self.me, self.epoch, log.end_offset, log.last_epoch, self.high_watermark)
        self._ask(node_id, request, now_ms)

    def _look_around(self, now_ms: int) -> None:
        """An observer finds the leader by asking any voter."""
        others = [member.node_id for member in self.voters.members if member.node_id != self.me.node_id]
        if others and not self._asked:
            self._fetch(others[self._random.randrange(len(others))], now_ms)

    def on_answer(self, node_id: int, request: Request, answer: Answer, now_ms: int) -> None:
        """What a member answered. Whatever it knows of epochs is news; all else only if it was still waited for."""
        awaited = self._answered(node_id, request)
        try:
            fresh = self._notice(answer.epoch, answer.leader, now_ms)
        except StorageError as error:
            self.trouble = str(error)
            self.try_later(now_ms)
            return
        if awaited and fresh and answer.epoch == self.epoch:
            match request, answer:
                case Vote(), VoteAnswer():
                    self._on_vote_answer(node_id, request, answer, now_ms)
                case Fetch(), FetchAnswer() if node_id == self.leader and self.role is Role.FOLLOWER:
                    replication.on_fetch_answer(self, request, answer, now_ms)
                case FetchSnapshot(), SnapshotAnswer() if node_id == self.leader and self.role is Role.FOLLOWER:
                    replication.on_snapshot_answer(self, answer, now_ms)
        if self.role is Role.UNATTACHED:
            # Nobody knows a leader yet: no hurry to hear so again.
            self.try_later(now_ms)
        self._act(now_ms)

    def _answered(self, node_id: int, request: Request) -> bool:
        if self._asked.get(node_id, (0, None))[1] is not request:
            return False
        del self._asked[node_id]
        return True

    def on_unanswered(self, node_id: int, request: Request, now_ms: int) -> None:
        """The request failed on its way: it is tried again after a pause."""
        if self._answered(node_id, request):
            if isinstance(request, Fetch | FetchSnapshot) and node_id == self.leader:
                self.on_leader_failure(now_ms)
            elif isinstance(request, Vote) and self._ballot is not None:
                self._ballot.count_silent(node_id)
                self._count(now_ms)
            self.try_later(now_ms)

    def on_leader_failure(self, now_ms: int) -> None:
        """A process that was killed refuses connections at once: no need to wait until patience is over. Standing
        for a pre-vote harms nobody if the leader is still there for the others."""
        self._leader_failures += 1
        if self.role is Role.FOLLOWER and self._leader_failures == LEADER_FAILURES_MAX:
            self.fetched_from_leader = False
            self._role_deadline_ms = min(self._role_deadline_ms, now_ms + self._turn_ms())

    def try_later(self, now_ms: int) -> None:
        self._retry_ms = min(self._retry_ms, now_ms + self.settings.retry_ms)

    def on_synced(self, now_ms: int) -> None:
        """The log is durable up to its `synced_offset`."""
        if self.role is Role.LEADER:
            self.advance(now_ms)
        self._act(now_ms)

    # --- epochs of others ---

    def _notice(self, epoch: int, leader: int, now_ms: int) -> bool:
        """Somebody knows this epoch and its leader. False when that is old news from a past epoch."""
        if epoch < self.epoch:
            return False
        if leader == self.me.node_id and epoch > self.epoch:
            # This node never led that epoch as far as it remembers: whoever says so is not believed.
            leader = NO_LEADER
        known = self._remembered.leader
        if epoch > self.epoch:
            if leader == NO_LEADER:
                self._become_unattached(epoch, now_ms)
            else:
                self._become_follower(epoch, leader, now_ms)
        elif leader not in (NO_LEADER, self.me.node_id) and (
            # A voter that lost its leader is not told so by others who have not noticed yet; an observer is.
            known == NO_LEADER or (self.role is Role.UNATTACHED and not self.is_voter)
        ):
            self._become_follower(epoch, leader, now_ms)
        return True

    def on_begin_epoch(self, request: BeginEpoch, now_ms: int) -> EpochAnswer:
        if not self._notice(request.epoch, request.leader, now_ms):
            return EpochAnswer(self.epoch, self.leader, ErrorCode.FENCED_LEADER_EPOCH)
        self._act(now_ms)
        return EpochAnswer(self.epoch, self.leader)

    def on_end_epoch(self, request: EndEpoch, now_ms: int) -> EpochAnswer:
        if not self._notice(request.epoch, request.leader, now_ms):
            return EpochAnswer(self.epoch, self.leader, ErrorCode.FENCED_LEADER_EPOCH)
        if self.role is Role.FOLLOWER and self.leader == request.leader and self.is_voter:
            places = [candidate.node_id for candidate in request.candidates]
            place = places.index(self.me.node_id) if self.me.node_id in places else len(places)
            if place == 0:
                # The old leader is gone by its own word: nobody has to be asked first.
                self._become_candidate(now_ms)
            else:
                wait_ms = min(self.settings.retry_ms * 2**place, self.settings.fetch_timeout_ms)
                self._role_deadline_ms = min(self._role_deadline_ms, now_ms + wait_ms)
        self._act(now_ms)
        return EpochAnswer(self.epoch, self.leader)

    # --- votes ---

    def on_vote(self, request: Vote, now_ms: int) -> VoteAnswer:
        if request.epoch < self.epoch:
            return VoteAnswer(self.epoch, self.leader, False, ErrorCode.FENCED_LEADER_EPOCH)
        if request.to not in Voters([Voter(self.me)]):
            return VoteAnswer(self.epoch, self.leader, False, ErrorCode.INVALID_VOTER_KEY)
        granted = self._may_grant(request)
        voted = request.candidate if granted and not request.pre_vote else None
        if request.epoch > self.epoch:
            self._become_unattached(request.epoch, now_ms, voted)
        elif voted is not None:
            self._grant(voted, now_ms)
        self._act(now_ms)
        return VoteAnswer(self.epoch, self.leader, granted)

    def _may_grant(self, request: Vote) -> bool:
        if (request.last_epoch, request.end_offset) < (self.log.last_epoch, self.log.end_offset):
            return False
        if request.epoch > self.epoch:
            return True
        if request.pre_vote:
            # Who hears of a leader keeps it, whatever others say.
            return self.role is not Role.LEADER and not self.fetched_from_leader
        if self._remembered.leader != NO_LEADER:
            return False
        return self.voted in (None, request.candidate)

    def _grant(self, candidate: Member, now_ms: int) -> None:
        self._remember(self.epoch, NO_LEADER, candidate)
        if self.role is not Role.CANDIDATE:
            self._become_unattached(self.epoch, now_ms)

    def _on_vote_answer(self, node_id: int, request: Vote, answer: VoteAnswer, now_ms: int) -> None:
        asked_as = Role.PROSPECTIVE if request.pre_vote else Role.CANDIDATE
        if self.role is asked_as and request.epoch == self.epoch:
            assert self._ballot is not None
            self._ballot.count(node_id, answer.granted)
            self._count(now_ms)
            if request.pre_vote and not answer.granted:
                # It may change its mind when it misses the leader too.
                self.try_later(now_ms)

    def _count(self, now_ms: int) -> None:
        ballot = self._ballot
        assert ballot is not None
        if ballot.won:
            if self.role is Role.PROSPECTIVE:
                self._become_candidate(now_ms)
            else:
                granted = [voter.member for voter in ballot.voters if voter.member.node_id in ballot.granted]
                self._become_leader(granted, now_ms)
                if self.leads:
                    self.advance(now_ms)
        elif ballot.lost and self.role is Role.PROSPECTIVE:
            self._give_up(now_ms)
        elif self.role is Role.CANDIDATE and (ballot.rejected or ballot.hopeless):
            # The votes of this epoch may be spent: another one soon, but not at the same moment as a rival.
            pause_ms = 2 * self.settings.retry_ms + self._random.randrange(self.settings.election_timeout_ms // 2)
            self._role_deadline_ms = min(self._role_deadline_ms, now_ms + pause_ms)

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
        self._leader_failures = 0
        self._role_deadline_ms = now_ms + self.settings.fetch_timeout_ms + self._turn_ms()

    def step_down(self, epoch: int, now_ms: int) -> None:
        """Somebody is in a later epoch: whatever this node was, it is over."""
        self._become_unattached(epoch, now_ms)

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
