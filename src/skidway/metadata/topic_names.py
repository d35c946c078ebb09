"""Which names topics may have, and which are the broker's own."""

import re

from skidway.errors import InvalidRequest, InvalidTopic
from skidway.limits import TOPIC_NAME_MAX

CLUSTER_METADATA = "__cluster_metadata"
INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state", "__queue_schedule"})
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def is_internal(name: str) -> bool:
    """Kept by the broker for its own use; clients do not subscribe to them by pattern."""
    return name in INTERNAL_TOPICS


def is_legal(name: str) -> bool:
    return _complaint(name) is None


def validate_topic_name(name: str) -> None:
    reason = _complaint(name)
    if reason:
        raise InvalidTopic(f"Topic name is invalid: {reason}")


def validate_new_topic_name(name: str) -> None:
    if name == CLUSTER_METADATA:
        raise InvalidRequest(f"Creation of internal topic {CLUSTER_METADATA} is prohibited.")
    validate_topic_name(name)


def _complaint(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_MAX:
        return f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_MAX}"
    if not _LEGAL.fullmatch(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def alike(name: str) -> str:
    """Names with the same result cannot be told apart in metrics."""
    return name.replace(".", "_")
