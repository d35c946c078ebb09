"""What the shell asks of the node it serves, so that it can be tested with any node."""

from collections.abc import Callable, Sized
from typing import Any, Protocol

from skidway.ports import Buffer, FileSlice
from skidway.runtime.turn import DrivenNode

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

    def connect(self, peer: str, listener: str) -> Any:
        """A ServedConnection, for a peer that came by the listener of this name."""
        ...


class ServedNode(DrivenNode, Protocol):
    @property
    def has_long_work(self) -> bool:
        """Whether it works on requests that take more than one turn."""
        ...

    def connect(self, peer: str, listener: str) -> Any:
        """A ServedConnection, for a peer that came by the listener of this name."""
        ...
