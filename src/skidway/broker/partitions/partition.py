"""One partition of this node: its log, its role and its topic's settings.

It leads (`lead`), or follows another node or nobody (`follow`). `leader` is always there: where this node does not
lead it refuses everything, so that nobody else has to ask.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skidway.broker.partitions.guards import Guard
from skidway.broker.partitions.marker_batches import MarkerBatches
from skidway.broker.partitions.producer_budget import ProducerBudget
from skidway.broker.partitions.producer_checks import ProducerChecks
from skidway.broker.partitions.refusals import Refusals
from skidway.broker.partitions.traffic import Traffic
from skidway.errors import (
    InvalidTopic,
    NotEnoughReplicas,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    StorageError,
    ThrottlingQuotaExceeded,
    UnknownLeaderEpoch,
)
from skidway.limits import Limits
from skidway.log import following, truncation
from skidway.log.bounds import Bound
from skidway.log.directories import partition_metadata
from skidway.log.durability import checkpointing
from skidway.log.durability.checkpoints import PARTITION_METADATA
from skidway.log.durability.sync import SyncTicket, mark_damaged
from skidway.log.health import SOUND, Damage, Quarantined
from skidway.log.log import Log
from skidway.log.settings import LogSettings
from skidway.metadata.topic_configs import TopicConfig
from skidway.metadata.topic_names import is_internal
from skidway.ports import Buffer, Disk, FileSlice
from skidway.records.batch import (
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    TimestampType,
)
from skidway.records.validation import TopicRules, Validated, validate
from skidway.replica.follower import NEVER_MS
from skidway.replica.leader import ACKS_ALL, Damaged, Leader, Leadership, NotLeading, Proposal
from skidway.replica.role import PartitionRole
from skidway.replica.throttle import Throttle
from skidway.runtime.log_store import Marker
from skidway.runtime.turn import TurnNotes
from skidway.steps import Steps

INDEX_ENTRY_BYTES = 8
UNPACKED_RATIO_MAX = 32
"""A batch that has to be opened may unpack to this many times the largest message."""
NO_ROLE = PartitionRole(-1, -1, -1, [], [], {})


class Appended(msgspec.Struct):
    """Where a batch stands in the log."""

    base_offset: int
    end_offset: int
    append_time_ms: int
    """The broker's time on LogAppendTime topics, -1 on others."""


class Unverified(msgspec.Struct):
    """A batch that its transaction's coordinator has to be asked about. It waits under the guard (`Guards.leave`)."""

    guard: Guard
    validated: Validated


