"""Bounds that admin tools change at run time, under Kafka's names: they hold at once, for old and new."""

import pytest
from broker_world import World, batch, part

from skidway.limits import DEFAULT_LIMITS, MIB

BROKER = 4
INVALID_REQUEST = 42


def change(world: World, name: str, value: str | None, broker: str = "1") -> int:
    entry = part("IncrementalAlterConfigs", "AlterableConfig", name, 0 if value else 1, value)
    asked = part("IncrementalAlterConfigs", "AlterConfigsResource", BROKER, broker, [entry])
    (result,) = world.peer().call("IncrementalAlterConfigs", resources=[asked]).responses
    return int(result.error_code)


def test_idle_producers_are_forgotten_after_the_time_that_was_set() -> None:
    world = World()
    peer = world.peer()
    peer.create("t", flush="os")
    peer.produce("t", batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0))
    peer.replies()
    assert change(world, "producer.id.expiration.ms", "5000", broker="") == 0
    peer.create("later", flush="os")
    for topic in ("t", "later"):
        assert world.partition(topic).log.producers.expiry_ms == 5000
    assert change(world, "producer.id.expiration.ms", None, broker="") == 0
    assert world.partition("t").log.producers.expiry_ms == DEFAULT_LIMITS.producer_expiry_ms


def test_one_brokers_own_number_wins_and_survives_a_restart() -> None:
    world = World()
    assert change(world, "log.cleaner.dedupe.buffer.size", str(64 * MIB), broker="") == 0
    assert change(world, "log.cleaner.dedupe.buffer.size", str(2 * MIB)) == 0
    assert world.node.limits.compaction_bytes_max == 2 * MIB
    world.node.close(clean=True)
    again = World(world.disk)
    again.peer().create("t", flush="os")
    assert again.partition("t").log.limits.compaction_bytes_max == 2 * MIB


def test_the_shell_hears_how_many_connections_it_may_have() -> None:
    world = World()
    heard: list[tuple[int, int]] = []
    world.node.on_limits = lambda limits: heard.append((limits.connections_max, limits.connections_per_ip_max))
    assert change(world, "max.connections", "500") == 0
    assert change(world, "max.connections.per.ip", "60") == 0
    assert heard == [(500, 500), (500, 60)]


@pytest.mark.parametrize(
    ("name", "value"), [("max.connections", "2"), ("log.cleaner.dedupe.buffer.size", "5"), ("max.connections", "many")]
)
def test_a_number_that_would_lock_everybody_out_is_refused(name: str, value: str) -> None:
    assert change(World(), name, value) == INVALID_REQUEST


def test_compaction_looks_as_often_as_was_set() -> None:
    world = World()
    looked: list[int] = []
    world.node.rooms.compactions._begin = lambda now_ms, wall_ms: looked.append(now_ms)  # type: ignore[method-assign]
    assert change(world, "log.cleaner.backoff.ms", "100") == 0
    for _ in range(3):
        world.clock.now_ms += 100
        world.node.maintain(world.clock.now_ms, world.clock.wall_ms())
    assert len(looked) == 3
