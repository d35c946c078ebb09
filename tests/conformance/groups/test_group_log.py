"""What a broker's log says about groups: rebalances, and members that were not heard from in time."""

import subprocess
import sys

import pytest

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.testing import Broker
from waiting import eventually

MEMBER = """
import sys, confluent_kafka
settings = {"bootstrap.servers": sys.argv[1], "group.id": "watched", "group.protocol": sys.argv[2]}
if sys.argv[2] == "classic":
    settings |= {"session.timeout.ms": 1000, "heartbeat.interval.ms": 300}
consumer = confluent_kafka.Consumer(settings)
consumer.subscribe(["orders"])
while True:
    consumer.poll(0.1)
"""
SETTINGS = {
    "session_timeout_ms_min": 1_000,
    "consumer_session_timeout_ms": 1_000,
    "consumer_heartbeat_interval_ms": 300,
}


@pytest.mark.skidway(groups=SETTINGS)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_dies_is_named(fresh_broker: Broker, protocol: str) -> None:
    with Cluster(fresh_broker.bootstrap) as cluster:
        Admin(cluster).create_topic("orders", partitions=2)
    command = [sys.executable, "-c", MEMBER, fresh_broker.bootstrap, protocol]
    with subprocess.Popen(command) as member:
        try:
            assert eventually(lambda: "group watched rebalanced: generation" in fresh_broker.output)
            assert ", 1 member\n" in fresh_broker.output
        finally:
            member.kill()
    assert eventually(lambda: "group watched: 1 member expired without a heartbeat: " in fresh_broker.output)
    line = next(line for line in fresh_broker.output.splitlines() if "expired" in line)
    assert "WARNING" in line