class Partition:
    __slots__ = (
        "_lag_ms",
        "_node_id",
        "_sync",
        "_tickets",
        "checks",
        "compacting",
        "follower_throttle",
        "index",
        "internal",
        "is_throttled_as_follower",
        "is_throttled_as_leader",
        "leader",
        "log",
        "read_elsewhere_until_ms",
        "refusals",
        "removed",
        "role",
        "rules",
        "topic",
        "topic_id",
        "traffic",
        "turn",
        "unclean",
        "watched",
    )

    def __init__(
        self,
        topic: str,
        topic_id: bytes,
        index: int,
        log: Log,
        config: TopicConfig,
        turn: TurnNotes[Partition],
        node_id: int,
        lag_ms: int,
        producer_budget: ProducerBudget,
        follower_throttle: Throttle,
    ) -> None:
        """A follower that has not caught up for `lag_ms` leaves the in-sync set. Partitions share the last two."""
        self.topic = topic
        self.internal = is_internal(topic)
        self.topic_id = topic_id
        self.index = index
        self.log = log
        self.role = NO_ROLE
        self.leader: Leadership = NotLeading(
            NO_ROLE.leader, NO_ROLE.leader_epoch, min_in_sync=config.min_insync_replicas
        )
        self.unclean = False
        """Whether its leader may lack what was committed. Stays until the logs are known to agree."""
        self.turn = turn
        self._node_id = node_id
        self._lag_ms = lag_ms
        self.compacting = False
        self.removed = False
        self.refusals = Refusals()
        self.checks = ProducerChecks(log, self.refusals, producer_budget)
        self.traffic = Traffic()
        self.follower_throttle = follower_throttle
        self.read_elsewhere_until_ms = NEVER_MS
        """For how long readers may be with followers, who should then hear quickly of what is committed."""
        self.watched = False
        """Whether followers wait for what is appended."""
        self._sync: SyncTicket | None = None
        """The ordinary sync that is under way: one at a time."""
        self._tickets: dict[SyncTicket, None] = {}
        """What workers are at, checkpoints too."""
        self.configure(config)

    def __repr__(self) -> str:
        return f"{self.topic}-{self.index}"

    def configure(self, config: TopicConfig) -> None:
        self.rules = topic_rules(config, self.log.limits)
        self.log.is_flushed = config.flush == "sync"
        self.leader.min_in_sync = config.min_insync_replicas
        self.log.settings = log_settings(config)
        itself = ("*", f"{self.index}:{self._node_id}")
        self.is_throttled_as_leader = any(each in itself for each in config.leader_replication_throttled_replicas)
        self.is_throttled_as_follower = any(each in itself for each in config.follower_replication_throttled_replicas)
        self._stored(self.stored_offset)
        if self.log.is_flushed and self.log.synced_offset < self.log.end_offset:
            self.turn.wants_sync(self)

    def await_role(self, config: TopicConfig) -> None:
        """Role and settings arrive separately: until both are applied, the stricter min.insync.replicas counts."""
        self.leader.min_in_sync = max(self.leader.min_in_sync, config.min_insync_replicas)

    # Its role.

    @property
    def leads(self) -> bool:
        return self.leader.leads

    @property
    def alone(self) -> bool:
        """Whether it has no other replica: then what this node stored is committed."""
        return len(self.role.replicas) <= 1

    def lead(self, role: PartitionRole, now_ms: int) -> None:
        """Take the lead in a new epoch, or go on in the same one with other replicas in sync."""
        log, leader = self.log, self.leader
        if role.leader_epoch != self.role.leader_epoch:
            self.checks.guards.clear()
            if log.health is SOUND:
                # Known even if nothing is written in it: a follower that asks where an earlier epoch ended is told so.
                log.begin_epoch(role.leader_epoch)
        self.role = role
        if isinstance(log.health, Quarantined) and not self.alone:
            self.leader = Damaged(role, leader.min_in_sync, log.health.why)
            return
        if isinstance(leader, Leader):
            high_watermark = leader.on_metadata(role, log.end_offset, now_ms)
        else:
            stored, end = self.stored_offset, log.end_offset
            leader = self.leader = Leader(self._node_id, role, stored, end, now_ms, self._lag_ms, leader.min_in_sync)
            high_watermark = leader.on_stored(stored)
        self.unclean = False
        self.advance(high_watermark)

    @property
    def is_stuck(self) -> bool:
        """Whether something waits to be committed, and too few replicas are in sync for that."""
        leader = self.leader
        waits = self.log.end_offset > self.log.high_watermark
        return waits and len(leader.in_sync) < min(leader.min_in_sync, len(leader.replicas))

    @property
    def counted_on(self) -> bool:
        """Whether this node may be elected for what its copy holds."""
        return self._node_id in self.role.in_sync or self._node_id in self.role.eligible_leaders

    def follow(self, role: PartitionRole, now_ms: int) -> None:
        """Somebody else leads, or nobody. The watermark stays where it is until a leader says more."""
        if role.unclean and role.leader_epoch != self.role.leader_epoch:
            self.unclean = True
        self.role = role
        self.checks.forget()
        self.leader = NotLeading(
            role.leader,
            role.leader_epoch,
            role.partition_epoch,
            role.replicas,
            role.in_sync,
            self.leader.min_in_sync,
        )

    @property
    def stored_offset(self) -> int:
        """Up to where this node holds the log as firmly as the topic's `flush` demands."""
        return self.log.synced_offset if self.log.is_flushed else self.log.end_offset

    # As leader.

    def produce(
        self,
        records: memoryview,
        acks: int,
        produce_version: int,
        wall_ms: int,
        transactional_id: str | None = None,
        validated: Validated | None = None,
        asked: Guard | None = None,
    ) -> Appended | Unverified | Steps[Appended | Unverified]:
        """Check and append one batch. It is committed once the high watermark has passed its end.

        In steps if the topic's rules say that the records may have to be looked at; `validated` is then what that
        found. `asked` is the guard under which the batch waited until its coordinator agreed. One method, because each
        call counts here.
        """
        if self.internal:
            raise InvalidTopic(f"{self.topic} belongs to the broker")
        log = self.log
        try:
            self.leader.admit(acks)
            if log.health is not SOUND and log.quarantined:
                # Its producers are not known either: a sequence that is right could be called wrong, for good.
                raise log.refusal()
            checked = validated or validate(records, self.rules, produce_version, wall_ms)
            if not isinstance(checked, tuple):
                return _produce_later(self, records, checked, acks, produce_version, wall_ms, transactional_id)
            batch, header = checked
            if header.producer_id >= 0:
                original = self.checks.check(header, wall_ms)
                if original is not None:
                    end_offset = original + header.record_count
                    if log.health is not SOUND and end_offset > log.high_watermark:
                        raise log.refusal()
                    self.refusals.taken(header)
                    return Appended(original, end_offset, -1)
            if header.attributes & TRANSACTIONAL_BIT and not (transactional_id and log.producers.continues(header)):
                guard = self.checks.question(header, transactional_id, produce_version, asked, wall_ms)
                if guard is not None:
                    return Unverified(guard, checked)
                if asked is not None and (leftover := self.checks.leftover(header)) is not None:
                    self.write_marker(MarkerBatches(leftover, wall_ms))
            base_offset = self.append(batch, header, wall_ms)
        except (StorageError, NotEnoughReplicas, NotLeaderOrFollower, ThrottlingQuotaExceeded) as error:
            self.refusals.note(records, error, wall_ms)
            raise
        if self.refusals.first:
            self.refusals.taken(header)
        append_time_ms = header.max_timestamp if header.attributes & TIMESTAMP_TYPE_BIT else -1
        return Appended(base_offset, log.end_offset, append_time_ms)

    def append(self, batch: bytearray | memoryview, header: BatchHeader, wall_ms: int) -> int:
        """Append a batch that needs no checks; returns its base offset."""
        log = self.log
        base_offset = log.append(batch, header, self.leader.epoch, wall_ms)
        traffic = self.traffic
        traffic.records_in += log.end_offset - base_offset
        size = len(batch)
        traffic.bytes_in += size
        if self.watched:
            self.turn.has_grown(self, size)
        if log.is_flushed:
            self.turn.wants_sync(self)
        else:
            self._stored(log.end_offset)
            if log.unsynced.is_crowded:
                self.turn.wants_sync(self)
        return base_offset

    def write_marker(self, batches: MarkerBatches) -> int:
        """End a transaction, in internal topics too; returns the end offset, as `produce`. Errors: not written."""
        self.leader.admit(ACKS_ALL)
        log = self.log
        if log.health is not SOUND:
            raise log.refusal()
        (producer_id, epoch), end, transaction_version = batches.marker
        log.producers.check_marker(producer_id, epoch, end, transaction_version)
        batch, header = batches.of(self.rules.timestamp_type)
        end_offset = self.append(batch, header, batches.wall_ms) + 1
        self.checks.guards.on_marker(producer_id, epoch)
        return end_offset

    def divergence(self, last_fetched_epoch: int, offset: int) -> tuple[int, int] | None:
        """Where a follower's log parts from this one, if it does: (epoch, where that ends here).

        `last_fetched_epoch` is the epoch of its last record, -1 if it does not say. OffsetOutOfRange when its position
        has nothing to do with this log, UnknownLeaderEpoch when it knows of a later leader than this node does.
        """
        log = self.log
        if log.health is not SOUND and log.quarantined:
            raise log.refusal()
        if last_fetched_epoch > self.role.leader_epoch:
            # Who has read records of a later epoch knows of a later leader. "Out of range" would make it begin anew.
            raise UnknownLeaderEpoch(f"the leader epoch here is {self.role.leader_epoch}, not {last_fetched_epoch}")
        if offset < log.start_offset:
            raise OffsetOutOfRange(f"{offset} is below the first offset, {log.start_offset}")
        if last_fetched_epoch >= 0:
            epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
            if epoch < 0:
                raise OffsetOutOfRange(f"this broker does not know epoch {last_fetched_epoch}")
            if epoch < last_fetched_epoch or end_offset < offset:
                return epoch, end_offset
        if offset > log.end_offset:
            raise OffsetOutOfRange(f"{offset} is above the end, {log.end_offset}")
        return None

    def on_follower_fetch(
        self, replica_id: int, broker_epoch: int, offset: int, start_offset: int, now_ms: int
    ) -> None:
        """A follower holds everything below `offset`, and its log does not diverge."""
        end_offset = self.log.end_offset
        self.advance(self.leader.on_fetch(replica_id, broker_epoch, offset, end_offset, now_ms, start_offset))

    @property
    def low_watermark(self) -> int:
        """Below it no replica that is alive has anything, nor would have after a crash, as far as the leader knows;
        -1 when another leads."""
        return self.leader.low_watermark(self.log.proven_start) if isinstance(self.leader, Leader) else -1

    def check_lag(self, now_ms: int) -> None:
        self.advance(self.leader.check_lag(self.log.end_offset, now_ms))

    def on_altered(self, proposal: Proposal, leader_epoch: int, partition_epoch: int, in_sync: Sequence[int]) -> None:
        """The controller took a proposal of the leader."""
        self.advance(self.leader.on_altered(proposal, leader_epoch, partition_epoch, in_sync))

    def on_alter_failed(self, proposal: Proposal, error: int) -> None:
        self.advance(self.leader.on_alter_failed(proposal, error))

    # As follower.

    def fetched(self, records: Buffer, wall_ms: int) -> None:
        """Append what the leader sent. CorruptMessage: nothing was appended. StorageError: perhaps some of it."""
        log = self.log
        before = log.end_offset
        try:
            self.traffic.bytes_followed += following.append(log, records, wall_ms).size
        finally:
            if (log.end_offset != before and log.is_flushed) or log.unsynced.is_crowded:
                self.turn.wants_sync(self)

    def rest_ms(self, fetched_bytes: int, now_ms: int) -> int:
        """For how long to fetch no more, after so many bytes."""
        if not self.is_throttled_as_follower or self._node_id in self.role.in_sync:
            return 0
        throttle = self.follower_throttle
        throttle.took(fetched_bytes, now_ms)
        return throttle.wait_ms(now_ms)

    def cut_to(self, offset: int, wall_ms: int) -> None:
        """Give up everything from `offset` on: the leader does not have it. StorageError: not now, or never again if
        the log has failed by it."""
        if offset < self.log.start_offset:
            truncation.restart(self.log, offset, wall_ms)
        else:
            truncation.truncate(self.log, offset, wall_ms)
        if self.log.is_flushed and self.log.synced_offset < self.log.end_offset:
            self.turn.wants_sync(self)

    def restart_at(self, offset: int, wall_ms: int) -> None:
        """Begin anew, empty, at `offset`: the leader has nothing that would follow what is here."""
        restore_directory(self.log.disk, self.log.directory, self.topic_id)
        truncation.restart(self.log, offset, wall_ms)

    def advance(self, high_watermark: int) -> None:
        """The watermark follows from what other nodes stored, or from what the leader says."""
        if high_watermark > self.log.high_watermark:
            self.turn.advance(self, high_watermark)

    # Syncs.

    def begin_sync(self) -> SyncTicket | None:
        """The files to sync now; None while a sync is under way (the next one covers what came since)."""
        if self._sync is not None:
            return None
        ticket = self._sync = self.log.begin_sync()
        if ticket is not None:
            self._tickets[ticket] = None
        return ticket

    def begin_checkpoint(self) -> SyncTicket | None:
        """A sync that also saves what bounds the next recovery; it may run beside an ordinary one."""
        ticket = checkpointing.begin(self.log)
        if ticket is not None:
            self._tickets[ticket] = None
        return ticket

    @property
    def in_flight(self) -> bool:
        """Whether a worker is at its files."""
        return bool(self._tickets) or self.compacting

    def finish_sync(self, ticket: SyncTicket, *, housekept: bool = True) -> None:
        """A worker is done with the ticket. Not `housekept`: everything is synced, but not all else could be done."""
        self._release(ticket)
        if self.removed:
            return
        if housekept:
            self.log.finish_sync(ticket)
        else:
            self.log.finish_without_housekeeping(ticket)
        if not self.log.is_flushed:
            if self.log.unsynced.is_crowded:
                self.turn.wants_sync(self)
            return
        self._stored(self.log.synced_offset)
        if self.log.synced_offset < self.log.end_offset:
            self.turn.wants_sync(self)

    def give_up_sync(self, ticket: SyncTicket) -> None:
        """A worker could not do it."""
        self._release(ticket)

    def give_back_sync(self, ticket: SyncTicket) -> None:
        """A worker could not do it because too many files were open: it is to be done again."""
        self._release(ticket)
        if not self.removed:
            self.log.give_back_sync(ticket)

    def _release(self, ticket: SyncTicket) -> None:
        if ticket is self._sync:
            self._sync = None
        del self._tickets[ticket]

    def fail(self, reason: str) -> None:
        """The disk failed under it: no more writes, reads go on."""
        self.log.fail(reason)

    def quarantine(self, damage: Damage) -> None:
        """Its log is damaged: neither read nor written any more, until it is begun anew."""
        assert not self.leads, "it may be all there is"
        self.log.quarantine(damage)
        mark_damaged(self.log.disk, self.log.directory, damage)

    def _stored(self, offset: int) -> None:
        self.advance(self.leader.on_stored(offset))


