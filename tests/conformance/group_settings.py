"""How a Skidway broker is set up for group tests: no wait before a first rebalance, short timeouts allowed.

Apache Kafka is given the same by `python -m bench.kafka serve key=value …`.
"""

from typing import Any

GROUPS = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 3_000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 300,
}


def group_settings() -> dict[str, Any]:
    """As keywords of `skidway.testing.Broker`; nothing while the broker has no such settings."""
    from skidway.server.config import Settings

    return {"groups": GROUPS} if "groups" in Settings.__struct_fields__ else {}
