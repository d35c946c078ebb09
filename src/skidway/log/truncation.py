"""Cutting a log's tail off that its leader does not have, and beginning anew where a leader begins.

Files that speak about the log may be in other hands meanwhile: a checkpoint on a worker's thread, the offset files of
the data directory. So the first durable step is always the file `truncated` in the log's own directory, which says
what of all that is void (see `checkpoints.Truncated`). Then go the snapshots that vouch for the tail, later segments
and the indexes of the cut one, in whatever order they reach the disk: none of them is believed any more. They are gone
before the tail itself goes, because what is appended in its place might join one of them. Wherever power is lost, what
is left is the old log or a shorter part of its beginning.

Too many open files are a trouble that passes, so a cut has every descriptor that it needs before that first step.
"""

from contextlib import closing

from msgspec import Struct

from skidway.errors import FailedCut, StorageError
from skidway.log import markers
from skidway.log.compaction.swapping import REBUILT_SUFFIXES, SEGMENT_SUFFIXES
from skidway.log.durability import starts
from skidway.log.durability.checkpoints import TRUNCATED, Truncated
from skidway.log.durability.sync import NO_DESCRIPTORS, SyncHistory, snapshot_offset, snapshot_path
from skidway.log.durability.truncation_file import begin_anew, mark, may_be_marked
from skidway.log.epochs import LeaderEpochs
from skidway.log.health import SOUND, ReadOnly, at, begun_anew, reason_of
from skidway.log.log import Log
from skidway.log.producers import CorruptSnapshot, Producers
from skidway.log.segment import Segment, schedule_roll
from skidway.ports import Directory


class _Cut(Struct):
    """All that has to be read or looked up for it."""

    segment: Segment
    """The last one that is left; its file is open, its indexes are loaded."""
    position: int
    """Where its file ends then."""
    end_offset: int
    names: list[str]
    """Of the files in the directory."""
    producers: Producers
    recovery_point: int


def forget(log: Log) -> None:
    """Every file tells the truth about the log now; what a void checkpoint left is gone durably. A disk that refuses is
    asked again after the next save."""
    try:
        log.disk.remove(f"{log.directory}/{TRUNCATED}")
    except OSError:
        return
    # The count stays: should the name come back after a crash, it must not void what was saved since.
    log.saved.truncated = Truncated(log.saved.truncated.count)


def is_over(log: Log) -> bool:
    """Whether there is a truncation to forget, no work under way that was begun before it, and nothing to save."""
    busy = log.saved.begun > 0 or log.saved.epochs_changed
    return log.saved.truncated.is_marked and log.health is SOUND and not busy


def truncate(log: Log, offset: int, now_ms: int) -> None:
    """Cut off everything from the batch that holds `offset` on, durably; the log may end before `offset` then.

    Below the start offset it is `restart`. Epochs that began at or after the end are forgotten in any case: this node
    may have led one and written nothing. StorageError with `failure` still None: nothing changed, try again later (a
    compaction of what goes is being put in place, the disk is full, too many files are open); with a `failure`: the
    disk broke.
    """
    if log.health is not SOUND:
        raise log.refusal()
    if offset < log.start_offset:
        restart(log, offset, now_ms)
        return
    if offset >= log.end_offset:
        # This node may have led an epoch without writing anything: its leader does not know that epoch.
        if log.epochs.truncate_to(log.end_offset):
            log.epoch = log.epochs.latest
            log.saved.epochs_changed = True
        return
    try:
        segment, position = log.locate(offset)
        end_offset = _end_before(segment, position)
    except OSError as error:
        raise StorageError(f"{log.directory}: {error}") from error
    if end_offset < log.start_offset:
        # The log began within the batch that goes: nothing is left of it.
        restart(log, log.start_offset, now_ms)
        return
    _stop_compaction(log, segment.base_offset)
    truncated = log.saved.truncated.cut(end_offset, starts.savable(log))
    with closing(_opened_directory(log)) as directory:
        cut = _prepared(log, segment, position, end_offset, truncated, now_ms)
        _decide(log, truncated, end_offset)
        try:
            _cut(log, cut, directory)
        except (OSError, StorageError) as error:
            raise _failed(log, error) from error


