"""What a node asks the controller about its copies again and again, until the metadata shows that it was done.

Of one kind of question there is one request at a time, about all partitions that are due. A kind is a class on top of
`Petitioner`: it says what is asked, and what an answer means.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

from skidway.broker.asking import RETRY_MS, Ask
from skidway.broker.world import World
from skidway.errors import ErrorCode
from skidway.runtime.timers import Timer
from skidway.wire.message import Message

REFUSED_RETRY_MS = 5_000


class Named(Protocol):
    """A copy of a partition, open or not."""

    @property
    def topic_id(self) -> bytes: ...

    @property
    def index(self) -> int: ...


AnyCopy = TypeVar("AnyCopy", bound=Named)


class Petitioner(Generic[AnyCopy]):
    def __init__(self, world: World, ask: Ask) -> None:
        self._world = world
        self.ask = ask
        self._due: dict[AnyCopy, int] = {}
        """Those about which the controller is to be asked, and when."""
        self._asking = False
        self._timer: Timer | None = None

    def _request(self, due: list[AnyCopy], now_ms: int) -> tuple[list[AnyCopy], Message] | None:
        """About whom the controller is asked now, and how; None if about nobody. The others are put off here."""
        raise NotImplementedError

    def _errors(self, response: Message) -> Iterable[tuple[bytes, int, int]]:
        """Topic id, partition and error code of each answer."""
        raise NotImplementedError

    def _heard(self, copy: AnyCopy, error: int | None) -> None:
        """What the controller says of it; None if it was not reached."""

    def _ask_about(self, copy: AnyCopy) -> None:
        self._due[copy] = self._world.clock.monotonic_ms()
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._due and not self._asking:
            self._timer = self._world.timers.at(min(self._due.values()), self._send)

    def _send(self) -> None:
        now_ms = self._world.clock.monotonic_ms()
        due = [copy for copy, due_ms in self._due.items() if due_ms <= now_ms]
        question = self._request(due, now_ms)
        if question is None:
            self._arm()
            return
        asked, request = question
        self._asking = True
        self.ask(request, lambda response: self._answered(asked, response), now_ms)

    def _answered(self, asked: list[AnyCopy], response: Message | None) -> None:
        self._asking = False
        now_ms = self._world.clock.monotonic_ms()
        answers = () if response is None else self._errors(response)
        errors = {(bytes(topic_id), index): error for topic_id, index, error in answers}
        for copy in asked:
            error = errors.get((copy.topic_id, copy.index))
            self._heard(copy, error)
            if copy in self._due:
                # What was done comes with the metadata, which ends the asking.
                is_refused = error == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
                self._due[copy] = now_ms + (REFUSED_RETRY_MS if is_refused else RETRY_MS)
        self._arm()
