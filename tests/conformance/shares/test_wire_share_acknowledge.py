"""ShareAcknowledge, and acknowledgements that ride on ShareFetch: each type, lists of types, and what is refused."""

import pytest
from raw import Connection
from raw_batches import build
from share_calls import (
    ACCEPT,
    GAP,
    INVALID_RECORD_STATE,
    INVALID_REQUEST,
    NONE,
    REJECT,
    RELEASE,
    RENEW,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    Acks,
    NewReader,
    Place,
    ShareReader,
    configure,
    differs,
    start_of,
)
from wire_calls import produce

from waiting import eventually


@pytest.fixture
def ten(wire: Connection, topic: str, reader: ShareReader) -> ShareReader:
    """A reader that holds ten records."""
    produce(wire, topic, build([b"%d" % number for number in range(10)]))
    assert reader.some().acquired == [(0, 9, 1)]
    return reader


def again(reader: ShareReader) -> list[int]:
    """What can be acquired now."""
    return reader.take(max_wait_ms=0).offsets


def lag_becomes(reader: ShareReader, topic: str, offset: int, lag: int) -> None:
    """Kafka stores the start with the next write, so that what it tells may be behind; the lag is exact."""

    def is_so() -> bool:
        found = start_of(reader.wire, reader.group, topic)
        return found.lag == lag and (found.offset == offset or differs(kafka=found.offset < offset, skidway=False))

    eventually(is_so)


def test_accepted(ten: ShareReader, topic: str) -> None:
    assert ten.ack((0, 9, [ACCEPT])) == NONE
    assert again(ten) == []
    lag_becomes(ten, topic, 10, 0)


def test_released(ten: ShareReader, topic: str) -> None:
    assert ten.ack((0, 9, [RELEASE])) == NONE
    assert ten.some().acquired == [(0, 9, 2)]


def test_rejected(ten: ShareReader, topic: str) -> None:
    assert ten.ack((0, 9, [REJECT])) == NONE
    assert again(ten) == []
    lag_becomes(ten, topic, 10, 0)


def test_a_gap_is_over_like_a_rejected_one(ten: ShareReader, topic: str) -> None:
    assert ten.ack((0, 9, [GAP])) == NONE
    assert again(ten) == []
    lag_becomes(ten, topic, 10, 0)


def test_one_type_for_each_offset(ten: ShareReader, topic: str) -> None:
    types = [ACCEPT, RELEASE, REJECT, GAP, RELEASE, ACCEPT, ACCEPT, REJECT, RELEASE, ACCEPT]
    assert ten.ack((0, 9, types)) == NONE
    got = ten.some()
    assert got.counts == {1: 2, 4: 2, 8: 2}
    assert got.acquired == [(1, 1, 2), (4, 4, 2), (8, 8, 2)]
    lag_becomes(ten, topic, 1, 3)


def test_several_ranges(ten: ShareReader, topic: str) -> None:
    assert ten.ack((0, 2, [ACCEPT]), (3, 4, [RELEASE, ACCEPT]), (8, 9, [REJECT])) == NONE
    assert again(ten) == [3], "5, 6 and 7 are still locked"
    lag_becomes(ten, topic, 3, 4)


def test_the_start_waits_for_the_first_that_is_not_over(ten: ShareReader, topic: str) -> None:
    assert ten.ack((5, 9, [ACCEPT])) == NONE
    lag_becomes(ten, topic, 0, 5)
    assert ten.ack((0, 4, [ACCEPT])) == NONE
    lag_becomes(ten, topic, 10, 0)


def test_acknowledgements_ride_on_a_fetch(wire: Connection, ten: ShareReader, topic: str, at: Place) -> None:
    got = ten.fetch({at: [(0, 4, [ACCEPT]), (5, 9, [RELEASE])]})
    assert (got[at].error, got[at].ack_error) == (NONE, NONE)
    assert got[at].acquired in ([], [(5, 9, 2)])
    if not got[at].acquired:
        assert ten.some().acquired == [(5, 9, 2)]


def test_an_acknowledged_partition_is_in_the_answer_without_records(ten: ShareReader, at: Place) -> None:
    got = ten.fetch({at: [(0, 9, [ACCEPT])]}, max_wait_ms=0)
    assert (got[at].error, got[at].ack_error, got[at].acquired, got[at].records) == (NONE, NONE, [], b"")


def test_a_wrong_one_on_a_fetch_leaves_the_fetch_alone(
    wire: Connection, topic: str, ten: ShareReader, at: Place
) -> None:
    assert ten.ack((0, 9, [ACCEPT])) == NONE
    produce(wire, topic, build([b"new"]))
    got = ten.fetch({at: [(9, 9, [RELEASE])]})
    assert (got[at].error, got[at].ack_error) == (NONE, NONE), "below the start: success, no effect"
    assert got[at].offsets == [10] or ten.some().offsets == [10]


REFUSED: list[tuple[str, Acks]] = [
    ("reversed", [(5, 4, [ACCEPT])]),
    ("overlapping", [(0, 4, [ACCEPT]), (3, 9, [ACCEPT])]),
    ("the same twice", [(0, 4, [ACCEPT]), (0, 4, [ACCEPT])]),
    ("not ascending", [(5, 9, [ACCEPT]), (0, 4, [ACCEPT])]),
    ("a type below 0", [(0, 9, [-1])]),
    ("a type above 4", [(0, 9, [5])]),
    ("no type", [(0, 9, [])]),
    ("too few types", [(0, 9, [ACCEPT, ACCEPT])]),
    ("too many types", [(0, 1, [ACCEPT] * 3)]),
    ("renewed without saying so", [(0, 9, [RENEW])]),
    ("one of a list renewed", [(0, 1, [ACCEPT, RENEW])]),
]


