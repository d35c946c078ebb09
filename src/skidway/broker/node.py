"""One node: its life, and what the shell sees of it. It owns no socket, no thread and no clock.

The shell calls in: `connect` for a new peer, `end_turn` at the end of a turn in which work was done, `done` of a job
when a worker has run it, `on_time` when `deadline_ms` has come. The node calls out only through `on_work` (there is
something for `end_turn`), a connection's `on_ready` (there is something to send) and `report` (for operators).
"""

from __future__ import annotations

from collections.abc import Callable

from skidway.broker.api.connection import Connection
from skidway.broker.api.router import Routes
from skidway.broker.api.table import SERVED
from skidway.broker.cluster.peers import Peers
from skidway.broker.cluster.quorum_host import QuorumHost
from skidway.broker.composition import Ground, Rooms
from skidway.broker.counts import Counts
from skidway.broker.events import FirstStart, Report
from skidway.broker.identity import PATH as IDENTITY
from skidway.broker.identity import Identity, load_identity
from skidway.broker.last_run import LastRun
from skidway.broker.partitions.catalog import Partitions
from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.waiting import Waiting
from skidway.broker.relay import Relay
from skidway.broker.settings import NodeSettings
from skidway.broker.start import Run, StartAlone, open_logs
from skidway.broker.world import World
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.log.compaction.cleaning import Compactor, DirectCompactor
from skidway.metadata.image import Image
from skidway.ports import Clock, Disk, Loggers, Random, Zones
from skidway.runtime.age_clock import AgeClock
from skidway.runtime.jobs import Job
from skidway.runtime.slices import Slices
from skidway.runtime.timers import Timers
from skidway.runtime.turn import TurnNotes
from skidway.schedules.next_time import UTC_ALONE


def _no_shell() -> None:
    pass


