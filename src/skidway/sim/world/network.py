"""Connections between places: bytes in order, late, held up or lost with the connection.

A place is a host or a client. A connection is two `End`s; what one sends the other receives whole and in order, after
the latency of that direction. A direction between two places can be cut: as with a real network nobody is told, bytes
that are under way are held and come late, when the cut is healed, unless the connection is given up before.
Connecting through a cut is tried again and then fails; to a place where nobody listens it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import log
from random import Random

from skidway.ports import Buffer
from skidway.sim.world.events import MS, SECOND, World

CONNECT_TRIES = 3
CONNECT_RETRY_US = SECOND
RETRANSMIT_US = 200 * MS

Address = tuple[str, int]


def _ignore() -> None:
    pass


class End:
    """One side of a connection. Its owner sets `on_bytes` and `on_closed` before anything can arrive."""

    __slots__ = ("clear_us", "far", "held", "network", "on_bytes", "on_closed", "open", "other", "place")

    def __init__(self, network: Network, place: str, far: str) -> None:
        self.network = network
        self.place = place
        self.far = far
        self.open = True
        self.other: End = self
        self.on_bytes: Callable[[bytes], None] = lambda data: None
        self.on_closed: Callable[[], None] = _ignore
        # What this end has sent and the other has not received: when the last of it arrives, and what a cut holds.
        self.clear_us = 0
        self.held: list[bytes | None] | None = None

    def send(self, data: Buffer) -> None:
        if self.open:
            self.network.carry(self, bytes(data))

    def close(self) -> None:
        """Hang up. The other end learns of it after what was sent before."""
        if self.open:
            self.open = False
            self.network.carry(self, None)

    def vanish(self) -> None:
        """The machine lost its power: nobody hangs up. Whoever sends to it later is told that nobody is there."""
        self.open = False


class Network:
    def __init__(self, world: World, random: Random, latency_us: int) -> None:
        self.world = world
        self._random = random
        self.latency_us = latency_us
        self.cuts: set[tuple[str, str]] = set()
        self.slow: dict[tuple[str, str], int] = {}
        """How many times longer bytes take in this direction."""
        self._listeners: dict[Address, tuple[str, Callable[[End], None]]] = {}
        self._ends: dict[End, None] = {}
        self.reset_on_heal = False
        """Whether connections that a cut held up are given up by TCP before it is healed."""
        self.hold: Callable[[End, bytes], int] | None = None
        """How much later than usual bytes arrive, if somebody holds some up: asked of all that are sent."""

    # --- who is where ---

    def listen(self, address: Address, place: str, accept: Callable[[End], None]) -> None:
        self._listeners[address] = (place, accept)

    def stop_listening(self, address: Address) -> None:
        self._listeners.pop(address, None)

    def connect(
        self, place: str, address: Address, on_open: Callable[[End], None], on_failed: Callable[[], None]
    ) -> None:
        self._try(place, address, on_open, on_failed, CONNECT_TRIES)

    def _try(
        self,
        place: str,
        address: Address,
        on_open: Callable[[End], None],
        on_failed: Callable[[], None],
        tries: int,
    ) -> None:
        listener = self._listeners.get(address)
        far = address[0]

        def arrive() -> None:
            if (place, far) in self.cuts or (far, place) in self.cuts:
                if tries > 1:
                    self.world.after(CONNECT_RETRY_US, lambda: self._try(place, address, on_open, on_failed, tries - 1))
                else:
                    on_failed()
                return
            found = self._listeners.get(address)
            if found is None or found is not listener:
                self.world.after(self.delay(far, place), on_failed)
                return
            near, distant = End(self, place, far), End(self, far, place)
            near.other, distant.other = distant, near
            self._ends[near] = self._ends[distant] = None
            found[1](distant)
            self.world.after(self.delay(far, place), lambda: on_open(near))

        self.world.after(self.delay(place, far), arrive)

    # --- bytes ---

    def delay(self, source: str, target: str) -> int:
        base = self.latency_us
        # What `expovariate(1 / base)` draws, without the call: this is asked for every piece of data.
        drawn = base // 4 + int(-log(1.0 - self._random.random()) / (1 / base))
        return drawn * self.slow.get((source, target), 1) if self.slow else drawn

    def carry(self, end: End, data: bytes | None) -> None:
        arrival = max(self.world.now_us + self.delay(end.place, end.far), end.clear_us)
        if self.hold is not None and data is not None:
            arrival += self.hold(end, data)
        end.clear_us = arrival
        self.world.at(arrival, partial(self._arrive, end, data))

    def _arrive(self, end: End, data: bytes | None) -> None:
        if end.held is not None:
            end.held.append(data)
            return
        if (end.place, end.far) in self.cuts:
            end.held = [data]
            return
        self._hand_over(end, data)

    def _hand_over(self, end: End, data: bytes | None) -> None:
        other = end.other
        if not other.open:
            if end.open:
                # Nobody is there any more: a reset comes back.
                self.world.after(self.delay(end.far, end.place), lambda: self.reset(end))
            self._ends.pop(end, None)
            return
        if data is None:
            other.open = False
            self._forget(end)
            other.on_closed()
            return
        self.world.trace.mix(data)
        other.on_bytes(data)

    def reset(self, end: End) -> None:
        """This end finds its connection broken."""
        if end.open:
            end.open = False
            self._forget(end)
            end.on_closed()

    def lose(self, end: End) -> None:
        """This end finds its connection broken. The other learns of it behind what is still on its way."""
        if end.open:
            other = end.other
            self.reset(end)
            self.world.at(end.clear_us + 1, lambda: self.reset(other))

    def reset_between(self, place: str, far: str) -> int:
        """Break all connections between two places, at both ends; bytes under way are lost."""
        broken = [end for end in self._ends if end.open and end.place == place and end.far == far]
        for end in broken:
            other = end.other
            self.reset(end)
            self.reset(other)
        return len(broken)

    def _forget(self, end: End) -> None:
        self._ends.pop(end, None)
        self._ends.pop(end.other, None)

    # --- faults ---

    def cut(self, source: str, target: str) -> None:
        self.cuts.add((source, target))

    def heal(self, source: str, target: str) -> None:
        self.cuts.discard((source, target))
        for end in [e for e in self._ends if e.held is not None and (e.place, e.far) == (source, target)]:
            if self.reset_on_heal:
                self.reset(end.other)
                self.reset(end)
            else:
                wait_us = self._random.randrange(RETRANSMIT_US)
                self.world.after(wait_us, lambda end=end: self._release(end))  # type: ignore[misc]

    def heal_all(self) -> None:
        for source, target in sorted(self.cuts):
            self.heal(source, target)
        self.slow.clear()

    def _release(self, end: End) -> None:
        if (end.place, end.far) in self.cuts or end.held is None:
            return
        held, end.held = end.held, None
        for data in held:
            if end.held is not None:
                end.held.append(data)
            else:
                self._arrive(end, data)
