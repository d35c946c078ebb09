"""Clients whose work is one long story: a generator that yields what it waits for and goes on when that has come."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from skidway.sim.clients.base import Client
from skidway.sim.clients.wires import Wire
from skidway.sim.world.events import MS
from skidway.wire.message import Message

LATE_MS = (200, 4_000)
"""When a copy of a request arrives that the network has held back."""


@dataclass(slots=True)
class Ask:
    """The answer, or None."""

    node_id: int
    request: Message
    timeout_ms: int = 3_000
    patience_ms: int = 0
    """After so long its client goes on without an answer, by another connection. 0: it does not."""


@dataclass(slots=True)
class AskAll:
    """All answers, in the order of the questions."""

    asks: list[Ask]


@dataclass(slots=True)
class Pause:
    wait_ms: float


Wait: TypeAlias = Ask | AskAll | Pause
Result = TypeVar("Result")
Script: TypeAlias = Generator[Wait, Any, Result]


class ScriptedClient(Client):
    late_chance = 0.0
    """That a request is delivered once more, seconds after the answer."""

    def play(self, script: Script[None]) -> None:
        self._go_on(script, None)

    def _go_on(self, script: Script[None], news: Any) -> None:
        try:
            wait = script.send(news)
        except StopIteration:
            return
        match wait:
            case Pause(wait_ms):
                self.after(wait_ms, lambda: self._go_on(script, None))
            case Ask():
                self._put(wait, lambda reply: self._go_on(script, reply))
            case AskAll(asks):
                self._put_all(script, asks)

    def _put_all(self, script: Script[None], asks: list[Ask]) -> None:
        replies: dict[int, Any] = {}

        def answered(number: int, reply: Any) -> None:
            replies[number] = reply
            if len(replies) == len(asks):
                self._go_on(script, [replies[each] for each in range(len(asks))])

        for number, ask in enumerate(asks):
            self._put(ask, lambda reply, number=number: answered(number, reply))

    def _put(self, ask: Ask, respond: Any) -> None:
        if self.late_chance and self.random.random() < self.late_chance and self.may_come_late(ask.request):
            self._send_late(ask)
        if ask.patience_ms:
            respond = self._until_tired(ask, respond)
        self.ask(ask.node_id, ask.request, respond, ask.timeout_ms)

    def _until_tired(self, ask: Ask, respond: Callable[[Any], None]) -> Callable[[Any], None]:
        """Once: with the answer, or None when that is late."""
        done: list[bool] = []

        def once(reply: Any) -> None:
            if not done:
                done.append(True)
                respond(reply)

        def tired() -> None:
            if not done:
                self.brokers.abandon(ask.node_id)
                once(None)

        self.after(ask.patience_ms, tired)
        return once

    def may_come_late(self, request: Message) -> bool:
        """Whether it is known to do no harm, whenever it comes."""
        return True

    def _send_late(self, ask: Ask) -> None:
        """The client had given this copy up and sent another one; nobody hears what becomes of it."""
        address = self.brokers.addresses.get(ask.node_id)
        if address is None:
            return
        wait_ms = self.random.randrange(*LATE_MS)
        self.world.mark("late copy of a request")

        def arrive() -> None:
            wire = Wire(self.brokers, address)
            wire.ask(ask.request, lambda reply: wire.give_up(), 5_000 * MS)

        self.after(wait_ms, arrive)
