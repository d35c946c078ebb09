"""Where a share group begins: share.auto.offset.reset, once, and never again."""

import pytest
from raw import Connection
from raw_batches import build, now_ms
from share_calls import (
    ACCEPT,
    INVALID_CONFIG,
    NONE,
    SET,
    Place,
    ShareReader,
    alter,
    configure,
    differs,
    joined,
    start_of,
)
from wire_calls import produce

from waiting import eventually

HOUR_MS = 3_600_000


def test_the_latest_by_default(wire: Connection, group: str, topic: str, at: Place) -> None:
    """Kafka looks where the end is when the first fetch comes, Skidway when the partition is initialised."""
    produce(wire, topic, build([b"before"] * 3))
    joined(wire, group, topic)
    reader = ShareReader(wire, group, at)
    reader.take(max_wait_ms=0)
    produce(wire, topic, build([b"behind"]))
    got = reader.some()
    assert (got.offsets, got.values) == ([3], [b"behind"])


def test_what_comes_between_joining_and_the_first_fetch(wire: Connection, group: str, topic: str, at: Place) -> None:
    produce(wire, topic, build([b"before"]))
    joined(wire, group, topic)
    produce(wire, topic, build([b"between"]))
    reader = ShareReader(wire, group, at)
    first = reader.take(max_wait_ms=200).offsets
    produce(wire, topic, build([b"behind"]))
    later = reader.gather(lambda seen: 2 in seen)
    assert [*first, *later] == differs(kafka=[2], skidway=[1, 2])


def test_the_earliest(wire: Connection, group: str, topic: str, at: Place) -> None:
    produce(wire, topic, build([b"a", b"b"]))
    configure(wire, group, share_auto_offset_reset="earliest")
    joined(wire, group, topic)
    assert ShareReader(wire, group, at).some().offsets == [0, 1]


def test_by_duration(wire: Connection, group: str, topic: str, at: Place) -> None:
    now = now_ms()
    produce(wire, topic, build([b"old"], timestamp=now - 3 * HOUR_MS))
    produce(wire, topic, build([b"recent", b"too"], timestamp=now - HOUR_MS))
    configure(wire, group, share_auto_offset_reset="by_duration:PT2H")
    joined(wire, group, topic)
    assert ShareReader(wire, group, at).some().offsets == [1, 2]


def test_by_a_duration_that_nothing_is_as_young_as(wire: Connection, group: str, topic: str, at: Place) -> None:
    produce(wire, topic, build([b"old"], timestamp=now_ms() - 3 * HOUR_MS))
    configure(wire, group, share_auto_offset_reset="by_duration:PT1H")
    joined(wire, group, topic)
    reader = ShareReader(wire, group, at)
    assert reader.take(max_wait_ms=100).acquired == []
    produce(wire, topic, build([b"new"]))
    assert reader.some().offsets == [1]


@pytest.mark.parametrize("value", ["nonsense", "none", "by_duration:", "by_duration:2h", "by_duration:-PT1H", ""])
def test_bad_settings(wire: Connection, group: str, value: str) -> None:
    assert alter(wire, group, ("share.auto.offset.reset", SET, value))["error_code"] == INVALID_CONFIG


@pytest.mark.parametrize("value", ["by_duration:P1D", "by_duration:P1DT2H3M4.5S", "by_duration:PT0.5S", "latest"])
def test_good_settings(wire: Connection, group: str, value: str) -> None:
    configure(wire, group, share_auto_offset_reset=value)


def test_a_start_is_not_looked_for_again(wire: Connection, group: str, topic: str, at: Place) -> None:
    configure(wire, group, share_auto_offset_reset="earliest")
    member = joined(wire, group, topic)
    produce(wire, topic, build([b"a", b"b"]))
    reader = ShareReader(wire, group, at)
    reader.some()
    assert reader.ack((0, 0, [ACCEPT])) == NONE
    reader.close()
    member.leave()
    configure(wire, group, share_auto_offset_reset="latest")
    produce(wire, topic, build([b"c"]))
    joined(wire, group, topic)
    second = ShareReader(wire, group, at)
    seen = second.gather(lambda seen: len(seen) == 2)
    assert seen == {1: 2, 2: 1}


def test_the_start_is_told_before_anything_is_read(wire: Connection, group: str, topic: str) -> None:
    produce(wire, topic, build([b"a", b"b"]))
    configure(wire, group, share_auto_offset_reset="earliest")
    joined(wire, group, topic)
    found = start_of(wire, group, topic)
    assert (found.offset, found.lag, found.error) == differs(kafka=(-1, -1, NONE), skidway=(0, 2, NONE))


def test_partitions_that_come_later_are_read_from_their_beginning(wire: Connection, group: str, topic: str) -> None:
    """Also where the group starts at the latest: what was written before it knew of them is not lost (KAFKA-20742)."""
    member = joined(wire, group, topic)
    id_ = next(iter(member.owned))
    grown = {"name": topic, "count": 2, "assignments": None}
    wire.call("CreatePartitions", 3, {"topics": [grown], "timeout_ms": 8_000})

    def written() -> bool:
        return bool(produce(wire, topic, build([b"early"]), partition=1)["error_code"] == NONE)

    eventually(written)
    member.await_share({id_: range(2)})
    reader = ShareReader(wire, group, (id_, 1))
    reader.take(max_wait_ms=0)
    produce(wire, topic, build([b"later"]), partition=1)
    seen = list(reader.gather(lambda seen: 1 in seen))
    assert seen == differs(kafka=[1], skidway=[0, 1])
