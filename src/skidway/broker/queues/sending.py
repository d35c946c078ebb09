"""Sends to FIFO queues at the leaders of their partitions: an id that was sent within five minutes is not sent again.

The id of a message is a header of its record, `skidway.dedup-id`. The first send after this node began to lead reads
the records of the last five minutes, and sends wait for that. Between the look at the ids and the append nothing else
happens. An id counts from the append on, before it is committed: who sends it again waits for the commit of the first.
What is gone from the log, by a purge or its retention, is forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from skidway.broker.partitions.partition import Appended, Partition
from skidway.broker.shares.reading import look
from skidway.broker.world import World
from skidway.errors import NotLeaderOrFollower, ThrottlingQuotaExceeded
from skidway.limits import MIB
from skidway.log import lookup
from skidway.log.bounds import Bound
from skidway.records.batch import NO_PRODUCER_ID, read_header
from skidway.records.queue_headers import DEDUP_ID
from skidway.records.record import Record, build_batch, read_records
from skidway.records.validation import validate
from skidway.replica.leader import ACKS_ALL
from skidway.shares.dedup import WINDOW_MS, Dedup
from skidway.steps import Question, Steps

PRODUCE_VERSION = 13


class Place(NamedTuple):
    """Of a message in its partition."""

    offset: int
    duplicate: bool


class Repeated(NamedTuple):
    """What a message repeats: one in the log, or an earlier one of the same request."""

    offset: int = -1
    number: int = -1


class Table:
    """The ids that were sent to one partition, in one leader epoch."""

    __slots__ = ("_by_group", "_dedup", "_epoch", "_partition", "is_loaded", "used_ms", "waiters")

    def __init__(self, partition: Partition, by_group: bool) -> None:
        """`by_group`: each group has ids of its own."""
        self._partition = partition
        self._epoch = partition.role.leader_epoch
        self._by_group = by_group
        self._dedup = Dedup()
        self.is_loaded = False
        self.waiters: list[Callable[[Any], None]] = []
        self.used_ms = 0

    def fits(self, partition: Partition, by_group: bool) -> bool:
        same = self._partition is partition and self._epoch == partition.role.leader_epoch
        return same and self._by_group == by_group

    def ids(self, records: Sequence[Record]) -> list[str | None]:
        return [self.id(record) for record in records]

    def repeated(self, ids: Sequence[str | None], wall_ms: int) -> dict[int, Repeated]:
        """By the number of the message. Those that are not there are new."""
        self._dedup.forget_below(self._partition.log.start_offset)
        if self._dedup.is_full(wall_ms):
            raise ThrottlingQuotaExceeded("too many messages were sent to the partition in five minutes: retry later")
        found: dict[int, Repeated] = {}
        here: dict[str, int] = {}
        for number, known in enumerate(ids):
            if known is None:
                continue
            offset = self._dedup.find(known, wall_ms)
            if offset is not None:
                found[number] = Repeated(offset)
            elif known in here:
                found[number] = Repeated(number=here[known])
            else:
                here[known] = number
        return found

    def note(self, record: Record, offset: int, known: str | None) -> None:
        if known is not None:
            self._dedup.note(known, offset, max(0, record.timestamp))

    def id(self, record: Record) -> str | None:
        found: bytes | None = None
        for name, value in record.headers:
            if name == DEDUP_ID:
                found = value  # the last one: the door wrote it behind the attributes
        if found is None:
            return None
        known = found.decode("latin-1")
        if not self._by_group:
            return known
        group = (record.key or b"").decode("latin-1")
        return f"{len(group)} {group}{known}"


class Sends:
    __slots__ = ("_sweeping", "_tables", "_world")

    def __init__(self, world: World) -> None:
        self._world = world
        self._tables: dict[tuple[bytes, int], Table] = {}
        self._sweeping = False

    def send(self, partition: Partition, batch: bytes | bytearray, by_group: bool) -> Steps[list[Place]]:
        """Append what is new of it. A place for each record; it is committed once the high watermark has passed it."""
        bytes_max = self._world.limits.decompressed_bytes_max
        records = list(read_records(batch, decompressed_bytes_max=bytes_max))
        while True:
            partition.leader.admit(ACKS_ALL)
            table = yield from self._table(partition, by_group)
            ids = table.ids(records)
            repeated = table.repeated(ids, self._world.clock.wall_ms())
            new = [record for number, record in enumerate(records) if number not in repeated]
            if not new:
                return _places(records, repeated, 0)
            # It is stamped where it lies, and the same bytes may be looked at again.
            as_sent = not repeated and _is_plain(batch, len(records))
            built = memoryview(bytearray(batch) if as_sent else build_batch(new))
            wall_ms = self._world.clock.wall_ms()
            checked = validate(built, partition.rules, PRODUCE_VERSION, wall_ms)
            if not isinstance(checked, tuple):
                checked = yield from checked
                wall_ms = self._world.clock.wall_ms()
                if not table.fits(partition, by_group) or table.repeated(ids, wall_ms) != repeated:
                    continue  # the batch was looked at in steps, and something has changed meanwhile
            appended = partition.produce(built, ACKS_ALL, PRODUCE_VERSION, wall_ms, None, checked)
            assert isinstance(appended, Appended), "what is checked and has no producer is appended at once"
            new_ids = [known for number, known in enumerate(ids) if number not in repeated]
            for offset, (record, known) in enumerate(zip(new, new_ids, strict=True), appended.base_offset):
                table.note(record, offset, known)
            return _places(records, repeated, appended.base_offset)

    # --- what was sent before ---

    def _table(self, partition: Partition, by_group: bool) -> Steps[Table]:
        place = (partition.topic_id, partition.index)
        while True:
            table = self._tables.get(place)
            if table is not None and table.fits(partition, by_group):
                if table.is_loaded:
                    table.used_ms = self._world.clock.monotonic_ms()
                    return table
                yield Question(table.waiters.append)
                continue
            table = self._tables[place] = Table(partition, by_group)
            try:
                yield from self._load(table, partition)
                table.is_loaded = True
            finally:
                if not table.is_loaded and self._tables.get(place) is table:
                    del self._tables[place]  # who waits loads it again
                for respond in table.waiters:
                    respond(None)
            self._sweep_later()
            if not partition.leads:
                raise NotLeaderOrFollower(f"this node does not lead {partition} any more")

    def _load(self, table: Table, partition: Partition) -> Steps[None]:
        log, since_ms = partition.log, self._world.clock.wall_ms() - WINDOW_MS
        found = yield from lookup.offset_for_timestamp(log, since_ms, Bound.END)
        position = log.end_offset if found is None else found[0]
        while position < log.end_offset:
            read = look(log, max(position, log.start_offset), MIB, Bound.END)
            if read is None:
                break
            data, start = memoryview(read.file_slice.read()), 0
            for span, end in zip(read.spans, read.ends, strict=True):
                end -= read.file_slice.position
                if span.deliverable:
                    self._note_all(table, data[start:end])
                start, position = end, span.end
                yield None

    def _note_all(self, table: Table, batch: memoryview) -> None:
        records: Iterable[Record] = read_records(
            batch, decompressed_bytes_max=self._world.limits.decompressed_bytes_max
        )
        for record in records:
            table.note(record, record.offset, table.id(record))

    def _sweep_later(self) -> None:
        if not self._sweeping:
            self._sweeping = True
            self._world.timers.at(self._world.clock.monotonic_ms() + WINDOW_MS, self._sweep)

    def _sweep(self) -> None:
        """Forget what nobody has used for as long as ids count."""
        self._sweeping = False
        now_ms = self._world.clock.monotonic_ms()
        for place, table in list(self._tables.items()):
            if table.is_loaded and now_ms - table.used_ms >= WINDOW_MS:
                del self._tables[place]
        if self._tables:
            self._sweep_later()


def _is_plain(batch: bytes | bytearray, count: int) -> bool:
    """Whether it is what `build_batch` would make of its records."""
    header = read_header(batch)
    return (
        header.attributes == 0
        and header.producer_id == NO_PRODUCER_ID
        and header.size == len(batch)
        and header.last_offset_delta == count - 1
    )


def _places(records: Sequence[Record], repeated: dict[int, Repeated], base_offset: int) -> list[Place]:
    places: list[Place] = []
    for number in range(len(records)):
        known = repeated.get(number)
        if known is None:
            places.append(Place(base_offset, duplicate=False))
            base_offset += 1
        else:
            places.append(Place(places[known.number].offset if known.offset < 0 else known.offset, duplicate=True))
    return places
