"""Why nobody receives messages that wait: what leaders say of it, as errors with a sentence for people."""

from __future__ import annotations

from typing import Any

from skidway.gateways.queues.errors import HeldUp, TooManyInFlight
from skidway.limits import QUEUE_IN_FLIGHT_MAX, SHARE_ORDERED_SPAN_MAX, SHARE_SPAN_MAX
from skidway.shares import states
from skidway.shares.terms import TERMS_MAX


def held_up(partition: Any, *, is_fifo: bool) -> HeldUp | None:
    """`partition`: of the answer to ReceiveMessages or CountMessages."""
    index = partition.partition_index
    if partition.held_up == states.HeldUp.FULL:
        most = TERMS_MAX if is_fifo else QUEUE_IN_FLIGHT_MAX
        return TooManyInFlight(
            f"as many messages of partition {index} are in flight as may be ({most:,}): delete those that are done, or"
            " wait until their visibility time is over"
        )
    if partition.held_up == states.HeldUp.FAR:
        span = SHARE_ORDERED_SPAN_MAX if is_fifo else SHARE_SPAN_MAX
        return HeldUp(
            f"the message at offset {partition.start_offset} of partition {index} is not done, and those that wait are"
            f" {span:,} offsets behind it: it may be delayed, in flight, or wait for its dead letter"
        )
    return None
