"""What clients were told, and whether it can all be true: the anomalies of a Kafka history.

Every value is written once by its producer, so a log can be read back from what clients saw:

| anomaly | meaning |
|---|---|
| inconsistent-offset | one offset held two values |
| duplicate | one value at two offsets, though its producer numbers its batches or sent it once |
| reordered | a numbering producer's batches stand in another order than it sent them |
| phantom | a value that nobody sent there |
| lost | acknowledged to acks=all and, though later ones were read, not there at the end |
| unseen | the same at the tail of the log |
| watermark | a leader took back its high watermark |
| uncommitted-read | a follower served what no leader had called committed |

Readers find the rest themselves: skipped, non-monotonic, vanished, corrupt-read.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass, field

from skidway.sim.clients.producers import Batch
from skidway.sim.world.events import Violation, World


@dataclass(slots=True)
class Seen:
    """All that is known of one partition."""

    name: str
    values: dict[int, bytes] = field(default_factory=dict)
    offsets: dict[bytes, int] = field(default_factory=dict)
    acked: dict[bytes, int] = field(default_factory=dict)
    """With the offset that was told, or -1."""
    read: set[bytes] = field(default_factory=set)
    """By the readers of the end."""
    end_offset: int = 0
    """Nothing that was acknowledged or read lies behind it."""


class History:
    def __init__(self, world: World) -> None:
        self.world = world
        self.seen: dict[tuple[bytes, int], Seen] = {}
        self.places: dict[bytes, tuple[str, int, bool]] = {}
        """Value -> where it was sent, and whether it may be there twice."""
        self._orders: dict[tuple[int, bytes, int], list[tuple[int, int]]] = {}
        self._watermarks: dict[tuple[str, bytes, int, int], int] = {}
        self._ids: dict[int, str] = {}
        self.committed: Callable[[bytes, int], int] = lambda topic_id, partition: 1 << 62
        """The highest watermark that a leader ever had, as an all-knowing observer knows it."""
        self.acknowledged = 0
        self.unknowns = 0
        self.reads = 0
        self.forgotten: set[bytes] = set()
        """Topics that were deleted: what was in them may go."""
        self.rotten: Container[bytes] = ()
        """Batches that a disk has damaged behind its node's back."""

    def of(self, topic: str, topic_id: bytes, partition: int) -> Seen:
        key = (topic_id, partition)
        seen = self.seen.get(key)
        if seen is None:
            seen = self.seen[key] = Seen(f"{topic}-{partition}")
        return seen

    # --- producers ---

    def new_producer_id(self, place: str, producer_id: int) -> None:
        if producer_id in self._ids:
            raise Violation("producer-ids", f"{producer_id} was given to {self._ids[producer_id]} and to {place}")
        self._ids[producer_id] = place

    def sent(self, batch: Batch) -> None:
        plan = batch.producer.plan
        for value in batch.values:
            self.places[value] = (batch.topic, batch.partition, plan.retries and not plan.idempotent)

    def unknown(self, batch: Batch) -> None:
        self.unknowns += len(batch.values)

    def acked(self, batch: Batch, topic_id: bytes, offset: int) -> None:
        if batch.producer.plan.acks != -1:
            return  # a promise that may be broken
        self.acknowledged += len(batch.values)
        seen = self.of(batch.topic, topic_id, batch.partition)
        self.world.say(batch.producer.place, f"{seen.name}: {len(batch.values)} acknowledged at {offset}")
        for delta, value in enumerate(batch.values):
            seen.acked[value] = offset + delta if offset >= 0 else -1
            if offset >= 0:
                self._note(seen, offset + delta, value, batch.producer.place)
        if offset >= 0 and batch.producer_id >= 0:
            self._check_order(seen, topic_id, batch, offset)

    def stored(self, who: str, place: tuple[str, int], topic_id: bytes, offset: int, values: list[bytes]) -> None:
        """In a transaction: acknowledged there (-1: at an offset that was not told), whatever becomes of it."""
        self.acknowledged += len(values)
        seen = self.of(place[0], topic_id, place[1])
        for delta, value in enumerate(values):
            seen.acked[value] = offset + delta if offset >= 0 else -1
            if offset >= 0:
                self._note(seen, offset + delta, value, who)

    def _check_order(self, seen: Seen, topic_id: bytes, batch: Batch, offset: int) -> None:
        order = self._orders.setdefault((batch.producer_id, topic_id, batch.partition), [])
        if order and (order[-1][0] < batch.sequence) != (order[-1][1] < offset):
            raise Violation(
                "reordered",
                f"{seen.name}: producer {batch.producer_id} has sequence {order[-1][0]} at {order[-1][1]} and "
                f"{batch.sequence} at {offset}",
            )
        order.append((batch.sequence, offset))

    # --- readers ---

    def read(self, reader: str, topic: str, topic_id: bytes, partition: int, offset: int, value: bytes) -> None:
        self.reads += 1
        seen = self.of(topic, topic_id, partition)
        where = self.places.get(value)
        if where is None or where[:2] != (topic, partition):
            raise Violation("phantom", f"{reader} read {value!r} in {seen.name} at {offset}; it was sent to {where}")
        self._note(seen, offset, value, reader)
        if reader.startswith("last"):
            seen.read.add(value)

    def is_rotten(self, batch: bytes) -> bool:
        return batch in self.rotten

    def watermark(self, reader: str, topic_id: bytes, partition: int, leader_epoch: int, high_watermark: int) -> None:
        key = (reader, topic_id, partition, leader_epoch)
        before = self._watermarks.get(key, -1)
        if high_watermark < before:
            raise Violation(
                "watermark",
                f"{reader} got high watermark {before}, then {high_watermark} for {partition} in epoch {leader_epoch}",
            )
        self._watermarks[key] = high_watermark

    def served_by_follower(self, reader: str, topic_id: bytes, partition: int, end_offset: int) -> None:
        committed = self.committed(topic_id, partition)
        if end_offset > committed:
            raise Violation(
                "uncommitted-read", f"{reader} read {partition} up to {end_offset}; only {committed} is committed"
            )

    def _note(self, seen: Seen, offset: int, value: bytes, who: str) -> None:
        known = seen.values.setdefault(offset, value)
        if known != value:
            raise Violation("inconsistent-offset", f"{seen.name} at {offset}: {known!r}, and {value!r} for {who}")
        place = seen.offsets.setdefault(value, offset)
        if place != offset and not self.places[value][2]:
            raise Violation("duplicate", f"{seen.name}: {value!r} is at {place} and at {offset} ({who})")
        seen.end_offset = max(seen.end_offset, offset + 1)

    # --- the end ---

    def check_complete(self) -> None:
        for (topic_id, _), seen in self.seen.items():
            if topic_id in self.forgotten:
                continue
            end = max((seen.offsets[value] for value in seen.read), default=-1)
            for value, offset in seen.acked.items():
                if value not in seen.read:
                    kind = "lost" if offset <= end else "unseen"
                    raise Violation(kind, f"{seen.name}: {value!r}, acknowledged at {offset}, is missing ({end=})")
