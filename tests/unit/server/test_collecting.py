"""Python's garbage collector pauses while a request is worked on in steps, and never for ever."""

import gc
from collections.abc import Iterator

import pytest
from server_fake_node import Run, serving

from skidway.server.collecting import LINGER_MS, PAUSE_MS_MAX, Collecting


class HandClock:
    now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


@pytest.fixture(autouse=True)
def collecting_as_before() -> Iterator[None]:
    assert gc.isenabled()
    yield
    gc.enable()


def test_a_turn_with_long_work_pauses_the_collector_until_there_was_none_for_a_while(run: Run) -> None:
    clock = HandClock()

    async def story() -> None:
        async with serving(clock=clock) as served:
            assert gc.isenabled()
            served.node.has_long_work = True
            served.turn.settle()
            assert not gc.isenabled()
            served.node.has_long_work = False
            clock.now_ms += LINGER_MS - 1
            served.turn.settle()
            assert not gc.isenabled()
            clock.now_ms += 1
            served.turn.settle()
            assert gc.isenabled()

    run(story())


def test_a_request_that_waits_for_a_commit_in_between_is_one_pause() -> None:
    clock, collecting = HandClock(), Collecting()
    collecting.follow(True, clock)
    for _ in range(5):
        clock.now_ms += LINGER_MS // 2
        collecting.follow(False, clock)
        assert not gc.isenabled()
        clock.now_ms += LINGER_MS // 4
        collecting.follow(True, clock)
        assert not gc.isenabled()
    clock.now_ms += LINGER_MS
    collecting.follow(False, clock)
    assert gc.isenabled()


def test_the_collector_runs_again_after_a_broker_has_stopped_in_the_middle_of_long_work(run: Run) -> None:
    async def story() -> None:
        async with serving() as served:
            served.node.has_long_work = True
            served.turn.settle()
            assert not gc.isenabled()

    run(story())
    assert gc.isenabled()


def test_long_work_without_end_does_not_pause_the_collector_for_ever() -> None:
    clock, collecting = HandClock(), Collecting()
    collecting.follow(True, clock)
    clock.now_ms += PAUSE_MS_MAX - 1
    collecting.follow(True, clock)
    assert not gc.isenabled()
    clock.now_ms += 1
    collecting.follow(True, clock)
    assert gc.isenabled(), "for one turn, which is enough for a collection"
    collecting.follow(True, clock)
    assert not gc.isenabled()


def test_a_collector_that_somebody_else_switched_off_stays_off() -> None:
    gc.disable()
    collecting = Collecting()
    collecting.follow(True, HandClock())
    collecting.follow(False, HandClock())
    assert not gc.isenabled()
