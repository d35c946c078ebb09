"""Record batches as a Fetch reply holds them, to Arrow tables as Spark takes them.

    decoder = Decoder("orders", 0, ("key", "value", "offset"))
    for table in decoder.decode(reply_bytes, start=100, end=200):
        ...
    decoder.next_offset  # where to fetch on

The schema is that of Spark's Kafka connector. Only the asked columns are built. Offsets are the records' own, over
the gaps of compaction; control batches and aborted transactions are left out. Checksums are verified, nothing in the
bytes is trusted: what is wrong raises CorruptData. Memory stays within a few times what one batch may unpack to.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import pyarrow as pa
from crc32c import crc32c

from skidway.errors import ProtocolError
from skidway.limits import DEFAULT_LIMITS, INT32_MAX, INT64_MAX, MIB
from skidway.ports import Buffer
from skidway.records.batch import (
    CHECKED_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    HEADER_BYTES,
    MAGIC,
    PREFIX_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    read_header,
)
from skidway.records.compression import decompress
from skidway.records.control import ControlType, read_control_type
from skidway.records.record import RECORD_BYTES_MIN, unpack_records
from skidway.spark.codec.runs import HEADERS_TYPE, TIMESTAMP_TYPE, MalformedRecord, Piece, Reader, Run, Wanted

Kernel = Literal["auto", "numba", "python"]

_TYPES = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIMESTAMP_TYPE,
    "timestampType": pa.int32(),
    "headers": HEADERS_TYPE,
}
COLUMNS = tuple(_TYPES)

ROWS_MAX = 32_768
BYTES_MAX = 64 * MIB
"""Of keys, values and headers in one table, unless a single row has more. Arrow's own limit is 2 GiB."""
_MAGIC_POSITION = 16


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """What pyspark makes of the same Spark schema, to the letter: it compares."""
    unknown = [name for name in columns if name not in _TYPES]
    if unknown:
        raise ValueError(f"no column {unknown[0]!r}; a topic has {', '.join(COLUMNS)}")
    return pa.schema([(name, _TYPES[name]) for name in columns])


