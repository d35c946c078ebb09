"""One committed offset."""

from dataclasses import dataclass, field

from skidway.wire.message import ZERO_UUID

Partition = tuple[str, int]


@dataclass(slots=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str
    commit_ms: int
    """Wall time."""
    expire_ms: int = -1
    """Wall time, asked for by an old client; -1 for the coordinator's own retention."""
    topic_id: bytes = ZERO_UUID
    """Zero when it was not known."""
    order: int = field(default=0, compare=False)
    """Which record of the log it was, counting those of offsets: of two records the later has the greater number."""
