"""All partitions of a data directory, and the files that speak about all of them.

A partition lives in `<topic>-<partition>`; a deleted one is renamed to `<topic>-<partition>.<hex>-delete` and removed
later. `.kafka_cleanshutdown` exists only between a clean stop and the next start: whoever finds it may believe every
log to its end. The offset checkpoints are as Kafka writes them; one more, with a checksum and with topic ids, says what
was committed. It remembers partitions whose directories are gone: that they are missing must not be forgotten before
somebody has decided about them.

Usage: `Logs.open`, then `load` each partition of `found` that the metadata knows and `set_aside` the others.
"""

from collections.abc import Callable

from skidway.errors import StorageError
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.log import truncation
from skidway.log.durability.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    COMMITTED,
    DAMAGED,
    HIGH_WATERMARKS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    START_OFFSETS,
    WAS_DAMAGED,
    CorruptCheckpoint,
    TopicPartition,
    decode_topic_id,
    encode_topic_id,
    read_clean_shutdown,
    read_committed,
    read_offsets,
    write_clean_shutdown,
    write_committed,
    write_offsets,
)
from skidway.log.durability.directory_work import FilesTicket, RemovalTicket
from skidway.log.durability.sync import snapshot_offset
from skidway.log.health import ReadOnly
from skidway.log.log import Log
from skidway.log.recovery import settling
from skidway.log.recovery.rewriting import write_anew
from skidway.log.settings import LogSettings
from skidway.ports import Disk

Action = Callable[[], None]
_NAME_MAX = 255
_DELETED = "-delete"
_STRAY = "-stray"
_FLIPPED_BYTES_MAX = 2
"""A `partition.metadata` that differs from the right one in no more bytes is the right one, damaged. Ids are random:
those of two topics differ in many more."""


def _nothing_saved() -> dict[str, dict[TopicPartition, int]]:
    return {name: {} for name in (CLEANED_OFFSETS, RECOVERY_POINTS, START_OFFSETS, HIGH_WATERMARKS)}


def directory_name(topic: str, partition: int) -> str:
    return f"{topic}-{partition}"


def parse_directory_name(name: str) -> TopicPartition | None:
    """Topic names may hold dashes and dots: the last dash counts."""
    topic, _, partition = name.rpartition("-")
    if not topic or not (partition.isascii() and partition.isdecimal()):
        return None
    return topic, int(partition)


def partition_metadata(topic_id: bytes) -> bytes:
    return f"version: 0\ntopic_id: {encode_topic_id(topic_id)}".encode()


def parse_partition_metadata(data: bytes) -> bytes | None:
    lines = dict(line.split(b": ", 1) for line in data.splitlines() if b": " in line)
    if lines.get(b"version") != b"0":
        return None
    return decode_topic_id(lines.get(b"topic_id", b""))