class CorruptData(Exception):
    """Bytes that are no record batches; `offset` is where in the partition reading cannot go on."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(topic, partition, offset, reason)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return f"corrupt data in {self.topic}-{self.partition} at offset {self.offset}: {self.reason}"


class Decoder:
    """For one partition and one thread."""

    __slots__ = (
        "_aborting",
        "_columns",
        "_constants",
        "_pending_aborts",
        "_reader",
        "_schema",
        "bytes_max",
        "decompressed_bytes_max",
        "next_offset",
        "partition",
        "rows_max",
        "topic",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: Sequence[str],
        *,
        kernel: Kernel = "auto",
        rows_max: int = ROWS_MAX,
        bytes_max: int = BYTES_MAX,
        decompressed_bytes_max: int = DEFAULT_LIMITS.decompressed_bytes_max,
    ) -> None:
        assert 0 < rows_max <= INT32_MAX // len(topic.encode()), "the topic column must fit into one Arrow array"
        assert 0 < bytes_max <= INT32_MAX
        assert 0 < decompressed_bytes_max <= INT32_MAX
        self.topic = topic
        self.partition = partition
        self.rows_max = rows_max
        self.bytes_max = bytes_max
        self.decompressed_bytes_max = decompressed_bytes_max
        self.next_offset = 0
        self._schema = arrow_schema(columns)
        self._columns = frozenset(columns)
        self._constants: dict[tuple[str, int | str], pa.Array] = {}
        self._reader = _reader(kernel)
        self._pending_aborts: set[tuple[int, int]] = set()
        self._aborting: set[int] = set()

    def decode(
        self, data: Buffer, start: int, end: int, aborted: Sequence[tuple[int, int]] = ()
    ) -> Iterator[pa.RecordBatch]:
        """The rows with start <= offset < end of the whole batches in `data`; one cut short at its end is ignored.

        `aborted` are the reply's aborted transactions (producer id, first offset); what has not ended is remembered
        for the next call. When all is taken, `next_offset` is one past what the batches cover, rows or not; when they
        reach `end`, at least `end`.
        """
        self.next_offset = start
        self._pending_aborts.update((first_offset, producer_id) for producer_id, first_offset in aborted)
        for run, covered in self._runs(memoryview(data).cast("B"), start, end):
            if run is not None:
                yield from self._tables(run, Wanted(start, end, self._columns, self.rows_max, self.bytes_max))
            self.next_offset = max(start, covered)

    def _tables(self, run: Run, wanted: Wanted) -> Iterator[pa.RecordBatch]:
        timestamp_type = run.pieces[0].header.timestamp_type
        try:
            for part in self._reader.read(run, wanted):
                arrays = [
                    part.columns[field.name]
                    if field.name in part.columns
                    else self._constant(field, timestamp_type, part.rows)
                    for field in self._schema
                ]
                yield _table(arrays, self._schema, part.rows)
        except MalformedRecord as error:
            raise self._corrupt(error.base_offset, error.reason) from None

    def _constant(self, field: pa.Field, timestamp_type: TimestampType, rows: int) -> pa.Array:
        """A slice of one array that was filled once: these columns cost nothing per row."""
        constants: dict[str, int | str] = {
            "topic": self.topic,
            "partition": self.partition,
            "timestampType": int(timestamp_type),
        }
        value = constants[field.name]
        known = self._constants.get((field.name, value))
        if known is None or len(known) < rows:
            known = pa.repeat(pa.scalar(value, field.type), rows)
            self._constants[field.name, value] = known
        return known.slice(0, rows)

    def _runs(self, data: memoryview, start: int, end: int) -> Iterator[tuple[Run | None, int]]:
        """Runs of batches to read, each with the offset that is covered once it was; the last may have none to read."""
        gathering = _Gathering(data, self.rows_max, self.bytes_max)
        covered = -1
        for position, header in self._headers(data):
            if header.base_offset < covered:
                raise self._corrupt(
                    header.base_offset, f"a batch that begins before {covered}, where the last one ended"
                )
            if header.base_offset >= end:
                covered = end
                break
            if self._has_rows(data, position, header, start):
                payload = self._payload(data, position, header)
                if not gathering.takes(header, payload):
                    yield gathering.close(), covered
                gathering.add(header, position, payload)
            covered = header.last_offset + 1
        yield (gathering.close() if gathering.pieces else None), covered

    def _headers(self, data: memoryview) -> Iterator[tuple[int, BatchHeader]]:
        position, end = 0, len(data)
        while end - position > _MAGIC_POSITION:
            if data[position + _MAGIC_POSITION] != MAGIC:
                raise self._foreign(data, position)
            if end - position < HEADER_BYTES:
                return
            header = read_header(data, position)
            offset, size = header[0], header[1] + PREFIX_BYTES
            if size < HEADER_BYTES:
                raise self._corrupt(offset, f"a batch of {size} bytes is shorter than its header")
            if size > end - position:
                return
            if offset < 0 or header.last_offset_delta < 0 or offset > INT64_MAX - INT32_MAX:
                raise self._corrupt(offset, f"offsets from {offset} to {header.last_offset} cannot be")
            yield position, header
            position += size

    def _foreign(self, data: memoryview, position: int) -> CorruptData:
        """Where a batch should be. Offset and magic are at the same places in all formats."""
        offset = int.from_bytes(data[position : position + 8], "big", signed=True)
        magic = data[position + _MAGIC_POSITION]
        if magic < MAGIC:
            return self._corrupt(offset, f"message format v{magic} is not supported, only v2 (Kafka 0.11 and later)")
        return self._corrupt(offset, f"a batch of magic {magic}, not {MAGIC}")

    def _has_rows(self, data: memoryview, position: int, header: BatchHeader, start: int) -> bool:
        """Whether the batch is to be read. Markers and aborted transactions are noted on the way."""
        if self._pending_aborts:
            begun = [entry for entry in self._pending_aborts if entry[0] <= header.last_offset]
            self._pending_aborts.difference_update(begun)
            self._aborting.update(producer_id for _, producer_id in begun)
        attributes, size = header.attributes, header.size
        if header.last_offset < start and not attributes & CONTROL_BIT:
            return False
        if crc32c(data[position + CHECKED_POSITION : position + size]) != header.crc:
            raise self._corrupt(header.base_offset, f"the checksum in the batch is {header.crc} and does not match")
        if attributes & CONTROL_BIT:
            if header.producer_id in self._aborting and self._ends_transaction(data, position, header):
                self._aborting.discard(header.producer_id)
            return False
        if attributes & TRANSACTIONAL_BIT and header.producer_id in self._aborting:
            return False
        return header.record_count != 0 or size != HEADER_BYTES

    def _ends_transaction(self, data: memoryview, position: int, header: BatchHeader) -> bool:
        payload = self._payload(data, position, header)
        if payload is None:
            payload = bytes(data[position + HEADER_BYTES : position + header.size])
        try:
            return any(
                read_control_type(record.key) in (ControlType.ABORT, ControlType.COMMIT)
                for record in unpack_records(header, payload)
            )
        except ProtocolError as error:
            raise self._corrupt(header.base_offset, str(error)) from None

    def _payload(self, data: memoryview, position: int, header: BatchHeader) -> bytes | bytearray | None:
        """The unpacked records; None when they are not packed."""
        payload = None
        size = header.size - HEADER_BYTES
        if header.attributes & CODEC_MASK:
            packed = data[position + HEADER_BYTES : position + header.size]
            try:
                payload = decompress(header.codec, packed, self.decompressed_bytes_max)
            except ProtocolError as error:
                raise self._corrupt(header.base_offset, str(error)) from None
            size = len(payload)
        if not 0 <= header.record_count <= size // RECORD_BYTES_MIN:
            raise self._corrupt(header.base_offset, f"{header.record_count} records cannot be in {size} bytes")
        return payload

    def _corrupt(self, offset: int, reason: str) -> CorruptData:
        return CorruptData(self.topic, self.partition, offset, reason)


class _Gathering:
    """Batches that become one run: as many as fill a table, packed and unpacked ones apart."""

    __slots__ = ("_bytes", "_bytes_max", "_data", "_payloads", "_rows", "_rows_max", "_stamped", "pieces")

    def __init__(self, data: memoryview, rows_max: int, bytes_max: int) -> None:
        self._data = data
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._clear()

    def _clear(self) -> None:
        self.pieces: list[Piece] = []
        self._payloads: list[bytes | bytearray] = []
        self._rows = self._bytes = 0
        self._stamped = 0

    def takes(self, header: BatchHeader, payload: bytes | bytearray | None) -> bool:
        if not self.pieces:
            return True
        size = header.size if payload is None else len(payload)
        return (
            self._rows + header.record_count <= self._rows_max
            and self._bytes + size <= self._bytes_max
            and (payload is not None) == bool(self._payloads)
            and header.attributes & TIMESTAMP_TYPE_BIT == self._stamped
        )

    def add(self, header: BatchHeader, position: int, payload: bytes | bytearray | None) -> None:
        if payload is None:
            size = header.size
            piece = Piece(header, position + HEADER_BYTES, position + size)
            self._bytes += size
        else:
            piece = Piece(header, self._bytes, self._bytes + len(payload))
            self._payloads.append(payload)
            self._bytes += len(payload)
        self.pieces.append(piece)
        self._rows += header.record_count
        self._stamped = header.attributes & TIMESTAMP_TYPE_BIT

    def close(self) -> Run:
        source = self._data
        if self._payloads:
            source = memoryview(self._payloads[0] if len(self._payloads) == 1 else b"".join(self._payloads))
        run = Run(source, self.pieces)
        self._clear()
        return run


def _reader(kernel: Kernel) -> Reader:
    if kernel != "python":
        try:
            from skidway.spark.codec.decode_kernel import KernelReader

            return KernelReader()
        except ImportError:
            if kernel == "numba":
                raise
    from skidway.spark.codec.decode_python import PythonReader

    return PythonReader()


def _table(arrays: list[pa.Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    # Nothing but a number of rows.
    return pa.RecordBatch.from_struct_array(pa.StructArray.from_buffers(pa.struct([]), rows, [None]))
