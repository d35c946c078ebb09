"""Leases and delays that are stored: how long they last for who loads them, how they are merged and written down."""

from unittest.mock import patch

import hypothesis.strategies as st
import pytest
from hypothesis import given

from skidway.errors import PolicyViolation
from skidway.shares.acquiring import Offered, Span, Wanted
from skidway.shares.contents import Content
from skidway.shares.coordinator import checking
from skidway.shares.coordinator.batches import StateBatch as CoordinatorBatch
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.operations import Write
from skidway.shares.coordinator.records import ShareRecord, decode, encode
from skidway.shares.coordinator.state import Snapshot, Update, after_snapshot, after_update
from skidway.shares.delivery import Delivery
from skidway.shares.receipts import Receipts
from skidway.shares.records import StateBatch, Stored
from skidway.shares.states import AVAILABLE, DELAYED, LEASED, LOCK_MS_MAX, DeliveryRules, Order
from skidway.shares.terms import CLOCKS_APART_MS, NO_TERMS, TERMS_MAX, Term, TermNotes, changed
from skidway.wire.message import Message, array, int8, int16, int32, int64
from skidway.wire.registry import codec

HOUR_MS = 3_600_000
FIFO = DeliveryRules(order=Order.FIFO, receipts_expire=True, delays=True)
KEY = ShareKey("__queue/orders.fifo", bytes(range(16)), 0)
LEASE = Term(3, 5, LEASED, 2, 1_800_000_000_000, 30_000, "queue")


@pytest.mark.parametrize("jump_ms", [-10 * HOUR_MS, -1, 0, 1, CLOCKS_APART_MS, 10 * HOUR_MS])
def test_a_lease_of_a_minute_never_ends_early_whatever_the_clock_on_the_wall_says(jump_ms: int) -> None:
    written_ms = 5_000_000_000_000
    term = Term(0, 1, LEASED, 1, written_ms + CLOCKS_APART_MS, CLOCKS_APART_MS, "ann")
    assert term.remaining_ms(written_ms + jump_ms) == CLOCKS_APART_MS


@given(st.integers(1, LOCK_MS_MAX), st.integers(0, LOCK_MS_MAX), st.integers(-CLOCKS_APART_MS, CLOCKS_APART_MS))
def test_a_longer_one_does_not_while_the_clocks_are_less_than_a_minute_apart(
    lasts_ms: int, passed_ms: int, apart_ms: int
) -> None:
    written_ms = 5_000_000_000_000
    term = Term(0, 1, LEASED, 1, written_ms + lasts_ms, lasts_ms, "ann")
    left_ms = term.remaining_ms(written_ms + passed_ms + apart_ms)
    assert lasts_ms - passed_ms <= left_ms <= lasts_ms


