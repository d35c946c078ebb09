"""The world of `log_world` with transactions in it: what a log knows of them, held against a plain list of its batches.

The model has no index, no snapshot and no watermark of its own: it walks over every batch that is in the log.
"""

import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from log_world import World

from skidway.errors import StorageError
from skidway.log import following, lookup, truncation
from skidway.log.bounds import Bound
from skidway.log.log import Log
from skidway.log.lookup import aborted_in
from skidway.records.batch import BatchHeader, iter_headers, read_header
from skidway.records.control import EndTransaction, end_transaction_batch, read_marker
from skidway.records.record import Record, build_batch

PRODUCERS = (7, 8, 9, 10)


@dataclass
class Told:
    """What a list of batches tells of its transactions."""

    opened: dict[int, int] = field(default_factory=dict)
    """Producer id and first offset."""
    ended: list[tuple[int, int]] = field(default_factory=list)
    """Offset of the marker and first offset."""
    aborted: list[tuple[int, int, int]] = field(default_factory=list)
    """Producer id, first offset and offset of the marker."""
    coordinators: dict[int, int] = field(default_factory=dict)

    def stable(self, start: int, watermark: int, committed: int) -> int:
        """The last stable offset, where markers below `committed` are known to stay."""
        unstable = [*self.opened.values(), *(first for marker, first in self.ended if marker >= committed)]
        return max(start, min([watermark, *unstable]))


def told_by(batches: Iterable[tuple[BatchHeader, bytes]]) -> Told:
    told = Told()
    for header, data in batches:
        producer_id = header.producer_id
        if header.is_control:
            marker = read_marker(data)
            assert marker is not None
            told.coordinators[producer_id] = marker.coordinator_epoch
            first = told.opened.pop(producer_id, None)
            if first is not None:
                told.ended.append((header.base_offset, first))
                if not marker.committed:
                    told.aborted.append((producer_id, first, header.base_offset))
        elif header.is_transactional:
            told.opened.setdefault(producer_id, header.base_offset)
    return told


def visible(batches: list[tuple[BatchHeader, bytes]], start: int, end: int) -> list[int]:
    """Base offsets of the batches that a reader of committed data should get."""
    aborted = told_by(batches).aborted
    return [
        header.base_offset
        for header, _ in batches
        if start <= header.last_offset < end
        and not header.is_control
        and not any(
            header.is_transactional and pid == header.producer_id and first <= header.base_offset < marker
            for pid, first, marker in aborted
        )
    ]


def read_as_clients_do(log: Log, max_bytes: int) -> list[int]:
    """Base offsets of what is left when aborted ones are left out: by producer id, from the first offset that the reply
    names to the next marker of an abort."""
    offset, seen = log.start_offset, []
    end = log.last_stable_offset
    while (slice_ := log.read(offset, max_bytes, Bound.LAST_STABLE)) is not None:
        data = slice_.read()
        headers = list(iter_headers(data))
        waiting = aborted_in(log, offset, slice_)
        assert waiting == sorted(waiting, key=lambda entry: entry[1]), "by first offset"
        aborting: set[int] = set()
        for position, header in headers:
            while waiting and waiting[0][1] <= header.last_offset:
                aborting.add(waiting.pop(0)[0])
            if header.is_control:
                marker = read_marker(memoryview(data)[position:])
                if marker is not None and not marker.committed:
                    aborting.discard(header.producer_id)
            elif (
                header.last_offset >= log.start_offset
                and header.record_count
                and not (header.is_transactional and header.producer_id in aborting)
            ):
                seen.append(header.base_offset)
        offset = headers[-1][1].last_offset + 1
    left = [batch for batch in log.batches() if offset <= batch[1] and batch[2] < end]
    assert left == [], "everything below the last stable offset can be read"
    return seen


