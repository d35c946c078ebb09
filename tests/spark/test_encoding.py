"""Arrow columns become batches that brokers take and clients read, by the compiled and by the plain encoder alike."""

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from decoded import decode
from hypothesis import given, settings
from hypothesis import strategies as st
from raw_partition import produce

import skidway
from skidway.blocking_client.partitioners import murmur2, partition_of_key
from skidway.records.batch import HEADER_BYTES, crc_matches, read_header
from skidway.records.compression import Codec
from skidway.records.record import read_records
from skidway.spark.codec.encoding import EncodedBatch, Encoder, encode_batches, group_rows, partition_of, stamp_producer
from skidway.spark.codec.runs import HEADERS_TYPE

Row = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]
SPACE = 1 << 24

field = st.none() | st.binary(max_size=200)
rows = st.lists(
    st.tuples(field, field, st.none() | st.lists(st.tuples(st.text(max_size=8), field), max_size=3)), max_size=40
)
kernels = pytest.mark.parametrize("kernel", ["numba", "python"])


def columns_of(wanted: list[Row], kind: pa.DataType) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Values, keys and headers, as a slice of something larger: that is how Spark's come."""
    more: list[Row] = [(b"before", b"before", [("before", None)]), *wanted, (None, b"after", None)]
    headers = [
        None if pairs is None else [{"key": name, "value": value} for name, value in pairs] for _, _, pairs in more
    ]
    built = (
        pa.array([value for _, value, _ in more], kind),
        pa.array([key for key, _, _ in more], kind),
        pa.array(headers, HEADERS_TYPE),
    )
    return tuple(column.slice(1, len(wanted)) for column in built)


def read_back(batches: list[EncodedBatch]) -> list[Row]:
    found: list[Row] = []
    for batch in batches:
        records = list(read_records(batch.buffer, decompressed_bytes_max=SPACE))
        assert [record.offset for record in records] == list(range(batch.records))
        found += [(record.key, record.value, list(record.headers)) for record in records]
    return found


@settings(max_examples=120)
@given(
    rows,
    st.sampled_from([pa.binary(), pa.large_binary()]),
    st.sampled_from([1, 150, 1_000, 1_000_000]),
    st.sampled_from(list(Codec)),
)
def test_both_encoders_write_the_same_bytes(wanted: list[Row], kind: pa.DataType, batch_bytes: int, codec: int) -> None:
    columns = columns_of(wanted, kind)
    compiled, plain = (
        encode_batches(*columns, timestamp_ms=1_700_000_000_000, batch_bytes=batch_bytes, codec=codec, kernel=kernel)
        for kernel in ("numba", "python")
    )
    assert compiled == plain
    assert read_back(compiled) == [(key, value, pairs or []) for key, value, pairs in wanted]


@kernels
@settings(max_examples=30)
@given(wanted=rows)
def test_what_is_encoded_is_decoded_again(kernel: Any, wanted: list[Row]) -> None:
    data = b""
    offset = 0
    values, keys, headers = columns_of(wanted, pa.binary())
    for batch in encode_batches(values, keys, headers, timestamp_ms=5, batch_bytes=600, codec=Codec.LZ4, kernel=kernel):
        stamp_producer(batch)
        data += offset.to_bytes(8, "big") + batch.buffer[8:]
        offset += batch.records
    decoded, next_offset = decode(data, kernel)
    assert next_offset == offset == len(wanted)
    assert [(row["key"], row["value"]) for row in decoded] == [(key, value) for key, value, _ in wanted]
    assert [row["headers"] for row in decoded] == [pairs or None for pairs in headers.to_pylist()]


@kernels
def test_batches_are_bounded_before_compression(kernel: Any) -> None:
    values = pa.array([b"x" * size for size in (100, 100, 100, 5_000, 10, 10)])
    batches = encode_batches(values, None, None, timestamp_ms=0, batch_bytes=400, codec=Codec.NONE, kernel=kernel)
    assert [batch.records for batch in batches] == [3, 1, 2]
    assert [len(batch.buffer) <= 400 for batch in batches] == [True, False, True]
    exact = len(batches[0].buffer)
    again = encode_batches(values, None, None, timestamp_ms=0, batch_bytes=exact, codec=Codec.ZSTD, kernel=kernel)
    assert [batch.records for batch in again] == [3, 1, 2]
    less = encode_batches(values, None, None, timestamp_ms=0, batch_bytes=exact - 1, codec=Codec.NONE, kernel=kernel)
    assert [batch.records for batch in less] == [2, 1, 1, 2]


