"""DescribeLogDirs (key 35), v1–v5: how many bytes each partition takes in the data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.partition import Partition
from skidway.wire.schema.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse:
    asked = None
    if request.topics is not None:
        asked = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    topics: dict[str, list[Partition]] = {}
    for partition in node.partitions:
        if asked is None or (partition.topic, partition.index) in asked:
            topics.setdefault(partition.topic, []).append(partition)
    total_bytes, free_bytes = node.disk.usage()
    result = DescribeLogDirsResult(
        log_dir=node.settings.data_dir,
        topics=[
            DescribeLogDirsTopic(
                name, [DescribeLogDirsPartition(partition.index, partition.log.size(), 0, False) for partition in found]
            )
            for name, found in topics.items()
        ],
        total_bytes=total_bytes,
        usable_bytes=free_bytes,
    )
    return DescribeLogDirsResponse(results=[result])
