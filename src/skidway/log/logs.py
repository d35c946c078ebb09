"""All partitions of a data directory, and the files that speak about all of them.

A partition lives in `<topic>-<partition>`; a deleted one is renamed to `<topic>-<partition>.<hex>-delete` and removed
later. `.kafka_cleanshutdown` exists only between a clean stop and the next start: whoever finds it may believe every
log to its end. The offset checkpoints are as Kafka writes them.

Usage: `Logs.open`, then `load` each partition of `found` that the metadata knows and `set_aside` the others.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable
from contextlib import suppress

from skidway.errors import StorageError
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.log import settling, truncation
from skidway.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    START_OFFSETS,
    CorruptCheckpoint,
    TopicPartition,
    Truncated,
    read_clean_shutdown,
    read_offsets,
    write_clean_shutdown,
    write_offsets,
)
from skidway.log.log import Log
from skidway.log.rewriting import write_anew
from skidway.log.settings import LogSettings
from skidway.log.sync import snapshot_offset
from skidway.ports import Disk, File

Job = Callable[[], None]
_NAME_MAX = 255
_DELETED = "-delete"
_STRAY = "-stray"


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
    encoded = urlsafe_b64encode(topic_id).decode().rstrip("=")
    return f"version: 0\ntopic_id: {encoded}".encode()


def parse_partition_metadata(data: bytes) -> bytes | None:
    lines = dict(line.split(b": ", 1) for line in data.splitlines() if b": " in line)
    if lines.get(b"version") != b"0":
        return None
    try:
        topic_id = urlsafe_b64decode(lines.get(b"topic_id", b"") + b"==")
    except ValueError:
        return None
    return topic_id if len(topic_id) == 16 else None


class FilesTicket:
    """Directories to remove and small files to replace: run on any thread, in order."""

    __slots__ = ("disk", "done", "files", "trees", "truncated")
    maintenance = True

    def __init__(self, disk: Disk, files: list[tuple[str, bytes]], trees: list[str]) -> None:
        self.disk = disk
        self.files = files
        self.trees = trees
        self.truncated: list[tuple[TopicPartition, Log, Truncated]] = []
        """Logs that were truncated before the files were written."""
        self.done = False

    def run(self) -> None:
        # First what makes room: on a full disk the rest may fail.
        for path in self.trees:
            self.disk.remove_tree(path)
        for path, data in self.files:
            self.disk.write_atomic(path, data)
        for _, log, _ in self.truncated:
            with suppress(FileNotFoundError):  # deleted meanwhile
                self.disk.sync_directory(log.directory)
        self.done = True


class _Unopened:
    """A file that an earlier run wrote, opened when it is synced: thousands of them would take as many descriptors."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    def sync(self) -> None:
        self._disk.open(self._path).sync()


