"""Why nobody receives messages that wait: what leaders say of it, as errors with a sentence for people."""

from __future__ import annotations

from collections.abc import Iterable
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


def why_nothing_comes(partitions: Iterable[Any], *, is_fifo: bool) -> str:
    """Why a receive finds nothing although messages of the queue wait, in one of its partitions or in all of them;
    empty: it does not. `partitions`: of answers to CountMessages."""
    visible = blocked = 0
    for each in partitions:
        if (why := held_up(each, is_fifo=is_fifo)) is not None:
            return why.detail
        visible += each.visible
        blocked += each.blocked
    if not visible or blocked < visible:
        return ""
    return (
        "each message that waits is behind an earlier one of its message group that is in flight or delayed: delete"
        " that one, or wait until its time is over"
    )
