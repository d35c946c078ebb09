"""What the commands say while a majority of the voters is down."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from skidway.blocking_client.addresses import parse_address
from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.cluster_admin import ClusterAdmin
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.errors import ClientError
from skidway.blocking_client.producer import Producer
from skidway.cli.commands import cluster as cluster_command
from skidway.cli.commands import consume as consume_command
from skidway.cli.commands import topic as topic_command
from skidway.testing import Cluster
from waiting import eventually

pytestmark = pytest.mark.xdist_group("cluster")  # never two clusters at once on few cores

TOPICS = ("orders", "teas")
ASKS = "are a majority of the voters up? `skidway cluster describe` shows who answers"


def describe(*flags: str) -> str:
    shown = CliRunner().invoke(cluster_command.app, ["describe", *flags, "--timeout", "3"])
    assert shown.exit_code == 0, shown.output
    return shown.stdout


def leave_one_voter(cluster: Cluster, *, leader: bool) -> int:
    """Kill two of three nodes that have two topics; the one that is left led the quorum or did not."""
    with Client(cluster.bootstrap) as client:
        for topic in TOPICS:
            Admin(client).create_topic(topic, partitions=3, replication=3)
        for partition in range(3):
            Producer(client).send_now("teas", b"oolong %d" % partition, partition=partition)
    for topic in TOPICS:
        cluster.await_in_sync(topic)
    controller = cluster.controller()
    left = controller if leader else controller % 3 + 1
    cluster.kill(*{1, 2, 3} - {left})
    return left


@pytest.fixture(scope="module")
def bereft() -> Iterator[tuple[int, str]]:
    """The one that is left, which did not lead, and its address. The tests that share it change nothing."""
    with Cluster(flush="os") as cluster:
        left = leave_one_voter(cluster, leader=False)
        yield left, cluster[left].bootstrap


@pytest.fixture
def left(bereft: tuple[int, str], monkeypatch: pytest.MonkeyPatch) -> int:
    """Commands ask it."""
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bereft[1])
    return bereft[0]


def test_the_voter_that_is_left_is_described(left: int) -> None:
    check_description(left)


@pytest.mark.skidway(flush="os")
def test_one_that_led_is_described_when_it_has_noticed(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    left = leave_one_voter(cluster, leader=True)
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", cluster[left].bootstrap)
    check_description(left)


def check_description(left: int) -> None:
    # A leader that has lost its followers leads on until it may no longer believe that they hear it.
    shown: list[str] = []

    def noticed() -> bool:
        shown.append(describe())
        return "no controller: a majority of the voters is not reachable" in shown[-1]

    eventually(noticed)
    assert "with the flags (or the file) they were started with" in shown[-1]
    states = {line.split()[0]: line.split(None, 4)[4].rsplit(None, 2)[0] for line in shown[-1].splitlines()[2:5]}
    assert states == {str(node): "answers" if node == left else "no answer" for node in (1, 2, 3)}
    document = json.loads(describe("--json"))
    assert (document["controller"], document["quorum"]) == (None, None)
    assert [(node["node"], node["answers"], node["replicas"]) for node in document["nodes"]] == [
        (node, node == left, 6) for node in (1, 2, 3)
    ]
    assert document["partitions"] >= 6


def test_what_the_voter_that_is_left_leads_can_be_read(left: int) -> None:
    shown = CliRunner().invoke(topic_command.app, ["describe", "teas", "--json"])
    assert shown.exit_code == 0, shown.output
    (served,) = (entry for entry in json.loads(shown.stdout)[0]["partitions"] if entry["leader"] == left)
    assert (served["end_offset"], served["unserved"]) == (1, None)
    shown = CliRunner().invoke(topic_command.app, ["describe", "teas"])
    assert shown.exit_code == 0, shown.output
    for node in {1, 2, 3} - {left}:
        assert f"is not served and not counted: its leader is node {node}: cannot reach" in shown.output
    read = CliRunner().invoke(consume_command.app, ["teas"])
    assert (read.exit_code, read.stdout) == (1, f"oolong {served['partition']}\n"), read.output
    assert read.stderr.count("is left out: its leader is node") == 2


@pytest.mark.usefixtures("left")
def test_commands_say_that_no_controller_answers() -> None:
    for app, words in [
        (topic_command.app, ["create", "more"]),
        (topic_command.app, ["delete", "orders", "--yes"]),
        (topic_command.app, ["reassign", "orders", "--assign", "0=1"]),
        (cluster_command.app, ["add-voter", "4"]),
        (cluster_command.app, ["remove-voter", "1"]),
        (cluster_command.app, ["elect-leaders"]),
        (cluster_command.app, ["drain", "1"]),
        (cluster_command.app, ["drain", "1", "--undo"]),
        (cluster_command.app, ["unregister", "1"]),
    ]:
        ended = CliRunner().invoke(app, [*words, "--timeout", "2"])
        assert ended.exit_code == 1, ended.output
        assert "no controller answered within 2 s" in ended.output, words
        assert ASKS in ended.output

    # Who names no time does not wait for a controller as long as for an answer.
    ended = CliRunner().invoke(topic_command.app, ["create", "more"])
    assert ended.exit_code == 1, ended.output
    assert "no controller answered within 5 s" in ended.output
    assert ASKS in ended.output

    # It waits longer than the node looks for a controller: then the node itself says that there is none.
    ended = CliRunner().invoke(topic_command.app, ["alter", "orders", "-c", "retention.ms=1000", "--timeout", "20"])
    assert (ended.exit_code, ASKS in ended.output) == (1, True), ended.output


@pytest.mark.skidway(nodes=4, voters=3, flush="os")
def test_a_broker_that_does_not_vote_says_so_too(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    controller = cluster.controller()
    cluster.kill(controller, controller % 3 + 1)
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", cluster[4].bootstrap)
    ended = CliRunner().invoke(topic_command.app, ["create", "more"])
    assert (ended.exit_code, "no controller answered within 5 s" in ended.output) == (1, True), ended.output


@pytest.mark.skidway(flush="os")
def test_a_change_of_controllers_is_waited_for(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", cluster.bootstrap)
    for topic in ("first", "second"):
        controller = cluster.controller()
        cluster.kill(controller)
        ended = CliRunner().invoke(topic_command.app, ["create", topic, "-r", "2"])
        assert ended.exit_code == 0, ended.output
        cluster.start(controller)


@pytest.mark.skidway(nodes=4, voters=3, flush="os")
def test_a_node_that_waits_for_the_others_is_passed_over(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes connections, and hangs up: the next address is asked, and if there is none, it is said why."""
    with Client(cluster.bootstrap) as client:
        Admin(client).create_topic("orders", partitions=1, replication=1)
        ClusterAdmin(client).reassign({("orders", 0): [4]})
        eventually(lambda: Admin(client).topic("orders").partitions[0].leader == 4)
        Producer(client).send_now("orders", b"coffee")
    cluster.kill(1, 2, 3)
    cluster.start(1, wait=False)
    waiting = cluster[1].bootstrap
    eventually(lambda: accepts(waiting))

    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", f"{waiting},{cluster[4].bootstrap}")
    assert "no controller: a majority of the voters is not reachable" in describe()
    ended = CliRunner().invoke(consume_command.app, ["orders"])
    assert (ended.exit_code, "coffee" in ended.stdout) == (0, True), ended.output
    ended = CliRunner().invoke(topic_command.app, ["create", "more", "--timeout", "3"])
    assert (ended.exit_code, "no controller answered within 3 s" in ended.output) == (1, True), ended.output

    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", f"{waiting},{cluster[2].bootstrap}")
    for app, words in [(cluster_command.app, ["describe"]), (topic_command.app, ["create", "more"])]:
        ended = CliRunner().invoke(app, words)
        assert ended.exit_code == 1, ended.output
        assert f"no node answers: {waiting} closes the connection; it may be no Kafka broker" in ended.output
        assert "or wait for a majority of the voters" in ended.output
        assert f"cannot reach {cluster[2].bootstrap}: connection refused" in ended.output


def accepts(bootstrap: str) -> bool:
    try:
        Connection(parse_address(bootstrap)).close()
    except ClientError:
        return False
    return True
