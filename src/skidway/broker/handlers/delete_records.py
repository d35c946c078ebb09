"""DeleteRecords (key 21), v0–v2.

Moves the start of a partition up to an offset (-1: the high watermark); whole segments below it are removed. Answered
when every replica that is alive has done the same and saved it, so that no crash undoes it, whatever `flush` says; one
save covers all partitions of a node. What lies below the new start is synced before the start is saved.
REQUEST_TIMED_OUT when that takes too long; it is done all the same. Where the offset lies above the high watermark,
the request waits for what is about to be committed (`ends`).
POLICY_VIOLATION where `cleanup.policy` is `compact` alone: nobody may cut off the newest record of a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from skidway.broker.api.call import answer_later
from skidway.broker.reads.ends import when_committed
from skidway.errors import OffsetOutOfRange, PolicyViolation, ProtocolError
from skidway.log import retention
from skidway.log.health import SOUND
from skidway.steps import Steps
from skidway.wire.schema.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.partitions.partition import Partition
    from skidway.broker.services import Services

HIGH_WATERMARK = -1
ANY_EPOCH = -1
TIMEOUT_MS_MIN = 1


def handle(node: Services, call: Call, request: DeleteRecordsRequest) -> Steps[DeleteRecordsResponse | None]:
    asked = yield from _asked_for_end(node, request)
    finish = partial(_delete_all, node, call, request)
    if when_committed(
        node.waiting.acknowledgements, call, asked, lambda: answer_later(node.world.slices, call, finish())
    ):
        return None
    return (yield from _delete_all(node, call, request))


def _asked_for_end(node: Services, request: DeleteRecordsRequest) -> Steps[Iterable[Partition]]:
    found: dict[Partition, None] = {}
    for topic in request.topics:
        for asked in topic.partitions:
            yield None
            try:
                partition = node.partitions.find(topic.name, asked.partition_index)
            except ProtocolError:
                continue  # refused when it is answered
            if asked.offset == HIGH_WATERMARK or asked.offset > partition.log.high_watermark:
                found[partition] = None
    return found


def _delete_all(node: Services, call: Call, request: DeleteRecordsRequest) -> Steps[DeleteRecordsResponse | None]:
    waiting: dict[Partition, int] = {}
    results: list[tuple[Partition, DeleteRecordsPartitionResult]] = []
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            yield None
            try:
                partition = node.partitions.find(topic.name, asked.partition_index)
                offset = _delete(node, partition, asked.offset)
            except ProtocolError as error:
                answers.append(DeleteRecordsPartitionResult(asked.partition_index, -1, error.code))
                continue
            result = DeleteRecordsPartitionResult(asked.partition_index, partition.low_watermark)
            answers.append(result)
            if result.low_watermark < offset:
                waiting[partition] = max(offset, waiting.get(partition, 0))
                results.append((partition, result))
        topics.append(DeleteRecordsTopicResult(topic.name, answers))
    node.upkeep.save_offsets()
    node.world.on_work()
    response = DeleteRecordsResponse(topics=topics)
    if not waiting:
        return response

    def answer(failed: Mapping[Partition, ProtocolError]) -> None:
        for partition, result in results:
            error = failed.get(partition)
            result.error_code = 0 if error is None else error.code
            result.low_watermark = partition.low_watermark if error is None else -1
        call.reply(response)

    parked = node.waiting.deletions.park(waiting, call.now_ms + max(request.timeout_ms, TIMEOUT_MS_MIN), answer)
    call.on_gone = lambda: node.waiting.deletions.cancel(parked)
    for partition in waiting:
        node.replica_polls.disturb(partition)
    return None


def _delete(node: Services, partition: Partition, asked_offset: int) -> int:
    """Returns the offset below which all replicas shall have nothing."""
    partition.leader.check_epoch(ANY_EPOCH)
    log = partition.log
    if log.health is not SOUND:
        raise log.refusal()
    if log.settings.compact and not log.settings.cleanup_delete:
        raise PolicyViolation()
    offset = log.high_watermark if asked_offset == HIGH_WATERMARK else asked_offset
    if not 0 <= offset <= log.high_watermark:
        raise OffsetOutOfRange()
    retention.delete_before(log, offset)
    node.waiting.shares.on_start_moved(partition)
    if log.dirty:
        node.turn.wants_sync(partition)
    return offset
