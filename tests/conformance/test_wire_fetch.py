"""Fetch: which bytes come, how long it waits, and the errors of single partitions."""

import threading
import time
import uuid

import cramjam
import pytest
from raw import Connection, MakeTopic
from raw_batches import build, read, values
from wire_calls import fetch, fetch_body, produce, topic_id

FOR_EVER_MS = 100_000
"""Longer than an answer is waited for: who has it was answered before."""
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
FENCED_LEADER_EPOCH = 74
UNKNOWN_LEADER_EPOCH = 75
UNKNOWN_TOPIC_ID = 100


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_reads(wire: Connection, topic: str, version: int) -> None:
    produce(wire, topic, build([b"a", b"b"]))
    id_ = topic_id(wire, topic) if version >= 13 else b""
    answer = wire.call("Fetch", version, fetch_body(topic, id_=id_))
    (one,) = answer["responses"]
    assert one["topic_id" if version >= 13 else "topic"] == (id_ or topic)
    (partition,) = one["partitions"]
    assert (partition["error_code"], partition["high_watermark"], partition["last_stable_offset"]) == (0, 2, 2)
    if version >= 5:
        assert partition["log_start_offset"] == 0
    if version >= 11:
        assert partition["preferred_read_replica"] == -1
    assert partition["aborted_transactions"] is None
    assert values(partition["records"]) == [(0, b"a"), (1, b"b")]


def test_read_committed_lists_aborted_transactions(wire: Connection, topic: str) -> None:
    """An empty list, not null: that is how clients know that they may trust it."""
    produce(wire, topic, build([b"a"]))
    answer = fetch(wire, topic, isolation_level=1)
    assert answer["aborted_transactions"] == []
    assert values(answer["records"]) == [(0, b"a")]


def test_from_inside_a_batch_the_whole_batch_comes(wire: Connection, topic: str) -> None:
    produce(wire, topic, build([b"a", b"b", b"c"]))
    produce(wire, topic, build([b"d"]))
    assert [batch.base_offset for batch in read(fetch(wire, topic, 1)["records"])] == [0, 3]
    assert [batch.base_offset for batch in read(fetch(wire, topic, 3)["records"])] == [3]


def test_at_the_end_there_is_nothing_and_no_error(wire: Connection, topic: str) -> None:
    produce(wire, topic, build([b"a"]))
    answer = fetch(wire, topic, 1)
    assert (answer["error_code"], answer["high_watermark"], answer["records"]) == (0, 1, b"")


@pytest.mark.parametrize("offset", [2, 1_000_000, -1])
def test_out_of_range(wire: Connection, topic: str, offset: int) -> None:
    produce(wire, topic, build([b"a"]))
    answer = fetch(wire, topic, offset)
    assert answer["error_code"] == OFFSET_OUT_OF_RANGE
    assert (answer["high_watermark"], answer["last_stable_offset"], answer["log_start_offset"]) == (-1, -1, -1)
    assert (answer["aborted_transactions"], answer["records"]) == (None, b"")


def test_an_error_is_answered_at_once(wire: Connection, topic: str) -> None:
    answer = fetch(wire, topic, 50, max_wait_ms=FOR_EVER_MS, min_bytes=1_000_000)
    assert answer["error_code"] == OFFSET_OUT_OF_RANGE


def test_unknown_names_and_partitions(wire: Connection, topic: str, name: str) -> None:
    assert fetch(wire, name)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION
    assert fetch(wire, topic, partition=9)["error_code"] == UNKNOWN_TOPIC_OR_PARTITION


def test_an_unknown_id(wire: Connection) -> None:
    answer = fetch(wire, "", id_=uuid.uuid4().bytes, version=13)
    assert answer["error_code"] == UNKNOWN_TOPIC_ID


def test_leader_epochs(wire: Connection, topic: str) -> None:
    def with_epoch(epoch: int) -> int:
        body = fetch_body(topic)
        body["topics"][0]["partitions"][0]["current_leader_epoch"] = epoch
        code: int = wire.call("Fetch", 12, body)["responses"][0]["partitions"][0]["error_code"]
        return code

    (found,) = wire.call("Metadata", 12, {"topics": [{"name": topic}]})["topics"]
    epoch = found["partitions"][0]["leader_epoch"]
    assert with_epoch(epoch) == 0
    assert with_epoch(-1) == 0
    assert with_epoch(epoch + 1) == UNKNOWN_LEADER_EPOCH
    if epoch > 0:
        assert with_epoch(epoch - 1) == FENCED_LEADER_EPOCH


def test_whole_batches_within_the_limit(wire: Connection, topic: str) -> None:
    batch = build([b"v" * 1_000])
    for _ in range(10):
        produce(wire, topic, batch)
    for limit, count in ((3 * len(batch), 3), (3 * len(batch) + 500, 3), (len(batch), 1)):
        answer = fetch(wire, topic, partition_bytes=limit)
        assert len(read(answer["records"])) == count
        answer = fetch(wire, topic, max_bytes=limit)
        assert len(read(answer["records"])) == count


def test_at_least_one_batch_however_small_the_limits(wire: Connection, topic: str) -> None:
    produce(wire, topic, build([b"v" * 100_000]))
    produce(wire, topic, build([b"w"]))
    for limits in ({"partition_bytes": 10}, {"max_bytes": 10}, {"partition_bytes": 0}, {"max_bytes": 0}):
        assert [batch.base_offset for batch in read(fetch(wire, topic, **limits)["records"])] == [0], limits


