"""De-duplication of sends: an id that was sent within the window is the message that it was then.

The window runs from the first send, by the timestamps in the log, whatever becomes of the message. Nothing is stored:
ids are in the log's records, and a new leader notes those of the last five minutes before it takes a send. At most
`IDS_MAX` ids are known; whoever sends asks `is_full` first, and has to wait.
"""

from collections import deque
from hashlib import blake2b

WINDOW_MS = 300_000
IDS_MAX = 1_000_000


class Dedup:
    __slots__ = ("_offsets", "_order")

    def __init__(self) -> None:
        self._offsets: dict[bytes, int] = {}
        self._order: deque[tuple[int, bytes]] = deque()
        """When each was first sent."""

    def __len__(self) -> int:
        return len(self._offsets)

    def is_full(self, now_ms: int) -> bool:
        self._forget(now_ms)
        return len(self._offsets) >= IDS_MAX

    def find(self, dedup_id: str, now_ms: int) -> int | None:
        """Where the message with this id lies, if it was sent within the window."""
        self._forget(now_ms)
        return self._offsets.get(_digest(dedup_id))

    def note(self, dedup_id: str, offset: int, sent_ms: int) -> None:
        """In the order of the log. A second one with the same id does not prolong the window of the first."""
        digest = _digest(dedup_id)
        if digest not in self._offsets:
            self._offsets[digest] = offset
            # The clock may have gone back: an id is forgotten no earlier than those before it.
            self._order.append((max(sent_ms, self._order[-1][0] if self._order else 0), digest))

    def forget_below(self, offset: int) -> None:
        """The log begins here now: what is gone from it may be sent again."""
        while self._order and self._offsets[self._order[0][1]] < offset:
            del self._offsets[self._order.popleft()[1]]

    def _forget(self, now_ms: int) -> None:
        while self._order and self._order[0][0] + WINDOW_MS <= now_ms:
            del self._offsets[self._order.popleft()[1]]


def _digest(dedup_id: str) -> bytes:
    return blake2b(dedup_id.encode(), digest_size=16).digest()
