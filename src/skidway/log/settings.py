"""What an operator may set for one log. Plain values: they may be replaced while the log is open."""

import msgspec

from skidway.limits import INT32_MAX, INT64_MAX, MIB


class LogSettings(msgspec.Struct, kw_only=True):
    segment_bytes: int = 1024 * MIB
    segment_ms: int = 7 * 24 * 3600 * 1000
    segment_jitter_ms: int = 0
    segment_index_bytes: int = 10 * MIB
    index_interval_bytes: int = 4096
    retention_ms: int = 7 * 24 * 3600 * 1000
    retention_bytes: int = -1
    """-1: no bound."""
    file_delete_delay_ms: int = 60_000
    cleanup_delete: bool = True
    """Whether retention applies; DeleteRecords does in any case."""
    compact: bool = False
    """Whether only the newest record of each key is kept."""
    delete_retention_ms: int = 24 * 3600 * 1000
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5
    checkpoint_bytes: int = 64 * MIB
    """Appended bytes after which `checkpoint_due` asks for a checkpoint: the most a crash leaves to scan."""

    def __post_init__(self) -> None:
        assert 0 < self.segment_bytes <= INT32_MAX, "positions in an index have 31 bits"
        assert self.index_interval_bytes >= 0
        assert self.segment_index_bytes >= 8
