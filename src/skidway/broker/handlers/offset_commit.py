"""OffsetCommit (key 8), v2–v10: how far a group has come. Answered when it is committed; from v10 by topic id.

A topic or partition that does not exist is refused by itself; so is one with too much metadata. All the others are
committed by one record batch, or none of them: InvalidCommitOffsetSize where it would be too large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from skidway.broker.api.call import answer_later
from skidway.broker.coordinators.groups import preparation
from skidway.errors import ErrorCode, ProtocolError
from skidway.groups.operations import CommitOffsets, OffsetToCommit
from skidway.metadata.image import Image
from skidway.steps import Steps
from skidway.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from skidway.wire.schema.txn_offset_commit import (
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponsePartition,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

TOPIC_IDS_SINCE = 10
ANSWERS_PER_STEP = 100
Answer = TypeVar("Answer", OffsetCommitResponsePartition, TxnOffsetCommitResponsePartition)


def handle(node: Services, call: Call, request: OffsetCommitRequest) -> Steps[OffsetCommitResponse | None]:
    response = OffsetCommitResponse()
    offsets, answers = yield from offsets_to_commit(
        node.image,
        request.topics,
        call.version >= TOPIC_IDS_SINCE,
        lambda *topic: response.topics.append(OffsetCommitResponseTopic(*topic)),
        OffsetCommitResponsePartition,
    )
    if request.topics and not offsets:
        return response

    def respond(reply: list[ErrorCode] | ProtocolError) -> None:
        codes = [reply.code] * len(answers) if isinstance(reply, ProtocolError) else reply
        fill_in_and_reply(node, call, response, answers, codes)

    operation = CommitOffsets(
        request.group_id,
        offsets,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        request.retention_time_ms,
        call.version,
    )
    try:
        partition, preparing = preparation(node.groups, node.topics, operation)
        prepared = yield from preparing
    except ProtocolError as error:
        respond(error)
    else:
        node.groups.submit(partition, prepared, call.now_ms, respond)
    return None


def offsets_to_commit(
    image: Image,
    topics: Sequence[OffsetCommitRequestTopic | TxnOffsetCommitRequestTopic],
    by_id: bool,
    answer_topic: Callable[[str, bytes, list[Answer]], object],
    answer_partition: Callable[[int, int], Answer],
) -> Steps[tuple[list[OffsetToCommit], list[Answer]]]:
    """Of both requests that commit offsets: those of partitions that exist, and where the answer to each belongs. The
    others are refused."""
    offsets: list[OffsetToCommit] = []
    answers: list[Answer] = []
    begun = False
    for topic in topics:
        entries: list[Answer] = []
        answer_topic(topic.name, topic.topic_id, entries)
        known = image.topics_by_id.get(topic.topic_id) if by_id else image.topics.get(topic.name)
        missing = ErrorCode.UNKNOWN_TOPIC_ID if by_id and known is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        for asked in topic.partitions:
            if begun:
                yield None
            begun = True
            answer = answer_partition(asked.partition_index, ErrorCode.NONE)
            entries.append(answer)
            if known is None or not 0 <= asked.partition_index < len(known.partitions):
                answer.error_code = missing
            else:
                offsets.append(
                    OffsetToCommit(
                        known.name,
                        asked.partition_index,
                        asked.committed_offset,
                        asked.committed_leader_epoch,
                        asked.committed_metadata or "",
                    )
                )
                answers.append(answer)
    return offsets, answers


def fill_in_and_reply(
    node: Services, call: Call, response: object, answers: Sequence[Answer], codes: Sequence[int]
) -> None:
    """Reply with the response that the answers are in, in steps if they are many."""
    if len(answers) > ANSWERS_PER_STEP:
        answer_later(node.world.slices, call, _filled_in(response, answers, codes))
        return
    for answer, code in zip(answers, codes, strict=True):
        answer.error_code = code
    call.reply(response)


def _filled_in(response: object, answers: Sequence[Answer], codes: Sequence[int]) -> Steps[object]:
    for number, (answer, code) in enumerate(zip(answers, codes, strict=True), 1):
        answer.error_code = code
        if not number % ANSWERS_PER_STEP:
            yield None
    return response
