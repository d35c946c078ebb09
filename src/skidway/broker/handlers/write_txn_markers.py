"""WriteTxnMarkers (key 27), v1–v2: transactions have ended; this node writes that to partitions that it leads.

From coordinators on other nodes, and from admins that abort a transaction nobody else will end. Answered when all
markers are committed, and applied where a machine lives in the partition. v1 has no version of transactions: 0 counts.

Nodes number their requests, in tagged fields of Skidway's own: one that comes after a later one is not carried out,
nor one of a broker epoch that this node has not heard of yet. The node asks again.
They also name the leader epoch that they know of each partition: a marker for an earlier epoch is not written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.records.control import EndTransaction
from skidway.runtime.log_store import Marker, Producer
from skidway.steps import Steps
from skidway.transactions.transaction import Place
from skidway.wire.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

AT_ONCE = 20
"""Markers in one step."""


def handle(node: Services, call: Call, request: WriteTxnMarkersRequest) -> Steps[None]:
    response = WriteTxnMarkersResponse()
    missing = 1  # this loop itself

    def answered(count: int) -> None:
        nonlocal missing
        missing -= count
        if missing == 0:
            call.reply(response)

    writer = node.transactions.markers
    is_late = _is_late(node, call, request)
    for asked in request.markers:
        marker = _marker(asked)
        about = WritableTxnMarkerResult(asked.producer_id)
        response.markers.append(about)
        for topic in asked.topics:
            result = WritableTxnMarkerTopicResult(topic.name)
            about.topics.append(result)
            for wanted in _some(topic):
                left = _Left(topic.name, wanted, answered)
                result.partitions += left.results.values()
                missing += len(wanted)
                if is_late:
                    left.answer(list(left.results), ErrorCode.REQUEST_TIMED_OUT)
                else:
                    now_ms = node.world.clock.monotonic_ms()
                    writer.write(list(left.results), marker, now_ms, left.answer, list(wanted.values()))
                yield None
            yield None
        yield None
    answered(1)


def _some(topic: WritableTxnMarkerTopic) -> Iterator[dict[int, int]]:
    """Partitions, each once, with the leader epochs that their markers are for: as many as are written at once."""
    epochs = topic.leader_epochs[: len(topic.partition_indexes)]
    wanted = dict(zip_longest(topic.partition_indexes, epochs, fillvalue=-1))
    indexes = iter(wanted)
    while some := list(islice(indexes, AT_ONCE)):
        yield {index: wanted[index] for index in some}


class _Left:
    """Partitions of one topic that wait for their marker."""

    __slots__ = ("_answered", "results")

    def __init__(self, topic: str, indexes: Iterable[int], answered: Callable[[int], None]) -> None:
        self.results: dict[Place, WritableTxnMarkerPartitionResult] = {
            (topic, index): WritableTxnMarkerPartitionResult(index) for index in indexes
        }
        self._answered = answered

    def answer(self, places: Sequence[Place], code: ErrorCode) -> None:
        for place in places:
            self.results[place].error_code = code
        self._answered(len(places))


def _is_late(node: Services, call: Call, request: WriteTxnMarkersRequest) -> bool:
    sender = node.image.brokers.get(request.sender_id)
    if sender is None or not call.caller.is_node:
        return False
    if request.sender_epoch > sender.epoch:
        # This node will hear of that epoch, or somebody made it up: what is numbered in lower ones would be late for
        # ever if it were believed.
        return True
    return node.transactions.markers.is_late(request.sender_id, request.sender_epoch, request.sender_number)


def _marker(asked: WritableTxnMarker) -> Marker:
    end = EndTransaction(asked.transaction_result, asked.coordinator_epoch)
    return Marker(Producer(asked.producer_id, asked.producer_epoch), end, asked.transaction_version)
