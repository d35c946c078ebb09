"""The partitions this node hosts: opened, given their roles, and closed.

A partition is opened when this node becomes one of its replicas, leads or follows as its leader changes, and is closed
when its topic is removed or this node is no replica of it any more; then its files are removed. `metadata_follower`
calls for all that, and `lives` keeps the state of each partition.

Making and removing files takes about a millisecond for each partition, and a topic may have thousands. So these steps
wait in a backlog: every turn takes some of them, and the client that asked is answered after the last. A start opens
what is here in the same way (`opening`), and metadata is followed meanwhile. A log that a crash left in memory only is
synced by a worker before the partition takes part in anything.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

from skidway.broker.events import Report
from skidway.broker.partitions.catalog import Partitions
from skidway.broker.partitions.found_logs import FoundLogs
from skidway.broker.partitions.lives import Lives, Opening, Settling
from skidway.broker.partitions.lost_copies import MissingCopy
from skidway.broker.partitions.news import PartitionOffline, PartitionOpened, PartitionQuarantined
from skidway.broker.partitions.opening import OpeningAtStart
from skidway.broker.partitions.partition import Partition, log_settings
from skidway.broker.partitions.producer_budget import ProducerBudget
from skidway.broker.partitions.topic_settings import TopicSettings
from skidway.broker.partitions.whereabouts import Whereabouts
from skidway.broker.settings import NodeSettings
from skidway.errors import NotLeaderOrFollower, ProtocolError, StorageError, UnknownTopicOrPartition
from skidway.limits import Limits
from skidway.log.directories import directory_name
from skidway.log.durability.sync import NO_DESCRIPTORS, SyncTicket
from skidway.log.health import DiskRefusal, Reason, reason_of
from skidway.log.log import Log
from skidway.log.logs import Logs
from skidway.log.recovery import settling
from skidway.metadata.image import Image, Topic
from skidway.metadata.topic_configs import TopicConfig
from skidway.ports import Clock
from skidway.replica.news import DirectoryMissing, LogCut
from skidway.replica.role import PartitionRole
from skidway.runtime.backlog import Backlog
from skidway.runtime.turn import TurnNotes


class Observer(Protocol):
    """Who acts on what happens to partitions, and to the metadata about them."""

    def on_started(self) -> None:
        """Everything that was here at the start is open."""
        ...

    def on_role_changed(self, partition: Partition) -> None:
        """It has another leader, or its leader a new epoch."""
        ...

    def on_replicas_changed(self, partition: Partition, before: PartitionRole) -> None:
        """This node leads it as before, with other replicas or others in sync."""
        ...

    def on_missing(self, copy: MissingCopy, *, was_here: bool) -> None:
        """It could not be opened. `was_here`: it was before, and nothing that passes by itself is known to be why."""
        ...

    def on_removed(self, partition: Partition, why: ProtocolError) -> None:
        """It is out of service here; its files go when no worker is at them."""
        ...

    def on_brokers_changed(self) -> None: ...

    def on_topics_changed(self, deleted: list[str]) -> None:
        """Topics were created or got more partitions, and these were deleted."""
        ...

    def on_limits_changed(self, limits: Limits) -> None:
        """Bounds were changed at run time."""
        ...


class Hosting:
    def __init__(
        self,
        settings: NodeSettings,
        limits: Limits,
        logs: Logs,
        turn: TurnNotes[Partition],
        clock: Clock,
        observer: Observer,
        report: Report,
    ) -> None:
        self._node_id = settings.node_id
        self._lag_ms = settings.replica_lag_ms
        self._logs = logs
        self.turn = turn
        self._clock = clock
        self._observer = observer
        self._report = report
        self.image = Image()
        self.lives = Lives()
        self.partitions = Partitions(self.image, self.lives.why_missing)
        self.backlog = Backlog(clock, turn.on_work)
        self.topic_settings = TopicSettings(settings, limits, self.image, logs, observer.on_limits_changed)
        self.whereabouts = Whereabouts(settings.node_id, self.image, self.partitions)
        self.producer_budget = ProducerBudget(limits.producers_max, self.partitions)
        self._found = FoundLogs(logs, self.image, self.whereabouts, clock, report)
        self.opening: OpeningAtStart | None = None
        """Since `start`."""
        self._retrying = False
        self.failure: str | None = None
        """Why nothing is written any more."""

    # The start.

    @property
    def begun(self) -> bool:
        """Whether partitions are opened; metadata is followed by them."""
        return self.opening is not None

    @property
    def started(self) -> bool:
        """Whether everything that was here at the start is open."""
        return self.opening is not None and self.opening.done

    def start(self) -> None:
        """Begin to open everything the image says is here; `open_some` goes on with it until `started`."""
        self.topic_settings.on_changed()
        keys = [
            (topic.id, partition.index)
            for topic in self.image.topics.values()
            for partition in topic.partitions
            if self.whereabouts.is_here(topic, partition.index)
        ]
        for key in keys:
            self.lives.open_later(key)
        self.opening = OpeningAtStart(
            keys, self._open_expected, self._found, self.lives, self._clock, self._observer.on_started
        )

    def _open_expected(self, topic_id: bytes, index: int) -> None:
        self._open_now(topic_id, index, self._clock.wall_ms(), expected=True)

    def open_some(self) -> bool:
        """Open partitions for a while; true if there are more that wait for nothing but a turn."""
        return self.opening is not None and self.opening.go_on()

    def stop(self) -> None:
        """Open nothing more."""
        if self.opening is not None:
            self.opening.stopped = True

    # What the metadata says.

    def follow(self, topic: Topic, index: int, unclean: bool, wall_ms: int) -> None:
        """The metadata says something new about a partition: open it, give it its role, or close it."""
        partition = self.partitions.get(topic.id, index)
        here = self.whereabouts.is_here(topic, index)
        if partition is None:
            if here and not self._is_coming(topic, index):
                self._open_later(topic.id, index, wall_ms)
        elif here:
            self._take_role(partition, self.whereabouts.role_of(topic, index, unclean))
        else:
            self.partitions.remove(partition)
            self._close(partition, NotLeaderOrFollower(f"{partition} has moved to other nodes"), wall_ms)

    def remove_topic(self, topic_id: bytes, wall_ms: int) -> None:
        self.topic_settings.on_topic_removed()
        if not self.started:
            self._found.on_topic_removed(topic_id)
        for partition in self.partitions.remove_topic(topic_id):
            self._close(partition, UnknownTopicOrPartition(f"{partition} was deleted"), wall_ms)

    def _is_coming(self, topic: Topic, index: int) -> bool:
        if isinstance(self.lives.absence(topic.id, index), Opening):
            return True
        life = self.lives.present_at(topic.name, index)
        return isinstance(life, Settling) and life.partition.topic_id == topic.id

    def _take_role(self, partition: Partition, role: PartitionRole) -> None:
        before, now_ms = partition.role, self._clock.monotonic_ms()
        if role.leader == self._node_id:
            partition.lead(role, now_ms)
        else:
            partition.follow(role, now_ms)
        if (role.leader, role.leader_epoch) != (before.leader, before.leader_epoch) or partition.log.quarantined:
            self._observer.on_role_changed(partition)
        elif partition.leads and role.partition_epoch != before.partition_epoch:
            self._observer.on_replicas_changed(partition, before)

    # What the disk says.

    def fail(self, reason: str) -> None:
        """The data directory takes no more writes: what is not synced yet never will be."""
        self.failure = reason
        for partition in self.partitions:
            partition.fail(reason)
        for life in self.lives.settling:
            self._settled(life, DiskRefusal(reason))

    def retry(self, wall_ms: int) -> bool:
        """Try again what the disk refused, some of it in every turn. False: the last time is not over yet."""
        if self._retrying:
            return False
        for partition in self.lives.removing:
            self.backlog.later(partial(self.finish_removal, partition, wall_ms))
        for topic_id, index in self.lives.missing:
            if not isinstance(self.lives.absence(topic_id, index), Opening):
                self._open_later(topic_id, index, wall_ms)
        self._retrying = True
        self.backlog.when_done(self._on_retried)
        return True

    def _on_retried(self) -> None:
        self._retrying = False

    # Opening.

    def _open_later(self, topic_id: bytes, index: int, wall_ms: int) -> None:
        self.lives.open_later((topic_id, index))
        self.backlog.later(partial(self._open_now, topic_id, index, wall_ms))

    def _open_now(self, topic_id: bytes, index: int, wall_ms: int, *, expected: bool = False) -> None:
        """If it still should be. `expected`: it was here before."""
        if self.lives.absence(topic_id, index) is None:
            return  # its directory became free meanwhile, and it was opened then
        topic = self.image.topics_by_id.get(topic_id)
        if topic is None:
            self.lives.forget((topic_id, index))
        else:
            self._open(topic, index, wall_ms, expected=expected)

    def _open(self, topic: Topic, index: int, wall_ms: int, *, expected: bool = False) -> None:
        if not self.whereabouts.is_here(topic, index):
            self.lives.forget((topic.id, index))
            return
        config = self.topic_settings.of(topic.name)
        expected = expected or self.lives.was_expected(topic.id, index)
        try:
            log = self._open_log(topic, index, config, wall_ms, expected=expected)
            for cut in log.cuts:
                self._report(LogCut(log.directory, cut))
            self._begin(log, topic, index)
        except (StorageError, OSError) as error:
            self._miss(topic, index, error, expected=expected)
            return
        if self.lives.why_missing(topic.id, index) is not None:
            self._report(PartitionOpened(f"{topic.name}-{index}"))
        if log.quarantined:
            alone = self.whereabouts.is_only_here(topic, index)
            self._report(PartitionQuarantined(f"{topic.name}-{index}", str(log.failure), alone))
        partition = Partition(
            topic.name,
            topic.id,
            index,
            log,
            config,
            self.turn,
            self._node_id,
            self._lag_ms,
            self.producer_budget,
            self.topic_settings.follower_throttle,
        )
        if settling.is_settled(log):
            self._admit(partition, topic)
            return
        life = self.lives.settle(partition, config)
        self.turn.wants_sync(partition)
        if self.failure is not None:
            self._settled(life, DiskRefusal(self.failure))

    def _open_log(self, topic: Topic, index: int, config: TopicConfig, wall_ms: int, *, expected: bool) -> Log:
        place = (topic.name, index)
        if self.lives.present_at(*place) is not None:
            raise StorageError("a deleted topic of the same name is still being removed")
        if place in self._found:
            self._found.sort_out(*place)
        committed = self._logs.committed_in(*place, topic.id)
        if expected and place not in self._found and committed > 0:
            # An empty log in its place could be elected, and all others be cut to nothing.
            reason = f"its directory is missing, and everything below {committed} was committed"
            return self._logs.create_missing(*place, topic.id, log_settings(config), wall_ms, reason)
        if expected and place not in self._found and self._node_id in topic.partitions[index].isr:
            self._report(DirectoryMissing(directory_name(*place)))
        # Nobody has what a loss of power takes from the only replica, and flush=os takes that into account.
        may_be_short = config.flush != "sync" and self.whereabouts.is_only_here(topic, index)
        return self._logs.load_or_create(
            *place, topic.id, log_settings(config), wall_ms, sync=False, may_be_short=may_be_short
        )

    def _begin(self, log: Log, topic: Topic, index: int) -> None:
        """Find what is committed. OSError when too many files are open: then the log was not opened."""
        if self.whereabouts.is_only_here(topic, index):
            log.producers.transactions.commit(log.high_watermark)
            return
        if log.quarantined:
            return
        try:
            # What came after may be on no other replica; the leader will tell.
            log.begin_at(self._logs.offsets.watermarks.get((topic.name, index), 0))
        except (StorageError, OSError) as error:
            if isinstance(error, OSError) and error.errno in NO_DESCRIPTORS:
                self._logs.put_back(topic.name, index, topic.id)
                raise
            settling.give_up(log, reason_of(error))

    def _miss(self, topic: Topic, index: int, error: StorageError | OSError, *, expected: bool) -> None:
        """It could not be opened."""
        if self.lives.why_missing(topic.id, index) is None:
            self._report(PartitionOffline(f"{topic.name}-{index}", str(error)))
        self.lives.miss((topic.id, index), str(error), expected=expected)
        was_here = expected and isinstance(error, OSError) and error.errno not in NO_DESCRIPTORS
        self._observer.on_missing(MissingCopy(topic.name, topic.id, index), was_here=was_here)

    def _admit(self, partition: Partition, topic: Topic) -> None:
        self.lives.serve(partition)
        self.partitions.add(partition)
        if self.failure is not None:
            partition.fail(self.failure)
        # Nobody can say any more how its leader came to lead while it was closed.
        self._take_role(partition, self.whereabouts.role_of(topic, partition.index, unclean=True))

    # Settling.

    def on_synced(self, partition: Partition, ticket: SyncTicket, error: OSError | None) -> None:
        """Of a partition that is settling. The node tries again where there were too many open files."""
        life = self.lives.present_at(partition.topic, partition.index)
        assert isinstance(life, Settling), f"{partition} is not settling"
        if error is not None and error.errno in NO_DESCRIPTORS and not ticket.synced:
            partition.give_back_sync(ticket)
            return
        if error is not None and not ticket.synced:
            partition.give_up_sync(ticket)
            self._settled(life, reason_of(error))
            return
        partition.finish_sync(ticket, housekept=error is None)
        if settling.is_settled(partition.log):
            self._settled(life)

    def _settled(self, life: Settling, failure: Reason | None = None) -> None:
        """What a crash left in memory is on the disk, or never will be. The metadata may have gone on meanwhile."""
        partition, index = life.partition, life.partition.index
        if failure is not None:
            settling.give_up(partition.log, failure)
            self._report(PartitionQuarantined(str(partition), str(partition.log.failure), alone=False))
        topic = self.image.topics_by_id.get(partition.topic_id)
        wall_ms = self._clock.wall_ms()
        if topic is None:
            self._close(partition, UnknownTopicOrPartition(f"{partition} was deleted"), wall_ms)
        elif not self.whereabouts.is_here(topic, index):
            self._close(partition, NotLeaderOrFollower(f"{partition} has moved to other nodes"), wall_ms)
        else:
            config = self.topic_settings.of(topic.name)
            if config is not life.config:
                partition.configure(config)
            self._admit(partition, topic)
        if self.opening is not None:
            self.opening.check_done()

    # Closing.

    def _close(self, partition: Partition, why: ProtocolError, wall_ms: int) -> None:
        """Take it out of service; its files go when no worker is at them."""
        self.lives.remove(partition)
        self._observer.on_removed(partition, why)
        self.backlog.later(partial(self.finish_removal, partition, wall_ms))

    def finish_removal(self, partition: Partition, wall_ms: int) -> None:
        """No worker is in its directory any more: it can be renamed, and a topic of the same name take its place."""
        if partition.in_flight or not self.lives.is_removing(partition):
            return
        try:
            self._logs.delete(partition.topic, partition.index, wall_ms)
        except OSError:
            return  # tried again now and then; until then its name is taken
        self.lives.end(partition)
        heir = self.image.topics.get(partition.topic)
        if heir is not None and self.lives.why_missing(heir.id, partition.index) is not None:
            self._open(heir, partition.index, wall_ms)
