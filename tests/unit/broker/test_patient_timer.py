"""A node that stood still listens to the others for a moment before it gives them up, and then it does act."""

from broker_world import HandClock

from skidway.broker.cluster.patient_timer import STALL_MS, PatientTimer
from skidway.runtime.timers import Timers


class Waiting:
    """What a node does with the timer: it acts when the deadline is over, and is asked by others all the time."""

    def __init__(self) -> None:
        self.clock = HandClock()
        self.timers = Timers()
        self.acted_ms: list[int] = []
        self.timer = PatientTimer(self.timers, self.clock, self.acted_ms.append)

    def ask_every(self, gap_ms: int, times: int, deadline_ms: int) -> None:
        """Whoever hears from another node looks at its own deadline again."""
        for _ in range(times):
            self.clock.now_ms += gap_ms
            self.timer.arm(deadline_ms)
            self.timers.fire(self.clock.now_ms)


def test_it_acts_at_the_deadline() -> None:
    node = Waiting()
    due_ms = node.clock.now_ms + 500
    node.timer.arm(due_ms)
    node.clock.now_ms = due_ms + STALL_MS
    node.timers.fire(node.clock.now_ms)
    assert node.acted_ms == [due_ms + STALL_MS]


def test_a_node_that_stood_still_listens_first() -> None:
    node = Waiting()
    due_ms = node.clock.now_ms + 500
    node.timer.arm(due_ms)
    node.clock.now_ms = resumed_ms = due_ms + 7_000
    node.timers.fire(resumed_ms)
    node.timer.arm(resumed_ms)
    node.timers.fire(resumed_ms + STALL_MS - 1)
    assert node.acted_ms == [], "what it read has ended the wait early"
    node.clock.now_ms = resumed_ms + STALL_MS
    node.timers.fire(node.clock.now_ms)
    assert node.acted_ms == [resumed_ms + STALL_MS]


def test_a_node_that_is_asked_all_the_time_acts_as_well() -> None:
    """A voter with the longest log of all was paused. Whoever waited for it asked it every 50 ms, and so it never came
    to stand for election: no other voter could win."""
    node = Waiting()
    due_ms = node.clock.now_ms + 500
    node.timer.arm(due_ms)
    node.clock.now_ms = resumed_ms = due_ms + 7_000
    node.timers.fire(resumed_ms)
    node.ask_every(STALL_MS // 2, 3, due_ms)
    assert node.acted_ms == [resumed_ms + STALL_MS]


def test_once_cancelled_it_can_be_armed_again() -> None:
    node = Waiting()
    due_ms = node.clock.now_ms + 500
    node.timer.arm(due_ms)
    node.clock.now_ms = due_ms + 7_000
    node.timers.fire(node.clock.now_ms)
    node.timer.cancel()
    again_ms = node.clock.now_ms + 10
    node.timer.arm(again_ms)
    node.clock.now_ms = again_ms
    node.timers.fire(again_ms)
    assert node.acted_ms == [again_ms]
