"""One node of three on a bad disk: full, or one whose syncs fail. The others go on, and nothing acknowledged is lost."""

import contextlib
from pathlib import Path

import pytest
from disk_faults import failing_syncs, small_file_system
from loaded import loaded
from replica_files import await_in_sync

from skidway.testing import Cluster

VICTIM = 2
MEGABYTES = 48


def fill(volume: Path) -> Path:
    """Not a block is left."""
    filler = volume / "filler"
    with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))
    return filler


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


@pytest.mark.parametrize("flush", ["sync", "os"])
def test_failing_syncs_on_one_node_stop_nobody(tmp_path: Path, topic: str, flush: str) -> None:
    with Cluster(3, data_dir=tmp_path) as cluster, loaded(cluster, topic, flush=flush) as load:
        with failing_syncs(cluster[VICTIM], first=2):
            load.goes_on(600)
        cluster.kill(VICTIM)
        load.goes_on()
        cluster.start(VICTIM)
        await_in_sync(cluster, load.places)
