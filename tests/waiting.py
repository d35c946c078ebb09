"""Waiting for what is to happen, for as long as it takes on a machine that is busy with other things.

A test never sleeps in the hope that something has happened meanwhile: it names the condition. The bound is only there
to end a test whose product is broken, so it is generous.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

Value = TypeVar("Value")
PATIENCE_S = 30.0
SPARK_PATIENCE_S = 600.0
"""For a process that starts Spark, and for a query: half a minute alone, several minutes beside other work."""
PAUSE_S = 0.005


def eventually(check: Callable[[], Value | None], seconds: float = PATIENCE_S) -> Value:
    """Call `check` until it returns something true, and return that; AssertionError when time is up."""
    deadline = time.monotonic() + seconds
    while not (value := check()):
        assert time.monotonic() < deadline, f"still {value!r} after {seconds:g} s"
        time.sleep(PAUSE_S)
    return value


def comes_true(condition: Callable[[], object], seconds: float = PATIENCE_S) -> bool:
    """Whether the condition comes true in time, for tests that have something to say or to do when it does not."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(PAUSE_S)
    return True


async def until(condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
    """Let the loop run until the condition holds; an error if it never does."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not condition():
        assert loop.time() < deadline, f"waited in vain for {seconds:g} s"
        await asyncio.sleep(PAUSE_S)
