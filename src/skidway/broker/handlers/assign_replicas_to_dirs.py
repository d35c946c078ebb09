"""AssignReplicasToDirs (key 73), v0: a broker tells the controller in which of its directories its copies are, or that
they are lost (the directory id that Kafka calls LOST). See `metadata.copies`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.metadata.copies import Answer
from skidway.metadata.operations import AssignDirectories
from skidway.wire.schema.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse | None:
    def answer(reply: Answer | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(AssignReplicasToDirsResponse(error_code=reply.code))
            return
        directories = [
            ResponseDirectoryData(
                directory,
                [
                    ResponseTopicData(topic_id, [ResponsePartitionData(each.index, each.error) for each in assigned])
                    for topic_id, assigned in topics
                ],
            )
            for directory, topics in reply
        ]
        call.reply(AssignReplicasToDirsResponse(directories=directories))

    directories = [
        (
            bytes(directory.id),
            [
                (bytes(topic.topic_id), [each.partition_index for each in topic.partitions])
                for topic in directory.topics
            ],
        )
        for directory in request.directories
    ]
    node.controller.commit(AssignDirectories(request.broker_id, request.broker_epoch, directories), call.now_ms, answer)
    return None
