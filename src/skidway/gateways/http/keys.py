"""Which body each `Idempotency-Key` had that this node has seen (`topics.once`)."""

KEYS_MAX = 10_000


class Keys:
    """The bodies that a node has seen with keys, the oldest forgotten first."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen: dict[bytes, tuple[bytes, int]] = {}

    def is_same(self, key: bytes, body: bytes, now_ms: int, window_ms: int) -> bool:
        """Whether nobody knows the key, or it had this body. From now on it has."""
        known = self._seen.pop(key, None)
        if known is not None and known[0] != body and now_ms - known[1] < window_ms:
            self._seen[key] = known
            return False
        if len(self._seen) >= KEYS_MAX:
            del self._seen[next(iter(self._seen))]
        self._seen[key] = body, now_ms
        return True
