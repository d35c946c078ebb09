"""What needs a broker with settings of its own, or one that may be killed: offsets that expire, groups that are full,
and members that go on when their coordinator dies and comes back."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial

import aiokafka.errors
import kafka.errors
import pytest
from group_calls import (
    await_coordinators,
    commit,
    committed,
    describe,
    describe_consumer,
    listed,
)
from group_members import KINDS, NEWER, SETTLE_S, ConfluentSharing, Member, Options, Sharing, await_shares, open_sharing
from group_settings import GROUPS
from raw import Connection
from raw_batches import build
from wire_calls import create_topic, produce

from skidway.testing import Broker
from waiting import eventually

pytestmark = pytest.mark.skidway_only
TOPIC = "t"


@dataclass
class World:
    broker: Broker
    wire: Connection
    members: list[Member] = field(default_factory=list)

    def start(self, kind: str, group: str, session_ms: int | None = None) -> Member:
        options = Options(kind, self.broker.bootstrap, group, (TOPIC,))
        self.members.append(Member(options if session_ms is None else replace(options, session_ms=session_ms)))
        return self.members[-1]

    def stop(self) -> None:
        """Before the broker goes: a member that cannot say goodbye tries for long."""
        for member in self.members:
            member._stop.set()
        for member in self.members:
            member._thread.join(SETTLE_S)


@contextmanager
def broker_with(partitions: int = 2, **settings: int) -> Iterator[World]:
    with Broker(groups={**GROUPS, "offsets_partitions": 3, **settings}) as broker, Connection(broker.bootstrap) as wire:
        await_coordinators(wire)
        create_topic(wire, TOPIC, partitions, None)
        world = World(broker, wire)
        try:
            yield world
        finally:
            world.stop()


def write(wire: Connection, partitions: int, *values: bytes) -> None:
    for partition in range(partitions):
        batch = build([b"%d %s" % (partition, value) for value in values])
        assert produce(wire, TOPIC, batch, partition=partition)["error_code"] == 0


def read_by(members: list[Member]) -> set[bytes]:
    return {value for member in members for value in member.seen.values()}


# --------------------------------------------------------------------------------------------------------- expiry


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_of_a_group_without_members_expire(kind: str) -> None:
    """Those of a group that lives stay, though they are older."""
    with broker_with(retention_ms=1_500, retention_check_ms=100) as world:
        wire = world.wire
        write(wire, 2, b"one")
        stays, goes = world.start(kind, "stays"), world.start(kind, "goes")

        def has_read_all(group: str) -> bool:
            return committed(wire, group, TOPIC, range(2)) == {0: 1, 1: 1}

        for group in ("stays", "goes"):
            eventually(partial(has_read_all, group), seconds=SETTLE_S)
        goes.close()
        eventually(lambda: listed(wire, "goes") is None, seconds=SETTLE_S)
        assert committed(wire, "goes", TOPIC, range(2)) == {0: -1, 1: -1}
        assert committed(wire, "stays", TOPIC, range(2)) == {0: 1, 1: 1}
        assert listed(wire, "stays")["group_state"] == "Stable"
        write(wire, 2, b"two")
        eventually(lambda: read_by([stays]) >= {b"0 two", b"1 two"}, seconds=SETTLE_S)
        again = world.start(kind, "goes")
        eventually(lambda: read_by([again]) >= {b"0 one", b"1 two"}, seconds=SETTLE_S)


def test_offsets_without_a_membership_expire_after_their_last_commit() -> None:
    """Each partition for itself: the group is there until the last is gone."""
    with broker_with(retention_ms=4_000, retention_check_ms=100) as world:
        wire = world.wire
        commit(wire, "simple", TOPIC, {0: 5, 1: 5})

        def first_is_gone() -> bool:
            commit(wire, "simple", TOPIC, {1: 6})
            return committed(wire, "simple", TOPIC, [0]) == {0: -1}

        eventually(first_is_gone, seconds=SETTLE_S)
        assert committed(wire, "simple", TOPIC, [1]) == {1: 6}
        eventually(lambda: listed(wire, "simple") is None, seconds=SETTLE_S)


# ----------------------------------------------------------------------------------------------------------- size


SAID_WHEN_FULL = {
    "confluent-range": "GROUP_MAX_SIZE_REACHED",
    "confluent-cooperative": "GROUP_MAX_SIZE_REACHED",
    NEWER: "Consumer group has reached maximum size",
    "kafka-python": "GroupMaxSizeReachedError",
    "aiokafka": "UnknownError",  # it does not know the code
}


def refusal(options: Options) -> str:
    """What a client that wants to join says of it."""
    if options.kind.startswith("confluent"):
        confluent = ConfluentSharing(options)
        try:
            message = eventually(lambda: confluent.consumer.poll(0.2), seconds=SETTLE_S)
            return str(message.error())
        finally:
            confluent.close()
    sharing: Sharing | None = None
    try:
        sharing = open_sharing(options)
        eventually(sharing.poll, seconds=SETTLE_S)
        return "it was let in"
    except (kafka.errors.KafkaError, aiokafka.errors.KafkaError) as error:
        return str(error)
    finally:
        if sharing is not None:
            sharing.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_group_takes_nobody_else(kind: str) -> None:
    """Who is in is not disturbed; when one leaves, there is room again."""
    with broker_with(partitions=3, size_max=2, consumer_size_max=2) as world:
        wire = world.wire
        members = [world.start(kind, "full") for _ in range(2)]
        await_shares(members, [1, 2])
        changes = [member.seen.changes for member in members]
        assert SAID_WHEN_FULL[kind] in refusal(Options(kind, world.broker.bootstrap, "full", (TOPIC,)))
        write(wire, 3, b"one")
        eventually(lambda: read_by(members) == {b"0 one", b"1 one", b"2 one"}, seconds=SETTLE_S)
        assert [member.seen.changes for member in members] == changes
        members[0].close()
        await_shares([members[1], world.start(kind, "full")], [1, 2])


# -------------------------------------------------------------------------------------------------------- restarts


RESTARTS = [*((kind, True) for kind in KINDS), ("confluent-range", False), (NEWER, False)]


@pytest.mark.parametrize(("kind", "kill"), RESTARTS, ids=[f"{k}-{('stopped', 'killed')[kill]}" for k, kill in RESTARTS])
def test_members_go_on_when_their_coordinator_comes_back(kind: str, kill: bool) -> None:
    """Nobody is thrown out, no commit is lost, no message is skipped."""
    sessions = {"consumer_session_timeout_ms": 45_000}
    with broker_with(partitions=4, **sessions) as world:
        wire = world.wire
        members = [world.start(kind, "g", session_ms=30_000) for _ in range(2)]
        await_shares(members, [2, 2])
        write(wire, 4, b"before")
        everything = dict.fromkeys(range(4), 1)
        eventually(lambda: committed(wire, "g", TOPIC, range(4)) == everything, seconds=SETTLE_S)
        known = member_ids(wire, kind)
        world.broker.restart(kill=kill)
        with Connection(world.broker.bootstrap) as again:
            await_coordinators(again)
            assert committed(again, "g", TOPIC, range(4)) == everything
            assert member_ids(again, kind) == known
            write(again, 4, b"after")

            def all_have_gone_on() -> bool:
                assert [member.failure for member in members] == [None, None]
                return committed(again, "g", TOPIC, range(4)) == dict.fromkeys(range(4), 2)

            eventually(all_have_gone_on, seconds=SETTLE_S)
            assert member_ids(again, kind) == known, "as if nothing had happened"
            await_shares(members, [2, 2])
        assert read_by(members) == {b"%d %s" % (p, word) for p in range(4) for word in (b"before", b"after")}


def member_ids(wire: Connection, kind: str) -> set[str]:
    look = describe_consumer if kind == NEWER else describe
    return {member["member_id"] for member in look(wire, "g")["members"]}
