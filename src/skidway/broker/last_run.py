"""What a run leaves on the disk for the next one, should it end without a word: its broker epoch and the boot.

As long as the machine has not been started anew since, a process that was killed has lost nothing it wrote: the files
hold it, synced or not. Such an end counts as clean: this broker still has all that it said it had.
"""

import json
from contextlib import suppress

from skidway.ports import Disk

PATH = "last-run"


def note_run(disk: Disk, broker_epoch: int) -> None:
    """From now on this epoch is the last run's. A disk that refuses leaves the next start with an unclean end."""
    text = json.dumps({"broker_epoch": broker_epoch, "boot_id": disk.boot_id()})
    with suppress(OSError):
        disk.write_atomic(PATH, text.encode())


def forget_run(disk: Disk) -> None:
    """A sync failed: what the files hold, nobody knows."""
    with suppress(OSError):
        disk.remove(PATH)


def epoch_of_last_run(disk: Disk) -> int:
    """-1 when something written may have been lost since."""
    try:
        found = json.loads(disk.read(PATH))
        epoch, boot_id = found["broker_epoch"], found["boot_id"]
    except (OSError, ValueError, KeyError, TypeError):
        return -1
    same = isinstance(epoch, int) and isinstance(boot_id, str) and boot_id != "" and boot_id == disk.boot_id()
    return epoch if same else -1
