"""What every room of a node needs of its surroundings: settings, clocks, timers, the disk, and whom to tell.

A node makes one and gives it to its rooms. Whatever else a room needs, its constructor names.
"""

from collections.abc import Callable

import msgspec

from skidway.broker.events import Report
from skidway.broker.settings import NodeSettings
from skidway.limits import Limits
from skidway.ports import Clock, Disk, Random, Zones
from skidway.runtime.age_clock import AgeClock
from skidway.runtime.jobs import Job
from skidway.runtime.slices import Slices
from skidway.runtime.timers import Timers
from skidway.schedules.next_time import NoZones


class World(msgspec.Struct, kw_only=True, eq=False):
    settings: NodeSettings
    disk: Disk
    clock: Clock
    age_clock: AgeClock
    """For what is deleted by its age: does not follow a wall clock that jumps."""
    random: Random
    timers: Timers
    slices: Slices
    limits: Limits
    """The latest: some of them may be changed at run time."""
    report: Report
    on_work: Callable[[], None]
    """There is something to do at the end of the turn. The shell sets it."""
    zones: Zones = msgspec.field(default_factory=NoZones)
    failure: str | None = None
    """Why nothing is written any more: a sync of the data directory failed. Reads go on."""
    serving: bool = False
    """Whether clients may come: metadata is known and partitions are open. Asked for every request."""
    jobs: list[Job] = msgspec.field(default_factory=list)
    """For workers, handed out at the end of the turn, beside the syncs that are wanted then."""

    def hand_out(self, job: Job) -> None:
        self.jobs.append(job)
        self.on_work()
