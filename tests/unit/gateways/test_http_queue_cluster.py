"""Queues over HTTP on three nodes: whichever is asked, the leaders answer; nothing acknowledged comes again, and
nothing that was sent is lost, whoever dies."""

from collections import Counter
from random import Random
from typing import Any

import pytest
from nodes_together import Cluster
from test_http_cluster import Asked, leaders

EMPTY = {"visible": 0, "inFlight": 0, "delayed": 0}


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3, default_replication_factor=3)
    cluster.until(lambda: all(node.serving for node in cluster.nodes.values()))
    cluster.until(lambda: all(len(node.image.brokers) == 3 for node in cluster.nodes.values()))
    return cluster


def make(cluster: Cluster, queue: str, partitions: int = 1) -> None:
    answer = Asked(cluster, 1).ask("PUT", f"/v1/queues/{queue}", {"partitions": partitions})
    assert answer.status == 201, answer
    cluster.until(lambda: all(leaders(cluster, number, queue) for number in cluster.nodes))


def send(cluster: Cluster, number: int, queue: str, *bodies: str) -> list[str]:
    messages = [{"body": body, "key": body} for body in bodies]
    answer = Asked(cluster, number).ask("POST", "/messages", {"queue": queue, "messages": messages})
    assert answer.status == 200, answer
    return [each["messageId"] for each in answer.json()["messages"]]


def receive(cluster: Cluster, number: int, queue: str, count: int = 10, wait_ms: int = 0) -> list[Any]:
    answer = Asked(cluster, number).ask("GET", f"/messages?queue={queue}&max={count}&wait={wait_ms}&visibility=5000")
    assert answer.status == 200, answer
    found: list[Any] = answer.json()["messages"]
    return found


@pytest.mark.parametrize("partitions", [1, 3])
def test_any_node_serves_any_queue(cluster: Cluster, partitions: int) -> None:
    make(cluster, "q", partitions)
    for number in cluster.nodes:
        sent = send(cluster, number, "q", *(f"{number}-{each}" for each in range(5)))
        asked = Asked(cluster, 1 + number % 3)
        assert asked.ask("GET", "/v1/queues/q/stats").json() == {"visible": 5, "inFlight": 0, "delayed": 0}
        found: list[Any] = []
        while len(found) < 5:
            found += receive(cluster, 1 + number % 3, "q")
        assert sorted(each["messageId"] for each in found) == sorted(sent)
        peeked = asked.ask("GET", "/v1/queues/q/messages").json()["messages"]
        assert [each["state"] for each in peeked] == ["inFlight"] * 5
        acks = [{"receipt": found[0]["receipt"]}] + [{"messageId": each["messageId"]} for each in found[1:]]
        answer = Asked(cluster, 1 + (number + 1) % 3).ask("POST", "/ack", {"acks": acks})
        assert answer.json() == {"acks": [{"done": True}] * 5}
        assert asked.ask("GET", "/v1/queues/q/stats").json() == EMPTY


@pytest.mark.parametrize("partitions", [1, 3])
def test_polls_at_all_nodes_wake(cluster: Cluster, partitions: int) -> None:
    make(cluster, "q", partitions)
    for number in cluster.nodes:
        polls = {each: Asked(cluster, each) for each in cluster.nodes}
        for poll in polls.values():
            poll.begin("GET", "/messages?queue=q&wait=20000&visibility=600000")
        cluster.pass_time(300)
        sent = send(cluster, number, "q", "a", "b", "c")
        found = [poll.answer().json()["messages"][0]["messageId"] for poll in polls.values()]
        assert sorted(found) == sorted(sent)


def test_a_remote_poll_whose_client_hung_up_takes_nothing(cluster: Cluster) -> None:
    make(cluster, "q")
    (leader,) = leaders(cluster, 1, "q")
    poll = Asked(cluster, 1 + leader % 3)
    poll.begin("GET", "/messages?queue=q&wait=20000")
    cluster.pass_time(300)
    poll.peer.connection.closed()
    send(cluster, leader, "q", "a")
    cluster.pass_time(3_000)
    (message,) = receive(cluster, leader, "q")
    assert message["deliveryCount"] == 1


