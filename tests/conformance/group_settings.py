"""How a Skidway broker is set up for group tests: no wait before a first rebalance, short timeouts allowed.

Apache Kafka is given the same by `python -m bench.kafka serve key=value …`.
"""

from typing import Any

GROUPS = {
    "initial_rebalance_delay_ms": 0,
    "session_timeout_ms_min": 1_000,
    "consumer_session_timeout_ms": 8_000,
    "consumer_session_timeout_ms_min": 1_000,
    "consumer_heartbeat_interval_ms": 300,
    "consumer_heartbeat_interval_ms_min": 300,
}


def group_settings() -> dict[str, Any]:
    """As keywords of `skidway.testing.Broker`."""
    return {"groups": GROUPS}
