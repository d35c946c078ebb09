"""ShareFetch on the wire: what is acquired, by whom, how much of it, and how often it was delivered."""

import uuid
from typing import Any

import pytest
from raw import Body, Connection, MakeTopic
from raw_batches import build, read
from share_calls import (
    ACCEPT,
    BATCH_OPTIMIZED,
    INVALID_REQUEST,
    NONE,
    RECORD_LIMIT,
    RELEASE,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    NewReader,
    Place,
    ShareReader,
    configure,
    differs,
    open_group,
    place_of,
    results,
)
from wire_calls import produce

from waiting import eventually


def fill(wire: Connection, topic: str, *sizes: int, partition: int = 0) -> None:
    """One batch of each size."""
    for size in sizes:
        produce(wire, topic, build([b"%d" % number for number in range(size)]), partition=partition)


def test_records_are_acquired_once(wire: Connection, topic: str, reader: ShareReader, new_reader: NewReader) -> None:
    produce(wire, topic, build([b"a", b"b", b"c"]))
    got = reader.some()
    assert (got.acquired, got.values) == ([(0, 2, 1)], [b"a", b"b", b"c"])
    assert (got.error, got.ack_error, got.leader) == (NONE, NONE, (0, 0))
    assert reader.answer["node_endpoints"] == []
    assert new_reader().take().acquired == []
    assert reader.take().acquired == [], "nor does its holder get it again"


def test_the_lock_s_length_is_in_every_answer(wire: Connection, topic: str, reader: ShareReader) -> None:
    configure(wire, reader.group, share_record_lock_duration_ms=23_000)
    assert reader.try_fetch(max_wait_ms=0)["acquisition_lock_timeout_ms"] == 23_000
    fill(wire, topic, 1)
    reader.some()
    assert reader.answer["acquisition_lock_timeout_ms"] == 23_000


def test_a_fetch_waits_for_records(wire: Connection, topic: str, reader: ShareReader, new_reader: NewReader) -> None:
    waiting = new_reader()
    waiting.take(max_wait_ms=0)
    waiting.send_fetch(max_wait_ms=20_000)
    assert waiting.wire.silent_for(0.3)
    fill(wire, topic, 2)
    assert waiting.fetched()[waiting.places[0]].acquired == [(0, 1, 1)]


def test_a_fetch_waits_for_what_is_released(
    wire: Connection, topic: str, reader: ShareReader, new_reader: NewReader
) -> None:
    fill(wire, topic, 2)
    reader.some()
    waiting = new_reader()
    waiting.take(max_wait_ms=0)
    waiting.send_fetch(max_wait_ms=20_000)
    assert waiting.wire.silent_for(0.3)
    assert reader.ack((0, 1, [RELEASE])) == NONE
    assert waiting.fetched()[waiting.places[0]].acquired == [(0, 1, 2)]


def test_an_empty_answer_names_no_partition_the_session_knows(topic: str, reader: ShareReader, at: Place) -> None:
    """The first one does, so that its reader hears of errors."""
    first = reader.fetch(max_wait_ms=100)
    assert list(first) == [at]
    assert (first[at].error, first[at].records, first[at].acquired) == (NONE, b"", [])
    assert reader.fetch(max_wait_ms=100) == {}


def test_batches_are_whole_when_they_are_optimized(wire: Connection, topic: str, reader: ShareReader) -> None:
    fill(wire, topic, 10, 10, 10)
    got = reader.some(max_records=5, share_acquire_mode=BATCH_OPTIMIZED)
    assert got.offsets == list(range(10)), "rounded up to the end of the batch"
    assert reader.some(max_records=11).offsets == list(range(10, 30))


def test_a_record_limit_is_strict(wire: Connection, topic: str, reader: ShareReader, new_reader: NewReader) -> None:
    fill(wire, topic, 10, 10)
    limited: dict[str, Any] = {"share_acquire_mode": RECORD_LIMIT, "batch_size": 3}
    assert reader.some(max_records=3, **limited).acquired == [(0, 2, 1)]
    other = new_reader()
    got = other.some(max_records=4, **limited)
    assert got.offsets == [3, 4, 5, 6]
    assert reader.some(max_records=500, **limited).offsets == list(range(7, 20))


def test_a_limited_fetch_may_bring_more_records_than_it_acquires(
    wire: Connection, topic: str, reader: ShareReader
) -> None:
    fill(wire, topic, 10)
    got = reader.some(max_records=3, share_acquire_mode=RECORD_LIMIT)
    assert [batch.count for batch in read(got.records)] == [10]
    assert got.values == [b"0", b"1", b"2"]


def test_version_1_is_optimized(wire: Connection, topic: str, reader: ShareReader) -> None:
    fill(wire, topic, 10)
    reader.version = 1
    assert reader.some(max_records=3).offsets == list(range(10))