def restart(log: Log, offset: int, now_ms: int) -> None:
    """Drop everything and begin empty at `offset`, durably: a crash leaves the old log or the new one.

    Ends a quarantine. StorageError as in `truncate`.
    """
    if isinstance(log.health, ReadOnly):
        raise log.refusal()
    if any(item.begun is not None and item.segment.base_offset == offset for item in log.doomed):
        raise StorageError(f"{log.directory}: an old segment at offset {offset} is being removed; retry later")
    _stop_compaction(log, -1)
    truncated = log.saved.truncated.cut(0, offset, restart_at=offset)
    _decide(log, truncated, offset)
    for gone in log.segments:
        gone.given_up = True
    try:
        log.saved.truncated = begin_anew(log.disk, log.directory, truncated)
        segment = Segment(log.disk, log.directory, offset, 0, now_ms)
        segment.create_file(log.settings.index_interval_bytes)
        log.unsynced.sync_beside()
    except OSError as error:
        raise _failed(log, error) from error
    log.segments[:] = [segment]
    log.doomed.clear()
    log.producers.clear()
    log.epochs = LeaderEpochs()
    log.health = begun_anew(log.health)
    log.unsynced.history = SyncHistory()  # a sync that failed was one of other files
    log.start_offset = log.synced_offset = log.high_watermark = offset
    _end_at(log, offset, 0)


def _failed(log: Log, error: OSError | StorageError) -> StorageError:
    """Half done, and what is in memory is not what is on disk: only a start brings them together, or to begin anew.
    Until then nobody may read it, nor lead with it."""
    reason = at(f"{log.directory} could not be truncated", reason_of(error))
    log.quarantine(reason)
    return FailedCut(reason.text) if isinstance(error, OSError) else StorageError(reason.text)


def _not_now(log: Log, error: OSError) -> StorageError:
    return StorageError(f"{log.directory} was not truncated, retry later: {error}")


def _opened_directory(log: Log) -> Directory:
    try:
        return log.disk.open_directory(log.directory)
    except OSError as error:
        raise _not_now(log, error) from error


def _prepared(log: Log, segment: Segment, position: int, end_offset: int, truncated: Truncated, now_ms: int) -> _Cut:
    try:
        names = log.disk.list(log.directory)
        producers, recovery_point = _producers_at(log, segment, position, end_offset, names, truncated, now_ms)
        log.positions.locate(min(log.high_watermark, end_offset))  # and again when all is done
        _ = segment.file, segment.index, segment.times, segment.aborted  # each is opened or read on first use
    except (OSError, StorageError) as error:
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTORS:
            raise _not_now(log, error) from error
        raise _failed(log, error) from error
    return _Cut(segment, position, end_offset, names, producers, recovery_point)


def _decide(log: Log, truncated: Truncated, end_offset: int) -> None:
    """From here on there is no way back. A disk that has no room for the decision leaves the log as it was."""
    synced_offset = log.synced_offset
    # Before the file is there: power that is lost while it is written may leave it, and the next start obeys it.
    log.synced_offset = min(synced_offset, end_offset)
    try:
        mark(log.disk, log.directory, truncated)
    except OSError as error:
        # Too many open files left everything as it was, and it takes a descriptor to look.
        if error.errno not in NO_DESCRIPTORS and may_be_marked(log.disk, log.directory, truncated):
            raise _failed(log, error) from error
        log.synced_offset = synced_offset
        raise _not_now(log, error) from error
    log.saved.truncated = truncated


def _end_before(segment: Segment, position: int) -> int:
    """Where a segment ends whose batches from `position` on are gone."""
    end_offset = segment.base_offset
    if position:
        for batch in segment.batches(segment.index.last_position_upto(position - 1), position):
            end_offset = batch[2] + 1
    return end_offset


def _stop_compaction(log: Log, base_offset: int) -> None:
    """Segments from `base_offset` on change: a compaction of one of them is not worth anything."""
    compaction = log.compaction
    if compaction is None or base_offset >= compaction.end_offset:
        return
    if compaction.is_swapping:
        raise StorageError(f"{log.directory}: a compaction is being put in place; try again when it is done")
    compaction.abandon()


