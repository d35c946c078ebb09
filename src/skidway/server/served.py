"""What the shell asks of the node it serves, so that it can be tested with any node."""

from __future__ import annotations

from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, Any, Protocol

from skidway.limits import Limits
from skidway.ports import Buffer, FileSlice
from skidway.runtime.turn import DrivenNode

if TYPE_CHECKING:
    from skidway.broker.cluster.peers import Link

Part = Buffer | FileSlice


class ServedConnection(Protocol):
    outbox: list[Any]
    """Reply parts in order; the shell sends and clears them."""
    needed: int
    """After `receive`: the whole size of the partial frame at the tail, 0 if not known yet."""
    paused: bool
    """After `receive`: frames were left on purpose; offer them again after `on_ready` or when the outbox was sent."""
    yielded: bool
    """With `paused`: only so that other connections have their turn; offer the frames again after that."""
    bug: Exception | None
    """A reply could not be made: to be reported, and the connection dropped."""
    on_ready: Callable[[], None]
    offered: bool
    """Set by the shell while it calls `receive`: the connection may keep the buffer."""
    kept: bool
    """Set by `receive` if it keeps the buffer, parts of which are used later. The shell resets it."""

    peer_left: Callable[[], bool]
    """Set by the shell: whether the peer has closed its side. While the connection is paused nobody reads, and so
    nobody hears of that: who must know asks."""

    @property
    def pending(self) -> Sized:
        """Requests whose replies are not in the outbox yet: a closing connection waits for them."""
        ...

    @property
    def awaits_sent(self) -> bool:
        """Whether it wants to hear, by `sent`, when the socket has taken all that was in the outbox."""
        ...

    @property
    def needs_its_peer(self) -> bool:
        """Whether a reply that nobody reads would do harm: a peer that sends no more counts as gone."""
        ...

    def sent(self) -> None: ...

    def receive(self, data: memoryview, now_ms: int) -> int: ...

    def closed(self) -> None: ...


class Door(Protocol):
    """Who serves those that come by a listener: the node itself, or a gateway to it."""

    def connect(self, peer: str, listener: str) -> ServedConnection:
        """For a peer that came by the listener of this name."""
        ...


class ServedNode(DrivenNode, Door, Protocol):
    """What is asked of it while it serves."""

    @property
    def has_long_work(self) -> bool:
        """Whether it works on requests that take more than one turn."""
        ...


class Dials(Protocol):
    """Who wants connections to other nodes."""

    dial: Callable[[Link], None] | None
    """Set by the shell: makes the link's connection."""


SideBySide = Callable[[list[Callable[[], None]]], None]
"""Does jobs, many at a time."""


class WholeNode(ServedNode, Protocol):
    """What `main` asks of it from start to stop."""

    on_limits: Callable[[Limits], None]
    """Set by the shell: bounds were changed at run time."""

    @property
    def limits(self) -> Limits: ...

    @property
    def peers(self) -> Dials: ...

    @property
    def opening(self) -> bool:
        """Whether it opens partitions."""
        ...

    @property
    def serving(self) -> bool:
        """Whether it answers clients yet."""
        ...

    @property
    def departed(self) -> bool:
        """After `leave`: whether others lead all that it led."""
        ...

    def open(self, now_ms: int, wall_ms: int, run: SideBySide | None = None) -> None: ...

    def maintain(self, now_ms: int, wall_ms: int) -> None: ...

    def leave(self, now_ms: int) -> None: ...

    def begin_stop(self, now_ms: int) -> None: ...

    def close(self, clean: bool, run: SideBySide | None = None) -> None: ...
