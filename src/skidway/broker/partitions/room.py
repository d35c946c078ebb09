"""Room on the disk: a batch that was refused for want of it makes the disk full, until enough is free again.

A full disk is not a broken one: reads go on, and the next batch that fits is taken. What it means for the broker's
membership is decided elsewhere (`registration`). A disk that is read-only or answers with I/O errors is broken: it does
not mend itself, and others should lead now, not when the next sync fails.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from skidway.broker.partitions.news import BatchRejected
from skidway.broker.partitions.partition import Partition
from skidway.broker.world import World
from skidway.errors import StorageError
from skidway.log.durability.sync import NO_DESCRIPTORS

NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
"""What a disk says that is full, not broken."""
NO_ROOM = (*NO_SPACE, *NO_DESCRIPTORS)
"""Errors that pass."""
BROKEN = (errno.EROFS, errno.EIO, errno.ENXIO, errno.ENODEV)
ROOM_BYTES_MIN = 1 << 20
ROOM_SHARE_MIN = 50
"""A full disk counts as full until so many bytes, and this fraction of it, are free again."""


class Room:
    def __init__(
        self,
        world: World,
        fail: Callable[[str], None],
        on_files_removed: Callable[[Partition, FileNotFoundError], None],
        on_full: Callable[[], None],
    ) -> None:
        """`fail`: the disk is broken. `on_files_removed`: another program removed files of a partition."""
        self._world = world
        self._fail = fail
        self._on_files_removed = on_files_removed
        self._on_full = on_full
        self._full = False

    @property
    def is_full(self) -> bool:
        """Whether the disk refused a batch for want of room, and has no more of it since."""
        if self._full:
            total, free = self._world.disk.usage()
            self._full = free < max(ROOM_BYTES_MIN, total // ROOM_SHARE_MIN)
        return self._full

    def on_refused(self, partition: Partition, error: StorageError) -> None:
        """The disk refused a batch."""
        cause = error.__cause__
        if isinstance(cause, FileNotFoundError):
            self._on_files_removed(partition, cause)
        elif isinstance(cause, OSError) and cause.errno in BROKEN:
            self._fail(f"cannot write a batch of {partition}: {cause}")
        elif isinstance(cause, OSError) and cause.errno in NO_SPACE and not self._full:
            self._full = True
            self._on_full()
        self._world.report(BatchRejected(str(partition), str(error)))
