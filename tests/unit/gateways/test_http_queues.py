"""Queues over HTTP on one node: what is sent is received, hidden, acknowledged, given back and counted."""

from typing import Any

import pytest
from broker_world import batch
from http_world import Answer, HttpPeer, HttpWorld, request

from skidway.gateways.queues import receiving
from skidway.gateways.queues.ids import Ids
from skidway.records.compression import Codec
from skidway.records.record import open_batch


class Shop:
    """A client of a queue."""

    def __init__(self, queue: str = "orders", **settings: Any) -> None:
        self.world = HttpWorld(**settings)
        self.queue = queue

    def ask(self, method: str, target: str, body: Any = None) -> Answer:
        return self.world.http().ask(method, target, body)

    def send(self, *bodies: Any, **given: Any) -> list[str]:
        messages = [{"body": body, **given} for body in bodies]
        answer = self.ask("POST", "/messages", {"queue": self.queue, "messages": messages})
        assert answer.status == 200, answer
        return [each["messageId"] for each in answer.json()["messages"]]

    def receive(self, count: int = 10, **query: int) -> list[Any]:
        more = "".join(f"&{name}={value}" for name, value in query.items())
        answer = self.ask("GET", f"/messages?queue={self.queue}&max={count}{more}")
        assert answer.status == 200, answer
        assert answer.headers["cache-control"] == "no-store"
        found: list[Any] = answer.json()["messages"]
        return found

    def bodies(self, count: int = 10, **query: int) -> list[Any]:
        return [each["body"] for each in self.receive(count, **query)]

    def ack(self, **body: Any) -> Answer:
        return self.ask("POST", "/ack", body)

    def stats(self) -> tuple[int, int, int]:
        found = self.ask("GET", f"/v1/queues/{self.queue}/stats").json()
        return found["visible"], found["inFlight"], found["delayed"]

    def pass_ms(self, ms: int) -> None:
        self.world.clock.now_ms += ms
        self.world.node.on_time(self.world.clock.now_ms)
        self.world.settle()

    def parked(self, **query: int) -> HttpPeer:
        """A receive that waits for a message."""
        more = "".join(f"&{name}={value}" for name, value in query.items())
        peer = self.world.http()
        peer.give(request("GET", f"/messages?queue={self.queue}&max=10&wait=20000{more}"))
        peer.settle()
        assert not peer.out
        return peer


@pytest.fixture
def shop() -> Shop:
    return Shop()


def test_the_three_requests_of_the_readme(shop: Shop) -> None:
    sent = shop.ask("POST", "/messages", {"queue": "orders", "body": "one", "key": "ann"})
    assert sent.status == 201
    (message,) = shop.ask("GET", "/messages?queue=orders").json()["messages"]
    assert message["messageId"] == sent.json()["messageId"]
    assert (message["body"], message["key"], message["deliveryCount"]) == ("one", "ann", 1)
    assert shop.ask("POST", "/ack", {"messageId": message["messageId"]}).json() == {"done": True}
    assert shop.stats() == (0, 0, 0)
    assert shop.ack(messageId=message["messageId"]).code == "no_such_message"


def test_bodies_come_back_as_they_were_sent(shop: Shop) -> None:
    bodies = ["text", {"a": [1, None]}, 7, True, "", "⚙\r\n&<", None]
    shop.send(*bodies)
    assert shop.bodies() == bodies
    shop.send("x", attributes={"trace": "7", "empty": None})
    (message,) = shop.receive()
    assert message["attributes"] == {"trace": "7", "empty": None}
    sent = shop.ask("POST", "/messages", {"queue": "orders", "bodyBase64": "/w=="}).json()
    (message,) = shop.receive()
    assert (message["messageId"], message["bodyBase64"]) == (sent["messageId"], "/w==")
    assert "body" not in message


def test_what_is_not_acknowledged_comes_back_when_its_time_is_over(shop: Shop) -> None:
    shop.send("a", "b")
    first = shop.receive(visibility=5_000)
    assert shop.bodies() == []
    assert shop.stats() == (0, 2, 0)
    shop.ack(receipt=first[0]["receipt"])
    shop.pass_ms(5_001)
    (again,) = shop.receive()
    assert (again["body"], again["deliveryCount"]) == ("b", 2)
    assert again["receipt"] != first[1]["receipt"]
    assert shop.stats() == (0, 1, 0)


