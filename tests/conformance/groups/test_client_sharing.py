"""Groups of real clients: who gets which partitions, and that every message reaches exactly one of them."""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest
from group_calls import committed, describe_consumer, listed
from group_members import KINDS, NEWER, SETTLE_S, Member, Options, Process, await_shares
from raw import Connection, MakeTopic
from raw_batches import build
from wire_calls import produce

from waiting import eventually

MIGRATION_S = 90.0
SHORT_SESSION_MS = 3_000


@pytest.fixture(params=[pytest.param(kind, marks=[pytest.mark.newer_protocol] * (kind == NEWER)) for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> str:
    kind: str = request.param
    return kind


@dataclass
class Start:
    """Starts members of one group and, where a test says so, of another kind or group."""

    bootstrap: str
    kind: str
    group: str
    members: list[Member] = field(default_factory=list)
    processes: list[Process] = field(default_factory=list)

    def __call__(
        self,
        *topics: str,
        kind: str | None = None,
        group: str | None = None,
        pattern: str | None = None,
        instance: str | None = None,
    ) -> Member:
        options = Options(kind or self.kind, self.bootstrap, group or self.group, topics, pattern, instance)
        self.members.append(Member(options))
        return self.members[-1]

    def process(self, *topics: str, session_ms: int) -> Process:
        self.processes.append(Process(Options(self.kind, self.bootstrap, self.group, topics, session_ms=session_ms)))
        return self.processes[-1]

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
        for member in self.members:
            member._stop.set()
        for member in self.members:
            member._thread.join(SETTLE_S)


@pytest.fixture
def start(bootstrap: str, kind: str, group: str) -> Iterator[Start]:
    start = Start(bootstrap, kind, group)
    yield start
    start.stop()


class Writer:
    """Numbered values, spread over the partitions."""

    def __init__(self, wire: Connection, topic: str, partitions: int) -> None:
        self.wire, self.topic, self.partitions = wire, topic, partitions
        self.numbers = count()
        self.sent: list[bytes] = []

    def write(self, per_partition: int) -> list[bytes]:
        made = []
        for partition in range(self.partitions):
            values = [b"%d" % next(self.numbers) for _ in range(per_partition)]
            assert produce(self.wire, self.topic, build(values), partition=partition)["error_code"] == 0
            made += values
        self.sent += made
        return made


def await_values(members: Sequence[Member | Process], expected: list[bytes]) -> None:
    eventually(lambda: {v for m in members for v in m.seen.values()} >= set(expected), seconds=SETTLE_S)


def test_twelve_partitions_and_four_members(start: Start, wire: Connection, group: str, make_topic: MakeTopic) -> None:
    """Three each; every message to exactly one of them, also after one has left."""
    topic = make_topic(partitions=12)
    writer = Writer(wire, topic, 12)
    members = [start(topic) for _ in range(4)]
    await_shares(members, [3, 3, 3, 3])
    writer.write(25)
    await_values(members, writer.sent)
    eventually(lambda: committed(wire, group, topic, range(12)) == dict.fromkeys(range(12), 25))
    leaver = members[1]
    leaver.close()
    rest = [member for member in members if member is not leaver]
    await_shares(rest, [4, 4, 4])
    writer.write(25)
    await_values(members, writer.sent)
    time.sleep(0.3)  # for anything that would come twice
    seen = Counter(value for member in members for value in member.seen.values())
    assert seen == Counter(writer.sent), "each once"


def test_a_thirteenth_member_idles(start: Start, wire: Connection, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=12)
    members = [start(topic) for _ in range(13)]
    await_shares(members, [0] + [1] * 12, timeout_s=90)
    writer = Writer(wire, topic, 12)
    writer.write(2)
    await_values(members, writer.sent)
    assert sorted(len(member.seen.read) for member in members) == [0] + [2] * 12


def test_two_groups_are_independent(start: Start, wire: Connection, group: str, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)
    writer = Writer(wire, topic, 4)
    writer.write(10)
    mine = [start(topic), start(topic)]
    other = start(topic, group=group + "-other")
    await_shares(mine, [2, 2])
    await_shares([other], [4])
    await_values(mine, writer.sent)
    await_values([other], writer.sent)
    changes = [member.seen.changes for member in mine]
    other.close()
    writer.write(5)
    await_values(mine, writer.sent)
    assert Counter(other.seen.values()) == Counter(writer.sent[:40])
    assert [member.seen.changes for member in mine] == changes, "the other's end is none of their business"


def test_a_restarted_group_goes_on_where_it_was(
    start: Start, wire: Connection, group: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=3)
    writer = Writer(wire, topic, 3)
    first = writer.write(20)
    one = start(topic)
    await_values([one], first)
    one.close()
    assert committed(wire, group, topic, range(3)) == {0: 20, 1: 20, 2: 20}
    second = writer.write(10)
    again = start(topic)
    await_values([again], second)
    assert sorted(again.seen.values()) == sorted(second), "nothing twice"


def test_survivors_take_over_from_a_killed_member(
    start: Start, wire: Connection, group: str, make_topic: MakeTopic
) -> None:
    """At the last committed offset: what it had read and not committed comes again, nothing is skipped."""
    topic = make_topic(partitions=4)
    writer = Writer(wire, topic, 4)
    victim, survivor = start.process(topic, session_ms=SHORT_SESSION_MS), start(topic)
    await_shares([victim, survivor], [2, 2])
    first = writer.write(10)
    await_values([victim, survivor], first)
    eventually(lambda: committed(wire, group, topic, range(4)) == dict.fromkeys(range(4), 10))
    victim.stop_committing()
    second = writer.write(10)
    await_values([victim, survivor], second)
    lost = victim.seen.assigned
    victim.kill()
    await_shares([survivor], [4])
    await_values([survivor], second)
    for place in lost:
        assert [offset for where, offset, _ in survivor.seen.read if where == place] == list(range(10, 20))
    third = writer.write(3)
    await_values([survivor], third)


def test_a_static_member_restarted_moves_nothing(start: Start, wire: Connection, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=4)
    writer = Writer(wire, topic, 4)
    stays, goes = start(topic, instance="stays"), start(topic, instance="goes")
    await_shares([stays, goes], [2, 2])
    before, changes = set(goes.seen.assigned), stays.seen.changes
    goes.close()
    again = start(topic, instance="goes")
    await_shares([stays, again], [2, 2])
    assert again.seen.assigned == before
    assert stays.seen.changes == changes
    writer.write(5)
    await_values([stays, again], writer.sent)


def test_added_partitions_are_shared(start: Start, wire: Connection, make_topic: MakeTopic) -> None:
    topic = make_topic(partitions=2)
    members = [start(topic), start(topic)]
    await_shares(members, [1, 1])
    asked = {"name": topic, "count": 6, "assignments": None}
    (grown,) = wire.call("CreatePartitions", 3, {"topics": [asked], "timeout_ms": 8000})["results"]
    assert grown["error_code"] == 0, grown
    await_shares(members, [3, 3])
    writer = Writer(wire, topic, 6)
    writer.write(2)
    await_values(members, writer.sent)


def test_a_topic_that_matches_appears(start: Start, wire: Connection, make_topic: MakeTopic, name: str) -> None:
    first = make_topic(partitions=2, name=f"{name}-a")
    one = start(pattern=f"^{name}-.*")
    await_shares([one], [2])
    second = make_topic(partitions=2, name=f"{name}-b")
    await_shares([one], [4])
    assert {topic for topic, _ in one.seen.assigned} == {first, second}


@pytest.mark.parametrize("kind", ["confluent-range", "aiokafka"])
@pytest.mark.newer_protocol
def test_a_living_group_changes_the_protocol_and_back(
    start: Start, kind: str, wire: Connection, group: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(partitions=6)
    writer = Writer(wire, topic, 6)
    old = [start(topic), start(topic)]
    await_shares(old, [3, 3])
    assert listed(wire, group)["group_type"] == "classic"
    writer.write(5)
    await_values(old, writer.sent)
    new = start(topic, kind=NEWER)
    await_shares([*old, new], [2, 2, 2], MIGRATION_S)
    assert listed(wire, group)["group_type"] == "consumer"
    assert sorted(member["member_type"] for member in describe_consumer(wire, group)["members"]) == [0, 0, 1]
    writer.write(5)
    await_values([*old, new], writer.sent)
    for member in old:
        member.close()
    await_shares([new], [6], MIGRATION_S)
    writer.write(5)
    await_values([*old, new], writer.sent)
    back = start(topic)
    await_shares([new, back], [3, 3], MIGRATION_S)
    new.close()
    await_shares([back], [6], MIGRATION_S)
    assert listed(wire, group)["group_type"] == "classic"
    writer.write(5)
    await_values([*old, new, back], writer.sent)
    eventually(lambda: committed(wire, group, topic, range(6)) == dict.fromkeys(range(6), 20))
