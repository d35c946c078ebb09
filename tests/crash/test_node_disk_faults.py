"""A node whose disk is full or fails to sync: clear errors, reads go on, nothing acknowledged is lost."""

from random import Random
from typing import Any

import pytest
from simulated_node import (
    FAR_MS,
    ManualClock,
    SimulatedNode,
    WatchedDisk,
    batch_of,
    create_topic,
    fetch,
    produce,
    records_in,
)

from skidway.errors import ErrorCode, StorageError
from skidway.wire.schema.create_topics import CreateTopicsResponse
from skidway.wire.schema.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from skidway.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skidway.wire.schema.init_producer_id import InitProducerIdRequest

SETTINGS = {"checkpoint_ms": 1_000, "retention_check_ms": 1_000}


class Story:
    """One node, one topic, one client that remembers what it was told."""

    def __init__(self, **configs: Any) -> None:
        self.disk = WatchedDisk()
        self.clock = ManualClock()
        self.acknowledged: dict[int, bytes] = {}
        self.sent = 0
        self.start()
        created = self.shell.call(
            create_topic("story", internal_segment_bytes=4_000, file_delete_delay_ms=0, **configs)
        )
        self.topic_id = bytes(created.topics[0].topic_id)

    def start(self) -> None:
        self.shell = SimulatedNode(self.disk, Random(1), self.clock, **SETTINGS)

    def value(self, size: int = 500) -> bytes:
        self.sent += 1
        return b"%d:" % self.sent + bytes(size)

    def produce(self, acks: int = -1, **producer: int) -> ErrorCode:
        value = self.value()
        request = produce(self.topic_id, 0, batch_of([value], self.clock.wall_ms(), **producer), acks)
        return self.note(self.shell.call(request), value)

    def note(self, reply: Any, value: bytes) -> ErrorCode:
        (answer,) = reply.responses[0].partition_responses
        if answer.error_code == ErrorCode.NONE:
            self.acknowledged[answer.base_offset] = value
        return ErrorCode(answer.error_code)

    def fill(self) -> int:
        """Produce until it is refused; returns how many were taken."""
        for taken in range(10_000):
            code = self.produce()
            if code != ErrorCode.NONE:
                assert code == ErrorCode.KAFKA_STORAGE_ERROR
                return taken
        raise AssertionError("the disk never became full")

    def read(self) -> dict[int, bytes]:
        found: dict[int, bytes] = {}
        offset = self.shell.node.partitions.find("story", 0).log.start_offset
        while True:
            (answer,) = self.shell.call(fetch(self.topic_id, 0, offset)).responses[0].partitions
            assert answer.error_code == ErrorCode.NONE, ErrorCode(answer.error_code).name
            batches = records_in(answer.records)
            if not batches:
                return found
            found |= {at: value for _, records in batches for at, value in records}
            offset = max(found) + 1

    def maintain(self) -> None:
        self.clock.now_ms += 2_000
        self.shell.node.maintain(self.clock.monotonic_ms(), self.clock.wall_ms())
        self.shell.settle()

    def power_loss(self) -> None:
        self.disk.crash(Random(2))
        self.start()


def test_a_full_disk_refuses_writes_and_serves_reads_until_there_is_room() -> None:
    story = Story()
    story.disk.capacity = story.disk.used() + 20_000
    assert story.fill() > 10
    assert story.read() == story.acknowledged
    story.maintain()
    assert story.produce() == ErrorCode.KAFKA_STORAGE_ERROR
    assert story.shell.node.failure is None, "a full disk is not a broken one"

    story.disk.capacity += 20_000
    assert story.produce() == ErrorCode.NONE
    assert story.read() == story.acknowledged
    story.power_loss()
    assert story.read() == story.acknowledged
    assert story.produce() == ErrorCode.NONE


def test_deleted_records_make_room_on_a_full_disk() -> None:
    story = Story()
    story.disk.capacity = story.disk.used() + 40_000
    story.fill()
    offset = max(story.acknowledged) - 10
    asked = [DeleteRecordsTopic("story", [DeleteRecordsPartition(0, offset)])]
    (deleted,) = story.shell.call(DeleteRecordsRequest(asked, FAR_MS)).topics[0].partitions
    assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.NONE, offset)
    # Renamed by the first round, removed by the second.
    story.maintain()
    story.maintain()
    assert story.produce() == ErrorCode.NONE
    kept = {at: value for at, value in story.acknowledged.items() if at >= offset}
    assert story.read().items() >= kept.items()
    story.power_loss()
    assert story.read().items() >= kept.items()