def test_a_late_receipt_still_accepts_and_does_nothing_else(shop: Shop) -> None:
    shop.send("a")
    (late,) = shop.receive(visibility=1_000)
    shop.pass_ms(1_001)
    (now,) = shop.receive()
    assert shop.ack(receipt=late["receipt"], action="release").code == "stale_receipt"
    assert shop.ack(receipt=late["receipt"], action="extend", delaySeconds=5).code == "not_in_flight"
    assert shop.ack(receipt=late["receipt"]).json() == {"done": True}
    assert shop.ack(receipt=now["receipt"]).json() == {"done": True}, "it is done already"
    assert shop.stats() == (0, 0, 0)


def test_actions(shop: Shop) -> None:
    shop.send("release", "reject", "extend", "later")
    found = {each["body"]: each["receipt"] for each in shop.receive(visibility=10_000)}
    acks = [
        {"receipt": found["release"], "action": "release"},
        {"receipt": found["reject"], "action": "reject", "reason": "no such article"},
        {"receipt": found["extend"], "action": "extend", "delaySeconds": 60},
        {"receipt": found["later"], "action": "release", "delaySeconds": 30},
    ]
    assert shop.ack(acks=acks).json() == {"acks": [{"done": True}] * 4}
    assert shop.stats() == (1, 1, 1)
    assert shop.bodies(visibility=43_200_000) == ["release"]
    shop.pass_ms(10_001)
    assert shop.bodies(visibility=43_200_000) == []
    shop.pass_ms(20_000)
    assert shop.bodies(visibility=43_200_000) == ["later"]
    shop.pass_ms(30_000)
    assert shop.bodies(visibility=43_200_000) == ["extend"]


def test_a_long_poll_wakes_for_all_that_can_make_a_message_visible(shop: Shop) -> None:
    shop.send("warm up")
    (held,) = shop.receive(visibility=10_000)
    for cause in ("send", "release", "extend to 0", "time"):
        peer = shop.parked(visibility=10_000)
        match cause:
            case "send":
                shop.send("new")
            case "release":
                shop.ack(receipt=held["receipt"], action="release")
            case "extend to 0":
                shop.ack(receipt=held["receipt"], action="extend", delaySeconds=0)
            case "time":
                shop.pass_ms(10_001)
        peer.settle()
        (answer,) = peer.answers()
        messages = answer.json()["messages"]
        assert messages, cause
        for message in messages:
            if message["body"] == "new":
                shop.ack(receipt=message["receipt"])
            else:
                held = message
    assert held["deliveryCount"] == 4


def test_one_message_wakes_one_poll(shop: Shop) -> None:
    shop.send("first")
    (message,) = shop.receive()
    shop.ack(receipt=message["receipt"])
    peers = [shop.parked() for _ in range(3)]
    shop.send("only")
    for peer in peers:
        peer.settle()
    assert [len(peer.answers()) for peer in peers] == [1, 0, 0]


def test_a_poll_whose_client_hung_up_takes_nothing(shop: Shop) -> None:
    shop.send("first")
    (message,) = shop.receive()
    shop.ack(receipt=message["receipt"])
    peer = shop.parked()
    peer.connection.closed()
    shop.send("second")
    assert shop.stats() == (1, 0, 0)
    (message,) = shop.receive()
    assert message["deliveryCount"] == 1


def test_what_was_pipelined_before_the_client_hung_up_takes_nothing(shop: Shop) -> None:
    shop.ask("PUT", "/v1/queues/orders")
    peer = shop.world.http()
    peer.give(request("GET", "/messages?queue=orders&wait=20000") * 3)
    peer.settle()
    peer.connection.peer_left = lambda: True
    shop.send("one")
    peer.settle()
    assert [answer.json() for answer in peer.answers()] == [{"messages": []}] * 3
    assert shop.stats() == (1, 0, 0)
    (message,) = shop.receive()
    assert message["deliveryCount"] == 1


def test_a_poll_that_comes_after_its_client_hung_up_takes_nothing(shop: Shop) -> None:
    """The end of the connection was there when the request was read."""
    shop.send("one")
    peer = shop.world.http()
    peer.connection.peer_left = lambda: True
    assert peer.ask("GET", "/messages?queue=orders&wait=20000").json() == {"messages": []}
    assert shop.stats() == (1, 0, 0)
    (message,) = shop.receive()
    assert message["deliveryCount"] == 1


def test_who_closes_its_side_after_one_request_has_its_answer(shop: Shop) -> None:
    shop.send("one")
    peer = shop.world.http()
    peer.connection.peer_left = lambda: True
    assert [each["body"] for each in peer.ask("GET", "/messages?queue=orders").json()["messages"]] == ["one"]


