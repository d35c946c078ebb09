"""Mistakes about leases of share groups with an order of keys, which the leaders of their partitions store."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.broker.shares.share_partition import SharePartition
from skidway.shares.delivery import Delivery
from skidway.shares.states import AVAILABLE


@contextmanager
def stored_leases_forgotten() -> Iterator[None]:
    """A new leader begins without the leases that are stored."""
    with patch.object(Delivery, "resume", lambda self, now_ms, wall_ms: None):
        yield


@contextmanager
def leases_heard_before_the_store() -> Iterator[None]:
    """A fetch is answered before its leases are committed."""
    original = SharePartition.take

    def take(self: SharePartition, *arguments: Any) -> Any:
        taken = original(self, *arguments)
        if taken is None or taken.keep is None or self.delivery is None:
            return taken
        self.delivery._begin(taken.keep, arguments[3])
        return taken._replace(keep=None)

    with patch.object(SharePartition, "take", take):
        yield


@contextmanager
def keys_of_stored_leases_not_looked_at() -> Iterator[None]:
    """A new leader reads from the first record that is available on, and not what is leased before it."""

    def next_offset(self: Delivery, upto: int | None = None) -> int | None:
        if self.held_offsets >= self.rules.leases_max:
            return None
        self.contents.refresh(self)
        found = self.live.find(AVAILABLE, self.start_offset, max(self.start_offset, self.end_offset))
        return found if found < self.ceiling else None

    with patch.object(Delivery, "next_offset", next_offset):
        yield
