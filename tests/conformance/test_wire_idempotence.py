"""Idempotent producers by sequence: what is a repeat, what is a gap, who is fenced, what is remembered."""

import pytest
from raw import Connection, MakeTopic
from raw_batches import build, now_ms, values
from wire_calls import end_offset, fetch_bytes, new_producer_id, produce

OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
INVALID_REQUEST = 42
UNKNOWN_TOPIC_OR_PARTITION = 3
REMEMBERED = 5


class Writer:
    def __init__(self, wire: Connection, topic: str) -> None:
        self.wire = wire
        self.topic = topic
        self.producer_id, self.epoch = new_producer_id(wire)

    def write(self, sequence: int, count: int = 1, epoch: int | None = None) -> tuple[int, int]:
        """(error code, base offset)"""
        batch = build(
            [b"%d" % (sequence + index) for index in range(count)],
            producer_id=self.producer_id,
            producer_epoch=self.epoch if epoch is None else epoch,
            base_sequence=sequence,
        )
        answer = produce(self.wire, self.topic, batch)
        return answer["error_code"], answer["base_offset"]


@pytest.fixture
def writer(wire: Connection, topic: str) -> Writer:
    return Writer(wire, topic)


def test_every_producer_gets_an_id_of_its_own(wire: Connection) -> None:
    given = [new_producer_id(wire) for _ in range(20)]
    assert len({producer_id for producer_id, _ in given}) == 20
    assert all(producer_id >= 0 and epoch == 0 for producer_id, epoch in given)


@pytest.mark.parametrize("version", range(6))
def test_every_version_of_init_producer_id(wire: Connection, version: int) -> None:
    answer = wire.call("InitProducerId", version, {"transactional_id": None, "transaction_timeout_ms": 60_000})
    assert (answer["error_code"], answer["producer_epoch"]) == (0, 0)


def test_an_empty_transactional_id(wire: Connection) -> None:
    answer = wire.call("InitProducerId", 4, {"transactional_id": "", "transaction_timeout_ms": 60_000})
    assert answer["error_code"] == INVALID_REQUEST


def test_in_order(writer: Writer) -> None:
    assert writer.write(0, 3) == (0, 0)
    assert writer.write(3, 2) == (0, 3)
    assert writer.write(5) == (0, 5)


def test_a_repeat_gets_its_first_offset_and_is_not_written_again(writer: Writer) -> None:
    writer.write(0, 3)
    writer.write(3, 2)
    assert writer.write(0, 3) == (0, 0)
    assert writer.write(3, 2) == (0, 3)
    assert writer.write(5) == (0, 5)
    found = values(fetch_bytes(writer.wire, writer.topic))
    assert found == [(offset, b"%d" % offset) for offset in range(6)]


def test_five_batches_are_remembered(writer: Writer) -> None:
    for sequence in range(8):
        writer.write(sequence)
    for sequence in range(8 - REMEMBERED, 8):
        assert writer.write(sequence) == (0, sequence)
    assert writer.write(8 - REMEMBERED - 1) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert end_offset(writer.wire, writer.topic) == 8


def test_a_gap(writer: Writer) -> None:
    writer.write(0)
    assert writer.write(2) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert writer.write(1) == (0, 1)


def test_a_batch_that_overlaps(writer: Writer) -> None:
    writer.write(0, 3)
    assert writer.write(0, 4) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert writer.write(2, 2) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert writer.write(3) == (0, 3)


def test_an_unknown_producer_may_start_anywhere(writer: Writer) -> None:
    """Its state may have gone with the records: retention must not stop a producer."""
    assert writer.write(17) == (0, 0)
    assert writer.write(18) == (0, 1)
    assert writer.write(17) == (0, 0)


def test_an_old_epoch_is_fenced(writer: Writer) -> None:
    assert writer.write(0, epoch=3) == (0, 0)
    assert writer.write(1, epoch=2) == (INVALID_PRODUCER_EPOCH, -1)
    assert writer.write(1, epoch=3) == (0, 1)


def test_a_new_epoch_starts_at_zero(writer: Writer) -> None:
    writer.write(0, 2)
    assert writer.write(2, epoch=1) == (OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert writer.write(0, epoch=1) == (0, 2)
    assert writer.write(2, epoch=0) == (INVALID_PRODUCER_EPOCH, -1)


def test_sequences_wrap(writer: Writer) -> None:
    last = 2**31 - 1
    assert writer.write(last - 1) == (0, 0)
    assert writer.write(last) == (0, 1)
    assert writer.write(0) == (0, 2)
    assert writer.write(last) == (0, 1)


def test_a_batch_across_the_wrap(writer: Writer) -> None:
    last = 2**31 - 1
    assert writer.write(last - 1, 4) == (0, 0)
    assert writer.write(2) == (0, 4)
    assert writer.write(last - 1, 4) == (0, 0)


def test_partitions_count_on_their_own(wire: Connection, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    producer_id, epoch = new_producer_id(wire)
    for partition in range(2):
        for sequence in range(2):
            batch = build([b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            assert produce(wire, topic, batch, partition=partition)["base_offset"] == sequence


def test_a_sequence_must_be_there(wire: Connection, topic: str) -> None:
    producer_id, epoch = new_producer_id(wire)
    batch = build([b"v"], producer_id=producer_id, producer_epoch=epoch, base_sequence=-1)
    assert produce(wire, topic, batch)["error_code"] == 87


def test_describe_producers(writer: Writer) -> None:
    before = now_ms()
    writer.write(0, 3)
    writer.write(3)
    body = {"topics": [{"name": writer.topic, "partition_indexes": [0]}]}
    (found,) = writer.wire.call("DescribeProducers", 0, body)["topics"][0]["partitions"]
    assert (found["error_code"], found["partition_index"]) == (0, 0)
    (state,) = found["active_producers"]
    assert before <= state.pop("last_timestamp") <= now_ms()
    assert state == {
        "producer_id": writer.producer_id,
        "producer_epoch": 0,
        "last_sequence": 3,
        "coordinator_epoch": -1,
        "current_txn_start_offset": -1,
    }


def test_describe_producers_of_an_unknown_partition(wire: Connection, topic: str) -> None:
    body = {"topics": [{"name": topic, "partition_indexes": [7]}]}
    (found,) = wire.call("DescribeProducers", 0, body)["topics"][0]["partitions"]
    assert (found["error_code"], found["active_producers"]) == (UNKNOWN_TOPIC_OR_PARTITION, [])
