"""One damaged partition of `__consumer_offsets` takes its own groups away and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import BrokerError
from skidway.blocking_client.groups import Groups
from skidway.groups.placement import partition_of
from skidway.testing import Broker

LOST, KEPT = "billing", "shipping"


def spoil(partition: Path) -> None:
    (log,) = partition.glob("*.log")
    stored = bytearray(log.read_bytes())
    stored[-1] ^= 0xFF
    log.write_bytes(stored)


def cut(partition: Path) -> None:
    (log,) = partition.glob("*.log")
    log.write_bytes(log.read_bytes()[:40])


@pytest.mark.parametrize("damage", [spoil, cut])
def test_the_other_groups_go_on(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    with Broker(data_dir=tmp_path) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("orders")
            for group in (LOST, KEPT):
                Groups(cluster).commit(group, {("orders", 0): 0})
        broker.stop()
        broker.start()
        if damage is cut:
            broker.kill()  # after which the start looks at the files, and quarantines
        else:
            broker.stop()
        number = partition_of(LOST, 50)
        assert number != partition_of(KEPT, 50)
        damage(tmp_path / f"__consumer_offsets-{number}")
        broker.start()
        with Cluster(broker.bootstrap, timeout_ms=3_000) as hasty, Cluster(broker.bootstrap) as cluster:
            groups = Groups(cluster)
            assert groups.committed(KEPT)["orders", 0].offset == 0
            assert [one.id for one in groups.all()] == [KEPT]
            for _ in range(2):
                with pytest.raises(BrokerError, match="COORDINATOR_NOT_AVAILABLE"):
                    Groups(hasty).commit(LOST, {("orders", 0): 1})
            groups.commit(KEPT, {("orders", 0): 0})
        told = [line for line in broker.output.splitlines() if f"__consumer_offsets-{number}" in line]
        assert len([line for line in told if "cannot load groups" in line]) == 1
