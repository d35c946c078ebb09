"""A controller whose own disk has much to do: other nodes do not wait for that."""

import pytest
from nodes_together import made

from skidway.broker.hosting import Hosting


def test_heartbeats_are_answered_while_the_controller_opens_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = made()
    busy = next(node for node in cluster.nodes.values() if node.controls)
    work = Hosting.work
    # It has begun with the partitions of a large topic and does not come to their end.
    monkeypatch.setattr(Hosting, "work", lambda self, clock: self is not busy.hosting and work(self, clock))
    busy.hosting.later(lambda: None)
    epoch = busy.metadata_offset
    cluster.pass_time(5_000)
    assert busy.controls
    assert [broker.fenced for broker in busy.image.brokers.values()] == [False] * 3
    assert busy.metadata_offset == epoch, "nobody was fenced meanwhile"
