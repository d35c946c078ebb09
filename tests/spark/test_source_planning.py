"""Ranges, shares and losses, as arithmetic: no broker, no Spark."""

import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skidway.spark.source.offsets import Offsets
from skidway.spark.source.planning import DataLoss, LossReport, OffsetRange, bundle, clip, plan, share, split
from skidway.spark.source.streaming import Mark

STRICT = LossReport(fail=True)
LENIENT = LossReport(fail=False)


def spans(ranges: list[OffsetRange]) -> list[tuple[str, int, int, int]]:
    return [(part.topic, part.partition, part.start, part.end) for part in ranges]


def test_a_plan_has_a_range_for_each_partition_with_something_new() -> None:
    start, end = {("a", 0): 5, ("a", 1): 7}, {("a", 0): 9, ("a", 1): 7}
    assert spans(plan(start, end, {}, dict.fromkeys(end, 0), (), STRICT)) == [("a", 0, 5, 9)]


def test_a_partition_that_is_new_is_read_from_its_beginning() -> None:
    end = {("a", 0): 9, ("a", 1): 4}
    assert spans(plan({("a", 0): 9}, end, {}, dict.fromkeys(end, 0), (), STRICT)) == [("a", 1, 0, 4)]


def test_a_topic_that_is_new_may_begin_anywhere_but_a_new_partition_of_a_known_one_may_not() -> None:
    end = {("a", 0): 9, ("a", 1): 9, ("b", 0): 9}
    starts = {("a", 0): 0, ("a", 1): 0, ("b", 0): 3}
    assert ("b", 0, 3, 9) in spans(plan({("a", 0): 9}, end, {}, starts, (), STRICT))
    starts["a", 1] = 2
    with pytest.raises(DataLoss, match="a partition 1 is new and its first 2 offsets are gone"):
        plan({("a", 0): 9}, end, {}, starts, (), STRICT)


