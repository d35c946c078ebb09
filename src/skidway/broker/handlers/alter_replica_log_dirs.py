"""AlterReplicaLogDirs (key 34), v1–v2: which data directory a replica is to be in. A broker has one.

A replica that is to be where it is already: no error, and nothing happens. LOG_DIR_NOT_FOUND for any other directory,
whatever the partition; REPLICA_NOT_AVAILABLE for a partition that is on other nodes, UNKNOWN_TOPIC_OR_PARTITION for one
that does not exist, KAFKA_STORAGE_ERROR where the copy here is damaged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode, NotLeaderOrFollower, ProtocolError
from skidway.steps import Steps
from skidway.wire.schema.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: AlterReplicaLogDirsRequest) -> Steps[AlterReplicaLogDirsResponse]:
    topics: dict[str, list[AlterReplicaLogDirPartitionResult]] = {}
    for directory in request.dirs:
        is_here = directory.path.rstrip("/") == node.world.settings.data_dir.rstrip("/")
        for topic in directory.topics:
            results = topics.setdefault(topic.name, [])
            for index in topic.partitions:
                code = _move(node, topic.name, index) if is_here else ErrorCode.LOG_DIR_NOT_FOUND
                results.append(AlterReplicaLogDirPartitionResult(index, code))
                yield None
    return AlterReplicaLogDirsResponse(
        results=[AlterReplicaLogDirTopicResult(name, partitions) for name, partitions in topics.items()]
    )


def _move(node: Services, topic: str, index: int) -> int:
    try:
        log = node.partitions.find(topic, index).log
    except NotLeaderOrFollower:
        return ErrorCode.REPLICA_NOT_AVAILABLE
    except ProtocolError as error:
        return error.code
    return ErrorCode.KAFKA_STORAGE_ERROR if log.quarantined else ErrorCode.NONE
