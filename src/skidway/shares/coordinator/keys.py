"""What a share-partition is called: a group, a topic's id and a partition.

Its text is what FindCoordinator asks for and what its place in `__share_group_state` is computed from. A group's id may
contain anything, colons too, so the text is read from the right.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from functools import lru_cache
from typing import NamedTuple

from skidway.errors import InvalidRequest
from skidway.limits import INT32_MAX

TOPIC_ID_BYTES = 16
TOPIC_ID_LENGTH = 22


class ShareKey(NamedTuple):
    group_id: str
    topic_id: bytes
    partition: int


@lru_cache(maxsize=10_000)
def text_of(key: ShareKey) -> str:
    topic_id = urlsafe_b64encode(key.topic_id).decode().rstrip("=")
    return f"{key.group_id}:{topic_id}:{key.partition}"


def parse(text: str) -> ShareKey:
    """Raises InvalidRequest for what is no key."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0]:
        raise InvalidRequest("the key of a share-partition is GROUP:TOPIC-ID:PARTITION")
    group_id, topic, partition = parts
    return ShareKey(group_id, _topic_id(topic), _partition(partition))


def check(text: str) -> None:
    parse(text)


def _topic_id(text: str) -> bytes:
    try:
        topic_id = urlsafe_b64decode(text + "==")
    except ValueError:
        topic_id = b""
    # Python's decoder skips what is no base64, and a last character has bits that nobody reads.
    if len(topic_id) != TOPIC_ID_BYTES or urlsafe_b64encode(topic_id).decode().rstrip("=") != text:
        raise InvalidRequest(f"{text!r} is not a topic id: {TOPIC_ID_LENGTH} characters of base64 for URLs are")
    return topic_id


def _partition(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(INT32_MAX)) and int(text) <= INT32_MAX):
        raise InvalidRequest(f"{text!r} is not a partition number")
    return int(text)
