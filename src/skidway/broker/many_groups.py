"""One request about many groups: asked a few at a time, and answered with no more than a bounded reply.

A request may name as many groups as fit into its frame, and each may have thousands of members or offsets. So the loop
is given back between them, and what is told of all of them together is counted: groups past the bound are refused,
each by itself, with what to do about it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from skidway.errors import PolicyViolation, ProtocolError

if TYPE_CHECKING:
    from skidway.broker.call import Call
    from skidway.broker.node import Node
    from skidway.runtime.replicated import Operation

Entry = TypeVar("Entry")
Reply = TypeVar("Reply")

TURN_MS_MAX = 10
"""So long the groups of one request are asked in one go."""
ELEMENT_BYTES = 64
"""Of a member or an offset in a reply, beside what a client once sent for it."""


class ReplyRoom:
    """What is left of the bytes that one reply may have."""

    __slots__ = ("_bytes_left", "_bytes_max")

    def __init__(self, node: Node) -> None:
        self._bytes_left = self._bytes_max = node.limits.group_reply_bytes_max

    def take(self, elements: int, size: int) -> PolicyViolation | None:
        """The refusal, if there is not so much room."""
        needed = elements * ELEMENT_BYTES + size
        if needed > self._bytes_left:
            return PolicyViolation(
                f"The reply would exceed {self._bytes_max} bytes (limits.group_reply_bytes_max): ask for less at once."
            )
        self._bytes_left -= needed
        return None


def ask_each(
    node: Node,
    call: Call,
    entries: Sequence[tuple[str, Entry]],
    ask: Callable[[Entry], Operation[Reply]],
    take: Callable[[Entry, Reply | ProtocolError], None],
    done: Callable[[], None],
) -> None:
    """Ask the coordinators of all groups; `take` gets each reply, `done` is called after the last of them."""
    missing = len(entries)
    position = 0

    def answer(entry: Entry, reply: Reply | ProtocolError) -> None:
        nonlocal missing
        take(entry, reply)
        missing -= 1
        if missing == 0:
            done()

    def go_on() -> None:
        nonlocal position
        now_ms = node.clock.monotonic_ms()
        until_ms = now_ms + TURN_MS_MAX
        while position < len(entries) and not call.connection.gone:
            group_id, entry = entries[position]
            position += 1
            node.groups.submit(
                group_id,
                ask(entry),
                now_ms,
                lambda reply, entry=entry: answer(entry, reply),  # type: ignore[misc]
            )
            if position < len(entries) and node.clock.monotonic_ms() >= until_ms:
                node.timers.at(now_ms, go_on)
                return

    if entries:
        go_on()
    else:
        done()
