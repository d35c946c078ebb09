"""`skidway cluster health` on a cluster of three that loses one node, then its majority."""

import json
import socket
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.groups import Groups
from skidway.cli.commands import cluster as cluster_command
from skidway.cli.commands import doctor
from skidway.testing import Cluster
from waiting import eventually

pytestmark = pytest.mark.xdist_group("cluster")  # never two clusters at once on few cores


def health(*words: str) -> Result:
    return CliRunner().invoke(cluster_command.app, ["health", *words])


def report(*words: str) -> dict[str, Any]:
    ended = health("--json", *words)
    document: dict[str, Any] = json.loads(ended.stdout)
    assert document["exit_code"] == ended.exit_code
    return document


def examined_by_doctor() -> list[dict[str, Any]]:
    """What the doctor says of the cluster and its addresses, whatever it thinks of this machine."""
    ended = CliRunner().invoke(doctor.app, ["--json", "--listen", "127.0.0.1:0", "--timeout", "2"])
    checks: list[dict[str, Any]] = json.loads(ended.stdout)["checks"]
    return [check for check in checks if check["check"] in ("broker", "advertised", "cluster")]


def kinds(document: dict[str, Any]) -> set[str]:
    return {problem["kind"] for problem in document["problems"]}


@pytest.mark.skidway(flush="os")
def test_from_healthy_to_degraded_to_unavailable_and_back(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", cluster.bootstrap)
    with Client(cluster.bootstrap) as client:
        Admin(client).create_topic("orders", partitions=2, replication=3, configs={"min.insync.replicas": "3"})
        Admin(client).create_topic("teas", partitions=1, replication=3)
    cluster.await_in_sync("orders", "teas")

    well = health("--wait", "60")
    assert well.exit_code == 0, well.output
    assert well.stdout.startswith("healthy: 3 brokers, ")
    assert report()["problems"] == []

    # One of three: everything is served, and something is missing.
    gone = cluster.controller() % 3 + 1
    cluster.kill(gone)
    noticed = {"fenced_broker", "under_replicated", "below_min_isr"}
    eventually(lambda: noticed <= kinds(report()))
    document = eventually(lambda: found if (found := report())["status"] == "degraded" else None)
    assert document["controller"] in {1, 2, 3} - {gone}
    problems = {problem["kind"]: problem for problem in document["problems"]}
    assert problems["fenced_broker"]["nodes"] == [gone]
    assert problems["under_replicated"]["nodes"] == [gone]
    short = [(one["topic"], one["partition"]) for one in problems["below_min_isr"]["partitions"]]
    assert short == [("orders", 0), ("orders", 1)]
    ill = health()
    assert ill.exit_code == 1
    counted = f"3 brokers, 1 of them down (node {gone}), "
    assert ill.stdout.startswith(f"degraded: {counted}3 partitions, controller ")
    assert report()["brokers_down"] == [gone]
    described = CliRunner().invoke(cluster_command.app, ["describe"]).stdout
    assert f"  {counted}controller " in described.splitlines()[0]
    assert f"broker {gone} at {cluster[gone].bootstrap} is fenced" in ill.stdout
    assert f"if it is gone for good: skidway cluster drain {gone}" in ill.stdout
    assert f"if skidway cluster start runs it: skidway cluster restart-node {gone} --data-dir DIR" in ill.stdout
    assert "they reject messages with acks=all until" in ill.stdout
    assert "voter_silent" in eventually(lambda: kinds(found) if "voter_silent" in kinds(found := report()) else None)

    checked = examined_by_doctor()
    assert {check["state"] for check in checked} == {"ok", "warn"}
    assert any("is fenced" in check["text"] for check in checked if check["state"] == "warn")

    # Without a majority nobody decides any more.
    second = cluster.controller()
    cluster.kill(second)
    (left,) = {1, 2, 3} - {gone, second}
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", cluster[left].bootstrap)
    document = eventually(lambda: found if (found := report("--timeout", "2"))["exit_code"] == 2 else None)
    assert document["status"] == "unavailable"
    assert document["controller"] is None
    dead = health("--timeout", "2")
    assert dead.exit_code == 2
    lost = ", ".join(map(str, sorted((gone, second))))
    assert dead.stdout.startswith(f"unavailable: 3 brokers, 2 of them down (nodes {lost}), ")
    described = CliRunner().invoke(cluster_command.app, ["describe", "--timeout", "2"]).stdout
    assert f"  3 brokers, 2 of them down (nodes {lost}), no controller" in described.splitlines()[0]
    assert "there is no controller: a majority of the voters is not reachable" in dead.stdout
    assert "start the voters that are down" in dead.stdout

    assert any("there is no controller" in check["text"] for check in examined_by_doctor() if check["state"] == "fail")

    # All come back: --wait sees it.
    cluster.start(gone, second)
    back = health("--wait", "120")
    assert back.exit_code == 0, back.output


def test_nobody_there() -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        at = f"127.0.0.1:{deaf.getsockname()[1]}"
        ended = health("-b", at)
        assert ended.exit_code == 2
        assert ended.stdout.startswith("unavailable\n")
        assert "connection refused" in ended.stdout
        assert kinds(report("-b", at)) == {"unreachable"}


def test_a_single_broker_is_a_healthy_cluster(bootstrap: str) -> None:
    ended = health("-b", bootstrap)
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.startswith("healthy: 1 broker, ")


def test_partitions_of_internal_topics_are_counted_apart(bootstrap: str, name: str) -> None:
    with Client(bootstrap) as client:
        Admin(client).create_topic(name, partitions=2)
        Groups(client).commit(f"{name}-group", {(name, 0): 0})  # makes the broker create __consumer_offsets
        internal = sum(len(topic.partitions) for topic in Admin(client).topics() if topic.internal)
    assert internal > 0
    document = report("-b", bootstrap)
    assert document["internal_partitions"] == internal
    assert f" ({internal} internal), controller" in health("-b", bootstrap).stdout
    ended = CliRunner().invoke(cluster_command.app, ["describe", "-b", bootstrap])
    (line,) = [line for line in ended.stdout.splitlines() if line.startswith("all replicas in sync: ")]
    assert line.endswith(f" partitions ({internal} internal)")
    checked = CliRunner().invoke(doctor.app, ["--json", "--listen", "127.0.0.1:0", "-b", bootstrap])
    texts = [check["text"] for check in json.loads(checked.stdout)["checks"] if check["check"] == "cluster"]
    assert [f" ({internal} internal)" in text for text in texts] == [True]


def test_an_address_that_is_none_is_wrong_usage() -> None:
    ended = health("-b", "a:b")
    assert ended.exit_code == 2
    assert "the port must be a number" in ended.stderr