def test_a_deleted_topic_makes_room_on_a_full_disk() -> None:
    story = Story()
    other = story.shell.call(create_topic("ballast", file_delete_delay_ms=0)).topics[0]
    for _ in range(40):
        request = produce(bytes(other.topic_id), 0, batch_of([bytes(1_000)], story.clock.wall_ms()))
        assert story.shell.call(request).responses[0].partition_responses[0].error_code == ErrorCode.NONE
    story.disk.capacity = story.disk.used() + 10_000
    story.fill()
    # Room for the record of the deletion, and for nothing else.
    story.disk.capacity = story.disk.used() + 200
    deletion = DeleteTopicsRequest([DeleteTopicState(None, bytes(other.topic_id))], [], FAR_MS)
    assert story.shell.call(deletion).responses[0].error_code == ErrorCode.NONE
    story.disk.capacity = story.disk.used()
    story.maintain()
    assert story.produce() == ErrorCode.NONE
    assert story.read() == story.acknowledged


def test_a_topic_created_on_a_full_disk_is_refused_and_can_be_created_later() -> None:
    story = Story()
    story.disk.capacity = story.disk.used() + 5
    refused: CreateTopicsResponse = story.shell.call(create_topic("late"))
    assert refused.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    # Enough for the decision, not for the partition's own files.
    for room in range(100, 2_000, 100):
        story.disk.capacity = story.disk.used() + room
        if story.shell.call(create_topic("late")).topics[0].error_code == ErrorCode.NONE:
            break
    story.disk.capacity = None
    story.maintain()
    partition = story.shell.node.partitions.find("late", 0)
    request = produce(partition.topic_id, 0, batch_of([b"x"], story.clock.wall_ms()))
    assert story.shell.call(request).responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_a_node_on_a_full_disk_still_closes_and_opens_again_when_there_is_room() -> None:
    story = Story()
    story.disk.capacity = story.disk.used() + 20_000
    story.fill()
    story.disk.capacity = story.disk.used()
    with pytest.raises(OSError, match="No space"):
        story.shell.node.close(clean=True)
    story.disk.capacity = None
    story.start()
    assert not story.shell.node.logs.clean, "what could not be saved does not count as saved"
    assert story.read() == story.acknowledged
    assert story.produce() == ErrorCode.NONE


def fail_next_sync(story: Story) -> None:
    story.disk.failing_syncs = {story.disk.syncs}


@pytest.mark.parametrize("seed", range(5))
def test_after_a_failed_sync_nothing_more_is_acknowledged_or_shown(seed: int) -> None:
    story = Story()
    for _ in range(12):
        assert story.produce() == ErrorCode.NONE
    before = dict(story.acknowledged)
    fail_next_sync(story)
    waiting = story.value()
    assert story.note(story.shell.call(produce(story.topic_id, 0, batch_of([waiting], 1))), waiting) == (
        ErrorCode.KAFKA_STORAGE_ERROR
    )
    # The next sync would succeed and prove nothing: the kernel has dropped the pages.
    for acks in (-1, 1):
        assert story.produce(acks) == ErrorCode.KAFKA_STORAGE_ERROR
    assert story.read() == before, "what was not synced is not shown"
    story.maintain()
    assert story.produce() == ErrorCode.KAFKA_STORAGE_ERROR
    assert any("accepts no more writes" in event for event in story.shell.events)

    story.shell.node.close(clean=True)
    story.disk.crash(Random(seed))
    story.start()
    assert not story.shell.node.logs.clean
    found = story.read()
    assert found.items() >= before.items()
    assert set(found) - set(before) <= {max(before) + 1}
    story.acknowledged = found
    assert story.produce() == ErrorCode.NONE
    assert story.read() == story.acknowledged