class Node:
    def __init__(
        self,
        settings: NodeSettings,
        disk: Disk,
        clock: Clock,
        random: Random,
        limits: Limits = DEFAULT_LIMITS,
        compactor: Compactor | None = None,
        report: Report = lambda event: None,
        loggers: Loggers | None = None,
        zones: Zones = UTC_ALONE,
    ) -> None:
        """`report` gets what operators want to know."""
        self.counts = Counts()
        report = self.counts.counted(report)
        self.world = world = World(
            settings=settings,
            disk=disk,
            clock=clock,
            age_clock=AgeClock(clock, limits.clock_jump_wait_ms, report),
            random=random,
            timers=Timers(),
            slices=Slices(clock, lambda: world.on_work()),
            limits=limits,
            report=report,
            on_work=_no_shell,
            zones=zones,
        )
        world.serving = not settings.is_broker
        self.settings = settings
        self.clock = clock
        self.timers = world.timers
        self._loggers = loggers
        self._compactor = compactor or DirectCompactor(disk)
        self.on_limits: Callable[[Limits], None] = lambda limits: None
        """Bounds were changed at run time, some of which the shell obeys."""
        self.routes = Routes(limits.request_elements_max, SERVED)
        self.peers = Peers(f"node-{settings.node_id}", self.timers, limits, report)
        self.turn: TurnNotes[Partition] = TurnNotes(lambda: world.on_work())
        self.waiting = Waiting(self.timers)

    # --- life ---

    def open(self, now_ms: int, wall_ms: int, run: Run | None = None) -> None:
        """Recover what is on the disk, take part in the cluster; `run` may do the jobs it gets side by side.

        A node that is a quorum of its own serves when this returns; any other as soon as the cluster has taken it in.
        """
        world, settings = self.world, self.settings
        self.last_run = LastRun(world.disk)
        is_new = not world.disk.exists(IDENTITY)
        identity = load_identity(
            world.disk, world.random, settings.node_id, settings.cluster_id, settings.initial_cluster_id
        )
        self.cluster_id = identity.cluster_id
        if is_new:
            world.report(FirstStart(settings.node_id, identity.cluster_id, alone=not settings.voters))
        self.logs = open_logs(world, self.last_run)
        self.relay = relay = Relay(
            world,
            self.counts,
            self.waiting,
            self.peers,
            self.logs,
            self.last_run,
            lambda limits: self.on_limits(limits),
        )
        self.rooms = relay.rooms = rooms = Rooms(self._ground(identity), wall_ms)
        rooms.quorum.start()
        if rooms.quorum.alone:
            StartAlone(
                world,
                identity,
                self.logs,
                rooms.hosting,
                rooms.quorum,
                rooms.controller,
                rooms.registration,
                rooms.syncs,
                rooms.start,
                self.end_turn,
            ).open(now_ms, run)
        rooms.upkeep.start(now_ms)
        rooms.scrubbing.start(now_ms)
        rooms.in_sync.start(now_ms)
        if settings.is_broker:
            rooms.registration.start()

    def _ground(self, identity: Identity) -> Ground:
        return Ground(
            world=self.world,
            counts=self.counts,
            turn=self.turn,
            waiting=self.waiting,
            routes=self.routes,
            peers=self.peers,
            loggers=self._loggers,
            compactor=self._compactor,
            identity=identity,
            last_run=self.last_run,
            logs=self.logs,
            above=self.relay,
        )

    def maintain(self, now_ms: int, wall_ms: int) -> None:
        """Called now and then: compaction, retention and checkpoints, if they are due."""
        self.rooms.compactions.run(now_ms, self.world.age_clock.wall_ms())
        self.rooms.upkeep.run(now_ms, wall_ms)

    def leave(self, now_ms: int) -> None:
        """About to stop: have others lead what this node leads. It serves on until `departed`."""
        self.rooms.registration.leave()

    @property
    def departed(self) -> bool:
        return self.rooms.registration.departed

    def begin_stop(self, now_ms: int) -> None:
        """Nobody waits any longer for what may come: long polls are answered with what there is."""
        rooms = self.rooms
        rooms.quorum.resign(now_ms)
        rooms.hosting.stop()
        rooms.compactions.stop()
        rooms.scrubbing.stop()
        rooms.followers.stop()
        for partition in self.partitions:
            self.waiting.disturb_polls(partition)
            rooms.replica_polls.disturb(partition)

    def close(self, clean: bool, run: Run | None = None) -> None:
        """Stop for good. `clean`: with everything on the disk and the marker that says so; `run` may do the jobs it
        gets side by side."""
        # Logs that were not opened were not recovered either: after a crash nobody may believe them yet.
        known = (self.serving and not self.logs.found) or self.logs.clean
        sound = self.failure is None and not self.last_run.sync_failed
        broker_epoch = self.broker_epoch if self.broker_epoch >= 0 else self.logs.clean_epoch
        self.logs.close(clean=clean and known and sound, run=run, broker_epoch=broker_epoch)

    # --- what is known ---

    @property
    def image(self) -> Image:
        return self.rooms.hosting.image

    @property
    def partitions(self) -> Partitions:
        return self.rooms.hosting.partitions

    @property
    def quorum(self) -> QuorumHost:
        return self.rooms.quorum

    @property
    def limits(self) -> Limits:
        return self.world.limits

    @property
    def failure(self) -> str | None:
        """Why nothing is written any more: a sync of the data directory failed."""
        return self.world.failure

    @property
    def controls(self) -> bool:
        """Whether the active controller is here."""
        return self.rooms.controller.is_here

    @property
    def broker_epoch(self) -> int:
        return self.rooms.registration.epoch

    @property
    def opening(self) -> bool:
        """Whether partitions are being opened."""
        return self.rooms.hosting.begun and not self.rooms.hosting.started

    @property
    def serving(self) -> bool:
        return self.world.serving

    # --- what the shell calls ---

    def connect(self, peer: str, listener: str) -> Connection:
        return Connection(self.rooms.services, peer, listener)

    @property
    def on_work(self) -> Callable[[], None]:
        """There is something for `end_turn`. The shell sets it."""
        return self.world.on_work

    @on_work.setter
    def on_work(self, on_work: Callable[[], None]) -> None:
        self.world.on_work = on_work

    @property
    def deadline_ms(self) -> int | None:
        return self.timers.deadline_ms

    @property
    def has_long_work(self) -> bool:
        """Whether requests are worked on that take more than one turn. Those that only wait for an answer are not."""
        return self.world.slices.under_way > self.world.slices.asking

    def on_time(self, now_ms: int) -> None:
        self.timers.fire(now_ms)

    def end_turn(self) -> list[Job]:
        """Answer who waited for what has moved in this turn, and hand out the work that is for a thread."""
        world, rooms, turn, slices = self.world, self.rooms, self.turn, self.world.slices
        if slices.under_way:
            slices.run()
        self._answer_moved()
        if rooms.hosting.backlog.steps:
            if rooms.hosting.backlog.work():
                world.on_work()
            # Markers are written there: who waits to read what they commit need not wait for another turn.
            self._answer_moved()
        if turn.grown or rooms.replica_polls.woken:
            rooms.replica_polls.wake(turn.take_grown())
        jobs = slices.take_jobs() if slices.under_way else []
        if world.failure is not None:
            turn.take_unsynced()
            return jobs
        if world.disk.files_short:
            rooms.upkeep.spare_files(self.clock.monotonic_ms())
        if rooms.upkeep.passes:
            rooms.upkeep.go_on()
        if world.jobs:
            jobs += world.jobs
            world.jobs.clear()
        if turn.unsynced:
            jobs += rooms.syncs.take_jobs()
        return jobs

    def _answer_moved(self) -> None:
        turn = self.turn
        while turn.calls or turn.moved:
            if turn.calls:
                for act in turn.take_calls():
                    act(self.clock.monotonic_ms())
            for partition, added_bytes, stable_bytes in turn.take_moved():
                self._wake(partition, added_bytes, stable_bytes)

    def _wake(self, moved: Partition, added_bytes: int, stable_bytes: int) -> None:
        rooms, waiting = self.rooms, self.waiting
        if (coordinators := rooms.coordinators.get(moved.topic)) is not None:
            coordinators.on_committed(moved)
        waiting.acknowledgements.wake(moved, moved.log.high_watermark)
        waiting.wake_polls(moved, added_bytes, stable_bytes)
        rooms.replica_polls.note(moved)
