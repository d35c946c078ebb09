"""What is asked of share coordinators, as Kafka's messages: five APIs of one shape.

A request is about one group, and has topics with partitions; the response has a result for each of them. A `Form` is
one of the five: how a question becomes an entry of a request and back, and an answer a result and back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from skidway.errors import (
    ClusterAuthorizationFailed,
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    ErrorCode,
    FencedLeaderEpoch,
    FencedStateEpoch,
    InvalidRequest,
    NotCoordinator,
    PolicyViolation,
    ProtocolError,
    UnknownLeaderEpoch,
    UnknownServerError,
    UnknownTopicOrPartition,
)
from skidway.shares.coordinator import letter_messages, term_messages
from skidway.shares.coordinator.batches import StateBatch
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.coordinator.operations import (
    DONE,
    Answer,
    Delete,
    Initialize,
    Question,
    Read,
    ReadSummary,
    State,
    Summary,
    Write,
)
from skidway.wire.message import Message
from skidway.wire.schema import (
    delete_share_group_state as deleting,
)
from skidway.wire.schema import (
    initialize_share_group_state as initializing,
)
from skidway.wire.schema import (
    read_share_group_state as reading,
)
from skidway.wire.schema import (
    read_share_group_state_summary as summing,
)
from skidway.wire.schema import (
    write_share_group_state as writing,
)

_ERRORS: dict[int, type[ProtocolError]] = {
    error.code: error
    for error in (
        ClusterAuthorizationFailed,
        CoordinatorLoadInProgress,
        CoordinatorNotAvailable,
        FencedLeaderEpoch,
        FencedStateEpoch,
        InvalidRequest,
        NotCoordinator,
        PolicyViolation,
        UnknownLeaderEpoch,
        UnknownTopicOrPartition,
    )
}


class Form(msgspec.Struct, frozen=True):
    request: Callable[[str, list[Any]], Message]
    response: Callable[[list[Any]], Message]
    topic: Callable[[bytes, list[Any]], Any]
    topic_result: Callable[[bytes, list[Any]], Any]
    entry: Callable[[Any], Any]
    """Of a question."""
    question: Callable[[ShareKey, Any], Question]
    """Of an entry."""
    result: Callable[..., Any]
    fill: Callable[[Any, Any], None] = lambda result, answer: None
    """Writes an answer, which is no refusal, into a result."""
    answer: Callable[[Any], Answer] = lambda result: DONE
    """Of a result without an error."""


def _read_fill(result: reading.PartitionResult, answer: State) -> None:
    result.state_epoch, result.start_offset = answer.state_epoch, answer.start_offset
    result.state_batches = [reading.StateBatch(*batch) for batch in answer.batches]
    result.letters = letter_messages.to_wire(answer.letters)
    result.terms = term_messages.to_wire(answer.terms)


def _read_answer(result: reading.PartitionResult) -> State:
    batches, letters = _batches(result.state_batches), letter_messages.from_wire(result.letters)
    return State(result.state_epoch, result.start_offset, batches, letters, term_messages.from_wire(result.terms))


def _summary_fill(result: summing.PartitionResult, answer: Summary) -> None:
    result.state_epoch, result.leader_epoch = answer.state_epoch, answer.leader_epoch
    result.start_offset, result.delivery_complete_count = answer.start_offset, answer.complete_count


def _summary_answer(result: summing.PartitionResult) -> Summary:
    return Summary(result.state_epoch, result.leader_epoch, result.start_offset, result.delivery_complete_count)


def _write_entry(asked: Write) -> writing.PartitionData:
    return writing.PartitionData(
        asked.key.partition,
        asked.state_epoch,
        asked.leader_epoch,
        asked.start_offset,
        asked.complete_count,
        [writing.StateBatch(*batch) for batch in asked.batches],
        letter_messages.to_wire(asked.letters),
        term_messages.to_wire(asked.terms),
    )


def _write_question(key: ShareKey, entry: writing.PartitionData) -> Write:
    return Write(
        key,
        entry.state_epoch,
        entry.leader_epoch,
        entry.start_offset,
        entry.delivery_complete_count,
        _batches(entry.state_batches),
        letter_messages.from_wire(entry.letters),
        term_messages.from_wire(entry.terms),
    )


def _batches(batches: Iterable[Any]) -> list[StateBatch]:
    return [
        StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count) for each in batches
    ]


FORMS: dict[type[Question], Form] = {
    Initialize: Form(
        initializing.InitializeShareGroupStateRequest,
        initializing.InitializeShareGroupStateResponse,
        initializing.InitializeStateData,
        initializing.InitializeStateResult,
        lambda asked: initializing.PartitionData(asked.key.partition, asked.state_epoch, asked.start_offset),
        lambda key, entry: Initialize(key, entry.state_epoch, entry.start_offset),
        initializing.PartitionResult,
    ),
    Read: Form(
        reading.ReadShareGroupStateRequest,
        reading.ReadShareGroupStateResponse,
        reading.ReadStateData,
        reading.ReadStateResult,
        lambda asked: reading.PartitionData(asked.key.partition, asked.leader_epoch),
        lambda key, entry: Read(key, entry.leader_epoch),
        reading.PartitionResult,
        _read_fill,
        _read_answer,
    ),
    Write: Form(
        writing.WriteShareGroupStateRequest,
        writing.WriteShareGroupStateResponse,
        writing.WriteStateData,
        writing.WriteStateResult,
        _write_entry,
        _write_question,
        writing.PartitionResult,
    ),
    Delete: Form(
        deleting.DeleteShareGroupStateRequest,
        deleting.DeleteShareGroupStateResponse,
        deleting.DeleteStateData,
        deleting.DeleteStateResult,
        lambda asked: deleting.PartitionData(asked.key.partition),
        lambda key, entry: Delete(key),
        deleting.PartitionResult,
    ),
    ReadSummary: Form(
        summing.ReadShareGroupStateSummaryRequest,
        summing.ReadShareGroupStateSummaryResponse,
        summing.ReadStateSummaryData,
        summing.ReadStateSummaryResult,
        lambda asked: summing.PartitionData(asked.key.partition, asked.leader_epoch),
        lambda key, entry: ReadSummary(key, entry.leader_epoch),
        summing.PartitionResult,
        _summary_fill,
        _summary_answer,
    ),
}


def request_of(form: Form, group_id: str, questions: Iterable[Any]) -> Message:
    """About share-partitions of one group, each named once."""
    topics: dict[bytes, list[Any]] = {}
    for question in questions:
        topics.setdefault(question.key.topic_id, []).append(form.entry(question))
    return form.request(group_id, [form.topic(topic_id, entries) for topic_id, entries in topics.items()])


def answers_of(form: Form, response: Any) -> dict[tuple[bytes, int], Answer]:
    """By topic id and partition."""
    return {
        (bytes(topic.topic_id), result.partition): _answer(form, result)
        for topic in response.results
        for result in topic.partitions
    }


def _answer(form: Form, result: Any) -> Answer:
    if result.error_code == ErrorCode.NONE:
        return form.answer(result)
    return _ERRORS.get(result.error_code, UnknownServerError)(result.error_message or "")


def fill(form: Form, result: Any, answer: Answer) -> None:
    if isinstance(answer, ProtocolError):
        result.error_code, result.error_message = answer.code, answer.message
    else:
        form.fill(result, answer)
