"""What the hosts of machines report of the world around them: for the operators' log."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class ClockJumped:
    """The wall clock is suddenly ahead: nothing is deleted by age for a while."""

    leap_ms: int
    wait_ms: int


RuntimeNews = ClockJumped
