"""How long turns of the event loop and jobs of its threads take: integers that are added up, for `metrics`."""

from dataclasses import dataclass

from skidway.runtime.distribution import FINE_US, Distribution
from skidway.runtime.jobs import Lane


@dataclass(slots=True)
class Durations:
    count: int = 0
    total_ns: int = 0
    longest_ns: int = 0

    def add(self, took_ns: int) -> None:
        self.count += 1
        self.total_ns += took_ns
        if took_ns > self.longest_ns:
            self.longest_ns = took_ns


class ShellMeasures:
    """Written by the event loop only."""

    __slots__ = ("jobs", "syncs", "turns")

    def __init__(self) -> None:
        self.turns = Durations()
        """From the first work of a turn to the end of it."""
        self.jobs = {lane: Durations() for lane in Lane}
        """For as long as a thread ran them. Those of lane SYNC are syncs."""
        self.syncs = Distribution(FINE_US)

    def job_took(self, lane: Lane, took_ns: int) -> None:
        self.jobs[lane].add(took_ns)
        if lane is Lane.SYNC:
            self.syncs.add(took_ns // 1_000)
