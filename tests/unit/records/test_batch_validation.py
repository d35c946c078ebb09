"""What a leader accepts from a producer, and which error it gives for the rest."""

import random
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from skidway.errors import (
    CorruptMessage,
    ErrorCode,
    InvalidRecord,
    InvalidTimestamp,
    MessageTooLarge,
    ProtocolError,
    UnsupportedCompressionType,
)
from skidway.records import validation
from skidway.records.batch import (
    HEADER,
    BatchHeader,
    TimestampType,
    crc_matches,
    read_header,
    set_crc,
    set_log_append_time,
)
from skidway.records.compression import Codec
from skidway.records.record import Record, build_batch, read_records
from skidway.records.validation import (
    RECORD_ERRORS_MAX,
    InvalidRecords,
    InvalidTimestamps,
    RecordRejection,
    TopicRules,
    validate,
)
from skidway.steps import at_once

NOW = 1_700_000_000_000
HOUR = 3_600_000
RECORDS = [Record(i, NOW + i, b"key %d" % i, b"value %d" % i) for i in range(10)]
PLAIN = TopicRules()
IDEMPOTENT: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0}


def checked(view: memoryview, rules: TopicRules, version: int) -> tuple[bytearray | memoryview, BatchHeader]:
    result = validate(view, rules, version, NOW)
    return result if isinstance(result, tuple) else at_once(result)


def produce(
    batch: bytes | bytearray, rules: TopicRules = PLAIN, version: int = 9
) -> tuple[bytearray | memoryview, BatchHeader]:
    return checked(memoryview(bytearray(batch)), rules, version)


def altered(**fields: int) -> bytearray:
    """A good batch with some header fields changed and a checksum that fits."""
    batch = build_batch(RECORDS)
    HEADER.pack_into(batch, 0, *read_header(batch)._replace(**fields))
    set_crc(batch)
    return batch


def timestamps(batch: bytearray | memoryview) -> list[int]:
    return [record.timestamp for record in read_records(batch, decompressed_bytes_max=1 << 20)]


@pytest.mark.parametrize("codec", list(Codec))
def test_a_good_batch_comes_back_as_it_is_without_a_copy(codec: Codec) -> None:
    batch = build_batch(RECORDS, codec=codec, **IDEMPOTENT)
    view = memoryview(batch)
    accepted, header = checked(view, PLAIN, 9)
    assert accepted is view
    assert accepted == build_batch(RECORDS, codec=codec, **IDEMPOTENT)
    assert header == read_header(batch)
    assert isinstance(header, BatchHeader)


def test_a_transactional_batch_passes_with_its_flag() -> None:
    _, header = produce(build_batch(RECORDS, transactional=True, **IDEMPOTENT))
    assert header.is_transactional


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"base_offset": 1}, InvalidRecord),
        ({"base_offset": -1}, InvalidRecord),
        ({"magic": 0}, InvalidRecord),
        ({"magic": 1}, InvalidRecord),
        ({"magic": 3}, CorruptMessage),
        ({"batch_length": 2**31 - 1}, InvalidRecord),
        ({"batch_length": 60}, InvalidRecord),
        ({"batch_length": 48}, CorruptMessage),
        ({"batch_length": 0}, CorruptMessage),
        ({"batch_length": -1}, CorruptMessage),
        ({"attributes": 0x05}, UnsupportedCompressionType),
        ({"attributes": 0x07}, UnsupportedCompressionType),
        ({"attributes": 0x20}, InvalidRecord),
        ({"attributes": 0x40}, InvalidRecord),
        ({"attributes": 0x10}, InvalidRecord),
        ({"record_count": 0, "last_offset_delta": -1}, InvalidRecord),
        ({"record_count": -1, "last_offset_delta": -2}, InvalidRecord),
        ({"record_count": 9}, InvalidRecord),
        ({"record_count": 11}, InvalidRecord),
        ({"last_offset_delta": 2**31 - 1}, InvalidRecord),
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2}, InvalidRecord),
        ({"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 2, "attributes": 1}, InvalidRecord),
        ({"producer_id": 7, "producer_epoch": 0}, InvalidRecord),
        ({"producer_id": 7, "base_sequence": 0}, InvalidRecord),
        ({"producer_id": 7, "producer_epoch": 0, "base_sequence": -2}, InvalidRecord),
    ],
)
def test_headers_that_cannot_be_are_refused(fields: dict[str, int], error: type[ProtocolError]) -> None:
    produce(altered())
    with pytest.raises(error):
        produce(altered(**fields))


def test_there_is_exactly_one_whole_batch() -> None:
    batch = build_batch(RECORDS)
    for bad in (b"", batch[:16], batch[:40], batch[:-1], batch + b"\x00", batch + batch):
        with pytest.raises(InvalidRecord):
            produce(bad)
    with pytest.raises(CorruptMessage):
        produce(altered(batch_length=20)[:40])


