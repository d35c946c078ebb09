"""Transactions in a compacted log on a disk that forgets: readers of committed data learn the newest committed value of
every key, nobody sees what was aborted, and every copy of the log agrees on what is open.

The world is that of `test_compaction_crashes`, the model that of `transactions_in_log`. Mistakes of other compactions
are planted, and each has to be found.
"""

import random
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar
from unittest.mock import patch

import pytest
from test_compaction_crashes import KEYS, TOPIC, World
from transactions_in_log import read_as_clients_do, told_by, visible

from skidway.log import following
from skidway.log.aborted import AbortedIndex
from skidway.log.bounds import Bound
from skidway.log.compaction import cleaning, compaction, swapping
from skidway.log.durability import checkpointing
from skidway.log.log import Log
from skidway.log.recovery.opening import open_log
from skidway.log.settings import LogSettings
from skidway.records.batch import BatchHeader, iter_headers, read_header
from skidway.records.control import EndTransaction, end_transaction_batch
from skidway.records.record import Record, build_batch, read_records
from skidway.sim.world.disk import Crashed, SimDisk

PRODUCERS = (7, 8, 9)
SEEDS = 25
"""A mistake is found within so many histories."""


class TransactionWorld(World):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.settings.retention_bytes = -1
        self.appended: list[tuple[BatchHeader, bytes]] = []
        self.unseen: set[int] = set()
        """Offsets of records that were dropped while readers could see them."""

    # Steps.

    def _put(self, batch: bytearray) -> None:
        base_offset = self.log.end_offset
        stamped = bytearray(batch)
        stamped[:8] = base_offset.to_bytes(8, "big")
        stamped[12:16] = self.restarts.to_bytes(4, "big")
        header = read_header(stamped)
        self.appended.append((header, bytes(stamped)))
        self.headers.append(header)
        if not header.is_control:
            self.records.update(
                {record.offset: record for record in read_records(stamped, decompressed_bytes_max=1 << 20)}
            )
        if header.base_sequence >= 0:
            self.sequences[header.producer_id] = header.last_sequence + 1
        assert self.log.append(batch, read_header(batch), self.restarts, self.now_ms) == base_offset

    def append(self, draw: random.Random) -> None:
        self.now_ms += draw.randrange(20)
        if not draw.randrange(3):
            self.end(draw)
            return
        producer_id = draw.choice([-1, *PRODUCERS])
        records = [
            Record(
                self.log.end_offset + i,
                self.now_ms,
                draw.choice(KEYS),
                None if draw.randrange(4) == 0 else draw.randbytes(draw.randrange(60)),
            )
            for i in range(draw.randrange(1, 4))
        ]
        self._put(
            build_batch(
                records,
                codec=draw.choice([0, 0, 1]),
                producer_id=producer_id,
                producer_epoch=0 if producer_id >= 0 else -1,
                base_sequence=self.sequences.get(producer_id, 0) if producer_id >= 0 else -1,
                transactional=producer_id >= 0,
            )
        )

    def end(self, draw: random.Random) -> None:
        opened = list(told_by(self.appended).opened)
        producer_id = draw.choice(opened) if opened and draw.randrange(8) else draw.choice(PRODUCERS)
        marker = EndTransaction(bool(draw.randrange(2)), 0)
        self._put(end_transaction_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp=self.now_ms))

    def end_all(self, draw: random.Random) -> None:
        """Compaction would soon have nothing to do."""
        for producer_id in told_by(self.appended).opened:
            marker = EndTransaction(bool(draw.randrange(2)), 0)
            self._put(end_transaction_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp=self.now_ms))

    def settle(self, draw: random.Random) -> None:
        """Close a segment; everything is committed, and covered by a snapshot."""
        self.log.roll(self.now_ms)
        ticket = checkpointing.begin(self.log)
        if ticket is not None:
            ticket.run()
            self.log.finish_sync(ticket)
        self.log.advance_high_watermark(self.log.synced_offset)
        self.committed = max(self.committed, self.log.high_watermark)

    STEPS: ClassVar[tuple[Any, ...]] = (
        *[append] * 16,
        *[end_all] * 2,
        *[settle] * 6,
        *[World.compact] * 4,
        *[World.step_compaction] * 3,
        *[World.wait] * 2,
        *[World.sync, World.save, World.forget, World.cut, World.close, World.crash, World.crash_soon],
    )
    UNCHECKED: ClassVar[tuple[Any, ...]] = (append, end_all, settle, World.wait, World.save)
    """Steps that compact nothing."""

    def play(self, steps: list[tuple[int, int]]) -> None:
        for number, seed in steps:
            draw = random.Random(seed)
            step = self.STEPS[number]
            try:
                step(self, draw)
            except Crashed:
                self.crash(draw)
                self.check()
            if step not in self.UNCHECKED:
                self.check()
        self.disk.crash_at = None
        self.crash(random.Random(len(steps)))
        self.check()

    # Checks.

    def keep_below_end(self) -> None:
        super().keep_below_end()
        self.appended = [item for item in self.appended if item[0].base_offset < self.log.end_offset]
        self.sequences = {h.producer_id: h.last_sequence + 1 for h in self.headers if h.base_sequence >= 0}

    def on_restarted(self, offset: int) -> None:
        super().on_restarted(offset)
        self.appended, self.unseen = [], set()

    def check(self) -> None:
        log = self.log
        told = told_by(self.appended)
        for producer_id in PRODUCERS:
            assert log.producers.open_transaction(producer_id) == told.opened.get(producer_id, -1), "what is open"
        assert log.last_stable_offset <= told.stable(log.start_offset, log.high_watermark, self.committed)
        seen = self.read_committed(log)
        allowed = visible(self.appended, 0, log.last_stable_offset)
        bases = {record_offset: header.base_offset for header, _ in self.appended for record_offset in _offsets(header)}
        for record in seen:
            assert bases[record.offset] in allowed, "what was aborted is seen"
            assert record._replace(headers=()) == self.records[record.offset]._replace(headers=()), "as it was written"
        offsets = [record.offset for record in seen]
        assert not self.unseen.intersection(offsets), "what was dropped comes back"
        shown = {o for o, base in bases.items() if base in allowed and log.start_offset <= o < log.last_stable_offset}
        self.unseen |= shown.difference(offsets)
        if log.high_watermark >= self.committed:
            # A start may not know how far its log was committed: what replaced a record may be above that.
            self.check_newest_committed(seen, shown)
        self.check_copy()

    def check_newest_committed(self, seen: list[Record], shown: set[int]) -> None:
        told = {record.key: record.offset for record in seen}
        for key in KEYS:
            newest = max((offset for offset in shown if self.records[offset].key == key), default=None)
            if newest is None:
                continue
            if key in told:
                assert told[key] == newest, "an old value after a newer one was dropped"
                continue
            record = self.records[newest]
            assert record.value is None, f"the newest value of {key!r} is lost"
            assert self.now_ms >= record.timestamp + self.settings.delete_retention_ms

    def check_copy(self) -> None:
        """A replica that begins with what is left: it has the same open, and its readers see the same."""
        log = self.log
        disk = SimDisk()
        disk.make_directory(TOPIC)
        copy = open_log(
            disk,
            TOPIC,
            LogSettings(segment_bytes=900),
            clean=True,
            recovery_point=0,
            start_offset=log.segments[0].base_offset,
            now_ms=self.now_ms,
        )
        data = b"".join(segment.file.read_at(0, segment.size) for segment in log.segments)
        following.append(copy, data, self.now_ms)
        assert copy.end_offset == log.end_offset
        copy.advance_high_watermark(log.high_watermark)
        told = told_by(self.appended)
        for producer_id in PRODUCERS:
            # Where it began may have been deleted.
            there, here = copy.producers.open_transaction(producer_id), told.opened.get(producer_id, -1)
            assert (there < 0) == (here < 0) or here < log.segments[0].base_offset, "what is open in a copy"
        if copy.last_stable_offset >= log.last_stable_offset:
            seen = [record.offset for record in self.read_committed(log)]
            there_seen = [
                record.offset
                for record in self.read_committed(copy)
                if log.start_offset <= record.offset < log.last_stable_offset
            ]
            assert there_seen == seen, "what readers of a copy see"

    def read_committed(self, log: Log) -> list[Record]:
        bases = set(read_as_clients_do(log, 300))
        records: list[Record] = []
        offset = log.start_offset
        while offset < log.last_stable_offset and (slice_ := log.read(offset, 300, Bound.LAST_STABLE)) is not None:
            data = slice_.read()
            for position, header in iter_headers(data):
                if header.base_offset in bases:
                    records += read_records(data[position : position + header.size], decompressed_bytes_max=1 << 20)
                offset = header.last_offset + 1
        return [record for record in records if record.offset >= log.start_offset]


