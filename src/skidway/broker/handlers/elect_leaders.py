"""ElectLeaders (key 43), v0–v2: leadership to the preferred replicas, or to one that may have lost data (unclean).

No list means all partitions that there are; of those only the ones that need an election are answered.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.broker.api.in_parts import ask_in_parts, nested_parts_of
from skidway.errors import ProtocolError
from skidway.metadata.operations import ElectLeaders, LeaderElected
from skidway.steps import Steps
from skidway.wire.schema.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: ElectLeadersRequest) -> Steps[None]:
    response = ElectLeadersResponse()
    elected: list[tuple[str, list[LeaderElected]]] = []

    def take(_: object, reply: list[tuple[str, list[LeaderElected]]] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            response.error_code = reply.code
        else:
            elected.extend(reply)

    def finish() -> Steps[ElectLeadersResponse]:
        results = response.replica_election_results
        for name, found in elected if not response.error_code else ():
            if not results or results[-1].topic != name:
                results.append(ReplicaElectionResult(name, []))
            for each in found:
                results[-1].partition_result.append(PartitionResult(each.index, each.error, each.message))
                yield None
        return response

    everything = request.topic_partitions is None
    if request.topic_partitions is None:
        known = list(node.image.topics.values())
        asked = ((topic.name, [*range(len(topic.partitions))]) for topic in known)
    else:
        asked = ((topic.topic, topic.partitions) for topic in request.topic_partitions)
    yield from ask_in_parts(
        lambda operation, answer: node.controller.carry_out(operation, call.now_ms, answer),
        (yield from nested_parts_of(asked)),
        lambda part: ElectLeaders(request.election_type, part, everything),
        take,
        lambda: answer_later(node.world.slices, call, finish()),
    )
