"""One partition's log: appended at its end, read anywhere, synced.

Offsets:  start_offset <= recovery_point, high_watermark, synced_offset <= end_offset  (all ends exclusive).
Readers see whole batches below a `Bound`, mostly the high watermark. `synced_offset` says what would survive a loss of
power, `saved.recovery_point` below which offset a crash leaves nothing to scan.

One thread owns a log. Long disk work leaves it as a `SyncTicket`: `begin_sync` or `checkpointing.begin`,
`ticket.run()` on any thread, `finish_sync`. A failed append leaves the log as it was. A failed sync is final: the owner
calls `fail`, after which only reads go on until the log is opened anew.

What else is done with a log is in modules of its own, which know it and which it does not know: it is opened
(`recovery.opening`), appended to as a follower (`following`), searched (`lookup`), forgotten from its start
(`retention`), cut (`truncation`), saved (`checkpointing`), compacted (`cleaning`) and checked (`scrubbing`).
"""

from collections.abc import Sequence, Set
from struct import Struct
from typing import Protocol

from skidway.errors import OffsetOutOfRange, RecordListTooLarge, StorageError
from skidway.limits import INT32_MAX, Limits
from skidway.log import health, markers
from skidway.log.bounds import END, HIGH_WATERMARK, LAST_STABLE, Bound
from skidway.log.doomed import DoomedSegments
from skidway.log.durability.saved import Saved
from skidway.log.durability.sync import SyncTicket
from skidway.log.durability.unsynced import Unsynced
from skidway.log.health import SOUND, Health, Quarantined, Reason, Sound
from skidway.log.positions import ENDS_MAX, LOADED_MAX, Positions
from skidway.log.recovery.loading import Loaded
from skidway.log.segment import Segment, schedule_roll, unreadable
from skidway.log.settings import LogSettings
from skidway.ports import Disk, FileSlice
from skidway.records.batch import CONTROL_BIT, HEADER, BatchHeader

_STAMP = Struct(">qii")
_stamp = _STAMP.pack_into


class CompactionUnderWay(Protocol):
    """What others have to know of it."""

    @property
    def segments(self) -> Set[Segment]:
        """Those that may be replaced: nobody else may change their files."""
        ...

    @property
    def end_offset(self) -> int: ...

    @property
    def is_swapping(self) -> bool:
        """Whether new files may be on their way into place: from there on only the end is an end."""
        ...

    def abandon(self) -> None: ...


