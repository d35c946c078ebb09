"""A lease for as long as a driver lives: taken, kept by a thread that beats, given back.

`hold` answers a `Keeper`, or raises `Busy` when another driver holds the lease and lives. A process holds a lease once:
who asks again gets the same keeper. `Keeper.check` looks at the store and raises `LeaseLost` when another driver has
taken over; it is called before everything that the driver must not do then.
"""

import atexit
import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from skidway.spark.lease.claims import Claims
from skidway.spark.lease.decisions import Contender, Holder, Refuse, Take, is_held
from skidway.spark.lease.processes import is_gone, this_driver
from skidway.spark.stores import Store

BEAT_S = 2.0
TTL_S = 15.0
"""A driver whose beat stood still for so long may be replaced. Beats are written by a thread of a busy process."""
LOOK_S = 0.25

logger = logging.getLogger(__name__)


class Busy(RuntimeError):
    """Another driver holds the lease."""


class LeaseLost(RuntimeError):
    """Another driver has taken over: this one must not commit any more."""


class Keeper:
    def __init__(self, what: str, claims: Claims, epoch: int, holder: Holder) -> None:
        self.what = what
        self.epoch = epoch
        self.lost = False
        self._claims = claims
        self._holder = holder
        self._beat = 0
        self._query: Any = None
        self._guard = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"lease of {what}", daemon=True)
        claims.beat(epoch, 0)
        self._thread.start()

    def check(self) -> None:
        if self.lost or self._over.is_set() or not is_held(self.epoch, self._holder, self._claims.newest()):
            self.lost = self.lost or not self._over.is_set()
            raise LeaseLost(
                f"another driver has taken over {self.what}: this one was silent for more than {TTL_S:.0f} s,"
                " or was stopped; it commits nothing any more"
            )

    def follow(self, query: Any) -> None:
        """Give the lease back when this query has ended, for callers that do not come back."""
        with self._guard:
            self._query = query

    def reuse(self) -> bool:
        """Whether it can be had once more in this process: for another query, so the end of the last one is nothing."""
        with self._guard:
            self._query = None
            # Whoever deleted the checkpoint deleted the claim with it.
            if not self.is_over and not is_held(self.epoch, self._holder, self._claims.newest()):
                self.lost = True
            return not self.is_over

    @property
    def is_over(self) -> bool:
        return self.lost or self._over.is_set()

    def release(self) -> None:
        if self._over.is_set():
            return
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()
        with suppress(OSError):
            if not self.lost and is_held(self.epoch, self._holder, self._claims.newest()):
                self._claims.release(self.epoch, self._beat)

    def _run(self) -> None:
        while not self._over.wait(BEAT_S):
            try:
                if not is_held(self.epoch, self._holder, self._claims.newest()):
                    self.lost = True
                    return
                self._beat += 1
                self._claims.beat(self.epoch, self._beat)
            except OSError as error:
                # The next beat may come through; if none does, another driver may take over, and `check` will tell.
                logger.warning("the lease of %s could not be renewed: %s", self.what, error)
            query = self._query
            if query is not None and not _is_active(query):
                self._end_with(query)

    def _end_with(self, query: Any) -> None:
        with self._guard:
            if self._query is query:
                self.release()


_kept: dict[str, Keeper] = {}
_guard = threading.Lock()


def hold(
    what: str,
    store: Store,
    wait_s: float = 0.0,
    *,
    clock: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> Keeper:
    """The lease in the store, waited for if need be. `what` names it, in this process and in messages."""
    with _guard:
        kept = _kept.get(what)
        if kept is not None and kept.reuse():
            return kept
        keeper = _take(what, Claims(store), wait_s, clock, pause)
        _kept[what] = keeper
        return keeper


def _take(
    what: str, claims: Claims, wait_s: float, clock: Callable[[], float], pause: Callable[[float], None]
) -> Keeper:
    holder = this_driver()
    contender = Contender(int(TTL_S * 1000), int(wait_s * 1000), int(clock() * 1000))
    while True:
        seen = claims.newest()
        gone = seen is not None and is_gone(seen.holder)
        decision = contender.look(seen, int(clock() * 1000), is_gone=gone)
        if isinstance(decision, Take):
            if claims.take(decision.epoch, holder):
                return Keeper(what, claims, decision.epoch, holder)
        elif isinstance(decision, Refuse):
            raise Busy(
                f"another driver runs {what}: {decision.holder}; wait for it with --wait 10m, or give this pipeline a"
                " checkpoint and a table of its own"
            )
        else:
            pause(LOOK_S)


def release_all() -> None:
    with _guard:
        for keeper in _kept.values():
            keeper.release()
        _kept.clear()


def _is_active(query: Any) -> bool:
    try:
        return bool(query.isActive)
    except Exception:
        return False  # Spark itself is gone, and the query with it.


atexit.register(release_all)
