"""Where else to go: leaders told with a refusal (KIP-951), and replicas nearer to a reader (KIP-392)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from skidway.errors import ErrorCode
from skidway.metadata.image import NO_LEADER, Image

if TYPE_CHECKING:
    from skidway.broker.partitions.partition import Partition

ELSEWHERE = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
"""Refusals after which a client looks for the leader."""
NOBODY = -1


def leader_of(image: Image, topic: str | bytes, index: int) -> tuple[int, int]:
    """(broker, leader epoch), as far as is known here; (-1, -1) when the partition is not."""
    known = image.topics_by_id.get(topic) if isinstance(topic, bytes) else image.topics.get(topic)
    if known is None or not 0 <= index < len(known.partitions):
        return NOBODY, NOBODY
    partition = known.partitions[index]
    return partition.leader, partition.leader_epoch


def address_of(image: Image, broker_id: int, listener: str | None) -> tuple[int, str, int, str | None] | None:
    """(broker, host, port, rack) of one that is alive and has this listener."""
    broker = image.brokers.get(broker_id)
    if broker_id == NO_LEADER or broker is None or broker.fenced:
        return None
    endpoint = broker.endpoint(listener)
    if endpoint is None:
        return None
    return broker_id, endpoint.host, endpoint.port, broker.rack


def nearer_replica(
    image: Image, partition: Partition, node_id: int, rack: str, offset: int, listener: str | None
) -> int:
    """The replica in the reader's rack that is most caught up; -1 when it may as well read here.

    Only members of the in-sync set: another may lag ever more, and its readers with it.
    """
    leader = partition.leader
    here = image.brokers.get(node_id)
    if not leader.leads or (here is not None and here.rack == rack):
        return NOBODY
    best, best_position = NOBODY, (-1, 0)
    for replica in leader.in_sync:
        broker, follower = image.brokers.get(replica), leader.follower(replica)
        if broker is None or follower is None or broker.rack != rack or not broker.active:
            continue
        if broker.endpoint(listener) is None:
            continue  # the reader could not connect to it
        position = (follower.offset, follower.caught_up_ms)
        if 0 <= follower.start_offset <= offset <= follower.offset and position > best_position:
            best, best_position = replica, position
    return best
