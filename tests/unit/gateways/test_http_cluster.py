"""HTTP on three nodes: whichever is asked, the leader answers, and one that moves or dies is found again."""

from typing import Any

import pytest
from http_world import LOOPBACK, Answer, HttpPeer, request
from nodes_together import Cluster

from skidway.broker.api.call import Goodbye
from skidway.gateways.http.gateway import HttpGateway


class Asked:
    """A client of one node's HTTP."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        world: Any = cluster.client(number).world
        self.peer = HttpPeer(world, HttpGateway(cluster.nodes[number], LOOPBACK))

    def begin(self, method: str, target: str, body: Any = None, **headers: str) -> None:
        self.peer.give(request(method, target, body, **headers))

    def answer(self, patience_ms: int = 20_000) -> Answer:
        found: list[Answer] = []

        def came() -> bool:
            if self.peer.connection.bug is not None and not isinstance(self.peer.connection.bug, Goodbye):
                raise self.peer.connection.bug
            self.peer._collect()
            found.extend(self.peer.answers())
            return bool(found)

        self.cluster.until(came, patience_ms)
        (answer,) = found
        return answer

    def ask(self, method: str, target: str, body: Any = None, **headers: str) -> Answer:
        self.begin(method, target, body, **headers)
        return self.answer()


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3)
    cluster.until(lambda: all(node.serving for node in cluster.nodes.values()))
    cluster.until(lambda: all(len(node.image.brokers) == 3 for node in cluster.nodes.values()))
    return cluster


def create(cluster: Cluster, topic: str, partitions: int = 3, replicas: int = 3) -> None:
    from broker_world import part

    asked = part("CreateTopics", "CreatableTopic", topic, partitions, replicas)
    peer = cluster.client(1)
    peer.send("CreateTopics", topics=[asked], timeout_ms=5000)
    cluster.until(lambda: peer.connection.outbox)
    (made,) = peer.reply().topics
    assert made.error_code == 0
    cluster.until(lambda: all(leaders(cluster, number, topic) for number in cluster.nodes))


def leaders(cluster: Cluster, number: int, topic: str) -> list[int]:
    """As a node knows them; empty if it does not know all of them."""
    found = cluster.nodes[number].image.topics.get(topic)
    if found is None or any(partition.leader < 0 for partition in found.partitions):
        return []
    return [partition.leader for partition in found.partitions]


def values_of(answer: Answer) -> list[str]:
    return [record["value"] for record in answer.json()["records"]]


def test_any_node_writes_to_and_reads_from_every_partition(cluster: Cluster) -> None:
    create(cluster, "t")
    assert sorted(leaders(cluster, 1, "t")) == [1, 2, 3]
    records = [{"value": f"in {index}", "partition": index} for index in range(3)]
    for number in cluster.nodes:
        asked = Asked(cluster, number)
        answer = asked.ask("POST", "/v1/topics/t/produce", {"records": records})
        assert answer.status == 200
        assert [each["offset"] for each in answer.json()["offsets"]] == [number - 1] * 3
        for index in range(3):
            found = asked.ask("GET", f"/v1/topics/t/records?partition={index}&offset=earliest")
            assert values_of(found) == [f"in {index}"] * number


def test_who_waits_at_another_node_gets_what_comes(cluster: Cluster) -> None:
    create(cluster, "t", 1)
    leader = leaders(cluster, 1, "t")[0]
    others = [number for number in cluster.nodes if number != leader]
    waiting = [Asked(cluster, others[0]) for _ in range(20)]  # more than there are channels
    for each in waiting:
        each.begin("GET", "/v1/topics/t/records?wait=20000")
    cluster.pass_time(3_000)
    assert Asked(cluster, others[1]).ask("POST", "/v1/topics/t/produce", {"records": [{"value": "news"}]}).status == 200
    for each in waiting:
        assert values_of(each.answer()) == ["news"]


def test_a_stream_has_partitions_of_all_nodes_and_outlives_a_leader(cluster: Cluster) -> None:
    create(cluster, "t")
    asked = Asked(cluster, 1)
    asked.begin("GET", "/v1/topics/t/stream?offset=earliest")

    def came(*wanted: str) -> Any:
        def is_here() -> bool:
            asked.peer._collect()
            if asked.peer.connection.awaits_sent:
                asked.peer.connection.sent()
            return all(f'"value":"{each}"'.encode() in asked.peer.out for each in wanted)

        return is_here

    def write(number: int, word: str) -> None:
        records = [{"value": f"{word} {index}", "partition": index} for index in range(3)]
        answer = Asked(cluster, number).ask("POST", "/v1/topics/t/produce", {"records": records}, idempotency_key=word)
        assert answer.status == 200
        assert all("offset" in each for each in answer.json()["offsets"])

    write(2, "one")
    cluster.until(came("one 0", "one 1", "one 2"))
    cluster.kill(3)
    write(2, "two")
    cluster.until(came("two 0", "two 1", "two 2"))
    assert b"id: 0:2,1:2,2:2\n" in asked.peer.out
    assert asked.peer.out.count(b"id: ") == 6
    assert b"event: error" not in asked.peer.out


def test_a_leader_that_dies_is_replaced_within_the_time_of_a_request(cluster: Cluster) -> None:
    create(cluster, "t", 1)
    leader = leaders(cluster, 1, "t")[0]
    asked = Asked(cluster, next(number for number in cluster.nodes if number != leader))
    assert asked.ask("POST", "/v1/topics/t/produce", {"records": [{"value": "before"}]}).status == 200
    cluster.kill(leader)
    asked.begin("GET", "/v1/topics/t/records?offset=0")
    assert values_of(asked.answer()) == ["before"]
    answer = asked.ask("POST", "/v1/topics/t/produce", {"records": [{"value": "after"}]})
    assert answer.status == 200
    assert values_of(asked.ask("GET", "/v1/topics/t/records?offset=0")) == ["before", "after"]


def test_a_leader_that_does_not_answer_may_have_written(cluster: Cluster) -> None:
    """The node does not guess: it says that nobody knows, and that the client may try again."""
    create(cluster, "t", 1)
    leader = leaders(cluster, 1, "t")[0]
    asked = Asked(cluster, next(number for number in cluster.nodes if number != leader))
    assert asked.ask("POST", "/v1/topics/t/produce", {"records": [{"value": "before"}]}).status == 200
    cluster.slow_syncs.add(leader)
    asked.begin("POST", "/v1/topics/t/produce", {"records": [{"value": "perhaps"}]})
    cluster.settle()
    cluster.kill(leader)
    answer = asked.answer()
    assert (answer.status, answer.code) == (503, "leader_lost")
    assert answer.json()["retryable"] is True


@pytest.mark.parametrize("replicated", [True, False])
def test_a_write_with_a_key_outlives_its_leader(cluster: Cluster, replicated: bool) -> None:
    """The leader dies before it answers, with the batch on other nodes or without: it is written once, the request is
    answered, and whoever sends it again hears the same, also from another node."""
    create(cluster, "t", 1)
    leader = leaders(cluster, 1, "t")[0]
    one, other = (Asked(cluster, number) for number in cluster.nodes if number != leader)
    write = ("POST", "/v1/topics/t/produce", {"records": [{"value": "perhaps"}]})
    assert one.ask("POST", "/v1/topics/t/produce", {"records": [{"value": "before"}]}).status == 200
    if replicated:
        cluster.slow_syncs.add(leader)  # its followers have it, and it has not said so
    one.begin(*write, idempotency_key="a")
    followers = [number for number in cluster.nodes if number != leader]
    if replicated:
        cluster.until(lambda: all(cluster.copy(number, "t").log.end_offset == 2 for number in followers))
    cluster.kill(leader)
    cluster.slow_syncs.clear()
    assert [cluster.copy(number, "t").log.end_offset for number in followers] == [2 if replicated else 1] * 2
    first = one.answer()
    assert first.status == 200
    assert first.json() == {"offsets": [{"partition": 0, "offset": 1}]}
    for asked in (one, other):
        assert asked.ask(*write, idempotency_key="a").body == first.body
    cluster.restart(leader)
    cluster.until(lambda: cluster.nodes[leader].serving)
    for asked in (one, other, Asked(cluster, leader)):
        assert asked.ask(*write, idempotency_key="a").body == first.body
        assert values_of(asked.ask("GET", "/v1/topics/t/records?offset=0")) == ["before", "perhaps"]


def test_without_a_leader_a_request_is_refused_in_time(cluster: Cluster) -> None:
    create(cluster, "t", 3, 1)
    victim = 3
    index = leaders(cluster, 1, "t").index(victim)
    cluster.kill(victim)
    asked = Asked(cluster, 1)
    cluster.until(lambda: cluster.nodes[1].image.brokers[victim].fenced)
    for method, target, body in (
        ("POST", "/v1/topics/t/produce", {"records": [{"value": "v", "partition": index}]}),
        ("GET", f"/v1/topics/t/records?partition={index}", None),
    ):
        answer = asked.ask(method, target, body)
        assert (answer.status, answer.code) == (503, "no_leader")
        assert answer.headers["retry-after"] == "1"
    some = [{"value": "v", "partition": index}, {"value": "v", "partition": (index + 1) % 3}]
    answer = asked.ask("POST", "/v1/topics/t/produce", {"records": some})
    assert answer.status == 200
    assert [each.get("error", {}).get("code") for each in answer.json()["offsets"]] == ["no_leader", None]


def test_whether_a_node_may_stop(cluster: Cluster) -> None:
    create(cluster, "t")
    asked = Asked(cluster, 1)
    answer = asked.ask("GET", "/v1/node/safe-to-stop")
    assert (answer.status, answer.json()["safe"]) == (200, True), answer
    cluster.kill(2)
    cluster.until(lambda: cluster.nodes[1].image.brokers[2].fenced)
    cluster.pass_time(10_000)
    answer = asked.ask("GET", "/v1/node/safe-to-stop")
    assert answer.status == 409
    assert "1 of 3 voters would be left; 2 are a majority" in answer.json()["reasons"]
    create(cluster, "alone", 3, 1)
    answer = asked.ask("GET", "/v1/node/safe-to-stop")
    assert any("min.insync.replicas: alone-" in reason for reason in answer.json()["reasons"]), answer


def test_a_node_is_ready_when_the_cluster_has_taken_it_in(cluster: Cluster) -> None:
    assert Asked(cluster, 2).ask("GET", "/readyz").json() == {"ready": True, "node": 2, "reasons": []}
    cluster.kill(2)
    cluster.until(lambda: cluster.nodes[1].image.brokers[2].fenced)
    cluster.restart(2)
    asked = Asked(cluster, 2)
    asked.begin("GET", "/readyz")
    (answer,) = asked.peer.answers()
    assert answer.status == 503
    assert answer.json()["reasons"]
    asked.begin("GET", "/v1/topics")
    (answer,) = asked.peer.answers()
    assert (answer.status, answer.code) == (503, "starting")
    cluster.until(lambda: cluster.nodes[2].serving and not cluster.nodes[2].image.brokers[2].fenced)
    assert asked.ask("GET", "/readyz").status == 200
