"""Reading partitions of one topic from given offsets: `Reader` with partitions instead of places."""

from collections.abc import Callable, Iterator, Mapping

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.offsets import READ_UNCOMMITTED
from skidway.blocking_client.reader import FETCH_BYTES, PARTITION_FETCH_BYTES, POLL_MS, Reader
from skidway.blocking_client.reader import Consumed as Consumed


class Consumer:
    """Not for several threads at once. `positions` holds the next offset of each partition, and may be replaced."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        positions: Mapping[int, int],
        *,
        isolation_level: int = READ_UNCOMMITTED,
        fetch_bytes: int = FETCH_BYTES,
        partition_fetch_bytes: int = PARTITION_FETCH_BYTES,
        on_gone: Callable[[int, int, int], None] | None = None,
        on_damaged: Callable[[int, str], None] | None = None,
    ) -> None:
        """As those of `Reader`, with the number of the partition."""
        self.topic = topic
        self._reader = Reader(
            cluster,
            self._places(positions),
            isolation_level=isolation_level,
            fetch_bytes=fetch_bytes,
            partition_fetch_bytes=partition_fetch_bytes,
            on_gone=None if on_gone is None else lambda place, wanted, start: on_gone(place[1], wanted, start),
            on_damaged=None if on_damaged is None else lambda place, reason: on_damaged(place[1], reason),
        )

    @property
    def positions(self) -> dict[int, int]:
        return {partition: offset for (_, partition), offset in self._reader.positions.items()}

    @positions.setter
    def positions(self, positions: Mapping[int, int]) -> None:
        self._reader.positions = self._places(positions)

    def poll(self, timeout_ms: int = POLL_MS, *, min_bytes: int = 1) -> list[Consumed]:
        """What there is, or what comes within the time. Positions move past what is returned."""
        return self._reader.poll(timeout_ms, min_bytes=min_bytes)

    def read(self, *, follow: bool = False, until: Mapping[int, int] | None = None) -> Iterator[Consumed]:
        """Records up to the end as it is now (or `until`), or for ever with `follow`."""
        return self._reader.read(follow=follow, until=None if until is None else self._places(until))

    def ends(self) -> dict[int, int]:
        return {partition: end for (_, partition), end in self._reader.ends().items()}

    def _places(self, positions: Mapping[int, int]) -> dict[tuple[str, int], int]:
        return {(self.topic, partition): offset for partition, offset in positions.items()}
