"""DescribeLogDirs (key 35), v1–v5: how many bytes each partition takes in the data directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.steps import Steps
from skidway.wire.schema.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: DescribeLogDirsRequest) -> Steps[DescribeLogDirsResponse]:
    asked: set[tuple[str, int]] | None = None
    if request.topics is not None:
        asked = set()
        for topic in request.topics:
            known = node.image.topics.get(topic.topic)
            for index in topic.partitions:
                if known is not None and 0 <= index < len(known.partitions):
                    asked.add((topic.topic, index))
                yield None
    topics: dict[str, list[DescribeLogDirsPartition]] = {}
    for partition in list(node.partitions):
        if asked is None or (partition.topic, partition.index) in asked:
            described = DescribeLogDirsPartition(partition.index, partition.log.size(), 0, False)
            topics.setdefault(partition.topic, []).append(described)
        yield None
    total_bytes, free_bytes = node.world.disk.usage()
    result = DescribeLogDirsResult(
        log_dir=node.world.settings.data_dir,
        topics=[DescribeLogDirsTopic(name, found) for name, found in topics.items()],
        total_bytes=total_bytes,
        usable_bytes=free_bytes,
    )
    return DescribeLogDirsResponse(results=[result])
