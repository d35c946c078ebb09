"""A wall clock that jumps forwards deletes nothing by age for a while."""

from skidway.runtime.age_clock import LEAP_MS, AgeClock
from skidway.runtime.news import ClockJumped

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
BEGIN_MS = 1_800_000_000_000


class Hands:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_ms = 5_000
        self.ahead_ms = BEGIN_MS
        self.said: list[ClockJumped] = []
        self.age_clock = AgeClock(self, HOUR_MS, self.said.append)

    def wall_ms(self) -> int:
        return self.now_ms + self.ahead_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def passes(self, passed_ms: int, leap_ms: int = 0) -> int:
        """How much later it is by the age clock."""
        before = self.age_clock.wall_ms()
        self.now_ms += passed_ms
        self.ahead_ms += leap_ms
        return self.age_clock.wall_ms() - before


def test_time_that_passes_is_believed() -> None:
    hands = Hands()
    assert hands.passes(30 * DAY_MS) == 30 * DAY_MS
    assert hands.passes(1000, leap_ms=LEAP_MS) == 1000 + LEAP_MS, "as clocks are corrected all the time"
    assert hands.said == []


def test_a_jump_forwards_is_believed_after_the_wait() -> None:
    hands = Hands()
    assert hands.passes(1000, leap_ms=30 * DAY_MS) == 1000
    assert len(hands.said) == 1
    assert hands.said == [ClockJumped(30 * DAY_MS, HOUR_MS)]
    assert hands.passes(HOUR_MS - 1) == HOUR_MS - 1
    assert hands.passes(1) == 1 + 30 * DAY_MS
    assert hands.age_clock.wall_ms() == hands.wall_ms()
    assert len(hands.said) == 1


def test_a_jump_that_is_corrected_in_time_never_was() -> None:
    hands = Hands()
    hands.passes(1000, leap_ms=30 * DAY_MS)
    assert hands.passes(1000, leap_ms=-30 * DAY_MS) == 1000
    assert hands.passes(2 * HOUR_MS) == 2 * HOUR_MS
    assert hands.age_clock.wall_ms() == hands.wall_ms()


def test_a_jump_in_several_steps_is_doubted_as_a_whole() -> None:
    hands = Hands()
    assert sum(hands.passes(10, leap_ms=DAY_MS) for _ in range(9)) == 90
    assert hands.passes(10, leap_ms=-DAY_MS) == 10
    assert hands.wall_ms() - hands.age_clock.wall_ms() == 8 * DAY_MS


def test_a_jump_back_is_believed_at_once_and_its_correction_too() -> None:
    hands = Hands()
    assert hands.passes(10, leap_ms=-5 * DAY_MS) == 10 - 5 * DAY_MS
    assert hands.passes(10, leap_ms=5 * DAY_MS) == 10 + 5 * DAY_MS, "it is where it was"
    assert hands.said == []
    hands.passes(10, leap_ms=-5 * DAY_MS)
    assert hands.passes(10, leap_ms=6 * DAY_MS) == 10 + 5 * DAY_MS, "what goes beyond that is a jump forwards"
    assert len(hands.said) == 1
