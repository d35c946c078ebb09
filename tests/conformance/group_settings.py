"""How a Skidway broker is set up for group tests: no wait before a first rebalance, short timeouts allowed.

Apache Kafka is given the same by `python -m bench.kafka serve group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000 group.consumer.min.session.timeout.ms=1000 group.consumer.session.timeout.ms=3000
group.consumer.min.heartbeat.interval.ms=100 group.consumer.heartbeat.interval.ms=300`.
"""

from typing import Any

GROUPS = {
    "initial_rebalance_delay_ms": 0,
    "session_timeout_ms_min": 1_000,
    "consumer_session_timeout_ms": 3_000,
    "consumer_heartbeat_interval_ms": 300,
}


def group_settings() -> dict[str, Any]:
    """As keywords of `skidway.testing.Broker`: those that it knows."""
    from skidway.server.config import GROUP_NAMES

    return {"groups": {name: value for name, value in GROUPS.items() if name in GROUP_NAMES}}
