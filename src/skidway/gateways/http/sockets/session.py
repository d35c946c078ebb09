"""`GET /v1/ws`: a WebSocket with subscriptions, each with a credit of its own.

A client that sends more commands than it reads answers is not read either until it does. Every `PING_MS` it is pinged,
and dropped if nothing at all came from it since the last time. A page of another site is refused: a browser lets any
page open a WebSocket anywhere, and says only in the header Origin whose page it is.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from skidway.broker.api.call import Goodbye
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.routes import Route
from skidway.gateways.http.sockets import frames
from skidway.gateways.http.sockets.frames import Broken, CloseCode, FrameReader, Message, Opcode
from skidway.gateways.http.sockets.shapes import Command, Failure, MoreCredit, Subscribe, Unsubscribed
from skidway.gateways.http.sockets.subscription import Subscription
from skidway.gateways.http.topics.records import is_stopping
from skidway.limits import KIB
from skidway.runtime.timers import Timer

if TYPE_CHECKING:
    from skidway.gateways.http.head import Head

PING_MS = 20_000
SUBSCRIPTIONS_MAX = 16
UNSENT_BYTES_MAX = 64 * KIB
"""With so much that waits to be sent, no more commands are read."""
MESSAGES_PER_TURN = 100
KEY_BYTES = 16
VERSION = b"13"
_COMMAND = msgspec.json.Decoder(Command)
_encode = msgspec.json.Encoder().encode


def rows() -> list[Route]:
    return [
        Route(
            "GET",
            "/v1/ws",
            _open,
            "A WebSocket: records of topics as they come, never more than the client has credit for.",
            problems=(400, 403, 426),
            streams=True,
            switches=True,
        )
    ]


def _open(call: HttpCall) -> None:
    accept = _check_handshake(call.head)
    session = Session(call)
    call.switch(accept, session)


def _check_handshake(head: Head) -> bytes:
    """The lines that answer it. Raises Problem."""
    headers = head.headers
    upgrade = headers.get(b"upgrade", b"").lower().split(b",")
    if b"websocket" not in [each.strip() for each in upgrade] or not head.upgrades or not head.minor:
        text = "this is a WebSocket: a request needs the headers Upgrade: websocket and Connection: Upgrade"
        raise Problem(426, "not_websocket", text, headers=b"upgrade: websocket\r\n")
    if headers.get(b"sec-websocket-version") != VERSION:
        line = b"sec-websocket-version: " + VERSION + b"\r\n"
        raise Problem(426, "bad_version", "Sec-WebSocket-Version must be 13", headers=line)
    key = headers.get(b"sec-websocket-key", b"")
    try:
        size = len(binascii.a2b_base64(key, strict_mode=True))
    except binascii.Error:
        size = 0
    if size != KEY_BYTES:
        raise Problem(400, "bad_key", "Sec-WebSocket-Key must be 16 bytes in base64")
    origin = headers.get(b"origin")
    if origin is not None and origin.partition(b"://")[2].lower() != headers[b"host"].lower():
        raise Problem(403, "bad_origin", "a page of another site may not open a WebSocket here")
    return b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: %b\r\n" % frames.accept_key(key)


class Session:
    """In the place of requests, on a connection that has been switched."""

    __slots__ = ("_call", "_ended", "_heard", "_reader", "_subscriptions", "_timer", "_when_sent", "needed", "paused")

    def __init__(self, call: HttpCall) -> None:
        self._call = call
        self._reader = FrameReader()
        self._subscriptions: dict[str, Subscription] = {}
        self._when_sent: list[Callable[[Any], None]] = []
        self._heard = True
        self._ended = False
        self.needed = 0
        self.paused = False
        """Something is left on purpose."""
        self._timer: Timer = self._ping_later()

    @property
    def active(self) -> bool:
        """Whether something is under way that a stop of the node will end."""
        return not self._ended and any(not each.idle for each in self._subscriptions.values())

    # --- what the connection calls ---

    def receive(self, data: memoryview, unsent_bytes: Callable[[], int]) -> int:
        """Handle every whole message; how many bytes are done with."""
        position = 0
        self._heard = True
        self.needed, self.paused = 0, False
        for _ in range(MESSAGES_PER_TURN):
            if self._ended:
                return len(data)
            if unsent_bytes() > UNSENT_BYTES_MAX:
                break
            try:
                size, message = self._reader.read(data[position:])
                if not size:
                    self.needed = self._reader.needed
                    return position
                position += size
                if message is not None:
                    self._on_message(message)
            except Broken as broken:
                self._end(broken.code, broken.reason)
        self.paused = position < len(data)
        return position

    def on_sent(self, _: None) -> None:
        waiting, self._when_sent = self._when_sent, []
        for act in waiting:
            act(None)

    def closed(self) -> None:
        """The peer is gone."""
        self._ended = True
        self._timer.cancel()
        for subscription in list(self._subscriptions.values()):
            subscription.cancel()
        self._subscriptions.clear()

    # --- messages ---

    def _on_message(self, message: Message) -> None:
        if message.opcode == Opcode.PING:
            self._call.connection.on_part(frames.frame(Opcode.PONG, message.payload))
        elif message.opcode == Opcode.CLOSE:
            self._end(frames.close_code(message.payload))
        elif message.opcode == Opcode.BINARY:
            raise Broken(CloseCode.UNSUPPORTED, "messages are JSON, in text")
        elif message.opcode == Opcode.TEXT:
            self._on_text(message.payload)

    def _on_text(self, payload: bytes) -> None:
        try:
            payload.decode()
        except UnicodeDecodeError:
            raise Broken(CloseCode.BAD_TEXT, "a text is not UTF-8") from None
        try:
            command = _COMMAND.decode(payload)
        except (msgspec.DecodeError, RecursionError) as error:
            self._refuse(None, Problem(422, "bad_command", str(error)))
            return
        try:
            self._carry_out(command)
        except Problem as problem:
            self._refuse(command.id, problem)

    def _carry_out(self, command: Command) -> None:
        if isinstance(command, Subscribe):
            self._subscribe(command)
            return
        subscription = self._subscriptions.get(command.id)
        if subscription is None:
            raise Problem(404, "no_such_subscription", f"there is no subscription {command.id!r}")
        if isinstance(command, MoreCredit):
            subscription.add_credit(command.credit)
        else:
            del self._subscriptions[command.id]
            subscription.cancel()
            self.on_idle()
            self.send(_encode(Unsubscribed(command.id)))

    def _subscribe(self, command: Subscribe) -> None:
        if command.id in self._subscriptions:
            raise Problem(409, "subscription_exists", f"there is a subscription {command.id!r} already")
        if len(self._subscriptions) >= SUBSCRIPTIONS_MAX:
            text = f"a WebSocket may have {SUBSCRIPTIONS_MAX} subscriptions"
            raise Problem(422, "too_many_subscriptions", text)
        first, node = self._call, self._call.site.node
        now_ms = node.clock.monotonic_ms()
        call = HttpCall(first.connection, first.head, first.route, (), memoryview(b""), now_ms)
        subscription = self._subscriptions[command.id] = Subscription(call, self, command)
        self.on_idle()

        def over(_: None) -> None:
            if is_stopping(call):
                self._end(CloseCode.GOING_AWAY, "this node is stopping")

        def failed(error: Exception) -> None:
            self._subscriptions.pop(command.id, None)
            self.on_idle()
            if isinstance(error, Problem):
                self._refuse(command.id, error)
            else:
                first.connection.on_bug(error)

        work = node.world.slices.begin(subscription.run(), over, failed)
        if not work.over:
            subscription.work = work

    def _refuse(self, name: str | None, problem: Problem) -> None:
        self.send(
            _encode(Failure(problem.code, problem.detail, problem.retryable, UNSET if name is None else name)),
        )

    # --- what subscriptions call ---

    def send(self, message: bytes) -> None:
        if not self._ended:
            self._call.connection.on_part(frames.frame(Opcode.TEXT, message))

    def when_sent(self, act: Callable[[Any], None]) -> None:
        self._when_sent.append(act)
        self._call.when_sent(self.on_sent)

    def on_idle(self) -> None:
        self._call.connection.on_activity(self.active)

    # --- the end ---

    def _ping_later(self) -> Timer:
        node = self._call.site.node
        return node.timers.at(node.clock.monotonic_ms() + PING_MS, self._ping)

    def _ping(self) -> None:
        if self._ended:
            return
        if not self._heard:
            self._ended = True
            self._call.connection.on_bug(Goodbye("a WebSocket whose peer answers no ping"))
            return
        self._heard = False
        self._call.connection.on_part(frames.frame(Opcode.PING, b""))
        self._timer = self._ping_later()

    def _end(self, code: int, reason: str = "") -> None:
        if self._ended:
            return
        self._call.connection.on_part(frames.close_frame(code, reason))
        self.closed()
        self.on_idle()
        self._call.connection.on_bug(Goodbye("a WebSocket ends"))
