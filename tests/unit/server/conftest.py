"""Every story is told twice: on uvloop and on asyncio's own loop."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest
import uvloop
from server_fake_node import Run


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Run:
    new_loop = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run_on_loop(story: Coroutine[Any, Any, None]) -> None:
        async def bounded() -> None:
            async with asyncio.timeout(200):
                await story

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(bounded())

    return run_on_loop
