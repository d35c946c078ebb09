"""`cluster restart-node`: one node of a cluster on this machine again, by the process that runs the cluster."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from waiting import eventually

pytestmark = pytest.mark.xdist_group("cluster")  # never two clusters at once on few cores
COMMAND = [sys.executable, "-c", "import sys; from skidway.cli.main import main; sys.exit(main())"]


def skidway(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], capture_output=True, text=True, timeout=120, check=False)


def free_base_port(count: int) -> int:
    for base in range(21_000, 32_000, 37):
        try:
            for port in range(base, base + count):
                with socket.socket() as probe:
                    probe.bind(("127.0.0.1", port))
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")


@pytest.fixture
def running(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    words = ["cluster", "start", "--nodes", "3", "--data-dir", str(tmp_path / "mine")]
    words += ["--base-port", str(free_base_port(3))]
    shown = (tmp_path / "shown").open("w")
    with shown, subprocess.Popen([*COMMAND, *words], stdout=shown, text=True) as cluster:
        try:
            eventually(lambda: all(state(tmp_path, node) in ("up", "controller") for node in (1, 2, 3)), 60)
            yield cluster
        finally:
            cluster.send_signal(signal.SIGTERM)
            cluster.wait(60)


def shown_lines(tmp_path: Path) -> list[str]:
    return (tmp_path / "shown").read_text().splitlines()


def state(tmp_path: Path, node: int) -> str:
    """What `cluster start` says of a node."""
    lines = [line for line in shown_lines(tmp_path) if line.startswith(f"node {node} at ")]
    return lines[-1].partition(": ")[2] if lines else ""


def pid_of(tmp_path: Path, node: int) -> int:
    return int((tmp_path / "mine" / f"node-{node}" / ".lock").read_text())


def test_a_node_that_died_and_one_that_runs(running: subprocess.Popen[str], tmp_path: Path) -> None:
    data = str(tmp_path / "mine")
    before = pid_of(tmp_path, 2)
    os.kill(before, signal.SIGKILL)
    eventually(lambda: state(tmp_path, 2).startswith("ended"))
    done = skidway("cluster", "restart-node", "2", "--data-dir", data)
    assert done.returncode == 0, done.stderr
    assert "node 2" in done.stdout
    assert pid_of(tmp_path, 2) != before
    eventually(lambda: state(tmp_path, 2) in ("up", "controller"))

    before = pid_of(tmp_path, 3)
    done = skidway("cluster", "restart-node", "3", "--data-dir", data)
    assert done.returncode == 0, done.stderr
    assert pid_of(tmp_path, 3) != before
    eventually(lambda: state(tmp_path, 3) in ("up", "controller"))

    refused = skidway("cluster", "restart-node", "4", "--data-dir", data)
    assert refused.returncode == 1
    assert "has no node 4; its nodes are 1 to 3" in refused.stderr


def test_a_mistyped_directory_starts_nothing(tmp_path: Path) -> None:
    done = skidway("cluster", "restart-node", "1", "--data-dir", str(tmp_path / "mien"))
    assert done.returncode == 1
    assert "there is no cluster in" in done.stderr
    assert not (tmp_path / "mien").exists()


def test_a_cluster_that_does_not_run_is_started_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"nodes": 3, "base_port": 9092, "cluster_id": "abc"}')
    done = skidway("cluster", "restart-node", "1", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "is not running: start it with skidway cluster start --data-dir" in done.stderr
    assert not (tmp_path / "node-1").exists()
