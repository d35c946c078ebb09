"""Acknowledgements of a request, in the form of the protocol: checked, settled, and their answers gathered.

One of many partitions is a small step. Each partition's acknowledgements are one settlement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from skidway.errors import InvalidRecordState, InvalidRequest, ProtocolError
from skidway.limits import INT64_MAX
from skidway.shares.sessions import Place
from skidway.shares.settling import Said
from skidway.shares.states import Verb
from skidway.steps import Steps

TYPES_PER_STEP = 1_000
PLACES_AT_ONCE, TYPES_PER_PLACE = 40, 20
"""A partition or a range of offsets, without a step: and so many acknowledgements count as one more."""


VERBS = tuple(Verb)
"""By their numbers: to make one of an enumeration by calling it takes longer."""
assert all(verb == number for number, verb in enumerate(VERBS))


class AcknowledgedBatch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


def is_small(topics: Sequence[Any]) -> bool:
    """Whether there is too little in a request to be worth a step."""
    size = 0
    for topic in topics:
        for each in topic.partitions:
            size += 1 + len(each.acknowledgement_batches)
            if size > PLACES_AT_ONCE:
                return False
            for batch in each.acknowledgement_batches:
                size += len(batch.acknowledge_types) // TYPES_PER_PLACE
    return size <= PLACES_AT_ONCE


class Answers:
    """What became of the acknowledgements of one request. `when_all` is called once, when all are known."""

    __slots__ = ("_open", "_when_all", "errors")

    def __init__(self) -> None:
        self.errors: dict[Place, ProtocolError | None] = {}
        """By partition; None: stored."""
        self._open = 0
        self._when_all: Callable[[], None] | None = None

    def expect(self, place: Place) -> Callable[[ProtocolError | None], None]:
        self._open += 1

        def answer(error: ProtocolError | None) -> None:
            self._open -= 1
            self.errors[place] = error
            if not self._open and (act := self._when_all) is not None:
                self._when_all = None
                act()

        return answer

    def when_all(self, act: Callable[[], None]) -> None:
        if self._open:
            self._when_all = act
        else:
            act()

    def give_up(self) -> None:
        """Nobody waits for them any more."""
        self._when_all = None


def words(batches: Sequence[AcknowledgedBatch], *, renews: bool) -> Steps[list[Said]]:
    """Neighbours of a kind are one word. Raises InvalidRequest for what has no sense, whoever holds what."""
    said: list[Said] = []
    end = 0
    for number, batch in enumerate(batches, 1):
        if not number % TYPES_PER_STEP:
            yield None
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if first < end or last < first or last >= INT64_MAX:
            raise InvalidRequest(f"offsets {first} to {last} are out of order")
        end = last + 1
        if len(types) == 1:
            verb = _verb(types[0], renews)
            if said and said[-1].end == first and said[-1].verb is verb:
                said[-1].end = end
            else:
                said.append(Said(first, end, verb))
            continue
        if len(types) != end - first:
            raise InvalidRequest(f"{len(types)} acknowledgements for {end - first} offsets")
        yield from _one_by_one(said, first, types, renews)
    return said


def _one_by_one(said: list[Said], first: int, types: list[int], renews: bool) -> Steps[None]:
    """Neighbours of a kind are one word."""
    for number, kind in enumerate(types):
        if not (number + 1) % TYPES_PER_STEP:
            yield None
        if number and kind == types[number - 1]:
            said[-1].end = first + number + 1
        else:
            said.append(Said(first + number, first + number + 1, _verb(kind, renews)))


def _verb(number: int, renews: bool) -> Verb:
    if not 0 <= number < (len(VERBS) if renews else Verb.RENEW):
        raise InvalidRequest(f"there is no acknowledgement of type {number} in this request")
    return VERBS[number]


NOT_HELD = InvalidRecordState("nothing of this partition is held here")
