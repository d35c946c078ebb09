"""Schedules of queues over HTTP, on one node: what is scheduled comes in time, once, and what is cancelled does not."""

from typing import Any

import pytest
from http_world import Answer, HttpWorld
from test_http_queues import Shop

from skidway.broker.coordinators.news import ScheduleRefused

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
TARGET = "/v1/queues/orders/schedules"


class ScheduleShop(Shop):
    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        assert self.ask("PUT", "/v1/queues/orders", settings.get("queue_settings", {})).status == 201

    def schedule(self, body: Any, **given: Any) -> Answer:
        return self.ask("POST", TARGET, {"body": body, **given})

    def scheduled(self, query: str = "") -> list[Any]:
        found: list[Any] = self.ask("GET", TARGET + query).json()["schedules"]
        return found

    @property
    def wall_ms(self) -> int:
        return self.world.clock.wall_ms()


@pytest.fixture
def shop() -> ScheduleShop:
    return ScheduleShop()


def test_a_message_comes_when_it_is_due_and_not_before(shop: ScheduleShop) -> None:
    due_ms = shop.wall_ms + 200 * DAY_MS
    created = shop.schedule("far", id="a", deliverAt=due_ms, key="k", attributes={"delay": "9999999"})
    assert (created.status, created.json()) == (201, {"id": "a", "dueAt": due_ms, "existed": False})
    (listed,) = shop.scheduled()
    assert (listed["id"], listed["dueAt"], listed["createdAt"]) == ("a", due_ms, shop.wall_ms)
    shop.pass_ms(due_ms - shop.wall_ms - 1)
    assert shop.receive() == []
    shop.pass_ms(1)
    (message,) = shop.receive()
    assert (message["body"], message["key"]) == ("far", "k")
    told = message["attributes"]
    assert told == {"delay": "9999999", "skidway.schedule-id": "a", "skidway.schedule-due": str(due_ms)}
    assert shop.scheduled() == []
    shop.pass_ms(DAY_MS)
    assert shop.stats()[2] == 0


def test_a_cancelled_schedule_does_not_come(shop: ScheduleShop) -> None:
    shop.schedule("one", id="a", delaySeconds=10)
    shop.schedule("two", id="b", delaySeconds=10)
    assert shop.ask("DELETE", f"{TARGET}/a").json() == {"done": True, "onItsWay": False}
    shop.pass_ms(10_000)
    assert shop.bodies() == ["two"]
    for gone in ("a", "b", "never"):
        answer = shop.ask("DELETE", f"{TARGET}/{gone}")
        assert (answer.status, answer.code) == (404, "no_such_schedule")


def test_a_recurring_schedule_comes_at_each_of_its_times(shop: ScheduleShop) -> None:
    shop.schedule({"do": "it"}, id="tick", cron="*/30 * * * *")
    (listed,) = shop.scheduled()
    assert (listed["cron"], listed["timeZone"]) == ("*/30 * * * *", "UTC")
    for _ in range(3):
        (listed,) = shop.scheduled()
        assert listed["dueAt"] % (30 * 60_000) == 0
        shop.pass_ms(listed["dueAt"] - shop.wall_ms)
        (message,) = shop.receive()
        assert message["body"] == {"do": "it"}
        assert message["attributes"]["skidway.schedule-due"] == str(listed["dueAt"])
        shop.ack(receipt=message["receipt"])
    assert shop.ask("DELETE", f"{TARGET}/tick").status == 200
    shop.pass_ms(HOUR_MS)
    assert shop.receive() == []


def test_the_same_again_is_known_and_another_is_not_taken_for_it(shop: ScheduleShop) -> None:
    due_ms = shop.wall_ms + HOUR_MS
    assert shop.schedule("one", id="a", deliverAt=due_ms).status == 201
    again = shop.schedule("one", id="a", deliverAt=due_ms)
    assert (again.status, again.json()["existed"]) == (200, True)
    assert shop.schedule("other", id="a", deliverAt=due_ms).code == "schedule_exists"
    assert len(shop.scheduled()) == 1


def test_ids_are_made_up_and_listed_page_by_page(shop: ScheduleShop) -> None:
    ids = sorted(shop.schedule("x", delaySeconds=60 + each).json()["id"] for each in range(5))
    assert len(set(ids)) == 5
    assert [each["id"] for each in shop.scheduled("?max=3")] == ids[:3]
    assert [each["id"] for each in shop.scheduled(f"?after={ids[2]}")] == ids[3:]


