"""The same batches through independent implementations: ours read by theirs, theirs read by ours."""

from typing import Any

import aiokafka.record.default_records as aiokafka_records
import kafka.record.default_records as kafka_records
import pytest

from skidway.records.batch import crc_matches, read_header
from skidway.records.compression import Codec
from skidway.records.record import Record, build_batch, read_records
from skidway.records.validation import TopicRules, validate
from skidway.steps import at_once

NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW, b"key", b"value", (("trace", b"abc"), ("empty", b""), ("null", None))),
    Record(1, NOW + 5, None, b"no key"),
    Record(2, NOW - 70_000, b"no value", None),
    Record(3, NOW + 1, b"", b"", (("", b""),)),
    Record(4, NOW + 2, b"large", b"0123456789" * 9_000),
    *(Record(i, NOW + i, b"k%d" % i, b"v" * i) for i in range(5, 200)),
]
# kafka-python reads and writes snappy only with a package that is not among the development ones.
PAIRS = [
    *((aiokafka_records, codec) for codec in Codec),
    *((kafka_records, codec) for codec in Codec if codec is not Codec.SNAPPY),
]


@pytest.mark.parametrize(("theirs", "codec"), PAIRS)
def test_ours_read_by_theirs(theirs: Any, codec: Codec) -> None:
    batch = build_batch(
        RECORDS, codec=codec, producer_id=7, producer_epoch=1, base_sequence=3, transactional=True, leader_epoch=2
    )
    parsed = theirs.DefaultRecordBatch(bytes(batch))
    assert parsed.validate_crc()
    assert (parsed.compression_type, parsed.is_transactional, parsed.is_control_batch) == (codec, True, False)
    assert (parsed.producer_id, parsed.producer_epoch, parsed.base_sequence) == (7, 1, 3)
    assert (parsed.first_timestamp, parsed.max_timestamp) == (NOW, NOW + 199)
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in parsed]
    assert read == RECORDS


@pytest.mark.parametrize(("theirs", "codec"), PAIRS)
def test_theirs_read_by_ours(theirs: Any, codec: Codec) -> None:
    builder = theirs.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=7,
        producer_epoch=1,
        base_sequence=3,
        batch_size=1 << 20,
    )
    for record in RECORDS:
        appended = builder.append(
            record.offset,
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
        )
        assert appended is not None
    batch = bytearray(builder.build())
    assert crc_matches(batch)
    header = read_header(batch)
    assert (header.codec, header.size, header.record_count) == (codec, len(batch), len(RECORDS))
    assert list(read_records(batch, decompressed_bytes_max=1 << 20)) == RECORDS

    accepted, _ = validate(memoryview(batch), TopicRules(), 9, NOW)
    assert accepted == batch


@pytest.mark.parametrize("target", [codec.name.lower() for codec in Codec if codec] + ["uncompressed"])
def test_a_converted_batch_is_read_by_theirs(target: str) -> None:
    batch = memoryview(build_batch(RECORDS, codec=Codec.ZSTD if target != "zstd" else Codec.GZIP))
    converting = validate(batch, TopicRules(compression_type=target), 9, NOW)
    converted, header = converting if isinstance(converting, tuple) else at_once(converting)
    parsed = aiokafka_records.DefaultRecordBatch(bytes(converted))
    assert parsed.validate_crc()
    assert parsed.compression_type == header.codec
    assert [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in parsed] == RECORDS
