"""Records of `__transaction_state`, byte for byte as Kafka's schema says, and what else may be found there."""

import random

import pytest

from skidway.errors import StorageError
from skidway.records.record import Record, build_batch
from skidway.transactions.records import FORMAT, TransactionRecord, decode, encode
from skidway.transactions.transaction import Empty, Ended, Ending, Ongoing, State, Transaction

KEY = "0000000174"
HEAD = "000000000000000700030000ea60"
"""Producer id, epoch, time-out."""
TIMES = "00000000000000640000000000000032"
"""Last update, start."""
NEVER_STARTED = "0000000000000064ffffffffffffffff"
PLACES = frozenset({("x", 1), ("x", 0), ("yy", 2)})
PARTITIONS = "03027803000000000000000100037979020000000200"
PREVIOUS = "00080000000000000007"
NEXT = "01080000000000000009"
BUMPING = "02020002"


def transaction(state: State, **fields: int | bool) -> Transaction:
    given: dict[str, int] = {"previous_producer_id": 7, **fields}
    return Transaction("t", 7, 3, 60_000, state, 100, **given)  # type: ignore[arg-type]


WRITTEN = [
    ("Empty", transaction(Empty()), f"0001 {HEAD} 00 00 {NEVER_STARTED} 01 {PREVIOUS}"),
    ("first-read-of-old", transaction(Empty(), previous_producer_id=-1), f"0001 {HEAD} 00 00 {NEVER_STARTED} 00"),
    ("Ongoing", transaction(Ongoing(50, PLACES)), f"0001 {HEAD} 01 {PARTITIONS} {TIMES} 01 {PREVIOUS}"),
    (
        "PrepareCommit",
        transaction(Ending(True, 50, PLACES), bumps=True),
        f"0001 {HEAD} 02 {PARTITIONS} {TIMES} 02 {PREVIOUS} {BUMPING}",
    ),
    (
        "PrepareAbort-next",
        transaction(Ending(False, 50, PLACES), bumps=True, next_producer_id=9),
        f"0001 {HEAD} 03 {PARTITIONS} {TIMES} 03 {PREVIOUS} {NEXT} {BUMPING}",
    ),
    ("CompleteCommit", transaction(Ended(True, 50)), f"0001 {HEAD} 04 01 {TIMES} 01 {PREVIOUS}"),
    ("CompleteAbort", transaction(Ended(False, 50)), f"0001 {HEAD} 05 01 {TIMES} 01 {PREVIOUS}"),
]


def value(text: str) -> bytes:
    return bytes.fromhex(text.replace(" ", ""))


def read(text: str) -> Transaction | None:
    record = decode(value(KEY), value(text))
    assert record is not None
    return record.transaction


@pytest.mark.parametrize(("known", "text"), [pytest.param(*rest, id=name) for name, *rest in WRITTEN])
def test_a_transaction_is_written_and_read_as_kafka_does(known: Transaction, text: str) -> None:
    assert encode(TransactionRecord("t", known)) == (value(KEY), value(text))
    assert read(text) == known


def test_a_tombstone_has_a_key_and_no_value() -> None:
    tombstone = TransactionRecord("t", None)
    assert encode(tombstone) == (value(KEY), None)
    assert decode(value(KEY), None) == tombstone


def test_version_0_has_no_tags() -> None:
    partitions = "00000002000178000000020000000000000001000279790000000100000002"
    known = Transaction("t", 7, 3, 60_000, Ongoing(50, PLACES), 100)
    assert read(f"0000 {HEAD} 01 {partitions} {TIMES}") == known
    assert read(f"0000 {HEAD} 00 ffffffff {NEVER_STARTED}") == Transaction("t", 7, 3, 60_000, Empty(), 100)
    assert read(f"0000 {HEAD} 05 00000000 {TIMES}") == Transaction("t", 7, 3, 60_000, Ended(False, 50), 100)


def test_tags_that_are_not_known_here_are_passed_over() -> None:
    """Kafka has a tag 3, the next epoch, that it does not write so far."""
    known = transaction(Ongoing(50, PLACES), bumps=True)
    assert read(f"0001 {HEAD} 01 {PARTITIONS} {TIMES} 04 {PREVIOUS} {BUMPING} 0302ffff 0901aa") == known


def test_an_empty_transaction_has_no_partitions_whatever_its_record_says() -> None:
    assert read(f"0001 {HEAD} 00 {PARTITIONS} {NEVER_STARTED} 01 {PREVIOUS}") == transaction(Empty())


def test_a_transaction_under_way_may_have_none() -> None:
    """Kafka begins one for a request without partitions."""
    assert read(f"0001 {HEAD} 01 01 {TIMES} 01 {PREVIOUS}") == transaction(Ongoing(50, frozenset()))


@pytest.mark.parametrize("status", range(1, 6))
def test_only_an_empty_one_may_lack_the_list(status: int) -> None:
    with pytest.raises(StorageError):
        read(f"0001 {HEAD} 0{status} 00 {TIMES} 00")


@pytest.mark.parametrize("status", ["06", "07", "08", "ff"])
def test_a_state_that_is_never_written_is_not_read(status: str) -> None:
    with pytest.raises(StorageError):
        read(f"0001 {HEAD} {status} 01 {TIMES} 00")


@pytest.mark.parametrize("version", ["0002", "ffff"])
def test_a_version_of_the_value_that_is_not_known_is_an_error(version: str) -> None:
    """Kafka passes over it. Then whoever is in a transaction of that record would be lost."""
    with pytest.raises(StorageError):
        read(f"{version} {HEAD} 00 00 {NEVER_STARTED} 00")


def test_keys_of_another_kind_are_passed_over() -> None:
    assert decode(value("0001000174"), b"whatever") is None
    batch = build_batch([Record(0, 0, value("0005"), b"x"), Record(1, 0, None, b"x"), Record(2, 0, value(KEY), None)])
    assert list(FORMAT.from_batches(batch)) == [TransactionRecord("t", None)]


@pytest.mark.parametrize(("known", "text"), [pytest.param(*rest, id=name) for name, *rest in WRITTEN])
def test_what_is_cut_off_is_an_error(known: Transaction, text: str) -> None:
    whole = value(text)
    for size in range(len(whole)):
        with pytest.raises(StorageError):
            decode(value(KEY), whole[:size])
    for size in range(len(value(KEY))):
        with pytest.raises(StorageError):
            decode(value(KEY)[:size], whole)


def test_garbage_is_an_error_or_a_transaction_that_can_be_written_again() -> None:
    dice = random.Random(1)
    texts = [value(text) for _, _, text in WRITTEN]
    read_anyway = 0
    for _ in range(3_000):
        spoilt = bytearray(dice.choice(texts))
        for _ in range(dice.randrange(1, 4)):
            spoilt[dice.randrange(len(spoilt))] = dice.randrange(256)
        try:
            record = decode(value(KEY), bytes(spoilt))
        except StorageError:
            continue
        assert record is not None
        assert decode(*encode(record)) == record
        read_anyway += 1
    assert read_anyway > 0
