"""Planning a batch read: its start and end, once, and the ranges between them."""

from skidway.spark.source.offsets import OffsetReader, check_order
from skidway.spark.source.options import SourceOptions
from skidway.spark.source.planning import LossReport, OffsetRange, clip, plan, split


def plan_batch(options: SourceOptions) -> list[OffsetRange]:
    report = LossReport(options.fail_on_data_loss)
    with options.brokers.cluster() as cluster:
        reader = OffsetReader(cluster, options.topics, options.isolation_level)
        found = reader.find_all()
        start = reader.resolve_start(options.start, found.places, unmatched_is_latest=options.start_unmatched_is_latest)
        end = reader.resolve_end(options.end, found.places)
        check_order(start, end)
        log_starts, log_ends = reader.earliest(found.places), reader.latest(found.places)
    end = clip(end, log_ends, report)
    ranges = plan(start, end, found.ids, log_starts, (), report)
    return split(ranges, min_partitions=options.min_partitions, max_records=options.max_records_per_partition)