def _produce_later(
    partition: Partition,
    records: memoryview,
    validating: Steps[Validated],
    acks: int,
    produce_version: int,
    wall_ms: int,
    transactional_id: str | None,
) -> Steps[Appended | Unverified]:
    validated = yield from validating
    # From the beginning: another node may lead since.
    outcome = partition.produce(records, acks, produce_version, wall_ms, transactional_id, validated)
    assert isinstance(outcome, Appended | Unverified), "what is validated needs no more steps"
    return outcome


class Journal:
    """A partition as the log of a machine: its records are appended, synced and read like any others."""

    __slots__ = ("_partition",)

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    @property
    def start_offset(self) -> int:
        return self._partition.log.start_offset

    @property
    def end_offset(self) -> int:
        return self._partition.log.end_offset

    @property
    def high_watermark(self) -> int:
        return self._partition.log.high_watermark

    def append(self, batch: memoryview | bytearray, header: BatchHeader, leader_epoch: int, now_ms: int) -> int:
        partition = self._partition
        leader = partition.leader
        assert leader.leads, "only a leader writes"
        # As for any producer that waits for all: what comes now would be committed nobody knows when.
        leader.admit(ACKS_ALL)
        return partition.append(batch, header, now_ms)

    def write_marker(self, marker: Marker, wall_ms: int) -> None:
        self._partition.write_marker(MarkerBatches(marker, wall_ms))

    def read(
        self, offset: int, max_bytes: int, upto: Bound = Bound.HIGH_WATERMARK, *, min_one: bool = True
    ) -> FileSlice | None:
        return self._partition.log.read(offset, max_bytes, upto, min_one=min_one)


