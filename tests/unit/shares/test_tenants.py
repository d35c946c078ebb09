"""Fair queues: a tenant that has many messages does not keep others waiting, and goes on being served."""

import sys
from types import FrameType
from typing import Any

import pytest
from share_world import World

from skidway.shares.acquiring import Acquired, Offered, Span, Wanted
from skidway.shares.contents import Content
from skidway.shares.delivery import Delivery
from skidway.shares.records import Stored
from skidway.shares.settling import Said
from skidway.shares.states import NO_LIMIT, AcquireMode, DeliveryRules, Verb
from skidway.shares.tenants import TURNS, WINDOW
from values import replace

RULES = DeliveryRules(1_000_000, NO_LIMIT, 120_000, delays=True, isolates=False, fair=True)
NOISY, QUIET = 1, 2


@pytest.fixture
def world() -> World:
    return World(RULES)


def send(world: World, tenant: int, count: int, batch: int = 100) -> None:
    for _ in range(0, count, batch):
        world.append(min(batch, count), contents=[(None, 0, tenant)] * min(batch, count))


def receive(world: World, count: int = 10) -> list[int]:
    """The tenants of what it gets, which is settled at once."""
    acquired = world.acquire("ann", Wanted(count, AcquireMode.RECORD_LIMIT))
    for each in acquired:
        world.settle("ann", [Said(each.first, each.end, Verb.ACCEPT)])
    world.begin_write()
    world.end_write()
    return [world.contents[at].tenant for at in offsets(acquired)]


def offsets(acquired: list[Acquired]) -> list[int]:
    return [at for each in acquired for at in range(each.first, each.end)]


def test_a_quiet_tenant_passes_a_backlog(world: World) -> None:
    send(world, NOISY, 5_000)
    send(world, QUIET, 10)
    received = [receive(world) for _ in range(40)]
    first = next(number for number, tenants in enumerate(received) if QUIET in tenants)
    # Thirty deliveries make it noisy; then 300 records are looked at in each acquisition.
    assert first <= 3 + 5_000 // 300
    assert received[first] == [QUIET] * 10
    send(world, QUIET, 5)
    assert receive(world).count(QUIET) == 5


def test_a_noisy_tenant_alone_gets_all_that_is_asked_for(world: World) -> None:
    send(world, NOISY, 1_000)
    assert [len(receive(world)) for _ in range(100)] == [10] * 100


def test_messages_in_flight_make_a_tenant_noisy(world: World) -> None:
    """Also if the last deliveries were of others."""
    send(world, NOISY, 2_000)
    assert len(offsets(world.acquire("bob", Wanted(190, AcquireMode.RECORD_LIMIT)))) == 190
    for tenant in range(100, 150):
        send(world, tenant, 10, batch=10)
    received = [receive(world) for _ in range(60)]
    assert sum(tenants.count(NOISY) for tenants in received[-35:]) <= 10 * (1 + 35 // TURNS)
    world.delivery.next_offset()
    assert world.delivery.tenants.in_flight == {NOISY: 190}
    assert world.delivery.tenants.noisy == {NOISY}


def test_under_constant_traffic_of_others_the_oldest_messages_get_their_turn(world: World) -> None:
    send(world, NOISY, 5_000)
    send(world, QUIET, 1, batch=1)
    while QUIET not in receive(world):
        pass
    taken: list[int] = []
    for tenant in range(100, 100 + 10 * TURNS):
        send(world, tenant, 2, batch=2)
        taken += offsets(world.acquire("bob", Wanted(1, AcquireMode.RECORD_LIMIT)))
    oldest = [at for at in taken if at < 5_000]
    assert len(taken) == 10 * TURNS
    assert len(oldest) == 10
    assert oldest == list(range(oldest[0], oldest[0] + 10))


def test_a_tenant_that_others_overtake_is_not_noisy_any_more(world: World) -> None:
    send(world, NOISY, 40)
    for _ in range(4):
        receive(world)
    for tenant in range(100, 140):
        send(world, tenant, 10, batch=10)
        receive(world)
    send(world, NOISY, 10)
    send(world, QUIET, 10)
    assert receive(world) == [NOISY] * 10


def test_nothing_is_kept_of_what_is_settled(world: World) -> None:
    for tenant in range(1, 10_000, 100):
        world.append(100, contents=[(None, 0, each) for each in range(tenant, tenant + 100)])
        receive(world, 100)
    tenants = world.delivery.tenants
    receive(world)
    assert tenants.in_flight == {}
    assert tenants.noisy == frozenset()
    assert tenants.chunks <= 1


def test_the_window_has_an_end() -> None:
    delivery = Delivery(Stored(0, 0), RULES)
    end = WINDOW + 50
    contents = [Content(at, tenant=NOISY) for at in range(end)]
    delivery.contents.examine(delivery, contents, end, 0)
    spans = [Span(0, end)]
    assert len(offsets(delivery.acquire("a", Offered(0, spans), _strict(40), 0))) == 40
    delivery.contents.examine(delivery, [Content(end, tenant=QUIET)], end + 1, 0)
    assert delivery.next_offset(end + 1) == 40
    assert len(offsets(delivery.acquire("a", Offered(40, spans), _strict(20), 0))) == 20
    assert delivery.next_offset(end + 1) == end


@pytest.mark.parametrize("records", [10, 1_000])
def test_a_queue_without_tenants_pays_nothing_for_a_record(records: int) -> None:
    """A few calls for a request, however many records it takes."""
    fair, plain = _calls(RULES, records), _calls(replace(RULES, fair=False), records)
    assert 0 <= fair - plain <= 12


def _calls(rules: DeliveryRules, records: int) -> int:
    delivery = Delivery(Stored(0, 0), rules)
    calls = 0

    def count(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        offset = delivery.next_offset(records)
        assert offset == 0
        delivery.contents.examine(delivery, [Content(at) for at in range(records)], records, 0)
        delivery.acquire("a", Offered(0, [Span(0, records)]), _strict(records), 0)
        delivery.settle("a", [Said(0, records, Verb.ACCEPT)], 0, lambda error: None)
        delivery.next_write(0, 0)
        delivery.on_written(0)
    finally:
        sys.setprofile(before)
    assert delivery.live.changed is None
    assert delivery.start_offset == records
    return calls


def _strict(records: int) -> Wanted:
    return Wanted(records, AcquireMode.RECORD_LIMIT)
