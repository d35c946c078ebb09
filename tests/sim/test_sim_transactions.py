"""Transactions in simulated clusters: all kinds of clients come far, and each law speaks when it should."""

import pytest

from skidway.sim.laws.history import History
from skidway.sim.laws.transactions import TransactionLaws, Written
from skidway.sim.run import run_plan
from skidway.sim.transactional_plan import draw_transactional_plan
from skidway.sim.world.events import Violation, World

SEEDS = 8
TOPIC, PLACE = bytes(16), ("x0", 0)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_seed_with_transactions_breaks_a_law(seed: int) -> None:
    verdict = run_plan(draw_transactional_plan(seed))
    assert verdict.ok, f"seed {seed}: {verdict.checker}: {verdict.text}"
    assert verdict.marks["transaction committed"] > 3


def test_plans_have_clients_of_both_generations_and_of_all_kinds() -> None:
    clients = [client for seed in range(40) for client in draw_transactional_plan(seed).transactional]
    assert {client.bumps for client in clients} == {True, False}
    assert {client.instances for client in clients} == {1, 2}
    assert {bool(client.input) for client in clients} == {True, False}
    assert {client.produce_version >= 12 for client in clients if client.bumps} == {True}


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


@pytest.mark.parametrize("expected", [[b"1"], [b"1", b"2", b"3"], [b"1", b"1"]])
def test_a_copy_is_not_what_was_there(laws: TransactionLaws, expected: list[bytes]) -> None:
    written = write(laws, b"p/1=1", b"p/2=2")
    laws.ending(written, commit=True)
    laws.read("r", TOPIC, 0, 0, 2, {0: b"p/1=1", 1: b"p/2=2"})
    laws.check_copied("id", [b"2", b"1"])
    with pytest.raises(Violation) as violation:
        laws.check_copied("id", expected)
    assert violation.value.checker == "copied-once"
