"""Locks and limits: expiry, renewal, delivery counts, records in flight, and how a poisonous record is kept apart."""

import pytest
from raw import Connection
from raw_batches import build
from share_calls import (
    ACCEPT,
    INVALID_RECORD_STATE,
    INVALID_REQUEST,
    NONE,
    RELEASE,
    RENEW,
    NewReader,
    Place,
    ShareReader,
    configure,
    differs,
    open_group,
    start_of,
)
from wire_calls import produce

from waiting import eventually

SHORT_MS = 1_000


def fill(wire: Connection, topic: str, count: int) -> None:
    produce(wire, topic, build([b"%d" % number for number in range(count)]))


@pytest.fixture
def short(wire: Connection, topic: str, reader: ShareReader) -> ShareReader:
    """A reader whose locks last a second."""
    configure(wire, reader.group, share_record_lock_duration_ms=SHORT_MS)
    return reader


def test_a_lock_expires(wire: Connection, topic: str, short: ShareReader, new_reader: NewReader) -> None:
    fill(wire, topic, 3)
    assert short.some().acquired == [(0, 2, 1)]
    assert new_reader().some().acquired == [(0, 2, 2)]
    assert short.ack((0, 2, [ACCEPT])) == INVALID_RECORD_STATE


def test_a_waiting_fetch_gets_what_expires(
    wire: Connection, topic: str, short: ShareReader, new_reader: NewReader
) -> None:
    fill(wire, topic, 1)
    short.some()
    waiting = new_reader()
    waiting.take(max_wait_ms=0)
    waiting.send_fetch(max_wait_ms=20_000)
    assert waiting.fetched()[waiting.places[0]].acquired == [(0, 0, 2)]


def test_one_s_own_expired_lock(wire: Connection, topic: str, short: ShareReader) -> None:
    fill(wire, topic, 2)
    short.some()
    assert short.some().acquired == [(0, 1, 2)]
    assert short.ack((0, 1, [ACCEPT])) == NONE, "it holds them again"


def test_the_limit_of_deliveries(wire: Connection, topic: str, reader: ShareReader) -> None:
    configure(wire, reader.group, share_delivery_count_limit=3)
    fill(wire, topic, 1)
    for count in range(1, 4):
        assert reader.some().acquired == [(0, 0, count)]
        assert reader.ack((0, 0, [RELEASE])) == NONE
    assert reader.take(max_wait_ms=200).acquired == []
    eventually(lambda: start_of(wire, reader.group, topic).lag == 0)


def test_five_deliveries_by_default(wire: Connection, topic: str, reader: ShareReader) -> None:
    fill(wire, topic, 1)
    for count in range(1, 6):
        assert reader.some().acquired == [(0, 0, count)]
        assert reader.ack((0, 0, [RELEASE])) == NONE
    assert reader.take(max_wait_ms=200).acquired == []


def test_an_expired_last_delivery(wire: Connection, topic: str, short: ShareReader) -> None:
    configure(wire, short.group, share_delivery_count_limit=2)
    fill(wire, topic, 1)
    short.some()
    assert short.some().acquired == [(0, 0, 2)]
    eventually(lambda: start_of(wire, short.group, topic).lag == 0)
    assert short.take(max_wait_ms=0).acquired == []


def test_closing_at_the_limit(wire: Connection, topic: str, reader: ShareReader, new_reader: NewReader) -> None:
    """A release is a release, also by the end of a session."""
    configure(wire, reader.group, share_delivery_count_limit=2)
    fill(wire, topic, 1)
    reader.some()
    assert reader.ack((0, 0, [RELEASE])) == NONE
    assert reader.some().acquired == [(0, 0, 2)]
    reader.close()
    other = new_reader()
    eventually(lambda: start_of(wire, reader.group, topic).lag == 0)
    assert other.take(max_wait_ms=100).acquired == []


def test_a_batch_that_fails_is_taken_apart(wire: Connection, topic: str, reader: ShareReader) -> None:
    """From the third of five deliveries on by halves, and the last one each alone; what is good gets through."""
    fill(wire, topic, 8)
    seen: list[list[tuple[int, int, int]]] = []

    def round_() -> bool:
        got = reader.take(max_wait_ms=100)
        if got.acquired:
            seen.append(got.acquired)
            for first, last, _ in got.acquired:
                assert reader.ack((first, last, [RELEASE])) == NONE
        return not got.acquired and start_of(wire, reader.group, topic).lag == 0

    eventually(round_)
    assert seen[:3] == [[(0, 7, 1)], [(0, 7, 2)], [(0, 7, 3)]]
    counts: dict[int, int] = {}
    for acquired in seen:
        for first, last, count in acquired:
            for offset in range(first, last + 1):
                assert count == counts.get(offset, 0) + 1
                counts[offset] = count
                assert count < 5 or first == last, "the last delivery is each record's own"
                assert count < 4 or last - first + 1 <= 4
    assert counts == dict.fromkeys(range(8), 5)