def test_a_receipt_survives_its_leader(cluster: Cluster) -> None:
    make(cluster, "q")
    (sent,) = send(cluster, 1, "q", "a")
    (message,) = receive(cluster, 1, "q")
    assert message["messageId"] == sent
    (leader,) = leaders(cluster, 1, "q")
    cluster.kill(leader)
    left = [number for number in cluster.nodes if number != leader]
    cluster.until(lambda: leaders(cluster, left[0], "q") not in ([], [leader]))
    assert Asked(cluster, left[0]).ask("POST", "/ack", {"receipt": message["receipt"]}).json() == {"done": True}
    assert Asked(cluster, left[1]).ask("GET", "/v1/queues/q/stats").json() == {
        "visible": 0,
        "inFlight": 0,
        "delayed": 0,
    }


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_and_nothing_acknowledged_comes_again(cluster: Cluster, seed: int) -> None:
    random = Random(seed)
    make(cluster, "q", 3)
    sent: set[str] = set()
    done: Counter[str] = Counter()
    for turn in range(12):
        alive = sorted(cluster.nodes)
        if turn in (4, 8):
            victim = random.choice(alive)
            cluster.kill(victim)
            alive.remove(victim)
        sent |= _send_some(cluster, random.choice(alive), [f"{turn}-{each}" for each in range(5)])
        done += _work(cluster, random.choice(alive))
        if turn in (6, 10):
            cluster.restart(victim)
    cluster.until(lambda: all(node.serving for node in cluster.nodes.values()))
    for _ in range(60):
        if Asked(cluster, min(cluster.nodes)).ask("GET", "/v1/queues/q/stats").json() == EMPTY:
            break
        cluster.pass_time(6_000)
        done += _work(cluster, random.choice(sorted(cluster.nodes)))
    assert sent <= done.keys()
    assert max(done.values()) == 1, "acknowledged twice"


def _send_some(cluster: Cluster, number: int, bodies: list[str]) -> set[str]:
    """Those that were answered."""
    messages = [{"body": body, "key": body} for body in bodies]
    answer = Asked(cluster, number).ask("POST", "/messages", {"queue": "q", "messages": messages})
    if answer.status != 200:
        assert answer.status == 503
        return set()
    results = zip(bodies, answer.json()["messages"], strict=True)
    return {body for body, result in results if "messageId" in result}


def _work(cluster: Cluster, number: int) -> Counter[str]:
    answer = Asked(cluster, number).ask("GET", "/messages?queue=q&max=10&visibility=5000")
    if answer.status != 200:
        assert answer.status == 503
        return Counter()
    messages = answer.json()["messages"]
    if not messages:
        return Counter()
    acks = [{"receipt": each["receipt"]} for each in messages]
    settled = Asked(cluster, number).ask("POST", "/ack", {"acks": acks}).json()["acks"]
    return Counter(each["body"] for each, result in zip(messages, settled, strict=True) if result["done"])


def test_an_id_is_sent_once_whoever_leads(cluster: Cluster) -> None:
    assert Asked(cluster, 1).ask("PUT", "/v1/queues/q", {"type": "fifo"}).status == 201
    cluster.until(lambda: all(leaders(cluster, number, "q") for number in cluster.nodes))
    sent: list[Any] = []
    for number in cluster.nodes:
        body = {"queue": "q", "body": "a", "groupId": "g", "dedupId": "1"}
        sent.append(Asked(cluster, number).ask("POST", "/messages", body).json())
    assert [each["duplicate"] for each in sent] == [False, True, True]
    (leader,) = leaders(cluster, 1, "q")
    cluster.kill(leader)
    left = min(number for number in cluster.nodes if number != leader)
    cluster.until(lambda: leaders(cluster, left, "q") not in ([], [leader]))
    sent += [Asked(cluster, left).ask("POST", "/messages", {**body, "dedupId": each}).json() for each in "12"]
    assert [each["duplicate"] for each in sent[3:]] == [True, False]
    assert len({each["messageId"] for each in sent[:4]}) == 1
    assert [each["body"] for each in receive(cluster, left, "q")] == ["a", "a"]
