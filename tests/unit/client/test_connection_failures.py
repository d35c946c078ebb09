"""Peers that are old, broken, silent or no brokers at all: each ends in one sentence, never in a hang."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from scripted import Answer, ScriptedPeer, reply, versions

from skidway.blocking_client import cluster as cluster_module
from skidway.blocking_client.addresses import Address
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import (
    BadReply,
    ConnectionLost,
    NotReady,
    ReplyTimeout,
    Unreachable,
    Unsendable,
    Unsupported,
)
from skidway.errors import ErrorCode
from skidway.wire.headers import RequestHeader
from skidway.wire.schema.api_versions import ApiVersion, ApiVersionsResponse
from skidway.wire.schema.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
)

METADATA = 3
API_VERSIONS = 18
EVERYTHING = versions(k18=(0, 4), k3=(0, 13))
NOT_NOW = MetadataResponse(error_code=ErrorCode.BROKER_NOT_AVAILABLE)


@pytest.fixture
def peer() -> Iterator[Callable[[Answer], ScriptedPeer]]:
    opened: list[ScriptedPeer] = []

    def make(answer: Answer) -> ScriptedPeer:
        opened.append(ScriptedPeer(answer))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def after_versions(answer: Answer) -> Answer:
    return lambda header: reply(header, EVERYTHING) if header.api_key == API_VERSIONS else answer(header)


def test_the_highest_common_version_is_spoken(peer: Any) -> None:
    def answer(header: RequestHeader) -> bytes:
        if header.api_key == API_VERSIONS:
            return reply(header, versions(k18=(0, 4), k3=(2, 7)))
        return reply(header, MetadataResponse(cluster_id="old"))

    old = peer(answer)
    with Connection(old.address) as connection:
        assert connection.version(METADATA) == 7
        assert connection.call(MetadataRequest(topics=[]), MetadataResponse).cluster_id == "old"
    assert old.seen == [(API_VERSIONS, 4), (METADATA, 7)]


def test_a_broker_that_refuses_our_api_versions_is_asked_again_as_it_wishes(peer: Any) -> None:
    def answer(header: RequestHeader) -> bytes:
        if header.version > 2:
            refusal = ApiVersionsResponse(
                error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[ApiVersion(API_VERSIONS, 0, 2)]
            )
            return reply(header, refusal, version=0)
        return reply(header, versions(k18=(0, 2), k3=(0, 5)))

    old = peer(answer)
    with Connection(old.address) as connection:
        assert connection.served[METADATA] == (0, 5)
    assert old.seen == [(API_VERSIONS, 4), (API_VERSIONS, 2)]


def test_an_api_the_broker_does_not_serve(peer: Any) -> None:
    connection = Connection(peer(lambda header: reply(header, versions(k18=(0, 4)))).address)
    with pytest.raises(Unsupported, match="does not serve Metadata"):
        connection.call(MetadataRequest(), MetadataResponse)


def test_no_version_in_common(peer: Any) -> None:
    connection = Connection(peer(lambda header: reply(header, versions(k18=(0, 4), k3=(20, 30)))).address)
    with pytest.raises(Unsupported, match=r"serves Metadata 20-30, this client speaks 0-13"):
        connection.version(METADATA)


def test_nobody_listens() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # so that nobody else takes the port meanwhile
        port = deaf.getsockname()[1]
        with pytest.raises(Unreachable) as refused:
            Connection(Address("127.0.0.1", port))
    assert str(refused.value) == f"cannot reach 127.0.0.1:{port}: connection refused; is the broker running?"


def test_nobody_listens_on_any_of_several_addresses() -> None:
    with socket.socket() as one, socket.socket() as other:
        for deaf in (one, other):
            deaf.bind(("127.0.0.1", 0))
        at = [f"127.0.0.1:{deaf.getsockname()[1]}" for deaf in (one, other)]
        with Cluster(",".join(at)) as cluster, pytest.raises(Unreachable) as refused:
            cluster.any_broker()
    assert str(refused.value) == f"cannot reach {', '.join(at)}: connection refused; are the brokers running?"


def test_the_broker_hangs_up(peer: Any) -> None:
    connection = Connection(peer(after_versions(lambda header: None)).address)
    with pytest.raises(ConnectionLost, match="closed the connection"):
        connection.call(MetadataRequest(), MetadataResponse)
    assert connection.closed


def test_the_broker_says_nothing(peer: Any) -> None:
    silence = threading.Event()

    def waits(_: RequestHeader) -> None:
        silence.wait(60)

    connection = Connection(peer(after_versions(waits)).address)
    connection.reply_timeout_ms = 200
    began = time.monotonic()
    with pytest.raises(ReplyTimeout, match="did not answer in time"):
        connection.call(MetadataRequest(), MetadataResponse)
    assert time.monotonic() - began >= 0.2
    silence.set()
    assert connection.closed


def test_a_reply_above_the_bound_is_not_read(peer: Any) -> None:
    address = peer(after_versions(lambda header: bytes(5_000))).address
    connection = Connection(address, reply_bytes_max=4_000)
    with pytest.raises(BadReply, match="5000 bytes"):
        connection.call(MetadataRequest(), MetadataResponse)


@pytest.mark.parametrize(
    ("greeting", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "this is the port for HTTP and Amazon SQS; give the one for Kafka's"),
        (b"\x15\x03\x03\x00\x02\x02\x28\n\n", "is it a Kafka listener without TLS"),
    ],
)
def test_something_else_than_kafka_listens(greeting: bytes, told: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            accepted, _ = listener.accept()
            with accepted:
                accepted.recv(1000)
                accepted.sendall(greeting)

        threading.Thread(target=talk, daemon=True).start()
        with pytest.raises(BadReply, match=told):
            Connection(Address(*listener.getsockname()))


def test_an_answer_to_another_question(peer: Any) -> None:
    def confused(header: RequestHeader) -> bytes:
        return reply(header._replace(correlation_id=header.correlation_id + 7), MetadataResponse())

    connection = Connection(peer(after_versions(confused)).address)
    with pytest.raises(BadReply, match="answered request"):
        connection.call(MetadataRequest(), MetadataResponse)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_a_reply_cut_short(peer: Any, cut: int) -> None:
    answer = after_versions(lambda header: reply(header, MetadataResponse(cluster_id="a-long-enough-id"))[:-cut])
    with Connection(peer(answer).address) as connection, pytest.raises(BadReply, match="malformed"):
        connection.call(MetadataRequest(), MetadataResponse)


def test_a_request_that_does_not_fit_is_not_sent(peer: Callable[[Answer], ScriptedPeer]) -> None:
    """And the connection is good for the next one."""
    answering = peer(after_versions(lambda header: reply(header, MetadataResponse(cluster_id="c"))))
    connection = Connection(answering.address)
    endless = MetadataRequest(topics=[MetadataRequestTopic(name="x" * 40_000)])
    with pytest.raises(Unsendable, match="does not fit into Kafka's protocol"):
        connection.call(endless, MetadataResponse)
    assert connection.call(MetadataRequest(), MetadataResponse).cluster_id == "c"
    connection.close()


def test_whoever_hangs_up_is_passed_over(peer: Callable[[Answer], ScriptedPeer]) -> None:
    """As a node does that waits for a majority of the voters."""
    waiting = peer(after_versions(lambda header: None)).address
    unwilling = peer(after_versions(lambda header: reply(header, NOT_NOW))).address
    willing = peer(after_versions(lambda header: reply(header, MetadataResponse(cluster_id="c")))).address
    with Cluster(f"{waiting},{unwilling},{willing}") as cluster:
        assert cluster.refresh([]).cluster_id == "c"
        assert cluster.any_broker().address == willing


@pytest.fixture
def silent() -> Iterator[Address]:
    """Takes connections and never says a word, as a process that was stopped does."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Address(*listener.getsockname())


