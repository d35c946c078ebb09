"""The share group of a queue: one of its own, under an id that no client may use."""

from skidway.errors import InvalidGroupId

PREFIX = "__queue/"


def group_of(topic: str) -> str:
    return PREFIX + topic


def topic_of(group: str) -> str | None:
    """None: it is an ordinary group."""
    return group.removeprefix(PREFIX) if group.startswith(PREFIX) else None


def check_group(group: str | None) -> None:
    """InvalidGroupId for what belongs to a queue."""
    if group is not None and group.startswith(PREFIX):
        raise InvalidGroupId(f"groups whose ids begin with {PREFIX} are the brokers' own, for queues: choose another")
