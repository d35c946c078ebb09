"""A member's requests to the others: one under way to each, given up after a while, none for a moment after a failure.

An answer counts for the request it answers as long as that is under way, and once.
"""

from skidway.quorum.messages import Request
from skidway.quorum.patience import NEVER
from skidway.quorum.settings import QuorumSettings


class Requests:
    __slots__ = ("_resume_ms", "_settings", "under_way")

    def __init__(self, settings: QuorumSettings) -> None:
        self._settings = settings
        self.under_way: dict[int, tuple[int, Request]] = {}
        """By node: when it is given up, and what was asked."""
        self._resume_ms = NEVER

    @property
    def deadline_ms(self) -> int:
        return min([self._resume_ms, *[when for when, _ in self.under_way.values()]])

    def on_time(self, now_ms: int) -> None:
        for node_id in [node_id for node_id, (when, _) in self.under_way.items() if when <= now_ms]:
            del self.under_way[node_id]
        if self._resume_ms <= now_ms:
            self._resume_ms = NEVER

    def begin(self, node_id: int, request: Request, now_ms: int) -> None:
        self.under_way[node_id] = (now_ms + self._settings.request_timeout_ms, request)

    def finish(self, node_id: int, request: Request) -> bool:
        """It was answered, or failed. False when nobody waits for it any more."""
        if self.under_way.get(node_id, (0, None))[1] is not request:
            return False
        del self.under_way[node_id]
        return True

    def pause(self, now_ms: int) -> None:
        self._resume_ms = min(self._resume_ms, now_ms + self._settings.retry_ms)

    def pause_until(self, resume_ms: int) -> None:
        self._resume_ms = resume_ms

    @property
    def paused(self) -> bool:
        return self._resume_ms != NEVER

    def may_begin(self, now_ms: int) -> bool:
        return self._resume_ms <= now_ms or not self.paused

    def forget(self) -> None:
        self.under_way.clear()
        self._resume_ms = NEVER
