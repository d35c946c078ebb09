"""Mistakes that logs and brokers have been known to make, as changes of the product that the simulator must find."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.broker.partitions.partition import Partition
from skidway.broker.relay import Relay
from skidway.limits import INT64_MAX
from skidway.log import producers
from skidway.log.durability.sync import SyncTicket
from skidway.log.durability.unsynced import Unsynced
from skidway.log.epochs import LeaderEpochs
from skidway.log.logs import Logs
from skidway.log.producers import Producers, Taken
from skidway.log.recovery.replay import Replay
from skidway.log.recovery.tail import Tail
from skidway.log.segment import Segment
from skidway.metadata.image import Image
from skidway.runtime.replicated import Replicated
from skidway.wire.schema.metadata_records import ProducerIdsRecord


@contextmanager
def acknowledges_before_sync() -> Iterator[None]:
    """acks=all is answered from memory (NATS #7567, KAFKA-10533 for data)."""
    original = Partition.append

    def append(self: Partition, *arguments: Any) -> int:
        base_offset = original(self, *arguments)
        self._stored(self.log.end_offset)
        return base_offset

    with patch.object(Partition, "append", append):
        yield


@contextmanager
def directories_not_synced() -> Iterator[None]:
    """New segments lose their names in a crash (KAFKA-3968)."""
    original = Unsynced.ticket

    def ticket(self: Unsynced, end_offset: int) -> SyncTicket:
        made = original(self, end_offset)
        made.directories = []
        return made

    with patch.object(Unsynced, "ticket", ticket):
        yield


@contextmanager
def believes_torn_tail() -> Iterator[None]:
    """Recovery looks at lengths and not at checksums (KAFKA-10101, KAFKA-17181)."""
    original = Replay.__init__

    def init(self: Replay, **options: Any) -> None:
        original(self, **{**options, "proven": INT64_MAX})

    with patch.object(Replay, "__init__", init):
        yield


@contextmanager
def forgets_producers_at_restart() -> Iterator[None]:
    """The producer snapshot is not read again (KAFKA-12520)."""
    original = Producers.load_snapshot

    def load_snapshot(self: Producers, data: Any, now_ms: int) -> Taken:
        taken = original(self, data, now_ms)
        self.clear()
        return taken

    with patch.object(Producers, "load_snapshot", load_snapshot):
        yield


@contextmanager
def producers_not_replayed() -> Iterator[None]:
    """Batches behind the snapshot do not count for their producers (KAFKA-5829)."""
    original = Replay._state

    def state(self: Replay, fields: tuple[int, ...], *rest: Any) -> None:
        original(self, (*fields[:9], -1, *fields[10:]), *rest)

    with patch.object(Replay, "_state", state):
        yield


@contextmanager
def snapshot_before_its_data() -> Iterator[None]:
    """The file that vouches for a log is written, and what it vouches for is synced with the next one (KAFKA-9892)."""
    original = SyncTicket.run
    unsynced: dict[tuple[int, str], list[Any]] = {}

    def run(self: SyncTicket) -> None:
        segments = self.segments
        if self.snapshot is not None:
            key = (id(self.disk), self.directory)
            before = [entry for entry in unsynced.get(key, []) if entry[2]._era == self.disk.era]  # type: ignore[attr-defined]
            unsynced[key], self.segments = segments, before
        try:
            original(self)
        finally:
            self.segments = segments  # the log takes them for synced

    with patch.object(SyncTicket, "run", run):
        yield


@contextmanager
def remembers_one_batch() -> Iterator[None]:
    """Only the last batch of a producer is known for a repetition (KAFKA-5494)."""
    with patch.object(producers, "_BATCHES_BYTES_MAX", producers._BATCH.size):
        yield


@contextmanager
def duplicates_appended() -> Iterator[None]:
    """A repeated batch is written again (Redpanda #3039)."""
    original = Producers.check

    def check(self: Producers, header: Any) -> int | None:
        original(self, header)
        return None

    with patch.object(Producers, "check", check):
        yield


@contextmanager
def epochs_survive_truncation() -> Iterator[None]:
    """The epoch cache keeps what was cut off (KAFKA-10706)."""
    with patch.object(LeaderEpochs, "truncate_to", lambda self, end_offset: False):
        yield


@contextmanager
def epochs_not_replayed() -> Iterator[None]:
    """After a crash nobody knows where an epoch began (KAFKA-10432)."""
    original = Replay._state

    def state(self: Replay, fields: tuple[int, ...], *rest: Any) -> None:
        original(self, (*fields[:2], -1, *fields[3:]), *rest)

    with patch.object(Replay, "_state", state):
        yield


@contextmanager
def failed_sync_taken_for_done() -> Iterator[None]:
    """A failed sync is tried again, and then succeeds: the pages count as clean (USENIX ATC '20)."""
    original = SyncTicket.run

    def run(self: SyncTicket) -> None:
        try:
            original(self)
        except OSError:
            self.history.failed = False
            original(self)

    with patch.object(SyncTicket, "run", run):
        yield


@contextmanager
def producer_ids_given_twice() -> Iterator[None]:
    """Blocks of producer ids are forgotten (KAFKA-16952's cousin): two producers number as one."""
    original = Image.apply

    def apply(self: Image, record: Any) -> None:
        if not isinstance(record, ProducerIdsRecord):
            original(self, record)

    with patch.object(Image, "apply", apply):
        yield


@contextmanager
def index_not_cut() -> Iterator[None]:
    """An index file is believed whole, though the log behind it was cut (KAFKA-13603, #7702)."""
    original = Tail._open_indexes

    def open_indexes(self: Tail, segment: Segment, upto: int) -> int:
        position = original(self, segment, upto)
        if len(segment.index):
            segment.index.positions[-1] += 61
        return position

    with patch.object(Tail, "_open_indexes", open_indexes):
        yield


@contextmanager
def answers_before_commit() -> Iterator[None]:
    """A coordinator or controller answers when it has decided, not when that is committed."""
    original = Replicated.submit

    def submit(self: Any, operation: Any, now: Any, respond: Any) -> None:
        original(self, operation, now, respond)
        for waiting in self.parked:
            replies, waiting.replies = waiting.replies, []
            for answer, reply in replies:
                answer(reply)

    with patch.object(Replicated, "submit", submit):
        yield


@contextmanager
def failed_disk_acknowledges() -> Iterator[None]:
    """When the disk fails, whoever waits for it is told that all is well."""
    original = Relay.fail

    def fail(self: Relay, reason: str) -> None:
        for partition in self.rooms.hosting.partitions:
            self.waiting.acknowledgements.wake(partition, INT64_MAX)
        original(self, reason)

    with patch.object(Relay, "fail", fail):
        yield


@contextmanager
def tail_not_cut() -> Iterator[None]:
    """What is behind a torn batch stays in the file, and the next append comes after it (KAFKA-6388)."""

    def cut(self: Tail, segments: list[Segment], number: int, size: int, end_offset: int, why: str) -> None:
        del segments[number + 1 :]

    with patch.object(Tail, "_cut", cut):
        yield


@contextmanager
def failed_sync_tail_believed() -> Iterator[None]:
    """After a failed sync a new process on the same boot believes what only the page cache has ("fsyncgate")."""
    with patch.object(Logs, "write_anew", lambda self: 0):
        yield