# ------------------------------------------------------------------------------------------------------ renewing


def renew(reader: ShareReader, first: int, last: int) -> int:
    return reader.ack((first, last, [RENEW]), is_renew_ack=True)


def test_a_renewed_lock_lasts(wire: Connection, topic: str, short: ShareReader, new_reader: NewReader) -> None:
    """Ten renewals are longer than the lock: nobody else gets the record meanwhile."""
    configure(wire, short.group, share_record_lock_duration_ms=3_000)
    fill(wire, topic, 1)
    short.some()
    other = new_reader()
    for _ in range(10):
        assert renew(short, 0, 0) == NONE
        assert other.take(max_wait_ms=500).acquired == []
    assert short.ack((0, 0, [ACCEPT])) == NONE


def test_a_renewed_lock_ends_too(wire: Connection, topic: str, short: ShareReader, new_reader: NewReader) -> None:
    fill(wire, topic, 1)
    short.some()
    assert renew(short, 0, 0) == NONE
    assert new_reader().some().acquired == [(0, 0, 2)]
    assert renew(short, 0, 0) == INVALID_RECORD_STATE


def test_renewing_tells_the_lock_s_length(wire: Connection, topic: str, reader: ShareReader, at: Place) -> None:
    configure(wire, reader.group, share_record_lock_duration_ms=21_000)
    fill(wire, topic, 1)
    reader.some()
    answer = reader.acknowledge({at: [(0, 0, [RENEW])]}, is_renew_ack=True)
    assert answer["acquisition_lock_timeout_ms"] == 21_000


def test_renewed_among_others(wire: Connection, topic: str, reader: ShareReader) -> None:
    fill(wire, topic, 4)
    reader.some()
    assert reader.ack((0, 3, [ACCEPT, RENEW, RELEASE, RENEW]), is_renew_ack=True) == NONE
    assert reader.some().acquired == [(2, 2, 2)]
    assert reader.ack((1, 3, [ACCEPT])) == NONE


def test_renewed_with_a_fetch(wire: Connection, topic: str, reader: ShareReader, at: Place) -> None:
    """Which fetches nothing then."""
    fill(wire, topic, 1)
    reader.some()
    fill(wire, topic, 1)
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    got = reader.fetch({at: [(0, 0, [RENEW])]}, is_renew_ack=True, **nothing)
    assert (got[at].error, got[at].ack_error, got[at].acquired) == (NONE, NONE, [])
    assert reader.ack((0, 0, [ACCEPT])) == NONE


@pytest.mark.parametrize("field", ["max_bytes", "min_bytes", "max_records", "max_wait_ms"])
def test_a_renewing_fetch_that_wants_records(
    wire: Connection, topic: str, reader: ShareReader, at: Place, field: str
) -> None:
    fill(wire, topic, 1)
    reader.some()
    nothing = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "max_wait_ms": 0}
    right = reader.epoch
    answer = reader.try_fetch({at: [(0, 0, [RENEW])]}, is_renew_ack=True, **{**nothing, field: 1})
    assert (answer["error_code"], answer["responses"]) == (INVALID_REQUEST, [])
    reader.epoch = right
    assert reader.ack((0, 0, [ACCEPT])) == NONE, "the session's epoch did not advance"


def test_a_stranger_s_renewal(wire: Connection, topic: str, reader: ShareReader, new_reader: NewReader) -> None:
    fill(wire, topic, 1)
    reader.some()
    stranger = new_reader()
    stranger.take(max_wait_ms=0)
    assert renew(stranger, 0, 0) == INVALID_RECORD_STATE


def test_renewal_switched_off(wire: Connection, topic: str, reader: ShareReader) -> None:
    configure(wire, reader.group, share_renew_acknowledge_enable="false")
    fill(wire, topic, 2)
    reader.some()
    assert renew(reader, 0, 1) == INVALID_RECORD_STATE
    assert reader.ack((0, 1, [ACCEPT])) == NONE


# ------------------------------------------------------------------------------------------------------ in flight


def test_no_more_in_flight_than_allowed(wire: Connection, topic: str, group: str, at: Place) -> None:
    """100 in batches of 30: Kafka may pass it by a batch."""
    open_group(wire, group, topic, share_partition_max_record_locks=100)
    for _ in range(6):
        fill(wire, topic, 30)
    reader = ShareReader(wire, group, at)
    held: list[int] = []
    quiet = 0
    while quiet < 3:
        got = reader.take(max_wait_ms=200)
        held += got.offsets
        quiet = 0 if got.acquired else quiet + 1
    assert held == list(range(len(held)))
    assert 90 <= len(held) <= differs(kafka=130, skidway=120)
    assert reader.ack((0, held[-1], [ACCEPT])) == NONE
    assert reader.some().offsets[0] == held[-1] + 1
