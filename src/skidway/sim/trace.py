"""What happened in a run, as lines, and one hash over all of it.

Every line and every byte that crossed the simulated network goes into the hash, so two runs with the same hash did the
same. Lines are kept only where somebody wants to read them; of the others just the last ones, for a report.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from hashlib import blake2b

LINES_KEPT = 60


class Trace:
    __slots__ = ("_digest", "_on_line", "count", "last")

    def __init__(self, on_line: Callable[[str], None] | None = None) -> None:
        self._digest = blake2b(digest_size=8)
        self._on_line = on_line
        self.count = 0
        self.last: deque[str] = deque(maxlen=LINES_KEPT)

    def line(self, now_us: int, who: str, what: str) -> None:
        text = f"{now_us / 1000:>12.3f} {who:<4} {what}"
        self.count += 1
        self._digest.update(text.encode())
        self.last.append(text)
        if self._on_line is not None:
            self._on_line(text)

    def mix(self, data: bytes) -> None:
        """Bytes that count for the hash but are no line."""
        self._digest.update(data)

    @property
    def hash(self) -> str:
        return self._digest.hexdigest()
