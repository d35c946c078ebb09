"""Who may hold a lease. Nothing here reads a clock, a file or a process table: what was seen comes in, a decision goes.

A lease is a row of claims, numbered from 1: whoever creates claim N+1 holds the lease, and the holder of N has lost it,
whether it knows or not. The number is the fence. A holder shows that it lives by changing its beat. Clocks of several
machines are never compared: who wants the lease watches the beat, by its own clock, and takes the lease when the beat
stood still for `ttl_ms`, or at once when the holder gave it up or its process is gone.
"""

from msgspec import Struct


class Holder(Struct, frozen=True):
    """A driver. `machine` tells process tables apart, `started` processes that had one number after each other."""

    host: str
    machine: str
    pid: int
    started: str
    token: str

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


class Seen(Struct, frozen=True):
    """The newest claim and its beat, as a look at the store found them."""

    epoch: int
    holder: Holder
    beat: int
    released: bool


class Take(Struct, frozen=True):
    """Create this claim: who succeeds holds the lease."""

    epoch: int


class Watch(Struct, frozen=True):
    """Look again a little later."""


class Refuse(Struct, frozen=True):
    """Another driver holds it, lives, and the time to wait for it is over."""

    holder: Holder


Decision = Take | Watch | Refuse


class Contender:
    """A driver that wants the lease."""

    def __init__(self, ttl_ms: int, wait_ms: int, now_ms: int) -> None:
        assert ttl_ms > 0
        assert wait_ms >= 0
        self._ttl_ms = ttl_ms
        self._refuse_at_ms = now_ms + wait_ms
        self._watched: tuple[int, int] | None = None
        self._since_ms = now_ms
        self._lives = False

    def look(self, seen: Seen | None, now_ms: int, *, is_gone: bool) -> Decision:
        """`is_gone`: the holder's process is known to have ended."""
        if seen is None:
            return Take(1)
        if seen.released or is_gone:
            return Take(seen.epoch + 1)
        if (seen.epoch, seen.beat) != self._watched:
            # Without a first look there is no change: the beat may be of a holder that died long ago.
            self._lives = self._watched is not None
            self._watched, self._since_ms = (seen.epoch, seen.beat), now_ms
        if now_ms - self._since_ms >= self._ttl_ms:
            return Take(seen.epoch + 1)
        if self._lives and now_ms >= self._refuse_at_ms:
            return Refuse(seen.holder)
        return Watch()


def is_held(epoch: int, holder: Holder, newest: Seen | None) -> bool:
    """Whether the driver with this claim may act. A claim that is gone was removed by whoever came after."""
    return newest is not None and newest.epoch == epoch and newest.holder == holder and not newest.released
