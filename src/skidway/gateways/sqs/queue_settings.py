"""The attributes of SQS as the settings of a queue, and back.

What a queue obeys is a setting of its own, which other doors see and change as well. What is only kept and shown is in
`QueueSettings.attributes`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from skidway.gateways.queues.names import key_of, topic_of
from skidway.gateways.queues.types import FIFO, STANDARD, QueueSettings
from skidway.gateways.sqs.addresses import arn_of
from skidway.gateways.sqs.errors import no_such_queue
from skidway.gateways.sqs.queue_attributes import ATTRIBUTES, REMOVED, read_redrive_policy

KEPT = (
    "Policy",
    "RedriveAllowPolicy",
    "SqsManagedSseEnabled",
    "KmsMasterKeyId",
    "KmsDataKeyReusePeriodSeconds",
    "FifoThroughputLimit",
)
_SECONDS = {
    "VisibilityTimeout": "visibility_ms",
    "DelaySeconds": "delay_ms",
    "ReceiveMessageWaitTimeSeconds": "wait_ms",
    "MessageRetentionPeriod": "retention_ms",
}


def new_settings(given: Mapping[str, str], *, is_fifo: bool) -> QueueSettings:
    """Of a queue that is to be created, from canonical values. Raises SqsError."""
    return changed(QueueSettings(type=FIFO if is_fifo else STANDARD), given)


def changed(settings: QueueSettings, given: Mapping[str, str]) -> QueueSettings:
    """The settings with these canonical values in place. Raises SqsError."""
    fields: dict[str, Any] = {}
    kept = dict(settings.attributes)
    for name, value in given.items():
        if name in _SECONDS:
            fields[_SECONDS[name]] = int(value) * 1_000
        elif name == "MaximumMessageSize":
            fields["message_bytes_max"] = int(value)
        elif name == "RedrivePolicy":
            fields |= _redrive(value)
        elif name == "ContentBasedDeduplication":
            fields["content_deduplication"] = value == "true"
        elif name == "DeduplicationScope":
            fields["deduplication_scope"] = value
        elif name in KEPT:
            kept[name] = value
    kept = {name: value for name, value in kept.items() if value not in (REMOVED, ATTRIBUTES[name].default)}
    return msgspec.structs.replace(settings, attributes=kept, **fields)


def _redrive(value: str) -> dict[str, Any]:
    if value == REMOVED:
        return {"deliveries_max": 0, "dead_letters": ""}
    policy = read_redrive_policy(value)
    topic = topic_of(policy.target)
    if topic is None:
        raise no_such_queue()
    return {"deliveries_max": policy.receive_count_max, "dead_letters": topic}


def shown(settings: QueueSettings) -> dict[str, str]:
    """All attributes that clients may set and that are there to be shown."""
    found = {name: str(getattr(settings, field) // 1_000) for name, field in _SECONDS.items()}
    found["MaximumMessageSize"] = str(settings.message_bytes_max)
    found["SqsManagedSseEnabled"] = ATTRIBUTES["SqsManagedSseEnabled"].default
    if settings.dead_letters and settings.deliveries_max:
        target = arn_of(key_of(settings.dead_letters))
        policy = {"deadLetterTargetArn": target, "maxReceiveCount": settings.deliveries_max}
        found["RedrivePolicy"] = msgspec.json.encode(policy).decode()
    if settings.is_fifo:
        found["FifoQueue"] = "true"
        found["ContentBasedDeduplication"] = str(settings.content_deduplication).lower()
        found["DeduplicationScope"] = settings.deduplication_scope
        found["FifoThroughputLimit"] = ATTRIBUTES["FifoThroughputLimit"].default
    found |= settings.attributes
    return found


def first_difference(settings: QueueSettings, given: Mapping[str, str]) -> str | None:
    """The name of an attribute that was given and is not what the queue has."""
    present = shown(settings)
    return next((name for name, value in given.items() if value != present.get(name, REMOVED)), None)
