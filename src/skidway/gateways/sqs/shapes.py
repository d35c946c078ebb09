"""What each action is asked and what it answers, for both protocols.

A member that is None, or an empty list or map, is not there: requests may leave it out, and answers do. What an action
cannot do without is in `actions`, because a lack of it has an answer of its own.
"""

from __future__ import annotations

import msgspec

_CAPITALS = {"aws": "AWS", "md5": "MD5"}


def wire_name(name: str) -> str:
    """`md5_of_body` is MD5OfBody on the wire."""
    return "".join(_CAPITALS.get(word) or word.capitalize() for word in name.split("_"))


class Shape(msgspec.Struct, rename=wire_name, omit_defaults=True):
    pass


class AttributeValue(Shape):
    """Of a message's own attribute, or of one of the system that it is sent with."""

    data_type: str | None = None
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: list[str] | None = None
    binary_list_values: list[bytes] | None = None


AttributeValues = dict[str, AttributeValue]


# --- requests ---


class Request(Shape, kw_only=True):
    pass


class OfQueue(Request, kw_only=True):
    """One about a queue. A bare name will do as its URL."""

    queue_url: str | None = None


class CreateQueue(Request, kw_only=True):
    queue_name: str | None = None
    attributes: dict[str, str] | None = None
    tags: dict[str, str] | None = msgspec.field(name="tags", default=None)


class GetQueueUrl(Request, kw_only=True):
    queue_name: str | None = None
    queue_owner_aws_account_id: str | None = None


class ListQueues(Request, kw_only=True):
    queue_name_prefix: str | None = None
    max_results: int | None = None
    next_token: str | None = None


class DeleteQueue(OfQueue):
    pass


class GetQueueAttributes(OfQueue, kw_only=True):
    attribute_names: list[str] | None = None


class SetQueueAttributes(OfQueue, kw_only=True):
    attributes: dict[str, str] | None = None


class PurgeQueue(OfQueue):
    pass


class ToSend(Request, kw_only=True):
    """What a message is sent with, alone or in a batch."""

    message_body: str | None = None
    delay_seconds: int | None = None
    message_attributes: AttributeValues | None = None
    message_system_attributes: AttributeValues | None = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessage(ToSend, kw_only=True):
    queue_url: str | None = None


class SendMessageBatchEntry(ToSend, kw_only=True):
    id: str | None = None


class SendMessageBatch(OfQueue, kw_only=True):
    entries: list[SendMessageBatchEntry] | None = None


class ReceiveMessage(OfQueue, kw_only=True):
    attribute_names: list[str] | None = None
    message_system_attribute_names: list[str] | None = None
    message_attribute_names: list[str] | None = None
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class DeleteMessage(OfQueue, kw_only=True):
    receipt_handle: str | None = None


class DeleteMessageBatchEntry(Request, kw_only=True):
    id: str | None = None
    receipt_handle: str | None = None


class DeleteMessageBatch(OfQueue, kw_only=True):
    entries: list[DeleteMessageBatchEntry] | None = None


class ChangeMessageVisibility(OfQueue, kw_only=True):
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatchEntry(Request, kw_only=True):
    id: str | None = None
    receipt_handle: str | None = None
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatch(OfQueue, kw_only=True):
    entries: list[ChangeMessageVisibilityBatchEntry] | None = None


class ListDeadLetterSourceQueues(OfQueue, kw_only=True):
    max_results: int | None = None
    next_token: str | None = None


class StartMessageMoveTask(Request, kw_only=True):
    source_arn: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class CancelMessageMoveTask(Request, kw_only=True):
    task_handle: str | None = None


class ListMessageMoveTasks(Request, kw_only=True):
    source_arn: str | None = None
    max_results: int | None = None


class TagQueue(OfQueue, kw_only=True):
    tags: dict[str, str] | None = None


class UntagQueue(OfQueue, kw_only=True):
    tag_keys: list[str] | None = None


class ListQueueTags(OfQueue):
    pass


class AddPermission(OfQueue, kw_only=True):
    label: str | None = None
    aws_account_ids: list[str] | None = None
    actions: list[str] | None = None


class RemovePermission(OfQueue, kw_only=True):
    label: str | None = None


# --- answers ---


class Answer(Shape, kw_only=True):
    """Nothing to say but that it is done."""


class QueueUrlAnswer(Answer, kw_only=True):
    queue_url: str


class QueuesAnswer(Answer, kw_only=True):
    queue_urls: list[str] = []
    next_token: str | None = None


class SourceQueuesAnswer(Answer, kw_only=True):
    queue_urls: list[str] = msgspec.field(name="queueUrls", default_factory=list)
    next_token: str | None = None


class AttributesAnswer(Answer, kw_only=True):
    attributes: dict[str, str] = {}


class TagsAnswer(Answer, kw_only=True):
    tags: dict[str, str] = {}


class Sent(Answer, kw_only=True):
    md5_of_message_body: str
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    message_id: str
    sequence_number: str | None = None


class SentEntry(Answer, kw_only=True):
    id: str
    message_id: str
    md5_of_message_body: str
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    sequence_number: str | None = None


class DoneEntry(Answer, kw_only=True):
    id: str


class FailedEntry(Answer, kw_only=True):
    id: str
    sender_fault: bool
    code: str
    message: str


class SentBatch(Answer, kw_only=True):
    successful: list[SentEntry] = []
    failed: list[FailedEntry] = []


class DoneBatch(Answer, kw_only=True):
    successful: list[DoneEntry] = []
    failed: list[FailedEntry] = []


class Message(Answer, kw_only=True):
    message_id: str
    receipt_handle: str
    md5_of_body: str
    body: str
    attributes: dict[str, str] = {}
    md5_of_message_attributes: str | None = None
    message_attributes: AttributeValues = {}


class Received(Answer, kw_only=True):
    messages: list[Message] = []


class MoveStarted(Answer, kw_only=True):
    task_handle: str


class MoveCancelled(Answer, kw_only=True):
    approximate_number_of_messages_moved: int


class MoveTask(Answer, kw_only=True):
    task_handle: str | None = None
    status: str
    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_moved: int
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None
    started_timestamp: int


class MoveTasks(Answer, kw_only=True):
    results: list[MoveTask] = []


NOTHING = Answer()
