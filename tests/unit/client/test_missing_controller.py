"""A node that looks for a controller in vain: how long a client waits for it, and what makes it wait on."""

import threading
from collections.abc import Iterator

import pytest
from scripted import ScriptedPeer, reply, versions

from skidway.blocking_client import controller_watch
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import BrokerError, NoController
from skidway.blocking_client.producer import Producer
from skidway.errors import ErrorCode
from skidway.wire.headers import RequestHeader
from skidway.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from skidway.wire.schema.describe_quorum import DescribeQuorumResponse, ResponsePartitionData, ResponseTopicData
from skidway.wire.schema.init_producer_id import InitProducerIdResponse
from skidway.wire.schema.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

API_VERSIONS, METADATA, DELETE_TOPICS, DESCRIBE_QUORUM = 18, 3, 20, 55
EVERYTHING = versions(k18=(0, 4), k3=(0, 13), k20=(1, 6), k55=(0, 2))
NO_QUORUM = versions(k18=(0, 4), k3=(0, 13), k20=(1, 6))
NOT_LEADING = ErrorCode.NOT_LEADER_OR_FOLLOWER


class Node:
    """Answers for the controller when it is told to: `looks` are its answers to looks, in order, each when taken."""

    def __init__(self) -> None:
        self.served = EVERYTHING
        self.looks: list[ErrorCode] = []
        self.looked = 0
        self.silent = threading.Event()
        """Set when the test is over: until then whoever waits for the controller waits."""
        self.controls = threading.Event()
        self.peer = ScriptedPeer(self._answer)

    def _answer(self, header: RequestHeader) -> bytes:
        if header.api_key == API_VERSIONS:
            return reply(header, self.served)
        if header.api_key == METADATA:
            here = MetadataResponseBroker(1, self.peer.address.host, self.peer.address.port)
            return reply(header, MetadataResponse(brokers=[here], controller_id=1))
        if header.api_key == DESCRIBE_QUORUM:
            return reply(header, self._look())
        self.controls.wait()
        return reply(header, DeleteTopicsResponse())

    def _look(self) -> DescribeQuorumResponse:
        self.looked += 1
        if not self.looks:
            self.silent.wait()
        error = self.looks.pop(0) if self.looks else NOT_LEADING
        if not self.looks:
            self.controls.set()
        partition = ResponsePartitionData(partition_index=0, error_code=error)
        return DescribeQuorumResponse(topics=[ResponseTopicData("__cluster_metadata", [partition])])


@pytest.fixture
def node(monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(controller_watch, "LOOK_EVERY_MS", 10)
    node = Node()
    yield node
    node.controls.set()
    node.silent.set()
    node.peer.close()


def in_a_hurry(node: Node, controller_wait_ms: int | None) -> Cluster:
    """Waits 0.3 s for an answer, but as long as it takes for the first one: the machine may be busy."""
    cluster = Cluster(str(node.peer.address), controller_wait_ms=controller_wait_ms)
    cluster.refresh([])
    if controller_wait_ms is None:
        cluster.controller_wait_ms = 300
    cluster.timeout_ms = 300
    return cluster


def delete(cluster: Cluster) -> DeleteTopicsResponse:
    return cluster.ask_controller(DeleteTopicsRequest(), DeleteTopicsResponse)


def test_a_node_that_finds_no_controller_is_not_waited_for(node: Node) -> None:
    with Cluster(str(node.peer.address), controller_wait_ms=200) as cluster:
        with pytest.raises(NoController, match=r"no controller answered within 0\.2 s"):
            delete(cluster)
        # What may still be answered there is nobody's: the next question has a connection of its own.
        node.controls.set()
        assert delete(cluster) == DeleteTopicsResponse()


def test_one_whose_controller_is_slow_is(node: Node) -> None:
    """There are so many looks that together they take longer than there may be no controller."""
    node.looks = [ErrorCode.NONE] * 250
    with Cluster(str(node.peer.address), controller_wait_ms=2_000) as cluster:
        assert delete(cluster) == DeleteTopicsResponse()
    assert node.looks == [], "all of them were taken"


def test_one_that_says_that_it_has_none_is_not(node: Node) -> None:
    node.looks = [NOT_LEADING] * 1_000
    with Cluster(str(node.peer.address), controller_wait_ms=200) as cluster, pytest.raises(NoController, match=r"0\.2"):
        delete(cluster)


def test_a_change_of_controllers_is_waited_for(node: Node) -> None:
    node.looks = [NOT_LEADING] * 10
    with Cluster(str(node.peer.address), controller_wait_ms=20_000) as cluster:
        assert delete(cluster) == DeleteTopicsResponse()
    assert node.looks == []


def test_nobody_waits_longer_than_for_an_answer(node: Node) -> None:
    node.looks = [ErrorCode.NONE] * 10_000
    with (
        in_a_hurry(node, 200) as cluster,
        pytest.raises(NoController, match=r"within 0\.3 s"),
    ):
        delete(cluster)


@pytest.mark.parametrize("told", ["the time", "no quorum"])
def test_who_is_told_how_long_or_cannot_look_waits_that_long(node: Node, told: str) -> None:
    node.served = NO_QUORUM if told == "no quorum" else EVERYTHING
    wait_ms = 100 if told == "no quorum" else None
    with (
        in_a_hurry(node, wait_ms) as cluster,
        pytest.raises(NoController, match=r"within 0\.3 s"),
    ):
        delete(cluster)
    assert node.looked == 0


def test_a_producer_is_told_who_gives_out_ids() -> None:
    def answer(header: RequestHeader) -> bytes:
        if header.api_key == API_VERSIONS:
            return reply(header, versions(k18=(0, 4), k3=(0, 13), k22=(0, 5)))
        if header.api_key == METADATA:
            here = MetadataResponseBroker(1, peer.address.host, peer.address.port)
            partition = MetadataResponsePartition(partition_index=0, leader_id=1, replica_nodes=[1], isr_nodes=[1])
            topic = MetadataResponseTopic(name="orders", partitions=[partition])
            return reply(header, MetadataResponse(brokers=[here], controller_id=1, topics=[topic]))
        return reply(header, InitProducerIdResponse(error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE))

    peer = ScriptedPeer(answer)
    with Cluster(str(peer.address)) as cluster:
        cluster.refresh(["orders"])  # on a busy machine this may take its time
        cluster.timeout_ms = 100
        reason = "asking for a producer id: no controller can be reached: are a majority"
        with pytest.raises(BrokerError, match=reason):
            Producer(cluster).send_now("orders", b"coffee")
    peer.close()