def _offsets(header: BatchHeader) -> range:
    return range(0) if header.is_control else range(header.base_offset, header.last_offset + 1)


def play(seed: int, steps: int = 140) -> TransactionWorld:
    draw = random.Random(seed)
    world = TransactionWorld(seed)
    world.play([(draw.randrange(len(world.STEPS)), draw.randrange(2**32)) for _ in range(steps)])
    return world


def play_all() -> None:
    for seed in range(SEEDS):
        play(seed)


@pytest.mark.parametrize("seed", range(25))
def test_readers_of_a_compacted_log_see_what_was_committed(seed: int) -> None:
    play(seed)


def test_something_is_compacted() -> None:
    assert play(0).compactions > 5


def marker_before_its_data(self: Any, fields: tuple[int, ...], whole: Any) -> Any:
    """A marker goes at once."""
    return None, True


def state_not_carried(original: Any) -> Any:
    def clean(self: Any, source: Any, output: Any) -> None:
        """What was met is forgotten with every segment (KAFKA-8351)."""
        self.met.clear()
        original(self, source, output)

    return clean


def above_the_stable(original: Any) -> Any:
    def cleanable(log: Log, now_ms: int) -> int:
        """Compaction goes up to the watermark."""
        with patch.object(Log, "last_stable_offset", property(lambda self: self.high_watermark)):
            return int(original(log, now_ms))

    return cleanable


