"""One request as several operations: a machine decides each of them in one go, so a large request is cut into parts.

The parts are asked one after the other, each when the one before is answered. The last one is not waited for here: a
request that is one part is answered like any other that waits, and those behind it on its connection go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from skidway.errors import ProtocolError
from skidway.runtime.replicated import Operation
from skidway.steps import Question, Steps

Topic = TypeVar("Topic", str, bytes)
"""Its name or its id."""
Item = TypeVar("Item")
Reply = TypeVar("Reply")
Submit = Callable[[Operation[Reply], Callable[[Reply | ProtocolError], None]], None]

PART_ITEMS = 500
"""Of what a machine decides about in one go."""


def parts_of(items: Iterable[Item], weigh: Callable[[Item], int] = lambda item: 1) -> Steps[list[list[Item]]]:
    """At least one, perhaps empty. What weighs more than a part is a part of its own."""
    parts: list[list[Item]] = [[]]
    weight = 0
    for item in items:
        weight += weigh(item)
        if weight > PART_ITEMS and parts[-1]:
            parts.append([])
            weight = weigh(item)
        parts[-1].append(item)
        yield None
    return parts


def nested_parts_of(topics: Iterable[tuple[Topic, list[Item]]]) -> Steps[list[list[tuple[Topic, list[Item]]]]]:
    """The same of partitions within topics; a topic may be in several parts."""
    cut = (
        (name, items[at : at + PART_ITEMS]) for name, items in topics for at in range(0, max(1, len(items)), PART_ITEMS)
    )
    return parts_of(cut, lambda entry: 1 + len(entry[1]))


def join_topics(found: Sequence[tuple[str, list[Item]]]) -> list[tuple[str, list[Item]]]:
    """What several parts say of one topic, together again."""
    joined: list[tuple[str, list[Item]]] = []
    for name, items in found:
        if joined and joined[-1][0] == name:
            joined[-1][1].extend(items)
        else:
            joined.append((name, list(items)))
    return joined


def ask_in_parts(
    submit: Submit[Reply],
    parts: list[Item],
    make: Callable[[Item], Operation[Reply]],
    take: Callable[[Item, Reply | ProtocolError], None],
    done: Callable[[], None],
) -> Steps[None]:
    """`take` gets the answer to each part, `done` is called after the last of them. `parts` is emptied meanwhile: what
    is done with is freed part by part."""
    parts.reverse()
    while len(parts) > 1:
        part = parts.pop()
        operation = make(part)
        take(part, (yield Question(lambda answer, operation=operation: submit(operation, answer))))  # type: ignore[misc]
    last = parts.pop()

    def answer(reply: Reply | ProtocolError) -> None:
        take(last, reply)
        done()

    submit(make(last), answer)
