"""CountMessages (key 30003), v0: how many messages of a queue wait, are in flight and are delayed, in partitions that
this node leads; how many wait for their dead letters, and why those cannot be written; why a receive would find nothing
although messages wait (`states.HeldUp`); and where the first `max_shown` of all of them are.

Skidway's own. A message that is visible and was not delivered yet is counted by its offset: so is a
marker of a transaction, until a delivery has passed it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from skidway.broker.handlers.settle_messages import NOT_LOADED
from skidway.errors import ProtocolError
from skidway.steps import Steps
from skidway.wire.schema.count_messages import (
    CountedPartition,
    CountMessagesRequest,
    CountMessagesResponse,
    ShownRange,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services
    from skidway.broker.shares.share_partition import SharePartition

SHOWN_MAX = 1_000


def handle(node: Services, call: Call, request: CountMessagesRequest) -> Steps[None]:
    topic = node.image.topics_by_id.get(request.topic_id)
    response = CountMessagesResponse()
    left = 1

    def counted() -> None:
        nonlocal left
        left -= 1
        if not left:
            call.reply(response)

    for index in dict.fromkeys(request.partitions):
        yield None
        data = CountedPartition(index)
        response.partitions.append(data)
        try:
            place = (request.topic_id, index)
            share = node.queues.open(None if topic is None else topic.name, place, call.now_ms)
        except ProtocolError as error:
            data.error_code, data.error_message = error.code, error.message
            continue
        left += 1
        shown = min(max(0, request.max_shown), SHOWN_MAX), max(0, request.from_offset)
        share.when_loaded(_counting(node, share, data, shown, counted))
    counted()


def _counting(
    node: Services, share: SharePartition, data: CountedPartition, shown: tuple[int, int], counted: Callable[[], None]
) -> Callable[[], None]:
    """`shown`: how many places at most, and from where on."""

    def count() -> None:
        if share.delivery is None or share.closed:
            why = share.refusal or NOT_LOADED
            data.error_code, data.error_message = why.code, why.message
        else:
            most, shown_from = shown
            found = node.queues.count(share, most, node.world.clock.monotonic_ms(), shown_from)
            data.visible, data.in_flight, data.delayed = found.visible, found.in_flight, found.delayed
            data.blocked = found.blocked
            data.dead, data.letter_trouble = found.dead, found.letter_trouble or None
            data.held_up, data.start_offset = found.held_up, found.start_offset
            data.shown = [ShownRange(each.first, each.end - 1, each.state, each.count) for each in found.shown]
            share.pump()
        counted()

    return count
