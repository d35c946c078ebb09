"""Small steps that wait for their turn."""

from dataclasses import dataclass

from skidway.runtime.backlog import TURN_MS_MAX, Backlog


@dataclass
class SlowClock:
    """Every look at it takes a while."""

    per_look_ms: int
    now_ms: int = 0

    def monotonic_ms(self) -> int:
        self.now_ms += self.per_look_ms
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


def test_a_turn_takes_some_of_the_steps_in_their_order() -> None:
    done: list[int] = []
    calls: list[str] = []
    backlog = Backlog(SlowClock(TURN_MS_MAX // 2), lambda: calls.append("work"))
    for number in range(5):
        backlog.later(lambda number=number: done.append(number))  # type: ignore[misc]
    assert calls == ["work"] * 5
    assert backlog.work()
    assert done == [0, 1]
    while backlog.work():
        pass
    assert done == [0, 1, 2, 3, 4]
    assert not backlog.work()


def test_one_step_is_taken_even_if_the_turn_was_long() -> None:
    done: list[int] = []
    backlog = Backlog(SlowClock(10 * TURN_MS_MAX), lambda: None)
    backlog.later(lambda: done.append(1))
    backlog.later(lambda: done.append(2))
    assert backlog.work()
    assert done == [1]


def test_who_waits_for_all_is_called_at_once_if_nothing_waits() -> None:
    done: list[str] = []
    backlog = Backlog(SlowClock(0), lambda: None)
    backlog.when_done(lambda: done.append("at once"))
    assert done == ["at once"]
    backlog.later(lambda: done.append("step"))
    backlog.when_done(lambda: done.append("after it"))
    assert done == ["at once"]
    backlog.work()
    assert done == ["at once", "step", "after it"]
