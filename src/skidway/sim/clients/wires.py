"""How a simulated client talks to brokers: real frames over simulated connections, answers to callbacks.

A `Wire` is one connection to one broker; requests are answered in order, or with None when the connection breaks or
the answer takes too long (then the connection is dropped, as clients do). `Brokers` is what a client knows of the
cluster: addresses, and a wire to each broker it talks to.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

from skidway.sim.world.events import MS, World
from skidway.sim.world.network import Address, End, Network
from skidway.wire.framing import frame
from skidway.wire.headers import read_response_header, write_request_header
from skidway.wire.message import Message
from skidway.wire.registry import api

LENGTH = struct.Struct(">i")
NEVER = 1 << 62
Respond = Callable[[Any], None]

VERSIONS = {0: 11, 1: 16, 2: 9, 3: 12, 8: 9, 9: 9, 10: 6, 19: 7, 20: 6, 22: 5, 68: 1}
"""What clients speak where a seed draws nothing else; other APIs in their newest version."""


class Wire:
    __slots__ = ("_alarm_us", "_awaited", "_buffer", "_correlation_id", "_end", "_queued", "broken", "brokers")

    def __init__(self, brokers: Brokers, address: Address) -> None:
        self.brokers = brokers
        self.broken = False
        self._end: End | None = None
        self._queued: list[bytes] = []
        self._awaited: deque[tuple[int, int, int, Respond, int]] = deque()
        self._alarm_us = NEVER
        self._buffer = bytearray()
        self._correlation_id = 0
        brokers.network.connect(brokers.place, address, self._opened, self.give_up)

    def ask(self, request: Message, respond: Respond, timeout_us: int) -> None:
        """`respond` gets the answer or None, never from inside this call."""
        key = request.__key__
        assert key is not None
        version = self.brokers.version(key)
        self._correlation_id += 1
        correlation_id = self._correlation_id
        parts: list[Any] = [write_request_header(key, version, correlation_id, self.brokers.place)]
        api(key).request.encoder(version)(request, parts)
        data = b"".join(frame(parts))  # type: ignore[arg-type]
        expires_us = self.brokers.world.now_us + timeout_us
        self._awaited.append((key, version, correlation_id, respond, expires_us))
        if self._end is None:
            self._queued.append(data)
        else:
            self._end.send(data)
        if expires_us < self._alarm_us:
            self._watch(expires_us)

    def say(self, request: Message) -> None:
        """A request without an answer: acks=0."""
        key = request.__key__
        assert key is not None
        version = self.brokers.version(key)
        parts: list[Any] = [write_request_header(key, version, 0, self.brokers.place)]
        api(key).request.encoder(version)(request, parts)
        data = b"".join(frame(parts))  # type: ignore[arg-type]
        if self._end is None:
            self._queued.append(data)
        else:
            self._end.send(data)

    def give_up(self) -> None:
        if self.broken:
            return
        self.broken = True
        if self._end is not None:
            self._end.close()
            self._end = None
        awaited, self._awaited = self._awaited, deque()
        for waiting in awaited:
            waiting[3](None)

    def _opened(self, end: End) -> None:
        if self.broken:
            end.close()
            return
        if not end.open:
            self.give_up()
            return
        self._end = end
        end.on_bytes = self._receive
        end.on_closed = self.give_up
        for data in self._queued:
            end.send(data)
        self._queued.clear()

    def _watch(self, expires_us: int) -> None:
        """One alarm for all that is awaited: nearly every answer comes long before it."""
        self._alarm_us = expires_us
        self.brokers.world.at(expires_us, partial(self._expire, expires_us))

    def _expire(self, alarm_us: int) -> None:
        if alarm_us != self._alarm_us:
            return  # an earlier one was set meanwhile
        self._alarm_us = NEVER
        if self._awaited:
            nearest_us = min([waiting[4] for waiting in self._awaited])
            if nearest_us <= alarm_us:
                self.give_up()
            else:
                self._watch(nearest_us)

    def _receive(self, data: bytes) -> None:
        buffer = self._buffer
        buffer += data
        while len(buffer) >= LENGTH.size:
            end = LENGTH.size + LENGTH.unpack_from(buffer)[0]
            if len(buffer) < end:
                return
            body = bytes(buffer[LENGTH.size : end])
            del buffer[:end]
            key, version, expected, respond, _ = self._awaited.popleft()
            correlation_id, position = read_response_header(key, version, body)
            assert correlation_id == expected, "a response has the correlation id of another request"
            message, _ = api(key).response.decoder(version)(body, position)
            respond(message)
            if self.broken:
                return


class Brokers:
    def __init__(self, world: World, network: Network, place: str, seeds: list[Address]) -> None:
        self.world = world
        self.network = network
        self.place = place
        self.seeds = seeds
        self.addresses: dict[int, Address] = {}
        self.versions: dict[int, int] = {}
        self._wires: dict[Address, Wire] = {}
        self.random = world.stream(f"{place} brokers")

    def version(self, key: int) -> int:
        return self.versions.get(key) or VERSIONS.get(key) or api(key).versions[1]

    def ask(self, node_id: int, request: Message, respond: Respond, timeout_ms: int = 5_000) -> None:
        """To one broker by its id; -1: to any."""
        address = self.addresses.get(node_id)
        if address is None:
            if node_id >= 0:
                self.world.after(0, lambda: respond(None))
                return
            known = list(self.addresses.values()) or self.seeds
            address = known[self.random.randrange(len(known))]
            if self.random.randrange(4) == 0:
                address = self.seeds[self.random.randrange(len(self.seeds))]
        self.wire(address).ask(request, respond, timeout_ms * MS)

    def wire(self, address: Address) -> Wire:
        wire = self._wires.get(address)
        if wire is None or wire.broken:
            wire = self._wires[address] = Wire(self, address)
        return wire

    def abandon(self, node_id: int) -> None:
        """Use another connection from now on, and leave this one as it is."""
        if (address := self.addresses.get(node_id)) is not None:
            self._wires.pop(address, None)

    def drop(self) -> None:
        """Hang up everywhere: the client is gone."""
        for wire in list(self._wires.values()):
            wire.give_up()
        self._wires.clear()
