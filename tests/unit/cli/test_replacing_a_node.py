"""A machine is gone for good and another takes its place, step by step as the guide says."""

import json
from typing import Any

import pytest
from confluent_kafka import Producer
from typer.testing import CliRunner

from skidway.cli.commands import cluster as commands
from skidway.cli.commands import topic
from skidway.testing import Cluster
from waiting import eventually

pytestmark = pytest.mark.xdist_group("cluster")  # never two clusters at once on few cores

APPS = {"cluster": commands.app, "topic": topic.app}


def skidway(command: str, *words: str) -> str:
    ended = CliRunner().invoke(APPS[command], list(words))
    assert ended.exit_code == 0, ended.output
    return ended.output


def described() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(skidway("cluster", "describe", "--json"))
    return document


def voters() -> set[int]:
    """Nobody while no controller is known."""
    quorum = described()["quorum"] or {"members": []}
    return {member["node"] for member in quorum["members"] if member["votes"]}


@pytest.mark.skidway(nodes=4, voters=3, flush="os", node_settings={4: {"roles": "broker,controller"}})
def test_a_node_that_died_is_replaced(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", cluster.bootstrap)
    skidway("topic", "create", "orders", "-p", "6", "-r", "3", "-c", "min.insync.replicas=2")
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    refused: list[object] = []

    def note(error: object, _: object) -> None:
        if error is not None:
            refused.append(error)

    for number in range(1_000):
        producer.produce("orders", b"%d" % number, callback=note)
    dead = cluster.controller()
    cluster.kill(dead)
    eventually(lambda: next(node for node in described()["nodes"] if node["node"] == dead)["fenced"])
    eventually(lambda: voters() == {1, 2, 3})

    skidway("cluster", "remove-voter", str(dead))
    skidway("cluster", "add-voter", "4")
    eventually(lambda: voters() == {1, 2, 3, 4} - {dead})
    assert "still a voter" not in skidway("cluster", "drain", str(dead))
    # The node that is asked learns what the controller has decided a moment later.
    eventually(lambda: described()["under_replicated"] == [])
    assert "still a voter" not in skidway("cluster", "unregister", str(dead))
    left = [node for node in (1, 2, 3, 4) if node != dead]
    eventually(lambda: [node["node"] for node in described()["nodes"]] == left)
    assert producer.flush(60) == 0
    assert refused == []

    # It counts now: with one more gone, the rest is still a majority.
    cluster.kill(next(node for node in cluster.running if node != 4))
    producer.produce("orders", b"one more")
    assert producer.flush(60) == 0
    assert cluster.controller() in cluster.running
