"""Rows to record batches, compiled: a first pass finds where a batch ends, a second writes it into just that room."""

import numpy as np
import numpy.typing as npt

from skidway.records.batch import HEADER, HEADER_BYTES, MAGIC, NO_PRODUCER_ID, NO_SEQUENCE, PREFIX_BYTES
from skidway.records.compression import Codec, compress
from skidway.spark.codec.compiling import compiled, copy_bytes, inlined
from skidway.spark.codec.rows import Bytes, Fields, Numbers, Rows

_MASK = 0xFFFFFFFF
_MULTIPLIER = 0x5BD1E995
_SEED = 0x9747B28C


@inlined
def number_bytes(number: int) -> int:
    """Of a zigzag varint, of -1 or more."""
    value = number << 1 if number >= 0 else 1
    size = 1
    while value > 0x7F:
        value >>= 7
        size += 1
    return size


@inlined
def write_number(target: Bytes, position: int, number: int) -> int:
    value = number << 1 if number >= 0 else 1
    while value > 0x7F:
        target[position] = value & 0x7F | 0x80
        value >>= 7
        position += 1
    target[position] = value
    return position + 1


@inlined
def write_field(target: Bytes, position: int, source: Bytes, place: int, length: int) -> int:
    """The position after the field; -1 when it is not where it should be."""
    position = write_number(target, position, length)
    if length > 0:
        position = position + length if copy_bytes(target, position, source, place, length) else -1
    return position


@compiled
def measure_headers(places: Numbers, counts: Numbers, names: Numbers, values: Numbers, sizes: Numbers) -> None:
    for row in range(len(places)):
        size = number_bytes(counts[row])
        for index in range(places[row], places[row] + counts[row]):
            size += number_bytes(names[index]) + names[index]
            size += number_bytes(values[index]) + max(values[index], 0)
        sizes[row] = size


@inlined
def body_bytes(offset_delta: int, key_bytes: int, value_bytes: int, headers_bytes: int) -> int:
    """Of a record, without its own length. Attributes and timestamp delta are one byte each: all are of one time."""
    size = 2 + number_bytes(offset_delta) + number_bytes(key_bytes) + max(key_bytes, 0)
    return size + number_bytes(value_bytes) + max(value_bytes, 0) + headers_bytes


@compiled
def find_end(
    keys: Numbers, values: Numbers, headers: Numbers, start: int, batch_bytes: int, records_max: int
) -> tuple[int, int]:
    size = 0
    row = start
    while row < len(values):
        body = body_bytes(row - start, keys[row], values[row], headers[row])
        record_bytes = number_bytes(body) + body
        if row > start and (row - start == records_max or size + record_bytes > batch_bytes):
            break
        size += record_bytes
        row += 1
    return row, size


@compiled
def write_records(
    target: Bytes,
    position: int,
    start: int,
    end: int,
    key_source: Bytes,
    key_places: Numbers,
    key_lengths: Numbers,
    value_source: Bytes,
    value_places: Numbers,
    value_lengths: Numbers,
    headers_bytes: Numbers,
    header_places: Numbers,
    header_counts: Numbers,
    name_source: Bytes,
    name_places: Numbers,
    name_lengths: Numbers,
    pair_source: Bytes,
    pair_places: Numbers,
    pair_lengths: Numbers,
) -> int:
    """The position after the last record; -1 when there is not the room or a field is not in its array."""
    for row in range(start, end):
        body = body_bytes(row - start, key_lengths[row], value_lengths[row], headers_bytes[row])
        if body + number_bytes(body) > len(target) - position:
            return -1
        position = write_number(target, position, body)
        target[position] = target[position + 1] = 0
        position = write_number(target, position + 2, row - start)
        position = write_field(target, position, key_source, key_places[row], key_lengths[row])
        if position < 0:
            return -1
        position = write_field(target, position, value_source, value_places[row], value_lengths[row])
        if position < 0:
            return -1
        position = write_number(target, position, header_counts[row])
        for index in range(header_places[row], header_places[row] + header_counts[row]):
            position = write_field(target, position, name_source, name_places[index], name_lengths[index])
            if position < 0:
                return -1
            position = write_field(target, position, pair_source, pair_places[index], pair_lengths[index])
            if position < 0:
                return -1
    return position


