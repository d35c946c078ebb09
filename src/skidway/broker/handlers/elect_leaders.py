"""ElectLeaders (key 43), v0–v2: leadership to the preferred replicas, or to one that may have lost data (unclean)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ProtocolError
from skidway.metadata.operations import ElectLeaders, LeaderElected
from skidway.wire.schema.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node


def handle(node: Node, call: Call, request: ElectLeadersRequest) -> ElectLeadersResponse | None:
    def answer(reply: list[tuple[str, list[LeaderElected]]] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            call.reply(ElectLeadersResponse(error_code=reply.code))
            return
        results = [
            ReplicaElectionResult(name, [PartitionResult(each.index, each.error, each.message) for each in elected])
            for name, elected in reply
        ]
        call.reply(ElectLeadersResponse(replica_election_results=results))

    asked = request.topic_partitions
    topics = None if asked is None else [(topic.topic, topic.partitions) for topic in asked]
    node.submit(ElectLeaders(request.election_type, topics), call.now_ms, answer)
    return None
