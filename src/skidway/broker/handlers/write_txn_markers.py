"""WriteTxnMarkers (key 27), v1–v2: transactions have ended; this node writes that to partitions that it leads.

From coordinators on other nodes, and from admins that abort a transaction nobody else will end. Answered when all
markers are committed, and applied where a machine lives in the partition. v1 has no version of transactions: 0 counts.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from skidway.broker.coordinators.markers import Marker
from skidway.errors import ErrorCode
from skidway.records.control import EndTransaction
from skidway.steps import Steps
from skidway.wire.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: WriteTxnMarkersRequest) -> Steps[None]:
    response = WriteTxnMarkersResponse()
    missing = 1  # this loop itself

    def answer(result: WritableTxnMarkerPartitionResult | None, code: ErrorCode) -> None:
        nonlocal missing
        if result is not None:
            result.error_code = code
        missing -= 1
        if missing == 0:
            call.reply(response)

    writer = node.transactions.markers
    for asked in request.markers:
        marker = _marker(asked)
        about = WritableTxnMarkerResult(asked.producer_id)
        response.markers.append(about)
        for topic in asked.topics:
            partitions: list[WritableTxnMarkerPartitionResult] = []
            about.topics.append(WritableTxnMarkerTopicResult(topic.name, partitions))
            for index in topic.partition_indexes:
                result = WritableTxnMarkerPartitionResult(index)
                partitions.append(result)
                missing += 1
                now_ms = node.world.clock.monotonic_ms()
                writer.write(topic.name, index, marker, now_ms, partial(answer, result))
                yield None
            yield None
        yield None
    answer(None, ErrorCode.NONE)


def _marker(asked: WritableTxnMarker) -> Marker:
    end = EndTransaction(asked.transaction_result, asked.coordinator_epoch)
    return Marker(asked.producer_id, asked.producer_epoch, end, asked.transaction_version)
