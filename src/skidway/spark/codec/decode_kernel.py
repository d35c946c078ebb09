"""Records to Arrow, compiled: one pass finds and checks the rows, a second copies the wanted columns.

The first pass holds every length and number against what is left and writes down where things lie; it accepts what
`records.unpack_records` accepts and nothing else. The copies are checked again against both arrays, so that even
bytes that change meanwhile cannot lead outside of them. What was wrong is told by reading again in Python.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from skidway.limits import INT64_MAX
from skidway.records.batch import TIMESTAMP_TYPE_BIT
from skidway.records.record import RECORD_BYTES_MIN, RECORD_HEADERS_MAX
from skidway.spark.codec.compiling import compiled, copy_bytes, inlined
from skidway.spark.codec.decode_python import explain, readable
from skidway.spark.codec.runs import (
    HEADERS_TYPE,
    TIMESTAMP_MS_MAX,
    TIMESTAMP_TYPE,
    MalformedRecord,
    Part,
    Piece,
    Run,
    Wanted,
)

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

# The lines of the table that `find_rows` fills, one column for each row.
OFFSET, TIMESTAMP, KEY_AT, KEY_BYTES, VALUE_AT, VALUE_BYTES = 0, 1, 2, 3, 4, 5
HEADERS_AT, HEADERS_END, HEADERS, NAMES_BYTES, HEADERS_BYTES = 6, 7, 8, 9, 10
LINES = 11

MALFORMED = 1 << 62
"""A position past everything. Whatever is read from there is malformed again, so that only the last read is checked."""
_RECORD_REST_MIN = RECORD_BYTES_MIN - 1


@inlined
def read_number(source: Bytes, position: int, limit: int, bits: int) -> tuple[int, int]:
    """A zigzag varint and the position after it; MALFORMED when it is too long, too large or passes the limit."""
    if position >= limit:
        return 0, MALFORMED
    byte = int(source[position])
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value = byte & 0x7F
    if position + 1 < limit and source[position + 1] < 0x80:
        value |= int(source[position + 1]) << 7
        return (value >> 1) ^ -(value & 1), position + 2
    shift = 7
    while True:
        position += 1
        if position >= limit or shift >= bits:
            return 0, MALFORMED
        byte = int(source[position])
        # The last byte of the longest form has more room than the number has bits.
        if shift + 7 > bits and byte >> (bits - shift):
            return 0, MALFORMED
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return ((value >> 1) & INT64_MAX) ^ -(value & 1), position + 1
        shift += 7


@inlined
def read_field(source: Bytes, position: int, end: int, length_min: int) -> tuple[int, int]:
    """The length of a field, -1 for null, and where its bytes begin; MALFORMED when they are not within the record."""
    length, position = read_number(source, position, end, 32)
    if length < length_min or length > end - position:
        return 0, MALFORMED
    return length, position


@inlined
def read_headers(source: Bytes, position: int, end: int, rows: Numbers, row: int) -> int:
    """The position after the headers. Their number and bytes go into the table."""
    count, position = read_number(source, position, end, 32)
    if count < 0 or count > (end - position) // 2 or count > RECORD_HEADERS_MAX:
        count, position = 0, MALFORMED
    rows[HEADERS_AT, row] = position
    rows[HEADERS, row] = count
    names_bytes = values_bytes = 0
    for _ in range(count):
        length, position = read_field(source, position, end, 0)
        names_bytes += length
        length, position = read_field(source, position + length, end, -1)
        values_bytes += max(length, 0)
        position += max(length, 0)
    rows[HEADERS_END, row] = position
    rows[NAMES_BYTES, row] = names_bytes
    rows[HEADERS_BYTES, row] = values_bytes
    return position


@inlined
def read_record(source: Bytes, position: int, limit: int, piece: Numbers, rows: Numbers, row: int) -> int:
    """The position after the record, whose places go into the table; MALFORMED when it is."""
    length, position = read_number(source, position, limit, 32)
    whole = _RECORD_REST_MIN <= length <= limit - position
    end = position + length if whole else 0
    delta, position = read_number(source, position + 1, end, 64)
    timestamp = piece[4]
    if not piece[6]:
        timestamp += delta  # wraps around at 64 bits, as in every client
    rows[TIMESTAMP, row] = min(max(timestamp, -TIMESTAMP_MS_MAX), TIMESTAMP_MS_MAX) * 1000
    delta, position = read_number(source, position, end, 32)
    if delta < 0 or delta > piece[3]:
        position = MALFORMED
    rows[OFFSET, row] = piece[2] + delta
    length, position = read_field(source, position, end, -1)
    rows[KEY_AT, row] = position
    rows[KEY_BYTES, row] = length
    length, position = read_field(source, position + max(length, 0), end, -1)
    rows[VALUE_AT, row] = position
    rows[VALUE_BYTES, row] = length
    position = read_headers(source, position + max(length, 0), end, rows, row)
    return position if position == end else MALFORMED


@compiled
def find_rows(source: Bytes, pieces: Numbers, cursor: Numbers, bounds: Numbers, rows: Numbers, totals: Numbers) -> int:
    """How many rows were written into the table until there were enough; -1 when one is malformed.

    `bounds` are the first offset, the one past the last, and how many rows and bytes are enough. `cursor` (piece,
    position, records read of it) is where to go on. `totals` are the bytes of keys and values, the number of headers,
    and the bytes of their names and values.
    """
    start, end, rows_max, bytes_max = bounds[0], bounds[1], min(bounds[2], rows.shape[1]), bounds[3]
    found = held_bytes = 0
    totals[:] = 0
    while cursor[0] < len(pieces):
        piece = pieces[cursor[0]]
        position, limit = cursor[1], piece[1]
        for done in range(cursor[2], piece[5]):
            cursor[1], cursor[2] = position, done
            if found == rows_max:
                return found
            position = read_record(source, position, limit, piece, rows, found)
            if position == MALFORMED:
                return -1
            if not start <= rows[OFFSET, found] < end:
                continue
            key_bytes, value_bytes = max(rows[KEY_BYTES, found], 0), max(rows[VALUE_BYTES, found], 0)
            size = key_bytes + value_bytes + rows[NAMES_BYTES, found] + rows[HEADERS_BYTES, found]
            if found and held_bytes + size > bytes_max:
                return found
            held_bytes += size
            totals[0] += key_bytes
            totals[1] += value_bytes
            totals[2] += rows[HEADERS, found]
            totals[3] += rows[NAMES_BYTES, found]
            totals[4] += rows[HEADERS_BYTES, found]
            found += 1
        if position != limit:
            return -1
        cursor[0] += 1
        cursor[2] = 0
        if cursor[0] < len(pieces):
            cursor[1] = pieces[cursor[0], 0]
    return found


@compiled
def gather(source: Bytes, places: Numbers, lengths: Numbers, ends: Any, bits: Bytes, target: Bytes) -> int:
    """Copies the fields one behind the other into the buffers of an Arrow array.

    Returns the number of nulls; -1 when something was out of bounds.
    """
    nulls = position = valid = 0
    ends[0] = 0
    for row in range(len(places)):
        length = lengths[row]
        if length >= 0:
            if not copy_bytes(target, position, source, places[row], length):
                return -1
            position += length
            valid |= 1 << (row & 7)
        else:
            nulls += 1
        ends[row + 1] = position
        if row & 7 == 7:
            bits[row >> 3] = valid
            valid = 0
    if len(places) & 7:
        bits[len(places) >> 3] = valid
    return nulls


@compiled
def find_headers(source: Bytes, rows: Numbers, rows_count: int, places: Numbers) -> bool:
    """Where all headers lie: name at, name bytes, value at, value bytes. False when they are not as they were."""
    found = 0
    for row in range(rows_count):
        position, end = rows[HEADERS_AT, row], rows[HEADERS_END, row]
        for _ in range(rows[HEADERS, row]):
            if found == places.shape[1]:
                return False
            length, position = read_field(source, position, end, 0)
            places[0, found], places[1, found] = position, length
            length, position = read_field(source, position + length, end, -1)
            places[2, found], places[3, found] = position, length
            position += max(length, 0)
            found += 1
        if position != end:
            return False
    return bool(found == places.shape[1])


class KernelReader:
    __slots__ = ("_table",)

    def __init__(self) -> None:
        self._table: Numbers = np.empty((LINES, 0), np.int64)

    def read(self, run: Run, wanted: Wanted) -> Iterator[Part]:
        source = _readable(run.source)
        pieces = np.array([_numbers(piece) for piece in run.pieces], np.int64)
        rows_max = min(wanted.rows_max, max(int(pieces[:, 5].sum()), 1))
        if self._table.shape[1] < rows_max:
            self._table = np.empty((LINES, rows_max), np.int64)
        bounds = np.array([wanted.start, wanted.end, rows_max, wanted.bytes_max], np.int64)
        cursor = np.array([0, pieces[0, 0], 0], np.int64)
        totals = np.zeros(5, np.int64)
        try:
            while cursor[0] < len(pieces):
                rows = find_rows(source, pieces, cursor, bounds, self._table, totals)
                if rows < 0:
                    raise _Malformed
                if rows:
                    yield Part(rows, _Found(source, self._table, rows, totals).columns(wanted.columns))
        except _Malformed:
            offset = run.pieces[cursor[0]].header.base_offset
            raise explain(run) or MalformedRecord(offset, "its bytes changed while they were read") from None


class _Malformed(Exception):
    pass


@dataclass(slots=True)
class _Found:
    """Rows that `find_rows` wrote down, to be made into Arrow arrays."""

    source: Bytes
    table: Numbers
    rows: int
    totals: Numbers

    def columns(self, wanted: frozenset[str]) -> dict[str, pa.Array]:
        rows = self.rows
        built: dict[str, pa.Array] = {}
        if "key" in wanted:
            built["key"] = self._gathered(KEY_AT, KEY_BYTES, self.totals[0])
        if "value" in wanted:
            built["value"] = self._gathered(VALUE_AT, VALUE_BYTES, self.totals[1])
        if "offset" in wanted:
            built["offset"] = pa.array(self.table[OFFSET, :rows].copy())
        if "timestamp" in wanted:
            buffer = pa.py_buffer(self.table[TIMESTAMP, :rows].copy())
            built["timestamp"] = pa.Array.from_buffers(TIMESTAMP_TYPE, rows, [None, buffer])
        if "headers" in wanted:
            built["headers"] = self._headers()
        return built

    def _gathered(self, places: int, lengths: int, size: int) -> pa.Array:
        return _gathered(self.source, self.table[places, : self.rows], self.table[lengths, : self.rows], size)

    def _headers(self) -> pa.Array:
        """Null when a record has none, as Spark's Kafka connector gives them."""
        counts = self.table[HEADERS, : self.rows]
        ends = np.zeros(self.rows + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        places = np.empty((4, self.totals[2]), np.int64)
        if not find_headers(self.source, self.table, self.rows, places):
            raise _Malformed
        names = _names(_gathered(self.source, places[0], places[1], self.totals[3]))
        values = _gathered(self.source, places[2], places[3], self.totals[4])
        pairs = pa.StructArray.from_arrays([names, values], fields=list(HEADERS_TYPE.value_type))
        bits = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
        return pa.Array.from_buffers(HEADERS_TYPE, self.rows, [bits, pa.py_buffer(ends)], children=[pairs])


def _readable(source: memoryview) -> Bytes:
    array = np.frombuffer(source, np.uint8) if len(source) else np.empty(0, np.uint8)
    # One type for numba, whatever the buffer was: another would be compiled again.
    array.flags.writeable = False
    return array


def _numbers(piece: Piece) -> tuple[int, ...]:
    header, position, end = piece
    base_offset, _, _, _, _, attributes, last_delta, base_timestamp, max_timestamp, _, _, _, count = header
    by_broker = attributes & TIMESTAMP_TYPE_BIT
    return position, end, base_offset, last_delta, max_timestamp if by_broker else base_timestamp, count, by_broker


def _gathered(source: Bytes, places: Numbers, lengths: Numbers, size: int) -> pa.Array:
    count = len(places)
    # Never empty, because numpy takes no view of an empty buffer.
    ends, bits = pa.allocate_buffer((count + 1) * 4), pa.allocate_buffer(count // 8 + 1)
    target = pa.allocate_buffer(max(size, 1))
    ends_view, bits_view = np.frombuffer(ends, np.int32), np.frombuffer(bits, np.uint8)
    nulls = gather(source, places, lengths, ends_view, bits_view, np.frombuffer(target, np.uint8))
    if nulls < 0:
        raise _Malformed
    return pa.Array.from_buffers(pa.binary(), count, [bits if nulls else None, ends, target], nulls)


def _names(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([readable(name) for name in names.to_pylist()], pa.string())
