"""What one room of a node reports, told to the others that it concerns. Rooms do not know each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skidway.broker.cluster.peers import Peers
from skidway.broker.composition import Rooms
from skidway.broker.counts import Counts
from skidway.broker.events import LastRunNotRemoved, ListenerMissing, WritesStopped
from skidway.broker.last_run import LastRun
from skidway.broker.partitions.lost_copies import MissingCopy
from skidway.broker.partitions.news import FilesChanged
from skidway.broker.partitions.partition import Partition
from skidway.broker.partitions.waiting import Waiting
from skidway.broker.world import World
from skidway.errors import NotLeaderOrFollower, ProtocolError, StorageError
from skidway.limits import Limits
from skidway.log.logs import Logs
from skidway.metadata.image import Image
from skidway.replica.role import PartitionRole
from skidway.runtime.timers import Timer
from skidway.wire.message import Message

RETRY_MS = 1_000
"""So long after a partition could not be opened for a reason that may pass (too many open files) it is tried again."""


class Relay:
    rooms: Rooms
    """They are made with the relay at hand, so it gets them afterwards."""

    def __init__(
        self,
        world: World,
        counts: Counts,
        waiting: Waiting,
        peers: Peers,
        logs: Logs,
        last_run: LastRun,
        on_limits: Callable[[Limits], None],
    ) -> None:
        self._world = world
        self._settings = world.settings
        self._counts = counts
        self.waiting = waiting
        self._peers = peers
        self._logs = logs
        self._last_run = last_run
        self._on_limits = on_limits
        """Bounds were changed at run time."""
        self._retry_timer: Timer | None = None

    # Syncs.

    def fail(self, reason: str) -> None:
        """A failed sync is final: what the kernel did with the pages, nobody can tell. Reads go on."""
        if self._world.failure is not None:
            return
        self._world.failure = reason
        self._world.report(WritesStopped(reason))
        if not self._last_run.forget():
            self._world.report(LastRunNotRemoved())
        rooms, error = self.rooms, StorageError(reason)
        rooms.followers.stop()
        rooms.quorum.fail(reason)
        rooms.hosting.fail(reason)
        for partition in rooms.hosting.partitions:
            self.waiting.refuse(partition, error)
        rooms.controllers.lose(error)
        for coordinators in rooms.coordinators.values():
            coordinators.fail(error)

    def on_settled(self) -> None:
        """A partition that is being opened had its first sync."""
        self.rooms.start.open_more_soon()

    def on_stored(self, partition: Partition) -> None:
        """Something of it was synced."""
        deletions = self.waiting.deletions
        self.rooms.upkeep.on_stored(partition, start_awaited=partition in deletions)
        if deletions:
            deletions.wake(partition, partition.low_watermark)
        self.rooms.followers.on_stored(partition)

    def on_starts_saved(self) -> None:
        """The files that say where logs begin were written."""
        self.waiting.look_at_deletions()
        self.rooms.followers.on_starts_saved()
        self._note_opened()

    def on_files_removed(self, partition: Partition, error: FileNotFoundError) -> None:
        """Somebody removed files of a partition that is open. What was written there since is in no file: nobody gets
        an acknowledgement for it, and no later start takes the rest for all there was."""
        if partition.log.failure is not None:
            return
        why = f"{error.filename}: {error.strerror or error}"
        self._world.report(FilesChanged(str(partition), why))
        self.rooms.damaged.found(partition, why)
        partition.fail(why)
        self.waiting.refuse(partition, StorageError(why))
        if (coordinators := self.rooms.coordinators.get(partition.topic)) is not None:
            coordinators.on_removed(partition)

    # The quorum.

    def locate(self, node_id: int, host: str, port: int) -> None:
        if node_id != self._settings.node_id:
            self._peers.locate(node_id, *self._settings.peer_addresses.get(node_id, (host, port)))

    def on_metadata(self, records: Sequence[Message]) -> None:
        """Metadata that is committed."""
        batch = self.rooms.chronicle.before(records) if self.rooms.controller.is_here else None
        self.rooms.metadata_follower.publish(records, self._world.clock.wall_ms())
        if batch is not None:
            batch.after()
        self.rooms.registration.on_metadata()

    def on_metadata_replaced(self, image: Image) -> None:
        """A snapshot of committed metadata, in the place of all that came before."""
        self.rooms.metadata_follower.replace(image, self._world.clock.wall_ms())
        self.rooms.registration.on_metadata()

    def on_quorum_worked(self, now_ms: int) -> None:
        """The leader of the quorum, or what is published, may have changed."""
        self.rooms.controllers.follow_quorum(now_ms)
        self.rooms.controller.follow_quorum(now_ms)

    # Partitions, and the metadata about them.

    def on_started(self) -> None:
        """All partitions are open, but for those that could not be opened yet."""
        self._world.serving = True
        self._note_opened()
        for coordinators in self.rooms.coordinators.values():
            coordinators.start()
        self.rooms.registration.tell()

    def _note_opened(self) -> None:
        """What was torn is cut, in all logs."""
        if self._last_run.has_opened or not self._world.serving or self._logs.found:
            return
        if self._logs.offsets.save_shortened():
            self._last_run.note_opened()

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

    def on_missing(self, copy: MissingCopy, *, was_here: bool) -> None:
        self.rooms.damaged.lost.on_missing(copy, was_here=was_here)
        if not was_here:
            self._retry_later()

    def _retry_later(self) -> None:
        if self._retry_timer is None or not self._retry_timer.armed:
            self._retry_timer = self._world.timers.at(self._world.clock.monotonic_ms() + RETRY_MS, self._retry)

    def _retry(self) -> None:
        if self._world.failure is None and not self.rooms.hosting.retry(self._world.clock.wall_ms()):
            self._retry_later()

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
        self._counts.former_traffic.add(partition.traffic)

    def on_brokers_changed(self) -> None:
        self.waiting.look_at_deletions()
        listener = self._settings.listeners.inter_broker.name
        for broker in self.rooms.hosting.image.brokers.values():
            if (endpoint := broker.endpoint(listener)) is not None:
                self.locate(broker.id, endpoint.host, endpoint.port)
            elif not broker.fenced and broker.id != self._settings.node_id:
                self._world.report(ListenerMissing(broker.id, listener))

    def on_topics_changed(self, deleted: list[str]) -> None:
        for coordinators in self.rooms.coordinators.values():
            coordinators.on_topics_changed(deleted, self._world.clock.monotonic_ms())

    def on_limits_changed(self, limits: Limits) -> None:
        self._world.limits = self.rooms.reads.limits = limits
        self._on_limits(limits)
