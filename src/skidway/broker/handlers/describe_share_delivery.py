"""DescribeShareDelivery (key 30010), v0: how a share group's deliveries stand at the leaders of its partitions.

Skidway's own; Kafka has nothing like it. Asked of each partition's leader: what is locked, what waits to be delivered
again, how often unsettled records were delivered. A share-partition that nobody has fetched from since this node leads
it is not in use: nothing of it is locked, and how often its records were delivered only the share coordinator knows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import PolicyViolation, ProtocolError
from skidway.shares.figures import figures
from skidway.steps import Steps
from skidway.wire.schema.describe_share_delivery import (
    DeliveryCount,
    DeliveryPartition,
    DeliveryTopicResponse,
    DescribeShareDeliveryRequest,
    DescribeShareDeliveryResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

PARTITIONS_MAX = 10_000


def handle(node: Services, call: Call, request: DescribeShareDeliveryRequest) -> Steps[DescribeShareDeliveryResponse]:
    response = DescribeShareDeliveryResponse()
    if sum(len(topic.partitions) for topic in request.topics) > PARTITIONS_MAX:
        refusal = PolicyViolation(f"more than {PARTITIONS_MAX} partitions in one request")
        response.error_code, response.error_message = refusal.code, refusal.message
        return response
    for topic in request.topics:
        answered = DeliveryTopicResponse(topic.topic_id)
        response.topics.append(answered)
        for index in topic.partitions:
            entry = DeliveryPartition(index)
            answered.partitions.append(entry)
            try:
                yield from _fill(node, entry, request.group_id, (bytes(topic.topic_id), index))
            except ProtocolError as error:
                entry.error_code, entry.error_message = error.code, error.message
            yield None
    return response


def _fill(node: Services, entry: DeliveryPartition, group: str, place: tuple[bytes, int]) -> Steps[None]:
    partitions = node.share_fetches.partitions
    partitions.check(place)
    share = partitions.find(group, place)
    if share is None or share.delivery is None:
        return
    found = yield from figures(share.delivery)
    entry.in_use = True
    entry.start_offset, entry.end_offset = found.start_offset, found.end_offset
    entry.locked, entry.settling, entry.waiting = found.locked, found.settling, found.waiting
    entry.counts = [DeliveryCount(count, offsets) for count, offsets in sorted(found.counts.items())]
