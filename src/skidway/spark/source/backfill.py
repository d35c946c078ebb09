"""Planning a read of history from the files of data directories, past the brokers.

Read are the closed segments of each partition: all but the last, which is still written to. `backfill.active` adds
what comes after them: over the wire if there are brokers, otherwise from the last segment up to its last whole batch,
which is right for a broker that has been stopped.
With brokers the end is theirs (the high watermark, or what is committed) and starts and ends can be times. Without
them the files decide; in a cluster a segment may then hold records that were never committed.
Of several directories that hold a partition, the one with the latest leader epoch is read, then the longest.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from skidway.blocking_client.offsets import EARLIEST, LATEST, READ_COMMITTED
from skidway.limits import MIB
from skidway.spark.client_settings import BadOption
from skidway.spark.codec.decoding import Decoder
from skidway.spark.source.offsets import NO_ID, NothingToRead, OffsetReader, Offsets, check_order, check_same
from skidway.spark.source.options import SourceOptions
from skidway.spark.source.planning import LossReport, OffsetRange, clip, plan, split
from skidway.spark.source.positions import Assign, AtOffsets, AtTime, AtTimes, Edge, Place, Position, Subscribe
from skidway.spark.source.reading import ROWS_MAX
from skidway.spark.source.segment_files import BackfillFailed, FileFetch, FileRange, FoundLog, find_logs

TASK_BYTES = 256 * MIB
"""Segments that together weigh so much are one task."""


def plan_backfill(options: SourceOptions) -> list[FileRange | OffsetRange]:
    report = LossReport(options.fail_on_data_loss)
    logs = _chosen(options)
    start, end = _edges(options, logs, report)
    check_order(start, end)
    from_files = {place: _file_end(options, log, end[place]) for place, log in logs.items()}
    ids = {topic: log.topic_id for (topic, _), log in logs.items()}
    parts: list[OffsetRange] = []
    reachable = {place: max(start[place], offset) for place, offset in from_files.items()}
    for whole in plan(start, reachable, ids, {place: log.start for place, log in logs.items()}, (), report):
        parts += _by_weight(whole, logs[whole.topic, whole.partition])
    active = options.backfill_active and options.client is None
    tasks: list[FileRange | OffsetRange] = [
        FileRange(part, str(logs[part.topic, part.partition].directory), active)
        for part in split(parts, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
    ]
    if options.backfill_active and options.client is not None:
        rest = [
            OffsetRange(*place, reachable[place], offset, ids[place[0]])
            for place, offset in sorted(end.items())
            if offset > reachable[place]
        ]
        tasks += split(rest, max_records=options.max_records_per_partition)
    return tasks


def _file_end(options: SourceOptions, log: FoundLog, end: int) -> int:
    """Up to where the files of a partition are read."""
    if end <= log.closed_end or (options.backfill_active and options.client is None):
        return end
    if not options.backfill_active and not _is_open(options.end, log.place):
        problem = f"the closed segments of {log.place[0]} partition {log.place[1]} end at offset {log.closed_end}"
        raise BadOption(f"ending{_kind(options.end)}", problem, "end earlier, or set backfill.active to true")
    return log.closed_end


def read_files(task: FileRange, options: SourceOptions, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
    wanted = task.wanted
    decoder = Decoder(wanted.topic, wanted.partition, columns, kernel=options.kernel, rows_max=ROWS_MAX)
    fetch = FileFetch(
        task, LossReport(options.fail_on_data_loss), committed_only=options.isolation_level == READ_COMMITTED
    )
    for data, start in fetch.chunks():
        yield from decoder.decode(data, start, wanted.end)


def _chosen(options: SourceOptions) -> dict[Place, FoundLog]:
    """The best copy of every partition that is wanted."""
    best: dict[Place, FoundLog] = {}
    for path in options.backfill_paths:
        for log in find_logs(Path(path)):
            known = best.get(log.place)
            if known is None or (known.last_epoch, known.closed_end) < (log.last_epoch, log.closed_end):
                best[log.place] = log
    where = ", ".join(options.backfill_paths)
    topics = options.topics
    if isinstance(topics, Assign):
        missing = [
            f"{topic} partition {partition}" for topic, partition in topics.places if (topic, partition) not in best
        ]
        chosen = {place: best[place] for place in topics.places if place in best}
    elif isinstance(topics, Subscribe):
        there = {topic for topic, _ in best}
        missing = [f"topic {topic}" for topic in topics.topics if topic not in there]
        chosen = {place: log for place, log in best.items() if place[0] in topics.topics}
    else:
        matches = re.compile(topics.pattern).fullmatch
        missing = []
        chosen = {place: log for place, log in best.items() if not place[0].startswith("__") and matches(place[0])}
    if missing:
        raise NothingToRead(f"there is no {', '.join(missing[:5])} in {where}: is it a broker's data directory?")
    return dict(sorted(chosen.items()))


def _edges(options: SourceOptions, logs: Mapping[Place, FoundLog], report: LossReport) -> tuple[Offsets, Offsets]:
    places = list(logs)
    if options.client is None:
        # A log may begin inside its active segment: then it has no history.
        ends = {
            place: max(log.start, log.active_end() if options.backfill_active else log.closed_end)
            for place, log in logs.items()
        }
        starts = {place: log.start for place, log in logs.items()}
        return _from_files("starting", options.start, starts, ends), _from_files("ending", options.end, starts, ends)
    with options.client.cluster() as cluster:
        reader = OffsetReader(cluster, options.topics, options.isolation_level)
        found = reader.find_all()
        _check_complete(options, logs, found.places, found.ids)
        start = reader.resolve_start(options.start, places, unmatched_is_latest=options.start_unmatched_is_latest)
        return start, clip(reader.resolve_end(options.end, places), reader.latest(places), report)


def _check_complete(
    options: SourceOptions, logs: Mapping[Place, FoundLog], places: list[Place], ids: Mapping[str, bytes]
) -> None:
    """The directories must hold what the brokers have, and not a topic of the same name from another time."""
    for topic, partition in places:
        log = logs.get((topic, partition))
        if log is None:
            raise BackfillFailed(
                f"{topic} partition {partition} is in none of {', '.join(options.backfill_paths)}: name the directories"
                " of all brokers, or assign the partitions that are there"
            )
        if NO_ID not in (log.topic_id, ids[topic]) and log.topic_id != ids[topic]:
            raise BackfillFailed(f"{log.directory} belongs to an older topic {topic}, which was deleted since")
    for topic, partition in logs.keys() - set(places):
        raise BackfillFailed(f"{logs[topic, partition].directory} is unknown to the brokers: do they belong together?")


def _from_files(name: str, position: Position, starts: Offsets, ends: Offsets) -> Offsets:
    if isinstance(position, Edge):
        return dict(ends if position.place == LATEST else starts)
    if isinstance(position, AtOffsets):
        check_same(f"{name}Offsets", list(starts), position.offsets)
        special = {EARLIEST: starts, LATEST: ends}
        return {
            place: special[offset][place] if offset in special else offset for place, offset in position.offsets.items()
        }
    problem = "times are looked up by the brokers, and none are given"
    raise BadOption(f"{name}{_kind(position)}", problem, "give kafka.bootstrap.servers too, or offsets")


def _kind(position: Position) -> str:
    """The second half of the option's name."""
    if isinstance(position, AtTime):
        return "Timestamp"
    return "OffsetsByTimestamp" if isinstance(position, AtTimes) else "Offsets"


def _is_open(end: Position, place: Place) -> bool:
    """Whether the end is wherever there is an end."""
    return end == Edge(LATEST) or (isinstance(end, AtOffsets) and end.offsets[place] == LATEST)


def _by_weight(whole: OffsetRange, log: FoundLog) -> Iterator[OffsetRange]:
    """Cut at the edges of segments, so that no task has to look for its beginning inside one."""
    start, weight = whole.start, 0
    for (base, size), (following, _) in zip(log.segments, [*log.segments[1:], (whole.end, 0)], strict=True):
        if following <= start or base >= whole.end:
            continue
        weight += size
        if weight >= TASK_BYTES and following < whole.end:
            yield OffsetRange(whole.topic, whole.partition, start, following, whole.topic_id)
            start, weight = following, 0
    if start < whole.end:
        yield OffsetRange(whole.topic, whole.partition, start, whole.end, whole.topic_id)
