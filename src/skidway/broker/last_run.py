"""What a run leaves on the disk for the next one, should it end without a word: its broker epoch and the boot.

As long as the machine has not been started anew since, a process that was killed has lost nothing it wrote: the files
hold it, synced or not. Such an end counts as clean: this broker still has all that it said it had.

A sync that fails takes the file away, at once. So where it is missing, the kernel may show bytes that the disk does
not have, and nothing that was not synced is to be believed before it is in new files (`log.recovery.rewriting`). Should
a loss of power bring the file back, it takes those bytes as well: what is read then is what is on the disk.

A second file says that a run is registering: as what, and which epoch it came from. A run that was killed before it
heard the answer did nothing in the cluster, so the next one goes on with the same registration. Otherwise it would name
an epoch that the controller has replaced, and be taken for one that may have lost records.
"""

import json
from contextlib import suppress

from skidway.ports import Disk

PATH = "last-run"
REGISTERING = "registering"
NO_EPOCH = -1


class LastRun:
    __slots__ = ("_disk", "has_opened", "sync_failed", "was_registered")

    def __init__(self, disk: Disk) -> None:
        """From now on `disk` tells this one about syncs that fail."""
        self._disk = disk
        self.sync_failed = False
        """In this run."""
        self.has_opened = self.is_same_boot and self._says_opened()
        """Whether a run since the machine was started has opened all logs. Until then files may have the torn ends that
        a loss of power left, so that a kill alone does not explain what they look like."""
        found = self._read()
        self.was_registered = found is not None and found[0] > NO_EPOCH
        """Whether the last run had a broker epoch, and so metadata."""
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
    def is_same_boot(self) -> bool:
        """Whether the machine has not been started anew since, and no sync failed: nothing written was lost."""
        found = self._read()
        return found is not None and found[1] != "" and found[1] == self._disk.boot_id()

    @property
    def broker_epoch(self) -> int:
        """-1 when something written may have been lost since."""
        found = self._read()
        return found[0] if found is not None and self.is_same_boot else NO_EPOCH

    @property
    def unanswered(self) -> tuple[bytes, int] | None:
        """The incarnation id and the previous epoch of a registration whose answer nobody heard."""
        if not self.is_same_boot:
            return None
        try:
            found = json.loads(self._disk.read(REGISTERING))
            incarnation_id, epoch, boot_id = bytes.fromhex(found["incarnation"]), found["previous"], found["boot_id"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        is_sound = len(incarnation_id) == 16 and isinstance(epoch, int) and boot_id == self._disk.boot_id()
        return (incarnation_id, epoch) if is_sound else None

    def note_registering(self, incarnation_id: bytes, previous_epoch: int) -> None:
        text = json.dumps(
            {"incarnation": incarnation_id.hex(), "previous": previous_epoch, "boot_id": self._disk.boot_id()}
        )
        if not self.sync_failed:
            with suppress(OSError):
                self._disk.write_atomic(REGISTERING, text.encode())

    def note_registered(self, broker_epoch: int) -> None:
        # First: whoever finds it takes this run for one that never began.
        with suppress(OSError):
            self._disk.remove(REGISTERING)
        self.note(broker_epoch)

    def note(self, broker_epoch: int) -> None:
        """From now on this epoch is the last run's. A disk that refuses leaves the next start with an unclean end."""
        if self.sync_failed:
            self.forget()
            return
        text = json.dumps({"broker_epoch": broker_epoch, "boot_id": self._disk.boot_id(), "opened": self.has_opened})
        with suppress(OSError):
            self._disk.write_atomic(PATH, text.encode())
        if self.sync_failed:
            # Looked at again: it may have come from another thread meanwhile.
            self.forget()

    def note_opened(self) -> None:
        """All logs are open: what was torn is cut."""
        found = self._read()
        if not self.has_opened and found is not None:
            self.has_opened = True
            self.note(found[0])

    def forget(self) -> bool:
        """What the files hold, nobody knows. False when a disk that is read-only goes on saying the opposite."""
        try:
            self._disk.remove(PATH)
        except OSError:
            return False
        return True

    def _says_opened(self) -> bool:
        try:
            return json.loads(self._disk.read(PATH)).get("opened") is True
        except (OSError, ValueError, AttributeError):
            return False

    def _read(self) -> tuple[int, str] | None:
        try:
            found = json.loads(self._disk.read(PATH))
            epoch, boot_id = found["broker_epoch"], found["boot_id"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return (epoch, boot_id) if isinstance(epoch, int) and isinstance(boot_id, str) else None
