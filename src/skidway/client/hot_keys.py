"""A partitioner for keys of which a few are too much for one partition.

A key goes where its hash says, as Java's partitioner has it, until it is seen more often than a threshold; what comes
beyond goes round all partitions in turn. So a hot key gives up its order while it is hot, and no other key does.

Rates are counted over a sliding window with bounded memory (space-saving: the most frequent keys are always among
those kept). A key counts only with what was surely its own, so a cold key never passes for a hot one. A hot key is
never missed if its rate is above the rate of all keys together divided by `keys_max`.
"""

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from skidway.blocking_client.partitioners import partition_of_key

KEYS_MAX = 1024


class FrequentKeys:
    """Space-saving (Metwally et al. 2005): counts of the most frequent keys in a fixed number of places.

    A newcomer to a full table takes the place of the rarest key and inherits its count as possible error.
    """

    __slots__ = ("_counts", "_heap", "keys_max")

    def __init__(self, keys_max: int) -> None:
        assert keys_max > 0
        self.keys_max = keys_max
        self._counts: dict[bytes, list[int]] = {}
        # (count when pushed, key): counts only grow, so an entry is a lower bound and is corrected when it comes up.
        self._heap: list[tuple[int, bytes]] = []

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: bytes) -> int:
        """Count it once more and answer how often it was surely seen."""
        entry = self._counts.get(key)
        if entry is None:
            error = self._evict() if len(self._counts) >= self.keys_max else 0
            entry = self._counts[key] = [error, error]
            heapq.heappush(self._heap, (error + 1, key))
        entry[0] += 1
        return entry[0] - entry[1]

    def surely(self, key: bytes) -> int:
        entry = self._counts.get(key)
        return entry[0] - entry[1] if entry else 0

    def keys(self) -> list[bytes]:
        return list(self._counts)

    def _evict(self) -> int:
        while True:
            count, key = self._heap[0]
            current = self._counts[key][0]
            if count == current:
                heapq.heappop(self._heap)
                del self._counts[key]
                return current
            heapq.heapreplace(self._heap, (current, key))


class KeyRates:
    """Events per second of single keys: two adjoining windows, the older one fading as the newer fills."""

    __slots__ = ("_current", "_previous", "_started", "keys_max", "window_s")

    def __init__(self, window_s: float, keys_max: int, now_s: float) -> None:
        if window_s <= 0 or keys_max < 1:
            raise ValueError("the window and the number of keys must be above zero")
        self.window_s = window_s
        self.keys_max = keys_max
        self._started = now_s
        self._current = FrequentKeys(keys_max)
        self._previous = FrequentKeys(keys_max)

    def add(self, key: bytes, now_s: float) -> float:
        """Count the key and answer its rate, this event included."""
        self._turn(now_s)
        self._current.add(key)
        return self._rate(key, now_s)

    def rates(self, now_s: float) -> dict[bytes, float]:
        self._turn(now_s)
        keys = dict.fromkeys([*self._current.keys(), *self._previous.keys()])
        return {key: self._rate(key, now_s) for key in keys}

    def _turn(self, now_s: float) -> None:
        passed = now_s - self._started
        if passed < self.window_s:
            return
        adjoining = passed < 2 * self.window_s
        self._previous = self._current if adjoining else FrequentKeys(self.keys_max)
        self._current = FrequentKeys(self.keys_max)
        self._started = self._started + self.window_s if adjoining else now_s

    def _rate(self, key: bytes, now_s: float) -> float:
        fading = 1 - min(1.0, max(0.0, (now_s - self._started) / self.window_s))
        return (self._current.surely(key) + self._previous.surely(key) * fading) / self.window_s


class HotKeyPartitioner:
    """For any number of threads.

    confluent-kafka:  producer.produce(topic, value, key=key, partition=partitioner.choose(key, partition_count))
    kafka-python 3:   KafkaProducer(partitioner=partitioner.for_kafka_python())
    kafka-python 2:   KafkaProducer(partitioner=partitioner)
    One object per topic: rates and the turn are not kept apart by topic.
    """

    def __init__(
        self,
        *,
        threshold_per_s: float,
        window_s: float = 1.0,
        keys_max: int = KEYS_MAX,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`clock`: seconds that never go back."""
        if threshold_per_s <= 0:
            raise ValueError("the threshold must be above zero")
        self.threshold_per_s = threshold_per_s
        self.spread = 0
        """Records that went elsewhere than their key's hash says."""
        self._clock = clock
        self._rates = KeyRates(window_s, keys_max, clock())
        self._turn = -1
        self._lock = threading.Lock()

    def choose(self, key: bytes | str | None, partition_count: int) -> int:
        return self(key, range(partition_count))

    def __call__(
        self, key: bytes | str | None, all_partitions: Sequence[int], available: Sequence[int] | None = None
    ) -> int:
        """As kafka-python 2 calls it: all partitions in order, and those that have a leader."""
        if not all_partitions:
            raise ValueError("a topic without partitions")
        with self._lock:
            if key is None:
                return self._next(available or all_partitions)
            raw = key.encode() if isinstance(key, str) else key
            if self._rates.add(raw, self._clock()) > self.threshold_per_s:
                self.spread += 1
                return self._next(available or all_partitions)
        return all_partitions[partition_of_key(raw, len(all_partitions))]

    def for_kafka_python(self) -> "HotKeyPartitioner":
        """This object, made known to kafka-python 3 as one of its partitioners."""
        import_module("kafka.partitioner").Partitioner.register(type(self))
        return self

    def partition(
        self, topic: str, key: object, serialized_key: bytes | None, value: object, serialized: object, cluster: Any
    ) -> int:
        """As kafka-python 3 calls it."""
        there = sorted(cluster.partitions_for_topic(topic) or ())
        return self(serialized_key, there, sorted(cluster.available_partitions_for_topic(topic) or ()))

    def hot_keys(self) -> list[tuple[bytes, float]]:
        """Keys above the threshold now, with their rates, hottest first."""
        with self._lock:
            rates = self._rates.rates(self._clock())
        hot = [(key, rate) for key, rate in rates.items() if rate > self.threshold_per_s]
        return sorted(hot, key=lambda entry: -entry[1])

    def _next(self, partitions: Sequence[int]) -> int:
        self._turn = (self._turn + 1) % len(partitions)
        return partitions[self._turn]
