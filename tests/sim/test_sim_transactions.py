"""Transactions in simulated clusters: all kinds of clients come far, and each law speaks when it should."""

import pytest

from skidway.sim.laws.history import History
from skidway.sim.laws.transactions import TransactionLaws, Written
from skidway.sim.plan import COMPACTED, DELETED
from skidway.sim.run import run_plan
from skidway.sim.transactional_plan import FAULTS, LAST_EPOCH, LOWERED, RAISED, draw_transactional_plan
from skidway.sim.world.events import Violation, World
from skidway.transactions.transaction import Ended, Ending, Transaction

CHUNK = 20
CHUNKS = 25
"""These seeds always do the same here; `skidway sim run --transactions --fresh` draws others."""
TOPIC, PLACE = bytes(16), ("x0", 0)


def broken_by(seeds: range) -> list[str]:
    verdicts = [run_plan(draw_transactional_plan(seed)) for seed in seeds]
    assert sum(verdict.marks.get("transaction committed", 0) for verdict in verdicts) > len(seeds)
    return [f"seed {verdict.seed}: {verdict.checker}: {verdict.text}" for verdict in verdicts if not verdict.ok]


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_no_seed_with_transactions_breaks_a_law(chunk: int) -> None:
    assert broken_by(range(chunk * CHUNK, (chunk + 1) * CHUNK)) == []


def test_the_first_seeds_with_transactions_break_no_law() -> None:
    assert broken_by(range(2)) == []


def test_plans_have_all_kinds_of_faults_and_trouble() -> None:
    plans = [draw_transactional_plan(seed) for seed in range(60)]
    assert {fault.kind for plan in plans for fault in plan.faults} == {*FAULTS, RAISED, LOWERED}
    assert any(plan.first_epoch > LAST_EPOCH - 6 for plan in plans)
    assert any(plan.expiration_ms < 2_000 for plan in plans)
    assert any(plan.sharing for plan in plans)
    assert any(topic.name == DELETED for plan in plans for topic in plan.topics)
    clients = [client for plan in plans for client in plan.transactional]
    assert {bool(client.patience_ms) for client in clients} == {True, False}
    assert {client.pipelined for client in clients} == {True, False}
    assert {bool(client.books_chance) for client in clients} == {True, False}
    assert {"copy", "echo"} <= {client.id for client in clients}
    assert {plan.level for plan in plans} == {0, 1, 2}
    assert any(fault.kind == RAISED for plan in plans for fault in plan.faults)
    assert any(topic.name == COMPACTED for plan in plans for topic in plan.topics)


def test_plans_have_clients_of_both_generations_and_of_all_kinds() -> None:
    clients = [client for seed in range(40) for client in draw_transactional_plan(seed).transactional]
    assert {client.bumps for client in clients} == {True, False}
    assert {client.instances for client in clients} == {1, 2}
    assert {bool(client.input) for client in clients} == {True, False}
    assert {client.produce_version >= 12 for client in clients if client.bumps and not client.asks_level} == {True}


@pytest.fixture
def laws() -> TransactionLaws:
    return TransactionLaws(World(1), History(World(1)))


def write(laws: TransactionLaws, *values: bytes, producer: tuple[int, int] = (7, 0)) -> Written:
    laws.took("id", "p", *producer)
    written = laws.begin("id", "p", producer)
    laws.sending(written, PLACE, list(values))
    laws.acked(written, PLACE, TOPIC, -1, list(values), laws.world.now_us)
    return written


def broken(laws: TransactionLaws, *values: bytes) -> str:
    """By a reader that gets these, and nothing more."""

    def read() -> None:
        laws.read("r", TOPIC, 0, 0, len(values), dict(enumerate(values)))
        laws.check_complete([TOPIC])

    with pytest.raises(Violation) as violation:
        read()
    return violation.value.checker


def test_a_value_is_read_before_its_commit(laws: TransactionLaws) -> None:
    write(laws, b"a")
    assert broken(laws, b"a") == "aborted-read"