def test_a_poll_ends_with_its_queue_and_leaves_the_next_one_alone(shop: Shop) -> None:
    shop.send("first")
    shop.receive()
    peer = shop.parked()
    assert shop.ask("DELETE", "/v1/queues/orders").status == 200
    shop.pass_ms(100)
    peer.settle()
    shop.send("of the next queue")
    peer.settle()
    (answer,) = peer.answers()
    assert (answer.status, answer.json()) == (200, {"messages": []})
    assert shop.bodies() == ["of the next queue"]


def test_a_poll_that_finds_nothing_ends_empty(shop: Shop) -> None:
    shop.ask("PUT", "/v1/queues/orders")
    peer = shop.parked()
    shop.pass_ms(20_001)
    peer.settle()
    (answer,) = peer.answers()
    assert answer.json() == {"messages": []}


def test_purge_takes_what_waits_and_what_is_in_flight(shop: Shop) -> None:
    shop.send(*"abcde")
    held = shop.receive(2)
    assert shop.ask("POST", "/v1/queues/orders/purge").status == 200
    assert shop.stats() == (0, 0, 0)
    assert shop.bodies() == []
    assert shop.ack(receipt=held[0]["receipt"]).status == 200
    shop.send("after")
    assert shop.bodies() == ["after"]


def test_peek_and_cancel(shop: Shop) -> None:
    ids = shop.send("a", "b", "c")
    shop.receive(1)
    peeked = shop.ask("GET", "/v1/queues/orders/messages").json()["messages"]
    assert [(each["messageId"], each["body"], each["state"]) for each in peeked] == [
        (ids[0], "a", "inFlight"),
        (ids[1], "b", "visible"),
        (ids[2], "c", "visible"),
    ]
    assert shop.ask("DELETE", f"/v1/queues/orders/messages/{ids[1]}").status == 200
    assert shop.ask("DELETE", f"/v1/queues/orders/messages/{ids[1]}").code == "no_such_message"
    assert shop.bodies() == ["c"]
    assert len(shop.ask("GET", "/v1/queues/orders/messages?max=1").json()["messages"]) == 1


def test_settings(shop: Shop) -> None:
    made = shop.ask("PUT", "/v1/queues/orders", {"visibilityMs": 1_000, "tags": {"team": "a"}, "partitions": 2})
    assert made.status == 201
    assert shop.ask("PUT", "/v1/queues/orders", {"visibilityMs": 2_000}).status == 200
    queue = shop.ask("GET", "/v1/queues/orders").json()
    assert (queue["visibilityMs"], queue["partitions"], queue["tags"]) == (2_000, 2, {"team": "a"})
    assert shop.ask("PUT", "/v1/queues/orders", {"type": "fifo"}).code == "other_settings"
    assert shop.ask("PUT", "/v1/queues/orders", {"partitions": 3}).code == "other_settings"
    assert shop.ask("PUT", "/v1/queues/orders", {"visibilityMs": -1}).status == 422
    shop.send("a")
    assert shop.bodies() == ["a"]
    shop.pass_ms(2_001)
    assert shop.bodies() == ["a"]
    assert [each["name"] for each in shop.ask("GET", "/v1/queues?prefix=ord").json()["queues"]] == ["orders"]
    assert shop.ask("GET", "/v1/queues?after=orders").json() == {"queues": []}


@pytest.mark.parametrize("letters", ["orders", "__consumer_offsets", "a/b", "..", "123456789012.us-east-1.a/b"])
def test_dead_letters_go_where_they_can_be_written(shop: Shop, letters: str) -> None:
    """A message whose letter nobody can write would be neither in the queue nor among the dead letters."""
    refused = shop.ask("PUT", "/v1/queues/orders", {"deadLetters": letters})
    assert refused.status == 422, refused
    assert letters in refused.json()["detail"]
    assert shop.ask("GET", "/v1/queues/orders").status == 404
    assert shop.ask("PUT", "/v1/queues/orders", {}).status == 201
    assert shop.ask("PUT", "/v1/queues/orders", {"deadLetters": letters}).status == 422
    assert shop.ask("GET", "/v1/queues/orders").json()["deadLetters"] == "orders-dlq"


