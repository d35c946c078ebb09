"""Two hundred members joining, leaving and dying at random, heartbeats under load, and a thousand groups at once."""

import asyncio
import random
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from crowd import Light, Line, Shared, settled, until
from group_calls import NONE, ClassicMember, describe, join_body, stable_group, subscription
from raw import Connection, MakeTopic
from raw_batches import build
from wire_calls import fetch_body, produce

pytestmark = pytest.mark.xdist_group("group-storm")

MEMBERS = 200
PATIENCE_S = 90.0


@contextmanager
def load(bootstrap: str, topic: str) -> Iterator[None]:
    here = Path(__file__).parent
    process = subprocess.Popen(
        [sys.executable, str(here / "produce_and_fetch.py"), bootstrap, topic],
        env={"PYTHONPATH": f"{here.parent / 'conformance'}:{here.parent}"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"loading\n"
        yield
        assert process.poll() is None, "the load itself must not fail"
    finally:
        process.stdin.close()
        process.wait(60)
        process.stdout.close()


async def storm(shared: Shared, seed: int, seconds: float) -> tuple[list[Light], dict[str, int]]:
    dice = random.Random(seed)
    members = [Light(shared) for _ in range(MEMBERS)]
    done = {"join": 0, "leave": 0, "kill": 0}
    loop = asyncio.get_running_loop()
    ends = loop.time() + seconds
    while loop.time() < ends:
        what = dice.choice(list(done))
        if what == "join" or len(members) < MEMBERS // 2:
            members.append(Light(shared))
        else:
            victim = members.pop(dice.randrange(len(members)))
            await (victim.leave() if what == "leave" else victim.kill())
        done[what] += 1
        await asyncio.sleep(dice.uniform(0, 0.1))
    while len(members) < MEMBERS:
        members.append(Light(shared))
    while len(members) > MEMBERS:
        await members.pop().leave()
    return members, done


async def weather(bootstrap: str, group: str, topic: str, seed: int, seconds: float) -> None:
    shared = Shared(bootstrap, group, topic, partitions=MEMBERS * 2)
    members, done = await storm(shared, seed, seconds)
    try:
        took = await until(lambda: settled(members), PATIENCE_S, f"{MEMBERS} members to settle")
        generation = members[0].generation
        print(f"storm: {done}, settled {took:.1f} s after it, generation {generation}, {shared.rebalances} led")
        await asyncio.sleep(2 * shared.heartbeat_s)
        assert settled(members), "and it stays so"
        assert members[0].generation == generation
        assert not shared.unexpected, shared.unexpected[:10]
        failed = [member.task.exception() for member in members if member.task.done()]
        assert not failed, failed[:3]
        with Connection(bootstrap) as wire:
            found = describe(wire, group)
        assert (found["group_state"], len(found["members"])) == ("Stable", MEMBERS)
    finally:
        for member in members:
            await member.kill()


def test_two_hundred_members_settle_after_a_storm(bootstrap: str, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    with load(bootstrap, topic):
        asyncio.run(weather(bootstrap, group, topic, seed=1, seconds=5))


@pytest.mark.chaos
@pytest.mark.parametrize("seed", range(5))
def test_two_hundred_members_settle_after_a_long_storm(
    bootstrap: str, group: str, make_topic: MakeTopic, seed: int
) -> None:
    topic = make_topic(2)
    with load(bootstrap, topic):
        asyncio.run(weather(bootstrap, group, topic, seed, seconds=45))


def test_heartbeats_are_not_starved_by_load(bootstrap: str, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    with ClassicMember(bootstrap, group, session_timeout_ms=6_000) as member:
        stable_group([member])
        late = []
        with load(bootstrap, topic):
            for _ in range(50):
                asked = time.monotonic()
                assert member.heartbeat() == NONE, "it came too late"
                late.append(time.monotonic() - asked)
                time.sleep(0.05)
        print(f"heartbeats: {len(late)}, the slowest took {max(late) * 1000:.0f} ms")


async def one_group(line: Line, group: str, topic: str, messages: int) -> None:
    """Joins, reads the topic in two fetches, and commits after each."""
    metadata = [("range", subscription([topic]))]
    answer = await line.call("JoinGroup", 3, join_body(group, protocols=metadata))
    assert answer["error_code"] == NONE, answer
    me = {"group_id": group, "generation_id": answer["generation_id"], "member_id": answer["member_id"]}
    synced = await line.call("SyncGroup", 3, {**me, "assignments": []})
    assert synced["error_code"] == NONE, synced
    generation = {"generation_id_or_member_epoch": me.pop("generation_id")}
    for offset in (messages // 2, messages):
        fetched = await line.call("Fetch", 12, fetch_body(topic, offset - messages // 2))
        (found,) = fetched["responses"][0]["partitions"]
        assert (found["error_code"], found["high_watermark"]) == (NONE, messages)
        place = {"partition_index": 0, "committed_offset": offset, "committed_metadata": group}
        topics = [{"name": topic, "partitions": [place]}]
        committed = await line.call("OffsetCommit", 7, {**me, **generation, "topics": topics})
        assert committed["topics"][0]["partitions"][0]["error_code"] == NONE, committed
    beat = await line.call("Heartbeat", 3, {**me, "generation_id": generation["generation_id_or_member_epoch"]})
    assert beat["error_code"] == NONE


def test_a_thousand_groups_read_one_topic(bootstrap: str, wire: Connection, make_topic: MakeTopic) -> None:
    topic, messages = make_topic(1), 20
    for _ in range(2):
        produce(wire, topic, build([b"value"] * (messages // 2)))
    groups = [f"k-{uuid.uuid4().hex}" for _ in range(1_000)]

    async def some(names: list[str]) -> None:
        line = Line(bootstrap)
        await line.open()
        for name in names:
            await one_group(line, name, topic, messages)
        line.drop()

    async def all_of_them() -> None:
        await asyncio.gather(*(some(groups[first::50]) for first in range(50)))

    started = time.monotonic()
    asyncio.run(all_of_them())
    print(f"a thousand groups: {time.monotonic() - started:.1f} s")
    asked = [{"group_id": name, "topics": [{"name": topic, "partition_indexes": [0]}]} for name in groups]
    answer = wire.call("OffsetFetch", 8, {"groups": asked})["groups"]
    found = {one["group_id"]: one["topics"][0]["partitions"][0] for one in answer}
    assert {(name, one["committed_offset"], one["metadata"]) for name, one in found.items()} == {
        (name, messages, name) for name in groups
    }
    names = {one["group_id"] for one in wire.call("ListGroups", 5)["groups"]}
    assert names >= set(groups)