def test_a_value_is_read_whose_transaction_is_aborted_later(laws: TransactionLaws) -> None:
    written = write(laws, b"a")
    laws.ending(written, commit=True)
    laws.read("r", TOPIC, 0, 0, 1, {0: b"a"})
    with pytest.raises(Violation) as violation:
        laws.end_refused(written, "PRODUCER_FENCED")
    assert violation.value.checker == "aborted-read"


def test_what_nobody_knows_may_be_read_as_a_whole_or_not_at_all(laws: TransactionLaws) -> None:
    written = write(laws, b"a", b"b")
    laws.ending(written, commit=True)
    laws.end_unheard(written)
    laws.end_refused(written, "PRODUCER_FENCED")
    laws.check_complete([TOPIC])
    assert broken(laws, b"a") == "torn"
    laws.read("r", TOPIC, 0, 1, 2, {1: b"b"})
    laws.check_complete([TOPIC])


def test_a_value_is_read_before_its_commit_is_decided(laws: TransactionLaws) -> None:
    laws.committed_us = lambda transactional_id: laws.world.now_us - 1
    written = write(laws, b"a")
    laws.ending(written, commit=True)
    assert broken(laws, b"a") == "early-read"


def test_two_transactions_have_read_each_other(laws: TransactionLaws) -> None:
    first, second = write(laws, b"a"), write(laws, b"b", producer=(8, 0))
    for written in (first, second):
        laws.ending(written, commit=True)
    laws.used(second, [b"a"])
    laws.check_order()
    laws.used(first, [b"b"])
    with pytest.raises(Violation) as violation:
        laws.check_order()
    assert violation.value.checker == "cycle"


def test_an_acknowledged_commit_is_lost(laws: TransactionLaws) -> None:
    written = write(laws, b"a")
    laws.ending(written, commit=True)
    laws.ended(written, commit=True, sent_us=0)
    assert broken(laws) == "unseen-commit"


def test_a_commit_is_refused_as_if_there_were_nothing(laws: TransactionLaws) -> None:
    written = write(laws, b"a")
    laws.ending(written, commit=True)
    with pytest.raises(Violation) as violation:
        laws.end_refused(written, "INVALID_TXN_STATE")
    assert violation.value.checker == "false-fencing"


@pytest.mark.parametrize(
    ("known", "is_its_own"),
    [
        (Transaction("id", 7, 4, 1_000, Ended(commit=True), 0), True),
        (Transaction("id", 7, 5, 1_000, Ended(commit=True), 0, bumps=True), True),
        (Transaction("id", 7, 5, 1_000, Ending(True, 0, frozenset()), 0, bumps=True), True),
        (Transaction("id", 7, 5, 1_000, Ended(commit=False), 0, bumps=True), False),
        # Another producer has taken the id, and has committed without a new epoch; or with one.
        (Transaction("id", 7, 5, 1_000, Ended(commit=True), 0), False),
        (Transaction("id", 7, 6, 1_000, Ended(commit=True), 0, bumps=True), False),
    ],
)
def test_a_commit_is_refused_and_committed(laws: TransactionLaws, known: Transaction, is_its_own: bool) -> None:
    written = write(laws, b"a", producer=(7, 4))
    laws.decided = lambda transactional_id: known
    laws.ending(written, commit=True)
    laws.end_unheard(written)
    if not is_its_own:
        laws.end_refused(written, "PRODUCER_FENCED")
        return
    with pytest.raises(Violation) as violation:
        laws.end_refused(written, "PRODUCER_FENCED")
    assert violation.value.checker == "false-fencing"


def test_a_commit_in_the_last_epoch_is_refused_and_committed(laws: TransactionLaws) -> None:
    written = write(laws, b"a", producer=(7, LAST_EPOCH))
    ended = Transaction("id", 9, 0, 1_000, Ended(commit=True), 0, previous_producer_id=7, bumps=True)
    laws.decided = lambda transactional_id: ended
    laws.ending(written, commit=True)
    with pytest.raises(Violation) as violation:
        laws.end_refused(written, "PRODUCER_FENCED")
    assert violation.value.checker == "false-fencing"


