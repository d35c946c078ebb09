"""Produce, batch by batch: offsets, versions, and each way a batch can be refused."""

import uuid
import zlib

import cramjam
import pytest
from raw import Connection, MakeTopic
from raw_batches import Record, build, now_ms, read, values
from wire_calls import end_offset, fetch_bytes, produce, produce_body, topic_id

from waiting import eventually

CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
INVALID_REQUIRED_ACKS = 21
INVALID_TIMESTAMP = 32
UNSUPPORTED_COMPRESSION_TYPE = 76
INVALID_RECORD = 87
UNKNOWN_TOPIC_ID = 100
HOUR_MS = 3_600_000


def gzipped(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=31)
    return packer.compress(data) + packer.flush()


def zstandard(data: bytes) -> bytes:
    return bytes(cramjam.zstd.compress(data))


@pytest.mark.parametrize("version", range(3, 14))
def test_every_version_appends(wire: Connection, topic: str, version: int) -> None:
    first = produce(wire, topic, build([b"a", b"b"]), version=version)
    second = produce(wire, topic, build([b"c"]), version=version)
    assert (first["error_code"], first["base_offset"]) == (0, 0)
    assert (second["error_code"], second["base_offset"]) == (0, 2)
    assert second["log_append_time_ms"] == -1
    if version >= 5:
        assert second["log_start_offset"] == 0
    if version >= 8:
        assert (second["record_errors"], second["error_message"]) == ([], None)
    assert values(fetch_bytes(wire, topic)) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_many_partitions_in_one_request(wire: Connection, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=5)
    batches = [{"index": p, "records": build([b"%d" % p] * (p + 1))} for p in range(5)]
    body = {"acks": -1, "timeout_ms": 8000, "topic_data": [{"name": topic, "partition_data": batches}]}
    for repeat in range(2):
        (answer,) = wire.call("Produce", 9, body)["responses"]
        offsets = [(one["index"], one["error_code"], one["base_offset"]) for one in answer["partition_responses"]]
        assert sorted(offsets) == [(p, 0, repeat * (p + 1)) for p in range(5)]


def test_one_bad_partition_does_not_harm_the_others(wire: Connection, topic: str, name: str) -> None:
    batches = [{"index": index, "records": build([b"v"])} for index in (0, 1)]
    topics = [{"name": topic, "partition_data": batches}, {"name": name, "partition_data": batches[:1]}]
    answer = wire.call("Produce", 9, {"acks": -1, "timeout_ms": 8000, "topic_data": topics})
    found = {
        (one["name"], partition["index"]): partition["error_code"]
        for one in answer["responses"]
        for partition in one["partition_responses"]
    }
    assert found == {(topic, 0): 0, (topic, 1): UNKNOWN_TOPIC_OR_PARTITION, (name, 0): UNKNOWN_TOPIC_OR_PARTITION}


def test_an_unknown_topic_id(wire: Connection, topic: str) -> None:
    nobody = uuid.uuid4().bytes
    answer = wire.call("Produce", 13, produce_body("", build([b"v"]), id_=nobody))
    ((one,),) = [answered["partition_responses"] for answered in answer["responses"]]
    assert answer["responses"][0]["topic_id"] == nobody
    assert (one["error_code"], one["base_offset"]) == (UNKNOWN_TOPIC_ID, -1)


def test_by_topic_id(wire: Connection, topic: str) -> None:
    id_ = topic_id(wire, topic)
    answer = wire.call("Produce", 13, produce_body("", build([b"v"]), id_=id_))
    (one,) = answer["responses"]
    assert (one["topic_id"], one["partition_responses"][0]["base_offset"]) == (id_, 0)


def test_offsets_and_leader_epoch_are_stamped_and_the_rest_is_kept(wire: Connection, topic: str) -> None:
    sent = build([Record(b"v", b"k", (("h", b"1"),)), Record(None)], timestamp=now_ms())
    produce(wire, topic, sent)
    produce(wire, topic, sent)
    first, second = read(fetch_bytes(wire, topic))
    (original,) = read(sent)
    assert (first.base_offset, second.base_offset) == (0, 2)
    assert first.leader_epoch == second.leader_epoch >= 0
    assert first.payload == second.payload == original.payload
    assert first.crc == second.crc == original.crc


