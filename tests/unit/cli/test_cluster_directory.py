"""The directory of a cluster on this machine: what it remembers, and who may use it."""

import socket
from pathlib import Path

import pytest

from skidway.cli.local_cluster import CannotStart, LocalCluster, LocalNode, Plan
from skidway.cli.watching import watch
from skidway.testing.free_ports import free_ports


def make(directory: Path, nodes: int | None = None, base_port: int | None = None) -> LocalCluster:
    return LocalCluster(directory, nodes, base_port, [])


def remembered(directory: Path, nodes: int | None = None, base_port: int | None = None) -> Plan:
    """As if it had been started."""
    cluster = make(directory, nodes, base_port)
    cluster.prepare()
    cluster.close()
    return cluster.plan


def test_a_new_directory_has_three_nodes(tmp_path: Path) -> None:
    cluster = make(tmp_path / "new" / "dir")
    assert cluster.plan.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert cluster.plan.voters == "1@127.0.0.1:9092,2@127.0.0.1:9093,3@127.0.0.1:9094"
    assert [node.state for node in cluster.nodes] == ["ended"] * 3
    cluster.close()


def test_it_remembers(tmp_path: Path) -> None:
    first = remembered(tmp_path, nodes=5, base_port=20_000)
    assert remembered(tmp_path) == first
    moved = remembered(tmp_path, base_port=21_000)  # no node has run yet
    assert (moved.nodes, moved.base_port, moved.cluster_id) == (5, 21_000, first.cluster_id)
    with pytest.raises(CannotStart, match="has 5 nodes, not 3; leave --nodes out, or choose another --data-dir"):
        make(tmp_path, nodes=3)
    assert remembered(tmp_path, nodes=5) == moved  # and the refused one has not kept it


def test_nodes_stay_where_the_metadata_has_them(tmp_path: Path) -> None:
    first = remembered(tmp_path, base_port=20_000)
    (tmp_path / "node-1" / "meta").mkdir(parents=True)
    refusal = "was made with --base-port 20000, .* not at 21000; leave --base-port out, or choose another --data-dir"
    with pytest.raises(CannotStart, match=refusal):
        make(tmp_path, base_port=21_000)
    assert remembered(tmp_path, base_port=20_000) == remembered(tmp_path) == first


def test_a_start_that_cannot_be_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="unknown setting nope in flag --set"):
        LocalCluster(tmp_path / "new", 3, None, ["nope=1"])
    with pytest.raises(CannotStart, match="expected NAME=VALUE"):
        LocalCluster(tmp_path / "new", 3, None, ["nope"])
    assert not (tmp_path / "new").exists()

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        cluster = make(tmp_path, nodes=1, base_port=port)
        with pytest.raises(CannotStart, match=f":{port} is in use by process .*; .* choose another port: --base-port"):
            cluster.start()
        cluster.close()
    assert not (tmp_path / "cluster.json").exists()
    assert remembered(tmp_path, base_port=20_000).base_port == 20_000


def test_one_at_a_time(tmp_path: Path) -> None:
    cluster = make(tmp_path)
    with pytest.raises(CannotStart, match="is already running; stop it first"):
        make(tmp_path)
    cluster.close()
    make(tmp_path).close()


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="3 ports from 65535 on: the highest port is 65535"):
        make(tmp_path, base_port=65_535)
    (tmp_path / "cluster.json").write_text('{"nodes": 3}')
    with pytest.raises(CannotStart, match=r"cluster\.json cannot be read: .*base_port"):
        make(tmp_path)
    (tmp_path / "cluster.json").write_text('{"nodes": 3000, "base_port": 1, "cluster_id": "x"}')
    with pytest.raises(CannotStart, match="nodes is 3000; expected 1 to 50"):
        make(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(CannotStart, match="cannot use the directory"):
        make(tmp_path / "file")


@pytest.mark.parametrize("at_a_terminal", [True, False])
def test_what_is_shown_of_nodes_that_cannot_start(
    tmp_path: Path, at_a_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They all end at once, each with a line that says why."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: at_a_terminal)
    for number in (1, 2):
        (tmp_path / f"node-{number}").write_text("no directory")
    port = free_ports(2)
    cluster = LocalCluster(tmp_path, 2, port, [])
    cluster.start()
    assert watch(cluster) == 1
    cluster.close()
    shown, complaints = capsys.readouterr()
    assert f"clients connect to 127.0.0.1:{port},127.0.0.1:{port + 1}" in shown
    assert "ended (1)" in shown
    for number in (1, 2):
        assert f"node {number} ended with exit code 1: error: cannot use the data directory" in complaints


class EndsUnseen(LocalCluster):
    """Its nodes end between the last look at them and the question whether any of them runs."""

    @property
    def running(self) -> list[LocalNode]:
        for node in self.nodes:
            if node.process is not None:
                node.process.wait()
        return super().running


@pytest.mark.parametrize("at_a_terminal", [True, False])
def test_the_last_thing_shown_is_how_the_nodes_ended(
    tmp_path: Path, at_a_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: at_a_terminal)
    (tmp_path / "node-1").write_text("no directory")
    cluster = EndsUnseen(tmp_path, 1, free_ports(2), [])
    cluster.start()
    assert watch(cluster) == 1
    cluster.close()
    assert "ended (1)" in capsys.readouterr().out
