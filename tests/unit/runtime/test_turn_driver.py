"""The order of a turn: jobs go out, replies leave, the timer is right; by hand, without loop, threads or time."""

from collections.abc import Callable

from skidway.runtime.jobs import Job, Lane
from skidway.runtime.turn import TurnDriver


class Work:
    def run(self) -> None:
        pass


class ByHand:
    """Node, clock and shell in one; writes down what happens to it."""

    def __init__(self) -> None:
        self.on_work: Callable[[], None] = lambda: None
        self.deadline_ms: int | None = None
        self.now_ms = 1_000
        self.happened: list[str] = []
        self.wanted: list[Job] = []
        self.bug: Exception | None = None
        self.driver = TurnDriver(self, self, self)

    def monotonic_ms(self) -> int:
        return self.now_ms

    def wall_ms(self) -> int:
        return self.now_ms

    def want_job(self, lane: Lane) -> Job:
        job = Job(lane, Work(), lambda ticket, error, now_ms: self.happened.append(f"done {lane.value} {error}"))
        self.wanted.append(job)
        return job

    # The node.

    def on_time(self, now_ms: int) -> None:
        self.happened.append(f"time {now_ms}")
        self.deadline_ms = None

    def end_turn(self) -> list[Job]:
        self.happened.append("end")
        if self.bug is not None:
            raise self.bug
        wanted, self.wanted = self.wanted, []
        return wanted

    # The shell.

    def end_turn_soon(self) -> None:
        self.happened.append("soon")

    def start_job(self, job: Job) -> None:
        self.happened.append(f"start {job.lane.value}")

    def turn_ended(self) -> None:
        self.happened.append("send")

    def wake_at(self, deadline_ms: int) -> None:
        self.happened.append(f"wake at {deadline_ms}")

    def attempt(self, step: Callable[..., None], *arguments: object) -> bool:
        try:
            step(*arguments)
        except RuntimeError as error:
            self.happened.append(f"bug: {error}")
            return False
        return True

    def retry_soon(self) -> None:
        self.happened.append("retry")

    def take(self) -> list[str]:
        happened, self.happened = self.happened, []
        return happened


def test_a_turn_is_scheduled_once_and_hands_out_jobs_before_replies_leave() -> None:
    world = ByHand()
    world.on_work()
    world.on_work()
    assert world.take() == ["soon"]
    world.want_job(Lane.SYNC)
    world.want_job(Lane.REQUEST)
    world.driver.end_scheduled()
    assert world.take() == ["end", "start sync", "start request", "send"]
    world.on_work()
    assert world.take() == ["soon"], "the next turn"


def test_finished_jobs_come_before_the_end_of_one_turn() -> None:
    world = ByHand()
    first, second = world.want_job(Lane.SYNC), world.want_job(Lane.MAINTENANCE)
    world.driver.end()
    world.take()
    world.driver.finish_jobs([(second, None), (first, OSError(5, "broken"))])
    assert world.take() == ["done maintenance None", "done sync [Errno 5] broken", "end", "send"]


def test_the_timer_moves_down_only() -> None:
    world = ByHand()
    world.deadline_ms = 5_000
    world.driver.check_deadline()
    world.deadline_ms = 3_000
    world.driver.check_deadline()
    world.deadline_ms = 4_000
    world.driver.check_deadline()
    assert world.take() == ["wake at 5000", "wake at 3000"]
    world.now_ms = 3_000
    world.driver.on_timer(5_000)
    assert world.take() == [], "it was replaced"
    world.driver.on_timer(3_000)
    assert world.take() == ["wake at 4000"], "what it was for is over, and the next is not due"
    world.now_ms = 4_000
    world.driver.on_timer(4_000)
    assert world.take() == ["time 4000", "end", "send"]


def test_a_bug_at_the_end_of_a_turn_holds_up_neither_replies_nor_the_timer() -> None:
    world = ByHand()
    world.bug = RuntimeError("a bug")
    world.deadline_ms = 2_000
    world.driver.end()
    assert world.take() == ["end", "bug: a bug", "retry", "send", "wake at 2000"]