@pytest.mark.parametrize("version", [3, 5, 7, 9])
def test_a_wrong_crc(wire: Connection, topic: str, version: int) -> None:
    batch = bytearray(build([b"value"]))
    batch[-1] ^= 1
    assert produce(wire, topic, bytes(batch), version=version)["error_code"] == CORRUPT_MESSAGE
    assert end_offset(wire, topic) == 0


def test_zstd_needs_version_7(wire: Connection, topic: str) -> None:
    batch = build([b"v"], attributes=4, compress=zstandard)
    for version in (3, 6):
        assert produce(wire, topic, batch, version=version)["error_code"] == UNSUPPORTED_COMPRESSION_TYPE
    assert produce(wire, topic, batch, version=7)["error_code"] == 0


def test_two_batches_for_one_partition(wire: Connection, topic: str) -> None:
    answer = produce(wire, topic, build([b"a"]) + build([b"b"]))
    assert answer["error_code"] == INVALID_RECORD
    assert end_offset(wire, topic) == 0


def test_no_batch_at_all(wire: Connection, topic: str) -> None:
    assert produce(wire, topic, b"")["error_code"] == INVALID_RECORD


@pytest.mark.skidway_only
def test_null_for_a_batch(wire: Connection, topic: str) -> None:
    """Kafka 4.3.1 leaves this request without an answer."""
    assert produce(wire, topic, None)["error_code"] == INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(wire: Connection, topic: str, magic: int) -> None:
    assert produce(wire, topic, build([b"v"], magic=magic))["error_code"] == INVALID_RECORD


def test_a_magic_from_the_future(wire: Connection, topic: str) -> None:
    assert produce(wire, topic, build([b"v"], magic=3))["error_code"] == CORRUPT_MESSAGE


def test_a_control_batch_from_a_client(wire: Connection, topic: str) -> None:
    assert produce(wire, topic, build([b"v"], attributes=0x20))["error_code"] == INVALID_RECORD


def test_an_unknown_codec(wire: Connection, topic: str) -> None:
    """Kafka 4.3.1 stumbles and says so with -1; 76 says what is wrong."""
    answer = produce(wire, topic, build([b"v"], attributes=5))
    assert answer["error_code"] in (-1, UNSUPPORTED_COMPRESSION_TYPE)
    assert end_offset(wire, topic) == 0


@pytest.mark.parametrize(
    "batch",
    [
        build([b"a", b"b"], last_offset_delta=5),
        build([b"a", b"b"], last_offset_delta=0),
        build([b"a", b"b"], count=1),
        build([b"a", b"b"], count=3),
        build([b"a", b"b"], count=0),
        build([b"a"], count=-1),
        build([]),
    ],
    ids=["delta too large", "delta too small", "count too small", "count too large", "count 0", "count -1", "none"],
)
def test_counts_that_do_not_add_up(wire: Connection, topic: str, batch: bytes) -> None:
    assert produce(wire, topic, batch)["error_code"] == INVALID_RECORD
    assert end_offset(wire, topic) == 0


def test_a_cut_batch(wire: Connection, topic: str) -> None:
    batch = build([b"value" * 10])
    for size in (5, 12, 30, 61, len(batch) - 1):
        assert produce(wire, topic, batch[:size])["error_code"] == INVALID_RECORD, size
    assert end_offset(wire, topic) == 0


def test_the_size_limit_to_the_byte(wire: Connection, make_topic: MakeTopic) -> None:
    overhead = len(build([b"v" * 500])) - 500
    topic = make_topic(configs={"max.message.bytes": str(500 + overhead)})
    assert produce(wire, topic, build([b"v" * 500]))["error_code"] == 0
    assert produce(wire, topic, build([b"v" * 501]))["error_code"] == MESSAGE_TOO_LARGE
    assert end_offset(wire, topic) == 1


