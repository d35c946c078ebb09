"""What a run leaves on the disk for the next one, should it end without a word: its broker epoch and the boot.

As long as the machine has not been started anew since, a process that was killed has lost nothing it wrote: the files
hold it, synced or not. Such an end counts as clean: this broker still has all that it said it had.

A sync that fails takes the file away, at once. So where it is missing, the kernel may show bytes that the disk does
not have, and nothing that was not synced is to be believed before it is in new files (`log.rewriting`). Should a
loss of power bring the file back, it takes those bytes as well: what is read then is what is on the disk.
"""

import json
from contextlib import suppress

from skidway.ports import Disk

PATH = "last-run"
NO_EPOCH = -1


class LastRun:
    __slots__ = ("_disk", "sync_failed")

    def __init__(self, disk: Disk) -> None:
        """From now on `disk` tells this one about syncs that fail."""
        self._disk = disk
        self.sync_failed = False
        """In this run."""
        disk.on_sync_failed = self.on_sync_failed

    def on_sync_failed(self) -> None:
        """Called on any thread."""
        self.sync_failed = True
        self.forget()

    @property
    def is_sound(self) -> bool:
        """Whether no sync has failed since the machine was started, or since what it was about was written anew."""
        return self._read() is not None

    @property
    def broker_epoch(self) -> int:
        """-1 when something written may have been lost since."""
        found = self._read()
        if found is None or found[1] == "" or found[1] != self._disk.boot_id():
            return NO_EPOCH
        return found[0]

    def note(self, broker_epoch: int) -> None:
        """From now on this epoch is the last run's. A disk that refuses leaves the next start with an unclean end."""
        if self.sync_failed:
            self.forget()
            return
        text = json.dumps({"broker_epoch": broker_epoch, "boot_id": self._disk.boot_id()})
        with suppress(OSError):
            self._disk.write_atomic(PATH, text.encode())
        if self.sync_failed:
            # Looked at again: it may have come from another thread meanwhile.
            self.forget()

    def forget(self) -> None:
        """What the files hold, nobody knows."""
        with suppress(OSError):
            self._disk.remove(PATH)

    def _read(self) -> tuple[int, str] | None:
        try:
            found = json.loads(self._disk.read(PATH))
            epoch, boot_id = found["broker_epoch"], found["boot_id"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return (epoch, boot_id) if isinstance(epoch, int) and isinstance(boot_id, str) else None