@pytest.mark.parametrize("version", [1, 2])
def test_both_versions(wire: Connection, topic: str, reader: ShareReader, version: int) -> None:
    fill(wire, topic, 3)
    reader.version = version
    assert reader.some().acquired == [(0, 2, 1)]
    assert reader.ack((0, 2, [ACCEPT])) == NONE
    assert reader.take(max_wait_ms=0).acquired == []


def test_ranges_end_with_batches(wire: Connection, topic: str, reader: ShareReader) -> None:
    fill(wire, topic, 5, 5, 5, 5)
    got = reader.some(batch_size=10)
    assert got.acquired == [(0, 9, 1), (10, 19, 1)]


def test_ranges_are_cut_where_a_batch_ends_only(wire: Connection, topic: str, reader: ShareReader) -> None:
    fill(wire, topic, 5, 5, 5)
    assert reader.some(batch_size=7).acquired == [(0, 9, 1), (10, 14, 1)]


def test_one_range_if_the_size_allows(wire: Connection, topic: str, reader: ShareReader) -> None:
    fill(wire, topic, 5, 5, 5)
    assert reader.some(batch_size=500).acquired == [(0, 14, 1)]


def test_a_record_too_large_for_the_fetch_comes_alone(wire: Connection, topic: str, reader: ShareReader) -> None:
    produce(wire, topic, build([b"x" * 50_000]))
    produce(wire, topic, build([b"y" * 50_000]))
    assert reader.some(max_bytes=1_000).offsets == [0]
    assert reader.some(max_bytes=1_000).offsets == [1]


def test_a_released_part_of_a_batch_comes_again_with_its_batch(
    wire: Connection, topic: str, reader: ShareReader, new_reader: NewReader
) -> None:
    fill(wire, topic, 10)
    reader.some()
    assert reader.ack((0, 3, [ACCEPT]), (4, 5, [RELEASE]), (6, 9, [ACCEPT])) == NONE
    got = new_reader().some()
    assert got.acquired == [(4, 5, 2)]
    assert got.values == [b"4", b"5"]
    assert [batch.count for batch in read(got.records)] == [10]


def test_what_was_released_comes_before_what_is_new(wire: Connection, topic: str, reader: ShareReader) -> None:
    fill(wire, topic, 5)
    reader.some()
    fill(wire, topic, 5)
    assert reader.ack((1, 2, [RELEASE])) == NONE
    got = reader.until(lambda got: got.acquired)
    assert got.acquired[0] == (1, 2, 2)
    later = [] if 5 in got.offsets else reader.some().offsets
    assert [*got.offsets, *later] == [1, 2, 5, 6, 7, 8, 9]


def test_counts_differ_within_one_answer(wire: Connection, topic: str, reader: ShareReader) -> None:
    fill(wire, topic, 4)
    reader.some()
    assert reader.ack((0, 3, [RELEASE])) == NONE
    assert reader.some().counts == dict.fromkeys(range(4), 2)
    assert reader.ack((0, 1, [RELEASE]), (2, 3, [ACCEPT])) == NONE
    fill(wire, topic, 1)
    counts = reader.gather(lambda counts: len(counts) == 3)
    assert counts == {0: 3, 1: 3, 4: 1}


