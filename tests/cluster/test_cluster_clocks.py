"""The wall clock of a node jumps by hours, forth and back: nobody is fenced for it and nothing is lost."""

from pathlib import Path

import pytest
from loaded import Load, loaded

from faked_clocks import MISSING, Clock, library
from skidway.testing import Cluster

HOUR_S = 3600
ATTEMPTS = 4


@pytest.mark.skipif(library() is None, reason=MISSING)
def test_clocks_that_jump_are_no_reason_to_stop(tmp_path: Path, topic: str) -> None:
    clocks = {node: Clock(tmp_path / f"clock-{node}") for node in (1, 2, 3)}
    settings = {node: {"environment": clock.environment} for node, clock in clocks.items()}
    with Cluster(3, node_settings=settings) as cluster, loaded(cluster, topic) as load:
        jumps = (5 * HOUR_S, -5 * HOUR_S, 0)
        # A busy machine may fence a node too, or change the controller, but not every time.
        assert any(nobody_minds(cluster, clocks, jumps, load) for _ in range(ATTEMPTS))
        assert "1970" not in cluster[1].output


def nobody_minds(cluster: Cluster, clocks: dict[int, Clock], jumps: tuple[int, ...], load: Load) -> bool:
    """Whether nobody is fenced and the controller stays while the clocks of two nodes jump."""
    cluster.await_members()
    controller = cluster.controller()
    fenced = times_fenced(cluster)
    for seconds in jumps:
        clocks[controller].jump(seconds)
        clocks[controller % 3 + 1].jump(-seconds // 2)
        load.goes_on(300)
    return cluster.controller() == controller and times_fenced(cluster) == fenced


def times_fenced(cluster: Cluster) -> int:
    return sum(broker.output.count("fenced") for broker in cluster.brokers.values())