def test_every_changed_byte_under_the_checksum_is_noticed() -> None:
    batch = build_batch(RECORDS, **IDEMPOTENT)
    for position in range(17, len(batch)):
        broken = bytearray(batch)
        broken[position] ^= 0x10
        with pytest.raises((CorruptMessage, UnsupportedCompressionType)):
            produce(broken)


def test_size_is_checked_before_the_checksum() -> None:
    batch = build_batch(RECORDS)
    produce(batch, TopicRules(max_message_bytes=len(batch)))
    batch[-1] ^= 1
    with pytest.raises(MessageTooLarge):
        produce(batch, TopicRules(max_message_bytes=len(batch) - 1))


def test_zstd_came_with_produce_v7() -> None:
    batch = build_batch(RECORDS, codec=Codec.ZSTD)
    produce(batch, version=7)
    with pytest.raises(UnsupportedCompressionType):
        produce(batch, version=6)
    produce(build_batch(RECORDS, codec=Codec.LZ4), version=6)


@pytest.mark.parametrize("codec", list(Codec))
def test_timestamps_too_far_ahead_are_named_record_by_record(codec: Codec) -> None:
    wanted = [Record(0, NOW + shift, None, b"v") for shift in (0, HOUR + 1, HOUR, 2 * HOUR)]
    with pytest.raises(InvalidTimestamp) as caught:
        produce(build_batch(wanted, codec=codec))
    assert isinstance(caught.value, RecordRejection)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [index for index, _ in caught.value.record_errors] == [1, 3]
    assert str(NOW + 2 * HOUR) in caught.value.record_errors[1][1]
    produce(build_batch(wanted, codec=codec), TopicRules(timestamp_after_max_ms=2 * HOUR))


def test_timestamps_too_old_are_found_anywhere_in_the_batch() -> None:
    rules = TopicRules(timestamp_before_max_ms=HOUR)
    wanted = [Record(0, NOW, None, b"v"), Record(0, NOW - HOUR - 1, None, b"v"), Record(0, NOW - HOUR, None, b"v")]
    with pytest.raises(InvalidTimestamps) as caught:
        produce(build_batch(wanted), rules)
    assert [index for index, _ in caught.value.record_errors] == [1]
    produce(build_batch(wanted))
    produce(build_batch([wanted[0], wanted[2]]), rules)


def test_no_timestamp_is_no_reason_to_refuse() -> None:
    rules = TopicRules(timestamp_before_max_ms=HOUR)
    accepted, header = produce(build_batch([Record(0, -1, None, b"v")]), rules)
    assert header.max_timestamp == -1
    assert timestamps(accepted) == [-1]


def test_a_header_that_exaggerates_its_largest_timestamp_is_corrected() -> None:
    accepted, header = produce(altered(max_timestamp=NOW + 2 * HOUR))
    assert header.max_timestamp == NOW + 9
    assert header == read_header(accepted)
    assert accepted == build_batch(RECORDS)


@pytest.mark.parametrize("codec", list(Codec))
def test_log_append_time_is_stamped_in_place(codec: Codec) -> None:
    rules = TopicRules(timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=1)
    old = [Record(0, 5, None, b"v"), Record(0, 6, None, b"v")]
    view = memoryview(build_batch(old, codec=codec))
    accepted, header = checked(view, rules, 9)
    assert accepted is view
    assert crc_matches(accepted)
    assert header == read_header(accepted)
    assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW)
    assert timestamps(accepted) == [NOW, NOW]


def test_only_the_broker_says_log_append_time() -> None:
    batch = build_batch(RECORDS)
    set_log_append_time(batch, NOW)
    with pytest.raises(InvalidTimestamps) as caught:
        produce(batch, TopicRules(timestamp_type=TimestampType.LOG_APPEND_TIME))
    assert [index for index, _ in caught.value.record_errors] == list(range(10))

    # A topic of create times takes the batch and the flag off it.
    accepted, header = produce(batch)
    assert header.timestamp_type is TimestampType.CREATE_TIME
    assert crc_matches(accepted)
    set_log_append_time(batch, NOW + 2 * HOUR)
    with pytest.raises(InvalidTimestamps):
        produce(batch)
    set_log_append_time(batch, -1)
    with pytest.raises(InvalidTimestamps):
        produce(batch)


@pytest.mark.parametrize("codec", list(Codec))
def test_a_compacted_topic_wants_keys(codec: Codec) -> None:
    rules = TopicRules(compacted=True)
    produce(build_batch([Record(0, NOW, b"", b"v"), Record(0, NOW, b"k", None)], codec=codec), rules)
    with pytest.raises(InvalidRecords) as caught:
        produce(build_batch([Record(0, NOW, b"k", b"v"), Record(0, NOW, None, b"v")], codec=codec), rules)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [index for index, _ in caught.value.record_errors] == [1]


def test_a_bad_timestamp_outweighs_a_missing_key() -> None:
    wanted = [Record(0, NOW, None, b"v"), Record(0, NOW + 2 * HOUR, b"k", b"v")]
    with pytest.raises(InvalidTimestamps) as caught:
        produce(build_batch(wanted), TopicRules(compacted=True))
    assert [index for index, _ in caught.value.record_errors] == [0, 1]


