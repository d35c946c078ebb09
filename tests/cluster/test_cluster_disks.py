"""One node of three on a bad disk: full, or with failing syncs. The others go on, nothing acknowledged is lost."""

from pathlib import Path

import pytest
from loaded import loaded
from replica_files import await_in_sync

from disk_faults import ext4_volume, failing_syncs, fill, small_file_system
from skidway.testing import Cluster

VICTIM = 2
MEGABYTES = 48


def test_a_full_disk_on_one_node_stops_nobody_and_heals(tmp_path: Path, topic: str) -> None:
    (tmp_path / "nodes").mkdir()
    with (
        small_file_system(tmp_path / "nodes" / f"node-{VICTIM}", MEGABYTES) as volume,
        Cluster(3, data_dir=tmp_path / "nodes") as cluster,
        loaded(cluster, topic) as load,
    ):
        filler = fill(volume)
        load.goes_on(600)
        filler.unlink()
        load.goes_on(600)
        filler = fill(volume)
        cluster.kill(VICTIM)
        filler.unlink()
        cluster.start(VICTIM)
        await_in_sync(cluster, load.places)


def test_a_disk_that_turns_read_only_under_one_node_stops_nobody(tmp_path: Path, topic: str) -> None:
    nodes = tmp_path / "nodes"
    with (
        ext4_volume(nodes / f"node-{VICTIM}", MEGABYTES) as volume,
        Cluster(3, data_dir=nodes) as cluster,
        loaded(cluster, topic) as load,
    ):
        volume.turn_read_only()
        load.goes_on(600)
        assert "accepts no more writes until a restart" in cluster[VICTIM].output
        cluster.kill(VICTIM)
        volume.repair()
        (cluster[VICTIM].data_dir / "last-run").unlink()
        cluster.start(VICTIM)
        await_in_sync(cluster, load.places)


@pytest.mark.parametrize("flush", ["sync", pytest.param("os", marks=pytest.mark.chaos)])
def test_failing_syncs_on_one_node_stop_nobody(tmp_path: Path, topic: str, flush: str) -> None:
    with Cluster(3, data_dir=tmp_path) as cluster, loaded(cluster, topic, flush=flush) as load:
        with failing_syncs(cluster[VICTIM], first=2):
            load.goes_on(600)
        cluster.kill(VICTIM)
        load.goes_on()
        cluster.start(VICTIM)
        await_in_sync(cluster, load.places)
