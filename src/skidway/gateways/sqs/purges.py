"""When which queue was purged: once a minute is enough."""

from __future__ import annotations

PURGE_MS = 60_000
QUEUES_MAX = 10_000


class Purges:
    """Of one node. Another one lets a queue be purged as well."""

    __slots__ = ("_purged_ms",)

    def __init__(self) -> None:
        self._purged_ms: dict[bytes, int] = {}

    def begin(self, topic_id: bytes, now_ms: int) -> bool:
        """False: it was purged less than a minute ago."""
        purged_ms = self._purged_ms.get(topic_id)
        if purged_ms is not None and now_ms - purged_ms < PURGE_MS:
            return False
        if len(self._purged_ms) >= QUEUES_MAX:
            self._purged_ms = {each: ms for each, ms in self._purged_ms.items() if now_ms - ms < PURGE_MS}
        if len(self._purged_ms) < QUEUES_MAX:
            self._purged_ms[topic_id] = now_ms
        return True

    def failed(self, topic_id: bytes) -> None:
        self._purged_ms.pop(topic_id, None)
