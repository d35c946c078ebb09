"""Which row goes to which partition, and that rows of one partition stay in order."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest

from skidway.blocking_client.partitioners import partition_of_key
from skidway.spark.sink.routing import BadRow, Router

COUNTS = {"a": 3, "b": 7, "c": 1}


def rows(**columns: list[Any]) -> Any:
    types = {"topic": pa.string(), "partition": pa.int32(), "key": pa.binary(), "value": pa.binary()}
    return pa.record_batch({name: pa.array(values, types.get(name)) for name, values in columns.items()})


def route(
    batch: Any, *, topic: str | None = None, counts: Mapping[str, int] = COUNTS, size: int = 1000
) -> dict[tuple[str, int], list[bytes]]:
    """The values for each partition, in their order."""
    groups = Router(topic, counts.__getitem__, size, seed=1).route(batch)
    where = [(group.topic, group.partition) for group in groups]
    assert len(where) == len(set(where)), "one group for each partition"
    values = batch.column("value").to_pylist()
    return {(group.topic, group.partition): [values[row] for row in group.rows] for group in groups}


def test_keys_go_where_kafkas_default_partitioner_sends_them() -> None:
    keys = [b"%d" % (number % 50) for number in range(500)]
    values = [b"v%d" % number for number in range(500)]
    expected: dict[tuple[str, int], list[bytes]] = {}
    for key, value in zip(keys, values, strict=True):
        expected.setdefault(("b", partition_of_key(key, 7)), []).append(value)
    assert route(rows(key=keys, value=values), topic="b") == expected


def test_each_row_may_name_its_topic_and_partition() -> None:
    batch = rows(
        topic=["a", "b", "a", "c", "b", "a"],
        partition=[2, 6, None, None, None, 2],
        key=[b"k", None, b"k", b"k", b"k", None],
        value=[b"0", b"1", b"2", b"3", b"4", b"5"],
    )
    groups = route(batch)
    assert groups[("a", 2)][0] == b"0"
    assert groups[("a", 2)][-1] == b"5"
    assert groups[("b", 6)][0] == b"1"
    assert b"2" in groups[("a", partition_of_key(b"k", 3))]
    assert groups[("c", 0)] == [b"3"]
    assert b"4" in groups[("b", partition_of_key(b"k", 7))]
    assert sorted(value for group in groups.values() for value in group) == [b"%d" % n for n in range(6)]


def test_the_option_wins_over_the_column() -> None:
    assert set(route(rows(topic=["a", None], value=[b"0", b"1"]), topic="c")) == {("c", 0)}


def test_rows_without_a_key_fill_one_batch_after_the_other() -> None:
    router = Router("a", COUNTS.__getitem__, batch_bytes=1160, seed=1)
    runs: list[tuple[int, int]] = []
    for _ in range(3):
        for group in router.route(rows(value=[b"x" * 100] * 20)):
            runs.append((group.partition, len(group.rows)))
    # 116 bytes a row with its overhead: ten rows fill a batch, and the next goes elsewhere.
    assert [count for _, count in runs] == [10] * 6
    assert sorted(partition for partition, _ in runs) == [0, 0, 1, 1, 2, 2]


def test_a_slice_of_a_batch_is_routed_as_itself() -> None:
    whole = rows(key=[b"%d" % n for n in range(100)], value=[b"v%d" % n for n in range(100)])
    groups = route(whole.slice(40, 20), topic="a")
    assert sorted(value for group in groups.values() for value in group) == sorted(b"v%d" % n for n in range(40, 60))


def test_more_partitions_than_a_short_number_holds() -> None:
    counts = {"a": 60_000, "b": 60_000}
    batch = rows(topic=["b", "a", "b"], partition=[59_999, 3, 0], value=[b"0", b"1", b"2"])
    assert route(batch, counts=counts) == {("b", 59_999): [b"0"], ("a", 3): [b"1"], ("b", 0): [b"2"]}


def test_no_rows_no_groups() -> None:
    assert route(rows(value=[]), topic="a") == {}


def test_a_null_topic_is_refused() -> None:
    with pytest.raises(BadRow, match="a row has a null topic; set option topic"):
        route(rows(topic=["a", None], value=[b"0", b"1"]))


@pytest.mark.parametrize("partition", [3, -1, 2**31 - 1])
def test_a_partition_that_does_not_exist_is_refused(partition: int) -> None:
    with pytest.raises(BadRow, match=rf"partition {partition} of topic a, which has 3 \(0 to 2\); correct the column"):
        route(rows(partition=[0, partition], value=[b"0", b"1"]), topic="a")
