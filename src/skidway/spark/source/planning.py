"""From a start and an end to ranges for tasks; shares of a limit; and noticing what was lost on the way.

Pure: offsets in, ranges out. What is missing goes to a `LossReport`, which raises or warns; nothing is left out in
silence. Sizes are counted in offsets, which compaction and transactions make larger than the number of records.
"""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from skidway.spark.source.offsets import NO_ID, Offsets
from skidway.spark.source.positions import Place

TASKS_MAX = 200
"""Past that, small ranges share tasks: Spark starts a task in the time that reads thousands of rows."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """What one task reads: start <= offset < end."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: bytes = NO_ID

    @property
    def size(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic} partition {self.partition}, offsets {self.start} to {self.end}"


class DataLoss(Exception):
    """Rows that the read covers are gone; raised with failOnDataLoss=true."""


@dataclass(frozen=True, slots=True)
class LossReport:
    fail: bool

    def __call__(self, what: str) -> None:
        if self.fail:
            raise DataLoss(f"{what}. To go on with what is left set option failOnDataLoss to false")
        logger.warning("%s. Going on with what is left, because failOnDataLoss is false", what)


def plan(
    start: Offsets,
    end: Offsets,
    ids: Mapping[str, bytes],
    log_starts: Offsets,
    reset: Iterable[str],
    report: LossReport,
) -> list[OffsetRange]:
    """Ranges from `start` to `end`; a partition that is not in `start` is new and read from its beginning.

    `log_starts` has those that can be read now; topics in `reset` were made anew since `start`.
    """
    anew = set(reset)
    known_topics = {topic for topic, _ in start}
    for topic in sorted(anew):
        report(f"topic {topic} was deleted and made again: what had not been read of the old one is lost")
    for topic, partition in sorted(start.keys() - end.keys()):
        report(
            f"{topic} partition {partition} is gone, or is no longer asked for: it had been read to offset "
            f"{start[topic, partition]}, what came after is lost"
        )
    ranges: list[OffsetRange] = []
    for place in sorted(end):
        topic, partition = place
        if place not in log_starts:
            if end[place] > start.get(place, 0):
                report(f"{topic} partition {partition} is gone, with offsets up to {end[place]} not read")
            continue
        begin = start.get(place) if topic not in anew else None
        if begin is None and topic in known_topics - anew and log_starts[place] > 0:
            report(f"{topic} partition {partition} is new and its first {log_starts[place]} offsets are gone already")
        begin = _begin(place, begin, end[place], log_starts[place], report)
        if begin < end[place]:
            ranges.append(OffsetRange(topic, partition, begin, end[place], ids.get(topic, NO_ID)))
    return ranges


def _begin(place: Place, begin: int | None, end: int, log_start: int, report: LossReport) -> int:
    """Where reading begins in a partition that is there."""
    if begin is None:
        return log_start
    if begin > end:
        report(
            f"{place[0]} partition {place[1]} had been read to offset {begin} and now ends at {end}: it was truncated,"
            " or deleted and made again"
        )
        return log_start
    if begin < min(log_start, end):
        report(
            f"{place[0]} partition {place[1]}: offsets {begin} to {min(log_start, end)} were deleted (by retention, or"
            " by request) before they were read"
        )
        return log_start
    return begin


def clip(end: Offsets, log_ends: Offsets, report: LossReport) -> Offsets:
    """Ends of somebody's choice, as far as there are records."""
    for (topic, partition), wanted in end.items():
        there = log_ends[topic, partition]
        if wanted > there:
            report(f"{topic} partition {partition} ends at offset {there}; asked for were records to {wanted}")
    return {place: min(wanted, log_ends[place]) for place, wanted in end.items()}


def share(limit: int, start: Offsets, end: Offsets) -> Offsets:
    """Ends that admit about `limit` offsets, each partition's part in proportion to what it has."""
    sizes = {place: end[place] - start[place] for place in end if end[place] > start[place]}
    total = sum(sizes.values())
    if total <= limit:
        return dict(end)
    admitted: Offsets = {}
    for place, finish in end.items():
        size = sizes.get(place)
        if size is None:
            admitted[place] = finish
        else:
            # At least one each: a small partition beside large ones would never have its turn.
            admitted[place] = min(finish, start[place] + max(1, limit * size // total))
    return admitted


def split(
    ranges: list[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """Cut large ranges: none over `max_records`, about `min_partitions` in all."""
    if max_records is not None:
        ranges = [part for whole in ranges for part in _cut(whole, -(-whole.size // max_records))]
    if min_partitions is None or len(ranges) >= min_partitions or not ranges:
        return ranges
    total = sum(whole.size for whole in ranges)
    # Those too small to cut count as one each, and the others share what remains.
    small = {whole for whole in ranges if _parts(whole.size, total, min_partitions) == 1}
    large_total = total - sum(whole.size for whole in small)
    large_parts = max(1, min_partitions - len(small))
    cut: list[OffsetRange] = []
    for whole in ranges:
        cut += [whole] if whole in small else _cut(whole, _parts(whole.size, large_total, large_parts))
    return cut


def _parts(size: int, total: int, wanted: int) -> int:
    return max(1, (2 * size * wanted + total) // (2 * total))


def _cut(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    parts = min(parts, whole.size)
    edges = [whole.start + whole.size * part // parts for part in range(parts + 1)]
    return [replace(whole, start=edges[part], end=edges[part + 1]) for part in range(parts)]


def bundle(
    ranges: list[OffsetRange], *, min_partitions: int | None = None, max_records: int | None = None
) -> list[tuple[OffsetRange, ...]]:
    """What each task reads: one range, or several neighbours where there are very many; never over `max_records`."""
    tasks = max(TASKS_MAX, min_partitions or 0)
    if len(ranges) <= tasks:
        return [(wanted,) for wanted in ranges]
    fair = sum(wanted.size for wanted in ranges) / tasks
    if max_records is not None:
        fair = min(fair, max_records)
    bundles: list[tuple[OffsetRange, ...]] = []
    together: list[OffsetRange] = []
    size = 0
    for wanted in ranges:
        if together and size + wanted.size > fair:
            bundles.append(tuple(together))
            together, size = [], 0
        together.append(wanted)
        size += wanted.size
    return [*bundles, tuple(together)]
