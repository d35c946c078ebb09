"""What an operator may set about groups, under Kafka's names."""

import msgspec

from skidway.limits import INT32_MAX

MINUTE_MS = 60_000


class ShareGroupSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Of share groups: those of all, and the bounds of groups that set their own."""

    share_session_timeout_ms: int = 45_000
    """group.share.session.timeout.ms"""
    share_session_timeout_ms_min: int = 45_000
    """group.share.min.session.timeout.ms"""
    share_session_timeout_ms_max: int = 60_000
    """group.share.max.session.timeout.ms"""
    share_heartbeat_interval_ms: int = 5_000
    """group.share.heartbeat.interval.ms"""
    share_heartbeat_interval_ms_min: int = 5_000
    """group.share.min.heartbeat.interval.ms"""
    share_heartbeat_interval_ms_max: int = 15_000
    """group.share.max.heartbeat.interval.ms"""
    share_lock_ms: int = 30_000
    """group.share.record.lock.duration.ms"""
    share_lock_ms_min: int = 15_000
    """group.share.min.record.lock.duration.ms"""
    share_lock_ms_max: int = 60_000
    """group.share.max.record.lock.duration.ms"""
    share_deliveries: int = 5
    """group.share.delivery.count.limit"""
    share_deliveries_min: int = 2
    """group.share.min.delivery.count.limit"""
    share_deliveries_max: int = 10
    """group.share.max.delivery.count.limit"""
    share_locks: int = 2_000
    """group.share.partition.max.record.locks"""
    share_locks_min: int = 100
    """group.share.min.partition.max.record.locks"""
    share_locks_max: int = 4_000
    """group.share.max.partition.max.record.locks"""
    share_size_max: int = 200
    """group.share.max.size"""
    share_sessions_max: int = 2_000
    """group.share.max.share.sessions"""


class GroupSettings(ShareGroupSettings, frozen=True, kw_only=True):
    # Classic groups.
    initial_rebalance_delay_ms: int = 3_000
    """group.initial.rebalance.delay.ms: how long an empty group waits for more members before it begins."""
    session_timeout_ms_min: int = 6_000
    """group.min.session.timeout.ms"""
    session_timeout_ms_max: int = 1_800_000
    """group.max.session.timeout.ms"""
    size_max: int = INT32_MAX
    """group.max.size"""
    new_member_join_timeout_ms: int = 5 * MINUTE_MS
    """How long a join of a new member may wait. Not a setting: its client cannot heartbeat before it is answered."""
    invited_max: int = 10_000
    """Ids given out in one group to members that have not come back yet. Not a setting: a bound."""

    # Offsets.
    retention_ms: int = 10_080 * MINUTE_MS
    """offsets.retention.minutes"""
    retention_check_ms: int = 600_000
    """offsets.retention.check.interval.ms"""
    offset_metadata_bytes_max: int = 4_096
    """offset.metadata.max.bytes"""
    offsets_partitions: int = 50
    """offsets.topic.num.partitions"""

    # Groups of the consumer protocol.
    consumer_session_timeout_ms: int = 45_000
    """group.consumer.session.timeout.ms"""
    consumer_session_timeout_ms_min: int = 45_000
    """group.consumer.min.session.timeout.ms: of groups that set their own"""
    consumer_session_timeout_ms_max: int = 60_000
    """group.consumer.max.session.timeout.ms: of groups that set their own"""
    consumer_heartbeat_interval_ms: int = 5_000
    """group.consumer.heartbeat.interval.ms"""
    consumer_heartbeat_interval_ms_min: int = 5_000
    """group.consumer.min.heartbeat.interval.ms: of groups that set their own"""
    consumer_heartbeat_interval_ms_max: int = 15_000
    """group.consumer.max.heartbeat.interval.ms: of groups that set their own"""
    consumer_size_max: int = INT32_MAX
    """group.consumer.max.size"""
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """group.consumer.assignors; the first is the default"""
    consumer_migration_policy: str = "bidirectional"
    """group.consumer.migration.policy: bidirectional, upgrade, downgrade or disabled"""
