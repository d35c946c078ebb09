"""A member's part in elections: standing, asking for votes and counting them; giving its own.

Who could stand asks first whether it would win (the pre-vote, which binds nobody), then again in a new epoch. Votes
are remembered before they are given or asked for: one in an epoch.
"""

from skidway.errors import ErrorCode, StorageError
from skidway.limits import INT32_MAX
from skidway.quorum.ballot import Ballot
from skidway.quorum.member import QuorumMember
from skidway.quorum.messages import NO_LEADER, Vote, VoteAnswer
from skidway.quorum.role import Role
from skidway.quorum.voters import Member, Voter, Voters

# --- standing ---


def stand(quorum: QuorumMember, now_ms: int) -> None:
    if quorum.is_majority:
        begin_epoch(quorum, now_ms)
        return
    quorum.leave_role()
    quorum.role = Role.PROSPECTIVE
    quorum.ballot = Ballot(quorum.voters, quorum.me.node_id, binding=False)
    quorum.patience.await_election(now_ms)


def begin_epoch(quorum: QuorumMember, now_ms: int) -> None:
    """Stand in a new epoch, so that votes bind."""
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
    quorum.ballot = Ballot(quorum.voters, quorum.me.node_id, binding=True)
    quorum.patience.await_election(now_ms)
    _count(quorum, now_ms)


def give_up(quorum: QuorumMember, now_ms: int) -> None:
    """It could not win: back to waiting for whoever leads, or will."""
    if quorum.remembered.leader not in (NO_LEADER, quorum.me.node_id):
        quorum.follow(now_ms)
    else:
        quorum.become_unattached(quorum.epoch, now_ms)


# --- asking and counting ---


def ask(quorum: QuorumMember, now_ms: int) -> None:
    """Everybody who is not being asked already, and may still say yes."""
    ballot = quorum.ballot
    assert ballot is not None
    for node_id in ballot.undecided():
        voter = ballot.voters.find(node_id)
        if voter is None or node_id in quorum.requests.under_way:
            continue
        pre_vote = quorum.role is Role.PROSPECTIVE
        log = quorum.log
        vote = Vote(voter.member, quorum.me, quorum.epoch, log.last_epoch, log.end_offset, pre_vote)
        quorum.ask(node_id, vote, now_ms)


def on_answer(quorum: QuorumMember, node_id: int, request: Vote, answer: VoteAnswer, now_ms: int) -> None:
    asked_as = Role.PROSPECTIVE if request.pre_vote else Role.CANDIDATE
    if quorum.role is asked_as and request.epoch == quorum.epoch:
        assert quorum.ballot is not None
        quorum.ballot.count(node_id, answer.granted)
        _count(quorum, now_ms)
        if request.pre_vote and not answer.granted:
            # It may change its mind when it misses the leader too.
            quorum.try_later(now_ms)


def on_unanswered(quorum: QuorumMember, node_id: int, now_ms: int) -> None:
    if quorum.ballot is not None:
        quorum.ballot.count_silent(node_id)
        _count(quorum, now_ms)


def _count(quorum: QuorumMember, now_ms: int) -> None:
    ballot = quorum.ballot
    assert ballot is not None
    if ballot.won:
        if quorum.role is Role.PROSPECTIVE:
            begin_epoch(quorum, now_ms)
        else:
            granted = [voter.member for voter in ballot.voters if voter.member.node_id in ballot.granted]
            quorum.become_leader(granted, now_ms)
            if quorum.leads:
                quorum.advance(now_ms)
    elif ballot.lost and quorum.role is Role.PROSPECTIVE:
        give_up(quorum, now_ms)
    elif quorum.role is Role.CANDIDATE and (ballot.rejected or ballot.hopeless):
        quorum.patience.await_rival(now_ms)


# --- voting ---


def on_vote(quorum: QuorumMember, request: Vote, now_ms: int) -> VoteAnswer:
    if request.epoch < quorum.epoch:
        return VoteAnswer(quorum.epoch, quorum.leader, False, ErrorCode.FENCED_LEADER_EPOCH)
    if request.to not in Voters([Voter(quorum.me)]):
        return VoteAnswer(quorum.epoch, quorum.leader, False, ErrorCode.INVALID_VOTER_KEY)
    granted = may_grant(quorum, request)
    voted = request.candidate if granted and not request.pre_vote else None
    if request.epoch > quorum.epoch:
        quorum.become_unattached(request.epoch, now_ms, voted)
    elif voted is not None:
        _grant(quorum, voted, now_ms)
    return VoteAnswer(quorum.epoch, quorum.leader, granted)


def may_grant(quorum: QuorumMember, request: Vote) -> bool:
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


def _grant(quorum: QuorumMember, candidate: Member, now_ms: int) -> None:
    quorum.remember(quorum.epoch, NO_LEADER, candidate)
    if quorum.role is not Role.CANDIDATE:
        quorum.become_unattached(quorum.epoch, now_ms)