class Log:
    __slots__ = (
        "_settings",
        "active",
        "cleaned_offset",
        "compaction",
        "cuts",
        "directory",
        "disk",
        "doomed",
        "end_offset",
        "epoch",
        "epochs",
        "health",
        "high_watermark",
        "is_flushed",
        "limits",
        "positions",
        "producers",
        "saved",
        "segments",
        "start_offset",
        "synced_offset",
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
        self.saved = Saved(
            loaded.recovery_point, min(loaded.saved_start, loaded.start_offset), loaded.start_offset, loaded.truncated
        )
        self.saved.epochs_changed = not loaded.epochs_saved
        self.saved.bytes_since = loaded.scanned_bytes
        self.start_offset = loaded.start_offset
        self.end_offset = self.high_watermark = loaded.end_offset
        self.synced_offset = loaded.recovery_point if loaded.unsynced else loaded.end_offset
        self.unsynced = Unsynced(disk, directory, loaded.unsynced, self.synced_offset)
        self.positions = Positions(self.segments)
        self.health: Health = SOUND if loaded.quarantine is None else Quarantined(loaded.quarantine)
        self.doomed = DoomedSegments()
        self.cleaned_offset = 0
        self.compaction: CompactionUnderWay | None = None
        self.cuts = loaded.cuts
        """What was cut off when it was opened."""
        self.is_flushed = False
        """Whether only what was synced counts as stored."""

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

    def quarantine(self, reason: Reason) -> None:
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
            schedule_roll(self.active, settings)

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
            schedule_roll(segment, self._settings)
        if header.producer_id >= 0:
            _, _, _, _, _, attributes, _, _, _, producer_id, epoch, sequence, _ = header
            if attributes & CONTROL_BIT:
                # The header once more, with the offset that was stamped into it.
                markers.note(self.producers, segment.aborted, batch, HEADER.unpack_from(batch), now_ms)
            else:
                self.producers.record(producer_id, epoch, sequence, base_offset, delta, timestamp, attributes, now_ms)
        if leader_epoch != self.epoch:
            self._begin_epoch(leader_epoch, base_offset)
        end_offset = self.end_offset = last_offset + 1
        self.saved.bytes_since += size
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
            self.saved.epochs_changed = True

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
        if self.unsynced.is_full or self.saved.is_full:
            waiting = max(len(self.unsynced.segments), self.saved.unsaved_segments)
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
        self.saved.unsaved_segments += 1
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
        if upto is HIGH_WATERMARK:
            return self.high_watermark
        return self.end_offset if upto is END else self.last_stable_offset

    def read(
        self, offset: int, max_bytes: int, upto: Bound = HIGH_WATERMARK, *, min_one: bool = True
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
        if upto is END:
            bound, last, last_position = self.end_offset, self.active, self.active.size
        elif upto is LAST_STABLE and (stable := self.last_stable_offset) < bound:
            # An open transaction begins with a batch of its own, so this is the end of the batch before it.
            bound, (last, last_position) = stable, positions.locate(stable)
        if offset >= bound:
            return None
        tail = (positions.tails if upto is END else positions.places).get(offset, positions.tail)
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
        """Where the log would begin after a loss of power."""
        return min(self.saved.durable_start, self.synced_offset)

    def begin_sync(self) -> SyncTicket | None:
        """What makes everything appended so far durable; None when that is done or another sync has begun it."""
        return self.unsynced.begin(self.end_offset) if self.health is SOUND else None

    def finish_sync(self, ticket: SyncTicket) -> None:
        """The ticket's `run` returned."""
        if self.doomed:
            self.doomed.leave(ticket)
        if ticket.is_checkpoint:
            self.saved.begun -= 1
        if not self.unsynced.finish(ticket):
            self.saved.void(ticket, self.disk, self.directory)
            return
        self.synced_offset = max(self.synced_offset, ticket.offset)
        self.positions.unload(0 if self.disk.files_short else LOADED_MAX)
        if ticket.is_checkpoint:
            self.saved.finish(ticket, self.segments, self.epochs)

    def finish_without_housekeeping(self, ticket: SyncTicket) -> None:
        """The ticket synced, then failed (a full disk, say): what it should have saved or removed waits for another."""
        assert ticket.synced
        if ticket.is_checkpoint:
            ticket.is_checkpoint = False
            self.saved.give_up()
        self.finish_sync(ticket)

    def give_back_sync(self, ticket: SyncTicket) -> None:
        """The ticket could not run because too many files were open: nothing is proven, and nothing is lost."""
        assert not ticket.synced
        if self.doomed:
            self.doomed.leave(ticket)
        if ticket.is_checkpoint:
            self.saved.give_up()
        self.unsynced.give_back(ticket, self.synced_offset)

    def spare_files(self) -> None:
        """Too many files are open: let go of those that are synced. Each is opened again on first use."""
        self.positions.unload(0)
        if self.active.synced_size >= self.active.size and not self.quarantined:
            self.active.release_file()

    def close(self) -> None:
        self.fail("the log is closed")
        for segment in self.segments:
            segment.unload()

    # What is stored.

    def forget_segment(self, segment: Segment) -> None:
        """A segment has left `segments`: nothing may lead to it any more."""
        segment.given_up = True
        self.unsynced.forget(segment)
        self.positions.forget(segment)

    def replace_segments(self, old: list[Segment], new: Segment) -> None:
        """`new` holds what is left of `old`, which are neighbours below the watermark and the recovery point."""
        at = self.segments.index(old[0])
        assert self.segments[at : at + len(old)] == old
        self.segments[at : at + len(old)] = [new]
        for segment in old:
            self.forget_segment(segment)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        return self.epochs.end_offset_for(epoch, self.end_offset)

    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def batches(self) -> Sequence[tuple[int, int, int, int, int, int]]:
        """Every batch's header facts in order (see `segment.Batch`): for inspection and tests."""
        return [batch for segment in self.segments for batch in segment.batches(0, segment.size)]