class _Unopened:
    """A file that is opened when it is synced: thousands of new partitions would take as many descriptors."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def sync(self) -> None:
        self._disk.sync_file(self._path)


class Logs:
    __slots__ = (
        "_deleted",
        "_forgotten",
        "_has_shortened",
        "_opened",
        "_replaced",
        "_saved",
        "_saving",
        "_topic_ids",
        "clean",
        "clean_epoch",
        "disk",
        "found",
        "intact",
        "limits",
        "troubles",
    )

    def __init__(self, disk: Disk, limits: Limits = DEFAULT_LIMITS, *, intact: bool = False) -> None:
        self.disk = disk
        self.limits = limits
        self.clean = False
        self.intact = intact
        """Whether nothing that was written can have been lost since: the last run was killed, the machine ran on."""
        self.troubles: list[str] = []
        """What an operator should know about the files that were read."""
        self.clean_epoch = -1
        """The broker epoch of a run that ended cleanly."""
        self.found: dict[TopicPartition, bytes | None] = {}
        """Partitions on disk that are not loaded yet, and the topic ids in them."""
        self._saved = _nothing_saved()
        self._topic_ids: dict[TopicPartition, bytes | None] = {}
        """Of which topics the saved watermarks speak; None where nobody knows."""
        self._forgotten: set[TopicPartition] = set()
        """Partitions that were taken out since the last save."""
        self._has_shortened = False
        """Whether the files speak of records that a loss of power has taken."""
        self._opened: dict[TopicPartition, Log] = {}
        self._deleted: list[tuple[int, str]] = []
        self._saving = False
        self._replaced = _nothing_saved()
        """What the files say until the save that is under way has come through."""

    @classmethod
    def open(cls, disk: Disk, limits: Limits = DEFAULT_LIMITS, *, intact: bool = False) -> "Logs":
        """See what is there. From here on the directory counts as not cleanly closed."""
        logs = cls(disk, limits, intact=intact)
        names = disk.list("")
        logs.clean = CLEAN_SHUTDOWN in names
        if logs.clean:
            logs.clean_epoch = read_clean_shutdown(disk.read(CLEAN_SHUTDOWN))
            disk.remove(CLEAN_SHUTDOWN)
        # Without the mark a crash may follow; after a crash names may be in memory only.
        disk.sync_directory("")
        logs._saved = {name: logs._read_offsets(name) for name in logs._saved}
        logs._read_committed()
        for name in names:
            key = parse_directory_name(name)
            if key is not None:
                try:
                    logs.found[key] = logs._read_topic_id(name)
                except OSError as error:
                    # A loop of links, no permission: this one cannot be opened, all others can.
                    logs.found[key] = None
                    logs.troubles.append(f"{name} cannot be read: {error}")
            elif name.endswith(_DELETED):
                logs._deleted.append((0, name))
        return logs

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.disk.read(name))
        except FileNotFoundError:
            return {}
        except CorruptCheckpoint as error:
            # Nothing is lost: without a recovery point the producer snapshots tell what is proven.
            self.troubles.append(f"{name} is damaged and was not used: {error}")
            return {}

    def _read_committed(self) -> None:
        try:
            committed = read_committed(self.disk.read(COMMITTED))
        except (FileNotFoundError, CorruptCheckpoint) as error:
            if self._saved[HIGH_WATERMARKS]:
                self.troubles.append(
                    f"{COMMITTED} is missing or damaged ({error}): what was committed is taken from {HIGH_WATERMARKS}"
                )
            return
        self._saved[HIGH_WATERMARKS] = {key: offset for key, (_, offset) in committed.items()}
        self._topic_ids = {key: topic_id for key, (topic_id, _) in committed.items()}

    def committed_in(self, topic: str, partition: int, topic_id: bytes) -> int:
        """Below which offset this node knew everything to be committed in a partition of this very topic."""
        key = (topic, partition)
        if self._topic_ids.get(key) not in (None, topic_id):
            return 0
        return self.saved_watermarks.get(key, 0)

    def forget_others(self, keep: Callable[[str, int, bytes | None], bool]) -> None:
        """What was committed in partitions that are not here any more, nor should be."""
        for key in self.saved_watermarks:
            if key not in self._opened and key not in self.found and not keep(*key, self._topic_ids.get(key)):
                self._forgotten.add(key)

    def claim(self, topic: str, partition: int, topic_id: bytes) -> str | None:
        """Take a found partition for one of this topic if only its `partition.metadata` is missing or damaged; returns
        what is wrong with that file then."""
        key = (topic, partition)
        if self.found[key] == topic_id:
            return None
        try:
            data = self.disk.read(f"{directory_name(topic, partition)}/{PARTITION_METADATA}")
        except FileNotFoundError:
            data = b""
        expected = partition_metadata(topic_id)
        flipped = sum(one != other for one, other in zip(data, expected, strict=False))
        is_similar = len(data) == len(expected) and flipped <= _FLIPPED_BYTES_MAX
        is_known = self.found[key] is None and self.committed_in(topic, partition, topic_id) > 0
        if not is_similar and not is_known:
            return None
        self.found[key] = None
        return f"is damaged: {data!r}" if data else "is missing"

    def _read_topic_id(self, directory: str) -> bytes | None:
        try:
            return parse_partition_metadata(self.disk.read(f"{directory}/{PARTITION_METADATA}"))
        except FileNotFoundError:
            return None

    def write_anew(self) -> int:
        """A sync has failed since the machine was started, and what it was about cannot be told from what is there: to
        be called before anything is loaded. Returns how many bytes that took. StorageError when it fails again."""
        written = 0
        try:
            for name in self.disk.list(""):
                key = parse_directory_name(name)
                if key is not None or name.endswith(_STRAY):
                    point = 0 if key is None else self._saved[RECOVERY_POINTS].get(key, 0)
                    written += write_anew(self.disk, name, point)
            self.disk.sync_directory("")
        except OSError as error:
            raise StorageError(
                "an fsync of this data directory failed before, and writing the unsynced data again failed too: "
                f"{error}. Nothing that is read from this disk can be trusted: check the disk, free space if it is "
                "full, then start again; after a reboot the node starts with what the disk really has"
            ) from error
        return written

    @property
    def saved_watermarks(self) -> dict[TopicPartition, int]:
        """What was known to be committed when it was last saved: where `Log.begin_at` of a replica begins."""
        return self._saved[HIGH_WATERMARKS]

    def items(self) -> list[tuple[TopicPartition, Log]]:
        return list(self._opened.items())

    def get(self, topic: str, partition: int) -> Log | None:
        return self._opened.get((topic, partition))

    def load(
        self,
        topic: str,
        partition: int,
        settings: LogSettings,
        now_ms: int,
        topic_id: bytes | None = None,
        *,
        sync: bool = True,
        may_be_short: bool = False,
    ) -> Log:
        """Open a partition that was found on disk. Its topic id is written anew where a crash took it.

        Without `sync`, what a crash left in memory only is for the caller to sync (see `settling`). A log that ends
        below what was committed is quarantined, unless it `may_be_short`: a loss of power may have taken what was
        never meant to be synced.
        """
        key = (topic, partition)
        metadata = None
        of_topic = self.found[key] or topic_id
        committed = self.saved_watermarks.get(key, 0) if of_topic is None else self.committed_in(*key, of_topic)
        intact = self.clean or self.intact
        if self.found[key] is None and topic_id is not None:
            metadata = self._write_topic_id(directory_name(topic, partition), topic_id)
        log = Log.open(
            self.disk,
            directory_name(topic, partition),
            settings,
            clean=self.clean,
            recovery_point=self._saved[RECOVERY_POINTS].get(key, 0),
            start_offset=self._saved[START_OFFSETS].get(key),
            now_ms=now_ms,
            committed=0 if may_be_short and not intact else committed,
            intact=intact,
            limits=self.limits,
            sync=False,
        )
        bound = log.truncated.offset
        log.cleaned_offset = min(self._saved[CLEANED_OFFSETS].get(key, 0), bound)
        self.saved_watermarks[key] = min(committed, bound)
        self._topic_ids[key] = of_topic
        if may_be_short and not log.quarantined and log.end_offset < self.saved_watermarks[key] and not intact:
            log.cuts.append(
                f"{log.directory}: offsets {log.end_offset} to {self.saved_watermarks[key]} were acknowledged and are "
                "lost: with flush=os they were not synced before the machine stopped"
            )
            self.saved_watermarks[key] = log.end_offset
            self._has_shortened = True
        if metadata is not None:
            log.unsynced.add_beside(metadata)
        elif not self.clean and log.recovery_point == 0 and self.found[key] is not None:
            # Whoever created it may have died before its first sync.
            log.unsynced.add_beside(_Unopened(self.disk, f"{log.directory}/{PARTITION_METADATA}"))
        if sync:
            settling.settle(log)
        del self.found[key]
        self._opened[key] = log
        return log

    def load_or_create(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        settings: LogSettings,
        now_ms: int,
        *,
        sync: bool = True,
        may_be_short: bool = False,
    ) -> Log:
        if (topic, partition) in self.found:
            return self.load(topic, partition, settings, now_ms, topic_id, sync=sync, may_be_short=may_be_short)
        return self.create(topic, partition, topic_id, settings, now_ms)

    def create_missing(
        self, topic: str, partition: int, topic_id: bytes, settings: LogSettings, now_ms: int, reason: str
    ) -> Log:
        """In the place of a partition whose files are gone: quarantined, and durably so. What was committed in it stays
        known."""
        directory = directory_name(topic, partition)
        self.disk.make_directory(directory)
        self.disk.write_atomic(f"{directory}/{DAMAGED}", reason.encode())
        self._write_topic_id(directory, topic_id).sync()
        self.disk.sync_directory(directory)
        self.disk.sync_directory("")
        self.found[topic, partition] = topic_id
        return self.load(topic, partition, settings, now_ms)

    def _write_topic_id(self, directory: str, topic_id: bytes) -> _Unopened:
        path = f"{directory}/{PARTITION_METADATA}"
        file = self.disk.open(path, create=True)
        file.truncate(0)
        file.append(partition_metadata(topic_id))
        file.close()
        return _Unopened(self.disk, path)

    def create(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings, now_ms: int) -> Log:
        """A new empty partition. Its directory is durable with the first ticket of its log.

        StorageError while a save is under way that speaks about an earlier partition of this name.
        """
        key = (topic, partition)
        assert key not in self._opened, key
        assert key not in self.found, key
        under_way = [*self._replaced.values(), *(self._saved.values() if self._saving else ())]
        if any(key in offsets for offsets in under_way):
            raise StorageError("the offsets of a deleted topic of the same name are still being saved")
        self._forget_offsets(key)
        directory = directory_name(topic, partition)
        self.disk.make_directory(directory)
        metadata = self._write_topic_id(directory, topic_id)
        log = Log.open(
            self.disk,
            directory,
            settings,
            clean=True,
            recovery_point=0,
            start_offset=None,
            now_ms=now_ms,
            limits=self.limits,
        )
        log.unsynced.add_beside(metadata)
        self._topic_ids[key] = topic_id
        self._forgotten.discard(key)
        self._opened[key] = log
        return log

    def _forget_offsets(self, key: TopicPartition) -> None:
        # What the files say about an earlier partition of this name must not be read as the new one's.
        for name, offsets in self._saved.items():
            if offsets.pop(key, None) is not None:
                self.disk.write_atomic(name, write_offsets(offsets))
                if name == HIGH_WATERMARKS:
                    self.disk.write_atomic(COMMITTED, self._committed_file(offsets))

    def _committed_file(self, offsets: dict[TopicPartition, int]) -> bytes:
        return write_committed({key: (self._topic_ids.get(key), offset) for key, offset in offsets.items()})

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """Take a partition out of service; its files go after `file_delete_delay_ms` (see `begin_removal`)."""
        log = self._opened[topic, partition]
        renamed = self._rename(topic, partition, _DELETED)  # first: when the disk refuses, nothing has changed
        del self._opened[topic, partition]
        self._forgotten.add((topic, partition))
        log.close(clean=False)
        self._deleted.append((now_ms + log.settings.file_delete_delay_ms, renamed))

    def discard(self, topic: str, partition: int, now_ms: int) -> None:
        """Take a partition out that was found on disk and belongs to nothing."""
        del self.found[topic, partition]
        self._forgotten.add((topic, partition))
        self._deleted.append((now_ms, self._rename(topic, partition, _DELETED)))

    def is_unborn(self, topic: str, partition: int) -> bool:
        """Whether a crash caught a found partition before its first sync: whose it was, nobody knows.

        The topic id is synced with the first batch and before the first snapshot, so nothing in it was promised.
        """
        if self.found[topic, partition] is not None or self.saved_watermarks.get((topic, partition), 0) > 0:
            return False
        names = self.disk.list(directory_name(topic, partition))
        return not any(snapshot_offset(name) is not None for name in names)

    def is_empty(self, topic: str, partition: int) -> bool:
        """Whether a found partition holds no record."""
        directory = directory_name(topic, partition)
        return not any(
            name.endswith(".log") and self.disk.size(f"{directory}/{name}") for name in self.disk.list(directory)
        )

    def set_aside(self, topic: str, partition: int) -> str:
        """Take a partition out that was found on disk and that no topic knows, but keep its data; returns its name."""
        del self.found[topic, partition]
        return self._rename(topic, partition, _STRAY)

    def _rename(self, topic: str, partition: int, ending: str) -> str:
        directory = directory_name(topic, partition)
        mark = (self._read_topic_id(directory) or bytes(16)).hex()
        number = 0
        while True:
            suffix = f"-{partition}.{mark[:-4]}{int(mark[-4:], 16) ^ number:04x}{ending}"
            target = topic[: _NAME_MAX - len(suffix)] + suffix
            if not self.disk.exists(target):
                break
            number += 1
        self.disk.rename(directory, target)
        return target

    def save_shortened(self) -> bool:
        """Save the watermarks of logs that a loss of power made shorter; false when that cannot be done now. Until then
        the files speak of records that are gone: after a kill in the same boot a start would take that for damage."""
        if not self._has_shortened:
            return True
        if self._saving:
            return False
        offsets = self.saved_watermarks
        try:
            self.disk.write_atomic(HIGH_WATERMARKS, write_offsets(offsets))
            self.disk.write_atomic(COMMITTED, self._committed_file(offsets))
        except OSError:
            return False
        self._has_shortened = False
        return True

    def begin_removal(self, now_ms: int) -> RemovalTicket | None:
        """Deleted partitions whose time has come."""
        due = [name for due_ms, name in self._deleted if due_ms <= now_ms]
        if not due:
            return None
        self._deleted = [item for item in self._deleted if item[0] > now_ms]
        return RemovalTicket(self.disk, due)

    def give_back_removal(self, ticket: RemovalTicket) -> None:
        """It failed: `begin_removal` will hand them out again."""
        self._deleted += [(0, name) for name in ticket.trees]

    def begin_save(self) -> FilesTicket | None:
        """The offset checkpoints. One at a time."""
        if self._saving:
            return None
        self._saving = True
        self._replaced = self._saved
        return self._ticket()

    def finish_save(self, ticket: FilesTicket) -> None:
        self._saving = False
        if not ticket.done:
            # The files may speak of what they spoke of before, as well as of what they should have.
            self._saved = {name: self._replaced[name] | offsets for name, offsets in self._saved.items()}
        else:
            self._believe_starts(ticket)
            self._forget_truncations(ticket)
        self._replaced = _nothing_saved()

    def _ticket(self) -> FilesTicket:
        ticket = FilesTicket(self.disk, self._checkpoint_files())
        opened = self._opened.items()
        ticket.truncated = [(key, log, log.truncated) for key, log in opened if truncation.is_over(log)]
        ticket.starts = [
            (log, log.start_offset, log.truncated.count)
            for _, log in opened
            if log.start_offset > log.durable_start and not log.quarantined
        ]
        return ticket

    def _believe_starts(self, ticket: FilesTicket) -> None:
        for log, start_offset, truncations in ticket.starts:
            if log.truncated.count == truncations:
                log.durable_start = max(log.durable_start, start_offset)

    def _forget_truncations(self, ticket: FilesTicket) -> None:
        """Of those that are as they were: one that was deleted has no directory any more, or another has it."""
        for key, log, truncated in ticket.truncated:
            if self._opened.get(key) is log and log.truncated is truncated:
                truncation.forget(log)

    def _checkpoint_files(self) -> list[tuple[str, bytes]]:
        # A log that was not loaded or is quarantined knows nothing better than what was saved before.
        kept = {*self.found, *(key for key, log in self._opened.items() if log.quarantined)}
        saved = {name: {key: offsets[key] for key in kept if key in offsets} for name, offsets in self._saved.items()}
        for key, offset in self.saved_watermarks.items():
            if key not in self._opened and key not in self._forgotten:
                saved[HIGH_WATERMARKS][key] = offset
        self._forgotten.clear()
        for key, log in self._opened.items():
            if log.quarantined:
                continue
            saved[RECOVERY_POINTS][key] = log.recovery_point
            saved[HIGH_WATERMARKS][key] = log.committed_offset
            if log.start_offset > 0:
                saved[START_OFFSETS][key] = log.start_offset
            if log.cleaned_offset > 0:
                saved[CLEANED_OFFSETS][key] = log.cleaned_offset
        self._saved = saved
        self._topic_ids = {key: self._topic_ids.get(key) for key in {*self._opened, *saved[HIGH_WATERMARKS]}}
        files = [(name, write_offsets(offsets)) for name, offsets in saved.items()]
        return [*files, (COMMITTED, self._committed_file(saved[HIGH_WATERMARKS]))]

    def close(self, *, clean: bool, run: Callable[[list[Action]], None] | None = None, broker_epoch: int = -1) -> None:
        """Close every log. With `clean`, all is saved first; `run` may do the jobs it gets in parallel.

        OSError when something could not be saved; then the directory does not count as cleanly closed.
        """
        logs = [log for _, log in self.items()]
        if clean:
            tickets = [(log, ticket) for log in logs if (ticket := log.checkpoint(closing=True)) is not None]
            (run or run_all)([ticket.run for _, ticket in tickets])
            for log, ticket in tickets:
                log.finish_sync(ticket)
            files = self._ticket()
            files.run()
            self._forget_truncations(files)
        # What was quarantined while it was served may have a tail that nobody synced.
        broken = any(isinstance(log.health, ReadOnly) or (log.quarantined and log.unsynced.segments) for log in logs)
        for log in logs:
            if clean and log.quarantined:
                broken |= not self._distrust(log)
            log.close(clean=False)
        self._opened.clear()
        if clean and not broken:
            self.disk.write_atomic(CLEAN_SHUTDOWN, write_clean_shutdown(broker_epoch))

    def _distrust(self, log: Log) -> bool:
        """A clean start believes what it does not read; it has to read this one. False: the disk refused to say so."""
        try:
            self.disk.write_atomic(f"{log.directory}/{WAS_DAMAGED}", str(log.failure).encode())
        except OSError:
            return not self.disk.exists(log.directory)
        return True


def run_all(actions: list[Action]) -> None:
    for action in actions:
        action()
