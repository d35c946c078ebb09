"""A FIFO queue over three real nodes, whose leader is killed while a message of a group is in flight.

The next leader knows who has it: nobody gets another message of the group until the time is over, or until the receipt
that the dead leader gave has deleted it.
"""

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from skidway.testing import Cluster
from waiting import eventually

QUEUE = "orders"
HELD_MS = 600_000
ANSWERED_S = 15
"""Longer than a node takes at most to say that it cannot."""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, http="127.0.0.1:0", network=False) as started:
        yield started


class Client:
    """It asks one node after the other until one answers."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._turns = 0

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        def answered() -> Any:
            running = self.cluster.running
            node = running[self._turns % len(running)]
            self._turns += 1
            try:
                return self._once(node, method, path, body)
            except (OSError, http.client.HTTPException):
                return None

        return eventually(answered, 120)

    def _once(self, node: int, method: str, path: str, body: Any) -> Any:
        connection = http.client.HTTPConnection(urlsplit(self.cluster[node].http).netloc, timeout=ANSWERED_S)
        try:
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            answer = connection.getresponse()
            found = json.loads(answer.read())
            if answer.status >= 400:
                assert found["retryable"], found
                return None
            return found
        finally:
            connection.close()

    def put(self, group: str, body: str) -> None:
        self.ask("POST", "/messages", {"queue": QUEUE, "body": body, "groupId": group, "dedupId": body})

    def receive(self, visibility_ms: int, wait_ms: int = 0) -> list[Any]:
        query = f"queue={quote(QUEUE)}&max=1&visibility={visibility_ms}&wait={wait_ms}"
        found: list[Any] = self.ask("GET", f"/messages?{query}")["messages"]
        return found

    def receive_one(self, visibility_ms: int) -> Any:
        return eventually(lambda: self.receive(visibility_ms, wait_ms=1_000), 120)[0]


def test_a_group_stays_with_who_has_it_when_the_leader_is_killed(cluster: Cluster) -> None:
    client = Client(cluster)
    client.ask("PUT", f"/v1/queues/{QUEUE}", {"type": "fifo"})
    for group, body in [("a", "a1"), ("a", "a2"), ("b", "b1")]:
        client.put(group, body)
    first = client.receive_one(HELD_MS)
    assert (first["body"], first["deliveryCount"]) == ("a1", 1)
    killed = cluster.leader_of(QUEUE, 0)
    cluster.kill(killed)
    assert client.receive_one(HELD_MS)["body"] == "b1", "another group is free, and the next leader serves it"
    assert client.receive(HELD_MS, wait_ms=2_000) == [], "a1 is in flight, and a2 waits for it"
    client.ask("POST", "/ack", {"acks": [{"receipt": first["receipt"], "action": "extend", "delaySeconds": 900}]})
    assert client.receive(HELD_MS, wait_ms=1_000) == []
    done = client.ask("POST", "/ack", {"receipt": first["receipt"]})
    assert done == {"done": True}, "the receipt of the dead leader is good"
    second = client.receive_one(HELD_MS)
    assert (second["body"], second["deliveryCount"]) == ("a2", 1)
    cluster.start(killed)


def test_it_comes_again_when_its_time_is_over(cluster: Cluster) -> None:
    client = Client(cluster)
    client.ask("PUT", f"/v1/queues/{QUEUE}", {"type": "fifo"})
    for body in ("a1", "a2"):
        client.put("a", body)
    first = client.receive_one(8_000)
    received_s = time.monotonic()
    cluster.kill(cluster.leader_of(QUEUE, 0))
    again = client.receive_one(HELD_MS)
    # The reply was under way for some time: the lease began before it came.
    assert time.monotonic() - received_s > 6
    assert (first["body"], again["body"], again["deliveryCount"]) == ("a1", "a1", 2)
