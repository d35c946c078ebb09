"""Compaction of closed segments: of each key only the newest record stays. A function of files, for any process.

`compact` reads the segments a task names and writes one `.cleaned` file with its two indexes for as many neighbours as
fit into one; it changes nothing else. Putting them in place is the log's work (`cleaning`).

What stays, as in Kafka: the newest record of each key; a tombstone until its delete horizon, which is written into its
batch (attribute bit 6, base timestamp) when it is first compacted; everything behind the last batch the map of keys had
room for. Offsets never change: a batch keeps its base offset and its last one. A batch left without records stays as a
bare header if it is the last of its producer or of its file, or the first of its leader epoch: where epochs began must
be told by every copy of the log.

All transactions that have records here have ended, perhaps by a marker behind it. Records that were aborted go, and
replace nothing. A marker stays as long as a batch of its transaction is met, if only a bare header: a copy of the log
would take the transaction for open, or for committed. Then it gets a delete horizon, for those who read its records
before. The last marker of a producer that has nothing else stays, because it holds its epoch.

When a horizon is in a file, no older record of its keys is left in that file or in an older one: only therefore a
tombstone may go when its time has come.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

import msgspec

from skidway.errors import CorruptMessage, InvalidRecord, StorageError
from skidway.limits import INT32_MAX, INT64_MAX
from skidway.log.aborted import Aborted, AbortedIndex
from skidway.log.compaction.key_map import KeyMap, keys_within, make_map
from skidway.log.segment import Segment, segment_name
from skidway.ports import Buffer, Disk, File
from skidway.records.batch import (
    CHECKED_POSITION,
    CODEC_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER,
    HEADER_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    PREFIX_BYTES,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    wrap_timestamp,
)
from skidway.records.checksum import crc32c
from skidway.records.compression import compress, decompress
from skidway.records.header_fields import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BATCH_LENGTH,
    CRC,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    MAGIC_BYTE,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    RECORD_COUNT,
)
from skidway.records.record import assemble
from skidway.records.walk import Spot, retime, walk

_READ_BYTES = 4 << 20
_WRITE_BYTES = 1 << 20

# What becomes of a dirty record: one byte each.
_STAYS, _GOES, _TOMBSTONE = 0, 1, 2
_FATES_SHARE = 8
"""The fates of a pass take this part of what its map may take, at most."""


class Source(msgspec.Struct):
    """A closed segment. It ends where the next one begins."""

    base_offset: int
    end_offset: int
    size: int


class CompactionTask(msgspec.Struct, kw_only=True):
    """Plain values: it travels to another process."""

    directory: str
    token: str
    """Makes the names of this task's files its own, whoever else may still be writing there."""
    sources: list[Source]
    """From the log's first segment on, without a gap."""
    segment_bytes: int
    """What a segment should take; up to half as much again when small ones become one."""
    dirty_offset: int
    """Keys below were compacted among themselves before."""
    now_ms: int
    delete_retention_ms: int
    index_interval_bytes: int
    aborted: list[tuple[int, int, int, int]]
    """Transactions that have records in the sources (see `aborted.Aborted`), in the order of their markers."""
    producers: dict[int, int]
    """The last offset of each producer: that batch's header must stay."""
    marked: dict[int, int]
    """The epoch of each producer of which only markers are left."""
    map_bytes_max: int
    decompressed_bytes_max: int


class Cleaned(msgspec.Struct):
    """A new segment. It begins where the first of those begins that it replaces."""

    replaced: list[int]
    size: int
    max_timestamp: int
    max_timestamp_offset: int
    had_aborted: bool = False
    """Whether one of those had aborted transactions: then there is a new transaction index, if only an empty one."""

    @property
    def base_offset(self) -> int:
        return self.replaced[0]


class CompactionResult(msgspec.Struct):
    end_offset: int
    """Everything below is compacted; less than was asked for when the map was full."""
    cleaned: list[Cleaned] = msgspec.field(default_factory=list)
    """Oldest first. Segments that came out as they went in are not replaced."""
    keys: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    records_kept: int = 0
    records_dropped: int = 0


def cleaned_path(directory: str, base_offset: int, suffix: str, token: str) -> str:
    return f"{directory}/{segment_name(base_offset, suffix)}.{token}.cleaned"


def remove_cleaned(disk: Disk, directory: str, token: str) -> None:
    """What a task that failed or was not used left behind."""
    for name in disk.list(directory):
        if name.endswith(f".{token}.cleaned"):
            disk.remove(f"{directory}/{name}")


