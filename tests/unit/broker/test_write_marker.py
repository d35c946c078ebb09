"""Markers that a partition's leader writes for a coordinator."""

import pytest
from broker_world import WALL_MS, World, marker_of

from skidway.errors import InvalidProducerEpoch, NotLeaderOrFollower, StorageError, TransactionCoordinatorFenced
from skidway.log.bounds import Bound
from skidway.records.batch import TimestampType, read_header
from skidway.records.control import EndTransaction, read_marker
from skidway.replica.role import PartitionRole


@pytest.fixture
def world() -> World:
    world = World()
    world.peer().create("t")
    return world


def test_a_marker_is_committed_like_any_batch(world: World) -> None:
    partition = world.partition("t")
    assert partition.write_marker(marker_of(7, 3, EndTransaction(False, 9), 2, WALL_MS)) == 1
    assert partition.log.high_watermark == 0, "it is not synced"
    world.settle()
    assert partition.log.high_watermark == 1
    data = partition.log.read(0, 1000, Bound.HIGH_WATERMARK).read()
    header = read_header(data)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (7, 3, -1)
    assert (header.is_control, header.is_transactional, len(data)) == (True, True, 78)
    assert read_marker(data) == EndTransaction(False, 9)


def test_it_may_be_written_again(world: World) -> None:
    partition = world.partition("t")
    marker = EndTransaction(True, 1)
    again = [marker_of(7, 3, marker, version, WALL_MS) for version in (2, 2, 1, 0)]
    assert [partition.write_marker(each) for each in again] == [1, 2, 3, 4]


def test_what_is_refused_is_not_written(world: World) -> None:
    partition = world.partition("t")
    partition.write_marker(marker_of(7, 3, EndTransaction(True, 5), 2, WALL_MS))
    with pytest.raises(InvalidProducerEpoch):
        partition.write_marker(marker_of(7, 2, EndTransaction(True, 5), 2, WALL_MS))
    with pytest.raises(TransactionCoordinatorFenced):
        partition.write_marker(marker_of(7, 3, EndTransaction(True, 4), 2, WALL_MS))
    partition.log.fail("the disk is gone")
    with pytest.raises(StorageError):
        partition.write_marker(marker_of(7, 3, EndTransaction(True, 5), 2, WALL_MS))
    partition.follow(PartitionRole(2, 9, 9, [1, 2], [1, 2], {}), 0)
    with pytest.raises(NotLeaderOrFollower):
        partition.write_marker(marker_of(7, 3, EndTransaction(True, 5), 2, WALL_MS))
    assert partition.log.end_offset == 1


def test_internal_topics_take_markers(world: World) -> None:
    peer = world.peer()
    peer.send("FindCoordinator", key="g", key_type=0, version=3)
    world.settle()
    partition = world.partition("__consumer_offsets")
    assert partition.internal
    before = partition.log.end_offset
    assert partition.write_marker(marker_of(7, 0, EndTransaction(True, 0), 1, WALL_MS)) == before + 1


def test_a_marker_has_the_times_of_its_topic(world: World) -> None:
    world.peer().create("stamped", message_timestamp_type="LogAppendTime")
    for topic, kind in (("t", TimestampType.CREATE_TIME), ("stamped", TimestampType.LOG_APPEND_TIME)):
        partition = world.partition(topic)
        partition.write_marker(marker_of(7, 0, EndTransaction(True, 0), 1, WALL_MS))
        header = read_header(partition.log.read(0, 1000, Bound.END).read())
        assert (header.timestamp_type, header.max_timestamp) == (kind, WALL_MS)
