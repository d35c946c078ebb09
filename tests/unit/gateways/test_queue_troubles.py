"""What a queue tells of messages that wait in vain: for a letter that cannot be written, or behind others."""

from typing import Any

import pytest
from http_world import HttpWorld, request
from test_http_queues import Shop

from skidway.broker.queues import rules
from skidway.errors import NotLeaderOrFollower
from skidway.wire.schema.incremental_alter_configs import AlterableConfig, AlterConfigsResource

MINUTE_MS = 60_000
TOPIC_RESOURCE = 2


def alter(world: HttpWorld, topic: str, name: str, value: str) -> None:
    resource = AlterConfigsResource(TOPIC_RESOURCE, topic, [AlterableConfig(name, 0, value)])
    reply = world.peer().call("IncrementalAlterConfigs", resources=[resource], validate_only=False)
    assert reply.responses[0].error_code == 0, reply


def sqs(shop: Shop, action: str, **asked: Any) -> Any:
    return shop.world.http().ask("POST", "/", {"QueueUrl": shop.queue, **asked}, x_amz_target=f"AmazonSQS.{action}")


def hidden(shop: Shop) -> int:
    name = "ApproximateNumberOfMessagesNotVisible"
    return int(sqs(shop, "GetQueueAttributes", AttributeNames=[name]).json()["Attributes"][name])


def all_stats(shop: Shop) -> Any:
    return shop.ask("GET", f"/v1/queues/{shop.queue}/stats").json()


def test_a_message_whose_letter_cannot_be_written_is_shown_with_the_reason() -> None:
    shop = Shop()
    shop.ask("PUT", "/v1/queues/orders", {"maxDeliveries": 1})
    shop.ask("PUT", "/v1/queues/orders-dlq", {})
    alter(shop.world, "orders-dlq", "max.message.bytes", "300")
    shop.send("x" * 400, "small")
    assert len(shop.receive(visibility=1_000)) == 2
    for _ in range(3):
        shop.pass_ms(MINUTE_MS)
    stats = all_stats(shop)
    assert (stats["visible"], stats["inFlight"], stats["delayed"]) == (0, 0, 0)
    assert stats["dead"] == 2
    assert stats["letterTrouble"] == "its letter is larger than max.message.bytes of orders-dlq (300)"
    peeked = shop.ask("GET", "/v1/queues/orders/messages").json()["messages"]
    assert {each["state"] for each in peeked} == {"dead"}
    assert len(peeked) == 2
    assert hidden(shop) == 2
    alter(shop.world, "orders-dlq", "max.message.bytes", "100000")
    for _ in range(3):
        shop.pass_ms(MINUTE_MS)
    assert all_stats(shop) == {"visible": 0, "inFlight": 0, "delayed": 0}
    assert hidden(shop) == 0


def test_a_receive_says_that_too_many_are_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "QUEUE_IN_FLIGHT_MAX", 3)
    shop = Shop()
    shop.send(*"abcd")
    taken = shop.receive()
    assert len(taken) == 3
    answer = shop.ask("GET", "/messages?queue=orders")
    assert (answer.status, answer.json()) == (200, {"messages": []})
    assert "are in flight as may be" in answer.headers["queue-held-up"]
    assert "are in flight as may be" in all_stats(shop)["heldUp"]
    refused = sqs(shop, "ReceiveMessage")
    assert (refused.status, refused.headers["x-amzn-query-error"]) == (403, "OverLimit;Sender")
    shop.ack(receipt=taken[0]["receipt"])
    assert shop.bodies() == ["d"]
    for each in taken[1:]:
        shop.ack(receipt=each["receipt"])
    answer = shop.ask("GET", "/messages?queue=orders")
    assert "queue-held-up" not in answer.headers
    assert "heldUp" not in all_stats(shop)


def test_a_long_poll_of_sqs_and_a_fifo_queue_are_empty_where_too_many_are_in_flight(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rules, "QUEUE_IN_FLIGHT_MAX", 2)
    shop = Shop()
    shop.send("a", "b", "c")
    shop.receive()
    peer = shop.world.http()
    asked = {"QueueUrl": "orders", "WaitTimeSeconds": 1}
    peer.give(request("POST", "/", asked, x_amz_target="AmazonSQS.ReceiveMessage"))
    peer.settle()
    shop.pass_ms(1_000)
    peer.settle()
    (answer,) = peer.answers()
    assert (answer.status, answer.json()) == (200, {})
    fifo = Shop("orders.fifo")
    fifo.ask("PUT", "/v1/queues/orders.fifo", {"type": "fifo"})
    for group in "abc":
        fifo.send(group, groupId=group, dedupId=group)
    assert len(fifo.receive()) == 2
    assert sqs(fifo, "ReceiveMessage").json() == {}


def test_a_receive_says_that_the_oldest_message_holds_up_all_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "SHARE_SPAN_MAX", 4)
    shop = Shop()
    shop.send(*"abcdef")
    oldest, *others = shop.receive()
    assert len(others) == 3
    for each in others:
        shop.ack(receipt=each["receipt"])
    answer = shop.ask("GET", "/messages?queue=orders")
    assert answer.json() == {"messages": []}
    assert "the message at offset 0 of partition 0 is not done" in answer.headers["queue-held-up"]
    assert sqs(shop, "ReceiveMessage").json() == {}, "Amazon has no word for it"
    shop.ack(receipt=oldest["receipt"])
    assert shop.bodies() == ["e", "f"]


def test_the_reason_of_a_rejection_reaches_the_dead_letter() -> None:
    shop = Shop()
    shop.ask("PUT", "/v1/queues/orders-dlq", {})
    shop.send("a", "b", "c")
    first, second, third = shop.receive()
    said = "no such customer: Zoë"
    acks = [
        {"receipt": first["receipt"], "action": "reject", "reason": said},
        {"receipt": second["receipt"], "action": "reject", "reason": "x" * 1_000},
        {"receipt": third["receipt"], "action": "reject"},
    ]
    assert shop.ack(acks=acks).status == 200
    for _ in range(3):
        shop.pass_ms(1_000)
    shop.queue = "orders-dlq"
    letters = {each["body"]: each["attributes"] for each in shop.receive()}
    told = {body: attributes["__dlq.errors.message"] for body, attributes in letters.items()}
    assert told == {"a": said, "b": "x" * 250, "c": "Offset rejected by client."}
    assert {each["__dlq.errors.disposition"] for each in letters.values()} == {"CLIENT_REJECTED"}


def test_the_reason_is_stored_until_the_letter_can_be_written() -> None:
    shop = Shop()
    shop.ask("PUT", "/v1/queues/orders-dlq", {})
    alter(shop.world, "orders-dlq", "max.message.bytes", "300")
    shop.send("x" * 400)
    (message,) = shop.receive()
    shop.ack(receipt=message["receipt"], action="reject", reason="broken")
    share = next(iter(shop.world.node.rooms.services.queues.partitions.of_group("__queue/orders")))
    share.close(NotLeaderOrFollower("the leader is another one from now on"))
    alter(shop.world, "orders-dlq", "max.message.bytes", "100000")
    assert all_stats(shop)["dead"] == 1, "it was loaded again"
    for _ in range(3):
        shop.pass_ms(MINUTE_MS)
    shop.queue = "orders-dlq"
    (letter,) = shop.receive()
    assert letter["attributes"]["__dlq.errors.message"] == "broken"
