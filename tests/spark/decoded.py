"""Rows out of a decoder in a form that tests can compare, and batches that only a log can hold."""

from collections.abc import Sequence
from typing import Any

from skidway.records.batch import HEADER_BYTES, TimestampType, crc_matches, iter_headers, read_header
from skidway.records.record import Record, assemble, build_batch, read_records
from skidway.records.walk import walk
from skidway.spark.codec.decoding import COLUMNS, CorruptData, Decoder, Kernel

SPACE = 1 << 20
FOREVER = 2**62


def decode(
    data: bytes,
    kernel: Kernel,
    *,
    start: int = 0,
    end: int = FOREVER,
    columns: Sequence[str] = COLUMNS,
    aborted: Sequence[tuple[int, int]] = (),
    rows_max: int = 32_768,
    bytes_max: int = SPACE,
) -> tuple[list[dict[str, Any]], int]:
    """All rows and the next offset. Timestamps are microseconds: Python knows no years past 9999."""
    decoder = Decoder(
        "orders", 7, columns, kernel=kernel, rows_max=rows_max, bytes_max=bytes_max, decompressed_bytes_max=SPACE
    )
    rows: list[dict[str, Any]] = []
    for table in decoder.decode(data, start, end, aborted):
        table.validate(full=True)
        assert 0 < table.num_rows <= rows_max
        if "timestamp" in columns:
            at = columns.index("timestamp")
            table = table.set_column(at, "timestamp", table.column(at).cast("int64"))
        rows += table.to_pylist()
    return rows, decoder.next_offset


def outcome(data: bytes, kernel: Kernel, **options: Any) -> Any:
    """What decoding leads to, errors included."""
    try:
        return decode(data, kernel, **options)
    except CorruptData as error:
        return error.offset, error.reason


def expected(data: bytes, start: int = 0, end: int = FOREVER) -> list[dict[str, Any]]:
    """The same rows by the broker's own reader of records."""
    rows = []
    for position, header in iter_headers(data):
        batch = data[position : position + header.size]
        assert crc_matches(batch)
        for record in read_records(batch, decompressed_bytes_max=SPACE):
            if start <= record.offset < end:
                rows.append(row_of(record, header.timestamp_type))
    return rows


def row_of(record: Record, timestamp_type: int = TimestampType.CREATE_TIME) -> dict[str, Any]:
    names = [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name, _ in record.headers]
    headers = [{"key": name, "value": value} for name, (_, value) in zip(names, record.headers, strict=True)]
    return {
        "key": record.key,
        "value": record.value,
        "topic": "orders",
        "partition": 7,
        "offset": record.offset,
        "timestamp": record.timestamp * 1000,
        "timestampType": int(timestamp_type),
        "headers": headers or None,
    }


def compacted(batch: bytearray, kept: Sequence[int]) -> bytearray:
    """An uncompressed batch with only some of its records left, as compaction leaves it: same offsets, same span."""
    header = read_header(batch)
    spots = walk(bytes(batch), HEADER_BYTES, len(batch), header.record_count, header.last_offset_delta)
    body = b"".join(bytes(batch[spots[index][0] : spots[index][1]]) for index in kept)
    return assemble(header._replace(batch_length=49 + len(body), record_count=len(kept)), body)


def batch_of(values: Sequence[bytes | None], **options: Any) -> bytearray:
    return build_batch([Record(0, 1_000 + index, None, value) for index, value in enumerate(values)], **options)