class Logs:
    __slots__ = (
        "_deleted",
        "_opened",
        "_replaced",
        "_saved",
        "_saving",
        "clean",
        "clean_epoch",
        "disk",
        "found",
        "limits",
    )

    def __init__(self, disk: Disk, limits: Limits = DEFAULT_LIMITS) -> None:
        self.disk = disk
        self.limits = limits
        self.clean = False
        self.clean_epoch = -1
        """The broker epoch of a run that ended cleanly."""
        self.found: dict[TopicPartition, bytes | None] = {}
        """Partitions on disk that are not loaded yet, and the topic ids in them."""
        self._saved = _nothing_saved()
        self._opened: dict[TopicPartition, Log] = {}
        self._deleted: list[tuple[int, str]] = []
        self._saving = False
        self._replaced = _nothing_saved()
        """What the files say until the save that is under way has come through."""

    @classmethod
    def open(cls, disk: Disk, limits: Limits = DEFAULT_LIMITS) -> "Logs":
        """See what is there. From here on the directory counts as not cleanly closed."""
        logs = cls(disk, limits)
        names = disk.list("")
        logs.clean = CLEAN_SHUTDOWN in names
        if logs.clean:
            logs.clean_epoch = read_clean_shutdown(disk.read(CLEAN_SHUTDOWN))
            disk.remove(CLEAN_SHUTDOWN)
        # Without the mark a crash may follow; after a crash names may be in memory only.
        disk.sync_directory("")
        logs._saved = {name: logs._read_offsets(name) for name in logs._saved}
        for name in names:
            key = parse_directory_name(name)
            if key is not None:
                logs.found[key] = logs._read_topic_id(name)
            elif name.endswith(_DELETED):
                logs._deleted.append((0, name))
        return logs

    def _read_offsets(self, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.disk.read(name))
        except (FileNotFoundError, CorruptCheckpoint):
            # Nothing is lost: without a recovery point the producer snapshots tell what is proven.
            return {}

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
                f"a sync of this data directory has failed before, and writing anew what was not synced failed too: "
                f"{error}. Nothing that is read from this disk can be trusted: look at the disk, make room if it is "
                "full, then start again; after a reboot the node begins with what the disk really has"
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
    ) -> Log:
        """Open a partition that was found on disk. Its topic id is written anew where a crash took it.

        Without `sync`, what a crash left in memory only is for the caller to sync (see `settling`).
        """
        key = (topic, partition)
        metadata = None
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
            limits=self.limits,
            sync=False,
        )
        bound = log.truncated.offset
        log.cleaned_offset = min(self._saved[CLEANED_OFFSETS].get(key, 0), bound)
        self.saved_watermarks[key] = min(self.saved_watermarks.get(key, 0), bound)
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
    ) -> Log:
        if (topic, partition) in self.found:
            return self.load(topic, partition, settings, now_ms, topic_id, sync=sync)
        return self.create(topic, partition, topic_id, settings, now_ms)

    def _write_topic_id(self, directory: str, topic_id: bytes) -> File:
        file = self.disk.open(f"{directory}/{PARTITION_METADATA}", create=True)
        file.truncate(0)
        file.append(partition_metadata(topic_id))
        return file

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
        self._opened[key] = log
        return log

    def _forget_offsets(self, key: TopicPartition) -> None:
        # What the files say about an earlier partition of this name must not be read as the new one's.
        for name, offsets in self._saved.items():
            if offsets.pop(key, None) is not None:
                self.disk.write_atomic(name, write_offsets(offsets))

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """Take a partition out of service; its files go after `file_delete_delay_ms` (see `begin_save`)."""
        log = self._opened[topic, partition]
        renamed = self._rename(topic, partition, _DELETED)  # first: when the disk refuses, nothing has changed
        del self._opened[topic, partition]
        log.close(clean=False)
        self._deleted.append((now_ms + log.settings.file_delete_delay_ms, renamed))

    def discard(self, topic: str, partition: int, now_ms: int) -> None:
        """Take a partition out that was found on disk and belongs to nothing."""
        del self.found[topic, partition]
        self._deleted.append((now_ms, self._rename(topic, partition, _DELETED)))

    def is_unborn(self, topic: str, partition: int) -> bool:
        """Whether a crash caught a found partition before its first sync: whose it was, nobody knows.

        The topic id is synced with the first batch and before the first snapshot, so nothing in it was promised.
        """
        if self.found[topic, partition] is not None:
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

    def begin_save(self, now_ms: int) -> FilesTicket | None:
        """The offset checkpoints, and deleted partitions whose time has come. One at a time."""
        if self._saving:
            return None
        self._saving = True
        due = [name for due_ms, name in self._deleted if due_ms <= now_ms]
        self._deleted = [item for item in self._deleted if item[0] > now_ms]
        self._replaced = self._saved
        return self._ticket(due)

    def finish_save(self, ticket: FilesTicket) -> None:
        self._saving = False
        if not ticket.done:
            # The files may speak of what they spoke of before, as well as of what they should have.
            self._saved = {name: self._replaced[name] | offsets for name, offsets in self._saved.items()}
        else:
            self._forget_truncations(ticket)
        self._replaced = _nothing_saved()

    def _ticket(self, trees: list[str]) -> FilesTicket:
        ticket = FilesTicket(self.disk, self._checkpoint_files(), trees)
        opened = self._opened.items()
        ticket.truncated = [(key, log, log.truncated) for key, log in opened if truncation.is_over(log)]
        return ticket

    def _forget_truncations(self, ticket: FilesTicket) -> None:
        """Of those that are as they were: one that was deleted has no directory any more, or another has it."""
        for key, log, truncated in ticket.truncated:
            if self._opened.get(key) is log and log.truncated is truncated:
                truncation.forget(log)

    def _checkpoint_files(self) -> list[tuple[str, bytes]]:
        # A log that was not loaded or is quarantined knows nothing better than what was saved before.
        kept = {*self.found, *(key for key, log in self._opened.items() if log.quarantined)}
        saved = {name: {key: offsets[key] for key in kept if key in offsets} for name, offsets in self._saved.items()}
        for key, log in self._opened.items():
            if log.quarantined:
                continue
            saved[RECOVERY_POINTS][key] = log.recovery_point
            saved[HIGH_WATERMARKS][key] = log.high_watermark
            if log.start_offset > 0:
                saved[START_OFFSETS][key] = log.start_offset
            if log.cleaned_offset > 0:
                saved[CLEANED_OFFSETS][key] = log.cleaned_offset
        self._saved = saved
        return [(name, write_offsets(offsets)) for name, offsets in saved.items()]

    def close(self, *, clean: bool, run: Callable[[list[Job]], None] | None = None, broker_epoch: int = -1) -> None:
        """Close every log. With `clean`, all is saved first; `run` may do the jobs it gets in parallel.

        OSError when something could not be saved; then the directory does not count as cleanly closed.
        """
        logs = [log for _, log in self.items()]
        if clean:
            tickets = [(log, ticket) for log in logs if (ticket := log.checkpoint(closing=True)) is not None]
            (run or run_all)([ticket.run for _, ticket in tickets])
            for log, ticket in tickets:
                log.finish_sync(ticket)
            files = self._ticket([])
            files.run()
            self._forget_truncations(files)
        # What was quarantined while it was served may have a tail that nobody synced.
        broken = any(log.failure is not None and (not log.quarantined or log.unsynced.segments) for log in logs)
        for log in logs:
            log.close(clean=False)
        self._opened.clear()
        if clean and not broken:
            self.disk.write_atomic(CLEAN_SHUTDOWN, write_clean_shutdown(broker_epoch))


def run_all(jobs: list[Job]) -> None:
    for job in jobs:
        job()
