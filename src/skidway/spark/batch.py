"""Planning a batch read: its start and end, once, and the ranges between them."""

from skidway.spark.client_settings import BadOption
from skidway.spark.offsets import OffsetReader, Offsets
from skidway.spark.options import SourceOptions
from skidway.spark.planning import LossReport, OffsetRange, clip, plan, split


def plan_batch(options: SourceOptions) -> list[OffsetRange]:
    report = LossReport(options.fail_on_data_loss)
    with options.brokers.cluster() as cluster:
        reader = OffsetReader(cluster, options.topics, options.isolation_level)
        found = reader.find_all()
        start = reader.resolve_start(options.start, found.places, unmatched_is_latest=options.start_unmatched_is_latest)
        end = reader.resolve_end(options.end, found.places)
        _check_order(start, end)
        log_starts, log_ends = reader.earliest(found.places), reader.latest(found.places)
    end = clip(start, end, log_starts, log_ends, report)
    ranges = plan(start, end, found.ids, log_starts, (), report)
    return split(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)


def _check_order(start: Offsets, end: Offsets) -> None:
    for (topic, partition), begin in start.items():
        if begin > end[topic, partition]:
            problem = f"{topic} partition {partition} would begin at {begin}, after its end at {end[topic, partition]}"
            raise BadOption("startingOffsets", problem, "move the start or the end")
