"""What has to be true of a transaction coordinator whatever it is asked: laws about its log, and about who hears what.

They know nothing of the model, and nothing of the machine but the records it wrote and the answers it gave.
"""

from collections.abc import Iterable

from skidway.transactions.operations import (
    AddPartitions,
    CommitTogether,
    EndTransaction,
    InitProducer,
    VerifyPartitions,
    WriteMarkers,
)
from skidway.transactions.records import TransactionRecord, status_of
from skidway.transactions.transaction import Ending, Transaction

LAST_EPOCH = 32_766

Pair = tuple[int, int]

FROM = {
    "EMPTY": {"", "EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"},
    "ONGOING": {"EMPTY", "ONGOING", "COMPLETE_COMMIT", "COMPLETE_ABORT"},
    "PREPARE_COMMIT": {"ONGOING"},
    "PREPARE_ABORT": {"ONGOING", "EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"},
    "COMPLETE_COMMIT": {"PREPARE_COMMIT"},
    "COMPLETE_ABORT": {"PREPARE_ABORT"},
    "": {"EMPTY", "COMPLETE_COMMIT", "COMPLETE_ABORT"},
}
"""From which states a state is reached; no state: an id that is not known."""


def check_log(records: Iterable[TransactionRecord]) -> None:
    """Only legal transitions; a producer id belongs to one transactional id, and its epoch never goes down."""
    last: dict[str, Transaction] = {}
    epochs: dict[int, int] = {}
    owners: dict[int, str] = {}
    for record in records:
        before, now = last.pop(record.id, None), record.transaction
        was = status_of(before.state).name if before else ""
        becomes = status_of(now.state).name if now else ""
        assert was in FROM[becomes], f"{record.id} went from {was or 'nothing'} to {becomes or 'nothing'}"
        if now is None:
            continue
        last[record.id] = now
        assert owners.setdefault(now.producer_id, record.id) == record.id, f"{now.producer_id} belongs to two ids"
        epoch = epochs.get(now.producer_id, -1)
        assert now.epoch >= epoch, f"the epoch of {now.producer_id} went from {epoch} to {now.epoch}"
        epochs[now.producer_id] = now.epoch
        assert now.epoch <= LAST_EPOCH or isinstance(now.state, Ending), f"a client can get epoch {now.epoch}"
        if before is not None:
            _check_step(before, now, becomes)


def _check_step(before: Transaction, now: Transaction, becomes: str) -> None:
    grown = now.epoch - before.epoch
    same = now.producer_id == before.producer_id
    match becomes:
        case "EMPTY":
            assert (same and grown in (0, 1)) or now.epoch == 0
        case "ONGOING":
            assert same
            assert grown == 0
            assert before.places <= now.places
        case "PREPARE_COMMIT" | "PREPARE_ABORT":
            assert same
            assert grown == (1 if now.bumps else 0)
            assert before.places == now.places
            assert now.bumps or status_of(before.state).name == "ONGOING", "an abort of nothing without a bump"
        case _:
            assert (now.producer_id, now.epoch) == before.successor


def check_effect(committed: Iterable[TransactionRecord], effect: WriteMarkers) -> None:
    """Markers leave only for an end that is decided for good."""
    for record in committed:
        known = record.transaction
        if record.id != effect.transactional_id or known is None or not isinstance(known.state, Ending):
            continue
        decided = (known.producer_id, known.epoch, known.state.commit, known.bumps)
        if decided == (effect.producer_id, effect.epoch, effect.commit, effect.bumps) and effect.places <= known.places:
            return
    raise AssertionError(f"markers before their end is decided: {effect}")


def is_fenced(records: Iterable[TransactionRecord], pair: Pair) -> bool:
    """Whether the log knows a later epoch of the producer id."""
    producer_id, epoch = pair
    known = (record.transaction for record in records)
    return any(each is not None and each.producer_id == producer_id and each.epoch > epoch for each in known)


def check_accepted(
    asked: AddPartitions | VerifyPartitions | EndTransaction,
    decided_on: list[TransactionRecord],
    committed: list[TransactionRecord],
) -> None:
    """Of a call that was not refused, by the log when it was decided and what is committed when it is answered: it was
    not fenced, and what it asked for has happened."""
    pair = (asked.producer_id, asked.epoch)
    own = [
        record.transaction
        for record in committed
        if record.id == asked.transactional_id and record.transaction is not None
    ]
    if not isinstance(asked, EndTransaction):
        assert not is_fenced(decided_on, pair), f"{pair} was fenced, and goes on"
        begun = [each for each in own if (each.producer_id, each.epoch) == pair and set(asked.places) <= each.places]
        assert isinstance(asked, VerifyPartitions) or begun or not asked.places, "partitions added in memory only"
        return
    assert asked.bumps or not is_fenced(decided_on, pair), f"{pair} was fenced, and ends a transaction"
    status = "PREPARE_COMMIT" if asked.commit else "PREPARE_ABORT"
    ended = (asked.producer_id, asked.epoch + 1 if asked.bumps else asked.epoch)
    ends = [each for each in own if (each.producer_id, each.epoch, status_of(each.state).name) == (*ended, status)]
    assert ends, f"{ended} heard of a {status} that is not in the log"


def check_committed_together(asked: CommitTogether, committed: list[TransactionRecord]) -> None:
    """Of a set that was not refused: the log says of each that it is committed, just as it was named."""
    ends = {
        (record.id, record.transaction.producer_id, record.transaction.epoch)
        for record in committed
        if record.transaction is not None and status_of(record.transaction.state).name == "PREPARE_COMMIT"
    }
    missing = [
        each for each in asked.participants if (each.transactional_id, each.producer_id, each.epoch + 1) not in ends
    ]
    assert not missing, f"committed together, but not in the log: {missing}"


class Grants:
    """Who was told to be which producer in which epoch."""

    def __init__(self) -> None:
        self._holders: dict[Pair, object] = {}

    def grant(self, holder: object, asked: object, pair: Pair) -> None:
        if isinstance(asked, InitProducer) and asked.epoch == -1:
            assert pair not in self._holders, f"a newcomer got {pair}, which somebody has had"
        held_by = self._holders.setdefault(pair, holder)
        assert held_by is holder, f"{pair} was handed to two producers"
        assert pair[1] <= LAST_EPOCH, f"a client got epoch {pair[1]}"