def test_a_topic_is_no_queue_until_somebody_says_so(shop: Shop) -> None:
    shop.world.peer().create("orders")
    assert shop.ask("GET", "/messages?queue=orders").code == "not_a_queue"
    assert shop.ask("POST", "/messages", {"queue": "orders", "body": ""}).code == "not_a_queue"


def test_nobody_makes_a_queue_by_the_way_if_nobody_may_make_topics_so() -> None:
    shop = Shop(auto_create_topics=False)
    assert shop.ask("POST", "/messages", {"queue": "orders", "body": ""}).code == "no_such_queue"
    assert shop.ask("GET", "/messages?queue=orders").code == "no_such_queue"
    assert shop.ask("PUT", "/v1/queues/orders").status == 201


FORGED = [
    "",
    "x",
    "A" * 66,
    "A" * 10_000,
    "é" * 66,
    "00000000-0000-4000-8000-000000000000",
    "00000000-0000-4000-8000-00000000000g",
    "zzzzzzzz-zzzz-zzzz-zzzz-zzzzzzzzzzzz",
    "------------------------------------",
]


@pytest.mark.parametrize("text", FORGED, ids=range(len(FORGED)))
def test_forged_receipts_and_ids_are_refused(shop: Shop, text: str) -> None:
    shop.send("a")
    shop.receive()
    for name in ("receipt", "messageId"):
        for queue in ({}, {"queue": "orders"}):
            assert shop.ack(**{name: text}, **queue).status == (404 if text else 422)
    assert shop.stats() == (0, 1, 0)


def test_whoever_knows_the_key_still_settles_nothing_that_is_not_there(shop: Shop) -> None:
    """Offsets past the end, deliveries that never were, another queue's messages."""
    shop.send("a")
    shop.receive()
    topic_id = shop.world.node.image.topics["orders"].id
    ids = Ids(shop.world.node.cluster_id)
    assert shop.ack(messageId=ids.message_id(topic_id, 0, 1)).code == "no_such_message"
    assert shop.ack(messageId=ids.message_id(topic_id, 9, 0)).code == "no_such_message"
    assert shop.ack(receipt=ids.receipt(topic_id, 0, 1, 1, 0)).code == "bad_receipt"
    assert shop.ack(receipt=ids.receipt(topic_id, 0, 2**60, 1, 0)).code == "bad_receipt"
    assert shop.ack(receipt=ids.receipt(topic_id, 9, 0, 1, 0)).code == "bad_receipt"
    assert shop.ack(receipt=ids.receipt(topic_id, 0, 0, 0, 0)).code == "bad_receipt"
    assert shop.ack(receipt=ids.receipt(topic_id, 0, 0, 7, 0), action="release").code == "stale_receipt"
    shop.queue = "other"
    shop.send("b")
    (theirs,) = shop.receive()
    assert shop.ack(queue="orders", receipt=theirs["receipt"]).code == "bad_receipt"
    assert shop.ack(queue="orders", messageId=theirs["messageId"]).code == "no_such_message"
    assert shop.ack(queue="other", receipt=theirs["receipt"]).status == 200
    stranger = Ids("another cluster")
    assert shop.ack(receipt=stranger.receipt(topic_id, 0, 0, 1, 0)).code == "bad_receipt"
    assert shop.ack(messageId=stranger.message_id(topic_id, 0, 0)).code == "bad_receipt"


HOSTILE: list[Any] = [
    {},
    [],
    {"queue": "q"},
    {"queue": "", "body": "x"},
    {"queue": "no such/name", "body": "x"},
    {"queue": "__consumer_offsets", "body": "x"},
    {"queue": "q", "body": "x", "bodyBase64": "eA=="},
    {"queue": "q", "bodyBase64": "!"},
    {"queue": "q", "messages": []},
    {"queue": "q", "messages": [{}]},
    {"queue": "q", "messages": [{"body": "x"}] * 101},
    {"queue": "q", "body": "x", "messages": [{"body": "x"}]},
    {"queue": "q", "body": "x", "surprise": 1},
    {"queue": "q", "body": "x", "attributes": {"a": 1}},
    {"queue": "x" * 300, "body": "x"},
    b'{"queue":"q","body":' + b"[" * 100_000,
    b'{"queue":"q","body":"\xff"}',
]


