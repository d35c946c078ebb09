"""What the commands say while a majority of the voters is down."""

import json

import pytest
from typer.testing import CliRunner

from skidway.cli import cluster as cluster_command
from skidway.cli import topic as topic_command
from skidway.client.admin import Admin
from skidway.client.cluster import Cluster as Client
from skidway.testing import Cluster

pytestmark = pytest.mark.xdist_group("cluster")  # never two clusters at once on few cores

ASKS = "are a majority of the voters up? `skidway cluster describe` shows"


@pytest.mark.skidway(flush="os")
def test_one_of_three_voters_is_left(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with Client(cluster.bootstrap) as client:
        Admin(client).create_topic("orders", partitions=2, replication=3)
    cluster.await_in_sync("orders")
    cluster.kill(2, 3)
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", cluster[1].bootstrap)

    shown = CliRunner().invoke(cluster_command.app, ["describe", "--timeout", "2"])
    assert shown.exit_code == 0, shown.output
    assert "no controller: a majority of the voters is not reachable" in shown.output
    states = [line.split(None, 4)[4].rsplit(None, 2)[0] for line in shown.output.splitlines()[2:5]]
    assert states == ["answers", "no answer", "no answer"]
    document = json.loads(CliRunner().invoke(cluster_command.app, ["describe", "--json", "--timeout", "2"]).stdout)
    assert (document["controller"], document["quorum"]) == (None, None)
    assert [(node["node"], node["answers"], node["replicas"]) for node in document["nodes"]] == [
        (1, True, 2),
        (2, False, 2),
        (3, False, 2),
    ]
    assert document["partitions"] >= 2

    for app, words in [
        (topic_command.app, ["create", "more"]),
        (topic_command.app, ["delete", "orders", "--yes"]),
        (topic_command.app, ["reassign", "orders", "-p", "0=1"]),
        (cluster_command.app, ["add-voter", "4"]),
    ]:
        ended = CliRunner().invoke(app, [*words, "--timeout", "1"])
        assert ended.exit_code == 1, ended.output
        assert "no controller answered within 1 s" in ended.output, words
        assert ASKS in ended.output

    # It waits longer than the node looks for a controller: then the node itself says that there is none.
    ended = CliRunner().invoke(topic_command.app, ["alter", "orders", "-c", "retention.ms=1000", "--timeout", "20"])
    assert (ended.exit_code, ASKS in ended.output) == (1, True), ended.output
