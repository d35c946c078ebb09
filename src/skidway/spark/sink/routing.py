"""Rows sorted out by the partition they go to: whole Arrow columns in, numbers of rows for each partition out.

A row goes to the partition its column says; without one, by its key as Kafka's default partitioner sends it; without
a key to a partition that changes when a batch is full. Rows of one partition keep their order.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from skidway.spark.codec.encoding import RowGroup, group_rows, partition_of
from skidway.spark.sink.options import KEY, PARTITION, TOPIC, VALUE

ROW_OVERHEAD_BYTES = 16
"""An upper guess of what a row takes beside its key and value."""


class BadRow(ValueError):
    """A row that has no place to go; the text says what to do."""


@dataclass(slots=True)
class _Turn:
    """Where rows without a key go in one topic, and how full the batch there is."""

    partition: int
    filled_bytes: int = 0


class Router:
    def __init__(
        self, topic: str | None, partition_count: Callable[[str], int], batch_bytes: int, seed: int | None = None
    ) -> None:
        """`topic` wins over the rows' own. `partition_count` may raise for a topic that does not exist."""
        self.topic = topic
        self.partition_count = partition_count
        self.batch_bytes = batch_bytes
        self._random = random.Random(seed)
        self._turns: dict[str, _Turn] = {}

    def route(self, rows: pa.RecordBatch) -> list[RowGroup]:
        """Which rows go where, as numbers of rows."""
        if rows.num_rows == 0:
            return []
        names, codes = self._topics(rows)
        counts = [self.partition_count(name) for name in names]
        partitions = self._partitions(rows, names, codes, counts).astype(np.int32)
        return group_rows(names[0] if len(names) == 1 else column_of(rows, TOPIC), partitions)

    def _topics(self, rows: pa.RecordBatch) -> tuple[list[str], NDArray[np.int64]]:
        """The topics that occur, and which of them each row is for."""
        if self.topic is not None:
            return [self.topic], np.zeros(rows.num_rows, dtype=np.int64)
        column = column_of(rows, TOPIC)
        if column is None or column.null_count:
            raise BadRow("a row has a null topic; set option topic, or fill the column topic in every row")
        encoded = column.dictionary_encode()
        return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)

    def _partitions(
        self, rows: pa.RecordBatch, names: list[str], codes: NDArray[np.int64], counts: list[int]
    ) -> NDArray[np.int64]:
        """Each row's partition; -1 stands for "not decided yet" until the end."""
        partitions = np.full(rows.num_rows, -1, dtype=np.int64)
        column = column_of(rows, PARTITION)
        if column is not None:
            partitions = _chosen(column, names, codes, np.asarray(counts))
        keys = column_of(rows, KEY)
        if keys is not None and keys.null_count < len(keys):
            for count in sorted(set(counts)):
                open_rows = (partitions < 0) & (np.asarray(counts)[codes] == count)
                if open_rows.any():
                    partitions = np.where(open_rows, partition_of(keys, count), partitions)
        left = partitions < 0
        if left.any():
            sizes = _sizes(rows)
            for code, name in enumerate(names):
                unkeyed = np.flatnonzero(left & (codes == code))
                if len(unkeyed):
                    partitions[unkeyed] = self._spread(name, counts[code], sizes[unkeyed])
        return partitions

    def _spread(self, topic: str, count: int, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
        """Fill one partition's batch after the other, going on where the last rows left off."""
        turn = self._turns.get(topic)
        if turn is None:
            turn = self._turns[topic] = _Turn(self._random.randrange(count))
        ends = turn.filled_bytes + np.cumsum(sizes)
        batches = (ends - sizes) // self.batch_bytes
        chosen: NDArray[np.int64] = (turn.partition + batches) % count
        turn.partition = (turn.partition + int(ends[-1]) // self.batch_bytes) % count
        turn.filled_bytes = int(ends[-1]) % self.batch_bytes
        return chosen


def _chosen(
    column: pa.Array, names: list[str], codes: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.int64]:
    given = pc.is_valid(column).to_numpy(zero_copy_only=False)
    partitions: NDArray[np.int64] = pc.fill_null(column, -1).to_numpy(zero_copy_only=False).astype(np.int64)
    wrong = np.flatnonzero(given & ((partitions < 0) | (partitions >= counts[codes])))
    if len(wrong):
        row = int(wrong[0])
        name, count = names[codes[row]], int(counts[codes[row]])
        raise BadRow(
            f"a row is for partition {partitions[row]} of topic {name}, which has {count} (0 to {count - 1}); "
            "correct the column partition, or leave it null to have one chosen"
        )
    return partitions


def _sizes(rows: pa.RecordBatch) -> NDArray[np.int64]:
    sizes = np.full(rows.num_rows, ROW_OVERHEAD_BYTES, dtype=np.int64)
    for name in (VALUE, KEY):
        column = column_of(rows, name)
        if column is not None:
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return sizes


def column_of(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    index = rows.schema.get_field_index(name)
    return None if index < 0 else rows.column(index)
