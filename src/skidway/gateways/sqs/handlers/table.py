"""Which function carries out which action."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skidway.gateways.sqs.asking import Asked
from skidway.gateways.sqs.handlers import moving, queues, receiving, sending, settling, tags
from skidway.gateways.sqs.shapes import Answer
from skidway.steps import Steps

Handler = Callable[[Asked, Any], Steps[Answer]]

HANDLERS: dict[str, Handler] = {
    "AddPermission": tags.add_permission,
    "CancelMessageMoveTask": moving.cancel_message_move_task,
    "ChangeMessageVisibility": settling.change_message_visibility,
    "ChangeMessageVisibilityBatch": settling.change_message_visibility_batch,
    "CreateQueue": queues.create_queue,
    "DeleteMessage": settling.delete_message,
    "DeleteMessageBatch": settling.delete_message_batch,
    "DeleteQueue": queues.delete_queue,
    "GetQueueAttributes": queues.get_queue_attributes,
    "GetQueueUrl": queues.get_queue_url,
    "ListDeadLetterSourceQueues": queues.list_dead_letter_source_queues,
    "ListMessageMoveTasks": moving.list_message_move_tasks,
    "ListQueueTags": tags.list_queue_tags,
    "ListQueues": queues.list_queues,
    "PurgeQueue": queues.purge_queue,
    "ReceiveMessage": receiving.receive_message,
    "RemovePermission": tags.remove_permission,
    "SendMessage": sending.send_message,
    "SendMessageBatch": sending.send_message_batch,
    "SetQueueAttributes": queues.set_queue_attributes,
    "StartMessageMoveTask": moving.start_message_move_task,
    "TagQueue": tags.tag_queue,
    "UntagQueue": tags.untag_queue,
}
