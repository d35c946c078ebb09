"""One partition's log: appended at its end, read anywhere, forgotten from its start.

Offsets:  start_offset <= recovery_point, high_watermark, synced_offset <= end_offset  (all ends exclusive).
Readers see whole batches below a `Bound`, mostly the high watermark. `synced_offset` says what would survive a loss of
power, `recovery_point` below which offset a crash leaves nothing to scan.

One thread owns a log. Long disk work leaves it as a `SyncTicket`: `begin_sync` or `checkpoint`, `ticket.run()` on any
thread, `finish_sync`. A failed append leaves the log as it was. A failed sync is final: the owner calls `fail`, after
which only reads go on until the log is opened anew.
"""

from collections.abc import Sequence
from struct import Struct

from skidway.errors import OffsetOutOfRange, RecordListTooLarge, StorageError
from skidway.limits import DEFAULT_LIMITS, INT32_MAX, Limits
from skidway.log import following, health, lookup, markers, retention, rolling, truncation
from skidway.log.aborted import AbortedRange
from skidway.log.bounds import Bound
from skidway.log.compaction import cleaning
from skidway.log.durability import checkpointing
from skidway.log.durability.sync import SyncTicket
from skidway.log.durability.unsynced import Unsynced
from skidway.log.health import SOUND, Health, Quarantined, Sound
from skidway.log.positions import ENDS_MAX, LOADED_MAX, Positions
from skidway.log.producers import Producers
from skidway.log.recovery import settling
from skidway.log.recovery.loading import Loaded, Loader
from skidway.log.segment import Segment, unreadable
from skidway.log.settings import LogSettings
from skidway.ports import Buffer, Disk, FileSlice
from skidway.records.batch import CONTROL_BIT, BatchHeader
from skidway.steps import Steps

_STAMP = Struct(">qii")
_stamp = _STAMP.pack_into


