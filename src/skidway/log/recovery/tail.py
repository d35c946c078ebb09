"""Reading a log's tail back: what lies behind the last snapshot is read again, and a torn end is cut."""

from itertools import pairwise

from skidway.limits import INT64_MAX
from skidway.log import markers
from skidway.log.durability.checkpoints import LEADER_EPOCHS, CorruptCheckpoint, read_epochs
from skidway.log.epochs import LeaderEpochs
from skidway.log.health import Damage
from skidway.log.producers import Producers
from skidway.log.recovery.log_files import LogFiles
from skidway.log.recovery.proof import Proof
from skidway.log.recovery.replay import Replay
from skidway.log.recovery.unfinished import is_unfinished_append
from skidway.log.segment import Segment
from skidway.log.settings import LogSettings


class Unproven(Exception):
    """The part of a log that was synced is not what it was."""


class NotClean(Exception):
    """A log that was said to be cleanly closed does not look so."""


class Tail:
    """What lies behind the snapshot at this offset."""

    __slots__ = ("_clean", "_files", "_intact", "_producers", "_proof", "_settings", "_snapshot", "saved_epochs")

    def __init__(
        self,
        files: LogFiles,
        proof: Proof,
        settings: LogSettings,
        producers: Producers,
        snapshot: int,
        *,
        clean: bool,
        intact: bool,
    ) -> None:
        self._files = files
        self._proof = proof
        self._settings = settings
        self._producers = producers
        self._snapshot = snapshot
        self._clean = clean
        self._intact = intact
        self.saved_epochs: list[tuple[int, int]] = []

    def read_epochs(self, segments: list[Segment]) -> LeaderEpochs:
        """Those below the snapshot."""
        files, snapshot = self._files, self._snapshot
        try:
            path = f"{files.directory}/{LEADER_EPOCHS}"
            saved = read_epochs(files.disk.read(path)) if LEADER_EPOCHS in files.names else []
        except CorruptCheckpoint:
            saved = []
        epochs = LeaderEpochs(saved)
        if saved and epochs.entries() == saved:
            self.saved_epochs = saved
        else:
            # A replica that does not know them would never notice that its log parts from its leader's.
            epochs = _epochs_of_batches(self._proof.without_given_up(segments), snapshot)
        # What the replay will see, it sees from the batches.
        epochs.truncate_to(snapshot)
        return epochs

    def replay(self, segments: list[Segment], epochs: LeaderEpochs) -> tuple[int, int]:
        """Read it, cut what is torn. Returns the end offset and how much was read."""
        snapshot, interval = self._snapshot, self._settings.index_interval_bytes
        first = max((i for i, segment in enumerate(segments) if segment.base_offset <= snapshot), default=0)
        self._check_joined(self._proof.without_given_up(segments[: first + 1]))
        replay = Replay(
            next_offset=segments[first].base_offset,
            proven=INT64_MAX if self._clean else self._proof.proven,
            producers=self._producers,
            producers_from=snapshot,
            epochs=epochs,
            interval=interval,
            now_ms=self._files.now_ms,
        )
        scanned = 0
        # Unlike the others these indexes are believed after a cut. A checkpoint that was begun before it may have
        # written them, but then none was begun after it, and above the last snapshot they are made again.
        aborted_known = True
        for number in range(first, len(segments)):
            segment = segments[number]
            if segment.base_offset != replay.next_offset and segment.base_offset > self._proof.proven:
                # The end of the segment before never reached the disk, so this one is no continuation.
                before = segments[number - 1].size
                self._cut(segments, number - 1, before, replay.next_offset, f"the next file is {segment.path('.log')}")
                break
            replay.next_offset = max(replay.next_offset, segment.base_offset)
            upto = snapshot if number == first else segment.base_offset
            aborted_known &= markers.keep_aborted(segment, upto)
            position = self._open_indexes(segment, upto)
            end = replay.read(segment, position)
            segment.index_saved = False
            scanned += end - position
            if end != segment.size:
                self._cut(segments, number, end, replay.next_offset, "the batch there is damaged")
                break
        if replay.next_offset < self._proof.known:
            raise Unproven(f"it ends at {replay.next_offset}")
        if not self._clean and replay.next_offset > self._proof.proven:
            _distrust_memory(segments[first:])
        if not aborted_known:
            markers.rebuild_aborted(self._proof.without_given_up(segments))
        active = segments[-1]
        if active.size:
            active.first_timestamp = next(active.batches(0, active.size))[4]
        for segment in segments:
            segment.unload()
        return replay.next_offset, scanned

    def _check_joined(self, segments: list[Segment]) -> None:
        """No file is missing between those that are not read again. Topics that Kafka compacted may have gaps."""
        if self._settings.compact:
            return
        for segment, following in pairwise(segments):
            end_offset = segment.end_offset()
            segment.unload()
            if end_offset != following.base_offset:
                raise Unproven(f"offsets {end_offset} to {following.base_offset} are missing: a file is gone or short")

    def _open_indexes(self, segment: Segment, upto: int) -> int:
        """Keep what the index files say below offset `upto`; returns the position to go on from."""
        interval = self._settings.index_interval_bytes
        # A segment so short has no entries.
        if upto <= segment.base_offset or segment.size <= interval or not segment.read_index_files():
            segment.begin_indexes(interval)
            return 0
        segment.index.cut(segment.index.entries_below(upto - segment.base_offset))
        segment.times.cut(segment.times.entries_below(upto - segment.base_offset))
        segment.note_index_ends(interval)
        return segment.index.positions[-1] if len(segment.index) else 0

    def _cut(self, segments: list[Segment], number: int, size: int, end_offset: int, why: str) -> None:
        if end_offset < self._proof.known:
            raise Unproven(f"from offset {end_offset} on it cannot be read: {why}")
        if self._clean:
            raise NotClean
        segment = segments[number]
        is_last = number + 1 == len(segments)
        if self._intact and not (is_last and is_unfinished_append(segment, size, end_offset)):
            reason = f"from offset {end_offset} on it cannot be read, and no crash explains it: {why}"
            self._files.remember_damage(Damage(reason))
            raise Unproven(reason)
        self._files.note_cut(
            end_offset, segments[number:], size, "an append that a kill or a loss of power interrupted"
        )
        self._files.cut(segments, number, size)


def _distrust_memory(segments: list[Segment]) -> None:
    # After a crash of the process alone the bytes may still be in memory only; what is served must be durable.
    for segment in segments:
        segment.synced_size = 0


def _epochs_of_batches(segments: list[Segment], end_offset: int) -> LeaderEpochs:
    epochs = LeaderEpochs()
    for segment in segments:
        if segment.base_offset >= end_offset:
            break
        for _, base_offset, last_offset, _, _, epoch in segment.batches(0, segment.size):
            epochs.assign(epoch, base_offset)
            if last_offset + 1 >= end_offset:
                return epochs  # what follows may be torn
    return epochs
