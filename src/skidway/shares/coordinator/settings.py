"""What an operator may set about share coordinators, under Kafka's names."""

import msgspec

MINUTE_MS = 60_000


class ShareCoordinatorSettings(msgspec.Struct, frozen=True, kw_only=True):
    state_partitions: int = 50
    """share.coordinator.state.topic.num.partitions"""
    state_segment_bytes: int = 100 * 1024 * 1024
    """share.coordinator.state.topic.segment.bytes"""
    state_in_sync_min: int = 2
    """share.coordinator.state.topic.min.isr"""
    updates_per_snapshot: int = 500
    """share.coordinator.snapshot.update.records.per.snapshot"""
    write_timeout_ms: int = 5_000
    """share.coordinator.write.timeout.ms"""
    prune_interval_ms: int = 5 * MINUTE_MS
    """share.coordinator.state.topic.prune.interval.ms, and share.coordinator.cold.partition.snapshot.interval.ms"""
    keys_max: int = 200_000
    """Share-partitions that one coordinator keeps. Not a setting: a bound."""
    batches_max: int = 150_000
    """Batches of one share-partition. Not a setting: a bound, so that a snapshot fits into one record, and what is read
    into one response (`limits.request_elements_max`)."""
