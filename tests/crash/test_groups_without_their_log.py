"""A partition of `__consumer_offsets` that a failing disk kept from being opened shows no records: its groups are not
there, which is something else than that there are none."""

from random import Random
from typing import Any

import pytest
from simulated_node import ManualClock, SimulatedNode, WatchedDisk, create_topic

from skidway.errors import ErrorCode, StorageError
from skidway.groups.settings import GroupSettings
from skidway.wire.schema.find_coordinator import FindCoordinatorRequest
from skidway.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from skidway.wire.schema.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

GROUP = "billing"


def start(disk: WatchedDisk) -> SimulatedNode:
    return SimulatedNode(disk, Random(1), ManualClock(), groups=GroupSettings(offsets_partitions=1))


def committed(shell: SimulatedNode, topic_id: bytes) -> Any:
    asked = OffsetFetchRequestGroup(GROUP, topics=[OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0])])
    return shell.call(OffsetFetchRequest(groups=[asked])).groups[0]


@pytest.mark.parametrize("failing", range(20))
def test_offsets_that_cannot_be_read_are_not_taken_for_none(failing: int) -> None:
    disk = WatchedDisk()
    shell = start(disk)
    topic_id = bytes(shell.call(create_topic("orders")).topics[0].topic_id)
    shell.call(FindCoordinatorRequest(coordinator_keys=[GROUP]))
    partition = OffsetCommitRequestPartition(0, 7)
    commit = OffsetCommitRequest(GROUP, topics=[OffsetCommitRequestTopic(topic_id=topic_id, partitions=[partition])])
    assert shell.call(commit).topics[0].partitions[0].error_code == ErrorCode.NONE
    disk.kill()
    disk.failing_syncs = {disk.syncs + failing}
    try:
        shell = start(disk)
    except (OSError, StorageError):
        return
    found = committed(shell, topic_id)
    if found.error_code == ErrorCode.NONE:
        assert found.topics[0].partitions[0].committed_offset == 7
    else:
        assert found.error_code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)
        disk.kill()
        assert committed(start(disk), topic_id).topics[0].partitions[0].committed_offset == 7
