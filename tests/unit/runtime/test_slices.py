"""Pieces of work that share the event loop."""

from collections.abc import Callable
from typing import Any

import pytest

from skidway.runtime.slices import FIRST_MS, OPENED_MAX, STEPS_MAX, TURN_MS, Slices
from skidway.steps import STEPS_UNTIMED, Job, Question, Steps, at_once, first_steps, resumed, sorted_names


class Clock:
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms


class World:
    def __init__(self) -> None:
        self.clock = Clock()
        self.wanted = 0
        self.slices = Slices(self.clock, self._on_work)
        self.done: list[Any] = []
        self.failed: list[Exception] = []

    def _on_work(self) -> None:
        self.wanted += 1

    def begin(self, steps: Steps[Any]) -> Any:
        return self.slices.begin(steps, self.done.append, self.failed.append)

    def run_jobs(self) -> int:
        jobs = self.slices.take_jobs()
        for job in jobs:
            job.run()
            job.done(None, 0)
        return len(jobs)


def counted(world: World, name: str, steps: int, log: list[str], step_ms: int = 1) -> Steps[str]:
    for _ in range(steps):
        world.clock.now_ms += step_ms
        log.append(name)
        yield None
    return name


def test_small_work_is_over_at_once_and_wants_nothing() -> None:
    world = World()
    work = world.begin(counted(world, "small", 3, []))
    assert work.over
    assert world.done == ["small"]
    assert (world.wanted, len(world.slices)) == (0, 0)


def test_large_work_goes_on_turn_by_turn_and_large_ones_share_a_turn() -> None:
    world = World()
    log: list[str] = []
    for name in "ab":
        world.begin(counted(world, name, 100, log))
    turns = 0
    while len(world.done) < 2:
        assert world.wanted, "the node is told that there is more to do"
        world.wanted, log[:] = 0, []
        before_ms = world.clock.now_ms
        world.slices.run()
        turns += 1
        assert world.clock.now_ms - before_ms <= TURN_MS + STEPS_UNTIMED
        assert len(world.done) or set(log) == {"a", "b"}, "neither holds the other up"
    assert turns > 5
    assert world.done == ["a", "b"]


def test_where_time_stands_still_steps_are_counted() -> None:
    world = World()
    log: list[str] = []
    world.begin(counted(world, "long", 3 * STEPS_MAX, log, step_ms=0))
    assert len(log) <= STEPS_MAX


def test_a_job_is_run_by_a_worker_and_its_error_comes_back() -> None:
    def work(function: Callable[[], int]) -> Steps[int]:
        result: int = yield Job(function)
        return result + 1

    world = World()
    world.begin(work(lambda: 41))
    world.begin(work(lambda: int("no number")))
    assert world.done == []
    assert world.run_jobs() == 2
    assert world.done == [42]
    assert isinstance(world.failed[0], ValueError)
    assert at_once(work(lambda: 1)) == 2
    with pytest.raises(ValueError, match="no number"):
        at_once(work(lambda: int("no number")))


def test_a_question_is_answered_later() -> None:
    asked: list[Callable[[str], None]] = []

    def work() -> Steps[str]:
        answer: str = yield Question(asked.append)
        return answer

    world = World()
    world.begin(work())
    world.slices.run()
    assert world.done == []
    asked[0]("yes")
    world.slices.run()
    assert world.done == ["yes"]


def test_work_whose_question_is_answered_at_once_goes_on_in_the_same_go() -> None:
    def work(names: list[str]) -> Steps[list[str]]:
        answers: list[str] = []
        for name in names:
            answers.append((yield Question(lambda answer, name=name: answer(f"{name}!"))))  # type: ignore[misc]
            yield None
        return answers

    world = World()
    world.begin(work(["a", "b", "c"]))
    assert world.done == [["a!", "b!", "c!"]]
    assert (world.slices.under_way, world.slices.asking, len(world.slices)) == (0, 0, 0)