def compact(disk: Disk, task: CompactionTask) -> CompactionResult:
    """Raises OSError when the disk refuses, StorageError when a segment is damaged."""
    return _Compactor(disk, task).run()


class _Compactor:
    __slots__ = (
        "aborted",
        "disk",
        "end_offset",
        "epoch",
        "fates",
        "map",
        "met",
        "next_fate",
        "result",
        "task",
        "unreadable",
    )

    def __init__(self, disk: Disk, task: CompactionTask) -> None:
        self.disk = disk
        self.task = task
        self.end_offset = task.dirty_offset
        self.map: KeyMap = make_map(0)
        self.fates = bytearray()
        """Of the records of all dirty batches that have keys, in the order of the log."""
        self.next_fate = 0
        self.unreadable: set[int] = set()
        """Base offsets of dirty batches."""
        self.epoch = 0
        """The leader's, of the last batch that was cleaned. None came before 0, so nobody asks where that one began."""
        self.aborted = _Aborted(task.aborted)
        self.met: set[int] = set()
        """Producers of which a transactional batch came since their last marker."""
        self.result = CompactionResult(task.dirty_offset)

    def run(self) -> CompactionResult:
        result = self.result
        self._learn_keys()
        result.end_offset = self.end_offset
        result.keys = len(self.map)
        output: _Output | None = None
        for source in self.task.sources:
            if source.base_offset >= self.end_offset:
                break
            if output is not None and not output.has_room_for(source):
                self._close(output)
                output = None
            if output is None:
                output = _Output(self.disk, self.task, source.base_offset)
            self._clean(source, output)
        if output is not None:
            self._close(output)
        if result.cleaned:
            self.disk.sync_directory(self.task.directory)
        return result

    # First pass: the newest record of each key, and with it the fate of those before.

    def _dirty_sources(self) -> list[Source]:
        return [source for source in self.task.sources if source.end_offset > self.task.dirty_offset]

    def _dirty_batches(self) -> "Iterator[tuple[tuple[int, ...], bytes, int]]":
        for source in self._dirty_sources():
            for fields, data, at in self._batches(source):
                if fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] >= self.task.dirty_offset:
                    yield fields, data, at

    def _learn_keys(self) -> None:
        task = self.task
        room = keys_within(task.map_bytes_max)
        fates_max = task.map_bytes_max // _FATES_SHARE
        self.map = make_map(self._keys_bound(room))
        for fields, data, at in self._dirty_batches():
            is_full = len(self.map) + fields[RECORD_COUNT] > room or len(self.fates) + fields[RECORD_COUNT] > fates_max
            if is_full and self.end_offset > task.dirty_offset:
                return
            if not fields[ATTRIBUTES] & CONTROL_BIT and not self.aborted.covers(fields):
                payload, spots = self._open(fields, data, at)
                if payload is None:
                    self.unreadable.add(fields[BASE_OFFSET])
                else:
                    self._learn(spots)
            self.end_offset = fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] + 1
        if task.sources:
            self.end_offset = max(self.end_offset, task.sources[-1].end_offset)

    def _learn(self, spots: list[Spot]) -> None:
        put, fates = self.map.put, self.fates
        number = len(fates)
        fates += bytes(len(spots))
        for spot in spots:
            key = spot[5]
            if key is None:
                fates[number] = _GOES
            else:
                before = put(key, number)
                if before >= 0:
                    fates[before] = _GOES
                if not spot[6]:
                    fates[number] = _TOMBSTONE
            number += 1

    def _keys_bound(self, room: int) -> int:
        """No more keys than records; the first batch gets its room in any case."""
        records = first = 0
        for source in self._dirty_sources():
            for fields in _headers(self.disk, self._path(source), source.size):
                if fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] < self.task.dirty_offset:
                    continue
                first = first or fields[RECORD_COUNT]
                records += fields[RECORD_COUNT]
                if records >= room:
                    return max(room, first)
        return records

    # Second pass: what stays.

    def _clean(self, source: Source, output: "_Output") -> None:
        output.replaced.append(source.base_offset)
        output.had_aborted |= self.aborted.has_markers(source)
        for fields, data, at in self._batches(source):
            if output.bare is not None:
                output.bare = None
                output.changed = True
            kept, changed = self._filter(fields, data, at)
            output.changed = output.changed or changed
            begins_epoch = fields[LEADER_EPOCH] > self.epoch
            self.epoch = fields[LEADER_EPOCH]
            if kept is None:
                bare = _bare_header(fields)
                if (
                    self.task.producers.get(fields[PRODUCER_ID]) != fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA]
                    and not begins_epoch
                ):
                    output.bare = bare
                    continue
                kept = bare
            elif fields[ATTRIBUTES] & CONTROL_BIT:
                self.aborted.keep(fields, output.segment.aborted)
            output.write(kept)

    def _close(self, output: "_Output") -> None:
        if not output.changed and len(output.replaced) == 1:
            output.discard()
            return
        self.result.cleaned.append(output.finish())
        self.result.bytes_written += output.segment.size

    def _filter(self, fields: tuple[int, ...], data: bytes, at: int) -> tuple[Buffer | None, bool]:
        """The batch as it stays (its own bytes, rewritten ones, or None without records), and whether it changed."""
        whole = memoryview(data)[at : at + fields[BATCH_LENGTH] + PREFIX_BYTES]
        attributes = fields[ATTRIBUTES]
        if fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] >= self.end_offset:
            self.result.records_kept += fields[RECORD_COUNT]
            return whole, False
        if attributes & CONTROL_BIT:
            return self._filter_marker(fields, whole)
        if attributes & TRANSACTIONAL_BIT:
            self.met.add(fields[PRODUCER_ID])
            if self.aborted.covers(fields):
                self.result.records_dropped += fields[RECORD_COUNT]
                return None, fields[RECORD_COUNT] > 0
        horizon_known = bool(attributes & DELETE_HORIZON_BIT)
        tombstones_stay = not horizon_known or self.task.now_ms < fields[BASE_TIMESTAMP]
        if fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA] < self.task.dirty_offset:
            payload, spots = self._open(fields, data, at)
            fates = self._fates_of_old(spots)
        elif fields[BASE_OFFSET] in self.unreadable:
            payload = None
        else:
            fates = self.fates[self.next_fate : self.next_fate + fields[RECORD_COUNT]]
            self.next_fate += fields[RECORD_COUNT]
            if not any(fates):
                self.result.records_kept += fields[RECORD_COUNT]
                return whole, False
            payload, spots = self._open(fields, data, at)
        if payload is None:
            self.result.records_kept += fields[RECORD_COUNT]
            return whole, False
        tombstone = tombstones_stay and _TOMBSTONE in fates
        kept = [
            spot for spot, fate in zip(spots, fates, strict=True) if fate == _STAYS or (fate != _GOES and tombstone)
        ]
        self.result.records_kept += len(kept)
        self.result.records_dropped += len(spots) - len(kept)
        if not kept:
            return None, bool(spots)
        horizon = None
        if tombstone and not horizon_known:
            horizon = min(self.task.now_ms + self.task.delete_retention_ms, INT64_MAX)
        if horizon is None and len(kept) == len(spots):
            return whole, False
        return _rebuild(BatchHeader._make(fields), payload, kept, horizon), True

    def _filter_marker(self, fields: tuple[int, ...], whole: memoryview) -> tuple[Buffer | None, bool]:
        producer_id, count = fields[PRODUCER_ID], fields[RECORD_COUNT]
        stays = producer_id < 0 or producer_id in self.met
        self.met.discard(producer_id)
        if stays or self.task.marked.get(producer_id) == fields[PRODUCER_EPOCH]:
            self.result.records_kept += count
            return whole, False
        if not count:
            return None, False
        if fields[ATTRIBUTES] & DELETE_HORIZON_BIT:
            if self.task.now_ms < fields[BASE_TIMESTAMP]:
                self.result.records_kept += count
                return whole, False
            self.result.records_dropped += count
            return None, True
        self.result.records_kept += count
        payload = bytes(whole)
        try:
            spots = walk(payload, HEADER_BYTES, len(payload), count, fields[LAST_OFFSET_DELTA])
        except InvalidRecord:
            return whole, False
        horizon = min(self.task.now_ms + self.task.delete_retention_ms, INT64_MAX)
        return _rebuild(BatchHeader._make(fields), payload, spots, horizon), True

    def _fates_of_old(self, spots: list[Spot]) -> bytearray:
        """Of records below the dirty offset: they were compacted among themselves, and every key known is newer."""
        known = self.map
        fates = bytearray(len(spots))
        for number, spot in enumerate(spots):
            key = spot[5]
            if key is None or key in known:
                fates[number] = _GOES
            elif not spot[6]:
                fates[number] = _TOMBSTONE
        return fates

    # Reading.

    def _path(self, source: Source) -> str:
        return f"{self.task.directory}/{segment_name(source.base_offset, '.log')}"

    def _batches(self, source: Source) -> "Iterator[tuple[tuple[int, ...], bytes, int]]":
        """(header, buffer, position in it) of each batch, with its checksum proven."""
        path = self._path(source)
        file = self.disk.open(path)
        position = 0
        self.result.bytes_read += source.size
        while position < source.size:
            data = file.read_at(position, min(_READ_BYTES, source.size - position))
            at = 0
            while len(data) - at >= HEADER_BYTES:
                fields = HEADER.unpack_from(data, at)
                end = at + fields[BATCH_LENGTH] + PREFIX_BYTES
                if fields[MAGIC_BYTE] != MAGIC or end - at < HEADER_BYTES or position + end > source.size:
                    raise StorageError(f"{path} has no batch at {position + at}")
                if end > len(data):
                    if at:
                        break
                    data = file.read_at(position, end)
                if crc32c(memoryview(data)[at + CHECKED_POSITION : end]) != fields[CRC]:
                    raise StorageError(f"{path} has a damaged batch at {position + at}")
                yield fields, data, at
                at = end
            if at == 0:
                raise StorageError(f"{path} ends inside a batch at {position}")
            position += at

    def _open(self, fields: tuple[int, ...], data: bytes, at: int) -> tuple[bytes | None, list[Spot]]:
        """The bytes that hold the records and where each one is; (None, []) for what nobody can read."""
        if fields[ATTRIBUTES] & CONTROL_BIT:
            return None, []
        start, end = at + HEADER_BYTES, at + fields[BATCH_LENGTH] + PREFIX_BYTES
        try:
            codec = fields[ATTRIBUTES] & CODEC_MASK
            if codec:
                data = bytes(decompress(codec, memoryview(data)[start:end], self.task.decompressed_bytes_max))
                start, end = 0, len(data)
            return data, walk(data, start, end, fields[RECORD_COUNT], fields[LAST_OFFSET_DELTA])
        except (CorruptMessage, InvalidRecord):
            # Without keys it replaces nothing and nothing replaces it.
            return None, []


