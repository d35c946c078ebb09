"""The files of a data directory that say where each log stands.

The offset checkpoints are as Kafka writes them; one more, with a checksum and with topic ids, says what was committed.
It remembers partitions whose directories are gone: that they are missing must not be forgotten before somebody has
decided about them.
"""

from collections.abc import Callable, Collection, Mapping

from skidway.errors import StorageError
from skidway.log.durability import starts
from skidway.log.durability.checkpoints import (
    CLEANED_OFFSETS,
    COMMITTED,
    HIGH_WATERMARKS,
    RECOVERY_POINTS,
    START_OFFSETS,
    CorruptCheckpoint,
    TopicPartition,
    read_committed,
    read_offsets,
    write_committed,
    write_offsets,
)
from skidway.log.log import Log
from skidway.ports import Disk

Offsets = dict[TopicPartition, int]


def _nothing_saved() -> dict[str, Offsets]:
    return {name: {} for name in (CLEANED_OFFSETS, RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS)}


class OffsetFiles:
    __slots__ = ("_disk", "_forgotten", "_has_shortened", "_replaced", "_saved", "_saving", "_topic_ids", "troubles")

    def __init__(self, disk: Disk) -> None:
        """Read them."""
        self._disk = disk
        self.troubles: list[str] = []
        """What an operator should know about the files that were read."""
        self._topic_ids: dict[TopicPartition, bytes | None] = {}
        """Of which topics the saved watermarks speak; None where nobody knows."""
        self._forgotten: set[TopicPartition] = set()
        """Partitions that were taken out since the last save."""
        self._has_shortened = False
        """Whether the files speak of records that a loss of power has taken."""
        self._saving = False
        self._replaced = _nothing_saved()
        """What the files say until the save that is under way has come through."""
        self._saved = {name: self._read_offsets(name) for name in _nothing_saved()}
        self._read_committed()

    def _read_offsets(self, name: str) -> Offsets:
        try:
            return read_offsets(self._disk.read(name))
        except FileNotFoundError:
            return {}
        except CorruptCheckpoint as error:
            # Nothing is lost: without a recovery point the producer snapshots tell what is proven.
            self.troubles.append(f"{name} is damaged and was not used: {error}")
            return {}

    def _read_committed(self) -> None:
        try:
            committed = read_committed(self._disk.read(COMMITTED))
        except (FileNotFoundError, CorruptCheckpoint) as error:
            if self.watermarks:
                self.troubles.append(
                    f"{COMMITTED} is missing or damaged ({error}): what was committed is taken from {HIGH_WATERMARKS}"
                )
            return
        self._saved[HIGH_WATERMARKS] = {key: offset for key, (_, offset) in committed.items()}
        self._topic_ids = {key: topic_id for key, (topic_id, _) in committed.items()}

    # What they say.

    @property
    def watermarks(self) -> Offsets:
        """What was known to be committed when it was last saved: where `Log.begin_at` of a replica begins."""
        return self._saved[HIGH_WATERMARKS]

    def recovery_point(self, key: TopicPartition) -> int:
        return self._saved[RECOVERY_POINTS].get(key, 0)

    def start_offset(self, key: TopicPartition) -> int | None:
        return self._saved[START_OFFSETS].get(key)

    def cleaned_offset(self, key: TopicPartition) -> int:
        return self._saved[CLEANED_OFFSETS].get(key, 0)

    def committed(self, key: TopicPartition, topic_id: bytes | None) -> int:
        """Below which offset everything was known to be committed in a partition of this very topic; of whichever had
        the name, if nobody knows the topic."""
        if topic_id is not None and self._topic_ids.get(key) not in (None, topic_id):
            return 0
        return self.watermarks.get(key, 0)

    # What has become of the partitions.

    def on_opened(self, key: TopicPartition, topic_id: bytes | None, committed: int) -> None:
        self._topic_ids[key] = topic_id
        self.watermarks[key] = committed

    def on_shortened(self, key: TopicPartition, end_offset: int) -> None:
        """A loss of power has taken what the files speak of."""
        self.watermarks[key] = end_offset
        self._has_shortened = True

    def on_created(self, key: TopicPartition, topic_id: bytes) -> None:
        self._topic_ids[key] = topic_id
        self._forgotten.discard(key)

    def forget(self, key: TopicPartition) -> None:
        """It was taken out: the next save leaves it out."""
        self._forgotten.add(key)

    def forget_others(self, here: Collection[TopicPartition], keep: Callable[[str, int, bytes | None], bool]) -> None:
        """What was committed in partitions that are not here any more, nor should be."""
        for key in self.watermarks:
            if key not in here and not keep(*key, self._topic_ids.get(key)):
                self._forgotten.add(key)

    def forget_at_once(self, key: TopicPartition) -> None:
        """What the files say about an earlier partition of this name must not be read as a new one's. StorageError
        while a save is under way that speaks about it."""
        under_way = [*self._replaced.values(), *(self._saved.values() if self._saving else ())]
        if any(key in offsets for offsets in under_way):
            raise StorageError("the offsets of a deleted topic of the same name are still being saved")
        for name, offsets in self._saved.items():
            if offsets.pop(key, None) is not None:
                self._disk.write_atomic(name, write_offsets(offsets))
                if name == HIGH_WATERMARKS:
                    self._disk.write_atomic(COMMITTED, self._committed_file())

    # Saving.

    def save_shortened(self) -> bool:
        """Save the watermarks of logs that a loss of power made shorter; false when that cannot be done now. Until then
        the files speak of records that are gone: after a kill in the same boot a start would take that for damage."""
        if not self._has_shortened:
            return True
        if self._saving:
            return False
        try:
            self._disk.write_atomic(HIGH_WATERMARKS, write_offsets(self.watermarks))
            self._disk.write_atomic(COMMITTED, self._committed_file())
        except OSError:
            return False
        self._has_shortened = False
        return True

    def begin_save(self) -> bool:
        """One at a time: false while another is under way. `take` says what is to be written."""
        if self._saving:
            return False
        self._saving = True
        self._replaced = self._saved
        return True

    def finish_save(self, *, done: bool) -> None:
        self._saving = False
        if not done:
            # The files may speak of what they spoke of before, as well as of what they should have.
            self._saved = {name: self._replaced[name] | offsets for name, offsets in self._saved.items()}
        self._replaced = _nothing_saved()

    def take(self, opened: Mapping[TopicPartition, Log], found: Collection[TopicPartition]) -> list[tuple[str, bytes]]:
        """The files as they should be now, with those that are open and those that were only found."""
        # A log that was not loaded or is quarantined knows nothing better than what was saved before.
        kept = {*found, *(key for key, log in opened.items() if log.quarantined)}
        saved = {name: {key: offsets[key] for key in kept if key in offsets} for name, offsets in self._saved.items()}
        for key, offset in self.watermarks.items():
            if key not in opened and key not in self._forgotten:
                saved[HIGH_WATERMARKS][key] = offset
        self._forgotten.clear()
        for key, log in opened.items():
            if log.quarantined:
                continue
            saved[RECOVERY_POINTS][key] = log.saved.recovery_point
            saved[HIGH_WATERMARKS][key] = log.committed_offset
            if (start_offset := starts.savable(log)) > 0:
                saved[START_OFFSETS][key] = start_offset
            if log.cleaned_offset > 0:
                saved[CLEANED_OFFSETS][key] = log.cleaned_offset
        self._saved = saved
        self._topic_ids = {key: self._topic_ids.get(key) for key in {*opened, *self.watermarks}}
        files = [(name, write_offsets(offsets)) for name, offsets in saved.items()]
        return [*files, (COMMITTED, self._committed_file())]

    def _committed_file(self) -> bytes:
        return write_committed({key: (self._topic_ids.get(key), offset) for key, offset in self.watermarks.items()})
