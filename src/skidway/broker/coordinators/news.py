"""What a node reports of transactions that do not end, and of scheduled messages that do not come, as they should: for
the operators' log."""

from msgspec import Struct

from skidway.errors import ErrorCode


class MarkerRefused(Struct, frozen=True):
    """For good: the partition knows another producer or coordinator, and the transaction stays as it is."""

    transactional_id: str
    partition: str
    code: ErrorCode


class MarkersLate(Struct, frozen=True):
    """It is decided how the transaction ends, and partitions have not taken its marker for a while."""

    transactional_id: str
    partition: str
    """One of them."""
    others: int
    since_ms: int


class ScheduleRefused(Struct, frozen=True):
    """A queue does not take a message that is due. It is tried again and again."""

    queue: str
    schedule: str
    """The first of those that were sent together."""
    others: int
    why: str


TransactionNews = MarkerRefused | MarkersLate
ScheduleNews = ScheduleRefused
