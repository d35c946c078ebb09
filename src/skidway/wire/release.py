"""Freeing a large message in steps.

Python frees a message with all that it contains at once: 200,000 elements take 30 to 60 ms. `release` takes one apart
from its innermost arrays, a few hundred elements at a time. It leaves alone what something else refers to: a handler
may have stored a part of the request, and a response may contain a list of the node's own. A message may lack values:
one that was refused while it was decoded does.
"""

from sys import getrefcount
from typing import Any

from skidway.steps import Steps
from skidway.wire.message import Message
from skidway.wire.source import STEP_ELEMENTS


def _count_of_one() -> int:
    one = object()
    return getrefcount(one)


_ONLY_HERE = _count_of_one()
"""What `getrefcount` says of an object that one variable refers to. Python 3.14 counts one less than those before."""
_LOOK = 16
"""Looking for the arrays of an element takes as long as freeing so many that have none."""
_ARRAYS: dict[type, tuple[str, ...]] = {}
"""The array fields of message classes."""


def release(messages: list[Any]) -> Steps[None]:
    """The list must be the caller's only reference to the messages."""
    lists: list[list[Any]] = [messages]
    freed = 0
    while lists:
        items = lists[-1]
        if not items:
            lists.pop()
        elif not _arrays_of(type(items[-1])):
            freed += min(STEP_ELEMENTS, len(items))
            del items[-STEP_ELEMENTS:]
        else:
            freed += _LOOK
            one = items.pop()
            if getrefcount(one) == _ONLY_HERE:
                for name in _arrays_of(type(one)):
                    inner = getattr(one, name, None)
                    # The message refers to it, too.
                    if inner and isinstance(inner, list) and getrefcount(inner) == _ONLY_HERE + 1:
                        lists.append(inner)
            del one
        if freed >= STEP_ELEMENTS:
            freed = 0
            yield None


def _arrays_of(cls: type) -> tuple[str, ...]:
    names = _ARRAYS.get(cls)
    if names is None:
        fields = cls.__fields__ if issubclass(cls, Message) else ()
        names = _ARRAYS[cls] = tuple(field.name for field in fields if field.kind == "array")
    return names
