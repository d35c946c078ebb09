"""What the log of a real cluster says to whoever reads it after an accident."""

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster as Client
from skidway.cli.commands import cluster as commands
from skidway.testing import Cluster
from waiting import eventually


def said(cluster: Cluster, node: int, *words: str) -> bool:
    return any(all(word in line for word in words) for line in cluster[node].output.splitlines())


@pytest.fixture
def quiet() -> Iterator[Cluster]:
    """A cluster of its own: beside the topics of other tests, a line about many partitions names only a few."""
    cluster = Cluster(3)
    try:
        yield cluster.start()
    finally:
        cluster.close()


def test_after_a_kill_the_controller_says_who_is_gone_and_who_leads(quiet: Cluster, topic: str) -> None:
    cluster = quiet
    with Client(cluster.bootstrap) as client:
        Admin(client).create_topic(topic, partitions=3, replication=3)
    controller = cluster.controller()
    assert eventually(lambda: said(cluster, controller, f"topic {topic} created: 3 partitions, 3 replicas"))
    victim = next(node for node in cluster.running if node != controller)
    led = next(index for index in range(3) if cluster.leader_of(topic, index) == victim)
    cluster.kill(victim)
    try:
        assert eventually(lambda: said(cluster, controller, "WARNING", f"broker {victim} fenced: no heartbeat"))
        assert eventually(lambda: said(cluster, controller, "elected", f"{topic}-{led} {victim} -> "))
        assert eventually(lambda: said(cluster, controller, f"voter {victim} has not been heard from"))
    finally:
        cluster.start(victim)
    assert eventually(lambda: said(cluster, controller, f"broker {victim} unfenced"))
    assert eventually(lambda: said(cluster, controller, f"voter {victim} is heard from again"))
    with Client(cluster.bootstrap) as client:
        Admin(client).delete_topic(topic)
    assert eventually(lambda: said(cluster, controller, f"topic {topic} deleted: 3 partitions"))


def skidway(*words: str) -> str:
    ended = CliRunner().invoke(commands.app, list(words))
    assert ended.exit_code == 0, ended.output
    return ended.output


def members() -> dict[int, dict[str, Any]]:
    quorum = json.loads(skidway("describe", "--json"))["quorum"] or {"members": []}
    return {member["node"]: member for member in quorum["members"]}


def test_a_voter_whose_directory_was_emptied(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not vote any more. It says so, the controller says so, `describe` says so and how to mend it."""
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", cluster.bootstrap)
    eventually(lambda: all(member["end_offset"] >= 0 for member in members().values()) and len(members()) == 3)
    controller = cluster.controller()
    wiped = next(node for node in cluster.running if node != controller)
    cluster.stop(wiped)
    shutil.rmtree(cluster[wiped].data_dir)
    cluster.start(wiped)
    assert eventually(lambda: said(cluster, wiped, "first start: no Skidway data in the data directory"))
    assert eventually(
        lambda: said(cluster, wiped, "WARNING", "this node's data directory is not the one it voted with")
    )
    assert eventually(
        lambda: said(cluster, controller, "WARNING", f"the data directory of voter {wiped} is not the one")
    )
    eventually(lambda: wiped in members() and members()[wiped]["wiped"])
    assert members()[wiped]["votes"] is False
    shown = skidway("describe")
    assert "no vote (wiped)" in shown
    assert f"skidway cluster remove-voter {wiped}\n" in shown

    skidway("remove-voter", str(wiped))
    eventually(lambda: CliRunner().invoke(commands.app, ["add-voter", str(wiped)]).exit_code == 0)
    eventually(lambda: members()[wiped]["votes"] and not members()[wiped]["wiped"])
    assert "wiped" not in skidway("describe")
