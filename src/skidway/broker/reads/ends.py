"""Requests that ask where a log ends, held until what was appended before them is committed.

With `flush=sync` a producer that asked for `acks=1` has its answer before the sync, so the high watermark is below what
it was told. Whoever asks for the end next would get the end of before. Such a request waits until the watermark has
reached the end that the log had when the request came. Nothing waits where nothing is under way: the log has failed,
or too few replicas are in sync. The wait is bounded; after it the answer is what is known, as in Kafka, where the
watermark follows the fetches of followers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from skidway.runtime.parking import OffsetParking

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.partitions.partition import Partition
    from skidway.runtime.parking import OffsetParking

SYNC_WAIT_MS = 5_000
"""For this node's own disk."""
FOLLOWERS_WAIT_MS = 500
"""For other nodes: one of them may be gone without anybody knowing yet."""


def when_committed(
    commits: OffsetParking[Partition], call: Call, partitions: Iterable[Partition], answer: Callable[[], None]
) -> bool:
    """Whether `answer` has to wait; then it is called once, later. Otherwise the caller answers at once."""
    pending = {partition: partition.log.end_offset for partition in partitions if will_commit(partition)}
    if not pending:
        return False
    wait_ms = SYNC_WAIT_MS if all(partition.alone for partition in pending) else FOLLOWERS_WAIT_MS
    parked = commits.park(pending, call.now_ms + wait_ms, lambda failed: answer())
    call.on_gone = lambda: commits.cancel(parked)
    return True


def will_commit(partition: Partition) -> bool:
    """Whether the watermark is about to reach the end of the log."""
    log = partition.log
    return log.high_watermark < log.end_offset and partition.leads and log.failure is None and not partition.is_stuck
