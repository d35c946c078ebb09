"""Which code a client hears of a refusal of the transaction coordinator, by the version it speaks.

PRODUCER_FENCED is younger than the APIs of transactions: clients of older versions would not know it.
"""

from __future__ import annotations

from skidway.errors import ErrorCode, ProducerFenced, ProtocolError

INIT_PRODUCER_ID_SINCE = 4
OTHERS_SINCE = 2
"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn."""


def code_of(refusal: ProtocolError, version: int, fenced_since: int = OTHERS_SINCE) -> ErrorCode:
    if isinstance(refusal, ProducerFenced) and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return refusal.code
