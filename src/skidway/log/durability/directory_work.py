"""Work for a thread on the data directory as a whole: the files that speak about all logs, and what deleted partitions
left. `Logs` hands it out."""

from contextlib import suppress

from skidway.log.durability.checkpoints import TopicPartition, Truncated
from skidway.log.log import Log
from skidway.ports import Disk


class FilesTicket:
    """Small files to replace: run on any thread, in order."""

    __slots__ = ("disk", "done", "files", "starts", "truncated")

    def __init__(self, disk: Disk, files: list[tuple[str, bytes]]) -> None:
        self.disk = disk
        self.files = files
        self.truncated: list[tuple[TopicPartition, Log, Truncated]] = []
        """Logs that were truncated before the files were written."""
        self.starts: list[tuple[Log, int, int]] = []
        """Logs whose start the files will make durable: (log, start offset, how often it had been truncated)."""
        self.done = False

    def run(self) -> None:
        for path, data in self.files:
            self.disk.write_atomic(path, data)
        for _, log, _ in self.truncated:
            with suppress(FileNotFoundError):  # deleted meanwhile
                self.disk.sync_directory(log.directory)
        self.done = True


class RemovalTicket:
    """Directories of deleted partitions to remove: run on any thread. Nobody waits for it."""

    __slots__ = ("disk", "trees")

    def __init__(self, disk: Disk, trees: list[str]) -> None:
        self.disk = disk
        self.trees = trees

    def run(self) -> None:
        for path in self.trees:
            self.disk.remove_tree(path)
