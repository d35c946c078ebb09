"""The directory of a cluster on this machine: what it remembers, and who may use it."""

from pathlib import Path

import pytest

from skidway.cli.local_cluster import CannotStart, LocalCluster
from skidway.cli.watching import watch


def make(directory: Path, nodes: int | None = None, base_port: int | None = None) -> LocalCluster:
    return LocalCluster(directory, nodes, base_port, [])


def test_a_new_directory_has_three_nodes(tmp_path: Path) -> None:
    cluster = make(tmp_path / "new" / "dir")
    assert cluster.plan.bootstrap == "127.0.0.1:9092,127.0.0.1:9093,127.0.0.1:9094"
    assert cluster.plan.voters == "1@127.0.0.1:9092,2@127.0.0.1:9093,3@127.0.0.1:9094"
    assert [node.state for node in cluster.nodes] == ["ended"] * 3
    cluster.close()


def test_it_remembers(tmp_path: Path) -> None:
    first = make(tmp_path, nodes=5, base_port=20_000)
    first.close()
    second = make(tmp_path)
    assert second.plan == first.plan
    second.close()
    moved = make(tmp_path, base_port=21_000)
    assert (moved.plan.nodes, moved.plan.base_port, moved.plan.cluster_id) == (5, 21_000, first.plan.cluster_id)
    moved.close()
    with pytest.raises(CannotStart, match="has 5 nodes, not 3; leave --nodes out, or name another --data-dir"):
        make(tmp_path, nodes=3)
    again = make(tmp_path, nodes=5)  # and the refused one has not kept it
    assert again.plan == moved.plan
    again.close()


def test_one_at_a_time(tmp_path: Path) -> None:
    cluster = make(tmp_path)
    with pytest.raises(CannotStart, match="runs already; stop it first"):
        make(tmp_path)
    cluster.close()
    make(tmp_path).close()


def test_mistakes_are_told(tmp_path: Path) -> None:
    with pytest.raises(CannotStart, match="3 ports from 65535 on: the last port there is, is 65535"):
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
    cluster = LocalCluster(tmp_path, 2, 20_000, ["no_such_setting=1"])
    cluster.start()
    assert watch(cluster) == 1
    cluster.close()
    shown, complaints = capsys.readouterr()
    assert "clients connect to 127.0.0.1:20000,127.0.0.1:20001" in shown
    assert "ended (2)" in shown
    for number in (1, 2):
        assert f"node {number} ended with exit code 2: skidway: unknown setting no_such_setting" in complaints