@kernels
@pytest.mark.parametrize("edge", [62, 63, 64, 65, 8_190, 8_191, 8_192, 8_193])
def test_lengths_where_numbers_grow_a_byte(kernel: Any, edge: int) -> None:
    values = pa.array([b"x" * edge] * 130)
    keys = pa.array([b"k" * (index % 70) for index in range(130)])
    batches = encode_batches(values, keys, None, timestamp_ms=0, batch_bytes=SPACE, codec=Codec.NONE, kernel=kernel)
    assert read_back(batches) == [(b"k" * (index % 70), b"x" * edge, []) for index in range(130)]


@kernels
@pytest.mark.parametrize(
    ("column", "texts"),
    [
        (pa.array(["a", None, "ü"], pa.string()), [b"a", None, "ü".encode()]),
        (pa.array(["a", None, "ü"], pa.large_string()), [b"a", None, "ü".encode()]),
        (pa.array([b"ab", None, b"cd"], pa.binary(2)), [b"ab", None, b"cd"]),
        (pa.chunked_array([pa.array([b"a"]), pa.array([None, b"b"], pa.binary())]), [b"a", None, b"b"]),
        (pa.nulls(3), [None, None, None]),
    ],
    ids=["string", "large string", "fixed size", "chunked", "null"],
)
def test_kinds_of_columns(kernel: Any, column: Any, texts: list[bytes | None]) -> None:
    batches = encode_batches(column, column, None, timestamp_ms=0, batch_bytes=SPACE, codec=0, kernel=kernel)
    assert read_back(batches) == [(text, text, []) for text in texts]


def test_columns_that_cannot_be_written_are_named() -> None:
    values = pa.array([b"a", b"b"])
    with pytest.raises(ValueError, match="column 'key' is list<item: int64>; it must be binary or string"):
        Encoder(values, pa.array([[1], [2]]))
    with pytest.raises(ValueError, match="column 'headers' is string; it must be array<struct"):
        Encoder(values, None, pa.array(["a", "b"]))
    with pytest.raises(ValueError, match="column 'key' has 1 rows where the values are 2"):
        Encoder(values, pa.array([b"a"]))
    pairs = [None, [{"key": "a", "value": b""}, {"key": None, "value": b""}]]
    with pytest.raises(ValueError, match="row 1 has a header without a key"):
        Encoder(values, None, pa.array(pairs, HEADERS_TYPE))


def test_headers_under_null_rows_are_not_written() -> None:
    """Arrow allows a null list to have elements, and a null struct to have fields."""
    pairs = pa.StructArray.from_arrays([pa.array(["a", None, "c"]), pa.array([b"1", b"2", None])], ["key", "value"])
    ends, valid = pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), pa.py_buffer(bytes([0b101]))
    headers = pa.Array.from_buffers(HEADERS_TYPE, 3, [valid, ends], children=[pairs])
    values = pa.array([b"x", b"y", b"z"])
    for kernel in ("numba", "python"):
        batches = encode_batches(values, None, headers, timestamp_ms=0, batch_bytes=SPACE, codec=0, kernel=kernel)
        assert [pairs for _, _, pairs in read_back(batches)] == [[("a", b"1")], [], [("c", None)]]


def test_the_producer_is_stamped_in_place_as_often_as_needed() -> None:
    (batch,) = encode_batches(pa.array([b"a", b"b"]), None, None, timestamp_ms=77, batch_bytes=SPACE, codec=Codec.ZSTD)
    header = read_header(batch.buffer)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.crc) == (-1, -1, -1, 0)
    assert (header.base_timestamp, header.max_timestamp, header.last_offset_delta) == (77, 77, 1)
    for producer_id, epoch, sequence, transactional in ((9, 1, 0, True), (10, 0, 2**31 - 1, False)):
        stamp_producer(batch, producer_id, epoch, sequence, transactional=transactional)
        header = read_header(batch.buffer)
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (producer_id, epoch, sequence)
        assert (header.is_transactional, header.codec, header.record_count) == (transactional, Codec.ZSTD, 2)
        assert crc_matches(batch.buffer)


# Partitions.


@kernels
@settings(max_examples=100)
@given(keys=st.lists(st.none() | st.binary(max_size=40), max_size=30), partitions=st.integers(1, 10_000))
def test_keys_go_where_every_client_sends_them(kernel: Any, keys: list[bytes | None], partitions: int) -> None:
    chosen = partition_of(pa.array([b"", *keys], pa.binary()).slice(1), partitions, kernel=kernel)
    assert chosen.tolist() == [-1 if key is None else partition_of_key(key, partitions) for key in keys]