def aborted_replaces(original: Any) -> Any:
    def learn_keys(self: Any) -> None:
        """An aborted record replaces older ones of its key."""
        with patch.object(compaction._Aborted, "covers", lambda self, fields: False):
            original(self)

    return learn_keys


def entries_lost(self: Any, fields: tuple[int, ...], index: AbortedIndex) -> None:
    """The new segment has no transaction index (KAFKA-13727)."""


def aborted_of_the_sources_only(original: Any) -> Any:
    def task(log: Log, count: int, now_ms: int, token: str) -> Any:
        """Transactions whose markers are behind the compacted part are taken for committed."""
        made = original(log, count, now_ms, token)
        made.aborted = [entry for entry in made.aborted if entry[2] < made.sources[-1].end_offset]
        return made

    return task


def index_after_the_segment(disk: Any, directory: str, base_offset: int, replaced: list[int]) -> None:
    """The segment is put in place, and a crash comes before its transaction index."""
    swapped = f"{directory}/{swapping.segment_name(base_offset, swapping.ABORTED_SWAP)}"
    if disk.exists(swapped):
        disk.remove(swapped)
        disk.remove(f"{directory}/{swapping.segment_name(base_offset, '.txnindex')}")
    original_place(disk, directory, base_offset, replaced)


original_place = cleaning.place
_Compactor = compaction._Compactor

PLANTED: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "marker before its data": (
        lambda: patch.object(_Compactor, "_filter_marker", marker_before_its_data),
        "in a copy|of a copy|is lost|aborted is seen",
    ),
    "state not carried": (
        lambda: patch.object(_Compactor, "_clean", state_not_carried(_Compactor._clean)),
        "in a copy|of a copy|is lost|aborted is seen",
    ),
    "above the stable": (
        lambda: patch.object(cleaning, "_cleanable", above_the_stable(cleaning._cleanable)),
        "is lost|dropped|comes back",
    ),
    "aborted replaces": (
        lambda: patch.object(_Compactor, "_learn_keys", aborted_replaces(_Compactor._learn_keys)),
        "is lost|dropped",
    ),
    "entries lost": (lambda: patch.object(compaction._Aborted, "keep", entries_lost), "aborted is seen"),
    "aborted of the sources only": (
        lambda: patch.object(cleaning, "_task", aborted_of_the_sources_only(cleaning._task)),
        "is lost|dropped",
    ),
    "index after the segment": (lambda: patch.object(cleaning, "place", index_after_the_segment), "aborted is seen"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(name: str) -> None:
    plant, told = PLANTED[name]
    with plant(), pytest.raises(AssertionError, match=told):
        play_all()
