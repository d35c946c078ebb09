"""The wall clock of a node jumps by hours, forth and back: nobody is fenced for it and nothing is lost."""

from pathlib import Path

import pytest
from cluster_clocks import MISSING, Clock, library
from loaded import loaded

from skidway.testing import Cluster
from waiting import eventually

HOUR_S = 3600


@pytest.mark.skipif(library() is None, reason=MISSING)
def test_clocks_that_jump_are_no_reason_to_stop(tmp_path: Path, topic: str) -> None:
    clocks = {node: Clock(tmp_path / f"clock-{node}") for node in (1, 2, 3)}
    settings = {node: {"environment": clock.environment} for node, clock in clocks.items()}
    with Cluster(3, node_settings=settings) as cluster, loaded(cluster, topic) as load:
        controller = cluster.controller()
        for seconds in (5 * HOUR_S, -5 * HOUR_S, 0):
            clocks[controller].jump(seconds)
            clocks[controller % 3 + 1].jump(-seconds // 2)
            load.goes_on(300)
        assert cluster.controller() == controller
        assert all("fenced" not in broker.output for broker in cluster.brokers.values())
        assert eventually(lambda: "1970" not in cluster[1].output)
