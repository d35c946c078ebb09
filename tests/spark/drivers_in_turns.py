"""Several drivers at one table, as threads of which one runs at a time: a seed says which one goes on at each step.

A step is a call of a store, a move of files, a look at the clock or a commit of a table library. Between any two steps
of a driver all others may do anything, a driver may stand still for longer than a lease lives, and it may die.
"""

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from skidway.spark.lease.claims import Claims
from skidway.spark.lease.decisions import Contender, Holder, Take, is_held
from skidway.spark.stores import Store

TTL_MS = 50
STEPS_MAX = 4_000
BATCHES = 4


class Died(BaseException):
    """SIGKILL: no handler of the driver's own sees it."""


class Turns:
    """Hands the right to go on from thread to thread, and is the clock."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.steps = 0
        self._go: dict[str, threading.Semaphore] = {}
        self._back = threading.Semaphore(0)
        self._until: dict[str, int] = {}
        self._doomed: set[str] = set()
        self._ended: set[str] = set()
        self._local = threading.local()

    def step(self) -> None:
        """Called by a driver before whatever others could see."""
        name = getattr(self._local, "name", None)
        if name is None:
            return
        self._back.release()
        self._go[name].acquire()
        if name in self._doomed:
            raise Died

    def run(self, drivers: dict[str, Callable[[], None]]) -> list[BaseException]:
        """All to their ends; what they ended with, deaths left out."""
        errors: list[BaseException] = []
        for name, driver in drivers.items():
            self._go[name] = threading.Semaphore(0)
            threading.Thread(target=self._drive, args=(name, driver, errors), daemon=True).start()
        while alive := [name for name in drivers if name not in self._ended]:
            self.steps += 1
            assert self.steps < STEPS_MAX, "the drivers do not come to an end"
            name = self.random.choice([name for name in alive if self._until.get(name, 0) <= self.now_ms] or alive)
            self._befall(name, alive)
            self.now_ms += self.random.choice((0, 1, 1, 2))
            self._go[name].release()
            self._back.acquire()
        return errors

    def _befall(self, name: str, alive: list[str]) -> None:
        luck = self.random.random()
        if luck < 0.06:
            self._until[name] = self.now_ms + self.random.choice((TTL_MS // 2, 3 * TTL_MS, 20 * TTL_MS))
        elif luck < 0.07 and len(alive) > 1:
            self._doomed.add(name)

    def _drive(self, name: str, driver: Callable[[], None], errors: list[BaseException]) -> None:
        self._go[name].acquire()
        self._local.name = name
        try:
            driver()
        except Died:
            pass
        except BaseException as error:
            errors.append(error)
        self._ended.add(name)
        self._back.release()


@dataclass
class TurnStore:
    """A store whose every call is a step."""

    inner: Store
    turns: Turns

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.inner, name)

        def stepping(*arguments: Any) -> Any:
            self.turns.step()
            return call(*arguments)

        return stepping


class Lost(Exception):
    """As LeaseLost."""


@dataclass
class Lease:
    """What `keeping` does with a thread and a real clock, step by step."""

    turns: Turns
    claims: Claims
    holder: Holder
    epoch: int = 0
    beat: int = 0

    def take(self) -> None:
        contender = Contender(TTL_MS, 10**9, self.turns.now_ms)
        while True:
            self.turns.step()
            decision = contender.look(self.claims.newest(), self.turns.now_ms, is_gone=False)
            if isinstance(decision, Take) and self.claims.take(decision.epoch, self.holder):
                self.epoch = decision.epoch
                return

    def check(self) -> None:
        self.beat += 1
        self.claims.beat(self.epoch, self.beat)
        if not is_held(self.epoch, self.holder, self.claims.newest()):
            raise Lost

    def release(self) -> None:
        self.claims.release(self.epoch, self.beat)


@dataclass
class History:
    """Who acted with which epoch, in the order of its acts."""

    holders: dict[int, set[str]] = field(default_factory=dict)
    committed: list[tuple[int, int]] = field(default_factory=list)
    """Batch and epoch of each commit that said it was the one."""


def holder_named(name: str) -> Holder:
    return Holder("host", "", 1, "", name)


@contextmanager
def planted(owner: Any, name: str, wrong: Any) -> Iterator[None]:
    right = owner.__dict__[name] if isinstance(owner, type) else getattr(owner, name)
    setattr(owner, name, wrong)
    try:
        yield
    finally:
        setattr(owner, name, right)