def test_answers_that_are_there_at_once_do_not_keep_others_waiting() -> None:
    world = World()

    def work() -> Steps[str]:
        for _ in range(3):
            world.clock.now_ms += FIRST_MS
            yield Question(lambda answer: answer(None))
        return "done"

    world.begin(work())
    goes = 0
    while not world.done:
        assert len(world.slices) == 1, "it stands in line"
        world.slices.run()
        goes += 1
    assert goes == 3


def test_cancelled_work_does_not_go_on_and_its_job_is_not_run() -> None:
    ended: list[str] = []

    def work() -> Steps[None]:
        try:
            yield Job(lambda: None)
        finally:
            ended.append("closed")

    world = World()
    before, during = world.begin(work()), world.begin(work())
    before.cancel()
    (job,) = world.slices.take_jobs()
    during.cancel()
    job.run()
    job.done(None, 0)
    assert ended == ["closed", "closed"]
    assert (world.done, world.failed) == ([], [])


def test_only_a_few_hold_what_they_unpacked_at_a_time() -> None:
    held: list[int] = []
    most = 0

    def work(number: int) -> Steps[None]:
        nonlocal most
        yield Job(lambda: held.append(number))
        most = max(most, len(held))
        for _ in range(10):
            world.clock.now_ms += 1
            yield None
        held.remove(number)

    world = World()
    works = [world.begin(work(number)) for number in range(3 * OPENED_MAX)]
    works[-1].cancel()
    rounds = 0
    while len(world.done) < len(works) - 1:
        rounds += 1
        assert rounds < 100, "those that wait are never let in"
        world.run_jobs()
        world.slices.run()
    assert most <= OPENED_MAX


def test_a_job_that_fails_lets_go_of_what_it_had_in_the_worker() -> None:
    freed: list[str] = []

    class Large:
        def __del__(self) -> None:
            freed.append("large")

    def function() -> None:
        large = Large()
        try:
            int("no number")
        except ValueError as error:
            raise KeyError(large.__class__) from error

    job = Job(function)
    job.run()
    assert freed == ["large"], "before the event loop sees the error"

    def work() -> Steps[None]:
        yield job

    steps = work()
    next(steps)
    with pytest.raises(KeyError):
        job.send_to(steps)


def test_names_are_sorted_in_steps() -> None:
    names = [f"name-{number * 7919 % 5000}" for number in range(6_000)]
    world = World()
    count = 0

    def counted_steps() -> Steps[list[str]]:
        nonlocal count
        steps = sorted_names(names)
        while True:
            try:
                yield next(steps)
            except StopIteration as end:
                found: list[str] = end.value
                return found
            count += 1

    world.begin(counted_steps())
    while not world.done:
        world.slices.run()
    assert world.done == [sorted(set(names))]
    assert count > len(names), "one for each name and for each run"
    assert at_once(sorted_names([])) == []


# --- work whose first steps are taken before it is kept track of ---


def working(log: list[str], steps: int = 0) -> Steps[str]:
    """A job that succeeds, one that fails, and so many steps before them."""
    try:
        for _ in range(steps):
            yield None
        log.append((yield Job(lambda: "unpacked")))
        try:
            yield Job(lambda: 1 // 0)
        except ZeroDivisionError:
            log.append("failed")
        return "done"
    finally:
        log.append("closed")


def test_small_work_ends_with_its_first_steps() -> None:
    with pytest.raises(StopIteration) as end:
        first_steps(counted(World(), "small", STEPS_UNTIMED - 1, []))
    assert end.value.value == "small"


@pytest.mark.parametrize("steps", [0, 2, STEPS_UNTIMED + 2])
def test_work_goes_on_after_its_first_steps_as_if_nobody_had_taken_them(steps: int) -> None:
    world = World()
    log: list[str] = []
    work = working(log, steps)
    world.begin(resumed(work, first_steps(work)))
    assert world.run_jobs() == 1
    assert world.run_jobs() == 1
    assert (world.done, log) == (["done"], ["unpacked", "failed", "closed"])


def test_work_that_is_cancelled_after_its_first_steps_is_closed() -> None:
    world = World()
    log: list[str] = []
    steps = working(log)
    world.begin(resumed(steps, first_steps(steps))).cancel()
    assert log == ["closed"]
    assert (world.done, world.failed) == ([], [])
