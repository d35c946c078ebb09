"""All partitions of a data directory.

`.kafka_cleanshutdown` exists only between a clean stop and the next start: whoever finds it may believe every log to
its end.

Usage: `Logs(disk)`, then `load` each partition of `found` that the metadata knows and `set_aside` the others.
"""

from collections.abc import Callable

from skidway.errors import StorageError
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.log import truncation
from skidway.log.directories import Directories, directory_name, is_nearly, is_stray, parse_directory_name
from skidway.log.durability import checkpointing, starts
from skidway.log.durability.checkpoints import (
    CLEAN_SHUTDOWN,
    DAMAGED,
    WAS_DAMAGED,
    TopicPartition,
    read_clean_shutdown,
    write_clean_shutdown,
)
from skidway.log.durability.directory_work import FilesTicket
from skidway.log.durability.offset_files import OffsetFiles
from skidway.log.durability.sync import snapshot_offset, write_mark
from skidway.log.health import Damage, Quarantined, ReadOnly, reason_bytes
from skidway.log.log import Log
from skidway.log.recovery import settling
from skidway.log.recovery.opening import open_log
from skidway.log.recovery.rewriting import write_anew
from skidway.log.settings import LogSettings
from skidway.ports import Disk

Action = Callable[[], None]


class Logs:
    __slots__ = (
        "_opened",
        "clean",
        "clean_epoch",
        "directories",
        "disk",
        "found",
        "intact",
        "limits",
        "offsets",
        "troubles",
    )

    def __init__(self, disk: Disk, limits: Limits = DEFAULT_LIMITS, *, intact: bool = False) -> None:
        """See what is there. From here on the directory counts as not cleanly closed."""
        self.disk = disk
        self.limits = limits
        self.intact = intact
        """Whether nothing that was written can have been lost since: the last run was killed, the machine ran on."""
        names = disk.list("")
        self.clean = CLEAN_SHUTDOWN in names
        self.clean_epoch = -1
        """The broker epoch of a run that ended cleanly."""
        if self.clean:
            self.clean_epoch = read_clean_shutdown(disk.read(CLEAN_SHUTDOWN))
            disk.remove(CLEAN_SHUTDOWN)
        # Without the mark a crash may follow; after a crash names may be in memory only.
        disk.sync_directory("")
        self.offsets = OffsetFiles(disk)
        self.troubles = self.offsets.troubles
        """What an operator should know about the files that were read."""
        self._opened: dict[TopicPartition, Log] = {}
        self.directories = Directories(disk)
        self.found: dict[TopicPartition, bytes | None] = {}
        """Partitions on disk that are not loaded yet, and the topic ids in them."""
        for key in self.directories.find(names):
            try:
                self.found[key] = self.directories.read_topic_id(key)
            except OSError as error:
                # A loop of links, no permission: this one cannot be opened, all others can.
                self.found[key] = None
                self.troubles.append(f"{directory_name(*key)} cannot be read: {error}")

    def committed_in(self, topic: str, partition: int, topic_id: bytes) -> int:
        """Below which offset this node knew everything to be committed in a partition of this very topic."""
        return self.offsets.committed((topic, partition), topic_id)

    def forget_others(self, keep: Callable[[str, int, bytes | None], bool]) -> None:
        """What was committed in partitions that are not here any more, nor should be."""
        self.offsets.forget_others({*self._opened, *self.found}, keep)

    def claim(self, topic: str, partition: int, topic_id: bytes) -> str | None:
        """Take a found partition for one of this topic if only its `partition.metadata` is missing or damaged; returns
        what is wrong with that file then."""
        key = (topic, partition)
        if self.found[key] == topic_id:
            return None
        data = self.directories.read_metadata(key)
        is_known = self.found[key] is None and self.committed_in(topic, partition, topic_id) > 0
        if not is_nearly(data, topic_id) and not is_known:
            return None
        self.found[key] = None
        return f"is damaged: {data!r}" if data else "is missing"

    def write_anew(self) -> int:
        """A sync has failed since the machine was started, and what it was about cannot be told from what is there: to
        be called before anything is loaded. Returns how many bytes that took. StorageError when it fails again."""
        written = 0
        try:
            for name in self.disk.list(""):
                key = parse_directory_name(name)
                if key is not None or is_stray(name):
                    point = 0 if key is None else self.offsets.recovery_point(key)
                    written += write_anew(self.disk, name, point)
            self.disk.sync_directory("")
        except OSError as error:
            raise StorageError(
                "an fsync of this data directory failed before, and writing the unsynced data again failed too: "
                f"{error}. Nothing that is read from this disk can be trusted: check the disk, free space if it is "
                "full, then start again; after a reboot the node starts with what the disk really has"
            ) from error
        return written

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
        key, offsets = (topic, partition), self.offsets
        of_topic = self.found[key] or topic_id
        committed = offsets.committed(key, of_topic)
        intact = self.clean or self.intact
        metadata = None
        if self.found[key] is None and topic_id is not None:
            metadata = self.directories.write_topic_id(key, topic_id)
        log = open_log(
            self.disk,
            directory_name(topic, partition),
            settings,
            clean=self.clean,
            recovery_point=offsets.recovery_point(key),
            start_offset=offsets.start_offset(key),
            now_ms=now_ms,
            committed=0 if may_be_short and not intact else committed,
            intact=intact,
            limits=self.limits,
            sync=False,
        )
        bound = log.saved.truncated.offset
        log.cleaned_offset = min(offsets.cleaned_offset(key), bound)
        committed = min(committed, bound)
        offsets.on_opened(key, of_topic, committed)
        if may_be_short and not log.quarantined and log.end_offset < committed and not intact:
            log.cuts.append(
                f"{log.directory}: offsets {log.end_offset} to {committed} were acknowledged and are "
                "lost: with flush=os they were not synced before the machine stopped"
            )
            offsets.on_shortened(key, log.end_offset)
        if metadata is not None:
            log.unsynced.add_beside(metadata)
        elif not self.clean and log.saved.recovery_point == 0 and self.found[key] is not None:
            # Whoever created it may have died before its first sync.
            log.unsynced.add_beside(self.directories.written_before(key))
        if sync:
            settling.settle(log)
        del self.found[key]
        self._opened[key] = log
        return log

    def put_back(self, topic: str, partition: int, topic_id: bytes) -> None:
        """It could not be served after all: as if it had not been loaded yet, to be loaded another time."""
        self._opened.pop((topic, partition)).close()
        self.found[topic, partition] = topic_id

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
        self.disk.write_atomic(f"{directory}/{DAMAGED}", reason_bytes(Damage(reason)))
        self.directories.write_topic_id((topic, partition), topic_id).sync()
        self.disk.sync_directory(directory)
        self.disk.sync_directory("")
        self.found[topic, partition] = topic_id
        return self.load(topic, partition, settings, now_ms)

    def create(self, topic: str, partition: int, topic_id: bytes, settings: LogSettings, now_ms: int) -> Log:
        """A new empty partition. Its directory is durable with the first ticket of its log.

        StorageError while a save is under way that speaks about an earlier partition of this name.
        """
        key = (topic, partition)
        assert key not in self._opened, key
        assert key not in self.found, key
        self.offsets.forget_at_once(key)
        directory = directory_name(topic, partition)
        self.disk.make_directory(directory)
        metadata = self.directories.write_topic_id(key, topic_id)
        log = open_log(
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
        self.offsets.on_created(key, topic_id)
        self._opened[key] = log
        return log

    def delete(self, topic: str, partition: int, now_ms: int) -> None:
        """Take a partition out of service; its files go after `file_delete_delay_ms` (see `begin_removal`)."""
        key = (topic, partition)
        log = self._opened[key]
        # First: when the disk refuses, nothing has changed.
        self.directories.delete(key, now_ms + log.settings.file_delete_delay_ms)
        del self._opened[key]
        self.offsets.forget(key)
        log.close()

    def discard(self, topic: str, partition: int, now_ms: int) -> None:
        """Take a partition out that was found on disk and belongs to nothing."""
        key = (topic, partition)
        del self.found[key]
        self.offsets.forget(key)
        self.directories.delete(key, now_ms)

    def set_aside(self, topic: str, partition: int) -> str:
        """Take a partition out that was found on disk and that no topic knows, but keep its data; returns its name."""
        del self.found[topic, partition]
        return self.directories.set_aside((topic, partition))

    def begin_save(self) -> FilesTicket | None:
        """The offset checkpoints. One at a time."""
        return self._ticket() if self.offsets.begin_save() else None

    def finish_save(self, ticket: FilesTicket) -> None:
        self.offsets.finish_save(done=ticket.done)
        if ticket.done:
            self._believe_starts(ticket)
            self._forget_truncations(ticket)

    def _ticket(self) -> FilesTicket:
        ticket = FilesTicket(self.disk, self.offsets.take(self._opened, self.found))
        opened = self._opened.items()
        ticket.truncated = [(key, log, log.saved.truncated) for key, log in opened if truncation.is_over(log)]
        ticket.starts = [
            (log, starts.savable(log), log.saved.truncated.count)
            for _, log in opened
            if starts.is_unsaved(log) and not log.quarantined
        ]
        return ticket

    def _believe_starts(self, ticket: FilesTicket) -> None:
        for log, start_offset, truncations in ticket.starts:
            if log.saved.truncated.count == truncations:
                log.saved.durable_start = max(log.saved.durable_start, start_offset)

    def _forget_truncations(self, ticket: FilesTicket) -> None:
        """Of those that are as they were: one that was deleted has no directory any more, or another has it."""
        for key, log, truncated in ticket.truncated:
            if self._opened.get(key) is log and log.saved.truncated is truncated:
                truncation.forget(log)

    def close(self, *, clean: bool, run: Callable[[list[Action]], None] | None = None, broker_epoch: int = -1) -> None:
        """Close every log. With `clean`, all is saved first; `run` may do the jobs it gets in parallel.

        OSError when something could not be saved; then the directory does not count as cleanly closed.
        """
        logs = [log for _, log in self.items()]
        if clean:
            tickets = [(log, ticket) for log in logs if (ticket := checkpointing.begin(log, closing=True)) is not None]
            (run or run_all)([ticket.run for _, ticket in tickets])
            for log, ticket in tickets:
                log.finish_sync(ticket)
            files = self._ticket()
            files.run()
            self._forget_truncations(files)
        # What was quarantined while it was served may have a tail that nobody synced.
        broken = any(isinstance(log.health, ReadOnly) or (log.quarantined and log.unsynced.segments) for log in logs)
        for log in logs:
            if clean and isinstance(log.health, Quarantined):
                broken |= not self._distrust(log, log.health)
            log.close()
        self._opened.clear()
        if clean and not broken:
            self.disk.write_atomic(CLEAN_SHUTDOWN, write_clean_shutdown(broker_epoch))

    def _distrust(self, log: Log, health: Quarantined) -> bool:
        """A clean start believes what it does not read; it has to read this one. False: the disk refused to say so."""
        try:
            write_mark(self.disk, f"{log.directory}/{WAS_DAMAGED}", health.reason)
        except OSError:
            return not self.disk.exists(log.directory)
        return True


def is_unborn(logs: Logs, key: TopicPartition) -> bool:
    """Whether a crash caught a found partition before its first sync: whose it was, nobody knows.

    The topic id is synced with the first batch and before the first snapshot, so nothing in it was promised.
    """
    if logs.found[key] is not None or logs.offsets.watermarks.get(key, 0) > 0:
        return False
    names = logs.disk.list(directory_name(*key))
    return not any(snapshot_offset(name) is not None for name in names)


def run_all(actions: list[Action]) -> None:
    for action in actions:
        action()
