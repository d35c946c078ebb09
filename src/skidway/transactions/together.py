"""Several transactions committed by one decision: all of them, or none.

One decision is one batch of the coordinator's log, so after a crash the whole set is committed or none of it. From
there on each is an ordinary transaction that ends. The ids have to belong to one coordinator; who asks sees to that.

The set may be asked for again until one of its ids goes on: an answer may be lost, and the caller must not have to
guess. It is the same set only if every participant was committed in the epoch that is named; otherwise nothing is
committed and the answer is what is wrong with the first of them.
"""

from collections.abc import Mapping, Sequence

from skidway.errors import (
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionState,
    ProtocolError,
    UnsupportedVersion,
)
from skidway.transactions.ending import AnswerAgain, End, Verdict, asks_again, fenced, unknown_producer
from skidway.transactions.operations import Participant
from skidway.transactions.records import BUMPING_VERSION
from skidway.transactions.transaction import Ended, Ending, Ongoing, Transaction

PARTICIPANTS_MAX = 1_000
"""One decision is one turn: so many take some 40 ms."""


def check_participants(participants: Sequence[Participant]) -> None:
    if not 0 < len(participants) <= PARTICIPANTS_MAX:
        raise InvalidRequest(
            f"{len(participants)} transactions are to be committed together: it must be from 1 to {PARTICIPANTS_MAX}"
        )
    if len({each.transactional_id for each in participants}) < len(participants):
        raise InvalidRequest("a transactional id occurs twice among those that are to be committed together")


def judge_together(
    transactions: Mapping[str, Transaction], participants: Sequence[Participant], version: int
) -> Verdict:
    """Raises the refusal. `version` is the cluster's `transaction.version`: who asks again is known by an epoch that
    grew."""
    check_participants(participants)
    if version < BUMPING_VERSION:
        raise UnsupportedVersion(
            f"transactions are committed together only with transaction.version {BUMPING_VERSION}: "
            f"the cluster uses {version}"
        )
    known = [(_known(transactions, each), each) for each in participants]
    if all(_was_committed(transaction, each) for transaction, each in known):
        return AnswerAgain()
    for transaction, each in known:
        if (refusal := _refusal(transaction, each)) is not None:
            raise refusal
    return End()


def _known(transactions: Mapping[str, Transaction], asked: Participant) -> Transaction:
    known = transactions.get(asked.transactional_id)
    if known is None:
        raise InvalidProducerIdMapping(f"{asked.transactional_id} is not known here: initialise it again")
    return known


def _was_committed(known: Transaction, asked: Participant) -> bool:
    match known.state:
        case Ending(commit=True) | Ended(commit=True):
            return known.bumps and asks_again(known, asked.producer_id, asked.epoch)
        case _:
            return False


def _refusal(known: Transaction, asked: Participant) -> ProtocolError | None:
    if known.producer_id != asked.producer_id:
        return unknown_producer(known.id, asked.producer_id)
    if known.epoch != asked.epoch:
        return fenced(known, asked.epoch)
    if not isinstance(known.state, Ongoing):
        return InvalidTransactionState(f"{known.id} has no transaction to commit")
    return None
