"""`skidway cluster` and `topic reassign` on a real cluster that `cluster start` runs."""

import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.cluster_admin import ClusterAdmin
from skidway.cli.commands import cluster, topic
from skidway.testing.free_ports import free_ports
from waiting import comes_true, eventually

pytestmark = pytest.mark.xdist_group("cluster")  # never two clusters at once on few cores

PROGRAM = [sys.executable, "-c", "import sys; from skidway.cli.main import main; sys.exit(main())"]
APPS = {"cluster": cluster.app, "topic": topic.app}
NODES = 4


class Started:
    """`skidway cluster start` in a process of its own, nobody watching."""

    def __init__(self, directory: Path, *words: str) -> None:
        self.output = directory.with_suffix(".txt")
        with self.output.open("wb") as output:
            command = [*PROGRAM, "cluster", "start", "--data-dir", str(directory), *words]
            self.process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)

    @property
    def said(self) -> str:
        return self.output.read_text()

    def all_up(self) -> bool:
        assert self.process.poll() is None, self.said
        return len(set(re.findall(r"^node (\d) at \S+: (?:up|controller)$", self.said, re.MULTILINE))) == NODES

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(120)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


def skidway(command: str, *words: str, fails: bool = False) -> str:
    ended = CliRunner().invoke(APPS[command], list(words))
    assert (ended.exit_code != 0) == fails, ended.output
    return ended.output


def described() -> dict[str, Any]:
    document: dict[str, Any] = json.loads(skidway("cluster", "describe", "--json"))
    return document


def soon(condition: Callable[[], object]) -> None:
    """A command is answered when the controller has decided; the node that is asked next may hear of it a moment later.

    So what was done is waited for before the next command makes its plan of what that node knows.
    """
    assert comes_true(condition), skidway("cluster", "describe")


def replicas(name: str) -> dict[int, list[int]]:
    (document,) = json.loads(skidway("topic", "describe", name, "--json"))
    return {entry["partition"]: entry["replicas"] for entry in document["partitions"]}


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, int]]:
    base_port = free_ports(NODES)
    bootstrap = ",".join(f"127.0.0.1:{base_port + number}" for number in range(NODES))
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bootstrap)
    yield tmp_path / "cluster", base_port
    # Whatever became of the test: nodes end with the process that started them.
    eventually(lambda: not _processes_of(tmp_path))


