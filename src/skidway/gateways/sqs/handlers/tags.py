"""Tags and permissions of queues: kept and shown. What is enforced are the broker's own rights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from skidway.gateways.queues import service
from skidway.gateways.queues.types import Queue
from skidway.gateways.sqs import shapes
from skidway.gateways.sqs.actions import ACTIONS
from skidway.gateways.sqs.addresses import arn_of
from skidway.gateways.sqs.asking import Asked
from skidway.gateways.sqs.bounds import (
    ACCOUNT,
    LABEL,
    LABEL_LENGTH_MAX,
    PERMITTED_ACTIONS_MAX,
    POLICY_BYTES_MAX,
    TAG_KEY_LENGTH_MAX,
    TAG_VALUE_LENGTH_MAX,
    TAGS_MAX,
)
from skidway.gateways.sqs.errors import invalid_parameter, invalid_value, missing_parameter, over_limit
from skidway.gateways.sqs.queue_attributes import read_json
from skidway.gateways.sqs.queue_settings import changed
from skidway.gateways.sqs.shapes import Answer
from skidway.steps import Steps

OWNER_ONLY = frozenset(
    (
        "AddPermission",
        "RemovePermission",
        "CreateQueue",
        "DeleteQueue",
        "ListQueues",
        "SetQueueAttributes",
        "TagQueue",
        "UntagQueue",
        "ListQueueTags",
        "StartMessageMoveTask",
        "CancelMessageMoveTask",
        "ListMessageMoveTasks",
    )
)


def check_tags(tags: Mapping[str, str]) -> None:
    """Raises SqsError."""
    if len(tags) > TAGS_MAX:
        raise invalid_parameter(f"Too many tags added for queue: {len(tags)}, and {TAGS_MAX} are the most.")
    for key, value in tags.items():
        if not 1 <= len(key) <= TAG_KEY_LENGTH_MAX:
            raise invalid_parameter(f"Tag keys must be between 1 and {TAG_KEY_LENGTH_MAX} characters in length.")
        if len(value) > TAG_VALUE_LENGTH_MAX:
            raise invalid_parameter(f"Tag values must be at most {TAG_VALUE_LENGTH_MAX} characters in length.")


def tag_queue(asked: Asked, request: shapes.TagQueue) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    if not request.tags:
        raise missing_parameter("Tags")
    tags = queue.tags | request.tags
    check_tags(tags)
    yield from service.change_tags(asked.call, queue, tags)
    return shapes.NOTHING


def untag_queue(asked: Asked, request: shapes.UntagQueue) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    if not request.tag_keys:
        raise missing_parameter("TagKeys")
    tags = {key: value for key, value in queue.tags.items() if key not in request.tag_keys}
    if len(tags) < len(queue.tags):
        yield from service.change_tags(asked.call, queue, tags)
    return shapes.NOTHING


def list_queue_tags(asked: Asked, request: shapes.ListQueueTags) -> Steps[Answer]:
    yield None
    return shapes.TagsAnswer(tags=asked.queue(request.queue_url).tags)


# --- permissions ---


def add_permission(asked: Asked, request: shapes.AddPermission) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    label, accounts, actions = _check_permission(request)
    policy = _policy(queue)
    if any(each.get("Sid") == label for each in policy["Statement"]):
        raise invalid_value(label, "Label", "Already exists.")
    policy["Statement"].append(
        {
            "Sid": label,
            "Effect": "Allow",
            "Principal": {"AWS": _one_or_many([f"arn:aws:iam::{account}:root" for account in accounts])},
            "Action": _one_or_many([f"SQS:{action}" for action in actions]),
            "Resource": arn_of(queue.key),
        }
    )
    yield from _keep(asked, queue, policy)
    return shapes.NOTHING


def _check_permission(request: shapes.AddPermission) -> tuple[str, list[str], list[str]]:
    label, accounts, actions = request.label or "", request.aws_account_ids or [], request.actions or []
    if not LABEL.fullmatch(label):
        reason = f"It can have letters, digits, hyphens and underscores, at most {LABEL_LENGTH_MAX}."
        raise invalid_value(label, "Label", reason)
    if not accounts:
        raise missing_parameter("AWSAccountIds")
    if not actions:
        raise missing_parameter("Actions")
    if len(actions) > PERMITTED_ACTIONS_MAX:
        raise over_limit(f"{len(actions)} Actions were found, maximum allowed is {PERMITTED_ACTIONS_MAX}.")
    for account in accounts:
        if not ACCOUNT.fullmatch(account):
            raise invalid_value(account, "PrincipalId", "Unable to verify.")
    for action in actions:
        if action != "*" and (action not in ACTIONS or action in OWNER_ONLY):
            reason = "Only the queue owner is allowed to invoke this action."
            raise invalid_value(f"SQS:{action}", "ActionName", reason)
    return label, accounts, actions


def remove_permission(asked: Asked, request: shapes.RemovePermission) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    policy = _policy(queue)
    left = [each for each in policy["Statement"] if each.get("Sid") != request.label]
    if len(left) == len(policy["Statement"]):
        raise invalid_value(request.label, "Label", "can't find label.")
    yield from _keep(asked, queue, {**policy, "Statement": left} if left else None)
    return shapes.NOTHING


def _policy(queue: Queue) -> dict[str, Any]:
    """As it is, or one without statements."""
    given = read_json(queue.settings.attributes.get("Policy", ""))
    policy: dict[str, Any] = given if isinstance(given, dict) else {}
    statements = policy.get("Statement", [])
    if not isinstance(statements, list):
        statements = [statements]
    identity = f"{arn_of(queue.key)}/SQSDefaultPolicy"
    head = policy or {"Version": "2008-10-17", "Id": identity}
    return {**head, "Statement": [each for each in statements if isinstance(each, dict)]}


def _keep(asked: Asked, queue: Queue, policy: dict[str, Any] | None) -> Steps[None]:
    text = "" if policy is None else msgspec.json.encode(policy).decode()
    if len(text) > POLICY_BYTES_MAX:
        raise over_limit(f"the policy of a queue may have at most {POLICY_BYTES_MAX} bytes")
    yield from service.change_settings(asked.call, queue, changed(queue.settings, {"Policy": text}))


def _one_or_many(values: list[str]) -> str | list[str]:
    return values[0] if len(values) == 1 else values
