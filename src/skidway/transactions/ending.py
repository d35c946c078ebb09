"""How EndTxn is answered, by what it asks for and what there is: the two tables of Kafka's two client generations.

Clients whose epoch grows at every end may ask again with the epoch before: they have not heard the answer, and get it
again. The others ask again with the same epoch.

Where Kafka 4.4 answers otherwise, on purpose:
- A commit asked for again after the transaction was aborted is fenced (KAFKA-20785); INVALID_TXN_STATE is the end of a
  client.
- The epoch before is a retry only if the last end was one that bumps. Else it is that of a fenced producer, which would
  hear that its transaction was committed when its successor's was, and get its successor's epoch.
"""

from typing import TypeAlias

import msgspec

from skidway.errors import (
    ConcurrentTransactions,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    ProducerFenced,
    ProtocolError,
)
from skidway.transactions.operations import EndTransaction
from skidway.transactions.transaction import LAST_EPOCH, Ended, Ending, Ongoing, Transaction


class End(msgspec.Struct, frozen=True):
    """As it asks."""


class AnswerAgain(msgspec.Struct, frozen=True):
    """It has ended so already."""


Verdict: TypeAlias = End | AnswerAgain


def judge(known: Transaction, asked: EndTransaction) -> Verdict:
    """Raises the refusal."""
    return _judge_bumping(known, asked) if asked.bumps else _judge_steady(known, asked)


def _judge_steady(known: Transaction, asked: EndTransaction) -> Verdict:
    if asked.producer_id != known.producer_id:
        raise unknown_producer(known.id, asked.producer_id)
    if asked.epoch != known.epoch:
        raise fenced(known, asked.epoch)
    match known.state:
        case Ongoing():
            return End()
        case Ending():
            raise ConcurrentTransactions(f"the last transaction of {known.id} is still ending: retry")
        case Ended(commit) if commit == asked.commit:
            return AnswerAgain()
        case _:
            raise _nothing_to_end(known, asked)


def _judge_bumping(known: Transaction, asked: EndTransaction) -> Verdict:
    if isinstance(known.state, Ending):
        # Before all else: the producer id may be about to change.
        raise ConcurrentTransactions(f"the last transaction of {known.id} is still ending: retry")
    if asks_again(known, asked.producer_id, asked.epoch):
        return _judge_retry(known, asked)
    if asked.producer_id != known.producer_id:
        raise unknown_producer(known.id, asked.producer_id)
    if asked.epoch != known.epoch:
        raise fenced(known, asked.epoch)
    if isinstance(known.state, Ongoing) or not asked.commit:
        return End()  # an abort of nothing has a new epoch, too
    raise _nothing_to_end(known, asked)


def asks_again(known: Transaction, producer_id: int, epoch: int) -> bool:
    """Whether these are the producer id and epoch before today's."""
    if producer_id == known.producer_id:
        return 0 <= epoch == known.epoch - 1
    rotated = known.epoch == 0 and producer_id == known.previous_producer_id
    return rotated and epoch == LAST_EPOCH


def _judge_retry(known: Transaction, asked: EndTransaction) -> Verdict:
    match known.state:
        case Ended(commit) if known.bumps and commit == asked.commit:
            return AnswerAgain()
        case Ended(commit=True) if known.bumps:
            raise InvalidTransactionState(f"the transaction of {known.id} was committed: it cannot be aborted")
        case _:
            raise fenced(known, asked.epoch)


def fenced(known: Transaction, epoch: int) -> ProtocolError:
    return ProducerFenced(
        f"{known.id} has epoch {known.epoch} now, not {epoch}: it timed out, or another producer uses it"
    )


def unknown_producer(transactional_id: str, producer_id: int) -> ProtocolError:
    return InvalidProducerIdMapping(f"{transactional_id} does not belong to producer id {producer_id}")


def _nothing_to_end(known: Transaction, asked: EndTransaction) -> ProtocolError:
    return InvalidTransactionState(f"{known.id} has no transaction to {'commit' if asked.commit else 'abort'}")
