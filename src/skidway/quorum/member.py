"""What one member of the quorum is, and what it becomes: its role, its epoch, its leader, who votes.

It decides nothing: `machine.Quorum` hears events, `elections` and `replication` say what follows from them, and all of
them change this. What it promises is durable before it is anything else (see `storage`).
"""

from __future__ import annotations

from skidway.errors import StorageError
from skidway.ports import Random
from skidway.quorum.ballot import Ballot
from skidway.quorum.followers import Followers
from skidway.quorum.messages import NO_LEADER, Ask, BeginEpoch, EndEpoch, EpochEnd, Request
from skidway.quorum.patience import Patience
from skidway.quorum.requests import Requests
from skidway.quorum.role import Role
from skidway.quorum.settings import QuorumSettings
from skidway.quorum.storage import Memory, QuorumLog, Remembered
from skidway.quorum.voters import Member, VoterHistory, Voters


class QuorumMember:
    def __init__(
        self,
        me: Member,
        history: VoterHistory,
        log: QuorumLog,
        memory: Memory,
        random: Random,
        settings: QuorumSettings,
    ) -> None:
        """`history` holds the voters this node was started with, and the sets that are in the log already."""
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
        """While it leads."""
        self.ballot: Ballot | None = None
        """While it stands."""
        self._memory = memory
        self.patience = Patience(settings, random)
        self.requests = Requests(settings)
        self.fetched_from_leader = False
        self.trouble: str | None = None
        """Why the disk did not let this member stand or lead, the last time it tried."""
        self.snapshot_position = 0
        self.fetching_snapshot: EpochEnd | None = None
        self.remembered = memory.load()

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

    # --- what it becomes ---

    def remember(self, epoch: int, leader: int = NO_LEADER, voted: Member | None = None) -> None:
        assert epoch >= self.epoch, "epochs never go back"
        remembered = Remembered(epoch, leader, voted)
        if remembered != self.remembered:
            self._memory.save(remembered)
            self.remembered = remembered

    def leave_role(self) -> None:
        self.ballot = None
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

    def become_follower(self, epoch: int, leader: int, now_ms: int) -> None:
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

    # --- what it asks, and of whom it hears ---

    def ask(self, node_id: int, request: Request, now_ms: int) -> None:
        self.requests.begin(node_id, request, now_ms)
        self.outbox.append(Ask(node_id, request))

    def on_leader_failure(self, now_ms: int) -> None:
        """A process that was killed refuses connections at once: no need to wait until patience is over. Standing
        for a pre-vote harms nobody if the leader is still there for the others."""
        if self.patience.on_leader_failure() and self.role is Role.FOLLOWER:
            self.fetched_from_leader = False
            self.patience.await_turn(self._place, now_ms)

    def try_later(self, now_ms: int) -> None:
        self.requests.pause(now_ms)

    def heard_leader(self, now_ms: int) -> None:
        self.patience.await_leader(self._place, now_ms)

    # --- what a majority holds ---

    def advance(self, now_ms: int) -> None:
        """The leader counts anew what a majority holds."""
        assert self.followers is not None
        held = self.followers.high_watermark(self.voters, self.log.synced_offset)
        if held > self.high_watermark:
            self.high_watermark = held
        if self.me not in self.voters and self.high_watermark > self.history.latest_offset:
            # It led until the set without it was committed; now it has no part in it.
            self.resign(now_ms)

    @property
    def _place(self) -> int:
        """Of this voter among those who may stand when the leader is lost."""
        others = [member.node_id for member in self.voters.members if member.node_id != self.remembered.leader]
        return others.index(self.me.node_id) if self.me.node_id in others else len(others)

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
