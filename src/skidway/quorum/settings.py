"""How patient a member of the quorum is."""

import msgspec


class QuorumSettings(msgspec.Struct, frozen=True, kw_only=True):
    election_timeout_ms: int = 500
    """Without a leader for this long, and up to as long again, a voter stands for election."""
    fetch_timeout_ms: int = 1_000
    """A follower that got no answer from its leader for this long looks for another."""
    request_timeout_ms: int = 1_000
    """A request without an answer is asked again."""
    fetch_wait_ms: int = 300
    """How long a leader may hold back the answer to a fetch that finds nothing new."""
    retry_ms: int = 50
    """The pause before something failed is tried again."""

    def __post_init__(self) -> None:
        if not 0 <= self.fetch_wait_ms <= min(self.fetch_timeout_ms, self.request_timeout_ms) // 2:
            # An answer held back longer would pass for a leader that is gone.
            raise ValueError("fetch_wait_ms must be at most half of fetch_timeout_ms and of request_timeout_ms")

    @property
    def check_quorum_ms(self) -> int:
        """A leader that was not heard of by a majority for this long resigns: by then they have given it up."""
        return self.fetch_timeout_ms * 3 // 2
