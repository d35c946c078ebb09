"""Brokers whose share groups may have short locks and sessions, and which are ready for them."""

from typing import Any

from group_calls import await_coordinators
from group_settings import group_settings
from raw import Connection
from share_calls import NONE

from waiting import eventually


def share_settings() -> dict[str, Any]:
    """Short locks and sessions may be asked for."""
    shares = {
        "share_session_timeout_ms": 8_000,
        "share_session_timeout_ms_min": 1_000,
        "share_heartbeat_interval_ms": 300,
        "share_heartbeat_interval_ms_min": 300,
        "share_lock_ms": 15_000,
        "share_lock_ms_min": 1_000,
    }
    return {"groups": {**group_settings()["groups"], **shares}}


def warm(bootstrap: str) -> None:
    with Connection(bootstrap) as wire:
        await_coordinators(wire)
        keys = [f"warm:AAAAAAAAAAAAAAAAAAAAAQ:{number}" for number in range(50)]

        def answers() -> bool:
            found = wire.call("FindCoordinator", 6, {"key_type": 2, "coordinator_keys": keys})["coordinators"]
            return all(one["error_code"] == NONE for one in found)

        eventually(answers)
