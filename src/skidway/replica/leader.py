"""The leader's view of one partition's replicas.

`stored` of a replica is the offset up to which it holds the log as firmly as the topic's `flush` demands: in a
synced file (`sync`) or in the page cache (`os`). The high watermark is the lowest such offset of the in-sync set.
"""

from skidway.errors import FencedLeaderEpoch, NotEnoughReplicas, UnknownLeaderEpoch

ACKS_ALL = -1


class Leader:
    __slots__ = ("epoch", "in_sync", "node_id", "replicas", "stored")

    def __init__(self, node_id: int, epoch: int, replicas: list[int], in_sync: list[int], stored_offset: int) -> None:
        assert node_id in in_sync, "a leader is always in sync with itself"
        self.node_id = node_id
        self.epoch = epoch
        self.replicas = replicas
        self.in_sync = in_sync
        self.stored = {node_id: stored_offset}

    def admit(self, acks: int, min_in_sync: int) -> None:
        """Refuse what would not be committed by as many replicas as the topic asks for, or by all it has."""
        if acks == ACKS_ALL and len(self.in_sync) < min(min_in_sync, len(self.replicas)):
            raise NotEnoughReplicas(f"{len(self.in_sync)} in-sync replica(s), the topic asks for {min_in_sync}")

    def on_stored(self, offset: int) -> int:
        """This node holds the log up to `offset`; the answer is the high watermark that follows."""
        self.stored[self.node_id] = offset
        return min(self.stored[replica] for replica in self.in_sync)

    def check_epoch(self, epoch: int) -> None:
        """What a client believes to be the leader's epoch; -1 asks for no check."""
        if epoch in (-1, self.epoch):
            return
        if epoch < self.epoch:
            raise FencedLeaderEpoch(f"epoch {epoch} is over, the leader's is {self.epoch}")
        raise UnknownLeaderEpoch(f"epoch {epoch} is not known here yet, the leader's is {self.epoch}")