def restore_directory(disk: Disk, directory: str, topic_id: bytes) -> None:
    """Somebody may have removed it, or the file that says which topic it belongs to."""
    try:
        if not disk.exists(f"{directory}/{PARTITION_METADATA}"):
            disk.make_directory(directory)
            disk.write_atomic(f"{directory}/{PARTITION_METADATA}", partition_metadata(topic_id))
            disk.sync_directory("")
    except OSError as error:
        raise StorageError(f"cannot create {directory} again: {error}") from error


def topic_rules(config: TopicConfig, limits: Limits) -> TopicRules:
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    by_broker = config.message_timestamp_type == "LogAppendTime"
    return TopicRules(
        max_message_bytes=config.max_message_bytes,
        compression_type=config.compression_type,
        compression_level=levels.get(config.compression_type),
        timestamp_type=TimestampType.LOG_APPEND_TIME if by_broker else TimestampType.CREATE_TIME,
        timestamp_before_max_ms=config.message_timestamp_before_max_ms,
        timestamp_after_max_ms=config.message_timestamp_after_max_ms,
        compacted="compact" in config.cleanup_policy,
        decompressed_bytes_max=min(config.max_message_bytes * UNPACKED_RATIO_MAX, limits.decompressed_bytes_max),
        batch_records_max=limits.batch_records_max,
    )


def log_settings(config: TopicConfig) -> LogSettings:
    compacted = "compact" in config.cleanup_policy
    return LogSettings(
        segment_bytes=config.internal_segment_bytes if config.internal_segment_bytes > 0 else config.segment_bytes,
        # Only closed segments are compacted: none may stay open for longer than its records may wait.
        segment_ms=min(config.segment_ms, config.max_compaction_lag_ms) if compacted else config.segment_ms,
        segment_jitter_ms=config.segment_jitter_ms,
        index_interval_bytes=config.index_interval_bytes,
        segment_index_bytes=max(config.segment_index_bytes, INDEX_ENTRY_BYTES),
        retention_ms=config.retention_ms,
        retention_bytes=config.retention_bytes,
        file_delete_delay_ms=config.file_delete_delay_ms,
        cleanup_delete="delete" in config.cleanup_policy,
        compact=compacted,
        delete_retention_ms=config.delete_retention_ms,
        min_compaction_lag_ms=config.min_compaction_lag_ms,
        max_compaction_lag_ms=config.max_compaction_lag_ms,
        min_cleanable_dirty_ratio=config.min_cleanable_dirty_ratio,
    )