@compiled
def hash_keys(
    source: Bytes, places: Numbers, lengths: Numbers, partition_count: int, chosen: npt.NDArray[np.int32]
) -> None:
    """MurmurHash2 with Kafka's seed, as `blocking_client.partitioners` has it; -1 for null and what is outside."""
    for row in range(len(places)):
        place, length = places[row], lengths[row]
        if length < 0 or place < 0 or length > len(source) - place:
            chosen[row] = -1
            continue
        h = _SEED ^ length
        whole = place + (length & ~3)
        for at in range(place, whole, 4):
            k = int(source[at]) | int(source[at + 1]) << 8 | int(source[at + 2]) << 16 | int(source[at + 3]) << 24
            k = k * _MULTIPLIER & _MASK
            k = (k ^ k >> 24) * _MULTIPLIER & _MASK
            h = h * _MULTIPLIER & _MASK ^ k
        if length & 3:
            for index in range(length & 3):
                h ^= int(source[whole + index]) << (8 * index)
            h = h * _MULTIPLIER & _MASK
        h = (h ^ h >> 13) * _MULTIPLIER & _MASK
        chosen[row] = ((h ^ h >> 15) & 0x7FFFFFFF) % partition_count


class KernelWriter:
    """Remembers how large the headers of the last rows are, which each of their batches asks."""

    __slots__ = ("_headers_bytes", "_measured")

    def __init__(self) -> None:
        self._measured: Rows | None = None
        self._headers_bytes: Numbers = np.empty(0, np.int64)

    def payload_end(self, rows: Rows, start: int, batch_bytes: int, records_max: int) -> tuple[int, int]:
        headers = self._measure(rows)
        keys, values = rows.keys.lengths, rows.values.lengths
        return find_end(keys, values, headers, start, batch_bytes - HEADER_BYTES, records_max)

    def batch(self, rows: Rows, start: int, end: int, size: int, timestamp_ms: int, codec: int) -> bytearray:
        """Whole but for its checksum."""
        batch = bytearray(HEADER_BYTES + size)
        written = write_records(
            np.frombuffer(batch, np.uint8),
            HEADER_BYTES,
            start,
            end,
            *_parts(rows.keys),
            *_parts(rows.values),
            self._measure(rows),
            rows.header_places,
            rows.header_counts,
            *_parts(rows.names),
            *_parts(rows.header_values),
        )
        assert written == len(batch), "the rows changed while they were written"
        if codec != Codec.NONE:
            packed = compress(codec, memoryview(batch)[HEADER_BYTES:])
            batch = bytearray(HEADER_BYTES)
            batch += packed
        _write_header(batch, codec, end - start, timestamp_ms)
        return batch

    def partitions(self, keys: Fields, partition_count: int) -> npt.NDArray[np.int32]:
        chosen = np.empty(len(keys), np.int32)
        hash_keys(*_parts(keys), partition_count, chosen)
        return chosen

    def _measure(self, rows: Rows) -> Numbers:
        if self._measured is not rows:
            self._headers_bytes = np.empty(len(rows), np.int64)
            names, values = rows.names.lengths, rows.header_values.lengths
            measure_headers(rows.header_places, rows.header_counts, names, values, self._headers_bytes)
            self._measured = rows
        return self._headers_bytes


def _parts(fields: Fields) -> tuple[Bytes, Numbers, Numbers]:
    return fields.source, fields.places, fields.lengths


def _write_header(batch: bytearray, codec: int, records: int, timestamp_ms: int) -> None:
    HEADER.pack_into(
        batch,
        0,
        0,
        len(batch) - PREFIX_BYTES,
        -1,
        MAGIC,
        0,
        codec,
        records - 1,
        timestamp_ms,
        timestamp_ms,
        NO_PRODUCER_ID,
        -1,
        NO_SEQUENCE,
        records,
    )
