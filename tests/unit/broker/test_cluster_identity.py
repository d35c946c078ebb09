"""Which cluster a data directory belongs to: decided once, on its first use."""

from random import Random

import pytest

from skidway.broker.identity import WrongDataDirectory, load_identity
from skidway.broker.listeners import only_listener
from skidway.broker.settings import NodeSettings
from skidway.sim.world.disk import SimDisk


def settings(*voters: tuple[int, str, int], cluster_id: str | None = None) -> NodeSettings:
    return NodeSettings(
        node_id=1, listeners=only_listener("h", 1), data_dir="d", voters=list(voters), cluster_id=cluster_id
    )


def identity(disk: SimDisk, told: NodeSettings) -> str:
    return load_identity(disk, Random(1), told.node_id, told.cluster_id, told.initial_cluster_id).cluster_id


def test_nodes_with_the_same_voters_belong_together() -> None:
    one, two = (1, "a", 1), (2, "b", 2)
    assert identity(SimDisk(), settings(one, two)) == identity(SimDisk(), settings(two, one))
    assert identity(SimDisk(), settings(one, two)) != identity(SimDisk(), settings(one))
    assert identity(SimDisk(), settings(one, cluster_id="mine")) == "mine"


def test_other_voters_later_are_no_other_cluster() -> None:
    """A node whose list of voters was brought up to date starts as before; another id is still refused."""
    disk = SimDisk()
    first = identity(disk, settings((1, "a", 1), (2, "b", 2)))
    assert identity(disk, settings((1, "a", 1), (3, "c", 3))) == first
    assert identity(disk, settings()) == first
    with pytest.raises(WrongDataDirectory, match=f"belongs to cluster {first}, the configuration says another"):
        identity(disk, settings(cluster_id="another"))
