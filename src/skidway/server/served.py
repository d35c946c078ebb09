"""What the shell asks of the node it serves, so that it can be tested with any node."""

from collections.abc import Callable, Sized
from typing import Any, Protocol

from skidway.ports import Buffer, FileSlice

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

    @property
    def pending(self) -> Sized:
        """Requests whose replies are not in the outbox yet: a closing connection waits for them."""
        ...

    def receive(self, data: memoryview, now_ms: int) -> int: ...

    def closed(self) -> None: ...


class Ticket(Protocol):
    """Work for a thread. One with `maintenance = True` may take long and never holds up the others."""

    def run(self) -> None: ...


class ServedNode(Protocol):
    on_work: Callable[[], None]
    """Set by the shell; the node calls it when `take_sync` should be called at the end of this turn."""

    @property
    def deadline_ms(self) -> int | None: ...

    def connect(self, peer: str) -> Any:
        """A ServedConnection."""
        ...

    def on_time(self, now_ms: int) -> None: ...

    def take_sync(self) -> list[tuple[Any, Any]]:
        """(key, Ticket) pairs."""
        ...

    def on_synced(self, key: Any, ticket: Any, error: OSError | None, now_ms: int) -> None: ...