@pytest.mark.parametrize(
    ("start", "end", "log_starts", "reset", "words", "left"),
    [
        ({("a", 0): 2}, {("a", 0): 9}, {("a", 0): 5}, (), "offsets 2 to 5 were deleted", [("a", 0, 5, 9)]),
        ({("a", 0): 2}, {("a", 0): 9}, {("a", 0): 20}, (), "offsets 2 to 9 were deleted", []),
        ({("a", 0): 12}, {("a", 0): 9}, {("a", 0): 0}, (), "read to offset 12 and now ends at 9", [("a", 0, 0, 9)]),
        ({("a", 0): 2, ("b", 0): 7}, {("a", 0): 2}, {("a", 0): 0}, (), "b partition 0 is gone", []),
        ({("a", 0): 2}, {("a", 0): 9}, {}, (), "a partition 0 is gone, with offsets up to 9", []),
        ({("a", 0): 2}, {("a", 0): 9}, {("a", 0): 0}, ("a",), "deleted and made again", [("a", 0, 0, 9)]),
    ],
)
def test_what_is_lost_fails_the_plan_or_is_warned_of_and_the_rest_is_read(
    start: Offsets,
    end: Offsets,
    log_starts: Offsets,
    reset: tuple[str, ...],
    words: str,
    left: list[tuple[str, int, int, int]],
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(DataLoss, match=words) as failed:
        plan(start, end, {}, log_starts, reset, STRICT)
    assert "set option failOnDataLoss to false" in str(failed.value)
    with caplog.at_level(logging.WARNING):
        assert spans(plan(start, end, {}, log_starts, reset, LENIENT)) == left
    assert words in caplog.text


def test_an_end_beyond_the_log_is_a_loss() -> None:
    with pytest.raises(DataLoss, match="ends at offset 4; asked for were records to 9"):
        clip({("a", 0): 9}, {("a", 0): 4}, STRICT)
    assert clip({("a", 0): 9, ("a", 1): 2}, {("a", 0): 4, ("a", 1): 4}, LENIENT) == {("a", 0): 4, ("a", 1): 2}


def test_a_limit_is_shared_in_proportion_and_nobody_starves() -> None:
    start = {("a", 0): 0, ("a", 1): 100, ("a", 2): 50}
    end = {("a", 0): 9_000, ("a", 1): 1_100, ("a", 2): 51}
    assert share(100, start, end) == {("a", 0): 89, ("a", 1): 109, ("a", 2): 51}
    assert share(20_000, start, end) == end


@given(
    st.dictionaries(
        st.tuples(st.just("t"), st.integers(0, 20)),
        st.tuples(st.integers(0, 10**12), st.integers(0, 10**6)),
        min_size=1,
    ),
    st.integers(1, 10**6),
)
def test_a_share_lies_between_start_and_end_and_goes_on(
    partitions: dict[tuple[str, int], tuple[int, int]], limit: int
) -> None:
    start = {place: begin for place, (begin, _) in partitions.items()}
    end = {place: begin + size for place, (begin, size) in partitions.items()}
    admitted = share(limit, start, end)
    assert all(start[place] <= admitted[place] <= end[place] for place in end)
    assert admitted != start or end == start
    assert sum(admitted[place] - start[place] for place in end) <= limit + len(end)


@given(
    st.lists(st.tuples(st.integers(0, 10**9), st.integers(1, 10**6)), min_size=1, max_size=20),
    st.none() | st.integers(1, 200),
    st.none() | st.integers(10_000, 10**6),
)
def test_splitting_loses_and_doubles_nothing(
    sizes: list[tuple[int, int]], min_partitions: int | None, max_records: int | None
) -> None:
    ranges = [OffsetRange("t", number, begin, begin + size) for number, (begin, size) in enumerate(sizes)]
    parts = split(ranges, min_partitions=min_partitions, max_records=max_records)
    for whole in ranges:
        edges = [(part.start, part.end) for part in parts if part.partition == whole.partition]
        assert edges[0][0] == whole.start
        assert edges[-1][1] == whole.end
        assert all(before[1] == after[0] for before, after in pairwise(edges))
        assert all(begin < end for begin, end in edges)
    if max_records is not None:
        assert all(part.size <= max_records for part in parts)


def test_min_partitions_cuts_the_large_ones() -> None:
    ranges = [OffsetRange("t", 0, 0, 1_000), OffsetRange("t", 1, 0, 10), OffsetRange("t", 2, 0, 500)]
    parts = split(ranges, min_partitions=10)
    assert [part.partition for part in parts].count(1) == 1
    assert [part.partition for part in parts].count(0) == 6
    assert [part.partition for part in parts].count(2) == 3
    assert len(split(ranges, min_partitions=3)) == 3


def test_a_mark_survives_the_checkpoint() -> None:
    mark = Mark({("a", 0): 5, ("a", 11): 6, ("b", 2): 7}, {"a": b"\1" * 16, "b": bytes(16)}, {("a", 0): 1})
    document = mark.to_json()
    assert document["a"] == {"0": 5, "11": 6}
    assert Mark.from_json(document) == mark


def test_offsets_as_the_kafka_connector_wrote_them_are_a_mark() -> None:
    assert Mark.from_json({"a": {"0": 5}}) == Mark({("a", 0): 5}, {})


def test_only_a_topic_whose_id_is_known_both_times_can_be_seen_to_be_another() -> None:
    mark = Mark({("a", 0): 5}, {"a": b"\1" * 16, "b": bytes(16), "c": b"\3" * 16})
    assert mark.made_anew({"a": b"\2" * 16, "b": b"\2" * 16}) == ["a"]


def test_very_many_small_ranges_share_tasks() -> None:
    ranges = [OffsetRange("t", number, 0, 1 + number % 3) for number in range(1_000)]
    tasks = bundle(ranges)
    assert [wanted for task in tasks for wanted in task] == ranges
    assert 150 < len(tasks) <= 300


def test_a_large_range_among_many_small_ones_has_a_task_of_its_own() -> None:
    ranges = [OffsetRange("t", number, 0, 1_000_000 if number == 500 else 1) for number in range(1_000)]
    (large,) = [task for task in bundle(ranges) if any(wanted.partition == 500 for wanted in task)]
    assert large == (ranges[500],)


def test_as_many_tasks_as_were_asked_for() -> None:
    ranges = [OffsetRange("t", number, 0, 5) for number in range(1_000)]
    assert bundle(ranges, min_partitions=1_000) == [(wanted,) for wanted in ranges]
    assert bundle(ranges[:200]) == [(wanted,) for wanted in ranges[:200]]


def test_tasks_shared_stay_below_the_most_records_allowed() -> None:
    ranges = [OffsetRange("t", number, 0, 5) for number in range(1_000)]
    assert {sum(wanted.size for wanted in task) for task in bundle(ranges, max_records=10)} == {10}
