"""Records that were deleted stay deleted when the process is killed right after the answer."""

import pytest
from real_load import connect, produce_once

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.offsets import EARLIEST, find_offsets
from skidway.testing import Broker

ROUNDS = 3


@pytest.mark.parametrize("flush", ["sync", "os"])
def test_a_kill_right_after_the_answer_undoes_nothing(flush: str) -> None:
    with Broker(flush=flush) as broker:
        with Cluster(broker.bootstrap) as cluster:
            Admin(cluster).create_topic("t", partitions=1)
        for number in range(1, ROUNDS + 1):
            with connect(broker) as connection:
                produce_once(connection, "t", 0, [b"x"] * 10, acks=-1)
            with Cluster(broker.bootstrap) as cluster:
                assert Admin(cluster).delete_records("t", {0: 10 * number - 3}) == {0: 10 * number - 3}
                broker.kill()
            broker.start()
            with Cluster(broker.bootstrap) as cluster:
                assert find_offsets(cluster, "t", {0: EARLIEST}) == {0: 10 * number - 3}
