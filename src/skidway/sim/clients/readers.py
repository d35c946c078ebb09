"""Consumers that read partitions they chose themselves, from the beginning, and compare what they get.

One fetch at a time to each leader, for all partitions it leads. Offsets come without gaps and never go back: topics of
these readers are not compacted. What a broker once served must stay where it was. They read everything, also what is
in no transaction that was committed, and step over markers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from skidway.errors import ErrorCode
from skidway.records.batch import BatchHeader, crc_matches, iter_headers, read_header
from skidway.records.record import read_records
from skidway.sim.clients.base import ROUTING_ERRORS, Client
from skidway.sim.plan import COMPACTED
from skidway.sim.world.events import Violation, World
from skidway.sim.world.network import Address, Network
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData

RECORD_BYTES_MAX = 1 << 20
BATCHES_KEPT = 4_096
"""All readers read the same batches, most of them within a moment: each is taken apart once."""
RETRY_MS = 50
RETRIES_MAX = 16
"""Each retry asks every leader and may so cause several more: without a limit they become a flood."""
RETRIED = ROUTING_ERRORS | {ErrorCode.OFFSET_NOT_AVAILABLE}

Partition = tuple[str, int]
Opened = tuple[BatchHeader, bytes, list[tuple[int, bytes]] | None]


class Reads(Protocol):
    """What a reader tells the history."""

    def read(self, reader: str, topic: str, topic_id: bytes, partition: int, offset: int, value: bytes) -> None: ...

    def watermark(
        self, reader: str, topic_id: bytes, partition: int, leader_epoch: int, high_watermark: int
    ) -> None: ...

    def is_rotten(self, batch: bytes) -> bool:
        """Whether a disk has made it so: then a leader served it that could not know."""
        ...


@dataclass(slots=True)
class Position:
    offset: int = 0
    epoch: int = -1
    """Of the last record that was read: a leader that has it no more says so."""
    end_offset: int = 0
    """The high watermark a leader told last."""


class Reader(Client):
    isolation_level = 0

    def __init__(
        self,
        world: World,
        network: Network,
        place: str,
        seeds: list[Address],
        partitions: dict[str, int],
        reads: Reads,
        *,
        wait_ms: int = 300,
        max_bytes: int = 1 << 20,
    ) -> None:
        super().__init__(world, network, place, seeds, list(partitions))
        self.reads = reads
        self.wait_ms = wait_ms
        self.max_bytes = max_bytes
        self.rack = ""
        self.positions: dict[Partition, Position] = {
            (topic, index): Position() for topic, count in partitions.items() for index in range(count)
        }
        self._fetching: dict[int, bool] = {}
        self._retries = 0
        self.on_read: Callable[[str, int, int], None] | None = None

    def on_metadata(self) -> None:
        self._pump()

    def assign(self, positions: dict[Partition, Position]) -> None:
        self.positions = positions
        self._pump()

    def _pump(self) -> None:
        if self.stopped:
            return
        wanted: dict[int, list[Partition]] = {}
        for partition in self.positions:
            source = self.source_of(partition)
            if source in self.brokers.addresses and not self._fetching.get(source):
                wanted.setdefault(source, []).append(partition)
        for source, partitions in wanted.items():
            self._fetch(source, partitions)

    def source_of(self, partition: Partition) -> int:
        """Whom to ask for it."""
        return self.leader_of(*partition)[0]

    def is_lost(self, partition: Partition) -> bool:
        """It is read somewhere that nobody has told of yet."""
        return False

    def on_silence(self, source: int) -> None:
        """It did not answer."""

    def _fetch(self, source: int, partitions: list[Partition]) -> None:
        self._fetching[source] = True
        topics: dict[str, FetchTopic] = {}
        asked: dict[Partition, tuple[int, int]] = {}
        ids: dict[bytes, str] = {}
        for name, index in partitions:
            position = self.positions[name, index]
            topic_id = self.known[name].topic_id
            ids[topic_id] = name
            leader, epoch = self.leader_of(name, index)
            asked[name, index] = (position.offset, epoch)
            topic = topics.setdefault(name, FetchTopic(topic=name, topic_id=topic_id, partitions=[]))
            topic.partitions.append(
                FetchPartition(
                    partition=index,
                    current_leader_epoch=epoch,
                    fetch_offset=position.offset,
                    # A follower that lags behind would say that its log has parted from the leader's.
                    last_fetched_epoch=position.epoch if source == leader else -1,
                    partition_max_bytes=self.max_bytes,
                )
            )
        request = FetchRequest(
            max_wait_ms=self.wait_ms,
            min_bytes=1,
            max_bytes=self.max_bytes * 4,
            isolation_level=self.isolation_level,
            topics=list(topics.values()),
            rack_id=self.rack,
        )
        self.ask(source, request, lambda reply: self._on_reply(source, asked, ids, reply), self.wait_ms + 2_000)

    def _on_reply(
        self,
        source: int,
        asked: dict[Partition, tuple[int, int]],
        ids: dict[bytes, str],
        reply: FetchResponse | None,
    ) -> None:
        self._fetching[source] = False
        if reply is None:
            self.on_silence(source)
        troubled = reply is None or reply.error_code != 0
        for topic in [] if reply is None else reply.responses:
            name = ids.get(topic.topic_id, topic.topic)
            for data in topic.partitions:
                key = (name, data.partition_index)
                position = self.positions.get(key)
                if position is None or position.offset != asked[key][0]:
                    continue  # not ours any more, or moved
                if data.error_code:
                    troubled = True
                    self._on_error(key, position, data, source)
                elif not self._take(key, position, data, asked[key][1], source) or self.is_lost(key):
                    troubled = True
        if troubled:
            self.refresh()
            self._retry()
        else:
            self._pump()

    def _retry(self) -> None:
        def due() -> None:
            self._retries -= 1
            self._pump()

        if self._retries < RETRIES_MAX:
            self._retries += 1
            self.after(RETRY_MS * (0.5 + self.random.random()), due)

    def _on_error(self, key: Partition, position: Position, data: PartitionData, source: int) -> None:
        if data.error_code in RETRIED:
            return
        topic, index = key
        if data.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            raise Violation(
                "vanished",
                f"{self.place} has read {topic}-{index} below {position.offset}; now that is out of range "
                f"({data.log_start_offset} to {data.high_watermark})",
            )
        raise Violation("client-errors", f"{self.place} got {ErrorCode(data.error_code).name} reading {topic}-{index}")

    def _take(self, key: Partition, position: Position, data: PartitionData, leader_epoch: int, source: int) -> bool:
        """False where a batch cannot be read, and has to be asked for again."""
        topic, index = key
        topic_id = self.known[topic].topic_id
        if data.diverging_epoch.epoch >= 0:
            raise Violation(
                "vanished",
                f"{self.place} has read {topic}-{index} below {position.offset} of epoch {position.epoch}; the leader "
                f"says epoch {data.diverging_epoch.epoch} ended at {data.diverging_epoch.end_offset}",
            )
        if source == self.leader_of(topic, index)[0]:
            # A follower that is started anew knows less than before.
            self.reads.watermark(self.place, topic_id, index, leader_epoch, data.high_watermark)
        position.end_offset = data.high_watermark
        if not data.records:
            return True
        for header, _, opened in self._batches(key, position, data):
            if opened is None:
                return False
            for offset, value in opened:
                if offset >= position.offset:
                    self.reads.read(self.place, topic, topic_id, index, offset, value)
            position.offset = header.last_offset + 1
            position.epoch = header.partition_leader_epoch
        if self.on_read is not None:
            self.on_read(topic, index, position.offset)
        return True

    def _batches(self, key: Partition, position: Position, data: PartitionData) -> Iterator[Opened]:
        """Each with its bytes and records (None: a disk has damaged it), while the position moves behind it."""
        topic, index = key
        assert not hasattr(data.records, "file")
        stored = bytes(data.records or b"")
        for at, header in iter_headers(stored):
            batch = stored[at : at + header.size]
            opened = open_batch(batch)
            if opened is None and not self.reads.is_rotten(batch):
                raise Violation("corrupt-read", f"{self.place} got a damaged batch of {topic}-{index}")
            if opened is not None and header.last_offset < position.offset:
                raise Violation(
                    "non-monotonic", f"{self.place} fetched {topic}-{index} from {position.offset}, got {header}"
                )
            if opened is not None and header.base_offset > position.offset and topic != COMPACTED:
                raise Violation(
                    "skipped",
                    f"{self.place} fetched {topic}-{index} from {position.offset} and got {header.base_offset}",
                )
            yield header, batch, opened


@lru_cache(maxsize=BATCHES_KEPT)
def open_batch(batch: bytes) -> list[tuple[int, bytes]] | None:
    """Offset and value of each record, but of markers; None where the checksum is wrong."""
    if not crc_matches(batch):
        return None
    if read_header(batch).is_control:
        return []
    return [(each.offset, each.value or b"") for each in read_records(batch, decompressed_bytes_max=RECORD_BYTES_MAX)]