def test_the_default_size_limit(wire: Connection, topic: str) -> None:
    overhead = len(build([b"v" * 1_048_000])) - 1_048_000
    assert produce(wire, topic, build([b"v" * (1_048_588 - overhead)]))["error_code"] == 0
    assert produce(wire, topic, build([b"v" * (1_048_589 - overhead)]))["error_code"] == MESSAGE_TOO_LARGE


@pytest.mark.parametrize("acks", [2, -2, 5])
def test_odd_acks(wire: Connection, topic: str, acks: int) -> None:
    answer = produce(wire, topic, build([b"v"]), acks=acks)
    assert answer["error_code"] == INVALID_REQUIRED_ACKS
    assert end_offset(wire, topic) == 0


def test_no_more_replicas_are_needed_than_the_topic_has(wire: Connection, make_topic: MakeTopic) -> None:
    """min.insync.replicas above the replication factor counts as the replication factor."""
    topic = make_topic(configs={"min.insync.replicas": "2"})
    assert produce(wire, topic, build([b"v"]), acks=-1)["error_code"] == 0


def test_log_append_time(wire: Connection, make_topic: MakeTopic) -> None:
    """The answer tells the time; the batch has the flag, the time as its largest, and a CRC that fits."""
    topic = make_topic(configs={"message.timestamp.type": "LogAppendTime"})
    before = now_ms()
    for codec, compress in ((0, bytes), (1, gzipped)):
        sent = build([Record(b"a"), Record(b"b", timestamp_delta=7)], timestamp=5, attributes=codec, compress=compress)
        answer = produce(wire, topic, sent)
        batch = read(fetch_bytes(wire, topic))[-1]
        assert answer["error_code"] == 0
        assert before <= answer["log_append_time_ms"] <= now_ms()
        assert batch.max_timestamp == answer["log_append_time_ms"]
        assert batch.attributes == codec | 8
        assert batch.payload == read(sent)[0].payload


def test_timestamps_too_far_off_are_refused_record_by_record(wire: Connection, make_topic: MakeTopic) -> None:
    configs = {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)}
    topic = make_topic(configs=configs)
    now = now_ms()
    records = [
        Record(b"good"),
        Record(b"early", timestamp_delta=-2 * HOUR_MS),
        Record(b"late", timestamp_delta=2 * HOUR_MS),
    ]
    answer = produce(wire, topic, build(records, timestamp=now))
    assert answer["error_code"] == INVALID_TIMESTAMP
    assert [error["batch_index"] for error in answer["record_errors"]] == [1, 2]
    assert answer["base_offset"] == -1
    assert answer["error_message"]
    assert end_offset(wire, topic) == 0
    assert produce(wire, topic, build([b"good"], timestamp=now))["error_code"] == 0


def test_null_keys_in_a_compacted_topic_are_refused_record_by_record(wire: Connection, name: str) -> None:
    wanted = {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "configs": [{"name": "cleanup.policy", "value": "compact"}],
    }
    (made,) = wire.call("CreateTopics", 7, {"topics": [wanted]})["topics"]
    assert made["error_code"] == 0
    eventually(lambda: end_offset(wire, name) == 0)
    answer = produce(wire, name, build([Record(b"a"), Record(b"b", b"key"), Record(b"c")]))
    assert answer["error_code"] == INVALID_RECORD
    assert [error["batch_index"] for error in answer["record_errors"]] == [0, 2]
    assert produce(wire, name, build([Record(b"b", b"key")]))["error_code"] == 0


@pytest.mark.parametrize(("kind", "codec"), [("gzip", 1), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)])
def test_the_broker_recompresses_where_the_topic_says_so(
    wire: Connection, make_topic: MakeTopic, kind: str, codec: int
) -> None:
    topic = make_topic(configs={"compression.type": kind})
    for attributes, compress in ((0, bytes), (1, gzipped)):
        assert (
            produce(wire, topic, build([b"abc" * 50] * 3, attributes=attributes, compress=compress))["error_code"] == 0
        )
    batches = read(fetch_bytes(wire, topic))
    assert [(batch.codec, batch.count) for batch in batches] == [(codec, 3), (codec, 3)]
