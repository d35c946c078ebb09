"""Large groups with static members and zombies: one owner for each partition, and no word of a zombie counts."""

import asyncio
import time
from collections.abc import Iterator

import pytest
from crowd import Light, Shared, settled, until
from group_calls import (
    FENCED_INSTANCE_ID,
    FENCED_MEMBER_EPOCH,
    ILLEGAL_GENERATION,
    NONE,
    STALE_MEMBER_EPOCH,
    UNKNOWN_MEMBER_ID,
    committed,
)
from new_members import NewLight, Owners
from raw import Connection, MakeTopic
from serving import serving_groups

from skidway.testing import Broker

pytestmark = pytest.mark.xdist_group("group-storm")

SMALL, LARGE = 60, 1_000
SESSION_MS = {SMALL: 6_000, LARGE: 20_000}
HEARTBEAT_MS = {SMALL: 500, LARGE: 3_000}
PATIENCE_S = {SMALL: 90.0, LARGE: 400.0}
RESIDENT_MIB_MAX = 400
REFUSED = {FENCED_INSTANCE_ID, FENCED_MEMBER_EPOCH, ILLEGAL_GENERATION, STALE_MEMBER_EPOCH, UNKNOWN_MEMBER_ID}
SIZES = [SMALL, pytest.param(LARGE, marks=pytest.mark.chaos)]


@pytest.fixture
def size(request: pytest.FixtureRequest) -> int:
    return int(request.param)


@pytest.fixture
def broker(size: int) -> Iterator[Broker]:
    groups = {
        "consumer_session_timeout_ms": SESSION_MS[size],
        "consumer_session_timeout_ms_min": SESSION_MS[size],
        "consumer_heartbeat_interval_ms": HEARTBEAT_MS[size],
        "consumer_heartbeat_interval_ms_min": HEARTBEAT_MS[size],
    }
    with Broker(groups=groups) as broker:
        serving_groups(broker.bootstrap)
        yield broker


@pytest.fixture
def bootstrap(broker: Broker) -> str:
    return broker.bootstrap


def resident_mib(broker: Broker) -> int:
    with open(f"/proc/{broker.pid}/status", encoding="ascii") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmRSS")) // 1024


def report(broker: Broker, what: str, size: int, began: float, took: list[float]) -> None:
    steps = ", ".join(f"{seconds:.1f} s" for seconds in took)
    print(f"\n{what}, {size} members: settled in {steps}; {time.monotonic() - began:.0f} s in all")
    print(f"the broker has {resident_mib(broker)} MiB")
    assert resident_mib(broker) < RESIDENT_MIB_MAX


async def classic(broker: Broker, group: str, topic: str, size: int) -> None:
    began, patience = time.monotonic(), PATIENCE_S[size]
    shared = Shared(broker.bootstrap, group, topic, partitions=size, session_ms=SESSION_MS[size])
    shared.heartbeat_s, shared.rebalance_ms = HEARTBEAT_MS[size] / 1000, 3 * SESSION_MS[size]
    static = size // 4
    members = [Light(shared, f"static-{n}" if n < static else None) for n in range(size)]
    took = [await until(lambda: settled(members), patience, "all to settle")]
    # Dynamic members stand still, static ones are replaced by a second instance while the first goes on.
    dead, members = members[-size // 10 :], members[: -size // 10]
    for zombie in dead:
        await zombie.kill()
    took.append(await until(lambda: settled(members), patience, "the others to settle without the dead"))
    generation = members[0].generation
    replaced, others = members[: static // 2], members[static // 2 :]
    members = [Light(shared, old.instance) for old in replaced] + others
    took.append(await until(lambda: settled(members), patience, "a second instance of static members to take over"))
    assert members[-1].generation == generation, "a static member that comes back is no reason for a rebalance"
    await until(lambda: all(old.fenced for old in replaced), patience, "the first instances to hear of it")
    for index, member in enumerate(members):
        assert await member.commit(dict.fromkeys(member.share or (), index)) == {NONE}
    for zombie in [*dead, *replaced]:
        assert await zombie.commit(dict.fromkeys(range(size), 999_999)) <= REFUSED
    owner_of = {partition: index for index, member in enumerate(members) for partition in member.share or ()}
    with Connection(broker.bootstrap) as wire:
        assert committed(wire, group, topic, range(size)) == owner_of
    assert settled(members)
    assert not shared.unexpected, shared.unexpected[:5]
    report(broker, f"classic group with {static} static members and {len(dead)} zombies", size, began, took)
    for member in members:
        await member.kill()


@pytest.mark.parametrize("size", SIZES, indirect=True)
def test_a_large_classic_group_with_zombies(broker: Broker, group: str, make_topic: MakeTopic, size: int) -> None:
    asyncio.run(classic(broker, group, make_topic(size), size))


async def newer(broker: Broker, group: str, topic: str, size: int) -> None:
    began, patience = time.monotonic(), PATIENCE_S[size]
    owners = Owners(broker.bootstrap, group, topic, size)
    static = size // 4
    members = [NewLight(owners, f"static-{n}" if n < static else None) for n in range(size)]
    took = [await until(lambda: owners.is_settled(members), patience, "all to settle")]
    dead, members = members[-size // 10 :], members[: -size // 10]
    for zombie in dead:
        await zombie.die_and_haunt()
    took.append(await until(lambda: owners.is_settled(members), patience, "the others to settle without the dead"))
    # Half of the static ones come back after a word, as in a rolling restart; the other half die without one.
    back, silent, others = members[: static // 2], members[static // 2 : static], members[static:]
    for old in back:
        await old.leave()
    for old in silent:
        await old.die_and_haunt()
    again = [NewLight(owners, old.instance) for old in [*back, *silent]]
    members = [*again, *others]
    took.append(await until(lambda: owners.is_settled(members), patience, "static members to be back"))
    for index, member in enumerate(members):
        assert await member.commit(dict.fromkeys(member.owned, index)) <= {NONE}
    for zombie in [*dead, *back, *silent]:
        assert await zombie.commit(dict.fromkeys(range(size), 999_999)) <= REFUSED
    owner_of = {partition: index for index, member in enumerate(members) for partition in member.owned}
    with Connection(broker.bootstrap) as wire:
        assert committed(wire, group, topic, range(size)) == owner_of
    assert owners.is_settled(members)
    assert owners.wrong == [], owners.wrong[:5]
    gone = len(dead) + len(silent)
    report(broker, f"new protocol with {static} static members and {gone} zombies", size, began, took)
    for member in members:
        await member.die_and_haunt()


@pytest.mark.parametrize("size", SIZES, indirect=True)
def test_a_large_group_of_the_new_protocol_with_zombies(
    broker: Broker, group: str, make_topic: MakeTopic, size: int
) -> None:
    asyncio.run(newer(broker, group, make_topic(size), size))
