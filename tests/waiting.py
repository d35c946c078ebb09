"""Waiting for what is to happen, for as long as it takes on a machine that is busy with other things.

A test never sleeps in the hope that something has happened meanwhile: it names the condition. The bound is only there
to end a test whose product is broken, so it is generous.
"""

import asyncio
import time
from collections.abc import Callable

PATIENCE_S = 30.0
PAUSE_S = 0.002


def eventually(condition: Callable[[], object], seconds: float = PATIENCE_S) -> bool:
    """Whether the condition comes true in time."""
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
