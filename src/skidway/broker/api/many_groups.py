"""One request about many groups: asked a few at a time, and answered with no more than a bounded reply.

A request may name as many groups as fit into its frame, and each may have thousands of members or offsets. So the loop
is given back between them, and what is told of all of them together is counted: groups past the bound are refused,
each by itself, with what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Protocol, TypeVar

from skidway.broker.api.authorized import GROUP_OPERATIONS, NOT_ASKED
from skidway.broker.services import Services
from skidway.errors import PolicyViolation, ProtocolError
from skidway.runtime.replicated import Operation
from skidway.steps import Steps


class AboutGroup(Protocol):
    group_id: str


class AboutDescribed(AboutGroup, Protocol):
    error_code: int
    error_message: str | None
    authorized_operations: int


class DescribeRequest(Protocol):
    group_ids: list[str]
    include_authorized_operations: bool


Entry = TypeVar("Entry", bound=AboutGroup)
Described = TypeVar("Described", bound=AboutDescribed)
Reply = TypeVar("Reply")

ELEMENT_BYTES = 64
"""Of a member or an offset in a reply, beside what a client once sent for it."""


class ReplyRoom:
    """What is left of the bytes that one reply may have."""

    __slots__ = ("_bytes_left", "_bytes_max")

    def __init__(self, node: Services) -> None:
        self._bytes_left = self._bytes_max = node.world.limits.group_reply_bytes_max

    def take(self, elements: int, size: int) -> PolicyViolation | None:
        """The refusal, if there is not so much room."""
        needed = elements * ELEMENT_BYTES + size
        if needed > self._bytes_left:
            return PolicyViolation(
                f"The reply would exceed {self._bytes_max} bytes (limits.group_reply_bytes_max): ask for fewer groups."
            )
        self._bytes_left -= needed
        return None


def each_once(names: Iterable[str]) -> Iterator[str]:
    """The names in their order, without those that came before. One at a time: there may be hundreds of thousands."""
    seen: set[str] = set()
    for name in names:
        if name not in seen:
            seen.add(name)
            yield name


def ask_each(
    node: Services,
    entries: Sequence[Entry],
    ask: Callable[[Entry], Operation[Reply]],
    take: Callable[[Entry, Reply | ProtocolError], None],
    done: Callable[[], None],
) -> Steps[None]:
    """Ask the coordinators of all groups; `take` gets each reply, `done` is called after the last of them."""
    missing = len(entries)
    if not missing:
        done()
        return

    def answer(entry: Entry, reply: Reply | ProtocolError) -> None:
        nonlocal missing
        take(entry, reply)
        missing -= 1
        if missing == 0:
            done()

    for entry in entries:
        node.groups.submit(entry.group_id, ask(entry), node.world.clock.monotonic_ms(), partial(answer, entry))
        yield None


def describe_each(
    node: Services,
    request: DescribeRequest,
    entries: list[Described],
    make: Callable[[str], Described],
    ask: Callable[[str], Operation[Reply]],
    size_of: Callable[[Reply], tuple[int, int]],
    fill: Callable[[Described, Reply], None],
    done: Callable[[], None],
) -> Steps[None]:
    """Put an entry for every group of the request into `entries`, filled with what its coordinator says, or with why
    nothing is said of it. `size_of` are the elements and the bytes that a group takes in the reply."""
    for name in each_once(request.group_ids):
        entries.append(make(name))
        yield None
    allowed = GROUP_OPERATIONS if request.include_authorized_operations else NOT_ASKED
    room = ReplyRoom(node)

    def take(entry: Described, reply: Reply | ProtocolError) -> None:
        entry.authorized_operations = allowed
        refusal = reply if isinstance(reply, ProtocolError) else room.take(*size_of(reply))
        if refusal is not None:
            entry.error_code, entry.error_message = refusal.code, refusal.message
        elif not isinstance(reply, ProtocolError):
            fill(entry, reply)

    yield from ask_each(node, entries, lambda entry: ask(entry.group_id), take, done)
