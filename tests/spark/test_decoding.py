"""Record batches become the rows that were produced, by the compiled and by the plain reader alike."""

import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from decoded import FOREVER, batch_of, compacted, decode, expected
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)
from raw_partition import fetch

from skidway.records.batch import set_log_append_time
from skidway.records.compression import Codec
from skidway.records.control import EndTransaction, end_transaction_batch
from skidway.records.record import Record, build_batch
from skidway.spark.codec.decoding import COLUMNS, CorruptData, Decoder, Kernel, arrow_schema
from skidway.spark.codec.encoding import encode_batches, stamp_producer
from skidway.testing import Broker
from waiting import eventually

PAIR = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
SPARK_TYPES = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(PAIR),
}

field = st.none() | st.binary(max_size=200)
name = st.binary(max_size=6).map(lambda raw: raw.decode("utf-8", "surrogateescape"))
record = st.builds(
    Record,
    offset=st.just(0),
    timestamp=st.integers(-1, 2**50),
    key=field,
    value=field,
    headers=st.lists(st.tuples(name, field), max_size=4).map(tuple),
)
kernels = pytest.mark.parametrize("kernel", ["numba", "python"])


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Batches with gaps between them, of all codecs and both kinds of timestamps, some with records compacted away."""
    data = bytearray()
    offset = draw(st.integers(0, 2**40))
    for _ in range(draw(st.integers(1, 5))):
        records = draw(st.lists(record, min_size=1, max_size=12))
        codec = draw(st.sampled_from(list(Codec)))
        batch = build_batch(records, base_offset=offset, codec=codec)
        if codec == Codec.NONE and draw(st.booleans()):
            batch = compacted(batch, sorted(draw(st.sets(st.integers(0, len(records) - 1)))))
        if draw(st.booleans()):
            set_log_append_time(batch, draw(st.integers(0, 2**50)))
        data += batch
        offset += len(records) + draw(st.integers(0, 3))
    return bytes(data)


@settings(max_examples=150)
@given(logs(), st.data(), st.integers(1, 20), st.sampled_from([1, 100, 100_000]))
def test_rows_are_what_the_records_say(data: bytes, draws: st.DataObject, rows_max: int, bytes_max: int) -> None:
    everything = expected(data)
    offsets = [row["offset"] for row in everything] or [0]
    start = draws.draw(st.integers(max(offsets[0] - 2, 0), offsets[-1] + 2))
    end = draws.draw(st.integers(start, offsets[-1] + 3))
    got = [
        decode(data, kernel, start=start, end=end, rows_max=rows_max, bytes_max=bytes_max)
        for kernel in ("numba", "python")
    ]
    assert got[0] == got[1]
    assert got[0][0] == expected(data, start, end)


@settings(max_examples=30)
@given(logs(), st.lists(st.sampled_from(COLUMNS), unique=True))
def test_only_the_wanted_columns_are_built_in_their_order(data: bytes, columns: list[str]) -> None:
    wanted = [{name: row[name] for name in columns} for row in expected(data)]
    for kernel in ("numba", "python"):
        rows, _ = decode(data, kernel, columns=columns)
        assert rows == wanted
        assert [list(row) for row in rows] == [columns] * len(rows)


@pytest.mark.parametrize("columns", [COLUMNS, ("value",), ("headers", "key"), ("timestamp", "topic")])
def test_the_schema_is_what_pyspark_compares_with(columns: tuple[str, ...]) -> None:
    schema = to_arrow_schema(StructType([StructField(name, SPARK_TYPES[name]) for name in columns]), timezone="UTC")
    assert arrow_schema(columns) == schema
    decoder = Decoder("orders", 7, columns)
    (table,) = decoder.decode(bytes(batch_of([b"a", None])), 0, 2)
    assert table.schema == schema


def test_an_unknown_column_is_named() -> None:
    with pytest.raises(ValueError, match="no column 'valeu'; a topic has key, value"):
        arrow_schema(["key", "valeu"])


@kernels
def test_no_columns_are_a_number_of_rows(kernel: Kernel) -> None:
    tables = list(Decoder("orders", 7, (), kernel=kernel, rows_max=2).decode(bytes(batch_of([b"a", b"b", b"c"])), 0, 3))
    assert [(table.num_columns, table.num_rows) for table in tables] == [(0, 2), (0, 1)]


@kernels
def test_tables_are_filled_across_batches_and_cut_within_one(kernel: Kernel) -> None:
    small = b"".join(batch_of([b"x"] * 40, base_offset=40 * index) for index in range(5))
    large = bytes(batch_of([b"x"] * 250, base_offset=200))
    decoder = Decoder("orders", 7, ["offset"], kernel=kernel, rows_max=100)
    tables = list(decoder.decode(small + large, 0, 450))
    assert [table.num_rows for table in tables] == [80, 80, 40, 100, 100, 50]
    assert pa.Table.from_batches(tables)["offset"].to_pylist() == list(range(450))


@kernels
def test_tables_are_bounded_by_bytes_but_hold_at_least_a_row(kernel: Kernel) -> None:
    data = bytes(batch_of([b"x" * size for size in (60, 30, 30, 500, 10)]))
    decoder = Decoder("orders", 7, ["value"], kernel=kernel, bytes_max=100)
    assert [table.num_rows for table in decoder.decode(data, 0, 5)] == [2, 1, 1, 1]


@kernels
def test_a_cut_batch_at_the_end_is_for_the_next_fetch(kernel: Kernel) -> None:
    whole, cut = bytes(batch_of([b"a", b"b"])), bytes(batch_of([b"c", b"d"], base_offset=2))
    for length in range(len(cut)):
        rows, next_offset = decode(whole + cut[:length], kernel, columns=["offset"])
        assert [row["offset"] for row in rows] == [0, 1]
        assert next_offset == 2


@kernels
def test_the_next_offset_is_past_what_the_batches_cover(kernel: Kernel) -> None:
    emptied = compacted(batch_of([b"a", b"b", b"c"], base_offset=10), [])
    gapped = compacted(batch_of([b"a", b"b", b"c"], base_offset=13), [1])
    assert decode(bytes(emptied), kernel) == ([], 13)
    rows, next_offset = decode(bytes(emptied + gapped), kernel)
    assert [(row["offset"], row["value"]) for row in rows] == [(14, b"b")]
    assert next_offset == 16
    assert decode(b"", kernel, start=5) == ([], 5)
    # A fetch from inside a batch brings the whole batch; one that ends before the start cannot move it back.
    assert decode(bytes(emptied), kernel, start=20)[1] == 20
    assert decode(bytes(emptied + gapped), kernel, start=10, end=12)[1] >= 12


@kernels
def test_timestamps_go_out_as_sparks_kafka_connector_has_them(kernel: Kernel) -> None:
    unset = bytes(build_batch([Record(0, -1, None, b"a"), Record(0, 1_700_000_000_123, None, b"b")]))
    stamped = batch_of([b"c", b"d"], base_offset=2)
    set_log_append_time(stamped, 1_700_000_000_456)
    decoder = Decoder("orders", 7, ["timestamp", "timestampType"], kernel=kernel)
    table = pa.Table.from_batches(decoder.decode(unset + bytes(stamped), 0, 4))
    assert [f"{moment:%F %T.%f}" for moment in table["timestamp"].to_pylist()] == [
        "1969-12-31 23:59:59.999000",
        "2023-11-14 22:13:20.123000",
        "2023-11-14 22:13:20.456000",
        "2023-11-14 22:13:20.456000",
    ]
    assert table["timestampType"].to_pylist() == [0, 0, 1, 1]


@kernels
def test_a_timestamp_beyond_sparks_is_held_at_the_last_one(kernel: Kernel) -> None:
    data = bytes(build_batch([Record(0, 0, None, b"a"), Record(0, 2**62, None, b"b")]))
    rows, _ = decode(data, kernel, columns=["timestamp"])
    assert [row["timestamp"] for row in rows] == [0, (2**63 - 1) // 1000 * 1000]


@kernels
def test_header_names_that_are_not_text_become_text(kernel: Kernel) -> None:
    raw = b"caf\xe9".decode("utf-8", "surrogateescape")
    data = bytes(build_batch([Record(0, 0, None, b"a", [(raw, b"1"), ("café", None), ("", b"")])]))
    rows, _ = decode(data, kernel, columns=["headers"])
    assert [(pair["key"], pair["value"]) for pair in rows[0]["headers"]] == [
        ("caf\N{REPLACEMENT CHARACTER}", b"1"),
        ("café", None),
        ("", b""),
    ]


def marker(producer_id: int, offset: int, *, committed: bool) -> bytes:
    batch = end_transaction_batch(EndTransaction(committed, 0), producer_id=producer_id, producer_epoch=0, timestamp=5)
    return offset.to_bytes(8, "big") + bytes(batch[8:])


def transactional(producer_id: int, offset: int, *values: bytes) -> bytes:
    options: dict[str, Any] = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0}
    return bytes(batch_of(values, base_offset=offset, transactional=True, **options))


@kernels
def test_aborted_transactions_and_markers_are_left_out(kernel: Kernel) -> None:
    data = b"".join(
        [
            transactional(1, 0, b"committed 1"),
            transactional(2, 1, b"aborted 2", b"aborted 2"),
            transactional(1, 3, b"committed 1"),
            marker(1, 4, committed=True),
            transactional(1, 5, b"aborted 1"),
            bytes(batch_of([b"plain"], base_offset=6)),
            marker(2, 7, committed=False),
            transactional(2, 8, b"committed 2"),
            marker(1, 9, committed=False),
            marker(2, 10, committed=True),
        ]
    )
    aborted = [(1, 5), (2, 1)]
    rows, next_offset = decode(data, kernel, aborted=aborted)
    assert [row["value"] for row in rows] == [b"committed 1", b"committed 1", b"plain", b"committed 2"]
    assert next_offset == 11
    uncommitted, _ = decode(data, kernel)
    assert [row["offset"] for row in uncommitted] == [0, 1, 2, 3, 5, 6, 8]


@kernels
def test_a_transaction_is_remembered_from_one_reply_to_the_next(kernel: Kernel) -> None:
    decoder = Decoder("orders", 7, ["value"], kernel=kernel)
    replies = [
        (transactional(1, 0, b"aborted"), [(1, 0), (2, 9)]),
        (transactional(1, 1, b"aborted") + marker(1, 2, committed=False), []),
        (transactional(1, 3, b"committed") + transactional(2, 9, b"aborted"), []),
    ]
    found = []
    for data, aborted in replies:
        for table in decoder.decode(data, decoder.next_offset, FOREVER, aborted):
            found += table.column(0).to_pylist()
    assert found == [b"committed"]


@kernels
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_refused_by_name(kernel: Kernel, magic: int) -> None:
    message = (12).to_bytes(8, "big") + (30).to_bytes(4, "big") + bytes(4) + bytes([magic]) + bytes(25)
    with pytest.raises(CorruptData, match=rf"orders-7 at offset 12: message format v{magic} is not supported"):
        decode(message, kernel)


def test_the_buffer_may_be_any_kind_of_buffer() -> None:
    data = bytes(batch_of([b"a", b"b"], codec=Codec.LZ4) + batch_of([b"c"], base_offset=2))
    for buffer in (data, bytearray(data), memoryview(data), pa.py_buffer(data)):
        decoder = Decoder("orders", 7, ["value"])
        assert pa.Table.from_batches(decoder.decode(buffer, 0, 3))["value"].to_pylist() == [b"a", b"b", b"c"]


def test_without_numba_the_plain_reader_and_writer_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    for module in ("compiling", "decode_kernel", "encode_kernel"):
        monkeypatch.delitem(sys.modules, f"skidway.spark.codec.{module}", raising=False)
    (batch,) = encode_batches(pa.array([b"a"]), None, None, timestamp_ms=0, batch_bytes=1_000, codec=Codec.NONE)
    stamp_producer(batch)
    assert [row["value"] for row in decode(bytes(batch.buffer), "auto")[0]] == [b"a"]
    with pytest.raises(ImportError, match="numba"):
        decode(bytes(batch.buffer), "numba")


# What real clients write to a real broker.

MESSAGES: list[dict[str, Any]] = [
    {"key": b"k1", "value": b"v1", "headers": [("trace", b"1"), ("trace", b"2"), ("none", None)]},
    {"key": None, "value": b"no key"},
    {"key": b"deleted", "value": None},
    {"key": None, "value": None, "headers": [("only", b"")]},
    {"key": b"", "value": b""},
    {"key": "ключ".encode(), "value": "значение".encode() * 500, "headers": [("ключ", b"\x00\xff")]},
    *({"key": b"user-%d" % index, "value": b"click " * index} for index in range(300)),
]


def new_topic(bootstrap: str, **config: str) -> str:
    topic = f"decoding-{uuid.uuid4().hex[:8]}"
    settings = {name.replace("_", "."): value for name, value in config.items()}
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1, config=settings)])[topic].result(10)
    return topic


def produce_all(bootstrap: str, topic: str, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, **config})
    for message in MESSAGES:
        producer.produce(topic, partition=0, **message)
    assert producer.flush(20) == 0


def consume_all(bootstrap: str, topic: str) -> list[dict[str, Any]]:
    settings = {"bootstrap.servers": bootstrap, "group.id": "-", "enable.partition.eof": True}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows: list[dict[str, Any]] = []
    try:
        while True:
            message = consumer.poll(10)
            assert message is not None, "nothing came within ten seconds"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return rows
            attached: Any = message.headers() or ()
            kind, timestamp_ms = message.timestamp()
            headers = [{"key": key, "value": value} for key, value in attached]
            rows.append(
                {
                    "key": message.key(),
                    "value": message.value(),
                    "topic": "orders",
                    "partition": 7,
                    "offset": message.offset(),
                    "timestamp": timestamp_ms * 1000,
                    "timestampType": int(kind == TIMESTAMP_LOG_APPEND_TIME),
                    "headers": headers or None,
                }
            )
    finally:
        consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_a_client_produced_comes_out_as_another_client_reads_it(bootstrap: str, codec: str) -> None:
    topic = new_topic(bootstrap)
    produce_all(bootstrap, topic, **{"compression.type": codec, "enable.idempotence": True})
    wanted = consume_all(bootstrap, topic)
    assert [(row["key"], row["value"]) for row in wanted] == [(one["key"], one["value"]) for one in MESSAGES]
    data = fetch(bootstrap, topic)
    for kernel in ("numba", "python"):
        assert decode(data, kernel) == (wanted, len(MESSAGES))


def test_log_append_time_as_the_broker_stamps_it(bootstrap: str) -> None:
    topic = new_topic(bootstrap, message_timestamp_type="LogAppendTime")
    produce_all(bootstrap, topic)
    wanted = consume_all(bootstrap, topic)
    assert {row["timestampType"] for row in wanted} == {1}
    for kernel in ("numba", "python"):
        assert decode(fetch(bootstrap, topic), kernel) == (wanted, len(MESSAGES))


@pytest.fixture
def compacting() -> Iterator[Broker]:
    with Broker(checkpoint_ms=100, compaction_check_ms=100, flush="os") as broker:
        yield broker


def test_offsets_stay_exact_where_a_broker_compacted(compacting: Broker) -> None:
    bootstrap = compacting.bootstrap
    config = {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "0.01", "internal_segment_bytes": "20000"}
    topic = new_topic(bootstrap, **config)
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "batch.num.messages": 50})
    for index in range(2_000):
        key = b"once-%d" % index if index % 10 == 3 else b"again-%d" % (index % 7)
        producer.produce(topic, b"%d" % index + b"." * 50, key, partition=0)
    assert producer.flush(20) == 0
    eventually(lambda: len(consume_all(bootstrap, topic)) < 1_000)
    wanted, data = [], b""
    # Compaction may go on between the two readings; then they are taken again.
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        wanted, data = consume_all(bootstrap, topic), fetch_to(bootstrap, topic, 2_000)
        if wanted == consume_all(bootstrap, topic):
            break
    offsets = [row["offset"] for row in wanted]
    assert offsets != list(range(offsets[0], offsets[0] + len(offsets)))
    for kernel in ("numba", "python"):
        assert decode(data, kernel) == (wanted, 2_000)


def fetch_to(bootstrap: str, topic: str, end: int) -> bytes:
    """A reply stops at the end of a segment file."""
    data = b""
    offset = 0
    while offset < end:
        more = fetch(bootstrap, topic, offset=offset)
        data += more
        offset = decode(more, "python", start=offset)[1]
    return data
