"""Neighbours that one delivery brought are accepted in one go, to the same end as one by one."""

import pytest

from skidway.errors import CoordinatorNotAvailable, ProtocolError
from skidway.shares.acquiring import Acquired, Offered, Span, Wanted
from skidway.shares.delivery import Delivery
from skidway.shares.receipts import Receipts
from skidway.shares.records import Stored
from skidway.shares.states import AVAILABLE, LEASED, NO_LIMIT, SETTLING, AcquireMode, DeliveryRules, Verb

LOCK_MS = 30_000
OWNER = "queue"


def made(*, receipts_expire: bool = False) -> Delivery:
    rules = DeliveryRules(lock_ms=LOCK_MS, count_limit=NO_LIMIT, leases_max=100, receipts_expire=receipts_expire)
    return Delivery(Stored(0, 0), rules)


def take(delivery: Delivery, count: int, now_ms: int = 0) -> list[Acquired]:
    offered = Offered(delivery.next_offset() or 0, [Span(0, 20)])
    return delivery.acquire(OWNER, offered, Wanted(count, AcquireMode.RECORD_LIMIT), now_ms)


def accept(delivery: Delivery, first: int, end: int, now_ms: int = 0) -> list[ProtocolError | None] | None:
    answers: list[ProtocolError | None] = []
    done = Receipts(delivery).accept_held(first, end, 1, now_ms, answers.append)
    return answers if done else None


@pytest.mark.parametrize("receipts_expire", [False, True])
@pytest.mark.parametrize(("first", "end"), [(0, 10), (0, 4), (3, 7), (8, 10)])
def test_it_is_stored_as_if_each_had_been_accepted(first: int, end: int, receipts_expire: bool) -> None:
    together, apart = made(receipts_expire=receipts_expire), made(receipts_expire=receipts_expire)
    for delivery in (together, apart):
        assert take(delivery, 10) == [Acquired(0, 10, 1)]
    answers = accept(together, first, end)
    one_by_one: list[ProtocolError | None] = []
    for at in range(first, end):
        Receipts(apart).settle(at, 1, Verb.ACCEPT, 0, one_by_one.append)
    assert (answers, one_by_one) == ([], [])
    assert together.next_write(0, 0) == apart.next_write(0, 0)
    for delivery in (together, apart):
        assert {delivery.live.state_at(at) for at in range(first, end)} == {SETTLING}
        delivery.on_written(0)
    assert (answers, one_by_one) == ([None], [None] * (end - first))
    assert list(together.live.runs(0, 20)) == list(apart.live.runs(0, 20))
    assert (together.start_offset, together.held_offsets) == (apart.start_offset, apart.held_offsets)


def test_if_the_store_does_not_take_it_the_lease_goes_on() -> None:
    delivery = made()
    take(delivery, 10)
    answers = accept(delivery, 2, 6)
    delivery.next_write(0, 0)
    delivery.on_failed(error := CoordinatorNotAvailable("not now"), 0)
    assert answers == [error]
    assert {delivery.live.state_at(at) for at in range(10)} == {LEASED}
    assert delivery.held_offsets == 10
    assert accept(delivery, 2, 6) == []


def test_what_is_not_with_one_holder_is_left_alone() -> None:
    delivery = made()
    take(delivery, 4)
    take(delivery, 4)
    before = list(delivery.live.runs(0, 20))
    assert accept(delivery, 2, 6) is None  # of two deliveries
    assert accept(delivery, 6, 10) is None  # nobody has the last two
    assert accept(delivery, 12, 14) is None
    assert not Receipts(delivery).accept_held(0, 4, 2, 0, lambda error: None)  # another delivery of them
    assert list(delivery.live.runs(0, 20)) == before
    assert accept(delivery, 0, 4, now_ms=LOCK_MS) is None  # it is over
    assert delivery.live.state_at(0) == AVAILABLE
