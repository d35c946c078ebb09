"""Records to Arrow without a compiler: slow, simple, and what the kernel is held against.

It reads records with `skidway.records`, which trusts nothing; it is also who explains what the kernel found wrong.
"""

from collections.abc import Iterator

import pyarrow as pa

from skidway.errors import ProtocolError
from skidway.records.record import Headers, Record, unpack_records
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


class PythonReader:
    def read(self, run: Run, wanted: Wanted) -> Iterator[Part]:
        records: list[Record] = []
        held_bytes = 0
        for piece in run.pieces:
            for record in _records_of(run, piece):
                if not wanted.start <= record.offset < wanted.end:
                    continue
                size = _size_of(record)
                if records and held_bytes + size > wanted.bytes_max:
                    yield _part_of(records, wanted.columns)
                    records, held_bytes = [], 0
                records.append(record)
                held_bytes += size
                if len(records) == wanted.rows_max:
                    yield _part_of(records, wanted.columns)
                    records, held_bytes = [], 0
        if records:
            yield _part_of(records, wanted.columns)


def explain(run: Run) -> MalformedRecord | None:
    """What is wrong with the first bad batch of the run."""
    try:
        for piece in run.pieces:
            for _ in _records_of(run, piece):
                pass
    except MalformedRecord as error:
        return error
    return None


def _records_of(run: Run, piece: Piece) -> Iterator[Record]:
    try:
        yield from unpack_records(piece.header, bytes(run.source[piece.position : piece.end]))
    except ProtocolError as error:
        raise MalformedRecord(piece.header.base_offset, str(error)) from None


def _size_of(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name.encode("utf-8", "surrogateescape")) + len(value or b"")
    return size


def _part_of(records: list[Record], columns: frozenset[str]) -> Part:
    built: dict[str, pa.Array] = {}
    if "key" in columns:
        built["key"] = pa.array([record.key for record in records], pa.binary())
    if "value" in columns:
        built["value"] = pa.array([record.value for record in records], pa.binary())
    if "offset" in columns:
        built["offset"] = pa.array([record.offset for record in records], pa.int64())
    if "timestamp" in columns:
        built["timestamp"] = pa.array([_microseconds(record.timestamp) for record in records], TIMESTAMP_TYPE)
    if "headers" in columns:
        built["headers"] = pa.array([_headers_of(record.headers) for record in records], HEADERS_TYPE)
    return Part(len(records), built)


def _microseconds(timestamp_ms: int) -> int:
    return min(max(timestamp_ms, -TIMESTAMP_MS_MAX), TIMESTAMP_MS_MAX) * 1000


def _headers_of(headers: Headers) -> list[dict[str, str | bytes | None]] | None:
    """Null when there are none, as Spark's Kafka connector gives them."""
    if not headers:
        return None
    return [{"key": readable(name.encode("utf-8", "surrogateescape")), "value": value} for name, value in headers]


def readable(name: bytes) -> str:
    """Arrow strings must be UTF-8; header names need not be."""
    return name.decode("utf-8", "replace")
