"""The part of a node that follows the metadata, alone with a disk: tests publish records and say when it works."""

from broker_world import HandClock

from skidway.broker.listeners import only_listener
from skidway.broker.partitions.hosting import Hosting
from skidway.broker.partitions.lost_copies import MissingCopy
from skidway.broker.partitions.metadata_follower import MetadataFollower
from skidway.broker.partitions.partition import Partition
from skidway.broker.settings import NodeSettings
from skidway.errors import ProtocolError
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.log.logs import Logs
from skidway.replica.role import PartitionRole
from skidway.runtime.turn import TurnNotes
from skidway.server.event_text import line_of
from skidway.sim.world.disk import SimDisk
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import (
    BrokerEndpoint,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

ME = 1
WALL_MS = 1_700_000_000_000


class Host:
    """The part of a node that follows the metadata."""

    def __init__(self, disk: SimDisk | None = None) -> None:
        self.disk = disk or SimDisk()
        self.clock = HandClock()
        self.removed: list[tuple[str, ProtocolError]] = []
        self.changed: list[tuple[str, int, int]] = []
        """(partition, leader, epoch) of every role that was told."""
        self.told: list[str] = []
        self.logs = Logs(self.disk, DEFAULT_LIMITS)
        self.hosting = Hosting(
            NodeSettings(
                node_id=ME, listeners=only_listener("here", 9092), data_dir="/data", topic_defaults={"flush": "os"}
            ),
            DEFAULT_LIMITS,
            self.logs,
            TurnNotes(lambda: None),
            self.clock,
            self,
            lambda event: self.told.append(line_of(event)),
        )
        self.follower = MetadataFollower(self.hosting, self)
        self.published: list[Message] = []

    def on_started(self) -> None: ...

    def on_brokers_changed(self) -> None: ...

    def on_topics_changed(self, deleted: list[str]) -> None: ...

    def on_limits_changed(self, limits: Limits) -> None: ...

    def on_removed(self, partition: Partition, why: ProtocolError) -> None:
        self.removed.append((repr(partition), why))

    def on_role_changed(self, partition: Partition) -> None:
        self.changed.append((repr(partition), partition.role.leader, partition.role.leader_epoch))

    def on_missing(self, copy: MissingCopy, *, was_here: bool) -> None:
        pass

    def on_replicas_changed(self, partition: Partition, before: PartitionRole) -> None:
        assert partition.leads
        assert partition.role.partition_epoch != before.partition_epoch

    def publish(self, *records: Message) -> None:
        self.published += records
        self.follower.publish(records, WALL_MS)

    def work(self) -> None:
        while self.hosting.backlog.work():
            pass

    def start(self) -> "Host":
        self.hosting.start()
        self.open_all()
        return self

    def open_all(self) -> None:
        while not self.hosting.started:
            self.hosting.open_some()
            self.sync()

    def sync(self) -> None:
        """What a worker does."""
        for partition in self.hosting.turn.take_unsynced():
            assert isinstance(partition, Partition)
            ticket = partition.begin_sync()
            if ticket is None:
                continue
            error = None
            try:
                ticket.run()
            except OSError as failure:
                error = failure
            if self.hosting.lives.is_settling(partition):
                self.hosting.on_synced(partition, ticket, error)
            else:
                partition.finish_sync(ticket)
                self.hosting.finish_removal(partition, WALL_MS)

    def again(self) -> "Host":
        """After a stop and a start."""
        self.logs.close(clean=True)
        return self.next_life().start()

    def next_life(self) -> "Host":
        """The next run, before it opens anything."""
        host = Host(self.disk)
        host.publish(*self.published)
        return host

    def partition(self, topic: str, index: int = 0) -> Partition:
        return self.hosting.partitions.find(topic, index)


def topic_id(name: str) -> bytes:
    return name.encode().rjust(16, b"\0")


def broker(number: int, epoch: int = 1, *, fenced: bool = False) -> RegisterBrokerRecord:
    return RegisterBrokerRecord(
        broker_id=number,
        broker_epoch=epoch,
        fenced=fenced,
        end_points=[BrokerEndpoint("PLAINTEXT", f"b{number}", 9092)],
    )


def placed(topic: bytes, index: int, replicas: list[int]) -> PartitionRecord:
    return PartitionRecord(index, topic, replicas, replicas, leader=replicas[0], leader_epoch=0, partition_epoch=0)


def created(name: str, replicas: list[int], index: int = 0) -> list[Message]:
    record = placed(topic_id(name), index, replicas)
    return [record] if index else [TopicRecord(name, topic_id(name)), record]


def change(name: str, index: int = 0, **fields: object) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=index, topic_id=topic_id(name), **fields)  # type: ignore[arg-type]


def standing(*replicas: int) -> Host:
    host = Host()
    host.publish(broker(1), broker(2), broker(3))
    host.start()
    if replicas:
        host.publish(*created("t", list(replicas)))
        host.work()
    return host
