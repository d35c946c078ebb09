"""How long the quorum is without a leader when one dies, stops or is cut off; in the world's own time."""

from statistics import median

import pytest
from quorum_world import World

SEEDS = range(16)


def calm(seed: int) -> World:
    """Three voters on an ordinary network and disk, at work."""
    world = World(seed, voters=3, observers=1)
    world.latency_ms, world.sync_ms, world.loss = 1, 8, 0.0
    world.every(30, world.propose, 60_000)
    world.run(5_000)
    assert world.leader() is not None
    return world


def leaderless_ms(world: World, old: int) -> int:
    begin_ms = world.now_ms
    while True:
        leader = world.leader()
        if leader is not None and leader.member.node_id != old:
            return world.now_ms - begin_ms
        world.run(world.now_ms + 1)
        assert world.now_ms - begin_ms < 10_000, "nobody leads"


def gaps(fault: str) -> list[int]:
    found = []
    for seed in SEEDS:
        world = calm(seed)
        leader = world.leader()
        assert leader is not None
        node_id = leader.member.node_id
        match fault:
            case "killed":
                world.crash(node_id)
            case "cut off":
                others = [other for other in world.hosts if other != node_id]
                world.cuts |= {(node_id, other) for other in others} | {(other, node_id) for other in others}
            case "resigns":
                assert leader.machine is not None
                leader.machine.resign(world.now_ms)
                world.pump(node_id)
        found.append(leaderless_ms(world, node_id))
    return sorted(found)


@pytest.mark.parametrize(
    ("fault", "typical_ms", "longest_ms"), [("killed", 300, 700), ("cut off", 1_200, 1_700), ("resigns", 50, 400)]
)
def test_another_leads_soon(fault: str, typical_ms: int, longest_ms: int) -> None:
    found = gaps(fault)
    assert median(found) <= typical_ms, found
    assert found[-1] <= longest_ms, found


def test_a_follower_that_lost_its_connection_does_not_disturb() -> None:
    """It stands for a pre-vote, hears that the leader is well, and goes on following in the same epoch."""
    for seed in SEEDS:
        world = calm(seed)
        leader = world.leader()
        assert leader is not None
        assert leader.machine is not None
        epoch = leader.machine.epoch
        follower = next(h for h in world.hosts.values() if h.member in leader.machine.voters and h is not leader)
        assert follower.machine is not None
        for _ in range(5):
            for node_id, (_, request) in list(follower.machine.requests.under_way.items()):
                follower.machine.on_unanswered(node_id, request, world.now_ms)
            world.pump(follower.member.node_id)
            world.run(world.now_ms + 60)
        world.run(world.now_ms + 5_000)
        assert follower.machine.leader == leader.member.node_id
        assert follower.machine.high_watermark == leader.machine.high_watermark or world.events
        assert leader.machine.leads
        assert leader.machine.epoch == epoch
