"""Settings of share groups (resource type 32): what they are, what they allow, and what is refused.

The broker must allow locks from 1 s, sessions from 1 s and heartbeats from 0.3 s.
"""

import pytest
from raw import Connection
from share_calls import (
    APPEND,
    DELETE,
    INVALID_CONFIG,
    NONE,
    SET,
    alter,
    configure,
    described_configs,
    differs,
)

from waiting import eventually

DEFAULT, DYNAMIC_GROUP = 5, 8
BOOLEAN, STRING, INT = 1, 2, 3


@pytest.mark.parametrize(
    ("name", "default", "kind"),
    [
        ("share.auto.offset.reset", "latest", STRING),
        ("share.isolation.level", "read_uncommitted", STRING),
        ("share.renew.acknowledge.enable", "true", BOOLEAN),
        ("share.delivery.count.limit", "5", INT),
        ("share.partition.max.record.locks", "2000", INT),
    ],
)
def test_defaults(wire: Connection, group: str, name: str, default: str, kind: int) -> None:
    found = described_configs(wire, group)[name]
    assert (found["value"], found["config_source"], found["config_type"]) == (default, DEFAULT, kind)
    assert (found["read_only"], found["is_sensitive"]) == (False, False)


@pytest.mark.parametrize("name", ["session.timeout", "heartbeat.interval", "record.lock.duration"])
def test_those_the_broker_may_have_set(wire: Connection, group: str, name: str) -> None:
    found = described_configs(wire, group)[f"share.{name}.ms"]
    assert found["config_type"] == INT
    assert {one["name"] for one in found["synonyms"]} == {f"group.share.{name}.ms"}


GOOD = [
    ("share.record.lock.duration.ms", "1000"),
    ("share.record.lock.duration.ms", "60000"),
    ("share.delivery.count.limit", "2"),
    ("share.delivery.count.limit", "10"),
    ("share.partition.max.record.locks", "100"),
    ("share.partition.max.record.locks", "4000"),
    ("share.session.timeout.ms", "60000"),
    ("share.heartbeat.interval.ms", "5000"),
    ("share.isolation.level", "read_committed"),
    ("share.renew.acknowledge.enable", "false"),
]


@pytest.mark.parametrize(("name", "value"), GOOD)
def test_good_settings(wire: Connection, group: str, name: str, value: str) -> None:
    configure(wire, group, **{name.replace(".", "_"): value})
    assert described_configs(wire, group)[name]["config_source"] == DYNAMIC_GROUP
    assert alter(wire, group, (name, DELETE, None))["error_code"] == NONE
    eventually(lambda: described_configs(wire, group)[name]["config_source"] != DYNAMIC_GROUP)


BAD = [
    ("share.record.lock.duration.ms", "999"),
    ("share.record.lock.duration.ms", "60001"),
    ("share.record.lock.duration.ms", "long"),
    ("share.delivery.count.limit", "1"),
    ("share.delivery.count.limit", "11"),
    ("share.partition.max.record.locks", "99"),
    ("share.partition.max.record.locks", "4001"),
    ("share.session.timeout.ms", "60001"),
    ("share.heartbeat.interval.ms", "15001"),
    ("share.assignment.interval.ms", "-1"),
    ("share.assignment.interval.ms", "15001"),
    ("share.isolation.level", "serializable"),
    ("share.renew.acknowledge.enable", "perhaps"),
    ("share.no.such.thing", "1"),
]


@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_settings_change_nothing(wire: Connection, group: str, name: str, value: str) -> None:
    before = {key: one["value"] for key, one in described_configs(wire, group).items()}
    refused = alter(wire, group, (name, SET, value))
    assert refused["error_code"] == INVALID_CONFIG
    assert name in refused["error_message"] or value in refused["error_message"]
    assert {key: one["value"] for key, one in described_configs(wire, group).items()} == before


def test_none_is_a_list(wire: Connection, group: str) -> None:
    assert alter(wire, group, ("share.isolation.level", APPEND, "x"))["error_code"] == INVALID_CONFIG


def test_heartbeats_must_fit_into_a_session(wire: Connection, group: str) -> None:
    changes = (("share.session.timeout.ms", SET, "5000"), ("share.heartbeat.interval.ms", SET, "5000"))
    assert alter(wire, group, *changes)["error_code"] == INVALID_CONFIG


@pytest.mark.parametrize("value", ["0", "15000"])
def test_how_often_partitions_are_assigned(wire: Connection, group: str, value: str) -> None:
    """A coordinator of ours does so at once, and says that nobody can set it."""
    answer = alter(wire, group, ("share.assignment.interval.ms", SET, value))
    assert answer["error_code"] == differs(kafka=NONE, skidway=INVALID_CONFIG)
