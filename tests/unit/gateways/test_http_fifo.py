"""FIFO queues over HTTP on one node: order in groups, one holder of a group at a time, each id once. Numbers are those
of bugs that other servers had."""

from typing import Any

import pytest
from test_http_queues import Shop

WINDOW_MS = 300_000


class FifoShop(Shop):
    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.made = self.ask("PUT", "/v1/queues/orders", {"type": "fifo", **settings}).json()

    def put(self, group: str, *bodies: str, **given: Any) -> list[Any]:
        messages = [{"body": body, "groupId": group, "dedupId": f"{group}-{body}", **given} for body in bodies]
        answer = self.ask("POST", "/messages", {"queue": "orders", "messages": messages})
        assert answer.status == 200, answer
        found: list[Any] = answer.json()["messages"]
        return found

    def take(self, count: int = 10, **query: int) -> dict[str, str]:
        """Receipts, by body."""
        return {each["body"]: each["receipt"] for each in self.receive(count, **query)}


@pytest.fixture
def fifo() -> FifoShop:
    return FifoShop()


# --- order ---


def test_a_group_comes_in_order_and_waits_for_what_is_in_flight(fifo: FifoShop) -> None:
    fifo.put("a", "1", "2", "3")
    fifo.put("b", "4")
    sent = fifo.put("a", "5")
    assert sent[0]["sequenceNumber"] == f"{4:020}"
    assert list(fifo.take(2)) == ["1", "2"]
    assert list(fifo.take()) == ["4"], "the other group is not in the way"
    assert fifo.bodies() == []
    assert fifo.stats() == (2, 3, 0), "what is blocked is visible"
    stats = fifo.ask("GET", "/v1/queues/orders/stats").json()
    assert stats["blocked"] == 2
    assert stats["heldUp"].startswith("each message that waits is behind an earlier one of its message group")
    states = [each["state"] for each in fifo.ask("GET", "/v1/queues/orders/messages").json()["messages"]]
    assert states == ["inFlight", "inFlight", "visible", "inFlight", "visible"]


def test_after_a_delete_the_next_of_its_group_comes(fifo: FifoShop) -> None:
    """1."""
    fifo.put("a", "1", "2")
    held = fifo.take(1)
    peer = fifo.parked()
    assert fifo.ack(receipt=held["1"]).json() == {"done": True}
    peer.settle()
    (answer,) = peer.answers()
    assert [each["body"] for each in answer.json()["messages"]] == ["2"], "a poll that waits gets it"


def test_a_send_does_not_free_a_group(fifo: FifoShop) -> None:
    """2."""
    fifo.put("a", "1")
    fifo.take(1)
    fifo.put("a", "2")
    assert fifo.bodies() == []


def test_later_ones_wait_for_the_first_however_long_it_is_held(fifo: FifoShop) -> None:
    """3: the second is extended, the others end: only what lies before it comes."""
    fifo.put("a", "1", "2", "3")
    held = fifo.take(3, visibility=10_000)
    assert fifo.ack(receipt=held["2"], action="extend", delaySeconds=60).status == 200
    fifo.pass_ms(10_001)
    again = fifo.take(visibility=5_000)
    assert list(again) == ["1"]
    assert fifo.ack(receipt=again["1"]).status == 200
    assert fifo.bodies() == []
    fifo.pass_ms(50_000)
    assert list(fifo.take()) == ["2", "3"]


def test_after_a_time_out_the_order_is_as_before(fifo: FifoShop) -> None:
    """4."""
    fifo.put("a", "1", "2", "3")
    fifo.take(2, visibility=1_000)
    fifo.pass_ms(1_001)
    assert list(fifo.take()) == ["1", "2", "3"]


def test_a_receipt_ends_with_its_time(fifo: FifoShop) -> None:
    fifo.put("a", "1")
    held = fifo.take(visibility=1_000)
    fifo.pass_ms(1_001)
    assert fifo.ack(receipt=held["1"]).code == "stale_receipt"
    again = fifo.take()
    assert fifo.ack(receipt=held["1"]).code == "stale_receipt"
    assert fifo.ack(receipt=again["1"]).status == 200
    assert fifo.stats() == (0, 0, 0)


def test_a_dead_message_frees_its_group(fifo: FifoShop) -> None:
    """5, 6."""
    assert fifo.ask("PUT", "/v1/queues/orders", {"maxDeliveries": 1}).status == 200
    fifo.put("a", "1", "2")
    fifo.take(1, visibility=1_000)
    fifo.pass_ms(1_001)
    assert fifo.bodies() == ["2"]
    for _ in range(20):
        made = fifo.ask("GET", "/v1/queues/orders-dlq")
        fifo.pass_ms(1_001)
    assert (made.json()["type"], made.json()["partitions"]) == ("fifo", 1)
    (dead,) = fifo.ask("GET", "/messages?queue=orders-dlq").json()["messages"]
    assert (dead["body"], dead["key"]) == ("1", "a")


