"""A member's part in elections: standing, asking for votes and counting them; giving its own.

Who could stand asks first whether it would win (the pre-vote, which binds nobody), then again in a new epoch. Votes
are remembered before they are given or asked for: one in an epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, StorageError
from skidway.limits import INT32_MAX
from skidway.quorum.ballot import Ballot
from skidway.quorum.messages import NO_LEADER, Vote, VoteAnswer
from skidway.quorum.role import Role
from skidway.quorum.voters import Member, Voter, Voters

if TYPE_CHECKING:
    from skidway.quorum.machine import Quorum


class Elections:
    def __init__(self, quorum: Quorum) -> None:
        self.quorum = quorum
        self._ballot: Ballot | None = None
        """While this member stands."""

    # --- standing ---

    def stand(self, now_ms: int) -> None:
        quorum = self.quorum
        if quorum.is_majority:
            self.begin_epoch(now_ms)
            return
        quorum.leave_role()
        quorum.role = Role.PROSPECTIVE
        self._ballot = Ballot(quorum.voters, quorum.me.node_id, binding=False)
        quorum.patience.await_election(now_ms)

    def begin_epoch(self, now_ms: int) -> None:
        """Stand in a new epoch, so that votes bind."""
        quorum = self.quorum
        # Who is a majority of its own leads at once: one thing to remember, not two.
        leader = quorum.me.node_id if quorum.is_majority else NO_LEADER
        try:
            if quorum.epoch >= INT32_MAX:
                raise StorageError("the epochs of this quorum are used up: it cannot elect a leader any more")
            quorum.remember(quorum.epoch + 1, leader, quorum.me)
        except StorageError as error:
            quorum.stay_out(error, now_ms)
            return
        quorum.leave_role()
        quorum.role = Role.CANDIDATE
        quorum.leader = NO_LEADER
        self._ballot = Ballot(quorum.voters, quorum.me.node_id, binding=True)
        quorum.patience.await_election(now_ms)
        self._count(now_ms)

    def give_up(self, now_ms: int) -> None:
        """It could not win: back to waiting for whoever leads, or will."""
        quorum = self.quorum
        if quorum.remembered.leader not in (NO_LEADER, quorum.me.node_id):
            quorum.follow(now_ms)
        else:
            quorum.become_unattached(quorum.epoch, now_ms)

    def end(self) -> None:
        """This member is something else now."""
        self._ballot = None

    # --- asking and counting ---

    def ask(self, now_ms: int) -> None:
        """Everybody who is not being asked already, and may still say yes."""
        quorum, ballot = self.quorum, self._ballot
        assert ballot is not None
        for node_id in ballot.undecided():
            voter = ballot.voters.find(node_id)
            if voter is None or node_id in quorum.requests.under_way:
                continue
            pre_vote = quorum.role is Role.PROSPECTIVE
            log = quorum.log
            vote = Vote(voter.member, quorum.me, quorum.epoch, log.last_epoch, log.end_offset, pre_vote)
            quorum.ask(node_id, vote, now_ms)

    def on_answer(self, node_id: int, request: Vote, answer: VoteAnswer, now_ms: int) -> None:
        quorum = self.quorum
        asked_as = Role.PROSPECTIVE if request.pre_vote else Role.CANDIDATE
        if quorum.role is asked_as and request.epoch == quorum.epoch:
            assert self._ballot is not None
            self._ballot.count(node_id, answer.granted)
            self._count(now_ms)
            if request.pre_vote and not answer.granted:
                # It may change its mind when it misses the leader too.
                quorum.try_later(now_ms)

    def on_unanswered(self, node_id: int, now_ms: int) -> None:
        if self._ballot is not None:
            self._ballot.count_silent(node_id)
            self._count(now_ms)

    def _count(self, now_ms: int) -> None:
        quorum, ballot = self.quorum, self._ballot
        assert ballot is not None
        if ballot.won:
            if quorum.role is Role.PROSPECTIVE:
                self.begin_epoch(now_ms)
            else:
                granted = [voter.member for voter in ballot.voters if voter.member.node_id in ballot.granted]
                quorum.become_leader(granted, now_ms)
                if quorum.leads:
                    quorum.advance(now_ms)
        elif ballot.lost and quorum.role is Role.PROSPECTIVE:
            self.give_up(now_ms)
        elif quorum.role is Role.CANDIDATE and (ballot.rejected or ballot.hopeless):
            quorum.patience.await_rival(now_ms)

    # --- voting ---

    def on_vote(self, request: Vote, now_ms: int) -> VoteAnswer:
        quorum = self.quorum
        if request.epoch < quorum.epoch:
            return VoteAnswer(quorum.epoch, quorum.leader, False, ErrorCode.FENCED_LEADER_EPOCH)
        if request.to not in Voters([Voter(quorum.me)]):
            return VoteAnswer(quorum.epoch, quorum.leader, False, ErrorCode.INVALID_VOTER_KEY)
        granted = self.may_grant(request)
        voted = request.candidate if granted and not request.pre_vote else None
        if request.epoch > quorum.epoch:
            quorum.become_unattached(request.epoch, now_ms, voted)
        elif voted is not None:
            self._grant(voted, now_ms)
        quorum.act(now_ms)
        return VoteAnswer(quorum.epoch, quorum.leader, granted)

    def may_grant(self, request: Vote) -> bool:
        quorum = self.quorum
        if (request.last_epoch, request.end_offset) < (quorum.log.last_epoch, quorum.log.end_offset):
            return False
        if request.epoch > quorum.epoch:
            return True
        if request.pre_vote:
            # Who hears of a leader keeps it, whatever others say.
            return quorum.role is not Role.LEADER and not quorum.fetched_from_leader
        if quorum.remembered.leader != NO_LEADER:
            return False
        return quorum.voted in (None, request.candidate)

    def _grant(self, candidate: Member, now_ms: int) -> None:
        quorum = self.quorum
        quorum.remember(quorum.epoch, NO_LEADER, candidate)
        if quorum.role is not Role.CANDIDATE:
            quorum.become_unattached(quorum.epoch, now_ms)
