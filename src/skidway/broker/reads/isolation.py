"""How far a client may read, by the isolation level of its request."""

from __future__ import annotations

from skidway.log.bounds import Bound

READ_COMMITTED = 1


def bound_of(isolation_level: int) -> Bound:
    return Bound.LAST_STABLE if isolation_level == READ_COMMITTED else Bound.HIGH_WATERMARK
