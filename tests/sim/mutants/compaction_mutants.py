"""Mistakes of compaction that readers of transactions suffer from: 17 in docs/internals/transactions.md."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.log.compaction import cleaning, compaction
from skidway.log.log import Log


@contextmanager
def compacted_above_stable() -> Iterator[None]:
    """Compaction goes up to the high watermark: records of an open transaction count as committed."""
    original = cleaning._cleanable

    def cleanable(log: Log, now_ms: int) -> int:
        with patch.object(Log, "last_stable_offset", property(lambda self: self.high_watermark)):
            return int(original(log, now_ms))

    with patch.object(cleaning, "_cleanable", cleanable):
        yield


@contextmanager
def committed_taken_for_aborted() -> Iterator[None]:
    """All that a producer writes after it has aborted goes too, until somebody looks where that ended."""

    def covers(self: Any, fields: tuple[int, ...]) -> bool:
        firsts = self._firsts.get(fields[compaction.PRODUCER_ID], [])
        is_transactional = bool(fields[compaction.ATTRIBUTES] & compaction.TRANSACTIONAL_BIT)
        return is_transactional and bool(firsts) and fields[compaction.BASE_OFFSET] >= firsts[0]

    with patch.object(compaction._Aborted, "covers", covers):
        yield