@pytest.mark.parametrize("acks", [acks for _, acks in REFUSED], ids=[name for name, _ in REFUSED])
def test_bad_batches(ten: ShareReader, at: Place, acks: Acks) -> None:
    assert ten.ack(*acks) == INVALID_REQUEST
    got = ten.fetch({at: acks}, max_wait_ms=0)
    assert (got[at].error, got[at].ack_error) == (NONE, INVALID_REQUEST)
    assert ten.ack((0, 9, [ACCEPT])) == NONE, "nothing had happened to the records"


def test_ranges_that_share_one_offset(ten: ShareReader) -> None:
    assert ten.ack((0, 4, [ACCEPT]), (4, 9, [ACCEPT])) == differs(kafka=INVALID_RECORD_STATE, skidway=INVALID_REQUEST)
    assert ten.ack((0, 9, [ACCEPT])) == NONE


def test_renew_is_no_type_of_version_1(ten: ShareReader) -> None:
    ten.version = 1
    assert ten.ack((0, 9, [RENEW])) == INVALID_REQUEST


def test_the_acknowledgements_of_a_partition_act_as_one(ten: ShareReader, new_reader: NewReader, topic: str) -> None:
    """One bad range, and the good one before it has no effect either."""
    assert ten.ack((0, 4, [ACCEPT]), (5, 20, [ACCEPT])) in (INVALID_REQUEST, INVALID_RECORD_STATE)
    assert ten.ack((0, 9, [RELEASE])) == NONE
    assert new_reader().some().acquired == [(0, 9, 2)]


def test_another_s_record(ten: ShareReader, new_reader: NewReader, at: Place) -> None:
    stranger = new_reader()
    stranger.take(max_wait_ms=0)
    for type_ in (ACCEPT, RELEASE, REJECT, GAP):
        assert stranger.ack((0, 9, [type_])) == INVALID_RECORD_STATE
    assert stranger.fetch({at: [(3, 3, [ACCEPT])]}, max_wait_ms=0)[at].ack_error == INVALID_RECORD_STATE
    assert ten.ack((0, 9, [ACCEPT])) == NONE


def test_one_s_own_and_another_s_in_one_range(wire: Connection, ten: ShareReader, new_reader: NewReader) -> None:
    assert ten.ack((5, 9, [RELEASE])) == NONE
    other = new_reader()
    assert other.some().acquired == [(5, 9, 2)]
    assert ten.ack((0, 9, [ACCEPT])) == INVALID_RECORD_STATE
    assert other.ack((5, 9, [ACCEPT])) == NONE
    assert ten.ack((0, 4, [ACCEPT])) == NONE


def test_what_is_acquired_no_more(ten: ShareReader) -> None:
    assert ten.ack((3, 9, [RELEASE])) == NONE
    assert ten.ack((3, 9, [ACCEPT])) == INVALID_RECORD_STATE
    assert ten.ack((0, 2, [ACCEPT])) == NONE


def test_accepted_twice(ten: ShareReader) -> None:
    """Above the start: refused. Below it: success without effect."""
    assert ten.ack((5, 9, [ACCEPT])) == NONE
    assert ten.ack((5, 9, [ACCEPT])) == INVALID_RECORD_STATE
    assert ten.ack((0, 4, [ACCEPT])) == NONE
    assert ten.ack((5, 9, [ACCEPT])) == NONE
    assert ten.ack((0, 9, [RELEASE])) == NONE
    assert again(ten) == []


def test_what_was_never_delivered(ten: ShareReader) -> None:
    assert ten.ack((10, 12, [ACCEPT])) == INVALID_REQUEST
    assert ten.ack((9, 10, [ACCEPT])) == INVALID_REQUEST
    assert ten.ack((9, 9, [ACCEPT])) == NONE


def test_part_of_a_range_below_the_start(ten: ShareReader, topic: str) -> None:
    assert ten.ack((0, 4, [ACCEPT])) == NONE
    lag_becomes(ten, topic, 5, 5)
    assert ten.ack((3, 9, [ACCEPT])) == NONE
    lag_becomes(ten, topic, 10, 0)


def test_unknown_topic_and_partition(ten: ShareReader, at: Place) -> None:
    assert ten.ack((0, 0, [ACCEPT]), place=(bytes(15) + b"\x09", 0)) == UNKNOWN_TOPIC_ID
    assert ten.ack((0, 0, [ACCEPT]), place=(at[0], 7)) == UNKNOWN_TOPIC_OR_PARTITION
    assert ten.ack((0, 9, [ACCEPT])) == NONE


def test_a_group_that_nobody_joined(wire: Connection, ten: ShareReader, at: Place, topic: str) -> None:
    """Its partitions are not initialised, so nothing is delivered."""
    fresh = ShareReader(wire, ten.group + "-unknown", at)
    assert fresh.take(max_wait_ms=0).acquired == []
    assert fresh.ack((0, 0, [ACCEPT])) != NONE


def test_an_acknowledgement_without_batches(ten: ShareReader, at: Place) -> None:
    """A partition is in the answer if something was said of it."""
    nothing: list[dict[Place, Acks]] = [{at: []}, {}]
    for acks in nothing:
        answer = ten.acknowledge(acks)
        assert (answer["error_code"], answer["responses"]) == (NONE, [])


def test_the_lock_s_length_is_in_the_answer(ten: ShareReader, at: Place) -> None:
    configure(ten.wire, ten.group, share_record_lock_duration_ms=17_000)
    assert ten.acknowledge({at: [(0, 0, [ACCEPT])]})["acquisition_lock_timeout_ms"] == 17_000