class TransactionWorld(World):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.coordinator_epoch = 0
        self.known_watermark = 0
        """What a start believes to be committed: it may be less than what was."""
        self.highest_watermark = 0
        self.stable_before = 0
        self.restarting = -1
        """Where the log was told to begin anew."""
        self.seen_ms: dict[int, int] = {}
        self.forgotten: set[int] = set()

    # Steps.

    def _put(self, batch: bytearray, draw: random.Random) -> None:
        """As leader or as follower."""
        base_offset, epoch = self.log.end_offset, self.epoch
        stamped = bytearray(batch)
        stamped[:8] = base_offset.to_bytes(8, "big")
        stamped[12:16] = epoch.to_bytes(4, "big")
        header = read_header(stamped)
        self.appended.append((header, bytes(stamped)))
        try:
            if draw.randrange(3):
                self.log.append(batch, read_header(batch), epoch, self.now_ms)
            else:
                following.append(self.log, stamped, self.now_ms)
        except StorageError:
            assert self.disk.capacity is not None
            assert self.log.end_offset == base_offset
            self.appended.pop()
            return
        self.seen_ms[header.producer_id] = self.now_ms
        if header.base_sequence >= 0:
            self.sequences[header.producer_id] = header.last_sequence + 1
        assert self.log.end_offset == header.last_offset + 1

    def append(self, draw: random.Random, count: int | None = None) -> None:
        self.now_ms += draw.randrange(5)
        kind = draw.randrange(10)
        producer_id = draw.choice(PRODUCERS)
        if kind < 4:
            self.end(draw)
            return
        opened = told_by(self.appended).opened
        producer_id = -1 if kind == 9 and producer_id not in opened else producer_id
        count = count or draw.randrange(1, 4)
        records = [Record(i, self.now_ms, b"k", draw.randbytes(draw.randrange(90)), []) for i in range(count)]
        batch = build_batch(
            records,
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=self.sequences.get(producer_id, 0) if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )
        self._put(batch, draw)

    def end(self, draw: random.Random) -> None:
        """Mostly of one that is open; of one that is not it is the second marker, or an abort of nothing."""
        opened = list(told_by(self.appended).opened)
        producer_id = draw.choice(opened) if opened and draw.randrange(8) else draw.choice(PRODUCERS)
        self.coordinator_epoch += draw.randrange(2)
        marker = EndTransaction(bool(draw.randrange(2)), self.coordinator_epoch)
        self._put(end_transaction_batch(marker, producer_id=producer_id, producer_epoch=0, timestamp=self.now_ms), draw)

    def truncate(self, draw: random.Random) -> None:
        """As a follower whose leader lacks the end of its log. Nothing that is committed is cut."""
        committed = min(self.highest_watermark, self.log.end_offset)
        offset = draw.randrange(committed, self.log.end_offset + 1)
        # Power that is lost meanwhile may leave less than was promised: the cut was decided.
        self.promised_end = min(self.promised_end, committed)
        before = self.log.producers
        try:
            truncation.truncate(self.log, offset, self.now_ms)
        except StorageError:
            assert self.log.failure is None
            return
        self.appended = [item for item in self.appended if item[0].base_offset < self.log.end_offset]
        self.learn_sequences()
        if self.log.producers is not before:
            self.seen_ms = dict.fromkeys(PRODUCERS, self.now_ms)
        self.check_transactions()

    def commit_some(self, draw: random.Random) -> None:
        """The watermark may be anywhere below what is synced."""
        if self.log.synced_offset > self.log.high_watermark:
            lasts = [header.last_offset + 1 for header, _ in self.appended]
            wanted = [last for last in lasts if self.log.high_watermark < last <= self.log.synced_offset]
            if wanted:
                self.log.advance_high_watermark(draw.choice(wanted))

    def note_watermark(self, draw: random.Random) -> None:
        self.known_watermark = self.log.high_watermark

    def finish(self, draw: random.Random) -> None:
        done = [number for number, (_, done) in enumerate(self.tickets) if done]
        if done:
            ticket, _ = self.tickets.pop(draw.choice(done))
            self.log.finish_sync(ticket)
            self.promised_end = max(self.promised_end, self.log.synced_offset)
            self.commit_some(draw)

    def expire(self, draw: random.Random) -> None:
        """Producers are forgotten that were silent for long, but none that has a transaction open."""
        since = self.now_ms - draw.randrange(40)
        opened = told_by(self.appended).opened
        silent = [pid for pid in self.log.producers.entries if self.seen_ms[pid] < since and pid not in opened]
        assert sorted(self.log.producers.forget_silent(since)) == sorted(silent), "who is forgotten"
        self.forgotten |= set(silent)

    def restart_at(self, draw: random.Random) -> None:
        """A leader has nothing any more of what is here."""
        offset = self.start_max = self.restarting = self.log.end_offset + draw.randrange(3)
        try:
            truncation.restart(self.log, offset, self.now_ms)
        except StorageError:
            assert self.log.failure is None
            return
        self._restarted()

    def _restarted(self) -> None:
        self.appended, self.sequences = [], {}
        self.promised_end = self.known_watermark = self.highest_watermark = self.restarting
        self.stable_before = self.restarting
        self.restarting = -1

    STEPS: ClassVar[tuple[Any, ...]] = (
        *[append] * 14,
        *[World.sync] * 2,
        *[commit_some] * 2,
        *[World.forget, World.remove, World.begin, World.run, finish, World.roll, World.save, World.close],
        *[World.crash, World.kill, World.crash_soon, World.fill, World.break_sync],
        *[truncate, truncate, note_watermark, restart_at, expire, expire],
    )

    # Checks.

    def reopen(self) -> None:
        super().reopen()
        self.seen_ms = dict.fromkeys(PRODUCERS, self.now_ms)
        self.stable_before = 0
        if self.log.start_offset == self.log.end_offset == self.restarting:
            self._restarted()
        self.appended = [item for item in self.appended if item[0].base_offset < self.log.end_offset]
        self.log.begin_at(self.known_watermark)

    def learn_sequences(self) -> None:
        self.sequences = {}
        for header, _ in self.appended:
            if header.base_sequence >= 0:
                self.sequences[header.producer_id] = header.last_sequence + 1

    def check_offsets(self) -> None:
        super().check_offsets()
        self.highest_watermark = max(self.highest_watermark, self.log.high_watermark)
        self.known_watermark = min(self.known_watermark, self.log.high_watermark)
        self.check_transactions()

    def check_transactions(self) -> None:
        log, told = self.log, told_by(self.appended)
        stable = log.last_stable_offset
        # A start that believes in less than was committed may know more of it than the watermark says.
        lowest = told.stable(log.start_offset, log.high_watermark, log.high_watermark)
        highest = told.stable(log.start_offset, log.high_watermark, max(self.highest_watermark, log.high_watermark))
        assert lowest <= stable <= highest, "the last stable offset"
        assert stable >= self.stable_before, "it never goes back"
        self.stable_before = stable
        for producer_id in PRODUCERS:
            assert log.producers.open_transaction(producer_id) == told.opened.get(producer_id, -1), "what is open"
            if log.producers.knows(producer_id) and producer_id not in self.forgotten:
                known = log.producers.entries[producer_id].coordinator_epoch
                assert known == told.coordinators.get(producer_id, -1), "whose coordinator"

    def check_bytes(self) -> None:
        """To the end, whatever is committed."""
        log = self.log
        kept = b"".join(data for header, data in self.appended if header.last_offset >= log.start_offset)
        offset, received = log.start_offset, bytearray()
        while (slice_ := log.read(offset, 500, Bound.END)) is not None:
            data = slice_.read()
            received += data
            offset = list(iter_headers(data))[-1][1].last_offset + 1
        assert bytes(received) == kept
        for max_bytes in (1, 700, 1 << 20):
            seen = read_as_clients_do(log, max_bytes)
            assert seen == visible(self.appended, log.start_offset, log.last_stable_offset), "what readers see"

    def check_lookups(self) -> None:
        log, told = self.log, told_by(self.appended)
        indexed = [tuple(entry[:3]) for segment in log.segments for entry in segment.aborted.entries]
        base = log.segments[0].base_offset
        assert indexed == [entry for entry in told.aborted if entry[2] >= base], "the transaction index"
        end = log.last_stable_offset
        for from_offset in range(log.start_offset, end, 3):
            for upto in range(from_offset + 1, end + 1, 5):
                expected = [(pid, first) for pid, first, last in told.aborted if last >= from_offset and first < upto]
                assert lookup.aborted(log, from_offset, upto) == sorted(expected, key=lambda entry: entry[1])

    def check_state(self) -> None:
        self.check_transactions()
