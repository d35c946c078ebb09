"""A controller whose own disk has much to do: other nodes do not wait for that."""

import pytest
from nodes_together import made

from skidway.errors import StorageError
from skidway.metadata.operations import CreateTopics, NewTopic
from skidway.runtime.backlog import Backlog


def test_heartbeats_are_answered_while_the_controller_opens_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = made()
    busy = next(node for node in cluster.nodes.values() if node.controls)
    work = Backlog.work
    # It has begun with the partitions of a large topic and does not come to their end.
    monkeypatch.setattr(Backlog, "work", lambda self: self is not busy.rooms.hosting.backlog and work(self))
    busy.rooms.hosting.backlog.later(lambda: None)
    epoch = busy.quorum.published_offset
    cluster.pass_time(5_000)
    assert busy.controls
    assert [broker.fenced for broker in busy.image.brokers.values()] == [False] * 3
    assert busy.quorum.published_offset == epoch, "nobody was fenced meanwhile"


def test_a_controller_whose_disk_was_full_for_a_moment_still_misses_who_is_gone() -> None:
    """What it had decided but could not write is forgotten, and it begins anew: also to watch the brokers."""
    cluster = made(voters=[(1, "host-1", 9001)])
    node, disk = cluster.nodes[1], cluster.disks[1]
    cluster.kill(2)
    disk.capacity = disk.used()
    refused: list[object] = []
    node.rooms.controller.carry_out(CreateTopics([NewTopic("orders", 1, 1)]), cluster.clock.now_ms, refused.append)
    cluster.settle()
    assert [type(reply) for reply in refused] == [StorageError]
    disk.capacity = None
    cluster.until(lambda: node.image.brokers[2].fenced)
    assert not node.image.brokers[3].fenced