@pytest.mark.parametrize("body", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_bodies_are_refused(shop: Shop, body: Any) -> None:
    answer = shop.ask("POST", "/messages", body)
    assert answer.status in (400, 422), answer
    assert answer.code
    assert "q" not in shop.world.node.image.topics


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"receipt": "a", "messageId": "b"},
        {"acks": []},
        {"acks": [{"receipt": "a"}] * 101},
        {"receipt": "a", "action": "eat"},
        {"receipt": "a", "delaySeconds": -1},
        {"receipt": "a", "delaySeconds": 43_201},
        {"acks": [{}]},
        {"receipt": "a", "acks": [{"receipt": "a"}]},
    ],
)
def test_hostile_acks_are_refused(shop: Shop, body: Any) -> None:
    assert shop.ask("POST", "/ack", body).status == 422


def test_a_message_that_is_too_large_is_refused_alone(shop: Shop) -> None:
    shop.ask("PUT", "/v1/queues/orders", {"maxMessageBytes": 1_024})
    messages = [{"body": "x" * 1_025}, {"body": "x" * 1_024}, {"body": "é" * 600}]
    answer = shop.ask("POST", "/messages", {"queue": "orders", "messages": messages}).json()["messages"]
    assert [each.get("error", {}).get("code") for each in answer] == ["message_too_large", None, "message_too_large"]
    assert shop.ask("POST", "/messages", {"queue": "orders", "body": "x" * 1_025}).status == 413
    assert shop.stats() == (1, 0, 0)


def test_a_queue_of_several_partitions_gives_all_and_each_once(shop: Shop) -> None:
    shop.ask("PUT", "/v1/queues/orders", {"partitions": 4})
    sent = {key: shop.send(key, key=key)[0] for key in map(str, range(40))}
    assert shop.stats() == (40, 0, 0)
    found: dict[str, str] = {}
    while messages := shop.receive(7):
        for message in messages:
            assert message["body"] not in found
            found[message["body"]] = message["messageId"]
        assert shop.ack(acks=[{"receipt": each["receipt"]} for each in messages]).status == 200
    assert found == sent
    peer = shop.parked()
    shop.send("last")
    peer.settle()
    (answer,) = peer.answers()
    assert [each["body"] for each in answer.json()["messages"]] == ["last"]


def test_a_queue_that_nobody_uses_is_forgotten_and_found_again(shop: Shop) -> None:
    shop.send("a", "b")
    (message, _) = shop.receive(visibility=1_000)
    shop.ack(receipt=message["receipt"])
    partitions = shop.world.node.rooms.services.queues.partitions
    assert partitions.count == 1
    for _ in range(4):
        shop.pass_ms(60_000)
    assert partitions.count == 0
    (again,) = shop.receive()
    assert (again["body"], again["deliveryCount"]) == ("b", 2)


def test_a_message_that_nobody_can_work_on_goes_to_the_dead_letters(shop: Shop) -> None:
    shop.send("poison", attributes={"trace": "7"}, key="ann")
    for delivery in range(1, 6):
        (message,) = shop.receive(visibility=1_000)
        assert message["deliveryCount"] == delivery
        shop.pass_ms(1_001)
    for _ in range(10):
        shop.pass_ms(100)
    assert shop.receive() == []
    assert shop.stats() == (0, 0, 0)
    shop.queue = "orders-dlq"
    (letter,) = shop.receive()
    assert (letter["body"], letter["key"], letter["attributes"]["trace"]) == ("poison", "ann", "7")
    assert any("dlq" in name for name in letter["attributes"]), letter
    queue = shop.ask("GET", "/v1/queues/orders-dlq").json()
    assert (queue["maxDeliveries"], queue["deadLetters"]) == (0, "")


def test_what_is_rejected_goes_to_the_dead_letters_at_once(shop: Shop) -> None:
    shop.ask("PUT", "/v1/queues/orders", {"deadLetters": "graves"})
    shop.send("a")
    (message,) = shop.receive()
    assert shop.ack(receipt=message["receipt"], action="reject").json() == {"done": True}
    for _ in range(10):
        shop.pass_ms(100)
    shop.queue = "graves"
    assert shop.bodies() == ["a"]


def test_no_client_can_use_the_group_of_a_queue(shop: Shop) -> None:
    peer = shop.world.peer()
    beat = peer.call("ShareGroupHeartbeat", group_id="__queue/orders", member_id="m", member_epoch=0)
    assert beat.error_code == 24
    fetch = peer.call("ShareFetch", group_id="__queue/orders", member_id="m", share_session_epoch=0)
    assert fetch.error_code == 24
    assert peer.call("AlterShareGroupOffsets", group_id="__queue/orders").error_code == 24


# --- delays ---


