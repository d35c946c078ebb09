"""A node whose process has too many files open: nothing has failed, and all goes on when there are fewer."""

import errno

import pytest
from broker_world import World, batch

from skidway.sim.world.disk import SimDisk


def test_a_directory_that_cannot_be_opened_for_a_sync_delays_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="sync")
    refused: list[str] = []
    really_sync = SimDisk.sync_directory

    def refuse(disk: SimDisk, path: str) -> None:
        if len(refused) < 3:
            refused.append(path)
            raise OSError(errno.EMFILE, "Too many open files")
        really_sync(disk, path)

    monkeypatch.setattr(SimDisk, "sync_directory", refuse)
    peer.produce("t", batch(b"a"))
    for _ in range(3):
        world.settle()
        assert peer.replies() == []
        world.pass_time(100)
    world.settle()
    (produced,) = [reply for _, reply in peer.replies()]
    assert produced.responses[0].partition_responses[0].error_code == 0
    assert refused == ["t-0"] * 3
    assert world.node.failure is None
    assert world.partition("t").log.synced_offset == 1


def test_when_files_are_short_logs_are_synced_and_close_theirs() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", 3, flush="os")
    for index in range(3):
        peer.produce("t", batch(b"a"), acks=1, index=index)
    world.settle()
    assert [world.partition("t", index).log.active._file is None for index in range(3)] == [False] * 3
    world.disk.files_short = True
    for _ in range(3):
        world.node.on_work()
        world.settle()
        world.pass_time(200)
    assert [world.partition("t", index).log.active._file is None for index in range(3)] == [True] * 3
    assert [world.partition("t", index).log.synced_offset for index in range(3)] == [1] * 3
    world.disk.files_short = False
    peer.produce("t", batch(b"b"), acks=1)
    world.settle()
    assert world.partition("t").log.end_offset == 2