def test_a_delay_goes_by_the_clock_on_the_wall_and_is_never_longer_than_it_was() -> None:
    delay = Term(0, 1, DELAYED, 1, 10_000, 4_000)
    assert [delay.remaining_ms(wall_ms) for wall_ms in (0, 6_000, 9_000, 10_000, 99_000)] == [4_000, 4_000, 1_000, 0, 0]


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(1, 8), st.sampled_from([AVAILABLE, LEASED, DELAYED]))))
def test_changes_of_terms_are_what_they_are_offset_by_offset(said: list[tuple[int, int, int]]) -> None:
    notes, naive = NO_TERMS, dict[int, int]()
    for number, (first, size, kind) in enumerate(said, 1):
        notes = changed(notes, TermNotes(number, [Term(first, first + size, kind)]), number // 2)
        naive |= dict.fromkeys(range(first, first + size), kind)
        naive = {at: its for at, its in naive.items() if its != AVAILABLE and at >= number // 2}
        assert {at: term.kind for term in notes.terms for at in range(term.first, term.end)} == naive
        assert all(one.end <= other.first for one, other in zip(notes.terms, notes.terms[1:], strict=False))


def test_a_write_that_comes_late_changes_nothing() -> None:
    newer = TermNotes(7, [LEASE])
    assert changed(newer, TermNotes(6, [Term(0, 9, AVAILABLE)]), 0) == newer
    assert changed(newer, TermNotes(6, [Term(0, 9, AVAILABLE)]), 4).terms[0].first == 4


def test_records_carry_terms_and_snapshots_have_all_of_them() -> None:
    batches = [CoordinatorBatch(3, 4, 0, 2)]
    update = Update(1, 4, 3, 0, batches, terms=TermNotes(9, [LEASE]))
    assert _again(ShareRecord(KEY, update)).value == update
    state = after_update(after_snapshot(Snapshot(1, 1, 4, 0, 0, 1, 1)), update)
    assert _again(ShareRecord(KEY, state.snapshot)).value == state.snapshot
    assert state.snapshot.terms == TermNotes(9, [LEASE])
    settled = after_update(state, Update(1, 4, 4, 0, [], terms=NO_TERMS)).snapshot.terms
    assert [(term.first, term.end) for term in settled.terms] == [(4, 5)]


class KafkasBatch(Message):
    first_offset: int = int64("0+")
    last_offset: int = int64("0+")
    delivery_state: int = int8("0+")
    delivery_count: int = int16("0+")


class KafkasUpdate(Message, versions="0", flexible="0+"):
    """ShareUpdateValue as Kafka 4.4 has it."""

    snapshot_epoch: int = int32("0+")
    leader_epoch: int = int32("0+")
    start_offset: int = int64("0+")
    delivery_complete_count: int = int32("0+", default=-1, tag=0)
    state_batches: list[KafkasBatch] = array(KafkasBatch, "0+")


def test_kafkas_readers_pass_over_terms() -> None:
    update = Update(1, 4, 3, 0, [CoordinatorBatch(3, 4, 0, 2)], terms=TermNotes(9, [LEASE]))
    _, value = encode(ShareRecord(KEY, update))
    assert value is not None
    read, end = codec(KafkasUpdate).decoder(0)(value, 2)
    assert end == len(value)
    assert isinstance(read, KafkasUpdate)
    assert (read.start_offset, read.delivery_complete_count) == (3, 0)
    assert [(each.first_offset, each.last_offset, each.delivery_state) for each in read.state_batches] == [(3, 4, 0)]


def test_groups_without_an_order_store_no_lease() -> None:
    delivery = Delivery(Stored(0, 0), DeliveryRules())
    (taken,) = delivery.acquire("ann", Offered(0, [Span(0, 9)]), Wanted(9), 0)
    assert delivery.last_keep is None
    assert delivery.next_write(0, 0) is None
    delivery.give_back(delivery.leases.carve(taken.first, taken.end)[0])
    update = delivery.next_write(0, 0)
    assert update is not None
    assert update.terms is None


def test_so_many_terms_are_too_many() -> None:
    terms = [Term(2 * at, 2 * at + 1, LEASED, 1, 0, 50, "ann") for at in range(TERMS_MAX)]
    batches = [StateBatch(term.first, term.end, AVAILABLE, 1) for term in terms]
    delivery = Delivery(Stored(0, 0, batches, terms=TermNotes(1, terms)), FIFO)
    delivery.resume(0, 0)
    assert len(delivery.leases) == TERMS_MAX
    assert delivery.next_offset() is None
    delivery.on_time(50)
    assert delivery.next_write(50, 50) is not None
    delivery.on_written(50)
    assert delivery.next_offset() == 0


def test_what_is_put_back_is_ended_in_the_store_at_once() -> None:
    """Its client was gone before it was answered. The next leader must not go on with a lease that nobody has."""
    delivery = Delivery(Stored(0, 0), FIFO)
    delivery.contents.examine(delivery, [Content(0, 0, b"g")], 1, 0)
    assert delivery.acquire("queue", Offered(0, [Span(0, 1)]), Wanted(1), 0, LOCK_MS_MAX)
    keep = delivery.last_keep
    assert keep is not None
    assert delivery.next_write(0, 0) is not None
    delivery.on_written(0)
    assert [term.kind for term in delivery.durable.terms.terms] == [LEASED]
    assert Receipts(delivery).untake(keep.acquired)
    assert not delivery.is_idle
    assert delivery.next_write(0, 0) is not None
    delivery.on_written(0)
    assert delivery.durable.terms.terms == []
    assert delivery.next_offset() == 0


def test_so_many_records_in_flight_are_too_many_however_few_leases_they_are() -> None:
    lease = Term(0, TERMS_MAX, LEASED, 1, 0, 50, "ann")
    stored = Stored(0, 0, [StateBatch(0, TERMS_MAX, AVAILABLE, 1)], terms=TermNotes(1, [lease]))
    delivery = Delivery(stored, FIFO)
    delivery.resume(0, 0)
    assert delivery.next_offset() is None
    delivery.on_time(50)
    assert delivery.next_offset() == 0


def test_a_coordinator_with_too_many_terms_takes_what_does_not_add_to_them() -> None:
    terms = [Term(at, at + 1, LEASED, 1, 0, 50, "a") for at in range(0, 40, 2)]
    before = Snapshot(1, 0, 0, 0, 0, 0, 0, terms=TermNotes(1, terms))
    key = ShareKey("g", bytes(16), 0)

    def check(term: Term) -> None:
        checking.check_write(Write(key, 0, 0, terms=TermNotes(2, [term])), before, 1_000)

    with patch.object(checking, "TERMS_STORED_MAX", 10):
        check(Term(0, 1, AVAILABLE))
        check(Term(0, 1, LEASED, 1, 0, 99, "a"))
        with pytest.raises(PolicyViolation):
            check(Term(1, 2, LEASED, 1, 0, 50, "b"))


def _again(record: ShareRecord) -> ShareRecord:
    key, value = encode(record)
    found = decode(key, value)
    assert found is not None
    return found
