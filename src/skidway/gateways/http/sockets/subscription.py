"""One topic over a WebSocket: records as they come, each for one of the client's credits.

What was read and has no credit yet waits here, at most one answer of each leader; nothing is fetched meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec
from msgspec import UNSET

from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.sockets.shapes import CREDIT_MAX, Subscribe, Subscribed
from skidway.gateways.http.topics.leaders import find_topic
from skidway.gateways.http.topics.records import decode, is_stopping
from skidway.gateways.http.topics.stream import RECORDS_AT_ONCE, begin_watch, data_of
from skidway.gateways.http.topics.watch import WAIT_MS, Watch
from skidway.records.record import Record
from skidway.runtime.slices import Work
from skidway.steps import Question, Steps

SENT_AT_ONCE = 100
_encode = msgspec.json.Encoder().encode


class Sender(Protocol):
    """The socket of a subscription."""

    def send(self, message: bytes) -> None: ...

    def when_sent(self, act: Callable[[Any], None]) -> None: ...

    def on_idle(self) -> None:
        """It begins or ceases to wait for credit."""
        ...


class Subscription:
    __slots__ = ("_call", "_credit", "_prefix", "_sender", "_waker", "_wanted", "idle", "work")

    def __init__(self, call: HttpCall, sender: Sender, wanted: Subscribe) -> None:
        self._call = call
        self._sender = sender
        self._wanted = wanted
        self._credit = wanted.credit
        self._waker: Callable[[Any], None] | None = None
        self._prefix = b'{"type":"record","id":%b,' % _encode(wanted.id)
        self.idle = False
        """Waits for credit."""
        self.work: Work | None = None

    def add_credit(self, credit: int) -> None:
        """Raises Problem."""
        if self._credit + credit > CREDIT_MAX:
            text = f"credit may be {CREDIT_MAX} in all; {self._credit} of it are not used yet"
            raise Problem(422, "too_much_credit", text)
        self._credit += credit
        if credit and self._waker is not None:
            waker, self._waker = self._waker, None
            self._be_idle(False)
            waker(None)

    def cancel(self) -> None:
        if self.work is not None:
            self.work.cancel()

    def run(self) -> Steps[None]:
        """Until the node stops. Raises Problem."""
        call, wanted = self._call, self._wanted
        given = {"partition": wanted.partition, "offset": wanted.offset, "timestamp": wanted.timestamp}
        query = {name: str(value) for name, value in given.items() if value is not UNSET}
        watch = yield from begin_watch(call, find_topic(call, wanted.topic), query, "")
        position = ",".join(f"{index}:{offset}" for index, offset in sorted(watch.positions.items()))
        self._sender.send(_encode(Subscribed(wanted.id, position)))
        try:
            while not is_stopping(call):
                if not self._credit:
                    yield Question(self._await_credit)
                for index, read in (yield from watch.next(WAIT_MS)):
                    records: list[Record] = []
                    offset = yield from decode(call, read, watch.positions[index], RECORDS_AT_ONCE, records.append)
                    yield from self._send_all(watch, index, records)
                    watch.advance(index, offset)
        finally:
            watch.close()

    def _send_all(self, watch: Watch, index: int, records: list[Record]) -> Steps[None]:
        position = 0
        while position < len(records):
            if not self._credit:
                yield Question(self._await_credit)
            for record in records[position : position + min(self._credit, SENT_AT_ONCE)]:
                self._credit -= 1
                position += 1
                self._sender.send(self._prefix + data_of(index, record)[1:])
                yield None
            yield Question(self._sender.when_sent)

    def _await_credit(self, respond: Callable[[Any], None]) -> None:
        if self._credit:
            respond(None)
            return
        self._waker = respond
        self._be_idle(True)

    def _be_idle(self, idle: bool) -> None:
        self.idle = idle
        self._sender.on_idle()
