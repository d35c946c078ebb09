"""Helpers for applications, over confluent-kafka. What needs a library that is not installed says which.

`DeadLetters`, `Backoff`; `Deduplicator`, `message_id` with `SqliteMarks`, `PostgresMarks`, `RedisMarks`; `SaltedKey`;
`HotKeyPartitioner`.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skidway.client.dead_letters import Backoff, DeadLetterRefused, DeadLetters
    from skidway.client.deduplication import Deduplicator, InProgress, message_id
    from skidway.client.hot_keys import HotKeyPartitioner
    from skidway.client.redis_marks import RedisMarks
    from skidway.client.salting import SaltedKey
    from skidway.client.sql_marks import PostgresMarks, SqliteMarks

_MODULES = {
    "Backoff": "dead_letters",
    "DeadLetterRefused": "dead_letters",
    "DeadLetters": "dead_letters",
    "Deduplicator": "deduplication",
    "HotKeyPartitioner": "hot_keys",
    "InProgress": "deduplication",
    "PostgresMarks": "sql_marks",
    "RedisMarks": "redis_marks",
    "SaltedKey": "salting",
    "SqliteMarks": "sql_marks",
    "message_id": "deduplication",
}

__all__ = [
    "Backoff",
    "DeadLetterRefused",
    "DeadLetters",
    "Deduplicator",
    "HotKeyPartitioner",
    "InProgress",
    "PostgresMarks",
    "RedisMarks",
    "SaltedKey",
    "SqliteMarks",
    "message_id",
]


def __getattr__(name: str) -> object:
    """On first use: the command line starts without them."""
    if name in _MODULES:
        return getattr(import_module(f"skidway.client.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
