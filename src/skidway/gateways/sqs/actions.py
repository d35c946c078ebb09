"""The actions of SQS by name: the shapes of their requests, and the members that a request must have."""

from __future__ import annotations

import msgspec

from skidway.gateways.sqs import shapes
from skidway.gateways.sqs.errors import SqsError, missing_parameter
from skidway.gateways.sqs.shapes import Request


class Action(msgspec.Struct, frozen=True):
    name: str
    request: type[Request]
    required: tuple[str, ...] = ()
    """Members by the names of the wire, in the order in which a lack of them is found."""
    has_answer: bool = False
    """Whether there is more to say than that it is done."""

    @property
    def takes_queue(self) -> bool:
        return "QueueUrl" in self.required

    def check(self, request: Request) -> None:
        """Raises SqsError."""
        check_required(request, self.required)


def check_required(request: Request, required: tuple[str, ...]) -> None:
    for name in required:
        if getattr(request, _FIELDS[name]) is None:
            raise missing(name)


def missing(name: str) -> SqsError:
    return missing_parameter(name)


_FIELDS = {
    "QueueUrl": "queue_url",
    "QueueName": "queue_name",
    "Attributes": "attributes",
    "MessageBody": "message_body",
    "ReceiptHandle": "receipt_handle",
    "VisibilityTimeout": "visibility_timeout",
    "SourceArn": "source_arn",
    "TaskHandle": "task_handle",
    "Tags": "tags",
    "TagKeys": "tag_keys",
    "Label": "label",
    "AWSAccountIds": "aws_account_ids",
    "Actions": "actions",
    "Id": "id",
}

_URL = ("QueueUrl",)

ACTIONS: dict[str, Action] = {
    action.name: action
    for action in (
        Action("AddPermission", shapes.AddPermission, (*_URL, "Label", "AWSAccountIds", "Actions")),
        Action("CancelMessageMoveTask", shapes.CancelMessageMoveTask, ("TaskHandle",), True),
        Action(
            "ChangeMessageVisibility", shapes.ChangeMessageVisibility, (*_URL, "ReceiptHandle", "VisibilityTimeout")
        ),
        Action("ChangeMessageVisibilityBatch", shapes.ChangeMessageVisibilityBatch, _URL, True),
        Action("CreateQueue", shapes.CreateQueue, ("QueueName",), True),
        Action("DeleteMessage", shapes.DeleteMessage, (*_URL, "ReceiptHandle")),
        Action("DeleteMessageBatch", shapes.DeleteMessageBatch, _URL, True),
        Action("DeleteQueue", shapes.DeleteQueue, _URL),
        Action("GetQueueAttributes", shapes.GetQueueAttributes, _URL, True),
        Action("GetQueueUrl", shapes.GetQueueUrl, ("QueueName",), True),
        Action("ListDeadLetterSourceQueues", shapes.ListDeadLetterSourceQueues, _URL, True),
        Action("ListMessageMoveTasks", shapes.ListMessageMoveTasks, ("SourceArn",), True),
        Action("ListQueueTags", shapes.ListQueueTags, _URL, True),
        Action("ListQueues", shapes.ListQueues, (), True),
        Action("PurgeQueue", shapes.PurgeQueue, _URL),
        Action("ReceiveMessage", shapes.ReceiveMessage, _URL, True),
        Action("RemovePermission", shapes.RemovePermission, (*_URL, "Label")),
        Action("SendMessage", shapes.SendMessage, (*_URL, "MessageBody"), True),
        Action("SendMessageBatch", shapes.SendMessageBatch, _URL, True),
        Action("SetQueueAttributes", shapes.SetQueueAttributes, (*_URL, "Attributes")),
        Action("StartMessageMoveTask", shapes.StartMessageMoveTask, ("SourceArn",), True),
        Action("TagQueue", shapes.TagQueue, (*_URL, "Tags")),
        Action("UntagQueue", shapes.UntagQueue, (*_URL, "TagKeys")),
    )
}