def test_a_delay_holds_its_group(fifo: FifoShop) -> None:
    assert fifo.ask("PUT", "/v1/queues/orders", {"delayMs": 5_000}).status == 200
    fifo.put("a", "1")
    fifo.put("a", "2", delaySeconds=0)
    fifo.put("b", "3", delaySeconds=0)
    assert fifo.bodies() == ["3"]
    fifo.pass_ms(5_000)
    assert list(fifo.take()) == ["1", "2"]


# --- each id once ---


def test_an_id_is_sent_once_in_five_minutes_also_after_a_delete(fifo: FifoShop) -> None:
    """8."""
    (first,) = fifo.put("a", "1")
    assert first["duplicate"] is False
    (receipt,) = fifo.take().values()
    fifo.ack(receipt=receipt)
    fifo.pass_ms(WINDOW_MS - 10_000)
    (again,) = fifo.put("a", "other text", dedupId="a-1")
    assert again == {**first, "duplicate": True}
    assert fifo.stats() == (0, 0, 0)
    fifo.pass_ms(10_001)
    (later,) = fifo.put("a", "1")
    assert later["messageId"] != first["messageId"]
    assert fifo.bodies() == ["1"]


def test_one_request_may_repeat_itself(fifo: FifoShop) -> None:
    before = fifo.put("a", "0")
    sent = fifo.put("a", "1", "0", "1", "2", "2")
    assert [each["duplicate"] for each in sent] == [False, True, True, False, True]
    assert sent[1]["messageId"] == before[0]["messageId"]
    assert sent[2]["messageId"] == sent[0]["messageId"]
    assert sent[4]["sequenceNumber"] == sent[3]["sequenceNumber"]
    assert list(fifo.take()) == ["0", "1", "2"]


def test_the_content_can_be_the_id() -> None:
    """7."""
    fifo = FifoShop(contentDeduplication=True)
    for body, dedup in (("x", None), ("y", None), ("x", None), ("x", "own")):
        given = {} if dedup is None else {"dedupId": dedup}
        answer = fifo.ask("POST", "/messages", {"queue": "orders", "body": body, "groupId": "g", **given})
        assert answer.status == 201, answer
    assert fifo.bodies() == ["x", "y", "x"]


def test_ids_may_be_those_of_their_groups() -> None:
    """9."""
    fifo = FifoShop(deduplicationScope="messageGroup", partitions=3)
    assert fifo.made["partitions"] == 3
    for group in "abcdef":
        first, again = fifo.put(group, "1", "1")
        assert (first["duplicate"], again["duplicate"]) == (False, True)
    assert fifo.stats() == (6, 0, 0)
    assert fifo.ask("PUT", "/v1/queues/orders", {"deduplicationScope": "queue"}).code == "bad_setting"


def test_a_purge_forgets_ids(fifo: FifoShop) -> None:
    fifo.put("a", "1")
    assert fifo.ask("POST", "/v1/queues/orders/purge").status == 200
    (again,) = fifo.put("a", "1")
    assert again["duplicate"] is False
    assert fifo.bodies() == ["1"]


def test_a_node_that_begins_to_lead_reads_the_ids_in_its_log(fifo: FifoShop) -> None:
    first = fifo.put("a", "1", "2")
    sends = fifo.world.gateway.site.services.queues.sends
    sends._tables.clear()
    peers = [fifo.world.http() for _ in range(3)]
    for peer in peers:
        body = {"queue": "orders", "body": "1", "groupId": "a", "dedupId": "a-1"}
        assert peer.ask("POST", "/messages", body).json() == {**first[0], "duplicate": True}
    fifo.pass_ms(WINDOW_MS + 1)
    sends._tables.clear()
    assert fifo.put("a", "1")[0]["duplicate"] is False


# --- what is refused ---


@pytest.mark.parametrize(
    "given", [{}, {"groupId": "a"}, {"dedupId": "a"}, {"groupId": "a", "key": "b", "dedupId": "c"}]
)
def test_a_message_needs_a_group_and_an_id(fifo: FifoShop, given: dict[str, str]) -> None:
    answer = fifo.ask("POST", "/messages", {"queue": "orders", "body": "x", **given})
    assert (answer.status, answer.code) in ((422, "bad_message"), (422, "bad_value"))
    assert fifo.stats() == (0, 0, 0)


def test_what_only_fifo_queues_have() -> None:
    shop = Shop()
    assert shop.ask("PUT", "/v1/queues/plain", {"contentDeduplication": False}).code == "bad_value"
    assert shop.ask("PUT", "/v1/queues/plain").status == 201
    assert shop.ask("PUT", "/v1/queues/plain", {"type": "fifo"}).code == "other_settings"
    answer = shop.ask("POST", "/messages", {"queue": "plain", "body": "x", "dedupId": "1"})
    assert answer.code == "bad_value"
    assert shop.ask("PUT", "/v1/queues/many", {"type": "fifo", "partitions": 2}).code == "bad_setting"