class _Aborted:
    """Which batches are of aborted transactions, and which markers ended those."""

    __slots__ = ("_by_marker", "_firsts", "_lasts", "_markers")

    def __init__(self, entries: list[tuple[int, int, int, int]]) -> None:
        self._by_marker = {entry[2]: Aborted(*entry) for entry in entries}
        self._markers = sorted(self._by_marker)
        # Of each producer, whose transactions follow each other.
        self._firsts: dict[int, list[int]] = {}
        self._lasts: dict[int, list[int]] = {}
        for producer_id, first_offset, last_offset, _ in entries:
            self._firsts.setdefault(producer_id, []).append(first_offset)
            self._lasts.setdefault(producer_id, []).append(last_offset)

    def covers(self, fields: tuple[int, ...]) -> bool:
        firsts = self._firsts.get(fields[PRODUCER_ID])
        if firsts is None or not fields[ATTRIBUTES] & TRANSACTIONAL_BIT:
            return False
        found = bisect_right(firsts, fields[BASE_OFFSET]) - 1
        return found >= 0 and fields[BASE_OFFSET] < self._lasts[fields[PRODUCER_ID]][found]

    def has_markers(self, source: Source) -> bool:
        found = bisect_left(self._markers, source.base_offset)
        return found < len(self._markers) and self._markers[found] < source.end_offset

    def keep(self, fields: tuple[int, ...], index: AbortedIndex) -> None:
        """An entry stays as long as its marker: readers leave out what follows until they come to it."""
        entry = self._by_marker.get(fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA])
        if entry is not None:
            index.append(entry)