def test_several_partitions_and_topics(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    first, second = make_topic(partitions=2), make_topic()
    open_group(wire, group, first, second)
    places = [place_of(wire, first, 0), place_of(wire, first, 1), place_of(wire, second)]
    fill(wire, first, 2, partition=0)
    fill(wire, first, 3, partition=1)
    fill(wire, second, 4)
    reader = ShareReader(wire, group, *places)
    got: dict[Place, list[int]] = {}

    def all_came() -> bool:
        got.update({place: one.offsets for place, one in reader.fetch().items() if one.offsets})
        return len(got) == 3

    eventually(all_came)
    assert got == {places[0]: [0, 1], places[1]: [0, 1, 2], places[2]: [0, 1, 2, 3]}
    answer = reader.acknowledge({place: [(0, len(offsets) - 1, [ACCEPT])] for place, offsets in got.items()})
    codes = [one["error_code"] for found in answer["responses"] for one in found["partitions"]]
    assert codes == [NONE] * 3


def test_the_record_limit_counts_over_all_partitions(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=3)
    open_group(wire, group, topic)
    for partition in range(3):
        fill(wire, topic, 4, partition=partition)
    reader = ShareReader(wire, group, *(place_of(wire, topic, partition) for partition in range(3)))
    seen: list[tuple[Place, int]] = []

    def all_came() -> bool:
        got = reader.fetch(max_records=5, share_acquire_mode=RECORD_LIMIT)
        now = [(place, offset) for place, one in got.items() for offset in one.offsets]
        assert len(now) <= 5
        seen.extend(now)
        return len(seen) >= 12

    eventually(all_came)
    assert len(seen) == len(set(seen)) == 12


def test_a_topic_listed_twice(wire: Connection, group: str, make_topic: MakeTopic) -> None:
    """As librdkafka sends it: each entry with partitions of its own."""
    topic = make_topic(partitions=2)
    open_group(wire, group, topic)
    for partition in range(2):
        fill(wire, topic, 2, partition=partition)
    reader = ShareReader(wire, group)
    places = [place_of(wire, topic, partition) for partition in range(2)]
    topics: list[Body] = [
        {"topic_id": id_, "partitions": [{"partition_index": partition}]} for id_, partition in places
    ]
    got: dict[Place, list[int]] = {}

    def both_came(more: list[Body]) -> bool:
        answer = reader.try_fetch(topics=more)
        assert answer["error_code"] == NONE, answer
        got.update({place: one.offsets for place, one in results(answer).items() if one.offsets})
        return len(got) == 2

    both_came(topics)
    eventually(lambda: len(got) == 2 or both_came([]))
    assert got == {place: [0, 1] for place in places}


def test_an_unknown_partition(wire: Connection, topic: str, opened: str, at: Place) -> None:
    fill(wire, topic, 1)
    beyond = (at[0], 7)
    reader = ShareReader(wire, opened, at, beyond)
    got = reader.fetch()
    assert (got[beyond].error, got[beyond].records) == (UNKNOWN_TOPIC_OR_PARTITION, b"")
    assert got[at].error == NONE
    assert got[at].offsets == [0] or reader.some().offsets == [0]


def test_an_unknown_topic(wire: Connection, topic: str, opened: str, at: Place) -> None:
    """Kafka 4.3 answers -1 for the whole request, as long as the session has the topic."""
    fill(wire, topic, 1)
    nowhere = (uuid.uuid4().bytes, 0)
    reader = ShareReader(wire, opened, at, nowhere)
    answer = reader.try_fetch()
    assert answer["error_code"] == differs(kafka=UNKNOWN_SERVER_ERROR, skidway=NONE)
    if answer["error_code"] == NONE:
        got = results(answer)
        assert (got[nowhere].error, got[nowhere].records) == (UNKNOWN_TOPIC_ID, b"")
        assert got[at].offsets == [0] or reader.some().offsets == [0]


@pytest.mark.parametrize("member", [None, "", "m" * 37])
def test_bad_member_ids(wire: Connection, opened: str, at: Place, member: str | None) -> None:
    reader = ShareReader(wire, opened, at)
    answer = reader.try_fetch(member_id=member)
    assert (answer["error_code"], answer["responses"]) == (INVALID_REQUEST, [])
    assert reader.acknowledge({at: [(0, 0, [ACCEPT])]}, member_id=member, epoch=1)["error_code"] == INVALID_REQUEST


def test_no_group_id(wire: Connection, at: Place) -> None:
    reader = ShareReader(wire, "", at)
    answer = reader.try_fetch(group_id=None)
    assert (answer["error_code"], answer["responses"]) == (INVALID_REQUEST, [])
    assert reader.acknowledge({at: [(0, 0, [ACCEPT])]}, group_id=None, epoch=1)["error_code"] == INVALID_REQUEST


def test_an_empty_group_id(wire: Connection, at: Place) -> None:
    """Kafka finds out when it looks for the group's state, and refuses each partition."""
    reader = ShareReader(wire, "", at)
    assert reader.try_fetch()["error_code"] == differs(kafka=NONE, skidway=INVALID_REQUEST)
    assert not any(got.acquired for got in results(reader.answer).values())


def test_any_member_id_of_36_characters_will_do(wire: Connection, topic: str, opened: str, at: Place) -> None:
    fill(wire, topic, 1)
    reader = ShareReader(wire, opened, at)
    reader.id = "x" * 36
    assert reader.some().offsets == [0]


def test_groups_do_not_see_each_other(wire: Connection, topic: str, group: str, at: Place) -> None:
    fill(wire, topic, 3)
    for number in range(2):
        name = f"{group}-{number}"
        open_group(wire, name, topic)
        reader = ShareReader(wire, name, at)
        assert reader.some().acquired == [(0, 2, 1)]
        assert reader.ack((0, 2, [ACCEPT])) == NONE


def test_an_unknown_acquire_mode(reader: ShareReader) -> None:
    answer = reader.try_fetch(share_acquire_mode=9)
    assert answer["error_code"] == differs(kafka=UNKNOWN_SERVER_ERROR, skidway=INVALID_REQUEST)


def test_no_records_wanted(wire: Connection, topic: str, reader: ShareReader) -> None:
    fill(wire, topic, 2)
    answer = reader.try_fetch(max_records=0)
    assert (answer["error_code"], [got for got in results(answer).values() if got.acquired]) == (NONE, [])
    assert reader.some().acquired == [(0, 1, 1)]
