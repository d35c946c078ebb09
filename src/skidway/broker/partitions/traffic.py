"""What went into a partition and came out of it since it was opened: integers that are bumped in place, for metrics."""

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    records_in: int = 0
    """Appended as leader."""
    bytes_in: int = 0
    bytes_followed: int = 0
    """Appended as the leader sent them."""
    bytes_out: int = 0
    """Read for consumers. A fetch that waits for more than there was reads twice."""
    bytes_to_followers: int = 0

    def add(self, other: "Traffic") -> None:
        self.records_in += other.records_in
        self.bytes_in += other.bytes_in
        self.bytes_followed += other.bytes_followed
        self.bytes_out += other.bytes_out
        self.bytes_to_followers += other.bytes_to_followers