def test_the_first_partition_with_data_gets_its_batch_the_others_what_fits(
    wire: Connection, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=4)
    for partition in (1, 2, 3):
        produce(wire, topic, build([b"v" * 1_000]), partition=partition)
    body = fetch_body(topic, max_bytes=1_500)
    body["topics"][0]["partitions"] = [
        {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 50_000} for partition in (0, 3, 2, 1)
    ]
    (found,) = wire.call("Fetch", 12, body)["responses"]
    got = [(one["partition_index"], len(read(one["records"]))) for one in found["partitions"]]
    assert got == [(0, 0), (3, 1), (2, 0), (1, 0)], "in the order of the request"


@pytest.mark.parametrize("version", [4, 9, 10])
def test_zstd_batches_are_sent_to_any_version(wire: Connection, topic: str, version: int) -> None:
    """The protocol notes promise an error before version 10; Kafka 4 sends the batch all the same."""
    produce(wire, topic, build([b"v"], attributes=4, compress=lambda data: bytes(cramjam.zstd.compress(data))))
    assert read(fetch(wire, topic, version=version)["records"])[0].codec == 4


def test_it_waits_for_max_wait_when_nothing_comes(wire: Connection, topic: str) -> None:
    started = time.monotonic()
    assert fetch(wire, topic, max_wait_ms=400)["records"] == b""
    assert time.monotonic() - started > 0.35


def test_no_wait_when_there_is_enough(wire: Connection, topic: str) -> None:
    produce(wire, topic, build([b"v"]))
    assert len(read(fetch(wire, topic, max_wait_ms=FOR_EVER_MS)["records"])) == 1


def test_min_bytes_zero_never_waits(wire: Connection, topic: str) -> None:
    assert fetch(wire, topic, max_wait_ms=FOR_EVER_MS, min_bytes=0)["records"] == b""


def test_a_waiting_fetch_sees_the_batch_that_ends_its_wait(wire: Connection, bootstrap: str, topic: str) -> None:
    wire.send("Fetch", 12, fetch_body(topic, max_wait_ms=FOR_EVER_MS))
    assert wire.silent_for(0.3)
    with Connection(bootstrap) as other:
        produce(other, topic, build([b"wake up"]))
    _, answer = wire.receive("Fetch", 12)
    assert values(answer["responses"][0]["partitions"][0]["records"]) == [(0, b"wake up")]


def test_min_bytes_gathers_small_batches(wire: Connection, bootstrap: str, make_topic: MakeTopic) -> None:
    """Bytes of all partitions count together; what is there is sent when they are enough."""
    topic = make_topic(partitions=2)
    body = fetch_body(topic, max_wait_ms=FOR_EVER_MS, min_bytes=2_500)
    body["topics"][0]["partitions"] = [
        {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 50_000} for partition in (0, 1)
    ]
    wire.send("Fetch", 12, body)
    with Connection(bootstrap) as other:
        produce(other, topic, build([b"v" * 1_000]), partition=0)
        produce(other, topic, build([b"v" * 1_000]), partition=1)
        assert wire.silent_for(0.3)
        produce(other, topic, build([b"v" * 1_000]), partition=0)
    _, answer = wire.receive("Fetch", 12)
    counts = [len(read(one["records"])) for one in answer["responses"][0]["partitions"]]
    assert counts == [2, 1]


def test_when_time_is_up_what_is_there_comes(wire: Connection, topic: str) -> None:
    produce(wire, topic, build([b"little"]))
    assert values(fetch(wire, topic, max_wait_ms=300, min_bytes=100_000)["records"]) == [(0, b"little")]


def test_many_waiting_readers_are_all_woken(bootstrap: str, wire: Connection, topic: str) -> None:
    readers = [Connection(bootstrap) for _ in range(20)]
    for reader in readers:
        reader.send("Fetch", 12, fetch_body(topic, max_wait_ms=FOR_EVER_MS))
    assert readers[0].silent_for(0.2)
    produce(wire, topic, build([b"all"]))
    for reader in readers:
        _, answer = reader.receive("Fetch", 12)
        assert values(answer["responses"][0]["partitions"][0]["records"]) == [(0, b"all")]
        reader.socket.close()


def test_a_reader_that_hangs_up_while_waiting_harms_nobody(bootstrap: str, wire: Connection, topic: str) -> None:
    with Connection(bootstrap) as gone:
        gone.send("Fetch", 12, fetch_body(topic, max_wait_ms=FOR_EVER_MS))
        assert gone.silent_for(0.1)
    assert produce(wire, topic, build([b"v"]))["base_offset"] == 0
    assert values(fetch(wire, topic)["records"]) == [(0, b"v")]


def test_writers_and_readers_at_once_keep_order(bootstrap: str, make_topic: MakeTopic) -> None:
    """Four writers, one partition each; one reader follows them all by offset."""
    topic = make_topic(partitions=4)

    def write(partition: int) -> None:
        with Connection(bootstrap) as own:
            for index in range(100):
                assert produce(own, topic, build([b"%d" % index]), partition=partition)["base_offset"] == index

    writers = [threading.Thread(target=write, args=(partition,)) for partition in range(4)]
    for writer in writers:
        writer.start()
    positions = dict.fromkeys(range(4), 0)
    with Connection(bootstrap) as reader:
        while min(positions.values()) < 100:
            body = fetch_body(topic, max_wait_ms=2_000)
            body["topics"][0]["partitions"] = [
                {"partition": p, "fetch_offset": offset, "partition_max_bytes": 50_000}
                for p, offset in positions.items()
            ]
            for one in reader.call("Fetch", 12, body)["responses"][0]["partitions"]:
                for offset, value in values(one["records"]):
                    assert (offset, value) == (positions[one["partition_index"]], b"%d" % offset)
                    positions[one["partition_index"]] += 1
    for writer in writers:
        writer.join()
