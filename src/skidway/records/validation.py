"""What a leader checks before it appends a client's batch.

`validate` looks at the header and the checksum; the records stay closed. They are opened only where the topic asks
for something the header cannot answer: keys on a compacted topic, a lower bound for timestamps, another codec than
the producer's. That may take long, so it is work in steps (`skidway.steps`), with large batches unpacked and packed by
a worker. A header's largest timestamp is believed, and records inside are not proven well-formed. Where it is too far
ahead, a small batch is opened to name the records that are; a large one is refused as a whole.

Which error means what, in the order of the checks:
- InvalidRecord: not exactly one batch, not format v2, base offset not 0; UnsupportedCompressionType: no such codec,
  or zstd before Produce v7; MessageTooLarge: above `max.message.bytes`; CorruptMessage: wrong checksum or length;
- InvalidRecord: record count that does not fit offsets or bytes, control batch or delete horizon from a client,
  producer without epoch or sequence, transaction without producer;
- RecordRejection (as InvalidRecord or InvalidTimestamp): single records that break a rule of the topic.
"""

from dataclasses import dataclass, field
from functools import partial

from skidway.errors import (
    CorruptMessage,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    ProtocolError,
    UnsupportedCompressionType,
)
from skidway.limits import DEFAULT_LIMITS, INT64_MAX, KIB, MIB
from skidway.records.batch import (
    CHECKED_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
    read_header,
    set_timestamps,
)
from skidway.records.checksum import crc32c
from skidway.records.compression import CODEC_NAMES, Codec, UnpackedTooLarge, compress
from skidway.records.record import RECORD_BYTES_MIN, Outline, assemble, open_batch, outline_records
from skidway.steps import Job, Steps, at_once

RECORD_ERRORS_MAX = 1_000
"""Records named in one rejection; all of them are rejected anyway."""
ZSTD_PRODUCE_VERSION = 7
SMALL_BATCH_BYTES = 16 * KIB
SMALL_PAYLOAD_BYTES = 64 * KIB
QUICK_LEVEL = 9
"""A batch up to the first, of records up to the second, packed at a level up to the third, takes less time than to hand
it to a worker."""
STEP_RECORDS = 256
NAMED_RECORDS_MAX = 1_000
NAMED_BYTES_MAX = MIB
"""A batch up to these is opened to name the records whose timestamps are too far ahead."""

_MAGIC_POSITION = 16
# zstd and codecs that do not exist, and everything a client may not or hardly ever sets: worth a closer look.
_ZSTD = int(Codec.ZSTD)
_UNUSUAL_BITS = _ZSTD | TIMESTAMP_TYPE_BIT | CONTROL_BIT | DELETE_HORIZON_BIT

_TIMESTAMP_USUAL_MIN = -(1 << 62)
"""Below it a timestamp may be further from now than 64 bits can say, which Kafka refuses."""
Validated = tuple[bytearray | memoryview, BatchHeader]

_unpack_header = HEADER.unpack_from
_new_header = tuple.__new__


