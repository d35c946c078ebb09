"""What coordinators of schedules keep to: bounds, and nothing that an operator may set."""

import msgspec

from skidway.limits import KIB, MIB

DAY_MS = 86_400_000


class ScheduleSettings(msgspec.Struct, frozen=True, kw_only=True):
    state_partitions: int = 16
    """Of `__queue_schedule`, where it is made."""
    schedules_max: int = 100_000
    """Of all queues of one coordinator."""
    bytes_max: int = 256 * MIB
    """Their messages, on the disk."""
    message_bytes_max: int = 256 * KIB
    """Of one message: key, value and headers. All of a coordinator's are read where it moves to."""
    ahead_ms_max: int = 366 * DAY_MS
    """How far ahead a message may be due that is sent once."""
    plan_messages_max: int = 200
    """Delivered together. Each is read from the log by itself."""
    plan_bytes_max: int = MIB
    put_off_ms: int = 60_000
    """After so long a message is tried again that its queue does not take."""