class Log:
    __slots__ = (
        "_settings",
        "active",
        "bytes_since_checkpoint",
        "checkpoints_begun",
        "cleaned_offset",
        "compaction",
        "cuts",
        "directory",
        "disk",
        "doomed",
        "durable_start",
        "end_offset",
        "epoch",
        "epochs",
        "epochs_changed",
        "health",
        "high_watermark",
        "is_flushed",
        "limits",
        "positions",
        "producers",
        "recovery_point",
        "saved_start",
        "segments",
        "snapshots",
        "start_offset",
        "synced_offset",
        "truncated",
        "unsaved_segments",
        "unsynced",
    )

    def __init__(self, disk: Disk, directory: str, settings: LogSettings, loaded: Loaded, limits: Limits) -> None:
        self.disk = disk
        self.directory = directory
        self.limits = limits
        self._settings = settings
        self.segments = loaded.segments
        self.active = loaded.segments[-1]
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.epoch = loaded.epochs.latest
        self.epochs_changed = not loaded.epochs_saved
        self.truncated = loaded.truncated
        self.start_offset = self.durable_start = loaded.start_offset
        self.saved_start = min(loaded.saved_start, loaded.start_offset)
        self.end_offset = self.high_watermark = loaded.end_offset
        self.recovery_point = loaded.recovery_point
        self.synced_offset = loaded.recovery_point if loaded.unsynced else loaded.end_offset
        self.unsynced = Unsynced(disk, directory, loaded.unsynced, self.synced_offset)
        self.positions = Positions(self.segments)
        self.snapshots = [loaded.recovery_point] if loaded.recovery_point else []
        self.bytes_since_checkpoint = loaded.scanned_bytes
        self.health: Health = SOUND if loaded.quarantine is None else Quarantined(loaded.quarantine)
        self.doomed: list[retention.Doomed] = []
        self.cleaned_offset = 0
        self.compaction: cleaning.Compaction | None = None
        self.checkpoints_begun = 0
        self.cuts = loaded.cuts
        """What was cut off when it was opened."""
        self.is_flushed = False
        """Whether only what was synced counts as stored."""
        self.unsaved_segments = 0
        """Closed segments whose indexes no checkpoint has saved."""

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        settings: LogSettings,
        *,
        clean: bool,
        recovery_point: int,
        start_offset: int | None,
        now_ms: int,
        committed: int = 0,
        intact: bool = False,
        limits: Limits = DEFAULT_LIMITS,
        sync: bool = True,
    ) -> "Log":
        """Load a directory that exists (an empty one too). `clean`: the last owner closed it and said so; `intact`: it
        was killed, and the machine ran on. A log that ends below `committed` is quarantined.

        After a crash the name of the directory itself must be made durable by the caller. Without `sync`, so must all
        that was found (see `settling`).
        """
        producers = Producers(count_max=limits.producers_per_partition_max, expiry_ms=limits.producer_expiry_ms)
        loader = Loader(disk, directory, settings, producers, clean=clean, intact=intact, now_ms=now_ms)
        log = cls(disk, directory, settings, loader.load(recovery_point, start_offset, committed), limits)
        if loader.made_segment or not loader.clean:
            log.unsynced.mark_names_unsynced(parent=clean)
        if not log.quarantined:
            rolling.schedule(log.active, settings)
            retention.give_up_below_start(log, now_ms)
        if sync:
            settling.settle(log)
        if disk.files_short:
            log.spare_files()
        return log

    # Health.

    @property
    def failure(self) -> str | None:
        """Why nothing is appended any more."""
        return None if isinstance(self.health, Sound) else self.health.why

    @property
    def quarantined(self) -> bool:
        return isinstance(self.health, Quarantined)

    def refusal(self) -> StorageError:
        """For those who want what a log in this state does not do."""
        assert not isinstance(self.health, Sound), f"nothing is wrong with {self.directory}"
        return StorageError(self.health.why)

    def fail(self, reason: str) -> None:
        """The disk broke a promise: no appends until the log is opened anew."""
        self.health = health.failed(self.health, reason)

    def quarantine(self, reason: str) -> None:
        """It is damaged: neither read nor written any more, until it begins anew."""
        self.health = health.quarantined(self.health, reason)

    # Settings.

    @property
    def settings(self) -> LogSettings:
        return self._settings

    @settings.setter
    def settings(self, settings: LogSettings) -> None:
        self._settings = settings
        if not self.quarantined:
            rolling.schedule(self.active, settings)

    # Appending.

    def append(self, batch: bytearray | memoryview, header: BatchHeader, leader_epoch: int, now_ms: int) -> int:
        """Write a validated batch at the end, as leader: its offset and epoch are stamped into `batch`.

        Returns the base offset. StorageError when the disk refuses; then nothing changed.
        """
        if self.health is not SOUND:
            raise self.refusal()
        segment = self.active
        position = segment.size
        size = len(batch)
        base_offset = self.end_offset
        delta = header.last_offset_delta
        last_offset = base_offset + delta
        timestamp = header.max_timestamp
        if (
            position + size > self._settings.segment_bytes
            or timestamp > segment.roll_after_timestamp
            or now_ms > segment.roll_after_ms
            or last_offset - segment.base_offset > INT32_MAX
        ):
            segment = self._make_room(size, now_ms)
            position = segment.size
        _stamp(batch, 0, base_offset, header.batch_length, leader_epoch)
        try:
            written_at = segment.file.append(batch)
        except OSError as error:
            raise StorageError(f"{self.directory}: {error}") from error
        assert written_at == position, "somebody else wrote to the segment"
        end = segment.size = position + size
        if position == segment.synced_size:
            self.unsynced.segments.append(segment)
        if timestamp > segment.max_timestamp:
            segment.max_timestamp = timestamp
            segment.max_timestamp_offset = last_offset
        if position > segment.index_due:
            segment.add_index_entry(last_offset, position, self._settings)
            if len(self.positions.ends) > ENDS_MAX:
                self.positions.ends.clear()
        if position == 0:
            segment.first_timestamp = timestamp
            segment.created_ms = now_ms
            rolling.schedule(segment, self._settings)
        if header.producer_id >= 0:
            _, _, _, _, _, attributes, _, _, _, producer_id, epoch, sequence, _ = header
            if attributes & CONTROL_BIT:
                placed = header._replace(base_offset=base_offset)
                markers.note(self.producers, segment.aborted, batch, placed, now_ms)
            else:
                self.producers.record(producer_id, epoch, sequence, base_offset, delta, timestamp, attributes, now_ms)
        if leader_epoch != self.epoch:
            self._begin_epoch(leader_epoch, base_offset)
        end_offset = self.end_offset = last_offset + 1
        self.bytes_since_checkpoint += size
        self.positions.ends.append((end_offset, end, segment))
        return base_offset

    def _make_room(self, size: int, now_ms: int) -> Segment:
        if size > self._settings.segment_bytes:
            raise RecordListTooLarge(f"{size} bytes do not fit into a segment of {self._settings.segment_bytes}")
        if self.active.size:
            self.roll(now_ms)
        return self.active

    def _begin_epoch(self, leader_epoch: int, base_offset: int) -> None:
        if self.epochs.assign(leader_epoch, base_offset):
            self.epoch = leader_epoch
            self.epochs_changed = True

    def append_fetched(self, records: Buffer, now_ms: int) -> following.BatchRange:
        """Write batches as a leader sent them, all checked first. CorruptMessage when one is wrong; nothing changed."""
        return following.append(self, records, now_ms)

    def begin_epoch(self, epoch: int) -> None:
        """This node leads from here on: the epoch begins at the end offset even if it never writes anything."""
        self._begin_epoch(epoch, self.end_offset)

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the end offset; nothing when the active one is still empty."""
        if self.health is not SOUND:
            raise self.refusal()
        closed = self.active
        if not closed.size:
            return
        if self.unsynced.is_full or self.unsaved_segments >= checkpointing.SEGMENTS_MAX:
            waiting = max(len(self.unsynced.segments), self.unsaved_segments)
            raise StorageError(f"{self.directory}: {waiting} segments wait for fsync: retry")
        if self.disk.files_short:
            self.positions.unload(0)
        segment = Segment(self.disk, self.directory, self.end_offset, 0, now_ms)
        try:
            segment.create_file(self._settings.index_interval_bytes)
        except OSError as error:
            raise StorageError(f"{self.directory}: {error}") from error
        closed.times.append(closed.max_timestamp, closed.max_timestamp_offset - closed.base_offset)
        closed.index_saved = False
        self.unsaved_segments += 1
        self.segments.append(segment)
        self.active = segment
        self.unsynced.names += 1
        self.positions.note_loaded(closed)

    # Reading.

    @property
    def last_stable_offset(self) -> int:
        """Below it everything is committed, and every transaction has ended, for good. Never goes back."""
        first_unstable, high_watermark = self.producers.transactions.first_unstable, self.high_watermark
        return high_watermark if first_unstable >= high_watermark else max(first_unstable, self.start_offset)

    def bound(self, upto: Bound) -> int:
        """The offset that a reader may not reach."""
        if upto is Bound.HIGH_WATERMARK:
            return self.high_watermark
        return self.end_offset if upto is Bound.END else self.last_stable_offset

    def read(
        self, offset: int, max_bytes: int, upto: Bound = Bound.HIGH_WATERMARK, *, min_one: bool = True
    ) -> FileSlice | None:
        """Whole batches from the one that holds `offset`, up to a bound.

        None when there is nothing yet. The first batch comes whole even if it is larger than `max_bytes`,
        unless `min_one` is false.
        """
        if self.health is not SOUND and self.quarantined:
            # First: where it begins and ends cannot be believed either, and a reader told so would go elsewhere.
            raise self.refusal()
        if offset < self.start_offset or offset > self.end_offset:
            raise OffsetOutOfRange(f"{offset} is not within {self.start_offset} and {self.end_offset}")
        positions = self.positions
        bound, last, last_position = self.high_watermark, positions.watermark_segment, positions.watermark
        if upto is Bound.END:
            bound, last, last_position = self.end_offset, self.active, self.active.size
        elif upto is Bound.LAST_STABLE and (stable := self.last_stable_offset) < bound:
            # An open transaction begins with a batch of its own, so this is the end of the batch before it.
            bound, (last, last_position) = stable, positions.locate(stable)
        if offset >= bound:
            return None
        tail = positions.tails.get(offset, positions.tail) if upto is Bound.END else positions.tail
        # At the end of a segment that is not the last one, a roll has put the offset into the next.
        known = tail[0] == offset and (tail[1] is last or tail[2] < tail[1].size)
        try:
            segment, position = (tail[1], tail[2]) if known else positions.locate(offset)
            limit = last_position if segment is last else segment.size
            if limit - position <= max_bytes:
                end = limit
                if segment is last:
                    positions.keep_tail((bound, segment, end), upto)
            else:
                end = segment.boundary(position, position + max_bytes, at_least_one=min_one)
            # A batch that reaches past the bound is not there yet.
            return FileSlice(segment.file, position, end - position) if position < end <= limit else None
        except OSError as error:
            raise unreadable(self.directory, error) from error

    def aborted_transactions(self, from_offset: int, upto_offset: int) -> list[AbortedRange]:
        """(producer id, first offset) of those that have records between the offsets, by their first offsets."""
        return lookup.aborted(self, from_offset, upto_offset)

    def locate(self, offset: int) -> tuple[Segment, int]:
        """The segment and position of the batch that holds `offset`, or of the first one after it."""
        return self.positions.locate(offset)

    def advance_high_watermark(self, offset: int) -> int:
        """Everything below `offset` may be read; returns how many bytes that adds. Never goes back."""
        if offset <= self.high_watermark:
            return 0
        added = self.positions.move_watermark(offset, self.end_offset)
        high_watermark = self.high_watermark = min(offset, self.end_offset)
        if self.producers.transactions.first_unstable < high_watermark:
            self.producers.transactions.commit(high_watermark)
        assert self.start_offset <= self.high_watermark, f"{self.directory} begins above what is committed"
        return added

    def begin_at(self, high_watermark: int) -> None:
        """After a start: what is known to be committed, which may be less than what is there."""
        if self.quarantined:
            return
        self.high_watermark = min(max(high_watermark, self.start_offset), self.end_offset)
        assert self.start_offset <= self.high_watermark <= self.end_offset, f"{self.directory} ends before it begins"
        self.positions.place_watermark(self.high_watermark)
        self.producers.transactions.commit(self.high_watermark)

    # Durability.

    @property
    def committed_offset(self) -> int:
        """Below it everything is committed, and here as firmly as it is meant to be: a log that ends before it after a
        crash was damaged."""
        return min(self.high_watermark, self.synced_offset) if self.is_flushed else self.high_watermark

    @property
    def dirty(self) -> bool:
        """Whether `begin_sync` has something to do."""
        return self.unsynced.waits(self.end_offset)

    @property
    def proven_start(self) -> int:
        """Where the log would begin after a loss of power. A start above what is synced is not believed then."""
        return min(self.durable_start, self.synced_offset)

    def begin_sync(self) -> SyncTicket | None:
        """What makes everything appended so far durable; None when that is done or another sync has begun it."""
        return self.unsynced.begin(self.end_offset) if self.health is SOUND else None

    def finish_sync(self, ticket: SyncTicket) -> None:
        """The ticket's `run` returned."""
        if self.doomed:
            retention.leave(self.doomed, ticket)
        if ticket.is_checkpoint:
            self.checkpoints_begun -= 1
        if not self.unsynced.finish(ticket):
            checkpointing.void(self, ticket)
            return
        self.synced_offset = max(self.synced_offset, ticket.offset)
        self.positions.unload(0 if self.disk.files_short else LOADED_MAX)
        if ticket.is_checkpoint:
            checkpointing.finish(self, ticket)

    def finish_without_housekeeping(self, ticket: SyncTicket) -> None:
        """The ticket synced, then failed (a full disk, say): what it should have saved or removed waits for another."""
        assert ticket.synced
        if ticket.is_checkpoint:
            ticket.is_checkpoint = False
            self.checkpoints_begun -= 1
            self.epochs_changed = True
        self.finish_sync(ticket)

    def give_back_sync(self, ticket: SyncTicket) -> None:
        """The ticket could not run because too many files were open: nothing is proven, and nothing is lost."""
        assert not ticket.synced
        if self.doomed:
            retention.leave(self.doomed, ticket)
        if ticket.is_checkpoint:
            self.checkpoints_begun -= 1
            self.epochs_changed = True
        self.unsynced.give_back(ticket, self.synced_offset)

    def spare_files(self) -> None:
        """Too many files are open: let go of those that are synced. Each is opened again on first use."""
        self.positions.unload(0)
        if self.active.synced_size >= self.active.size and not self.quarantined:
            self.active.release_file()

    @property
    def is_checkpointing(self) -> bool:
        return self.checkpoints_begun > 0

    @property
    def checkpoint_due(self) -> bool:
        return (
            self.bytes_since_checkpoint >= self._settings.checkpoint_bytes
            or self.unsaved_segments >= checkpointing.SEGMENTS_DUE
        )

    def checkpoint(self, *, closing: bool = False) -> SyncTicket | None:
        """A sync that also saves indexes, epochs and producers, so that a crash leaves little to scan.

        It takes the files of given-up segments away too. An ordinary sync may be begun beside it: nobody should wait
        for a checkpoint. None when there is nothing to do or one is under way; a log that is closing does not count
        on that one.
        """
        if self.health is not SOUND or (self.is_checkpointing and not closing):
            return None
        return checkpointing.begin(self)

    def close(self, *, clean: bool) -> None:
        """With `clean`, everything is synced and saved first; OSError when that fails."""
        if clean and self.health is SOUND:
            ticket = self.checkpoint(closing=True)
            if ticket is not None:
                ticket.run()
                self.finish_sync(ticket)
        self.fail("the log is closed")
        for segment in self.segments:
            segment.unload()

    # Forgetting.

    def delete_records_before(self, offset: int) -> None:
        """Records below `offset` are gone; whole segments below it leave the disk."""
        if offset > self.high_watermark:
            raise OffsetOutOfRange(f"{offset} is above the high watermark {self.high_watermark}")
        retention.advance_start(self, offset)

    def apply_retention(self, now_ms: int) -> list[Segment]:
        """Give up segments that are too old or too many; returns them. Checkpoints take their files away."""
        return retention.apply(self, now_ms)

    def delete_scheduled(self, now_ms: int) -> int:
        """How many given-up segments are due to be removed; the next checkpoint removes them."""
        return retention.schedule(self.doomed, now_ms, self._settings.file_delete_delay_ms)

    def truncate_to(self, offset: int, now_ms: int) -> None:
        """Cut off everything from the batch that holds `offset` on, durably; the log may end before `offset` then.

        Below the start offset it is `restart_at`. Epochs that began at or after the end are forgotten in any case: this
        node may have led one and written nothing. StorageError with `failure` still None: nothing changed, try again
        later (a compaction of what goes is being put in place, the disk is full); with a `failure`: the disk broke.
        """
        truncation.truncate(self, offset, now_ms)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Drop everything and begin empty at `offset`, durably: a crash leaves the old log or the new one.

        Ends a quarantine. StorageError as in `truncate_to`.
        """
        truncation.restart(self, offset, now_ms)

    def forget_segment(self, segment: Segment) -> None:
        """A segment has left `segments`: nothing may lead to it any more."""
        segment.given_up = True
        self.unsynced.forget(segment)
        self.positions.forget(segment)

    # Compacting.

    def compaction_candidate(self, now_ms: int) -> cleaning.Candidate | None:
        """What speaks for a compaction now; None when nothing does."""
        return cleaning.candidate(self, now_ms)

    def begin_compaction(self, now_ms: int, token: str) -> cleaning.Compaction | None:
        """See `cleaning.Compaction`; one at a time. `token` makes the names of its files unique."""
        return cleaning.begin(self, now_ms, token)

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        """`new` holds what is left of `old`, which are neighbours below the watermark and the recovery point."""
        at = self.segments.index(old[0])
        assert self.segments[at : at + len(old)] == old
        self.segments[at : at + len(old)] = [new]
        for segment in old:
            self.forget_segment(segment)

    # Asking.

    def offset_for_timestamp(
        self, timestamp: int, upto: Bound = Bound.HIGH_WATERMARK
    ) -> Steps[tuple[int, int, int] | None]:
        """(offset, timestamp, leader epoch) of the first record below the bound at or after `timestamp`."""
        return lookup.offset_for_timestamp(self, timestamp, upto)

    def offset_of_max_timestamp(self, upto: Bound = Bound.HIGH_WATERMARK) -> Steps[tuple[int, int, int] | None]:
        """The same of the first record below the bound that has the largest timestamp."""
        return lookup.offset_of_max_timestamp(self, upto)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def batches(self) -> "Sequence[tuple[int, int, int, int, int, int]]":
        """Every batch's header facts in order (see `segment.Batch`): for inspection and tests."""
        return [batch for segment in self.segments for batch in segment.batches(0, segment.size)]
