"""The batch of one marker, for all partitions that it is written to in one go.

It is the same in all of them but for where it stands, which the log stamps into it as it is appended, and for whose
clock its topic's timestamps are from. So it is built once for each of the two.
"""

from skidway.records.batch import BatchHeader, TimestampType, read_header, set_timestamps
from skidway.records.control import end_transaction_batch
from skidway.runtime.log_store import Marker


class MarkerBatches:
    __slots__ = ("_built", "marker", "wall_ms")

    def __init__(self, marker: Marker, wall_ms: int) -> None:
        self.marker = marker
        self.wall_ms = wall_ms
        self._built: dict[TimestampType, tuple[bytearray, BatchHeader]] = {}

    def of(self, timestamp_type: TimestampType) -> tuple[bytearray, BatchHeader]:
        """For a log to write at once: the next one that gets it stamps it anew."""
        built = self._built.get(timestamp_type)
        if built is None:
            batch = marker_batch(self.marker, timestamp_type, self.wall_ms)
            built = self._built[timestamp_type] = batch, read_header(batch)
        return built


def marker_batch(marker: Marker, timestamp_type: TimestampType, wall_ms: int) -> bytearray:
    producer_id, epoch = marker.producer
    batch = end_transaction_batch(marker.end, producer_id=producer_id, producer_epoch=epoch, timestamp=wall_ms)
    if timestamp_type == TimestampType.LOG_APPEND_TIME:
        set_timestamps(batch, timestamp_type, wall_ms)
    return batch
