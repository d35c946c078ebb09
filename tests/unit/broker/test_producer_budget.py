"""How many producers a node remembers in all its partitions, and saving them turn by turn."""

from broker_world import Peer, World, batch

from skidway.broker.partitions.producer_budget import IDLE_MS
from skidway.broker.upkeep.syncs import SyncJob
from skidway.limits import Limits
from skidway.runtime.jobs import Lane

THROTTLING_QUOTA_EXCEEDED = 89


def produced(world: World, peer: Peer, producer_id: int, sequence: int = 0, index: int = 0) -> int:
    """The error code of one batch of that producer."""
    data = batch(b"x", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)
    peer.produce("t", data, acks=1, index=index)
    world.settle()
    (reply,) = [reply for _, reply in peer.replies()]
    return int(reply.responses[0].partition_responses[0].error_code)


def test_a_producer_too_many_is_refused_and_those_at_work_go_on() -> None:
    world = World(limits=Limits(producers_max=10))
    peer = world.peer()
    peer.create("t", 2, flush="os")
    assert [produced(world, peer, number, index=number % 2) for number in range(10)] == [0] * 10
    assert produced(world, peer, 77) == THROTTLING_QUOTA_EXCEEDED
    assert produced(world, peer, 1, index=0) == THROTTLING_QUOTA_EXCEEDED, "each partition remembers it by itself"
    assert [produced(world, peer, number, 1, index=number % 2) for number in range(10)] == [0] * 10
    assert produced(world, peer, 0, 1) == 0, "a repetition"
    assert world.partition("t").log.end_offset == 10


def test_silent_producers_make_room_but_not_those_at_work() -> None:
    world = World(limits=Limits(producers_max=10))
    peer = world.peer()
    peer.create("t", 2, flush="os")
    for number in range(10):
        produced(world, peer, number, index=number % 2)
    world.pass_time(IDLE_MS // 2)
    assert produced(world, peer, 0, 1) == 0
    world.pass_time(IDLE_MS // 2 + 1)
    assert produced(world, peer, 77) == 0
    known = [producer for index in range(2) for producer in world.partition("t", index).log.producers.entries]
    assert 0 in known
    assert 77 in known
    assert len(known) < 10


def test_partitions_are_saved_a_few_in_every_turn() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", 20, flush="os")
    for index in range(20):
        assert produced(world, peer, 7, index=index) == 0
    world.clock.now_ms += 60_000
    world.clock.per_look_ms = 3
    world.node.maintain(world.clock.now_ms, world.clock.wall_ms())
    world.end_turn()
    begun = [str(job.hosted) for job in world.held if isinstance(job, SyncJob) and job.lane is Lane.MAINTENANCE]
    assert 0 < len(begun) < 15
    for _ in range(20):
        world.end_turn()
    begun = [str(job.hosted) for job in world.held if isinstance(job, SyncJob) and job.lane is Lane.MAINTENANCE]
    assert {f"t-{index}" for index in range(20)} <= set(begun)
    assert len(begun) == len(set(begun))
    world.clock.per_look_ms = 0
    world.sync()
    assert [world.partition("t", index).log.saved.recovery_point for index in range(20)] == [1] * 20