class RecordRejection(ProtocolError):
    """The batch is refused because of single records: `record_errors` has (index in the batch, reason)."""

    def __init__(self, message: str, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class InvalidRecords(RecordRejection, InvalidRecord):
    pass


class InvalidTimestamps(RecordRejection, InvalidTimestamp):
    pass


@dataclass(slots=True, kw_only=True)
class TopicRules:
    """What a topic's configuration says about batches. To change one, make a new one: some of it is worked out."""

    max_message_bytes: int = 1_048_588
    compression_type: str = "producer"
    compression_level: int | None = None
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = INT64_MAX
    timestamp_after_max_ms: int = 3_600_000
    compacted: bool = False
    decompressed_bytes_max: int = DEFAULT_LIMITS.decompressed_bytes_max
    batch_records_max: int = DEFAULT_LIMITS.batch_records_max

    codec: Codec | None = field(init=False)
    """None: whatever the producer chose."""
    header_suffices: bool = field(init=False)
    """The header answers everything, as long as its largest timestamp is in range."""
    opens: bool = field(init=False)
    """It may be necessary to look at the records."""
    records_max: int = field(init=False)

    def __post_init__(self) -> None:
        self.codec = None if self.compression_type == "producer" else CODEC_NAMES[self.compression_type]
        self.records_max = min(self.decompressed_bytes_max // RECORD_BYTES_MIN, self.batch_records_max)
        by_producer = self.timestamp_type == TimestampType.CREATE_TIME
        self.opens = (
            self.codec is not None or self.compacted or (by_producer and self.timestamp_before_max_ms != INT64_MAX)
        )
        self.header_suffices = by_producer and not self.opens


def validate(batch: memoryview, rules: TopicRules, produce_version: int, now_ms: int) -> Validated | Steps[Validated]:
    """The batch to append and its header; or one of the errors above. In steps if the topic's rules say `opens`.

    The batch is changed in place (LogAppendTime) or replaced (another codec) as the topic demands.
    """
    size = len(batch)
    if size < HEADER_BYTES:
        raise _no_whole_batch(batch)
    fields = _unpack_header(batch)
    header = _new_header(BatchHeader, fields)
    base_offset, length, _, magic, crc, attributes, last_delta, _, max_timestamp, producer, epoch, sequence, count = (
        fields
    )
    # One expression, because nearly every batch passes: whatever it catches is looked at again in `_examine`.
    if (
        length + PREFIX_BYTES != size
        or magic != MAGIC
        or base_offset
        or size > rules.max_message_bytes
        or count < 1
        or last_delta != count - 1
        or (
            attributes & _UNUSUAL_BITS
            and (attributes & ~TRANSACTIONAL_BIT != _ZSTD or produce_version < ZSTD_PRODUCE_VERSION)
        )
        or ((sequence | epoch) < 0 if producer >= 0 else attributes & TRANSACTIONAL_BIT)
        or (count * RECORD_BYTES_MIN > size - HEADER_BYTES and not attributes & CODEC_MASK)
        or count > rules.records_max
    ):
        _examine(batch, header, rules, produce_version)
    elif crc32c(batch[CHECKED_POSITION:]) != crc:
        raise CorruptMessage(f"the checksum in the batch is {crc} and does not match its bytes")
    if (
        rules.header_suffices
        and _TIMESTAMP_USUAL_MIN < max_timestamp <= now_ms + rules.timestamp_after_max_ms
        and not attributes & TIMESTAMP_TYPE_BIT
    ):
        return batch, header
    if rules.opens:
        return _open_and_apply(batch, header, rules, now_ms)
    return _apply_rules(batch, header, rules, now_ms)


def _no_whole_batch(batch: memoryview) -> ProtocolError:
    if len(batch) > _MAGIC_POSITION and batch[_MAGIC_POSITION] == MAGIC:
        size = int.from_bytes(batch[8:PREFIX_BYTES], "big", signed=True) + PREFIX_BYTES
        if size <= len(batch):
            return CorruptMessage(f"a batch of {size} bytes is shorter than its header")
    return InvalidRecord("a produce request must have exactly one whole batch of format v2 per partition")


def _examine(batch: memoryview, header: BatchHeader, rules: TopicRules, produce_version: int) -> None:
    """Everything the header can be wrong about, one by one."""
    if header.magic > MAGIC:
        raise CorruptMessage(f"batches of magic {header.magic} are not known")
    if header.magic != MAGIC:
        raise InvalidRecord(f"only batches of format v2 can be produced, not of magic {header.magic}")
    if header.size < HEADER_BYTES:
        raise CorruptMessage(f"a batch of {header.size} bytes is shorter than its header")
    if header.codec > Codec.ZSTD:
        raise UnsupportedCompressionType(f"there is no codec {header.codec}")
    if header.codec == Codec.ZSTD and produce_version < ZSTD_PRODUCE_VERSION:
        raise UnsupportedCompressionType(f"zstd needs Produce v{ZSTD_PRODUCE_VERSION}, this is v{produce_version}")
    if header.size != len(batch):
        raise InvalidRecord(f"exactly one batch per partition: it has {header.size} of the {len(batch)} bytes")
    if header.base_offset:
        raise InvalidRecord(f"the base offset of a batch from a client is 0, not {header.base_offset}")
    _check_size(header.size, rules)
    if crc32c(batch[CHECKED_POSITION:]) != header.crc:
        raise CorruptMessage(f"the checksum in the batch is {header.crc} and does not match its bytes")
    _examine_count(header, rules)
    if header.is_control:
        raise InvalidRecord("clients cannot write control records")
    if header.attributes & DELETE_HORIZON_BIT:
        raise InvalidRecord("clients cannot set a delete horizon")
    if header.has_producer and (header.base_sequence < 0 or header.producer_epoch < 0):
        raise InvalidRecord(
            f"producer {header.producer_id} with epoch {header.producer_epoch} and sequence {header.base_sequence}"
        )
    if header.is_transactional and not header.has_producer:
        raise InvalidRecord("a transactional batch without a producer id")


def _examine_count(header: BatchHeader, rules: TopicRules) -> None:
    count = header.record_count
    if count < 1 or header.last_offset_delta != count - 1:
        raise InvalidRecord(f"{count} records do not have offsets 0 to {header.last_offset_delta}")
    space = header.size - HEADER_BYTES if header.codec == Codec.NONE else rules.decompressed_bytes_max
    if count * RECORD_BYTES_MIN > space:
        raise InvalidRecord(f"{count} records cannot be in {space} bytes")
    if count > rules.records_max:
        raise InvalidRecord(f"{count} records in one batch; the limit is {rules.records_max}")


def _check_size(size: int, rules: TopicRules) -> None:
    if size > rules.max_message_bytes:
        raise MessageTooLarge(f"a batch of {size} bytes where the topic allows {rules.max_message_bytes}")


def _apply_rules(batch: memoryview, header: BatchHeader, rules: TopicRules, now_ms: int) -> Validated:
    """The rules that need no more than the header, and a batch whose largest timestamp is out of range."""
    append_time = rules.timestamp_type == TimestampType.LOG_APPEND_TIME
    if append_time and header.attributes & TIMESTAMP_TYPE_BIT:
        raise _foreign_append_time(header)
    if append_time:
        return _stamped(batch, header, rules, now_ms)
    return _stamped(batch, header, rules, _latest_in_range(batch, header, rules, now_ms))


def _open_and_apply(batch: memoryview, header: BatchHeader, rules: TopicRules, now_ms: int) -> Steps[Validated]:
    """The rules that need more than the header, or that change the records."""
    converts = rules.codec is not None and rules.codec != header.codec
    append_time = rules.timestamp_type == TimestampType.LOG_APPEND_TIME
    if not converts and not rules.compacted and (append_time or rules.timestamp_before_max_ms == INT64_MAX):
        return _apply_rules(batch, header, rules, now_ms)
    if append_time and header.attributes & TIMESTAMP_TYPE_BIT:
        raise _foreign_append_time(header)
    payload = yield from _unpacked(batch, header, rules)
    latest = yield from _check_records(header, payload, rules, now_ms)
    result: bytearray | memoryview = batch
    if converts:
        result = yield from _converted(header, payload, rules)
    return _stamped(result, header, rules, now_ms if append_time else latest)


def _stamped(batch: bytearray | memoryview, header: BatchHeader, rules: TopicRules, max_timestamp: int) -> Validated:
    if header.timestamp_type != rules.timestamp_type or max_timestamp != header.max_timestamp:
        set_timestamps(batch, rules.timestamp_type, max_timestamp)
    elif isinstance(batch, memoryview):
        return batch, header
    return batch, read_header(batch)


def _unpacked(batch: memoryview, header: BatchHeader, rules: TopicRules) -> Steps[bytes | bytearray]:
    """The bytes of the records: at once if they are few, else by a worker."""
    if header.codec == Codec.NONE or len(batch) <= SMALL_BATCH_BYTES:
        bytes_max = rules.decompressed_bytes_max
        if header.codec != Codec.NONE:
            bytes_max = min(bytes_max, SMALL_PAYLOAD_BYTES)
        try:
            return open_batch(batch, decompressed_bytes_max=bytes_max)[1]
        except UnpackedTooLarge:
            if bytes_max == rules.decompressed_bytes_max:
                raise
    job = Job(partial(open_batch, batch, decompressed_bytes_max=rules.decompressed_bytes_max))
    _, payload = yield job
    result: bytes | bytearray = payload
    return result


def _converted(header: BatchHeader, payload: bytes | bytearray, rules: TopicRules) -> Steps[bytearray]:
    convert = partial(_convert, header, payload, rules)
    level = rules.compression_level
    if rules.codec == Codec.NONE or (len(payload) <= SMALL_PAYLOAD_BYTES and (level is None or level <= QUICK_LEVEL)):
        return convert()
    result: bytearray = yield Job(convert)
    return result


def _latest_in_range(batch: memoryview, header: BatchHeader, rules: TopicRules, now_ms: int) -> int:
    """The header's largest timestamp, or what it should be; an error when records are too far ahead."""
    if _timestamps_fit(header, rules, now_ms):
        return header.max_timestamp
    refusal = InvalidTimestamps(
        f"the largest timestamp of the batch is {header.max_timestamp}; the topic allows at most "
        f"{now_ms + rules.timestamp_after_max_ms}, and only the broker marks records as LogAppendTime",
        [],
    )
    if header.record_count > NAMED_RECORDS_MAX:
        raise refusal
    try:
        _, payload = open_batch(batch, decompressed_bytes_max=min(rules.decompressed_bytes_max, NAMED_BYTES_MAX))
    except UnpackedTooLarge:
        raise refusal from None
    return at_once(_check_records(header, payload, rules, now_ms))


def _timestamps_fit(header: BatchHeader, rules: TopicRules, now_ms: int) -> bool:
    """Whether the header alone says so."""
    in_range = _TIMESTAMP_USUAL_MIN < header.max_timestamp <= now_ms + rules.timestamp_after_max_ms
    return in_range and not header.attributes & TIMESTAMP_TYPE_BIT


def _foreign_append_time(header: BatchHeader) -> InvalidTimestamps:
    reason = "only the broker marks records as LogAppendTime"
    return InvalidTimestamps(reason, [(index, reason) for index in range(min(header.record_count, RECORD_ERRORS_MAX))])


def _check_records(header: BatchHeader, payload: bytes | bytearray, rules: TopicRules, now_ms: int) -> Steps[int]:
    """The largest timestamp, when every record keeps the rules."""
    errors: list[tuple[int, str]] = []
    bad_timestamp = False
    latest = NO_TIMESTAMP
    oldest, newest = now_ms - rules.timestamp_before_max_ms, now_ms + rules.timestamp_after_max_ms
    for index, outline in enumerate(outline_records(header, payload)):
        timestamp = outline[1]
        if timestamp > latest:
            latest = timestamp
        reason: str | None = None
        if rules.compacted and not outline.has_key:
            reason = "a record of a compacted topic needs a key"
        elif timestamp == NO_TIMESTAMP or not oldest <= timestamp <= newest:
            reason = _timestamp_error(outline, header, rules, now_ms)
            bad_timestamp = bad_timestamp or reason is not None
        if reason is not None and len(errors) < RECORD_ERRORS_MAX:
            errors.append((index, reason))
        if not index % STEP_RECORDS:
            yield None
    if bad_timestamp:
        raise InvalidTimestamps("one or more records were rejected for their timestamps", errors)
    if errors:
        raise InvalidRecords(f"one or more records were rejected: {errors[0][1]}", errors)
    return latest


def _timestamp_error(outline: Outline, header: BatchHeader, rules: TopicRules, now_ms: int) -> str | None:
    if rules.timestamp_type == TimestampType.LOG_APPEND_TIME:
        return None
    if outline.timestamp == NO_TIMESTAMP:
        if header.attributes & TIMESTAMP_TYPE_BIT:
            return "only the broker marks records as LogAppendTime"
        return None
    earliest = now_ms - rules.timestamp_before_max_ms
    latest = now_ms + rules.timestamp_after_max_ms
    if earliest <= outline.timestamp <= latest:
        return None
    return f"timestamp {outline.timestamp} is not within [{earliest}, {latest}]"


def _convert(header: BatchHeader, payload: bytes | bytearray, rules: TopicRules) -> bytearray:
    """The same records packed by the topic's codec."""
    codec = rules.codec
    assert codec is not None
    body = compress(codec, payload, rules.compression_level)
    _check_size(HEADER_BYTES + len(body), rules)
    return assemble(
        header._replace(
            batch_length=HEADER_BYTES - PREFIX_BYTES + len(body),
            attributes=header.attributes & ~CODEC_MASK | codec,
        ),
        body,
    )
