"""How far a group is behind, in messages and in time.

Behind in time is the age of the first message that the group has not consumed: one record is read at each committed
offset. So a group that waits for nothing is 0 behind, however old its last message is.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass

from skidway.blocking_client.cluster import Cluster, NoSuchTopic
from skidway.blocking_client.consumer import Consumer
from skidway.blocking_client.groups import Committed, Group, Member
from skidway.blocking_client.offsets import EARLIEST, LATEST, find_offsets, offsets_at
from skidway.blocking_client.reader import Place
from skidway.limits import KIB

# Enough for the first batch of most partitions at once; a larger one comes when its partition is the first in turn.
FIRST_BATCH_BYTES = 64 * KIB
WAIT_MS = 100
GONE = "it no longer exists"


@dataclass(slots=True)
class Lag:
    """Of one partition. None: there is no committed offset, or the partition is gone, and so nothing to compare."""

    topic: str
    partition: int
    owner: Member | None
    committed: int | None
    start: int | None = None
    end: int | None = None
    first_unconsumed_ms: int | None = None
    """Timestamp of the first message that is not consumed."""
    problem: str | None = None
    """Why nothing, or not all, is known of the partition."""

    @property
    def messages(self) -> int | None:
        """Those that can still be read: what was deleted before it was consumed does not count."""
        if self.committed is None or self.end is None or self.start is None:
            return None
        return max(0, self.end - max(self.committed, self.start))

    @property
    def deleted(self) -> int:
        """Messages that retention took before the group came to them."""
        return max(0, self.start - self.committed) if self.committed is not None and self.start is not None else 0

    def seconds(self, now_ms: int) -> float | None:
        if self.messages is None:
            return None
        if self.messages == 0:
            return 0.0
        if self.first_unconsumed_ms is None or self.first_unconsumed_ms < 0:
            return None
        return max(0.0, (now_ms - self.first_unconsumed_ms) / 1000)


def measure(cluster: Cluster, group: Group | None, committed: Mapping[Place, Committed]) -> list[Lag]:
    """For every partition that has a committed offset or an owner, in order."""
    owned = {place: member for member in (group.members if group else []) for place in member.partitions}
    lags = [
        Lag(topic, partition, owned.get((topic, partition)), _offset(committed.get((topic, partition))))
        for topic, partition in sorted({*owned, *committed})
    ]
    for topic in dict.fromkeys(lag.topic for lag in lags):
        _complete(cluster, topic, [lag for lag in lags if lag.topic == topic])
    return lags


def _offset(committed: Committed | None) -> int | None:
    return None if committed is None else committed.offset


def _complete(cluster: Cluster, topic: str, lags: list[Lag]) -> None:
    try:
        existing = cluster.topic(topic).partitions
    except NoSuchTopic:
        existing = {}
    unserved = cluster.unserved(topic, existing) if existing else {}
    for lag in lags:
        if lag.partition not in existing:
            lag.problem = GONE
        elif lag.partition in unserved:
            lag.problem = unserved[lag.partition]
    there = {lag.partition: lag for lag in lags if lag.partition in existing and lag.partition not in unserved}
    if not there:
        return
    starts = offsets_at(cluster, topic, list(there), EARLIEST)
    ends = find_offsets(cluster, topic, dict.fromkeys(there, LATEST))
    for partition, lag in there.items():
        lag.start, lag.end = starts[partition], ends[partition]
    behind = {partition: lag for partition, lag in there.items() if lag.messages}
    if behind:
        _read_first(cluster, topic, behind)


def _read_first(cluster: Cluster, topic: str, behind: Mapping[int, Lag]) -> None:
    """One record of each, as many polls as it takes; a partition that gives none in time stays unknown."""
    positions = {partition: max(lag.committed or 0, lag.start or 0) for partition, lag in behind.items()}

    def note_damage(partition: int, reason: str) -> None:
        behind[partition].problem = reason

    consumer = Consumer(
        cluster,
        topic,
        positions,
        partition_fetch_bytes=FIRST_BATCH_BYTES,
        on_gone=lambda partition, wanted, start: None,
        on_damaged=note_damage,
    )
    deadline = time.monotonic() + cluster.timeout_ms / 1000
    while consumer.positions and time.monotonic() < deadline:
        for record in consumer.poll(WAIT_MS):
            lag = behind[record.partition]
            if lag.first_unconsumed_ms is None:
                lag.first_unconsumed_ms = record.timestamp
        consumer.positions = {
            partition: position
            for partition, position in consumer.positions.items()
            # Up to the end there may be nothing but control records, or holes that compaction left.
            if behind[partition].first_unconsumed_ms is None and position < (behind[partition].end or 0)
        }
