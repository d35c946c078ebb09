"""Rows to record batches without a compiler: slow, simple, and what the kernel is held against, byte for byte."""

import numpy as np
import numpy.typing as npt

from skidway.blocking_client.partitioners import partition_of_key
from skidway.records.batch import HEADER_BYTES
from skidway.records.record import Record, build_batch
from skidway.spark.codec.rows import Fields, Rows

_CRC = slice(17, 21)


class PythonWriter:
    def payload_end(self, rows: Rows, start: int, batch_bytes: int, records_max: int) -> tuple[int, int]:
        """One past the last row of the batch that begins with row `start`, and how large its records are."""
        size = 0
        for row in range(start, len(rows)):
            delta = row - start
            record_bytes = _record_bytes(rows, row, delta)
            if delta and (delta == records_max or HEADER_BYTES + size + record_bytes > batch_bytes):
                return row, size
            size += record_bytes
        return len(rows), size

    def batch(self, rows: Rows, start: int, end: int, size: int, timestamp_ms: int, codec: int) -> bytearray:
        """Whole but for its checksum."""
        records = [_record(rows, row, timestamp_ms) for row in range(start, end)]
        batch = build_batch(records, codec=codec)
        batch[_CRC] = bytes(4)
        return batch

    def partitions(self, keys: Fields, partition_count: int) -> npt.NDArray[np.int32]:
        chosen = np.full(len(keys), -1, np.int32)
        for row in range(len(keys)):
            key = keys.field(row)
            if key is not None:
                chosen[row] = partition_of_key(key, partition_count)
        return chosen


def _record(rows: Rows, row: int, timestamp_ms: int) -> Record:
    first = int(rows.header_places[row])
    headers = []
    for index in range(first, first + int(rows.header_counts[row])):
        name = rows.names.field(index)
        assert name is not None, "checked when the rows were taken"
        headers.append((name.decode("utf-8", "surrogateescape"), rows.header_values.field(index)))
    return Record(0, timestamp_ms, rows.keys.field(row), rows.values.field(row), headers)


def _record_bytes(rows: Rows, row: int, offset_delta: int) -> int:
    # Attributes and timestamp delta are one byte each: all records are of one time.
    size = 2 + number_bytes(offset_delta) + number_bytes(int(rows.header_counts[row]))
    size += _field_bytes(int(rows.keys.lengths[row])) + _field_bytes(int(rows.values.lengths[row]))
    first = int(rows.header_places[row])
    for index in range(first, first + int(rows.header_counts[row])):
        size += _field_bytes(int(rows.names.lengths[index])) + _field_bytes(int(rows.header_values.lengths[index]))
    return number_bytes(size) + size


def _field_bytes(length: int) -> int:
    return number_bytes(length) + max(length, 0)


def number_bytes(number: int) -> int:
    """Of a zigzag varint, of -1 or more."""
    value = number << 1 if number >= 0 else 1
    return max((value.bit_length() + 6) // 7, 1)