def test_two_readers_differ(laws: TransactionLaws) -> None:
    written = write(laws, b"a")
    laws.ending(written, commit=True)
    laws.read("r", TOPIC, 0, 0, 2, {0: b"a"})
    with pytest.raises(Violation) as violation:
        laws.read("s", TOPIC, 0, 0, 2, {})
    assert violation.value.checker == "stable-reads"


def test_a_producer_that_is_fenced_is_acknowledged_something(laws: TransactionLaws) -> None:
    written = write(laws, b"a")
    laws.world.now_us = 10
    laws.took("id", "q", 7, 1)
    laws.acked(written, PLACE, TOPIC, -1, [b"b"], 10)  # It had asked before.
    with pytest.raises(Violation) as violation:
        laws.acked(written, PLACE, TOPIC, -1, [b"b"], 11)
    assert violation.value.checker == "fenced-producers"


def test_two_producers_have_one_epoch(laws: TransactionLaws) -> None:
    laws.took("id", "p", 7, 1)
    laws.took("id", "p", 7, 1)
    with pytest.raises(Violation) as violation:
        laws.took("id", "q", 7, 1)
    assert violation.value.checker == "fenced-producers"


def test_an_old_answer_fences_nobody(laws: TransactionLaws) -> None:
    laws.took("id", "p", 7, 5)
    laws.took("id", "q", 7, 4)
    laws.world.now_us = 10
    written = laws.begin("id", "p", (7, 5))
    laws.acked(written, PLACE, TOPIC, -1, [], 10)


def test_a_last_stable_offset_goes_back(laws: TransactionLaws) -> None:
    laws.last_stable("r", TOPIC, 0, 3, 8)
    laws.last_stable("r", TOPIC, 0, 4, 7)
    with pytest.raises(Violation) as violation:
        laws.last_stable("r", TOPIC, 0, 3, 7)
    assert violation.value.checker == "stable-offset"


def test_a_value_may_go_when_a_later_one_of_its_key_is_committed(laws: TransactionLaws) -> None:
    place = (COMPACTED, 0)
    laws.took("id", "p", 7, 0)
    written = laws.begin("id", "p", (7, 0))
    values = [b"p/1=", b"p/8=", b"p/3="]
    laws.sending(written, place, values)
    laws.acked(written, place, TOPIC, 0, values, laws.world.now_us)
    laws.ending(written, commit=True)
    laws.ended(written, commit=True, sent_us=0)
    laws.read("r", TOPIC, 0, 0, 3, dict(enumerate(values)))
    laws.read("s", TOPIC, 0, 0, 3, {1: b"p/8=", 2: b"p/3="})
    laws.check_complete([TOPIC])
    with pytest.raises(Violation) as violation:
        laws.read("s", TOPIC, 0, 0, 3, {1: b"p/8="})
    assert violation.value.checker == "stable-reads"


def test_the_last_value_of_a_key_is_lost(laws: TransactionLaws) -> None:
    place = (COMPACTED, 0)
    laws.took("id", "p", 7, 0)
    written = laws.begin("id", "p", (7, 0))
    laws.sending(written, place, [b"p/1=", b"p/8="])
    laws.acked(written, place, TOPIC, 0, [b"p/1=", b"p/8="], laws.world.now_us)
    laws.ending(written, commit=True)
    laws.ended(written, commit=True, sent_us=0)
    assert broken(laws, b"p/1=") == "torn"


@pytest.mark.parametrize("expected", [[b"1"], [b"1", b"2", b"3"], [b"1", b"1"]])
def test_a_copy_is_not_what_was_there(laws: TransactionLaws, expected: list[bytes]) -> None:
    written = write(laws, b"p/1=1", b"p/2=2")
    laws.ending(written, commit=True)
    laws.read("r", TOPIC, 0, 0, 2, {0: b"p/1=1", 1: b"p/2=2"})
    laws.check_copied(["id"], [b"2", b"1"])
    with pytest.raises(Violation) as violation:
        laws.check_copied(["id"], expected)
    assert violation.value.checker == "copied-once"
