"""What the disk refused is tried again now and then: a little in every turn, however much it is."""

import errno
from collections.abc import Callable

import pytest
from broker_world import World
from counted_turns import TURN_CALLS_MAX, Turns
from hosting_world import WALL_MS, created, standing, topic_id

from skidway.broker import relay
from skidway.runtime import backlog
from skidway.sim.world.disk import SimDisk
from skidway.wire.schema.metadata_records import RemoveTopicRecord

COUNT = 12
MANY = 400


def test_directories_that_could_not_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlog, "TURN_MS_MAX", 0)
    host = standing()
    host.publish(*[record for index in range(COUNT) for record in created("t", [1, 2], index)])
    host.work()

    def refuse(disk: SimDisk, source: str, target: str) -> None:
        raise OSError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(SimDisk, "rename", refuse)
        host.publish(RemoveTopicRecord(topic_id("t")))
        host.work()
    assert len(host.hosting.lives.removing) == COUNT
    host.hosting.retry(WALL_MS)
    for left in range(COUNT, 0, -1):
        assert len(host.hosting.lives.removing) == left
        assert not host.hosting.retry(WALL_MS), "the last time is not over"
        host.hosting.backlog.work()
    assert not host.hosting.lives.removing
    host.work()
    assert host.hosting.retry(WALL_MS)


def test_thousands_of_partitions_that_find_no_free_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns(MANY)
    turns.world.node.close(clean=False)
    tried: list[str] = []
    short = True
    really_list = SimDisk.list

    def refuse(disk: SimDisk, path: str) -> list[str]:
        if short and path.startswith("wide-"):
            tried.append(path)
            raise OSError(errno.EMFILE, "Too many open files")
        return really_list(disk, path)

    monkeypatch.setattr(SimDisk, "list", refuse)
    turns.world = World(turns.world.disk, clock=turns.clock)
    hosting = turns.world.node.rooms.hosting
    while not hosting.started:
        turns.turn()
    turn_by_turn(turns, lambda: len(tried) > 4 * MANY)
    assert len(hosting.lives.missing) == MANY
    assert turns.longest < TURN_CALLS_MAX
    short = False
    turn_by_turn(turns, lambda: not hosting.lives.missing)
    assert turns.longest < TURN_CALLS_MAX


def turn_by_turn(turns: Turns, is_over: Callable[[], bool]) -> None:
    """Another client is answered in each."""
    good, hosting = turns.world.peer(), turns.world.node.rooms.hosting
    while not is_over():
        if not hosting.backlog.steps:
            turns.clock.now_ms += relay.RETRY_MS
        good.send("ApiVersions")
        assert len(good.replies()) == 1
        turns.turn()
