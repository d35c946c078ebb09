"""How EndTxn is answered: Kafka's tables of states, row by row, for both generations of clients.

same       with the epoch of today
before     with the epoch before: a retry, if the last end was one that bumps
CT PF ITS PIM    CONCURRENT_TRANSACTIONS, PRODUCER_FENCED, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING
again      no error and nothing written; bump or end: a record with the next epoch, or with the same
"""

from itertools import count

import pytest

from skidway.errors import ProtocolError
from skidway.runtime.replicated import Decision, Now
from skidway.transactions.coordinator import TransactionCoordinator
from skidway.transactions.operations import EndTransaction, Producer
from skidway.transactions.records import TransactionRecord
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.transaction import Empty, Ended, Ending, Ongoing, State, Transaction

PLACES = frozenset({("x", 0)})
STATES: dict[str, State] = {
    "Empty": Empty(),
    "Ongoing": Ongoing(5, PLACES),
    "PrepareCommit": Ending(True, 5, PLACES),
    "PrepareAbort": Ending(False, 5, PLACES),
    "CompleteCommit": Ended(True, 5),
    "CompleteAbort": Ended(False, 5),
}
SHORT = {
    "CONCURRENT_TRANSACTIONS": "CT",
    "PRODUCER_FENCED": "PF",
    "INVALID_TXN_STATE": "ITS",
    "INVALID_PRODUCER_ID_MAPPING": "PIM",
}
COLUMNS = [(True, "same"), (True, "before"), (True, "other"), (False, "same"), (False, "before"), (False, "other")]

BUMPING = """
                commit: same  before  other   abort: same  before  other
Empty                   ITS   PF      PF             bump  PF      PF
Ongoing                 bump  PF      PF             bump  PF      PF
PrepareCommit           CT    CT      CT             CT    CT      CT
PrepareAbort            CT    CT      CT             CT    CT      CT
CompleteCommit          ITS   again   PF             bump  ITS     PF
CompleteAbort           ITS   PF      PF             bump  again   PF
"""
BUMPING_AFTER_AN_END_WITHOUT_BUMP = """
                commit: same  before  other   abort: same  before  other
CompleteCommit          ITS   PF      PF             bump  PF      PF
CompleteAbort           ITS   PF      PF             bump  PF      PF
"""
STEADY = """
                commit: same  before  other   abort: same  before  other
Empty                   ITS   PF      PF             ITS   PF      PF
Ongoing                 end   PF      PF             end   PF      PF
PrepareCommit           CT    PF      PF             CT    PF      PF
PrepareAbort            CT    PF      PF             CT    PF      PF
CompleteCommit          again PF      PF             ITS   PF      PF
CompleteAbort           ITS   PF      PF             again PF      PF
"""


def cells(table: str, *, bumps: bool, ended_bumping: bool) -> list[object]:
    found: list[object] = []
    for line in table.strip().splitlines()[1:]:
        state, *answers = line.split()
        for (commit, epoch), answer in zip(COLUMNS, answers, strict=True):
            name = f"{'bumping' if bumps else 'steady'}-{state}-{'commit' if commit else 'abort'}-{epoch}"
            name += "" if ended_bumping == bumps else "-after-another-end"
            found.append(pytest.param(state, commit, epoch, bumps, ended_bumping, answer, id=name))
    return found


def coordinator(transaction: Transaction) -> TransactionCoordinator:
    drawn = count(900)
    machine = TransactionCoordinator(TransactionSettings(), lambda: next(drawn), count())
    machine.apply(TransactionRecord(transaction.id, transaction))
    return machine


