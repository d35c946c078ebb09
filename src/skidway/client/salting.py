"""Salted keys: one hot key becomes `key_1 … key_n`, so that its records spread over partitions.

What is given up: order across the salted keys of one key. What reads them puts them together again by `unsalt`.
Salting is reversible for every key, also for keys that look salted by nature: those are salted too.
"""

from collections.abc import Callable, Collection
from typing import TypeVar

Key = TypeVar("Key", str, bytes)

SEPARATOR = "_"


class SaltedKey:
    """Without `hot` every key is salted; with it only those keys, given as a collection or a question.

    `hot` must answer alike where keys are salted and where they are unsalted. Buckets are taken in turn.
    """

    __slots__ = ("_hot", "_turn", "buckets")

    def __init__(
        self, buckets: int, *, hot: Collection[str | bytes] | Callable[[str | bytes], bool] | None = None
    ) -> None:
        if buckets < 1:
            raise ValueError(f"{buckets} buckets: expected at least 1")
        self.buckets = buckets
        self._hot = hot
        self._turn = 0

    def salt(self, key: Key) -> Key:
        """The key with the next bucket's number behind it, or as it is if it is not hot."""
        if not self._is_salted(key):
            return key
        self._turn = self._turn % self.buckets + 1
        return _join(key, self._turn)

    def unsalt(self, key: Key) -> Key:
        """The key that was given to `salt`."""
        base = self._base(key)
        return key if base is None or not self._is_salted(base) else base

    def every(self, key: Key) -> list[Key]:
        """All that `salt` makes of a key: what a reader of this key has to look for."""
        if not self._is_salted(key):
            return [key]
        return [_join(key, number) for number in range(1, self.buckets + 1)]

    def _is_salted(self, key: Key) -> bool:
        """Hot, or a cold key that `unsalt` would otherwise take for the salted form of another key."""
        current: Key | None = key
        while current is not None:
            if self._is_hot(current):
                return True
            current = self._base(current)
        return False

    def _is_hot(self, key: str | bytes) -> bool:
        if self._hot is None:
            return True
        return self._hot(key) if callable(self._hot) else key in self._hot

    def _base(self, key: Key) -> Key | None:
        """What stands before a bucket number, if there is one."""
        if isinstance(key, str):
            base, separator, number = key.rpartition(SEPARATOR)
            return base if separator and self._is_bucket(number) else None
        raw_base, raw_separator, raw_number = key.rpartition(SEPARATOR.encode())
        return raw_base if raw_separator and self._is_bucket(raw_number.decode("latin-1")) else None

    def _is_bucket(self, number: str) -> bool:
        plain = number.isascii() and number.isdigit() and not number.startswith("0")
        return plain and len(number) <= len(str(self.buckets)) and int(number) <= self.buckets


def _join(key: Key, number: int) -> Key:
    if isinstance(key, str):
        return f"{key}{SEPARATOR}{number}"
    return key + f"{SEPARATOR}{number}".encode()
