"""How far a reader may read."""

from enum import Enum


class Bound(Enum):
    END = "end"
    """All there is: for followers, and for those that load what is in a log."""
    HIGH_WATERMARK = "high watermark"
    """What is committed."""
    LAST_STABLE = "last stable"
    """What is committed and belongs to no open transaction."""
