"""What a coordinator of schedules can be asked to do, and what it wants done elsewhere."""

from __future__ import annotations

from msgspec import Struct

from skidway.runtime.replicated import Operation
from skidway.schedules.schedule import Definition, Plan


class Created(Struct, frozen=True):
    due_ms: int
    existed: bool
    """The same was asked for before."""


class Create(Operation[Created]):
    """`definition.due_ms` of one with a cron expression is computed."""

    topic_id: bytes
    id: str
    definition: Definition


class Cancelled(Struct, frozen=True):
    on_its_way: bool
    """A recurring schedule whose message is being delivered: it was the last one."""


class Cancel(Operation[Cancelled]):
    topic_id: bytes
    id: str


class Listed(Struct, frozen=True):
    id: str
    due_ms: int
    cron: str
    zone: str
    created_ms: int
    size: int


class ListSchedules(Operation[list[Listed]]):
    """By id, those behind one."""

    topic_id: bytes
    after: str
    count_max: int


class Delivered(Operation[None]):
    """The messages of a plan are in their queue."""

    topic_id: bytes
    plan: Plan


class NotTaken(Operation[None]):
    """It is certain that no message of a plan is in its queue: it was refused each time it was sent, or what comes
    before it is missing there."""

    topic_id: bytes
    plan: Plan
    refused: bool
    """The queue does not take it. Else it may, under another name."""


class TopicsChanged(Operation[None]):
    deleted: list[str]


class Tick(Operation[None]):
    pass


class Deliver(Struct, frozen=True):
    """An effect: the messages of a plan belong into their queue."""

    topic_id: bytes
    plan: Plan
