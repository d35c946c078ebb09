"""What the leader knows of one follower, from its fetches alone.

A fetch from offset N is a promise: everything below N is stored as firmly as the topic's `flush` demands.
"""

NEVER_MS = -(1 << 60)
UNKNOWN_OFFSET = -1
UNKNOWN_EPOCH = -1


class Follower:
    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetched_ms",
        "id",
        "leader_end",
        "offset",
        "sent_offset",
        "start_offset",
    )

    def __init__(self, replica_id: int, caught_up_ms: int = NEVER_MS) -> None:
        self.id = replica_id
        self.offset = UNKNOWN_OFFSET
        self.start_offset = UNKNOWN_OFFSET
        self.broker_epoch = UNKNOWN_EPOCH
        """Of the registration under which it last fetched."""
        self.caught_up_ms = caught_up_ms
        """When it last had all that the leader had."""
        self.fetched_ms = NEVER_MS
        self.leader_end = UNKNOWN_OFFSET
        """Where the leader's log ended at its last fetch."""
        self.sent_offset = UNKNOWN_OFFSET
        """Where the records sent last start. A second fetch from there may mean a rejected batch (bad CRC)."""

    def __repr__(self) -> str:
        return f"replica {self.id} at {self.offset}"

    def fetched(self, offset: int, start_offset: int, broker_epoch: int, leader_end: int, now_ms: int) -> None:
        if offset >= leader_end:
            self.caught_up_ms = now_ms
        elif UNKNOWN_OFFSET < self.leader_end <= offset:
            # Behind a leader that is written to all the time, yet it has all there was when it last asked.
            self.caught_up_ms = max(self.caught_up_ms, self.fetched_ms)
        self.offset = offset
        self.start_offset = start_offset
        self.broker_epoch = broker_epoch
        self.fetched_ms = now_ms
        self.leader_end = max(self.leader_end, leader_end)

    def was_at_end(self, fetched_ms: int) -> None:
        """It asked at `fetched_ms` for nothing but more than there was: said when that becomes of interest, so that
        a fetch need not look at partitions in which nothing happens."""
        self.fetched_ms = max(self.fetched_ms, fetched_ms)
        self.caught_up_ms = max(self.caught_up_ms, fetched_ms)
