"""Marks of done ids in Redis, which forgets them by itself when their window is over.

Redis is not where the work has its effect, so a crash between the work and its mark has to fall to one side:

- `lease_ms=None` (default): the mark is set before the work and stays whatever happens to this process. At most once:
  if the process dies in the middle, the message counts as done.
- `lease_ms=N`: before the work there is only a claim, which ends after N ms; after it the mark. At least once: if the
  process dies, the message can be processed again when the claim has ended. Until then others get `InProgress`, which
  they must not commit past. Work that takes longer than its claim may be done twice.

In both, `work` that raises gives the id free at once.
"""

import secrets
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skidway.client.deduplication import InProgress
from skidway.client.extras import load

if TYPE_CHECKING:
    import redis

DONE = "done"
# Only who made a claim may take it back: it may have ended and be somebody else's by now.
RELEASE = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0"


class RedisMarks:
    """Through a redis-py client, yours or one made of a URL (redis://host:port/0); `work` gets the client."""

    def __init__(
        self, server: "str | redis.Redis", *, prefix: str = "skidway:done:", lease_ms: int | None = None
    ) -> None:
        if lease_ms is not None and lease_ms < 1:
            raise ValueError("a lease must be above zero")
        library = load("redis", "RedisMarks")
        self.client: Any = library.Redis.from_url(server) if isinstance(server, str) else server
        self.prefix = prefix
        self.lease_ms = lease_ms
        self._release = self.client.register_script(RELEASE)

    def once(
        self, scope: str, identity: str, window_ms: int, now_ms: int, work: "Callable[[redis.Redis], object]"
    ) -> bool:
        """`now_ms` is not used: windows are measured by the server's clock."""
        # The length keeps apart ("a", "b:c") and ("a:b", "c").
        key = f"{self.prefix}{len(scope)}:{scope}:{identity}"
        claim = secrets.token_hex(8)
        if not self.client.set(key, claim, nx=True, px=self.lease_ms or window_ms):
            return self._refuse(key, identity)
        try:
            work(self.client)
        except BaseException:
            self._release(keys=[key], args=[claim])
            raise
        if self.lease_ms is not None:
            self.client.set(key, DONE, px=window_ms)
        return True

    def _refuse(self, key: str, identity: str) -> bool:
        """False for a duplicate. Under a lease somebody may still be at work, and may yet fail."""
        if self.lease_ms is not None and self.client.get(key) not in (DONE, DONE.encode()):
            raise InProgress(f"{identity} is being processed elsewhere; try again later")
        return False

    def close(self) -> None:
        self.client.close()
