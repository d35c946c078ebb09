"""How far a reader may read."""

from enum import Enum
from typing import Final


class Bound(Enum):
    END = "end"
    """All there is: for followers, and for those that load what is in a log."""
    HIGH_WATERMARK = "high watermark"
    """What is committed."""
    LAST_STABLE = "last stable"
    """What is committed and belongs to no open transaction."""


# Where every fetch passes: Python 3.11 takes as long to find a member of its Enum as to call a function.
END: Final = Bound.END
HIGH_WATERMARK: Final = Bound.HIGH_WATERMARK
LAST_STABLE: Final = Bound.LAST_STABLE
