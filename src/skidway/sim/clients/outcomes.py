"""What a transactional producer makes of the codes that it is answered."""

from __future__ import annotations

from enum import Enum, auto

from skidway.errors import ErrorCode
from skidway.sim.clients.base import ROUTING_ERRORS
from skidway.sim.world.events import Violation

RETRY_MS = 40
NO_ANSWER = -1
ELSEWHERE = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NETWORK_EXCEPTION,
    }
)
RETRIED = (
    ELSEWHERE
    | ROUTING_ERRORS
    | {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
    }
)
FENCED = frozenset({ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING})
MEMBERS = frozenset({ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH})
"""The member of a group is none any more, or not of this generation."""
ABORTABLE = FENCED | MEMBERS | {ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.INVALID_TXN_STATE}


class Outcome(Enum):
    FINE = auto()
    ABORT = auto()
    """It can only be aborted."""
    FENCED = auto()
    """The producer is none any more."""


def judge(who: str, codes: list[int], what: str) -> Outcome | None:
    """None: ask again."""
    if not any(codes):
        return Outcome.FINE
    if any(code in FENCED for code in codes):
        return Outcome.FENCED
    if any(code in ABORTABLE for code in codes):
        return Outcome.ABORT
    for code in codes:
        if code > 0 and code not in RETRIED:
            raise refused(who, code, what)
    return None


def refused(who: str, code: int, what: str) -> Violation:
    return Violation("client-errors", f"{who} got {ErrorCode(code).name} for {what}")
