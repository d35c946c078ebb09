"""A node driven turn by turn. What a turn does is counted, not timed.

Counted is every call that Python makes, of its own functions and of C's. The node's clock moves with that count, so
its budgets in milliseconds are budgets of work here.
"""

import sys
from types import FrameType
from typing import Any

from bench.worst_requests import World as What
from bench.worst_requests import Worst
from broker_world import WALL_MS, HandClock, Peer, World

from skidway.broker.api.call import Hangup
from skidway.broker.api.connection import Connection
from skidway.broker.listeners import DEFAULT_NAME

SCALE = 20
"""The requests here have so many times fewer elements than they may have, and a turn so many times fewer calls."""
CALLS_PER_MS = 10_000 // SCALE
TURN_CALLS_MAX = 50 * CALLS_PER_MS
TURNS_MAX = 2_000


class WorkClock(HandClock):
    """Time that passes by work."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def monotonic_ms(self) -> int:
        return self.now_ms + self.calls // CALLS_PER_MS

    def wall_ms(self) -> int:
        return WALL_MS + self.monotonic_ms()

    def on_event(self, frame: FrameType, event: str, argument: Any) -> None:
        if event in ("call", "c_call"):
            self.calls += 1


class Turns:
    """Drives a node turn by turn and remembers how much the longest one did."""

    def __init__(self, partitions: int, **settings: Any) -> None:
        self.clock = WorkClock()
        self.world = world = World(clock=self.clock, **settings)
        self.owner = world.peer()
        self.owner.create("wide", partitions, flush="os")
        self.names = [f"small-{number}" for number in range(20)]
        for name in self.names:
            self.owner.create(name)
        self.what = What("wide", world.node.image.topics["wide"].id, partitions, self.names)
        self.longest = 0

    def count(self, step: Any, *arguments: Any) -> Any:
        before = self.clock.calls
        sys.setprofile(self.clock.on_event)
        try:
            return step(*arguments)
        finally:
            sys.setprofile(None)
            self.longest = max(self.longest, self.clock.calls - before)

    def turn(self) -> None:
        self.count(self.world.end_turn)
        self.count(self.world.sync)
        self.clock.now_ms += 1
        self.count(self.world.node.on_time, self.clock.monotonic_ms())

    def begin(self, frame: bytes) -> Connection:
        """A connection of its own that has sent the frame."""
        connection = self.world.node.connect("attacker:1", DEFAULT_NAME)
        self.count(connection.receive, memoryview(bytearray(frame)), self.clock.monotonic_ms())
        return connection

    def finish(self, connection: Connection, good: Peer) -> int:
        """Until its request is answered; returns how many turns that took. The good client is served in each."""
        turns = 0
        while connection.work is not None or not connection.outbox:
            turns += 1
            assert turns < TURNS_MAX, "it is never answered"
            good.send("ApiVersions")
            assert len(good.replies()) == 1
            self.turn()
            if connection.bug is not None:
                raise connection.bug
        return turns

    def serve(self, worst: Worst, good: Peer) -> None:
        """Until the request is answered or hung up on."""
        connection: Connection | None = None
        try:
            connection = self.begin(worst.frame())
            self.finish(connection, good)
        except Hangup:
            pass
        finally:
            if connection is not None:
                self.count(connection.closed)
