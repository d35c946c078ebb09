"""Arrow columns to record batches as a Produce request takes them, and which partition each row goes to.

    encoder = Encoder(values, keys, headers)
    for topic, partition, rows in group_rows(topics, partition_of(keys, 6)):
        for batch in encoder.encode(rows, timestamp_ms=now, batch_bytes=1_000_000, codec=Codec.LZ4):
            stamp_producer(batch, producer_id, epoch, sequence)

A batch is whole but for its checksum, which `stamp_producer` writes along with what the producer decides late.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skidway.limits import DEFAULT_LIMITS
from skidway.records.batch import CHECKED_POSITION, NO_PRODUCER_ID, NO_SEQUENCE, TRANSACTIONAL_BIT, set_crc
from skidway.spark.codec.rows import Fields, Numbers, Rows, fields_of, rows_of

Kernel = Literal["auto", "numba", "python"]

RECORDS_MAX = DEFAULT_LIMITS.batch_records_max
"""In one batch; a broker refuses more."""
_ATTRIBUTES = Struct(">h")
_PRODUCER = Struct(">qhi")
_PRODUCER_POSITION = 43


@dataclass(slots=True)
class EncodedBatch:
    buffer: bytearray
    records: int


class RowGroup(NamedTuple):
    """The rows of one partition, in their order."""

    topic: str
    partition: int
    rows: Numbers


class Writer(Protocol):
    def payload_end(self, rows: Rows, start: int, batch_bytes: int, records_max: int) -> tuple[int, int]: ...

    def batch(self, rows: Rows, start: int, end: int, size: int, timestamp_ms: int, codec: int) -> bytearray: ...

    def partitions(self, keys: Fields, partition_count: int) -> npt.NDArray[np.int32]: ...


class Encoder:
    """Rows of one Arrow table. The columns are looked at once, however many partitions their rows go to."""

    __slots__ = ("_rows", "_writer")

    def __init__(
        self,
        values: pa.Array,
        keys: pa.Array | None = None,
        headers: pa.Array | None = None,
        *,
        kernel: Kernel = "auto",
    ) -> None:
        """ValueError, naming column and row, for what cannot be written."""
        self._rows = rows_of(values, keys, headers)
        self._writer = _writer(kernel)

    def encode(
        self, rows: Numbers | None = None, *, timestamp_ms: int, batch_bytes: int, codec: int
    ) -> Iterator[EncodedBatch]:
        """Batches of at most `batch_bytes` before compression; a single larger record has one of its own."""
        chosen = self._rows if rows is None else self._rows.take(rows)
        start = 0
        while start < len(chosen):
            end, size = self._writer.payload_end(chosen, start, batch_bytes, RECORDS_MAX)
            yield EncodedBatch(self._writer.batch(chosen, start, end, size, timestamp_ms, codec), end - start)
            start = end


def encode_batches(
    values: pa.Array,
    keys: pa.Array | None,
    headers: pa.Array | None,
    *,
    timestamp_ms: int,
    batch_bytes: int,
    codec: int,
    kernel: Kernel = "auto",
) -> list[EncodedBatch]:
    encoder = Encoder(values, keys, headers, kernel=kernel)
    return list(encoder.encode(timestamp_ms=timestamp_ms, batch_bytes=batch_bytes, codec=codec))


def stamp_producer(
    batch: EncodedBatch,
    producer_id: int = NO_PRODUCER_ID,
    epoch: int = -1,
    sequence: int = NO_SEQUENCE,
    *,
    transactional: bool = False,
) -> None:
    """Who sends the batch, in place, and the checksum. May be done again: a new epoch, another sequence."""
    attributes: int = _ATTRIBUTES.unpack_from(batch.buffer, CHECKED_POSITION)[0] & ~TRANSACTIONAL_BIT
    if transactional:
        attributes |= TRANSACTIONAL_BIT
    _ATTRIBUTES.pack_into(batch.buffer, CHECKED_POSITION, attributes)
    _PRODUCER.pack_into(batch.buffer, _PRODUCER_POSITION, producer_id, epoch, sequence)
    set_crc(batch.buffer)


def partition_of(keys: pa.Array, partitions: int, *, kernel: Kernel = "auto") -> npt.NDArray[np.int32]:
    """As Java's default partitioner chooses by key; -1 where there is none."""
    assert partitions > 0
    return _writer(kernel).partitions(fields_of(keys, "key"), partitions)


def group_rows(topics: pa.Array | str, partitions: npt.NDArray[np.int32]) -> list[RowGroup]:
    """Which rows go to which partition: by topic in the order of first appearance, then by partition."""
    count = len(partitions)
    if not count:
        return []
    names, codes = [topics], np.zeros(count, np.int64)
    if not isinstance(topics, str):
        names, codes = _topic_codes(topics)
        assert len(codes) == count, "one topic for each row"
    lowest = int(partitions.min())
    width = int(partitions.max()) - lowest + 1
    combined = codes * width + (partitions - lowest)
    # numpy sorts short numbers by radix, several times as fast.
    order = np.argsort(combined.astype(np.int16) if combined.max() < 2**15 else combined, kind="stable")
    ordered = combined[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    groups = []
    for rows in np.split(order, starts[1:]):
        code, partition = divmod(int(combined[rows[0]]), width)
        groups.append(RowGroup(str(names[code]), partition + lowest, rows))
    return groups


def _topic_codes(topics: pa.Array | pa.ChunkedArray) -> tuple[list[str], Numbers]:
    if isinstance(topics, pa.ChunkedArray):
        topics = topics.combine_chunks()
    if topics.null_count:
        row = int(np.flatnonzero(topics.is_null().to_numpy(zero_copy_only=False))[0])
        raise ValueError(f"row {row} has no topic; set the option 'topic' or fill the column")
    encoded = topics if pa.types.is_dictionary(topics.type) else topics.dictionary_encode()
    return encoded.dictionary.to_pylist(), encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)


def _writer(kernel: Kernel) -> Writer:
    if kernel != "python":
        try:
            from skidway.spark.codec.encode_kernel import KernelWriter

            return KernelWriter()
        except ImportError:
            if kernel == "numba":
                raise
    from skidway.spark.codec.encode_python import PythonWriter

    return PythonWriter()
