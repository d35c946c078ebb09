"""Which topic a queue is.

A queue has an account and a region, as in Amazon's SQS. In the default pair its topic has the queue's name; in any
other it is `ACCOUNT.REGION.NAME`. A name in the default pair that reads like this is refused, so no two queues are one
topic.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from skidway.metadata.topic_names import is_internal, is_legal

KEPT_LENGTH_MAX = 250
"""What is made of longer names is not kept: they may be as long as a request."""
DEFAULT_ACCOUNT = "000000000000"
DEFAULT_REGION = "us-east-1"
_ELSEWHERE = re.compile(r"([0-9]{12})\.([a-z0-9-]{1,32})\.(.+)", re.ASCII)
_ACCOUNT = re.compile(r"[0-9]{12}", re.ASCII)
_REGION = re.compile(r"[a-z0-9-]{1,32}", re.ASCII)


class QueueKey(msgspec.Struct, frozen=True):
    name: str
    account: str = DEFAULT_ACCOUNT
    region: str = DEFAULT_REGION

    @property
    def is_default(self) -> bool:
        return self.account == DEFAULT_ACCOUNT and self.region == DEFAULT_REGION


def topic_of(key: QueueKey) -> str | None:
    """None: no queue can have this name."""
    return (_topic_of if len(key.name) > KEPT_LENGTH_MAX else _known_topic_of)(key)


def _topic_of(key: QueueKey) -> str | None:
    if key.is_default:
        name = key.name
        if _ELSEWHERE.fullmatch(name):
            return None
    elif _ACCOUNT.fullmatch(key.account) and _REGION.fullmatch(key.region):
        name = f"{key.account}.{key.region}.{key.name}"
    else:
        return None
    return name if key.name and is_legal(name) and not is_internal(name) else None


_known_topic_of = lru_cache(maxsize=1_000)(_topic_of)


def key_of(topic: str) -> QueueKey:
    found = _ELSEWHERE.fullmatch(topic)
    if found is None:
        return QueueKey(topic)
    account, region, name = found.groups()
    key = QueueKey(name, account, region)
    return QueueKey(topic) if key.is_default else key
