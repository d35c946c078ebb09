"""One node: its life, and what one of its rooms reports to the others. It owns no socket, no thread and no clock.

The shell calls in: `connect` for a new peer, `end_turn` at the end of a turn in which work was done, `done` of a job
when a worker has run it, `on_time` when `deadline_ms` has come. The node calls out only through `on_work` (there is
something for `end_turn`), a connection's `on_ready` (there is something to send) and `report` (for operators).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skidway.broker.api.connection import Connection
from skidway.broker.api.router import Routes
from skidway.broker.api.table import rows_of
from skidway.broker.cluster.peers import Peers
from skidway.broker.cluster.quorum_host import QuorumHost
from skidway.broker.composition import Ground, Rooms
from skidway.broker.counts import Counts
from skidway.broker.events import FirstStart, LastRunNotRemoved, ListenerMissing, Report, WritesStopped
from skidway.broker.identity import PATH as IDENTITY
from skidway.broker.identity import Identity, load_identity
from skidway.broker.last_run import LastRun
from skidway.broker.partitions.catalog import Partitions
from skidway.broker.partitions.news import FilesChanged
from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.waiting import Waiting
from skidway.broker.settings import NodeSettings
from skidway.broker.start import Run, StartAlone, open_logs
from skidway.broker.turn import TurnNotes
from skidway.broker.world import World
from skidway.errors import (
    NotLeaderOrFollower,
    ProtocolError,
    StorageError,
)
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.log.compaction.cleaning import Compactor, DirectCompactor
from skidway.metadata.image import Image
from skidway.ports import Clock, Disk, Loggers, Random
from skidway.replica.role import PartitionRole
from skidway.runtime.age_clock import AgeClock
from skidway.runtime.jobs import Job
from skidway.runtime.slices import Slices
from skidway.runtime.timers import Timers
from skidway.wire.message import Message


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
        )
        self.settings = settings
        self.clock = clock
        self.timers = world.timers
        self._loggers = loggers
        self._compactor = compactor or DirectCompactor(disk)
        self.on_limits: Callable[[Limits], None] = lambda limits: None
        """Bounds were changed at run time, some of which the shell obeys."""
        self.routes = Routes(limits.request_elements_max, rows_of(settings))
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
        self.rooms = rooms = Rooms(self._ground(identity), wall_ms)
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
            above=self,
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
        known = self.serving or self.logs.clean
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
    def controller_id(self) -> int:
        return self.rooms.controller.node_id

    @property
    def broker_epoch(self) -> int:
        return self.rooms.registration.epoch

    @property
    def opening(self) -> bool:
        """Whether partitions are being opened."""
        return self.rooms.hosting.begun and not self.rooms.hosting.started

    @property
    def serving(self) -> bool:
        """Whether clients may come: metadata is known and partitions are open."""
        return self.rooms.services.serving

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
        while turn.calls or turn.moved:
            for act in turn.take_calls():
                act(self.clock.monotonic_ms())
            for partition, added_bytes, stable_bytes in turn.take_moved():
                self._wake(partition, added_bytes, stable_bytes)
        if turn.grown or rooms.replica_polls.woken:
            rooms.replica_polls.wake(turn.take_grown())
        if rooms.hosting.backlog.steps and rooms.hosting.backlog.work():
            world.on_work()
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

    def _wake(self, moved: Partition, added_bytes: int, stable_bytes: int) -> None:
        rooms, waiting = self.rooms, self.waiting
        if (coordinators := rooms.coordinators.get(moved.topic)) is not None:
            coordinators.on_committed(moved)
        waiting.wake(moved, added_bytes, stable_bytes)
        rooms.replica_polls.note(moved)

    # --- what rooms report: syncs ---

    def fail(self, reason: str) -> None:
        """A failed sync is final: what the kernel did with the pages, nobody can tell. Reads go on."""
        if self.failure is not None:
            return
        self.world.failure = reason
        self.world.report(WritesStopped(reason))
        if not self.last_run.forget():
            self.world.report(LastRunNotRemoved())
        rooms, error = self.rooms, StorageError(reason)
        rooms.followers.stop()
        rooms.quorum.fail(reason)
        rooms.hosting.fail(reason)
        for partition in self.partitions:
            self.waiting.refuse(partition, error)
        rooms.controllers.lose(error)
        for coordinators in rooms.coordinators.values():
            coordinators.fail(error)

    def on_settled(self) -> None:
        """A partition that is being opened had its first sync."""
        self.rooms.start.open_more_soon()

    def on_stored(self, partition: Partition) -> None:
        """Something of it was synced."""
        log = partition.log
        if log.synced_offset < log.start_offset and not partition.removed:
            # Where it begins is only believed after a crash when everything below is synced.
            self.turn.wants_sync(partition)
        if deletions := self.waiting.deletions:
            deletions.wake(partition, partition.low_watermark)
        self.rooms.followers.on_stored(partition)

    def on_starts_saved(self) -> None:
        """The files that say where logs begin were written."""
        self.waiting.look_at_deletions()
        self.rooms.followers.on_starts_saved()

    def on_files_removed(self, partition: Partition, error: FileNotFoundError) -> None:
        """Somebody removed files of a partition that is open. What was written there since is in no file: nobody gets
        an acknowledgement for it, and no later start takes the rest for all there was."""
        if partition.log.failure is not None:
            return
        why = f"{error.filename}: {error.strerror or error}"
        self.world.report(FilesChanged(str(partition), why))
        self.rooms.damaged.found(partition, why)
        partition.fail(why)
        self.waiting.refuse(partition, StorageError(why))
        if (coordinators := self.rooms.coordinators.get(partition.topic)) is not None:
            coordinators.on_removed(partition)

    # --- what rooms report: the quorum ---

    def locate(self, node_id: int, host: str, port: int) -> None:
        if node_id != self.settings.node_id:
            self.peers.locate(node_id, *self.settings.peer_addresses.get(node_id, (host, port)))

    def on_metadata(self, records: Sequence[Message]) -> None:
        """Metadata that is committed."""
        batch = self.rooms.chronicle.before(records) if self.rooms.controller.is_here else None
        self.rooms.metadata_follower.publish(records, self.clock.wall_ms())
        if batch is not None:
            batch.after()
        self.rooms.registration.on_metadata()

    def on_metadata_replaced(self, image: Image) -> None:
        """A snapshot of committed metadata, in the place of all that came before."""
        self.rooms.metadata_follower.replace(image, self.clock.wall_ms())
        self.rooms.registration.on_metadata()

    def on_quorum_worked(self, now_ms: int) -> None:
        """The leader of the quorum, or what is published, may have changed."""
        self.rooms.controllers.follow_quorum(now_ms)

    # --- what rooms report: partitions, and the metadata about them ---

    def on_started(self) -> None:
        """All partitions are open."""
        if self.logs.save_shortened():
            self.last_run.note_opened()
        for coordinators in self.rooms.coordinators.values():
            coordinators.start()
        self.rooms.registration.tell()

    def on_role_changed(self, partition: Partition) -> None:
        """It has another leader, or its leader a new epoch."""
        rooms, waiting = self.rooms, self.waiting
        if not partition.leads:
            led_by = partition.role.leader
            waiting.refuse(partition, NotLeaderOrFollower(f"{partition} is led by node {led_by} now"))
        waiting.disturb_polls(partition)
        rooms.replica_polls.disturb(partition)
        if (coordinators := rooms.coordinators.get(partition.topic)) is not None:
            coordinators.on_role_changed(partition)
        rooms.damaged.on_role_changed(partition)
        rooms.followers.on_role_changed(partition)

    def on_replicas_changed(self, partition: Partition, before: PartitionRole) -> None:
        self.rooms.in_sync.on_metadata(partition, before)

    def on_removed(self, partition: Partition, why: ProtocolError) -> None:
        rooms, waiting = self.rooms, self.waiting
        waiting.refuse(partition, why)
        waiting.disturb_polls(partition)
        rooms.replica_polls.forget(partition)
        rooms.followers.on_removed(partition)
        rooms.damaged.on_removed(partition)
        if (coordinators := rooms.coordinators.get(partition.topic)) is not None:
            coordinators.on_removed(partition)
        rooms.compactions.on_removed(partition)
        self.counts.former_traffic.add(partition.traffic)

    def on_brokers_changed(self) -> None:
        self.waiting.look_at_deletions()
        listener = self.settings.listeners.inter_broker.name
        for broker in self.image.brokers.values():
            if (endpoint := broker.endpoint(listener)) is not None:
                self.locate(broker.id, endpoint.host, endpoint.port)
            elif not broker.fenced and broker.id != self.settings.node_id:
                self.world.report(ListenerMissing(broker.id, listener))

    def on_topics_changed(self, deleted: list[str]) -> None:
        for coordinators in self.rooms.coordinators.values():
            coordinators.on_topics_changed(deleted, self.clock.monotonic_ms())

    def on_limits_changed(self, limits: Limits) -> None:
        self.world.limits = self.rooms.reads.limits = limits
        self.on_limits(limits)