def _processes_of(directory: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if str(directory).encode() in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def test_the_life_of_a_cluster(directory: tuple[Path, int]) -> None:
    data_dir, base_port = directory
    started = Started(data_dir, "--nodes", str(NODES), "--base-port", str(base_port), "--set", "flush=os")
    try:
        assert comes_true(started.all_up, 60), started.said
        a_second_start_is_refused(data_dir)
        replicas_move()
        voters_change()
        a_broker_is_drained()
        a_node_dies(data_dir)
        assert started.stop() == 0, started.said
        assert "stopped; the data is in" in started.said
    finally:
        started.kill()
    assert not _processes_of(data_dir)

    # The same data later, but not on other ports: the metadata remembers where the voters are.
    said = skidway("cluster", "start", "--data-dir", str(data_dir), "--base-port", str(base_port + 1), fails=True)
    assert f"was made with --base-port {base_port}" in said
    again = Started(data_dir)
    try:
        assert comes_true(again.all_up, 60), again.said
        assert set(replicas("orders")) == {0, 1, 2, 3}
    finally:
        again.kill()  # and the nodes go with it: the fixture looks


def a_second_start_is_refused(data_dir: Path) -> None:
    said = skidway("cluster", "start", "--data-dir", str(data_dir), fails=True)
    assert "is already running; stop it first" in said


def replicas_move() -> None:
    skidway("topic", "create", "orders", "-p", "4", "-r", "2")
    soon(lambda: {each["node"]: each["fenced"] for each in described()["nodes"]} == dict.fromkeys((1, 2, 3, 4), False))
    soon(lambda: described()["under_replicated"] == [])
    assert "4 partitions would move" in skidway("topic", "reassign", "orders", "--replication", "3", "--dry-run")
    assert {len(each) for each in replicas("orders").values()} == {2}
    assert "every replica is where it should be" in skidway("topic", "reassign", "orders", "--replication", "3")
    soon(lambda: {len(each) for each in replicas("orders").values()} == {3})
    skidway("topic", "reassign", "orders", "--assign", "0=2,1", "--assign", "1=1,2")
    soon(lambda: (replicas("orders")[0], replicas("orders")[1]) == ([2, 1], [1, 2]))
    assert "no replica is moving" in skidway("topic", "reassign", "--status")
    assert "cancelled 0 moves" in skidway("topic", "reassign", "orders", "--cancel")
    a_topic_grows_onto_a_broker()
    mistakes_in_moves_are_told()


def a_topic_grows_onto_a_broker() -> None:
    """As the guide has it."""
    skidway("topic", "create", "grown", "-p", "6", "-r", "3")
    skidway("topic", "reassign", "grown", "--to", "1,2,3")
    soon(lambda: Counter(node for each in replicas("grown").values() for node in each) == {1: 6, 2: 6, 3: 6})
    assert Counter(each[0] for each in replicas("grown").values()) == {1: 2, 2: 2, 3: 2}
    assert "every replica is where it should be" in skidway("topic", "reassign", "grown", "--to", "1,2,3,4")
    soon(lambda: sorted(Counter(node for each in replicas("grown").values() for node in each).values()) == [4, 4, 5, 5])
    assert sorted(Counter(each[0] for each in replicas("grown").values()).values()) == [1, 1, 2, 2]
    assert "0 partitions would move" in skidway("topic", "reassign", "grown", "--to", "1,2,3,4", "--dry-run")


def mistakes_in_moves_are_told() -> None:
    for words, complaint in [
        (["orders", "--to", "1,9"], "there is no broker 9; the brokers are 1, 2, 3, 4"),
        (["orders", "--to", "1", "--replication", "2"], "needs a broker for each of its 2 replicas, and there are 1"),
        (["nothing", "--to", "1"], "topic nothing: there is no such topic"),
        (["orders", "--assign", "7=1"], "orders partition 7: there is no such partition"),
        (["orders", "--assign", "0=1,9"], "there is no broker 9; the brokers are 1, 2, 3, 4"),
        (["orders", "--assign", "0=1,1,2"], "broker 1 is named 2 times"),
        (["orders", "--assign", "0=1,2", "--assign", "0=2,1"], "partition 0 was given replicas already"),
        (["orders", "--assign", "x"], "expected PARTITION=BROKER,BROKER"),
        (["orders"], "expected one of: --to and/or --replication"),
        (["--to", "1"], "which topics?"),
        (["orders", "--cancel", "--status"], "expected one of: --to and/or --replication"),
        (["--status", "--dry-run"], "--status changes nothing: leave --dry-run out"),
        (["orders", "--cancel", "--no-wait"], "--cancel waits for nothing: leave --no-wait out"),
    ]:
        said = skidway("topic", "reassign", *words, fails=True)
        assert complaint in said
        assert "PARTITION  FROM" not in said  # no plan is shown that will not be carried out


def voters() -> set[int]:
    """None while no controller is known."""
    quorum = described()["quorum"] or {"members": []}
    return {member["node"] for member in quorum["members"] if member["votes"]}


def voters_change() -> None:
    """The leader of the quorum too: then another one leads, and knows it as an observer."""
    leader = described()["quorum"]["leader"]
    assert f"node {leader} is no longer a voter" in skidway("cluster", "remove-voter", str(leader))
    assert "it is not one of the voters" in skidway("cluster", "remove-voter", str(leader), fails=True)
    soon(lambda: described()["controller"] not in (None, leader))
    soon(lambda: voters() == {1, 2, 3, 4} - {leader})

    def back() -> bool:
        return CliRunner().invoke(cluster.app, ["add-voter", str(leader)]).exit_code == 0

    eventually(back)  # once it has caught up with the new leader
    soon(lambda: voters() == {1, 2, 3, 4})
    assert "does not follow the metadata" in skidway("cluster", "add-voter", "9", fails=True)


def a_broker_is_drained() -> None:
    skidway("topic", "create", "everywhere", "-p", "1", "-r", "4")
    assert "broker 4 cannot be drained: everywhere partition 0 needs a broker for each of its 4" in skidway(
        "cluster", "drain", "4", fails=True
    )
    skidway("topic", "delete", "everywhere", "--yes")
    soon(lambda: "everywhere" not in skidway("topic", "list", "--names"))
    before = replicas("orders"), replicas("grown")
    assert "partitions would move" in skidway("cluster", "drain", "4", "--dry-run")
    assert (state_of(4), (replicas("orders"), replicas("grown"))) == ("up", before)
    assert "broker 4 is empty" in skidway("cluster", "drain", "4")
    soon(lambda: not any(4 in each for name in ("orders", "grown") for each in replicas(name).values()))
    assert Counter(each[0] for each in replicas("grown").values()) == {1: 2, 2: 2, 3: 2}
    skidway("topic", "delete", "grown", "--yes")
    soon(lambda: "grown" not in skidway("topic", "list", "--names"))
    assert next(node for node in described()["nodes"] if node["node"] == 4)["replicas"] == 0
    assert "there is no broker 9" in skidway("cluster", "drain", "9", fails=True)
    a_drained_broker_stays_so()


def a_drained_broker_stays_so() -> None:
    """Until that is taken back, nothing goes there that nobody sends there."""
    soon(lambda: state_of(4) == "drained")
    skidway("topic", "create", "later", "-p", "8", "-r", "3")
    skidway("topic", "grow", "later", "12")
    skidway("topic", "reassign", "later", "--replication", "2")
    soon(lambda: {node for each in replicas("later").values() for node in each} == {1, 2, 3})
    said = skidway("topic", "create", "everywhere", "-r", "4", fails=True)
    assert "only 3 other broker(s) are registered; broker 4 is drained" in said
    said = skidway("topic", "reassign", "later", "--replication", "4", fails=True)
    assert "there are 3 to choose from, as broker 4 is drained" in said
    said = skidway("cluster", "drain", "3", fails=True)
    assert "broker 3 cannot be drained: orders partition 2 needs a broker for each of its 3 replicas" in said
    assert ", as broker 4 is drained; add a broker" in said
    assert state_of(3) == "up"  # what cannot be drained is not marked

    skidway("topic", "reassign", "later", "--assign", "0=4,1")
    soon(lambda: state_of(4) == "draining")
    assert "leave --no-wait out" in skidway("cluster", "drain", "4", "--undo", "--no-wait", fails=True)
    assert "broker 4 would accept new replicas again" in skidway("cluster", "drain", "4", "--undo", "--dry-run")
    assert state_of(4) == "draining"
    said = skidway("cluster", "drain", "4", "--undo")
    assert "broker 4 accepts new replicas again" in said
    assert "still move" not in said
    soon(lambda: state_of(4) == "up")
    assert "broker 4 is not drained" in skidway("cluster", "drain", "4", "--undo")
    skidway("topic", "create", "everywhere", "-r", "4")
    for name in ("later", "everywhere"):
        skidway("topic", "delete", name, "--yes")


def state_of(node: int) -> str:
    """As `describe` shows it."""
    found = re.search(
        rf"^ *{node}  .*  broker,controller +(\S.*?) +\d+ +\d+$", skidway("cluster", "describe"), re.MULTILINE
    )
    assert found, node
    return found[1]


def leaders(name: str) -> dict[int, int]:
    (document,) = json.loads(skidway("topic", "describe", name, "--json"))
    return {entry["partition"]: entry["leader"] for entry in document["partitions"]}


def a_node_dies(data_dir: Path) -> None:
    """What is shown of it, and that leads go back to where they belong."""
    wanted = {0: [3, 1, 2], 1: [3, 2, 1], 2: [1, 2, 3], 3: [2, 1, 3]}
    moves = [word for index, each in wanted.items() for word in ("--assign", f"{index}={','.join(map(str, each))}")]
    skidway("topic", "reassign", "orders", *moves)
    soon(lambda: replicas("orders") == wanted)
    skidway("cluster", "elect-leaders")
    soon(lambda: described()["under_replicated"] == [])
    soon(lambda: leaders("orders") == {index: each[0] for index, each in wanted.items()})
    (victim,) = _processes_of(data_dir / "node-3")
    os.kill(victim, signal.SIGKILL)

    def noticed() -> bool:
        lacking = described()["under_replicated"]
        return len(lacking) == 4 and all(entry["leader"] in (1, 2) for entry in lacking)

    eventually(noticed)
    assert "under-replicated: 4 of 4 partitions" in skidway("cluster", "describe")
    said = skidway("cluster", "elect-leaders", "--topic", "orders", fails=True)
    assert "new leaders: 0 of 2 partitions" in said
    a_move_cannot_end()

    # It will not come back: others take its replicas, and it is forgotten.
    assert "broker 1 is up; stop it first" in skidway("cluster", "unregister", "1", fails=True)
    assert "broker 3 has 4 replicas" in skidway("cluster", "unregister", "3", fails=True)
    said = skidway("cluster", "drain", "3")
    assert "broker 3 is empty" in said
    assert "node 3 is still a voter" in said
    soon(lambda: described()["under_replicated"] == [])
    soon(lambda: state_of(3) == "fenced, drained")
    said = skidway("cluster", "unregister", "3")
    assert "unregistered broker 3" in said
    assert "node 3 is still a voter: before you remove it for good, run skidway cluster remove-voter 3" in said
    soon(lambda: {node["node"] for node in described()["nodes"] if "broker" in node["roles"]} == {1, 2, 4})


def a_move_cannot_end() -> None:
    """Broker 3 is down: what moves to it stays under way."""
    skidway("topic", "create", "late", "-p", "1", "-r", "2")
    skidway("topic", "reassign", "late", "--assign", "0=1,4")
    soon(lambda: replicas("late")[0] == [1, 4])
    for words in (["--to", "1,3"], ["--assign", "0=1,3"]):
        said = skidway("topic", "reassign", "late", *words, fails=True)
        assert "broker 3 is not up: start it first, or leave it out" in said
    with Client(os.environ["SKIDWAY_BOOTSTRAP"]) as client:
        ClusterAdmin(client).reassign({("late", 0): [1, 3]})

    # Two replicas are wanted, although there are three meanwhile.
    assert "1 partition would move" in skidway("topic", "reassign", "late", "--to", "1,4", "--dry-run")
    # Broker 4 still has its replica, and nobody waits for ever until it is gone.
    said = skidway("cluster", "drain", "4", "--timeout", "5", fails=True)
    assert "1 partition not moved after 5 s; the move continues" in said
    assert "skidway topic reassign late --status shows them" in said
    soon(lambda: state_of(4) == "draining")

    said = skidway("topic", "reassign", "late", "--cancel", "--dry-run")
    assert "1 move would be cancelled" in said
    assert re.search(r"^late +0 .* 3 +4$", said, re.MULTILINE)
    assert re.search(r"^late +0 ", skidway("topic", "reassign", "--status"), re.MULTILINE)  # it goes on

    said = skidway("cluster", "drain", "4", "--undo")
    assert "still moving off broker 4: 1 partition; skidway topic reassign late --cancel" in said

    assert "cancelled 1 move" in skidway("topic", "reassign", "late", "--cancel")
    soon(lambda: replicas("late")[0] == [1, 4])
    skidway("topic", "delete", "late", "--yes")
    soon(lambda: "late" not in skidway("topic", "list", "--names"))
