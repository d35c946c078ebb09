"""When the active segment is full or old enough for a new one to begin; full by its bytes is the appender's affair."""

from zlib import crc32

from skidway.log.segment import NEVER, Segment
from skidway.log.settings import LogSettings


def schedule(segment: Segment, settings: LogSettings) -> None:
    """Too old is it by record time, or by the clock when its first batch has none."""
    segment.roll_after_ms = segment.roll_after_timestamp = NEVER
    if not segment.size:
        return
    wait_ms = settings.segment_ms
    if settings.segment_jitter_ms > 0:
        # Spread over the segments, not drawn: the same log rolls at the same time in every run.
        wait_ms -= crc32(segment.path(".log").encode()) % settings.segment_jitter_ms
    if segment.first_timestamp >= 0:
        segment.roll_after_timestamp = segment.first_timestamp + wait_ms
    else:
        segment.roll_after_ms = segment.created_ms + wait_ms
    if len(segment.index) * 8 >= settings.segment_index_bytes // 8 * 8:
        segment.roll_after_ms = -1
