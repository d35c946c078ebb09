"""`skidway cluster health --http-at`: what nodes say of themselves, beside what Kafka's protocol tells."""

import json
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from threading import Thread
from typing import Any

import pytest
from typer.testing import CliRunner

from skidway.cli.commands.cluster import app
from skidway.testing import Broker, BrokerFailed, Cluster
from waiting import eventually


@pytest.fixture(scope="module")
def node() -> Iterator[Broker]:
    with Broker(http="127.0.0.1:0", flush="os") as started:
        yield started


def health(broker: Broker, *addresses: str, code: int) -> tuple[str, dict[str, Any]]:
    words = ["health", "-b", broker.bootstrap, "--timeout", "5", "--http-at", ",".join(addresses)]
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == code, ended.output
    document: dict[str, Any] = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert document["exit_code"] == code
    return ended.stdout, document


def problems(document: dict[str, Any]) -> dict[str, str]:
    return {problem["kind"]: problem["text"] for problem in document["problems"]}


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """Somebody who says this to whoever comes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            while True:
                try:
                    caller, _ = listening.accept()
                except OSError:
                    return
                with caller:
                    caller.recv(10_000)
                    caller.sendall(answer)

        server = Thread(target=serve, daemon=True)
        server.start()
        yield f"127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)
    server.join()


def test_a_node_that_lives_and_is_ready(node: Broker) -> None:
    for address in (node.http, node.http.removeprefix("http://"), f"{node.http}/"):
        text, document = health(node, address, code=0)
        assert text.startswith("healthy: 1 broker, ")
        assert text.endswith(", 1 of 1 node ready\n")
        at = node.http.removeprefix("http://")
        assert document["nodes"] == [{"address": at, "live": True, "ready": True, "node": 1, "reasons": []}]


def test_without_http_only_kafkas_protocol_is_asked(node: Broker) -> None:
    ended = CliRunner().invoke(app, ["health", "-b", node.bootstrap, "--json"])
    document = json.loads(ended.stdout)
    assert (ended.exit_code, document["nodes"], document["problems"]) == (0, [], [])


def test_nobody_answers_there(node: Broker) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{deaf.getsockname()[1]}"
        text, document = health(node, node.http, at, code=1)
    assert text.startswith("degraded: 1 broker, ")
    assert ", 1 of 2 nodes ready\n" in text
    assert problems(document) == {"http_silent": f"no node answers HTTP at {at}: connection refused"}
    assert [each["live"] for each in document["nodes"]] == [True, False]


def test_somebody_accepts_and_says_nothing(node: Broker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        at = f"127.0.0.1:{mute.getsockname()[1]}"
        words = ["health", "-b", node.bootstrap, "--timeout", "1", "--http-at", at]
        ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 1
    assert f"no node answers HTTP at {at}: no answer within 1 s" in ended.stdout


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "/livez answers 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok\n", "/readyz answers 200 and says nothing of a node"),
        (
            b'HTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"ready":true}',
            "/readyz answers 200 and says nothing of a node",
        ),
        (b"SSH-2.0-OpenSSH_9.9\r\n", "it does not speak HTTP"),
    ],
)
def test_strangers(node: Broker, answer: bytes, why: str) -> None:
    with answering(answer) as at:
        _, document = health(node, at, code=1)
    assert problems(document) == {"http_stranger": f"who answers at {at} is no node of Skidway: {why}"}


def test_the_port_of_kafkas_protocol_is_no_port_for_http(node: Broker) -> None:
    _, document = health(node, node.bootstrap, code=1)
    (problem,) = document["problems"]
    assert problem["kind"] in ("http_silent", "http_stranger")
    assert "serve --http" in problem["todo"]


def test_a_node_that_the_cluster_has_not_taken_in(node: Broker) -> None:
    with closing(Cluster(3, http="127.0.0.1:0", flush="os", network=False)) as cluster:
        alone = cluster.start(1, wait=False)[1]

        def address() -> str | None:
            try:
                return alone.http
            except BrokerFailed:
                return None  # it has not said so yet

        at = eventually(address).removeprefix("http://")
        text, document = health(node, at, code=1)
    assert problems(document)["not_ready"].startswith(f"node 1 at {at} is not ready for clients: ")
    assert "the broker is not registered" in text
    (told,) = document["nodes"]
    assert (told["live"], told["ready"], told["node"]) == (True, False, 1)
    assert "the broker is not registered" in told["reasons"]


@pytest.mark.parametrize("text", ["", "a:b", "127.0.0.1:70000", ",".join(["127.0.0.1"] * 101)])
def test_addresses_that_are_none_are_wrong_usage(node: Broker, text: str) -> None:
    ended = CliRunner().invoke(app, ["health", "-b", node.bootstrap, "--http-at", text])
    assert ended.exit_code == 2
    assert ended.stderr.startswith("error: ")
