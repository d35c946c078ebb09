"""`skidway cluster add-voter` and `remove-voter`: who can become a voter, who cannot, what is said of few voters."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.cluster_admin import ClusterAdmin, Quorum
from skidway.cli.commands import cluster as commands
from skidway.errors import ErrorCode
from skidway.testing import Broker, Cluster
from skidway.wire.schema.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from waiting import eventually

pytestmark = pytest.mark.xdist_group("cluster")  # never two clusters at once on few cores


def skidway(*words: str, fails: bool = False) -> str:
    ended = CliRunner().invoke(commands.app, list(words))
    assert (ended.exit_code != 0) == fails, ended.output
    return ended.output


def members() -> dict[int, bool]:
    """Who follows the metadata, and whether it votes."""
    document: dict[str, Any] = json.loads(skidway("describe", "--json"))
    quorum = document["quorum"] or {"members": []}  # while no controller is known
    return {member["node"]: member["votes"] for member in quorum["members"]}


@pytest.mark.skidway(nodes=5, voters=3, network=False, flush="os", node_settings={4: {"roles": "controller"}})
def test_a_controller_that_is_no_broker_becomes_a_voter(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", cluster.bootstrap)
    eventually(lambda: members() == {1: True, 2: True, 3: True, 4: False, 5: False})
    mistakes_are_told(cluster)
    eventually(lambda: members() == {1: True, 2: True, 3: True, 4: False, 5: False})

    said = skidway("add-voter", "4", "--at", cluster[4].bootstrap)
    assert f"node 4 is a voter; the others reach it at {cluster[4].bootstrap}" in said
    eventually(lambda: members() == {1: True, 2: True, 3: True, 4: True, 5: False})
    assert "node 4 is a voter already" in skidway("add-voter", "4", fails=True)

    # It counts: with another one dead the rest still decides, and in the end it decides alone.
    dead = next(node for node in (1, 2, 3) if node != cluster.controller())
    cluster.kill(dead)
    with Client(cluster.bootstrap) as client:
        before = ClusterAdmin(client).describe_quorum()
    said = skidway("remove-voter", str(dead))
    assert "warning" not in said
    a_repeated_request_finds_its_work_done(cluster, before, dead)
    left = sorted({1, 2, 3} - {dead})
    assert "2 voters are left, and none of them may fail" in skidway("remove-voter", str(left[0]))
    assert "1 voter is left: while it is down there is no fail-over" in skidway("remove-voter", str(left[1]))
    eventually(lambda: [node for node, votes in members().items() if votes] == [4])
    assert cluster.controller() == 4


def a_repeated_request_finds_its_work_done(cluster: Cluster, before: Quorum, removed: int) -> None:
    """As after an answer that was lost: what was to be done is done, and that is no error."""
    with Client(cluster.bootstrap) as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterAdmin, "describe_quorum", lambda self: before)
        assert ClusterAdmin(client).remove_voter(removed) == len(before.voters) - 1


def mistakes_are_told(cluster: Cluster) -> None:
    assert "node 1 is a voter already" in skidway("add-voter", "1", fails=True)
    assert "give the address with --at HOST:PORT" in skidway("add-voter", "4", fails=True)
    said = skidway("add-voter", "4", "--at", cluster[5].bootstrap, fails=True)
    assert f"asked at {cluster[5].bootstrap}: this is broker 5, not 4" in said
    said = skidway("add-voter", "5", fails=True)
    assert "node 5 cannot become a voter: its roles are broker; restart it with the role controller too" in said
    with Broker(node_id=4) as stranger:
        said = skidway("add-voter", "4", "--at", stranger.bootstrap, fails=True)
        assert f"the node at {stranger.bootstrap} belongs to the cluster" in said
    whoever_leaves_the_command_out_is_told_too(cluster)


def whoever_leaves_the_command_out_is_told_too(cluster: Cluster) -> None:
    """The leader of the quorum asks the node itself."""
    with Client(cluster.bootstrap) as client:
        observers = {member.id: member.directory_id for member in ClusterAdmin(client).describe_quorum().observers}
        for node, at, complaint in [
            (5, cluster[5], "node 5 cannot be a voter: its roles are broker; restart it with the role controller too"),
            (4, cluster[5], f"node 4 is not at {cluster[5].bootstrap}: this is broker 5, not 4"),
        ]:
            host, _, port = at.bootstrap.rpartition(":")
            request = AddRaftVoterRequest(
                cluster_id=None,
                timeout_ms=5_000,
                voter_id=node,
                voter_directory_id=observers[node],
                listeners=[Listener(name="CONTROLLER", host=host, port=int(port))],
            )
            reply = client.ask_controller(request, AddRaftVoterResponse)
            assert (reply.error_code, reply.error_message) == (ErrorCode.INVALID_REQUEST, complaint)
