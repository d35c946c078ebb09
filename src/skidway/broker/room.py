"""Room on the disk: a batch that was refused for want of it makes the disk full, until enough is free again.

A full disk is not a broken one: reads go on, and the next batch that fits is taken. What it means for the broker's
membership is decided elsewhere (`registration`).
"""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skidway.broker.node import Node
    from skidway.broker.partition import Partition
    from skidway.errors import StorageError

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE)
"""What a disk says that is full, not broken."""
ROOM_BYTES_MIN = 1 << 20
ROOM_SHARE_MIN = 50
"""A full disk counts as full until so many bytes, and this fraction of it, are free again."""
REFUSALS_TOLD_EVERY_MS = 10_000


class Room:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._full = False
        self._told_ms = -REFUSALS_TOLD_EVERY_MS

    @property
    def is_full(self) -> bool:
        """Whether the disk refused a batch for want of room, and has no more of it since."""
        if self._full:
            total, free = self._node.disk.usage()
            self._full = free < max(ROOM_BYTES_MIN, total // ROOM_SHARE_MIN)
        return self._full

    def on_refused(self, partition: Partition, error: StorageError, now_ms: int) -> None:
        """The disk took a batch not. Told now and then, as a producer asks again and again."""
        if not self._full and isinstance(error.__cause__, OSError) and error.__cause__.errno in NO_ROOM:
            self._full = True
            self._node.registration.tell()
        if now_ms >= self._told_ms + REFUSALS_TOLD_EVERY_MS:
            self._told_ms = now_ms
            self._node.on_trouble(f"{partition}: a batch was refused: {error}")
