"""Rows of a table by where their records were: cut into slices that fit into memory, and held against each other.

A record is known by its topic, partition, offset and time: a topic that was deleted and made again counts its offsets
from 0 once more.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

IDENTITY = ("topic", "partition", "offset", "timestamp")
SLICE_ROWS_MAX = 50_000
SLICE_BYTES_MAX = 128 * 1024 * 1024

Identity = tuple[str, int, int, Any]


@dataclass(slots=True)
class Slice:
    """begin <= offset < end of one partition."""

    topic: str
    partition: int
    begin: int
    end: int

    def filter(self) -> pc.Expression:
        """Of a dataset; readers pass over files and row groups that have nothing of it."""
        place = (pc.field("topic") == self.topic) & (pc.field("partition") == self.partition)
        return place & (pc.field("offset") >= self.begin) & (pc.field("offset") < self.end)

    def mask(self, rows: pa.Table | pa.RecordBatch) -> pa.Array:
        """True where a row is in it."""
        place = pc.and_(
            pc.equal(rows.column("topic"), self.topic),
            pc.equal(rows.column("partition"), pa.scalar(self.partition, rows.schema.field("partition").type)),
        )
        offsets = rows.column("offset")
        return pc.and_(place, pc.and_(pc.greater_equal(offsets, self.begin), pc.less(offsets, self.end)))


def slices_of(
    batches: Iterable[pa.RecordBatch], rows_max: int = SLICE_ROWS_MAX, bytes_max: int = SLICE_BYTES_MAX
) -> Iterator[Slice]:
    """In order. The batches have topic, partition, offset and value, whose length counts."""
    found: dict[tuple[str, int], list[pa.Table]] = {}
    for batch in batches:
        sizes = pc.fill_null(pc.binary_length(batch.column("value")), 0).cast(pa.int64())
        columns = {"topic": batch.column("topic"), "partition": batch.column("partition")}
        table = pa.table({**columns, "offset": batch.column("offset").cast(pa.int64()), "size": sizes})
        for place in table.group_by(["topic", "partition"]).aggregate([]).to_pylist():
            at = pc.and_(
                pc.equal(table["topic"], place["topic"]),
                pc.equal(table["partition"], pa.scalar(place["partition"], table["partition"].type)),
            )
            found.setdefault((place["topic"], place["partition"]), []).append(
                table.filter(at).select(["offset", "size"])
            )
    for (topic, partition), parts in sorted(found.items()):
        for begin, end in _cuts(pa.concat_tables(parts).sort_by("offset"), rows_max, bytes_max):
            yield Slice(topic, partition, begin, end)


def _cuts(rows: pa.Table, rows_max: int, bytes_max: int) -> Iterator[tuple[int, int]]:
    """Records of one offset stay together."""
    begin = last = -1
    count = size = 0
    for batch in rows.to_batches(max_chunksize=100_000):
        for offset, length in zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True):
            if count and offset != last and (count >= rows_max or size + length > bytes_max):
                yield begin, offset
                count = size = 0
            begin = offset if count == 0 else begin
            count, size, last = count + 1, size + length, offset
    if count:
        yield begin, last + 1


def identities(rows: pa.Table | pa.RecordBatch) -> list[Identity]:
    """Of each row, with times in microseconds."""
    times = rows.column("timestamp").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    names = (rows.column(name).to_pylist() for name in ("topic", "partition", "offset"))
    return list(zip(*names, times.to_pylist(), strict=True))


def where(rows: pa.Table, chosen: Iterable[bool]) -> pa.Table:
    return rows.filter(pa.array(list(chosen), pa.bool_()))
