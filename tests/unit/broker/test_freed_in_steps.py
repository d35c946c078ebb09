"""What a large request was decoded to is freed a little at a time, however the request ends: refused in the middle of
decoding, given up by its client, or answered with an error in place of what was gathered for it.

Python's count of allocated blocks says how much each turn frees; its collector waits, as it would free what other tests
left behind. The clock moves with every look at it, so a turn is a number of steps.
"""

import gc
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from broker_world import Peer, World, part

from skidway.broker.api.call import Hangup
from skidway.broker.api.table import FEW
from skidway.limits import DEFAULT_LIMITS

FREED_MAX = 12_000
"""Blocks in one turn. All of what is freed here is several times as many."""
TURNS_MAX = 10_000


@pytest.fixture(autouse=True)
def nothing_is_collected() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Freed:
    """How many blocks the step that freed most has freed, and all of them together."""

    def __init__(self) -> None:
        self.most = self.total = 0

    def count(self, step: Callable[..., Any], *arguments: Any) -> None:
        before = sys.getallocatedblocks()
        try:
            step(*arguments)
        finally:
            freed = before - sys.getallocatedblocks()
            self.most = max(self.most, freed)
            self.total += max(0, freed)


def world_of_steps() -> World:
    world = World()
    world.clock.per_look_ms = 1
    return world


def give(peer: Peer, frame: bytes) -> None:
    # As a buffer of the shell's own, which the connection may keep.
    peer.connection.offered = True
    peer.connection.receive(memoryview(bytearray(frame)), peer.world.clock.now_ms)


def work_off(world: World, peer: Peer, freed: Freed, until: Callable[[], bool]) -> None:
    for _ in range(TURNS_MAX):
        if until():
            return
        freed.count(world.end_turn)
        freed.count(world.sync)
    raise AssertionError("it does not end")


def too_many_groups() -> dict[str, Any]:
    """Three elements each, and just more than a request may have."""
    count = DEFAULT_LIMITS.request_elements_max // 3 + 1
    topics = [part("OffsetFetch", "OffsetFetchRequestTopics", "t", partition_indexes=[0])]
    names = (f"g{number}" for number in range(count))
    return {
        "version": 8,
        "groups": [part("OffsetFetch", "OffsetFetchRequestGroup", name, topics=topics) for name in names],
    }


def many_topics(api_name: str, topic: str, partition: str, count: int) -> list[Any]:
    return [part(api_name, topic, f"t{number}", partitions=[part(api_name, partition, 0)]) for number in range(count)]


def test_what_was_decoded_before_a_refusal() -> None:
    world, freed = world_of_steps(), Freed()
    peer = world.peer()
    frame = peer.frame("OffsetFetch", **too_many_groups())
    freed.count(give, peer, frame)
    work_off(world, peer, freed, lambda: peer.connection.work is None)
    assert isinstance(peer.connection.bug, Hangup)
    assert "too many elements" in str(peer.connection.bug)
    assert freed.total > 5 * FREED_MAX
    assert freed.most < FREED_MAX


@pytest.mark.parametrize("turns", [3, 60])
def test_what_was_decoded_for_a_client_that_left(turns: int) -> None:
    world, freed = world_of_steps(), Freed()
    peer = world.peer()
    count = 20_000
    frame = peer.frame(
        "OffsetDelete",
        version=0,
        group_id="g",
        topics=many_topics("OffsetDelete", "OffsetDeleteRequestTopic", "OffsetDeleteRequestPartition", count),
    )
    before = sys.getallocatedblocks()
    give(peer, frame)
    for _ in range(turns):
        world.end_turn()
        world.sync()
    held = sys.getallocatedblocks() - before
    assert peer.connection.work is not None
    freed.count(peer.connection.closed)
    work_off(world, peer, freed, lambda: not world.node.has_long_work)
    assert freed.total > 0.9 * held
    assert freed.most < FREED_MAX


def test_what_was_gathered_for_an_answer_that_is_an_error() -> None:
    world, freed = World(), Freed()
    world.peer().create("wide")
    world.clock.per_look_ms = 1
    peer = world.peer()
    known = [part("OffsetDelete", "OffsetDeleteRequestPartition", 0)]
    topics = [part("OffsetDelete", "OffsetDeleteRequestTopic", "wide", partitions=known) for _ in range(20_000)]
    frame = peer.frame("OffsetDelete", version=0, group_id="nobody", topics=topics)
    freed.count(give, peer, frame)
    work_off(world, peer, freed, lambda: bool(peer.connection.outbox))
    assert peer.reply().topics == []
    work_off(world, peer, freed, lambda: not world.node.has_long_work)
    assert freed.total > 5 * FREED_MAX
    assert freed.most < FREED_MAX


@pytest.mark.parametrize("directories", [FEW - 1, FEW + 1])
def test_thousands_of_elements_where_nodes_need_a_few_are_refused_before_they_are_decoded(directories: int) -> None:
    peer = World().peer()
    ids = [number.to_bytes(16, "big") for number in range(directories)]
    frame = peer.frame("BrokerHeartbeat", version=1, broker_id=1, broker_epoch=1, offline_log_dirs=ids)
    if directories > FEW:
        with pytest.raises(Hangup, match="too many elements"):
            peer.give(frame)
    else:
        peer.give(frame)
        peer.world.settle()
        assert len(peer.replies()) == 1
