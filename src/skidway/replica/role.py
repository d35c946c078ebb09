"""What the metadata says about one partition, as far as its replicas act on it."""

from collections.abc import Mapping, Sequence

import msgspec


class PartitionRole(msgspec.Struct, frozen=True):
    leader: int
    """-1: nobody leads it."""
    leader_epoch: int
    partition_epoch: int
    """Goes up with every change; of two statements the one with the higher is the later."""
    replicas: Sequence[int]
    in_sync: Sequence[int]
    eligible: Mapping[int, int]
    """Who may join the in-sync set, with the epoch of its registration: brokers that are neither fenced nor shutting
    down. All partitions may share one mapping that its owner changes as brokers come and go."""
    unclean: bool = False
    """Whether a leader was elected, since the last role, that may lack what was committed."""
    eligible_leaders: Sequence[int] = ()
    """Replicas that may be elected when nobody is in sync."""

    def __post_init__(self) -> None:
        assert all(member in self.replicas for member in self.in_sync), f"in sync and no replica: {self}"
