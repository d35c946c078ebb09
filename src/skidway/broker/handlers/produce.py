"""Produce (key 0), v3–v13.

Appends one batch per partition as it is. acks=1 is answered after the append, acks=all after the high watermark has
passed it (with flush=sync: after the sync), acks=0 never: an error then closes the connection, as there is no other
way to tell. A duplicate of one of a producer's last five batches is answered with the offset of the first.
Who asks the wrong node is told where the leader is (v10+, KIP-951).
Not served: transactional batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skidway.broker.connection import Hangup
from skidway.broker.leader_hints import address_of, leader_of
from skidway.broker.partition import Appended, Partition
from skidway.errors import ErrorCode, ProtocolError, StorageError
from skidway.replica.leader import ACKS_ALL
from skidway.wire.schema.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node

HINTS_SINCE = 10
TOPIC_IDS_SINCE = 13
TIMEOUT_MS_MIN = 1
NO_ACKS = 0


def handle(node: Node, call: Call, request: ProduceRequest) -> ProduceResponse | None:
    acks = request.acks
    if acks not in (ACKS_ALL, NO_ACKS, 1):
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
    if call.now_ms > node.registration.counted_on_until_ms:
        _send_elsewhere(node, call, request)
    wall_ms = node.clock.wall_ms()
    find = node.partitions.find_by_id if call.version >= TOPIC_IDS_SINCE else node.partitions.find
    waiting: list[tuple[Partition, Appended, PartitionProduceResponse]] = []
    topics = []
    refused = False
    for topic in request.topic_data:
        name = topic.topic_id if call.version >= TOPIC_IDS_SINCE else topic.name
        answers = []
        for data in topic.partition_data:
            try:
                partition = find(name, data.index)  # type: ignore[arg-type]
                appended = partition.produce(_records(data), acks, call.version, wall_ms)
            except ProtocolError as error:
                if acks == NO_ACKS:
                    raise Hangup(f"a produce with acks=0 failed: {error}") from error
                if isinstance(error, StorageError):
                    node.room.on_refused(partition, error, call.now_ms)
                answers.append(_refusal(data.index, error))
                refused = True
                continue
            log = partition.log
            answer = PartitionProduceResponse(
                data.index, 0, appended.base_offset, appended.append_time_ms, log.start_offset
            )
            answers.append(answer)
            if acks == ACKS_ALL and appended.end_offset > log.high_watermark:
                waiting.append((partition, appended, answer))
        topics.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
    if acks == NO_ACKS:
        call.silent = True
        return None
    response = ProduceResponse(topics)
    if refused:
        _tell_leaders(node, call, response)
    if not waiting:
        return response
    _reply_when_committed(node, call, response, waiting, call.now_ms + max(request.timeout_ms, TIMEOUT_MS_MIN))
    return None


def _records(data: PartitionProduceData) -> memoryview:
    records = data.records
    return memoryview(b"") if records is None else records  # type: ignore[return-value]


def _reply_when_committed(
    node: Node,
    call: Call,
    response: ProduceResponse,
    waiting: list[tuple[Partition, Appended, PartitionProduceResponse]],
    deadline_ms: int,
) -> None:
    def answer(failed: Mapping[Partition, ProtocolError]) -> None:
        for partition, _, entry in waiting:
            error = failed.get(partition)
            if error is not None:
                entry.error_code = error.code
                entry.error_message = error.message
                entry.base_offset = entry.log_append_time_ms = entry.log_start_offset = -1
        if failed:
            _tell_leaders(node, call, response)
        call.reply(response)

    ends = {partition: appended.end_offset for partition, appended, _ in waiting}
    parked = node.acknowledgements.park(ends, deadline_ms, answer)
    call.on_gone = lambda: node.acknowledgements.cancel(parked)


def _refusal(index: int, error: ProtocolError) -> PartitionProduceResponse:
    record_errors = [
        BatchIndexAndErrorMessage(batch_index, message) for batch_index, message in getattr(error, "record_errors", ())
    ]
    return PartitionProduceResponse(index, error.code, -1, record_errors=record_errors, error_message=error.message)


def _tell_leaders(node: Node, call: Call, response: ProduceResponse) -> None:
    if call.version < HINTS_SINCE:
        return
    leaders: dict[int, None] = {}
    for topic in response.responses:
        name = topic.topic_id if call.version >= TOPIC_IDS_SINCE else topic.name
        for entry in topic.partition_responses:
            if entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader, epoch = leader_of(node.image, name, entry.index)
                entry.current_leader = LeaderIdAndEpoch(leader, epoch)
                leaders[leader] = None
    response.node_endpoints = [NodeEndpoint(*found) for leader in leaders if (found := address_of(node.image, leader))]


def _send_elsewhere(node: Node, call: Call, request: ProduceRequest) -> None:
    """No controller answers this node: what it appends may never be committed, and it cannot know who leads now.

    A client that is answered would go on asking here, of all nodes, for the leader; one that is hung up on asks others.
    """
    find = node.partitions.find_by_id if call.version >= TOPIC_IDS_SINCE else node.partitions.find
    for topic in request.topic_data:
        name = topic.topic_id if call.version >= TOPIC_IDS_SINCE else topic.name
        for data in topic.partition_data:
            try:
                partition = find(name, data.index)  # type: ignore[arg-type]
                partition.leader.admit(request.acks, partition.min_in_sync)
            except ProtocolError:
                continue  # refused anyway, with a reason
            if not partition.alone:
                raise Hangup("a produce to a node that is cut off from the controller")


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [PartitionProduceResponse(data.index, code, -1) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
