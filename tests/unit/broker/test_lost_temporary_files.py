"""A checkpoint whose temporary file another program removes is tried again; the log itself was synced before."""

from typing import Any

import pytest
from broker_world import World, batch, code

from skidway.broker.upkeep.news import SyncWithoutCheckpoint
from skidway.errors import ErrorCode


def checkpoint(world: World) -> None:
    partition = world.partition("t")
    ticket = partition.begin_checkpoint()
    assert ticket is not None
    world.held.append(world.node.rooms.syncs.job(partition, ticket))
    world.settle()


def test_a_checkpoint_that_loses_its_temporary_file_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    peer = world.peer()
    peer.create("t")
    peer.produce("t", batch(b"a"))
    world.settle()
    assert code(peer.reply()) == ErrorCode.NONE
    write_atomic = world.disk.write_atomic
    lost: list[str] = []

    def loses_snapshots(path: str, data: Any) -> None:
        if path.startswith("t-0/") and path.endswith(".snapshot") and not lost:
            lost.append(path)
            raise FileNotFoundError(2, "No such file or directory", f"{path}.tmp")
        write_atomic(path, data)

    monkeypatch.setattr(world.disk, "write_atomic", loses_snapshots)
    checkpoint(world)
    assert lost, "a checkpoint was written"
    assert [event for event in world.reported if isinstance(event, SyncWithoutCheckpoint)]
    peer.produce("t", batch(b"b"))
    world.settle()
    assert code(peer.reply()) == ErrorCode.NONE
    checkpoint(world)
    assert world.partition("t").log.saved.snapshots, "the next one is there"