def test_rejections_name_a_bounded_number_of_records() -> None:
    wanted = [Record(0, NOW, None, b"")] * (RECORD_ERRORS_MAX + 5)
    with pytest.raises(InvalidRecords) as caught:
        produce(build_batch(wanted), TopicRules(compacted=True))
    assert len(caught.value.record_errors) == RECORD_ERRORS_MAX


@pytest.mark.parametrize("source", list(Codec))
@pytest.mark.parametrize("target", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("timestamp_type", list(TimestampType))
def test_another_codec_keeps_everything_else(source: Codec, target: str, timestamp_type: TimestampType) -> None:
    rules = TopicRules(compression_type=target, timestamp_type=timestamp_type)
    batch = build_batch(
        RECORDS, codec=source, transactional=True, producer_id=7, producer_epoch=2, base_sequence=2**31 - 5
    )
    accepted, header = produce(batch, rules)
    before = read_header(batch)
    kept = ("base_offset", "last_offset_delta", "base_timestamp", "producer_id", "producer_epoch", "base_sequence")
    assert [getattr(header, name) for name in kept] == [getattr(before, name) for name in kept]
    assert (header.codec, header.is_transactional) == (rules.codec, True)
    assert header.size == len(accepted)
    assert crc_matches(accepted)
    stamped = timestamp_type is TimestampType.LOG_APPEND_TIME
    expected = [record._replace(timestamp=NOW) if stamped else record for record in RECORDS]
    assert list(read_records(accepted, decompressed_bytes_max=1 << 20)) == expected
    accepted[0] = 1  # the log writes the offset into it


def test_a_batch_that_grows_too_large_in_conversion_is_refused() -> None:
    batch = build_batch([Record(0, NOW, b"k", bytes(10_000))], codec=Codec.GZIP)
    rules = TopicRules(compression_type="uncompressed", max_message_bytes=5_000)
    with pytest.raises(MessageTooLarge):
        produce(batch, rules)


@pytest.mark.parametrize("break_it", [lambda b: b.__setitem__(slice(-8, None), b"\xff" * 8), lambda b: b.append(0)])
def test_broken_contents_show_when_the_batch_is_opened(break_it: Callable[[bytearray], None]) -> None:
    batch = build_batch(RECORDS, codec=Codec.GZIP)
    break_it(batch)
    batch[8:12] = (len(batch) - 12).to_bytes(4, "big")
    set_crc(batch)
    produce(batch)
    with pytest.raises(CorruptMessage):
        produce(batch, TopicRules(compacted=True))


def test_a_bomb_is_refused_when_it_must_be_opened() -> None:
    batch = build_batch([Record(0, NOW, b"k", bytes(1 << 20))], codec=Codec.ZSTD)
    produce(batch, TopicRules(compacted=True))
    with pytest.raises(CorruptMessage):
        produce(batch, TopicRules(compacted=True, decompressed_bytes_max=1 << 20))


def test_the_quick_look_and_the_close_look_agree() -> None:
    """What the one expression of the hot path lets through, the examination step by step lets through as well."""
    rng = random.Random(2)
    verdicts = {True: 0, False: 0}
    edges = (-2, -1, 0, 1, 2, 3, 4, 7, 8, 9, 10, 11, 16, 19, 20, 32, 64, 2**31 - 1)
    names = ("base_offset", "attributes", "last_offset_delta", "record_count", "producer_id", "producer_epoch")
    for _ in range(20_000):
        names_changed = rng.sample((*names, "base_sequence"), rng.randint(1, 4))
        fields = {name: rng.choice(edges) for name in names_changed}
        if "producer_epoch" in fields:
            fields["producer_epoch"] = min(fields["producer_epoch"], 2**15 - 1)
        if "attributes" in fields:
            # Without the LogAppendTime flag: it would have the records opened, which is another story.
            fields["attributes"] = min(fields["attributes"], 127) & ~0x08
        batch, version = memoryview(altered(**fields)), rng.choice((3, 6, 7, 9))
        try:
            validation._examine(batch, read_header(batch), PLAIN, version)
            passes = True
        except ProtocolError:
            passes = False
        try:
            validate(batch, PLAIN, version, NOW)
            accepted = True
        except ProtocolError:
            accepted = False
        assert accepted == passes, fields
        verdicts[accepted] += 1
    assert min(verdicts.values()) > 500, verdicts


def steps_of(records: int) -> int:
    """How many lines are run to validate a batch of so many records."""
    view = memoryview(build_batch([Record(0, NOW, None, bytes(100))] * records, **IDEMPOTENT))
    counted = 0

    def count(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal counted
        counted += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        validate(view, PLAIN, 9, NOW)
    finally:
        sys.settrace(before)
    return counted


def test_a_batch_costs_a_few_steps_and_its_checksum() -> None:
    """An alarm for the day a loop over records slips into the hot path."""
    assert 0 < steps_of(1) == steps_of(150) < 60
