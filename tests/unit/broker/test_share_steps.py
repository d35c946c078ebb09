"""A ShareFetch of many partitions goes on in steps, and then may wait. Whatever happens meanwhile, it is answered
once, and takes nothing for nobody."""

from typing import Any

import pytest
from broker_world import World
from share_consumers import Member, acquired, initialise, made_world, produce

from skidway import steps
from skidway.broker.api import connection
from skidway.broker.shares import share_fetch
from skidway.runtime import slices
from skidway.wire import release

PARTITIONS = 12
ALL = tuple(range(PARTITIONS))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = made_world(PARTITIONS)
    for index in ALL:
        initialise(world, index=index)
    Member(world, "loads").fetch(*ALL)
    monkeypatch.setattr(share_fetch, "PLACES_PER_STEP", 1)
    monkeypatch.setattr(slices, "FIRST_MS", 0)
    monkeypatch.setattr(slices, "SHARE_MS", 0)
    return world


def shares(world: World) -> list[Any]:
    return world.node.rooms.services.share_fetches.partitions.of_group("g")


def waiters(world: World) -> int:
    return sum(len(share.waiters) for share in shares(world))


def held(world: World) -> int:
    return sum(share.delivery.held_offsets for share in shares(world))


def begun(world: World, **fields: Any) -> Member:
    """A member whose fetch has opened some partitions, and not all."""
    ann = Member(world, "ann")
    ann.fetch_later(*ALL, max_wait_ms=60_000, **fields)
    for _ in range(PARTITIONS):
        if waiters(world):
            break
        world.end_turn()
    assert 0 < waiters(world) < PARTITIONS
    assert ann.peer.connection.work is not None
    return ann


def finish(world: World, member: Member) -> None:
    for _ in range(PARTITIONS):
        if member.peer.connection.work is None:
            break
        world.end_turn()
    assert member.peer.connection.work is None
    world.settle()


def test_a_fetch_that_waits_hears_that_its_client_left(world: World) -> None:
    ann = begun(world)
    finish(world, ann)
    assert waiters(world) == PARTITIONS
    ann.peer.connection.closed()
    assert waiters(world) == 0
    produce(world, 1)
    assert held(world) == 0
    assert acquired(Member(world, "bob").fetch(0)) == [(0, 0, 1)]


def test_a_fetch_hears_between_its_steps_that_its_client_left(world: World) -> None:
    ann = begun(world)
    ann.peer.connection.closed()
    world.settle()
    assert waiters(world) == 0
    produce(world, 1)
    assert held(world) == 0
    assert acquired(Member(world, "bob").fetch(0)) == [(0, 0, 1)]


@pytest.mark.parametrize("first", range(1, 16))
def test_a_large_request_that_waits_hears_it_too(world: World, monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    """However much of it is done in the first go: what is left may be nothing but memory to free."""
    monkeypatch.setattr(connection, "LARGE_BYTES", 0)
    monkeypatch.setattr(release, "STEP_ELEMENTS", 1)
    monkeypatch.setattr(steps, "STEPS_UNTIMED", first)
    ann = Member(world, "ann")
    ann.fetch_later(0, max_wait_ms=60_000)
    finish(world, ann)
    assert waiters(world) == 1
    ann.peer.connection.closed()
    assert waiters(world) == 0


def test_a_fetch_that_is_answered_between_its_steps_opens_no_more_and_takes_nothing(world: World) -> None:
    for index in ALL:
        produce(world, 1, index=index)
    ann = begun(world)
    fetches = world.node.rooms.services.share_fetches
    waited_in = next(share for share in shares(world) if share.waiters)
    fetches.partitions.on_disturbed(waited_in.partition)  # as when this node is about to stop
    finish(world, ann)
    assert acquired(ann.peer.reply()) == []
    assert waiters(world) == held(world) == 0
    assert len(acquired(ann.fetch())) > 0


def test_a_fetch_that_finds_something_between_its_steps_takes_no_more(world: World) -> None:
    for index in ALL:
        produce(world, 1, index=index)
    ann = begun(world)
    next(share for share in shares(world) if share.waiters).look_again()  # as when a lease is over
    finish(world, ann)
    taken = len(acquired(ann.peer.reply()))
    assert 0 < taken < PARTITIONS
    assert held(world) == taken
    assert waiters(world) == 0