@pytest.mark.parametrize("seed", range(5))
def test_a_process_that_is_started_again_after_a_failed_sync_does_not_trust_the_page_cache(seed: int) -> None:
    story = Story()
    for _ in range(12):
        assert story.produce() == ErrorCode.NONE
    fail_next_sync(story)
    assert story.produce() == ErrorCode.KAFKA_STORAGE_ERROR
    story.shell.node.close(clean=True)
    story.disk.kill()
    story.start()
    assert any("unsynced bytes to new files" in event for event in story.shell.events)
    # What is shown is promised, also what nobody had been promised before.
    seen = story.read()
    assert len(seen) == 13
    story.acknowledged = dict(seen)
    assert story.produce() == ErrorCode.NONE
    story.disk.crash(Random(seed))
    story.start()
    assert story.read() == story.acknowledged


def test_what_was_written_anew_is_not_written_again_at_the_next_start() -> None:
    story = Story()
    assert story.produce() == ErrorCode.NONE
    fail_next_sync(story)
    assert story.produce() == ErrorCode.KAFKA_STORAGE_ERROR
    story.disk.kill()
    story.start()
    assert any("unsynced bytes to new files" in event for event in story.shell.events)
    story.disk.kill()
    story.start()
    assert not any("unsynced bytes to new files" in event for event in story.shell.events)


def test_a_disk_that_fails_again_at_the_start_keeps_the_node_down_until_it_works() -> None:
    story = Story()
    for _ in range(3):
        assert story.produce() == ErrorCode.NONE
    fail_next_sync(story)
    assert story.produce() == ErrorCode.KAFKA_STORAGE_ERROR
    story.disk.kill()
    for _ in range(2):
        # The first one of a start is about names.
        story.disk.failing_syncs = set(range(story.disk.syncs + 1, story.disk.syncs + 1_000))
        with pytest.raises(StorageError, match="an fsync of this data directory failed before"):
            story.start()
        story.disk.kill()
    story.disk.failing_syncs = None
    story.start()
    story.acknowledged = story.read()
    assert len(story.acknowledged) == 4
    story.power_loss()
    assert story.read() == story.acknowledged


def test_a_failed_sync_of_one_topic_stops_all_that_share_the_disk() -> None:
    story = Story()
    other = bytes(story.shell.call(create_topic("other", flush="os")).topics[0].topic_id)
    fail_next_sync(story)
    assert story.produce() == ErrorCode.KAFKA_STORAGE_ERROR
    reply = story.shell.call(produce(other, 0, batch_of([b"x"], 1)))
    assert reply.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_repeated_batch_of_a_failed_sync_is_refused_at_once() -> None:
    story = Story()
    pid = story.shell.call(InitProducerIdRequest(None, 0)).producer_id
    assert story.produce(pid=pid, epoch=0, sequence=0) == ErrorCode.NONE
    fail_next_sync(story)
    batch = batch_of([b"once"], 1, pid, 0, 1)
    for acks in (-1, -1, 1):
        reply = story.shell.call(produce(story.topic_id, 0, batch, acks))
        assert reply.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_metadata_that_could_not_be_synced_is_refused_and_every_later_question_answered() -> None:
    story = Story()
    fail_next_sync(story)
    for name in ("new", "new", "story", "another"):
        reply = story.shell.call(create_topic(name))
        assert reply.topics[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert story.shell.call(InitProducerIdRequest(None, 0)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert story.read() == {}
    story.power_loss()
    assert story.produce() == ErrorCode.NONE


def test_any_sync_that_fails_stops_the_writes() -> None:
    """Also that of a checkpoint: what became of the pages of this disk, nobody knows any more."""
    story = Story()
    for _ in range(12):
        assert story.produce() == ErrorCode.NONE
    before = dict(story.acknowledged)
    story.clock.now_ms += 2_000
    story.disk.failing_syncs = set(range(story.disk.syncs, story.disk.syncs + 100))
    story.shell.node.maintain(story.clock.monotonic_ms(), story.clock.wall_ms())
    story.shell.settle()
    story.disk.failing_syncs = None
    assert story.produce() == ErrorCode.KAFKA_STORAGE_ERROR
    assert story.read() == before
    story.power_loss()
    assert story.read() == before
