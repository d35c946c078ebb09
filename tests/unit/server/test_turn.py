"""The end of a turn: one sync for many requests, threads that come back together, timers, and failing disks."""

import asyncio
import threading
import time
from typing import Any

from server_fake_node import Run, serving

from skidway.broker.metrics import Sample
from skidway.server.metrics import shell_samples
from waiting import until


def test_answers_wait_for_their_sync_and_everyone_else_goes_on(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            peers = [await served.dial() for _ in range(10)]
            for number, peer in enumerate(peers):
                peer.ask(b"S %d" % number, b"Enot synced")
            for number, peer in enumerate(peers):
                answers = {await peer.answer(), await peer.answer()}
                assert answers == {b"S %d" % number, b"Enot synced"}
            assert served.turn.in_flight == 0

    run(story())


def test_a_failing_sync_is_reported_and_not_retried(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            peer = await served.dial()
            peer.ask(b"S!")
            assert await peer.answer() == b"error 5"
            peer.ask(b"S?")
            assert await peer.answer() == b"error 5", "a bug counts as a failed sync"
            peer.ask(b"Sfine")
            assert await peer.answer() == b"Sfine"

    run(story())


def test_turns_and_jobs_are_measured(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            peer = await served.dial()
            for number in range(3):
                peer.ask(b"S %d" % number)
                assert await peer.answer() == b"S %d" % number
            found: list[Sample] = []
            shell_samples(served.turn.measures, found.append)
            values: dict[tuple[str, tuple[str, ...]], Any] = {
                (sample.metric.name, sample.values): sample.value for sample in found
            }
            assert len(values) == len(found)
            assert values["skidway_jobs_total", ("sync",)] == 3
            assert values["skidway_jobs_total", ("compaction",)] == 0
            syncs = values["skidway_sync_seconds", ()]
            assert sum(syncs.counts) == 3
            assert syncs.total_us <= values["skidway_jobs_nanoseconds_total", ("sync",)] // 1_000
            assert values["skidway_loop_turns_total", ()] >= 3
            longest, total = "skidway_jobs_longest_nanoseconds", "skidway_jobs_nanoseconds_total"
            assert 0 < values[longest, ("sync",)] <= values[total, ("sync",)]
            longest, total = "skidway_loop_longest_turn_nanoseconds", "skidway_loop_busy_nanoseconds_total"
            assert 0 < values[longest, ()] <= values[total, ()]

    run(story())


def test_maintenance_holds_up_no_sync(run: Run) -> None:
    async def story() -> None:
        async with serving(sync_threads=1) as served:
            served.node.gate = threading.Event()
            slow, quick = await served.dial(), await served.dial()
            slow.ask(b"Sm checkpoint", b"Sm another")
            await until(lambda: served.node.begun)
            quick.ask(b"S quick")
            assert await quick.answer() == b"S quick"
            assert served.turn.in_flight == 2
            served.node.gate.set()
            assert {await slow.answer(), await slow.answer()} == {b"Sm checkpoint", b"Sm another"}

    run(story())


def test_timers_fire_in_time_whatever_the_order_they_were_set_in(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            peer = await served.dial()
            began = time.monotonic()
            for count, wait_ms in enumerate((900_000, 250, 50), start=1):  # an earlier deadline moves the timer down
                peer.ask(b"T%d" % wait_ms)
                await until(lambda: served.node.timed_count == count)  # noqa: B023
            waits_ms = []
            for _ in range(2):
                waits_ms.append(int((await peer.answer())[1:]))
                assert (time.monotonic() - began) * 1000 >= waits_ms[-1] - 1, "too early"
            assert sorted(waits_ms) == [50, 250]
            assert served.node.deadline_ms is not None, "the long one still waits"

    run(story())


def test_at_the_end_all_threads_do_maintenance(run: Run) -> None:
    """Checkpoints of many logs wait one behind the other; a stop must not wait for all of them in a row."""

    async def story() -> None:
        async with serving(sync_threads=3) as served:
            served.node.gate = threading.Event()
            peer = await served.dial()
            peer.ask(*[b"Sm"] * 4)
            await until(lambda: served.turn.in_flight == 4)
            await until(lambda: served.node.begun)
            finishing = asyncio.ensure_future(served.turn.finish(60))
            await until(lambda: len(served.node.begun) == 4)  # all of them at once: nobody has opened the gate
            served.node.gate.set()
            assert await finishing

    run(story())


def test_finish_waits_for_syncs_under_way(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            served.node.gate = threading.Event()
            peer = await served.dial()
            peer.ask(b"Sm")
            await until(lambda: served.node.begun)
            assert not await served.turn.finish(0.05)
            asyncio.get_running_loop().call_later(0.05, served.node.gate.set)
            assert await served.turn.finish(30)
            assert await peer.answer() == b"Sm"

    run(story())
