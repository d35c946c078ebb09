"""Every bound in one place.

`Limits` holds what an operator may set (the `[limits]` table of the configuration); the constants are facts of
the protocol or of the file formats. Nothing that comes from the network is allocated before it passed one of them.
"""

import msgspec

KIB = 1024
MIB = 1024 * KIB

# Facts of the protocol and of the files.
TOPIC_NAME_MAX = 249
INT32_MAX = 2**31 - 1
INT64_MAX = 2**63 - 1
PENDING_OFFSETS_MAX = 10_000
"""Of one producer in one partition of `__consumer_offsets`: what the end of its transaction moves in one go."""
PRODUCER_BATCHES_REMEMBERED = 5

SHARE_PARTITIONS_MAX = 100_000
"""Partitions that share groups fetch from one broker, counted once for each group."""
QUEUE_IN_FLIGHT_MAX = 120_000
"""Messages of one partition of a queue that were received and are not settled."""
SHARE_SPAN_MAX = 1_000_000
"""Offsets between the first that a share group has not settled and the last that it was delivered: past that only
those between them are delivered."""
SHARE_ORDERED_SPAN_MAX = 120_000
"""The same for groups with an order of keys: so many records are looked into to find one that may go out."""

PART_BYTES = 128
"""What a part of a reply that waits takes beside its bytes: a reply to a fetch of many partitions has many."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    # Frames and connections.
    frame_bytes_max: int = 100 * MIB
    """A request frame above this closes its connection."""
    request_elements_max: int = 200_000
    """Array elements in one request, all arrays together: bounds the memory a small frame can turn into."""
    connections_max: int = 10_000
    connections_per_ip_max: int = 5_000
    connection_idle_ms: int = 600_000
    frame_complete_ms: int = 60_000
    """A frame whose first byte came must be whole within this time, unless bytes keep coming at a fair rate."""
    inflight_requests_max: int = 256
    """Requests of one connection that are read but not answered; past that its socket is not read."""
    reply_bytes_max: int = 16 * MIB
    """Memory that the waiting replies of one connection may take (bytes in files do not count); past that its socket
    is not read."""
    replies_bytes_max: int = 512 * MIB
    """The same for all connections together; past that no connection with replies waiting is read, and those that do
    not read their replies are dropped."""
    receive_bytes_max: int = 512 * MIB
    """Partly received frames of all connections together; past that only frames already begun are read."""

    # Fetching.
    fetch_bytes_max: int = 55 * MIB
    """Bytes of one fetch reply; at least one whole batch is always sent."""
    fetch_wait_ms_max: int = 300_000
    fetch_waits_max: int = 1_000_000
    """Partitions that long polls wait for, all together; past that a fetch is answered at once with what there is."""
    fetch_sessions_max: int = 1_000
    fetch_session_partitions_max: int = 200_000
    """Partitions of all sessions together."""

    # Topics.
    partitions_per_topic_max: int = 10_000
    partitions_max: int = 20_000
    """Partitions of this broker, all topics together: each holds open files."""
    topics_per_request_max: int = 5_000
    topics_auto_created_max: int = 500
    """Topics that one Metadata request may create by naming them."""

    # Producers.
    producers_max: int = 500_000
    """Producers that partitions led by this broker remember, each counted once for each partition; past that those that
    are silent are forgotten, and where all are at work new ones are refused."""
    producers_per_partition_max: int = 100_000
    producer_expiry_ms: int = 86_400_000

    # Clocks.
    clock_jump_wait_ms: int = 3_600_000
    """After the wall clock jumped forwards, the broker deletes nothing by age for this long."""

    # Groups.
    groups_max: int = 100_000
    groups_bytes_max: int = 512 * MIB
    """Memory for groups, members and committed offsets, all together, as it is estimated."""
    group_bytes_max: int = 32 * MIB
    """The same for the members of one group, and for its offsets in open transactions."""
    group_members_max: int = 2_000
    """Where group.max.size and group.consumer.max.size say more."""
    group_member_bytes_max: int = MIB
    """What one member may say of itself when it joins, and what it may be assigned."""
    group_protocols_max: int = 100
    """Ways of assigning that one member may offer."""
    group_name_length_max: int = 1_000
    """Characters in the id of a group, of a member, of an instance."""
    group_reply_bytes_max: int = 64 * MIB
    """What one request may be told of many groups; those past it are refused one by one."""

    # Opening batches (cold paths only).
    decompressed_bytes_max: int = 256 * MIB
    """What one compressed batch may unpack to."""
    batch_records_max: int = 500_000
    """Records in one batch: opening them takes the time of all other clients."""

    # Compaction.
    compaction_bytes_max: int = 512 * MIB
    """What the map of a compaction's keys may take: 20 bytes a slot, three of four slots used."""

    # Metadata.
    metadata_snapshot_bytes: int = 20 * MIB
    """So much the metadata log grows before a snapshot takes its place."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            if getattr(self, name) <= 0:
                raise ValueError(f"limits.{name} must be positive")
        if self.fetch_bytes_max > INT32_MAX or self.frame_bytes_max > INT32_MAX:
            raise ValueError("limits.fetch_bytes_max and limits.frame_bytes_max must be below 2 GiB")
        if self.connections_per_ip_max > self.connections_max:
            raise ValueError("limits.connections_per_ip_max must not exceed limits.connections_max")
        if self.receive_bytes_max < self.frame_bytes_max:
            raise ValueError("limits.receive_bytes_max must hold at least one frame of limits.frame_bytes_max")


DEFAULT_LIMITS = Limits()
DEFAULT_SEND_BUFFER_BYTES = 128 * KIB
"""Measured on loopback (bench/RESULTS.md): with it large fetches are faster than with the buffer the kernel grows."""