@kernels
def test_the_hash_is_javas(kernel: Any) -> None:
    """Numbers from the tests of Kafka's Java client; its hashes are signed."""
    known = {b"21": -973932308, b"foobar": -790332482, b"a-little-bit-long-string": -985981536, b"abc": 479470107}
    assert {key: murmur2(key) for key in known} == {key: number & 0xFFFFFFFF for key, number in known.items()}
    chosen = partition_of(pa.array(list(known)), 1_000_003, kernel=kernel)
    assert chosen.tolist() == [(number & 0x7FFFFFFF) % 1_000_003 for number in known.values()]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(-1, 40_000)), max_size=60))
def test_rows_are_grouped_by_partition_in_their_order(places: list[tuple[str, int]]) -> None:
    topics = pa.array([topic for topic, _ in places], pa.string())
    groups = group_rows(topics, np.array([partition for _, partition in places], np.int32))
    wanted: dict[tuple[str, int], list[int]] = {}
    for row, place in enumerate(places):
        wanted.setdefault(place, []).append(row)
    assert {(group.topic, group.partition): group.rows.tolist() for group in groups} == wanted
    assert len(groups) == len(wanted)


def test_rows_of_one_topic_are_grouped_and_encoded_without_copying_the_others() -> None:
    values = pa.array([b"%d" % index for index in range(10)])
    encoder = Encoder(values)
    found = {}
    for topic, partition, chosen in group_rows("orders", np.array([index % 3 for index in range(10)], np.int32)):
        assert topic == "orders"
        batches = list(encoder.encode(chosen, timestamp_ms=0, batch_bytes=SPACE, codec=Codec.NONE))
        found[partition] = [value for _, value, _ in read_back(batches)]
    assert found == {0: [b"0", b"3", b"6", b"9"], 1: [b"1", b"4", b"7"], 2: [b"2", b"5", b"8"]}


def test_a_row_without_a_topic_is_named() -> None:
    with pytest.raises(ValueError, match="row 1 has no topic"):
        group_rows(pa.array(["a", None]), np.zeros(2, np.int32))


# A real broker and a real client.


@pytest.mark.parametrize("codec", list(Codec))
def test_a_broker_takes_the_batches_and_a_client_reads_the_rows(bootstrap: str, codec: Codec) -> None:
    topic = f"encoding-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(10)
    wanted: list[Row] = [
        (b"k", b"v", [("a", b"1"), ("a", None)]),
        (None, b"no key", None),
        (b"gone", None, []),
        *((b"key-%d" % index, b"value " * index, None) for index in range(500)),
    ]
    values, keys, headers = columns_of(wanted, pa.binary())
    batches = encode_batches(values, keys, headers, timestamp_ms=1_700_000_000_000, batch_bytes=50_000, codec=codec)
    assert len(batches) > 5
    for batch in batches:
        stamp_producer(batch)
    placed = produce(bootstrap, topic, [batch.buffer for batch in batches])
    assert placed == np.cumsum([0, *(batch.records for batch in batches[:-1])]).tolist()

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "-", "check.crcs": True})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Row] = []
    while len(found) < len(wanted):
        message = consumer.poll(10)
        assert message is not None, "nothing came within ten seconds"
        assert not message.error(), message.error()
        assert message.timestamp()[1] == 1_700_000_000_000
        attached: Any = message.headers() or []
        found.append((message.key(), message.value(), attached))
    consumer.close()
    assert found == [(key, value, pairs or []) for key, value, pairs in wanted]
    assert min(len(batch.buffer) for batch in batches) > HEADER_BYTES


# Where compiled code may be kept.

ASK = (
    "import pyarrow as pa\n"
    "from skidway.spark.codec import encode_kernel\n"
    "from skidway.spark.codec.encoding import partition_of\n"
    "print(encode_kernel.__file__, partition_of(pa.array([b'21']), 1000, kernel='numba')[0])\n"
)


@pytest.mark.parametrize("home", ["writable", "unwritable"])
def test_kernels_work_where_the_package_cannot_be_written(tmp_path: Path, home: str) -> None:
    """Also where Python may not write bytecode. A file in place of a folder keeps even root from writing."""
    package = tmp_path / "site" / "skidway"
    shutil.copytree(Path(skidway.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    kernel = package / "spark" / "codec" / "encode_kernel.py"
    (kernel.parent / "__pycache__").write_text("not a folder")
    cache = tmp_path / "cache"
    if home == "unwritable":
        cache.write_text("not a folder")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    environment |= {"PYTHONPATH": str(package.parent), "PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(cache)}
    done = subprocess.run([sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout.split() == [
        str(package / "spark" / "codec" / "encode_kernel.py"),
        str(partition_of_key(b"21", 1000)),
    ]
    assert bool(list(cache.rglob("*.nbi"))) == (home == "writable")