def test_whoever_is_silent_is_passed_over(
    peer: Callable[[Answer], ScriptedPeer], silent: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "HUNG_MS", 100)
    willing = peer(after_versions(lambda header: reply(header, MetadataResponse(cluster_id="c")))).address
    with Cluster(f"{silent},{willing}", timeout_ms=3_600_000) as cluster:
        assert cluster.refresh([]).cluster_id == "c"
        # Once it has answered it is waited for as long as ever.
        assert cluster.any_broker().reply_timeout_ms == 3_600_000


def test_a_controller_that_is_silent_is_asked_by_way_of_others(
    peer: Callable[[Answer], ScriptedPeer], silent: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "HUNG_MS", 100)
    hung = MetadataResponseBroker(node_id=1, host=silent.host, port=silent.port)
    told = MetadataResponse(brokers=[hung], controller_id=1)
    willing = peer(after_versions(lambda header: reply(header, told))).address
    with Cluster(str(willing), timeout_ms=3_600_000) as cluster:
        assert cluster.controller().address == willing


def test_who_is_slow_is_asked_again_when_nobody_else_answers(
    peer: Callable[[Answer], ScriptedPeer], silent: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_module, "HUNG_MS", 100)

    def slowly(header: RequestHeader) -> bytes:
        time.sleep(0.4)
        return reply(header, MetadataResponse(cluster_id="c"))

    slow = peer(after_versions(slowly)).address
    with Cluster(f"{slow},{silent}", timeout_ms=60_000) as cluster:
        assert cluster.refresh([]).cluster_id == "c"


@pytest.mark.parametrize("timeout_ms", [50, 400])
def test_all_are_silent(silent: Address, monkeypatch: pytest.MonkeyPatch, timeout_ms: int) -> None:
    """Whether there is time left to ask again or not."""
    monkeypatch.setattr(cluster_module, "HUNG_MS", 100)
    with Cluster(str(silent), timeout_ms=timeout_ms) as cluster, pytest.raises(ReplyTimeout):
        cluster.refresh([])
    with socket.create_server(("127.0.0.1", 0)) as listener:
        other = Address(*listener.getsockname())
        with Cluster(f"{silent},{other}", timeout_ms=timeout_ms) as cluster, pytest.raises(Unreachable) as failed:
            cluster.refresh([])
    assert f"{silent} did not answer in time; {other} did not answer in time" in str(failed.value)


def test_nobody_is_left_who_does_not_hang_up(peer: Callable[[Answer], ScriptedPeer]) -> None:
    waiting = [peer(after_versions(lambda header: None)).address for _ in range(2)]
    with Cluster(f"{waiting[0]},{waiting[1]}") as cluster, pytest.raises(NotReady) as refused:
        cluster.refresh([])
    assert f"{waiting[0]}, {waiting[1]} close the connection" in str(refused.value)
    assert "they may be no Kafka broker, want TLS, or wait for a majority of the voters" in str(refused.value)


def test_one_that_hangs_up_for_a_moment_is_waited_for(peer: Callable[[Answer], ScriptedPeer]) -> None:
    turns = iter([None, None, MetadataResponse(cluster_id="c"), MetadataResponse(cluster_id="c")])

    def start_slowly(header: RequestHeader) -> bytes | None:
        message = next(turns)
        return None if message is None else reply(header, message)

    with Cluster(str(peer(after_versions(start_slowly)).address)) as cluster:
        assert cluster.retrying(lambda: cluster.refresh([])).cluster_id == "c"