def _headers(disk: Disk, path: str, size: int) -> Iterator[tuple[int, ...]]:
    file = disk.open(path)
    position = 0
    while size - position >= HEADER_BYTES:
        data = file.read_at(position, HEADER_BYTES)
        if len(data) < HEADER_BYTES:
            raise StorageError(f"{path} ends inside a batch at {position}")
        fields = HEADER.unpack(data)
        if fields[BATCH_LENGTH] + PREFIX_BYTES < HEADER_BYTES:
            raise StorageError(f"{path} has no batch at {position}")
        yield fields
        position += fields[BATCH_LENGTH] + PREFIX_BYTES


def _bare_header(fields: tuple[int, ...]) -> bytearray:
    header = BatchHeader._make(fields)
    return assemble(
        header._replace(
            batch_length=HEADER_BYTES - PREFIX_BYTES,
            attributes=header.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT),
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _rebuild(header: BatchHeader, payload: bytes, kept: list[Spot], horizon: int | None) -> bytearray:
    """The batch with fewer records, or with a delete horizon as its base timestamp."""
    attributes = header.attributes
    base_timestamp = header.base_timestamp
    if horizon is None:
        body = b"".join([payload[spot[0] : spot[1]] for spot in kept])
    else:
        body = retime(payload, kept, base_timestamp - horizon)
        attributes |= DELETE_HORIZON_BIT
    max_timestamp = header.max_timestamp
    if not attributes & TIMESTAMP_TYPE_BIT:
        max_timestamp = max(wrap_timestamp(base_timestamp + spot[3]) for spot in kept)
    packed = compress(attributes & CODEC_MASK, body)
    return assemble(
        header._replace(
            batch_length=HEADER_BYTES - PREFIX_BYTES + len(packed),
            attributes=attributes,
            base_timestamp=base_timestamp if horizon is None else horizon,
            max_timestamp=max_timestamp,
            record_count=len(kept),
        ),
        packed,
    )


class _Output:
    """One `.cleaned` file and its indexes."""

    __slots__ = (
        "_file",
        "_pending",
        "_pending_bytes",
        "_task",
        "bare",
        "changed",
        "had_aborted",
        "replaced",
        "segment",
    )

    def __init__(self, disk: Disk, task: CompactionTask, base_offset: int) -> None:
        self._task = task
        self.segment = Segment(disk, task.directory, base_offset, 0, task.now_ms)
        self.segment.begin_indexes(task.index_interval_bytes)
        self.segment.aborted = AbortedIndex()
        self.replaced: list[int] = []
        self.changed = self.had_aborted = False
        self.bare: Buffer | None = None
        """The header of the last batch, if nothing else is left of it: a file's end tells where the next begins."""
        self._pending: list[Buffer] = []
        self._pending_bytes = 0
        self._file: File = disk.open(self._path(".log"), create=True)

    def _path(self, suffix: str) -> str:
        return cleaned_path(self._task.directory, self.segment.base_offset, suffix, self._task.token)

    def has_room_for(self, source: Source) -> bool:
        """By what it may take at most. Files much smaller than they should be make readers ask again and again."""
        size, size_max = self.segment.size, self._task.segment_bytes
        return (
            source.end_offset - self.segment.base_offset <= INT32_MAX
            and size + source.size <= INT32_MAX
            and (size + source.size <= size_max or size <= size_max // 2)
        )

    def write(self, batch: Buffer) -> None:
        segment = self.segment
        fields = HEADER.unpack_from(batch)
        if segment.size + len(batch) > INT32_MAX:
            raise StorageError(f"{self._path('.log')} would be too large for its index")
        segment.note_batch(
            segment.size,
            fields[BASE_OFFSET] + fields[LAST_OFFSET_DELTA],
            fields[MAX_TIMESTAMP],
            self._task.index_interval_bytes,
        )
        segment.size += len(batch)
        self._pending.append(batch)
        self._pending_bytes += len(batch)
        if self._pending_bytes >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            self._file.append(*self._pending)
        self._pending = []
        self._pending_bytes = 0

    def finish(self) -> Cleaned:
        if self.bare is not None:
            self.write(self.bare)
        self._flush()
        self._file.sync()
        segment = self.segment
        index, times, aborted = segment.index_bytes()
        files = [(".index", index.to_bytes()), (".timeindex", times.to_bytes())]
        if self.had_aborted:
            files.append((".txnindex", aborted.to_bytes()))
        for suffix, content in files:
            file = segment.disk.open(self._path(suffix), create=True)
            if content:
                file.append(content)
            file.sync()
        return Cleaned(
            self.replaced, segment.size, segment.max_timestamp, segment.max_timestamp_offset, self.had_aborted
        )

    def discard(self) -> None:
        self._file.close()
        self.segment.disk.remove(self._path(".log"))
