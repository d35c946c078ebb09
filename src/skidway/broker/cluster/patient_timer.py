"""A deadline at which this node stops waiting for others.

A timer that fires much too late says that this node was busy or stopped, not that the others were silent: what they
said meanwhile is still in its sockets. So a late timer waits a moment more, once, and then acts. Whatever is read in
that moment neither ends the wait early nor starts it again: a node that others ask all the time must act as well.
"""

from collections.abc import Callable

from skidway.ports import Clock
from skidway.runtime.timers import Timer, Timers

STALL_MS = 100
"""A timer that fires later than this is late."""


class PatientTimer:
    __slots__ = ("_act", "_clock", "_listening", "_timer", "_timers")

    def __init__(self, timers: Timers, clock: Clock, act: Callable[[int], None]) -> None:
        """`act` gets the time. It looks by itself what is due: it may be called early."""
        self._timers = timers
        self._clock = clock
        self._act = act
        self._timer: Timer | None = None
        self._listening = False
        """The timer fired late, and others are heard first."""

    def arm(self, deadline_ms: int) -> None:
        """Only moves the deadline nearer: acting too early does no harm."""
        timer = self._timer
        if timer is not None and timer.armed:
            if self._listening or timer.deadline_ms <= deadline_ms:
                return
            timer.cancel()
        self._timer = self._timers.at(deadline_ms, lambda: self._fire(deadline_ms))

    def cancel(self) -> None:
        self._listening = False
        if self._timer is not None:
            self._timer.cancel()

    def _fire(self, due_ms: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms - due_ms > STALL_MS:
            self._listening = True
            self._timer = self._timers.at(now_ms + STALL_MS, self._act_late)
        else:
            self._act(now_ms)

    def _act_late(self) -> None:
        self._listening = False
        self._act(self._clock.monotonic_ms())