def test_a_message_comes_no_earlier_than_it_says(shop: Shop) -> None:
    wall_ms = shop.world.clock.wall_ms()
    for given in ({"delaySeconds": 10}, {"deliverAt": wall_ms + 20_000}, {"deliverAt": 1}, {"delaySeconds": 0}, {}):
        sent = shop.ask("POST", "/messages", {"queue": "orders", "body": str(given.values()), **given})
        assert sent.status == 201, sent
    assert shop.stats() == (3, 0, 2), "also before anybody has asked for a message"
    assert len(shop.receive(visibility=43_200_000)) == 3
    assert shop.stats() == (0, 3, 2)
    states = [each["state"] for each in shop.ask("GET", "/v1/queues/orders/messages").json()["messages"]]
    assert sorted(states) == ["delayed"] * 2 + ["inFlight"] * 3
    shop.pass_ms(9_999)
    assert shop.receive() == []
    shop.pass_ms(1)
    (first,) = shop.receive(visibility=43_200_000)
    assert "attributes" not in first, "when it was to come is no attribute"
    shop.pass_ms(10_000)
    assert len(shop.receive()) == 1
    assert shop.stats() == (0, 5, 0)


def test_the_delay_of_a_queue_is_for_messages_that_do_not_say(shop: Shop) -> None:
    assert shop.ask("PUT", "/v1/queues/orders", {"delayMs": 5_000}).json()["delayMs"] == 5_000
    shop.send("queue's")
    shop.send("at once", delaySeconds=0)
    shop.send("own", delaySeconds=1)
    assert shop.stats() == (1, 0, 2)
    assert shop.bodies() == ["at once"]
    shop.pass_ms(1_000)
    assert shop.bodies() == ["own"]
    shop.pass_ms(4_000)
    assert shop.bodies() == ["queue's"]
    assert shop.ask("PUT", "/v1/queues/orders", {"delayMs": 900_001}).status in (400, 422)


def test_a_receive_that_waits_gets_a_message_when_its_time_comes(shop: Shop) -> None:
    """Bug 12."""
    shop.send("x")
    assert shop.bodies(visibility=43_200_000) == ["x"]
    peer = shop.parked()
    shop.send("later", delaySeconds=3)
    peer.settle()
    assert not peer.out
    shop.pass_ms(3_000)
    peer.settle()
    (answer,) = peer.answers()
    assert [each["body"] for each in answer.json()["messages"]] == ["later"]


def test_an_attribute_is_not_taken_for_a_delay(shop: Shop) -> None:
    times = {"delay": "60000", "deliver-at": str(shop.world.clock.wall_ms() + 60_000), "skidway.deliver-at": "9" * 13}
    shop.send("a", attributes=times)
    (found,) = shop.receive()
    assert found["attributes"] == {name: text for name, text in times.items() if not name.startswith("skidway.")}


def test_a_delayed_message_can_be_taken_back(shop: Shop) -> None:
    (message_id,) = shop.send("a", delaySeconds=5)
    assert shop.ask("DELETE", f"/v1/queues/orders/messages/{message_id}").status == 200
    assert shop.stats() == (0, 0, 0)
    shop.pass_ms(6_000)
    assert shop.receive() == []


@pytest.mark.parametrize(
    "given",
    [{"delaySeconds": 1, "deliverAt": 1}, {"deliverAt": 2**53}, {"delaySeconds": -1}, {"delaySeconds": 43_201}],
)
def test_delays_that_make_no_sense(shop: Shop, given: dict[str, int]) -> None:
    answer = shop.ask("POST", "/messages", {"queue": "orders", "body": "a", **given})
    assert answer.status in (400, 422), answer


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_a_large_batch_is_unpacked_once_however_many_receives_take_it(
    shop: Shop, codec: Codec, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []

    def counted(*given: Any, **options: Any) -> Any:
        opened.append(1)
        return open_batch(*given, **options)

    monkeypatch.setattr(receiving, "open_batch", counted)
    shop.ask("PUT", "/v1/queues/orders", {})
    values = [b"%d " % number * 50 for number in range(1_000)]
    shop.world.peer().produce("orders", batch(*values, codec=codec))
    shop.world.settle()
    for start in range(0, 100, 10):
        assert shop.bodies() == [value.decode() for value in values[start : start + 10]]
    assert len(opened) == 1
    shop.pass_ms(31_000)
    assert shop.bodies() == [value.decode() for value in values[:10]], "what comes again lies before"
    assert len(opened) == 1