def answer_of(known: Transaction, asked: EndTransaction) -> str:
    machine = coordinator(known)
    try:
        decision: Decision[TransactionRecord, Producer] = machine.decide(asked, Now(10, 10))
    except ProtocolError as refusal:
        return SHORT[refusal.code.name]
    if not decision.records:
        assert decision.reply == Producer(known.producer_id, known.epoch)
        return "again"
    first = decision.records[0].transaction
    assert first is not None
    assert isinstance(first.state, Ending)
    assert first.state.commit == asked.commit
    assert first.state.started_ms == (5 if isinstance(known.state, Ongoing) else 10)
    assert first.bumps == asked.bumps
    assert decision.reply == Producer(first.producer_id, first.epoch)
    if first.places:
        assert [(effect.epoch, effect.commit, effect.bumps) for effect in decision.effects] == [
            (first.epoch, asked.commit, asked.bumps)
        ]
    else:
        assert not decision.effects
    assert len(decision.records) == (1 if first.places else 2), "an abort of nothing is complete at once"
    return {0: "end", 1: "bump"}[first.epoch - known.epoch]


@pytest.mark.parametrize(
    ("state", "commit", "epoch", "bumps", "ended_bumping", "expected"),
    [
        *cells(BUMPING, bumps=True, ended_bumping=True),
        *cells(BUMPING_AFTER_AN_END_WITHOUT_BUMP, bumps=True, ended_bumping=False),
        *cells(STEADY, bumps=False, ended_bumping=False),
        *cells(STEADY, bumps=False, ended_bumping=True),
    ],
)
def test_an_end_is_answered_as_the_table_says(
    state: str, commit: bool, epoch: str, bumps: bool, ended_bumping: bool, expected: str
) -> None:
    known = Transaction("t", 7, 3, 1_000, STATES[state], 5, 7, bumps=ended_bumping)
    others = {"same": [3], "before": [2], "other": [-1, 0, 1, 4, 32_766]}[epoch]
    for asked_epoch in others:
        assert answer_of(known, EndTransaction("t", 7, asked_epoch, commit, bumps)) == expected, asked_epoch


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("commit", [True, False])
def test_a_wrong_producer_id_is_told_so_unless_the_right_one_may_be_changing(state: str, commit: bool) -> None:
    known = Transaction("t", 7, 3, 1_000, STATES[state], 5, 7, bumps=True)
    assert answer_of(known, EndTransaction("t", 8, 3, commit, bumps=False)) == "PIM"
    expected = "CT" if state.startswith("Prepare") else "PIM"
    assert answer_of(known, EndTransaction("t", 8, 3, commit, bumps=True)) == expected


@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        ("CompleteCommit", True, "again"),
        ("CompleteCommit", False, "ITS"),
        ("CompleteAbort", True, "PF"),
        ("CompleteAbort", False, "again"),
        ("Empty", True, "PF"),
        ("Empty", False, "PF"),
    ],
)
def test_after_a_change_of_the_producer_id_a_retry_has_the_one_before(state: str, commit: bool, expected: str) -> None:
    known = Transaction("t", 8, 0, 1_000, STATES[state], 5, 7, bumps=True)
    assert answer_of(known, EndTransaction("t", 7, 32_766, commit, bumps=True)) == expected
    assert answer_of(known, EndTransaction("t", 7, 32_765, commit, bumps=True)) == "PIM"
    assert answer_of(known, EndTransaction("t", 6, 32_766, commit, bumps=True)) == "PIM"
    assert answer_of(known, EndTransaction("t", 7, 32_766, commit, bumps=False)) == "PIM"


def test_the_last_epoch_ends_with_another_producer_id_in_the_answer_and_one_more_epoch_in_the_markers() -> None:
    known = Transaction("t", 7, 32_766, 1_000, STATES["Ongoing"], 5, 7, bumps=True)
    decision = coordinator(known).decide(EndTransaction("t", 7, 32_766, True, bumps=True), Now(10, 10))
    assert decision.reply == Producer(900, 0)
    assert [(effect.producer_id, effect.epoch) for effect in decision.effects] == [(7, 32_767)]


def test_an_epoch_beyond_the_last_in_an_old_log_does_not_grow() -> None:
    known = Transaction("t", 7, 32_767, 1_000, STATES["CompleteAbort"], 5, 7)
    decision = coordinator(known).decide(EndTransaction("t", 7, 32_767, False, bumps=True), Now(10, 10))
    assert [record.transaction.epoch for record in decision.records if record.transaction] == [32_767, 0]
    assert decision.reply == Producer(900, 0)
