"""Which letters of a queue of dead letters are still in it.

A letter that was deleted from its queue, by a receiver or by a task that moved it, is still in the log. Whether it is
in the queue only the leaders know; they are asked for a thousand places at a time, as the letters come.
"""

from bisect import bisect_right
from dataclasses import dataclass, field

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import BrokerError, Unsupported
from skidway.blocking_client.queues.managing import NoSuchQueue, NotAQueue, Queue, Queues
from skidway.limits import INT64_MAX

PLACES_AT_ONCE = 1_000


@dataclass(slots=True)
class _Seen:
    """Of one partition, up to an offset."""

    end: int = 0
    firsts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """Of ranges that are open."""


class OpenLetters:
    def __init__(self, cluster: Cluster, topic: str) -> None:
        self._queues = Queues(cluster)
        self._queue = self._find(topic)
        self._seen: dict[int, _Seen] = {}

    def _find(self, topic: str) -> Queue | None:
        try:
            return self._queues.find(topic)
        except (BrokerError, NoSuchQueue, NotAQueue, Unsupported):
            return None  # a topic like any other, or another broker

    def is_done(self, partition: int, offset: int) -> bool:
        """False where the topic is no queue. Offsets of a partition ascend, and none came after the first was asked."""
        if self._queue is None:
            return False
        seen = self._seen.get(partition)
        if seen is None or offset >= seen.end:
            seen = self._seen[partition] = self._look(self._queue, partition, offset)
        at = bisect_right(seen.firsts, offset) - 1
        return at < 0 or offset >= seen.ends[at]

    def _look(self, queue: Queue, partition: int, offset: int) -> _Seen:
        (counted,) = self._queues.count(queue, PLACES_AT_ONCE, [partition], offset)
        ranges = [(each.first_offset, each.last_offset + 1) for each in counted.shown]
        is_whole = sum(stop - first for first, stop in ranges) < PLACES_AT_ONCE
        end = INT64_MAX if is_whole else ranges[-1][1]
        return _Seen(end, [first for first, _ in ranges], [end for _, end in ranges])
