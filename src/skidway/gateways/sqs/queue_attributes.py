"""The attributes of a queue: names, bounds, defaults, and how values are written.

All values are text. What is kept is the canonical form, so that two ways of writing one value are equal: numbers
without zeros in front, booleans in small letters, policies of redrive as compact JSON. A value that takes an attribute
away is kept as "".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import msgspec

from skidway.gateways.queues.names import QueueKey
from skidway.gateways.sqs.addresses import arn_of, read_arn
from skidway.gateways.sqs.bounds import (
    DELAY_S_MAX,
    MESSAGE_BYTES_MAX,
    MESSAGE_BYTES_MIN,
    POLICY_BYTES_MAX,
    RECEIVE_COUNT_MAX,
    RETENTION_S_MAX,
    RETENTION_S_MIN,
    SOURCE_ARNS_MAX,
    VISIBILITY_S_MAX,
    WAIT_S_MAX,
)
from skidway.gateways.sqs.errors import (
    SqsError,
    invalid_attribute_name,
    invalid_attribute_value,
    invalid_value,
    unknown_attribute,
)

ALL = "All"
REMOVED = ""
_NUMBER = re.compile(r"[0-9]{1,9}")
_KMS_KEY = re.compile(r"[A-Za-z0-9:/_-]{1,2048}")
KMS_REUSE_S = "300"


class RedrivePolicy(msgspec.Struct, frozen=True):
    target: QueueKey
    receive_count_max: int


class RedriveAllowPolicy(msgspec.Struct, frozen=True):
    permission: str
    sources: tuple[str, ...] = ()

    def allows(self, source: QueueKey) -> bool:
        return self.permission == "allowAll" or (self.permission == "byQueue" and arn_of(source) in self.sources)


ALLOW_ALL = RedriveAllowPolicy("allowAll")


# --- values ---


def _number(low: int, high: int) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        if not _NUMBER.fullmatch(value) or not low <= int(value) <= high:
            raise invalid_attribute_value(name, f"It must be a whole number from {low} to {high}.")
        return str(int(value))

    return check


def _boolean(name: str, value: str) -> str:
    if value.lower() not in ("true", "false"):
        raise invalid_attribute_value(name, "It must be true or false.")
    return value.lower()


def _one_of(*allowed: str) -> Callable[[str, str], str]:
    def check(name: str, value: str) -> str:
        if value not in allowed:
            raise invalid_attribute_value(name, f"It must be one of: {', '.join(allowed)}.")
        return value

    return check


def _policy(name: str, value: str) -> str:
    if not value:
        return REMOVED
    if not isinstance(read_json(value), dict):
        raise invalid_attribute_value(name, "It must be a JSON object.")
    return value


def _redrive(name: str, value: str) -> str:
    if not value:
        return REMOVED
    policy = read_redrive_policy(value)
    plain = {"deadLetterTargetArn": arn_of(policy.target), "maxReceiveCount": policy.receive_count_max}
    return msgspec.json.encode(plain).decode()


def _redrive_allow(name: str, value: str) -> str:
    if not value:
        return REMOVED
    policy = read_redrive_allow_policy(value)
    plain: dict[str, Any] = {"redrivePermission": policy.permission}
    if policy.permission == "byQueue":
        plain["sourceQueueArns"] = policy.sources
    return msgspec.json.encode(plain).decode()


def _kms_key(name: str, value: str) -> str:
    if value and not _KMS_KEY.fullmatch(value):
        raise invalid_attribute_value(name, "It must be the id, the ARN or the alias of a key.")
    return value


def read_json(text: str) -> Any:
    """None if it is not JSON, or has more than a policy may have."""
    if len(text) > POLICY_BYTES_MAX:
        return None
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return None


def read_redrive_policy(text: str) -> RedrivePolicy:
    """Raises SqsError."""
    given = read_json(text)
    if not isinstance(given, dict):
        raise _bad_policy(text, "RedrivePolicy", "Redrive policy is not a valid JSON map.")
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        if name not in given:
            reason = f"Redrive policy does not contain mandatory attribute: {name}."
            raise _bad_policy(text, "RedrivePolicy", reason)
    unknown = sorted(set(given) - {"deadLetterTargetArn", "maxReceiveCount"})
    if unknown:
        raise _bad_policy(
            text, "RedrivePolicy", "Only following attributes are supported: [deadLetterTargetArn, maxReceiveCount]."
        )
    count = str(given["maxReceiveCount"])
    if isinstance(given["maxReceiveCount"], bool) or not _NUMBER.fullmatch(count):
        raise _bad_policy(text, "RedrivePolicy", f"Invalid value for maxReceiveCount: {count[:50]}.")
    if not 1 <= int(count) <= RECEIVE_COUNT_MAX:
        allowed = f"valid values are from 1 to {RECEIVE_COUNT_MAX} both inclusive."
        reason = f"Invalid value for maxReceiveCount: {count}, {allowed}"
        raise _bad_policy(text, "RedrivePolicy", reason)
    if not isinstance(given["deadLetterTargetArn"], str):
        raise _bad_policy(text, "RedrivePolicy", "Invalid value for deadLetterTargetArn.")
    return RedrivePolicy(read_arn(given["deadLetterTargetArn"], "deadLetterTargetArn"), int(count))


def read_redrive_allow_policy(text: str) -> RedriveAllowPolicy:
    """Raises SqsError."""
    given = read_json(text)
    if not isinstance(given, dict):
        raise _bad_policy(text, "RedriveAllowPolicy", "It is not a valid JSON map.")
    permission, sources = given.get("redrivePermission"), given.get("sourceQueueArns", [])
    if permission not in ("allowAll", "denyAll", "byQueue") or set(given) - {"redrivePermission", "sourceQueueArns"}:
        reason = "redrivePermission must be allowAll, denyAll or byQueue."
        raise _bad_policy(text, "RedriveAllowPolicy", reason)
    if not isinstance(sources, list) or not all(isinstance(each, str) for each in sources):
        raise _bad_policy(text, "RedriveAllowPolicy", "sourceQueueArns must be a list of ARNs.")
    if permission == "byQueue" and not 1 <= len(sources) <= SOURCE_ARNS_MAX:
        reason = f"byQueue needs from 1 to {SOURCE_ARNS_MAX} sourceQueueArns."
        raise _bad_policy(text, "RedriveAllowPolicy", reason)
    if permission != "byQueue" and sources:
        raise _bad_policy(text, "RedriveAllowPolicy", "sourceQueueArns belong to byQueue alone.")
    return RedriveAllowPolicy(permission, tuple(arn_of(read_arn(each, "sourceQueueArns")) for each in sources))


def _bad_policy(text: str, name: str, reason: str) -> SqsError:
    return invalid_value(text, name, reason)


# --- the table ---


class QueueAttribute(msgspec.Struct, frozen=True):
    name: str
    check: Callable[[str, str], str] | None
    """Canonical form of a value, or an error. None: clients cannot set it."""
    default: str = REMOVED
    """What a queue has that nobody gave another; "": it is not shown then."""
    fifo_only: bool = False


ATTRIBUTES = {
    each.name: each
    for each in (
        QueueAttribute("Policy", _policy),
        QueueAttribute("VisibilityTimeout", _number(0, VISIBILITY_S_MAX), "30"),
        QueueAttribute("MaximumMessageSize", _number(MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX), str(MESSAGE_BYTES_MAX)),
        QueueAttribute("MessageRetentionPeriod", _number(RETENTION_S_MIN, RETENTION_S_MAX), "345600"),
        QueueAttribute("ApproximateNumberOfMessages", None),
        QueueAttribute("ApproximateNumberOfMessagesNotVisible", None),
        QueueAttribute("CreatedTimestamp", None),
        QueueAttribute("LastModifiedTimestamp", None),
        QueueAttribute("QueueArn", None),
        QueueAttribute("ApproximateNumberOfMessagesDelayed", None),
        QueueAttribute("DelaySeconds", _number(0, DELAY_S_MAX), "0"),
        QueueAttribute("ReceiveMessageWaitTimeSeconds", _number(0, WAIT_S_MAX), "0"),
        QueueAttribute("RedrivePolicy", _redrive),
        QueueAttribute("FifoQueue", _boolean, "true", True),
        QueueAttribute("ContentBasedDeduplication", _boolean, "false", True),
        QueueAttribute("KmsMasterKeyId", _kms_key),
        QueueAttribute("KmsDataKeyReusePeriodSeconds", _number(60, 86_400)),
        QueueAttribute("DeduplicationScope", _one_of("queue", "messageGroup"), "queue", True),
        QueueAttribute("FifoThroughputLimit", _one_of("perQueue", "perMessageGroupId"), "perQueue", True),
        QueueAttribute("RedriveAllowPolicy", _redrive_allow),
        QueueAttribute("SqsManagedSseEnabled", _boolean, "true"),
    )
}
COUNTS = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "ApproximateNumberOfMessagesDelayed")


def check_given(given: Mapping[str, str], *, is_fifo: bool) -> dict[str, str]:
    """The canonical values of attributes that a client sets. Raises SqsError."""
    checked: dict[str, str] = {}
    for name, value in given.items():
        attribute = ATTRIBUTES.get(name)
        if attribute is None or attribute.check is None or (attribute.fifo_only and not is_fifo):
            raise unknown_attribute(name)
        checked[name] = attribute.check(name, value)
    if checked.get("FifoQueue") == "false":
        raise invalid_attribute_value("FifoQueue", "Modifying queue type is not supported.")
    if checked.get("KmsMasterKeyId") and checked.get("SqsManagedSseEnabled") == "true":
        raise invalid_attribute_name(
            "You can use one type of server-side encryption (SSE) at one time. You can either enable KMS SSE or SQS "
            "SSE."
        )
    if checked.get("KmsDataKeyReusePeriodSeconds") == KMS_REUSE_S:
        checked["KmsDataKeyReusePeriodSeconds"] = REMOVED
    if checked.get("KmsMasterKeyId"):
        checked["SqsManagedSseEnabled"] = "false"
    elif checked.get("SqsManagedSseEnabled") == "true":
        checked["KmsMasterKeyId"] = REMOVED
    return checked


def check_new(name: str, given: Mapping[str, str]) -> dict[str, str]:
    """The same for a queue that is to be created; its name says whether it is FIFO. Raises SqsError."""
    is_fifo = name.endswith(".fifo")
    says_fifo = given.get("FifoQueue", "").lower() == "true"
    if is_fifo and not says_fifo:
        raise invalid_value(name, "QueueName", "A queue whose name ends with .fifo needs the attribute FifoQueue=true.")
    if says_fifo and not is_fifo:
        reason = "The name of a FIFO queue must end with .fifo suffix."
        raise invalid_value(name, "QueueName", reason)
    return check_given(given, is_fifo=is_fifo)


def asked_names(names: Iterable[str], *, is_fifo: bool) -> list[str]:
    """Raises SqsError."""
    wanted = list(dict.fromkeys(names))
    known = [name for name, attribute in ATTRIBUTES.items() if is_fifo or not attribute.fifo_only]
    if ALL in wanted:
        return known
    for name in wanted:
        if name not in known:
            raise unknown_attribute(name)
    return wanted