@pytest.mark.parametrize(
    ("given", "status", "code", "text"),
    [
        ({}, 422, "bad_value", "deliverAt, delaySeconds and cron"),
        ({"delaySeconds": 1, "cron": "* * * * *"}, 422, "bad_value", "deliverAt, delaySeconds and cron"),
        ({"delaySeconds": 1, "timeZone": "UTC"}, 422, "bad_value", "timeZone is for cron"),
        ({"deliverAt": 1}, 422, "bad_schedule", "in the past"),
        ({"deliverAt": 2**50}, 422, "bad_schedule", "more than 366 days ahead"),
        ({"cron": "61 * * * *"}, 422, "bad_schedule", "'61' is not understood as minute"),
        ({"cron": "* * * * *", "timeZone": "Mars/Olympus"}, 422, "bad_schedule", "does not know the time zone"),
        ({"delaySeconds": 1, "id": "a/b"}, 422, "bad_schedule", "letters, digits"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(
    shop: ScheduleShop, given: dict[str, Any], status: int, code: str, text: str
) -> None:
    answer = shop.schedule("x", **given)
    assert (answer.status, answer.code) == (status, code)
    assert text in answer.json()["detail"]
    assert shop.scheduled() == []


def test_a_fifo_queue_takes_none() -> None:
    shop = ScheduleShop()
    assert shop.ask("PUT", "/v1/queues/line.fifo", {"type": "fifo"}).status == 201
    answer = shop.ask("POST", "/v1/queues/line.fifo/schedules", {"body": "x", "delaySeconds": 5})
    assert (answer.status, answer.code) == (422, "bad_schedule")
    assert "only a standard queue" in answer.json()["detail"]
    assert shop.ask("POST", "/v1/queues/none/schedules", {"body": "x", "delaySeconds": 5}).code == "no_such_queue"


def test_schedules_go_with_their_queue(shop: ScheduleShop) -> None:
    shop.schedule("old", id="a", delaySeconds=60)
    assert shop.ask("DELETE", "/v1/queues/orders").status == 200
    assert shop.ask("PUT", "/v1/queues/orders", {}).status == 201
    assert shop.scheduled() == []
    shop.pass_ms(60_000)
    assert shop.receive() == []


def test_what_a_queue_does_not_take_is_tried_alone_and_again_and_holds_up_no_other(shop: ScheduleShop) -> None:
    shop.schedule("x" * 5_000, id="large", delaySeconds=60)
    shop.schedule("small", id="small", delaySeconds=60)
    peer = shop.world.peer()
    assert peer.alter("orders", max_message_bytes="2000") == 0
    shop.pass_ms(60_000)
    for _ in range(5):
        shop.pass_ms(1)
    assert shop.bodies() == ["small"]
    refused = [each for each in shop.world.reported if isinstance(each, ScheduleRefused)]
    assert {(each.queue, each.schedule) for each in refused[-1:]} == {("orders", "large")}
    assert "MESSAGE_TOO_LARGE" in refused[-1].why or "RECORD_LIST_TOO_LARGE" in refused[-1].why
    assert [each["id"] for each in shop.scheduled()] == ["large"]
    assert peer.alter("orders", max_message_bytes="20000") == 0
    for _ in range(3):
        shop.pass_ms(60_000)
    assert [len(body) for body in shop.bodies() if body != "small"] == [5_000]
    assert shop.scheduled() == []


def test_a_restart_keeps_what_is_scheduled_and_sends_what_fell_due_meanwhile(shop: ScheduleShop) -> None:
    shop.schedule("one", id="a", delaySeconds=60)
    shop.schedule("two", id="b", delaySeconds=7_200)
    shop.schedule("tick", id="c", cron="0 * * * *")
    before = shop.scheduled()
    killed = shop.world
    shop.world = HttpWorld(disk=killed.disk, clock=killed.clock)
    shop.world.settle()
    assert shop.scheduled() == before
    shop.pass_ms(3 * HOUR_MS)
    for _ in range(5):
        shop.pass_ms(1)
    assert sorted(shop.bodies()) == ["one", "tick", "two"]
    assert [each["id"] for each in shop.scheduled()] == ["c"]


def test_a_thousand_that_are_due_at_once_come_once_each(shop: ScheduleShop) -> None:
    for each in range(1_000):
        shop.schedule(str(each), id=f"s{each}", deliverAt=shop.wall_ms + 60_000 - each % 7, key=f"k{each % 5}")
    shop.pass_ms(60_000)
    found: list[str] = []
    for _ in range(20):
        shop.pass_ms(1)  # those of a queue go out in several batches, one after the other
        while bodies := shop.bodies(count=10):
            found += bodies
    assert sorted(found, key=int) == [str(each) for each in range(1_000)]
