"""Transactions in a log on a disk that forgets, against a plain list of its batches (see `transactions_in_log`).

Mistakes of other logs are planted, and each has to be found by what is said about it.
"""

import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

import pytest
from transactions_in_log import TransactionWorld

from skidway.log import markers
from skidway.log.aborted import Aborted, AbortedIndex, AbortedRange
from skidway.log.log import Log
from skidway.log.open_transactions import OpenTransactions
from skidway.log.producers import Producers
from skidway.log.segment import Segment
from skidway.records.control import read_marker
from skidway.sim.world.disk import SimDisk

SEEDS = 20
"""A mistake is found within so many histories."""


def play(seed: int, steps: int = 120) -> TransactionWorld:
    draw = random.Random(seed)
    world = TransactionWorld(seed)
    world.play([(draw.randrange(len(world.STEPS)), draw.randrange(2**32)) for _ in range(steps)])
    return world


def play_all() -> None:
    for seed in range(SEEDS):
        play(seed).check()


@pytest.mark.parametrize("seed", range(40))
def test_what_a_log_knows_of_transactions_is_what_its_batches_tell(seed: int) -> None:
    play(seed).check()


def ended_at_once(self: OpenTransactions, producer_id: int, marker_offset: int) -> int:
    """12. The last stable offset does not wait until a marker is committed."""
    self._open.pop(producer_id)
    self._place()
    return next(iter(self._open.values()), marker_offset + 1)


def never_lower(self: Log) -> int:
    """12. The last stable offset is that of committed records."""
    return self.high_watermark


def in_the_segment_of_the_data(
    producers: Producers, index: AbortedIndex | None, batch: Any, header: Sequence[int], now_ms: int
) -> None:
    """13. An entry goes to the segment that was active when its transaction began; another one is not looked at."""
    aborted = producers.end_transaction(header, read_marker(batch), now_ms)
    if aborted is not None and index is not None and header[0] - aborted.first_offset < 4:
        index.append(aborted)


def lost_on_roll(self: Segment) -> None:
    """13. What is not saved yet goes with the memory of a closed segment."""
    self._file = None
    self._aborted = None


def lost_by_a_cut(self: AbortedIndex, offset: int) -> None:
    """13. A cut takes all entries of its segment."""
    del self._words[:]


def kept_by_a_cut(self: AbortedIndex, offset: int) -> None:
    """13. A cut leaves entries of markers that are gone."""


def lost_at_a_start(segment: Segment, upto: int) -> bool:
    """13. The file is not read by a start that replays the rest."""
    segment.aborted = AbortedIndex()
    return True


def ends_with_the_first_segment(segments: Sequence[Segment], from_offset: int, upto_offset: int) -> list[AbortedRange]:
    """14. Markers in later segments than the records are not looked for."""
    number = max(
        i for i, segment in enumerate(segments) if segment.base_offset <= max(from_offset, segments[0].base_offset)
    )
    found: list[AbortedRange] = []
    segments[number].aborted.collect(from_offset, upto_offset, found)
    return sorted(found, key=lambda entry: entry[1])


def by_marker(segments: Sequence[Segment], from_offset: int, upto_offset: int) -> list[AbortedRange]:
    """The reply is in the order of the files (franz-go showed aborted records)."""
    found: list[AbortedRange] = []
    for segment in segments:
        if segment.aborted.collect(from_offset, upto_offset, found):
            break
    return found


def forgets_the_open(self: Producers, since_ms: int) -> list[int]:
    """15. A producer is forgotten while its transaction is open."""
    gone = [pid for pid, producer in self.entries.items() if producer.seen_ms < since_ms]
    for pid in gone:
        del self._packed[pid]
    return gone


def markers_are_no_sign_of_life(original: Any) -> Any:
    def end_transaction(self: Producers, header: Sequence[int], marker: Any, now_ms: int) -> Aborted | None:
        """16. The time of a marker does not count (KAFKA-9144)."""
        known = self.entries.get(header[9])
        ended: Aborted | None = original(self, header, marker, known.seen_ms if known else now_ms)
        return ended

    return end_transaction


def without_transaction_index(original: Any) -> Any:
    def write_atomic(self: SimDisk, path: str, data: Any) -> None:
        """13. The index is never saved."""
        if not path.endswith(".txnindex"):
            original(self, path, data)

    return write_atomic


def ended_not_in_snapshots(original: Any) -> Any:
    def init(self: OpenTransactions, opened: Any = (), ended: Any = (), committed: int = 0) -> None:
        """12. A start does not know of transactions whose markers are not committed."""
        original(self, opened, (), committed)

    return init


PLANTED: dict[str, tuple[Callable[[], AbstractContextManager[Any]], str]] = {
    "ended at once": (lambda: patch.object(OpenTransactions, "end", ended_at_once), "last stable offset"),
    "stable is committed": (
        lambda: patch.object(Log, "last_stable_offset", property(never_lower)),
        "last stable offset",
    ),
    "ended not in snapshots": (
        lambda: patch.object(OpenTransactions, "__init__", ended_not_in_snapshots(OpenTransactions.__init__)),
        "last stable offset",
    ),
    "data's segment": (
        lambda: patch.object(markers, "note", in_the_segment_of_the_data),
        "what readers see|transaction index",
    ),
    "lost on roll": (lambda: patch.object(Segment, "unload", lost_on_roll), "what readers see|transaction index"),
    "lost by a cut": (lambda: patch.object(AbortedIndex, "cut", lost_by_a_cut), "what readers see|transaction index"),
    "kept by a cut": (lambda: patch.object(AbortedIndex, "cut", kept_by_a_cut), "transaction index|markers follow"),
    "lost at a start": (
        lambda: patch.object(markers, "keep_aborted", lost_at_a_start),
        "what readers see|transaction index",
    ),
    "never saved": (
        lambda: patch.object(SimDisk, "write_atomic", without_transaction_index(SimDisk.write_atomic)),
        "what readers see|transaction index",
    ),
    "first segment only": (
        lambda: patch.object(markers, "find_aborted", ends_with_the_first_segment),
        "what readers see",
    ),
    "by marker": (lambda: patch.object(markers, "find_aborted", by_marker), "by first offset"),
    "forgets the open": (lambda: patch.object(Producers, "forget_silent", forgets_the_open), "who is forgotten"),
    "markers are silent": (
        lambda: patch.object(Producers, "end_transaction", markers_are_no_sign_of_life(Producers.end_transaction)),
        "who is forgotten",
    ),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_mistake_is_found(name: str) -> None:
    plant, told = PLANTED[name]
    with plant(), pytest.raises(AssertionError, match=told):
        play_all()
