"""What the hosts of machines report of the world around them: for the operators' log."""

from msgspec import Struct


class ClockJumped(Struct, frozen=True):
    """The wall clock is suddenly ahead: nothing is deleted by age for a while."""

    leap_ms: int
    wait_ms: int


RuntimeNews = ClockJumped
