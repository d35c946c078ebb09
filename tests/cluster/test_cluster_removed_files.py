"""Somebody removes files of a running node: it says so, another replica leads, and the copy is fetched again."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_calls import described
from loaded import Load, loaded
from replica_files import await_in_sync

from skidway.testing import Cluster
from waiting import eventually

PATIENCE_S = 60.0


def remove_the_active_segment(directory: Path) -> None:
    sorted(directory.glob("*.log"))[-1].unlink()


def replace_the_active_segment(directory: Path) -> None:
    """As a tool does that restores a backup: another file under the same name."""
    active = sorted(directory.glob("*.log"))[-1]
    copy = directory / "restored"
    copy.write_bytes(active.read_bytes()[:-1])
    copy.rename(active)


def remove_all_segments(directory: Path) -> None:
    for path in directory.glob("*.log"):
        path.unlink()


def remove_the_directory(directory: Path) -> None:
    """Moved away first: the running node may make a file in it while its files are removed one by one."""
    shutil.rmtree(directory.rename(directory.parents[1] / "removed-by-hand"))


@pytest.mark.parametrize(
    "damage",
    [
        remove_the_active_segment,
        remove_the_directory,
        pytest.param(replace_the_active_segment, marks=pytest.mark.chaos),
        pytest.param(remove_all_segments, marks=pytest.mark.chaos),
    ],
)
def test_a_running_replica_whose_files_are_removed_is_fetched_again(
    cluster: Cluster, topic: str, damage: Callable[[Path], None]
) -> None:
    with loaded(cluster, topic, partitions=1) as load:
        leader = described(cluster, topic, 0).leader
        damage_and_await(cluster, load, leader, damage)
        assert described(cluster, topic, 0).leader != leader, "another one leads"
        follower = next(node for node in cluster.running if node != described(cluster, topic, 0).leader)
        damage_and_await(cluster, load, follower, damage)
    # All that was acknowledged was read again, and the copies are equal.


def damage_and_await(cluster: Cluster, load: Load, node: int, damage: Callable[[Path], None]) -> None:
    said = cluster[node].output.count("another program changed its files")
    damage(cluster[node].data_dir / f"{load.topic}-0")
    assert eventually(lambda: cluster[node].output.count("another program changed its files") > said, PATIENCE_S), (
        cluster[node].output[-2000:]
    )
    load.goes_on()
    await_in_sync(cluster, load.places)
