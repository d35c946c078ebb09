"""Python's garbage collector pauses while a request is worked on in steps, and never for ever; and no collection looks
at everything, but in a quiet moment.

What a collection looks at is counted, not timed.
"""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
from server_fake_node import Run, serving

from skidway.server.collecting import (
    CHECK_MS,
    COLLECTS_BY_ITSELF,
    LINGER_MS,
    PAUSE_MS_MAX,
    QUIET_MS,
    WAIT_MS_MAX,
    YOUNG_MAX,
    Collecting,
)

LOOKED_AT_MAX = 50_000
led_by_hand = pytest.mark.skipif(COLLECTS_BY_ITSELF, reason="Python 3.14 collects in slices by itself")


class HandClock:
    now_ms = 1_000

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


@pytest.fixture(autouse=True)
def collecting_as_before() -> Iterator[None]:
    assert gc.isenabled()
    thresholds = gc.get_threshold()
    yield
    gc.enable()
    assert gc.get_threshold() == thresholds
    gc.unfreeze()


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


# --- full collections ---


class Ring:
    """Only the collector frees it."""

    def __init__(self) -> None:
        self.ring = self


class Looks:
    """How many objects each collection looked at."""

    def __init__(self) -> None:
        self.most = 0
        gc.callbacks.append(self._note)

    def _note(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "start":
            seen = sum(len(gc.get_objects(generation)) for generation in range(info["generation"] + 1))
            self.most = max(self.most, seen)

    def end(self) -> None:
        gc.callbacks.remove(self._note)


@pytest.fixture
def led() -> Iterator[tuple[Collecting, HandClock, Looks]]:
    gc.collect()
    clock, collecting, looks = HandClock(), Collecting(), Looks()
    collecting.spare_what_is_there(clock)
    yield collecting, clock, looks
    looks.end()
    collecting.end()


def grow(collecting: Collecting, clock: HandClock, kept: list[Any], objects: int) -> None:
    """As a broker on which topics are created, a few in each turn, without a quiet moment."""
    for _ in range(0, objects, 500):
        kept.extend([] for _ in range(500))
        clock.now_ms += 1
        collecting.follow(False, clock)


@led_by_hand
def test_however_much_there_is_a_collection_looks_at_what_is_new(led: tuple[Collecting, HandClock, Looks]) -> None:
    collecting, clock, looks = led
    kept: list[Any] = []
    grow(collecting, clock, kept, 500_000)
    assert 0 < looks.most < LOOKED_AT_MAX


@led_by_hand
def test_what_a_long_request_left_is_not_looked_at_in_one_go(led: tuple[Collecting, HandClock, Looks]) -> None:
    collecting, clock, looks = led
    collecting.follow(True, clock)
    kept: list[Any] = [[] for _ in range(10 * YOUNG_MAX)]
    clock.now_ms += LINGER_MS
    collecting.follow(False, clock)
    grow(collecting, clock, kept, 10_000)
    assert gc.isenabled()
    assert looks.most < LOOKED_AT_MAX


@led_by_hand
def test_rings_that_became_garbage_while_exempt_are_found_in_a_quiet_moment(
    led: tuple[Collecting, HandClock, Looks],
) -> None:
    collecting, clock, looks = led
    rings = [Ring() for _ in range(2 * gc.get_freeze_count())]
    grow(collecting, clock, [], 100_000)
    seen = weakref.ref(rings[0])
    grow(collecting, clock, rings, 100_000)
    rings.clear()
    clock.now_ms += CHECK_MS
    collecting.follow(False, clock)
    assert seen() is not None, "nobody knows yet"
    clock.now_ms += QUIET_MS - 1
    collecting.follow(False, clock)
    assert seen() is not None, "somebody may wait"
    clock.now_ms += QUIET_MS
    collecting.follow(False, clock)
    assert seen() is None
    assert looks.most > LOOKED_AT_MAX


@led_by_hand
def test_rings_are_found_without_any_quiet_moment_and_between_long_requests(
    led: tuple[Collecting, HandClock, Looks],
) -> None:
    collecting, clock, _ = led
    rings = [Ring() for _ in range(2 * gc.get_freeze_count())]
    seen = weakref.ref(rings[0])
    collecting.follow(True, clock)
    clock.now_ms += PAUSE_MS_MAX
    collecting.follow(True, clock)
    rings.clear()
    for _ in range(WAIT_MS_MAX // PAUSE_MS_MAX + 2):
        collecting.follow(True, clock)
        clock.now_ms += PAUSE_MS_MAX
        collecting.follow(True, clock)
    assert seen() is None


@led_by_hand
def test_where_nothing_grows_not_everything_is_looked_at(led: tuple[Collecting, HandClock, Looks]) -> None:
    collecting, clock, looks = led
    for _ in range(2 * WAIT_MS_MAX // CHECK_MS):
        clock.now_ms += CHECK_MS
        collecting.follow(False, clock)
    assert looks.most < LOOKED_AT_MAX
