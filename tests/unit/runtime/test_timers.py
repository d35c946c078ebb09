"""Timers: what is due runs once, in order, and nothing a callback does can upset the pass."""

import random

from skidway.runtime.timers import CANCELLED_KEPT, Timer, Timers


def test_due_timers_run_by_deadline_then_by_arming() -> None:
    timers, ran = Timers(), list[str]()
    timers.at(30, lambda: ran.append("c"))
    timers.at(10, lambda: ran.append("a"))
    timers.at(10, lambda: ran.append("b"))
    timers.at(31, lambda: ran.append("later"))

    assert timers.deadline_ms == 10
    assert timers.fire(30) == 3
    assert ran == ["a", "b", "c"]
    assert timers.deadline_ms == 31


def test_a_timer_runs_once_and_cancelling_it_later_is_harmless() -> None:
    timers, ran = Timers(), list[str]()
    timer = timers.at(10, lambda: ran.append("x"))
    timers.fire(10)
    timer.cancel()
    timer.cancel()
    assert timers.fire(99) == 0
    assert ran == ["x"]
    assert len(timers) == 0


def test_the_deadline_skips_cancelled_timers() -> None:
    timers = Timers()
    first = timers.at(10, lambda: None)
    timers.at(20, lambda: None)
    first.cancel()
    assert timers.deadline_ms == 20
    assert len(timers) == 1


def test_a_callback_cancels_another_that_is_due_in_the_same_pass() -> None:
    timers, ran = Timers(), list[str]()
    second: list[Timer] = []
    timers.at(10, lambda: second[0].cancel())
    second.append(timers.at(10, lambda: ran.append("must not run")))
    assert timers.fire(10) == 1
    assert ran == []
    assert len(timers) == 0


def test_a_timer_that_rearms_itself_for_now_waits_for_the_next_pass() -> None:
    timers, ran = Timers(), list[int]()

    def again() -> None:
        ran.append(1)
        timers.at(10, again)

    timers.at(10, again)
    assert timers.fire(10) == 1
    assert timers.fire(10) == 1
    assert len(ran) == 2


def test_cancelled_timers_do_not_pile_up() -> None:
    timers = Timers()
    for _ in range(100_000):
        timers.at(500, lambda: None).cancel()
    assert len(timers._heap) <= 2 * CANCELLED_KEPT
    assert len(timers) == 0


def test_against_a_plain_list() -> None:
    rng = random.Random(1)
    timers, expected, ran = Timers(), dict[int, int](), list[int]()
    handles: dict[int, Timer] = {}
    now = 0
    for step in range(5_000):
        match rng.randrange(4):
            case 0 | 1:
                deadline = now + rng.randrange(50)
                handles[step] = timers.at(deadline, lambda step=step: ran.append(step))  # type: ignore[misc]
                expected[step] = deadline
            case 2 if expected:
                gone = rng.choice(list(expected))
                handles[gone].cancel()
                del expected[gone]
            case _:
                now += rng.randrange(10)
                due = [key for key, at in sorted(expected.items(), key=lambda item: (item[1], item[0])) if at <= now]
                ran.clear()
                timers.fire(now)
                assert ran == due
                for key in due:
                    del expected[key]
        assert len(timers) == len(expected)
        assert timers.deadline_ms == min(expected.values(), default=None)