def _cut(log: Log, cut: _Cut, directory: Directory) -> None:
    disk, segment, position, end_offset = log.disk, cut.segment, cut.position, cut.end_offset
    segment.cut(position, end_offset, log.settings.index_interval_bytes)
    for name in cut.names:
        vouched = snapshot_offset(name)
        if vouched is not None and vouched > end_offset:
            disk.remove(f"{log.directory}/{name}")
    # Their file waits for the next checkpoint: one that is under way may be writing it. Until then it is not believed.
    log.epochs.truncate_to(end_offset)
    while log.segments[-1] is not segment:
        gone = log.segments.pop()
        gone.given_up = True
        for suffix in SEGMENT_SUFFIXES:
            disk.remove(gone.path(suffix))
    # Its transaction index stays: below the snapshot that is left it is right, and above it a start makes it again.
    for suffix in REBUILT_SUFFIXES:
        disk.remove(segment.path(suffix))
    directory.sync()
    segment.file.truncate(position)
    segment.file.sync()
    segment.synced_size = position
    segment.first_timestamp = next(segment.batches(0, position))[4] if position else -1
    log.producers = cut.producers
    _end_at(log, end_offset, cut.recovery_point)


def _end_at(log: Log, end_offset: int, recovery_point: int) -> None:
    """The files, `segments`, `producers` and `epochs` were cut to end here. Tickets under way are void."""
    log.active = log.segments[-1]
    log.end_offset = end_offset
    log.epoch = log.epochs.latest
    log.saved.cut(recovery_point, log.saved.truncated.start_offset, log.segments)
    log.cleaned_offset = min(log.cleaned_offset, end_offset)
    # A checkpoint that ran and was not finished proves more than is known here.
    log.synced_offset = max(min(log.synced_offset, end_offset), recovery_point)
    log.unsynced.cut(log.segments, log.synced_offset)
    log.positions.cut()
    schedule_roll(log.active, log.settings)
    log.begin_at(min(log.high_watermark, end_offset))


def _producers_at(
    log: Log, last: Segment, position: int, end_offset: int, names: list[str], truncated: Truncated, now_ms: int
) -> tuple[Producers, int]:
    """The producers as the log tells them up to its new end, and the offset of the snapshot that begins the tale."""
    producers = Producers(count_max=log.producers.count_max, expiry_ms=log.producers.expiry_ms)
    offset, recovery_point = _load_snapshot(log, producers, end_offset, names, truncated, now_ms)
    if not log.producers.entries and not log.producers.transactions.ended:
        producers.clear()
        return producers, recovery_point
    # Segments that were given up stay on disk until a snapshot covers them.
    given_up = [
        item.segment for item in log.doomed if item.end_offset > offset and log.disk.exists(item.segment.path(".log"))
    ]
    segments = given_up + [segment for segment in log.segments if segment.base_offset <= last.base_offset]
    for number, segment in enumerate(segments):
        if number + 1 < len(segments) and segments[number + 1].base_offset <= offset:
            continue
        end = position if segment is last else segment.size
        first = segment.find(offset)
        markers.replay(producers, segment, first[0] if first else end, now_ms, end=end)
    # The snapshot may be older than what is known to be committed: the last stable offset must not go back.
    known = max(log.producers.transactions.committed, log.high_watermark)
    producers.transactions.commit(min(known, end_offset))
    return producers, recovery_point


def _load_snapshot(
    log: Log, producers: Producers, end_offset: int, names: list[str], truncated: Truncated, now_ms: int
) -> tuple[int, int]:
    """The highest one that holds; (its offset, the same if it proves what is below), zeros when there is none."""
    offsets = [found for name in names if (found := snapshot_offset(name)) is not None and found <= end_offset]
    for offset in sorted(offsets, reverse=True):
        try:
            taken = producers.load_snapshot(log.disk.read(snapshot_path(log.directory, offset)), now_ms)
        except CorruptSnapshot:
            continue
        if not truncated.voids(offset, taken.truncations):
            return offset, offset if taken.start_offset is not None else 0
    producers.clear()
    return 0, 0
