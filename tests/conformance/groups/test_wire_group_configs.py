"""Settings of single groups: altered, described, listed, obeyed at once, and what is refused.

The broker must allow sessions from 1 to 60 s and heartbeats from 0.3 to 15 s; its own are 8 s and 0.3 s.
"""

from typing import Any

import pytest
from group_calls import INVALID_REQUEST, NONE, ConsumerMember, describe_consumer
from raw import Body, Connection

from waiting import eventually

GROUP = 32
SET, DELETE, APPEND = range(3)
INVALID_CONFIG = 40
STATIC_BROKER, DEFAULT, DYNAMIC_GROUP = 4, 5, 8
SESSION = "consumer.session.timeout.ms"
HEARTBEAT = "consumer.heartbeat.interval.ms"


def alter(wire: Connection, group: str, *changes: tuple[str, int, str | None], validate_only: bool = False) -> Body:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    body = {"resources": [resource], "validate_only": validate_only}
    answers: list[dict[str, Any]] = wire.call("IncrementalAlterConfigs", 1, body)["responses"]
    (answer,) = answers
    return answer


def replace(wire: Connection, group: str, configs: dict[str, str]) -> Body:
    entries = [{"name": name, "value": value} for name, value in configs.items()]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": entries}
    answers: list[dict[str, Any]] = wire.call("AlterConfigs", 2, {"resources": [resource], "validate_only": False})[
        "responses"
    ]
    (answer,) = answers
    return answer


def described(wire: Connection, group: str, keys: list[str] | None = None) -> dict[str, Body]:
    resource = {"resource_type": GROUP, "resource_name": group, "configuration_keys": keys}
    body = {"resources": [resource], "include_synonyms": True, "include_documentation": True}
    (answer,) = wire.call("DescribeConfigs", 4, body)["results"]
    assert answer["error_code"] == NONE, answer
    return {config["name"]: config for config in answer["configs"]}


def becomes(wire: Connection, group: str, name: str, value: str) -> None:
    eventually(lambda: described(wire, group)[name]["value"] == value)


def configured(wire: Connection) -> list[str]:
    found = wire.call("ListConfigResources", 1, {"resource_types": [GROUP]})["config_resources"]
    assert all(one["resource_type"] == GROUP for one in found)
    return [one["resource_name"] for one in found]


def test_a_group_without_settings_follows_the_broker(wire: Connection, group: str) -> None:
    found = described(wire, group)
    session = found[SESSION]
    assert (session["value"], session["config_source"], session["config_type"]) == ("8000", STATIC_BROKER, 3)
    assert (session["read_only"], session["is_sensitive"]) == (False, False)
    assert session["synonyms"] == [
        {"name": f"group.{SESSION}", "value": "8000", "source": STATIC_BROKER},
        {"name": f"group.{SESSION}", "value": "45000", "source": DEFAULT},
    ]
    assert session["documentation"]
    assert found[HEARTBEAT]["value"] == "300"
    assert group not in configured(wire)


def test_a_group_has_settings_of_its_own(wire: Connection, group: str) -> None:
    """Whether it exists or not."""
    assert alter(wire, group, (SESSION, SET, "20000"), (HEARTBEAT, SET, "2000"))["error_code"] == NONE
    becomes(wire, group, SESSION, "20000")
    found = described(wire, group, [SESSION])
    assert list(found) == [SESSION]
    assert found[SESSION]["config_source"] == DYNAMIC_GROUP
    assert found[SESSION]["synonyms"][0] == {"name": SESSION, "value": "20000", "source": DYNAMIC_GROUP}
    assert group in configured(wire)
    assert described(wire, group + "-other")[SESSION]["value"] == "8000"
    assert alter(wire, group, (SESSION, DELETE, None))["error_code"] == NONE
    becomes(wire, group, SESSION, "8000")
    assert described(wire, group)[HEARTBEAT]["value"] == "2000"
    assert alter(wire, group, (HEARTBEAT, DELETE, None))["error_code"] == NONE
    eventually(lambda: group not in configured(wire))


def test_settings_are_replaced(wire: Connection, group: str) -> None:
    assert alter(wire, group, (SESSION, SET, "20000"))["error_code"] == NONE
    assert replace(wire, group, {HEARTBEAT: "1000"})["error_code"] == NONE
    becomes(wire, group, HEARTBEAT, "1000")
    assert described(wire, group)[SESSION]["config_source"] == STATIC_BROKER


def test_validation_changes_nothing(wire: Connection, group: str) -> None:
    assert alter(wire, group, (SESSION, SET, "20000"), validate_only=True)["error_code"] == NONE
    assert alter(wire, group, (SESSION, SET, "1"), validate_only=True)["error_code"] == INVALID_CONFIG
    assert described(wire, group)[SESSION]["value"] == "8000"


@pytest.mark.parametrize(
    ("name", "operation", "value"),
    [
        pytest.param(SESSION, SET, "999", id="below the broker's minimum"),
        pytest.param(SESSION, SET, "60001", id="above the broker's maximum"),
        pytest.param(HEARTBEAT, SET, "299", id="heartbeats too often"),
        pytest.param(HEARTBEAT, SET, "15001", id="heartbeats too seldom"),
        pytest.param(HEARTBEAT, SET, "8000", id="a session must be longer than the interval"),
        pytest.param(SESSION, SET, "soon", id="not a number"),
        pytest.param(SESSION, SET, "0", id="zero"),
        pytest.param(SESSION, APPEND, "5000", id="not a list"),
        pytest.param("consumer.no.such.thing", SET, "1", id="unknown"),
        pytest.param("retention.ms", SET, "1", id="of a topic"),
    ],
)
def test_bad_settings_change_nothing(wire: Connection, group: str, name: str, operation: int, value: str) -> None:
    refused = alter(wire, group, (name, operation, value))
    assert refused["error_code"] == INVALID_CONFIG
    assert name in refused["error_message"]
    assert group not in configured(wire)


def test_two_settings_are_looked_at_together(wire: Connection, group: str) -> None:
    assert alter(wire, group, (HEARTBEAT, SET, "8000"))["error_code"] == INVALID_CONFIG
    assert alter(wire, group, (SESSION, SET, "9000"), (HEARTBEAT, SET, "8000"))["error_code"] == NONE


def test_bad_requests(wire: Connection, group: str) -> None:
    assert alter(wire, "", (SESSION, SET, "5000"))["error_code"] == INVALID_REQUEST
    assert alter(wire, group, (SESSION, SET, None))["error_code"] == INVALID_REQUEST
    resource = {"resource_type": GROUP, "resource_name": "", "configuration_keys": None}
    (answer,) = wire.call("DescribeConfigs", 4, {"resources": [resource]})["results"]
    assert (answer["error_code"], answer["configs"]) == (INVALID_REQUEST, [])


@pytest.mark.skidway_only
def test_groups_that_are_not_there_yet_have_no_settings(wire: Connection, group: str) -> None:
    name = "streams.session.timeout.ms"
    refused = alter(wire, group, (name, SET, "45000"))
    assert refused["error_code"] == INVALID_CONFIG
    assert "not available yet" in refused["error_message"]
    assert name not in described(wire, group)


@pytest.mark.newer_protocol
def test_members_are_told_the_new_interval_with_their_next_heartbeat(wire: Connection, group: str, topic: str) -> None:
    member = ConsumerMember(wire, group, [topic])
    assert member.join()["heartbeat_interval_ms"] == 300
    assert alter(wire, group, (SESSION, SET, "20000"), (HEARTBEAT, SET, "1234"))["error_code"] == NONE
    eventually(lambda: member.beat()["heartbeat_interval_ms"] == 1234)
    alter(wire, group, (HEARTBEAT, DELETE, None))
    eventually(lambda: member.beat()["heartbeat_interval_ms"] == 300)


@pytest.mark.newer_protocol
def test_a_session_of_its_own_outlasts_the_broker_s(wire: Connection, group: str, topic: str) -> None:
    """Two silent members: the one whose group has a long session is still there when the other is out."""
    patient, ordinary = group, group + "-ordinary"
    member = ConsumerMember(wire, patient, [topic])
    assert member.join()["error_code"] == NONE
    assert alter(wire, patient, (SESSION, SET, "60000"))["error_code"] == NONE
    becomes(wire, patient, SESSION, "60000")
    assert member.beat()["error_code"] == NONE
    other = ConsumerMember(wire, ordinary, [topic])
    assert other.join()["error_code"] == NONE
    eventually(lambda: describe_consumer(wire, ordinary)["members"] == [], seconds=45)
    assert [one["member_id"] for one in describe_consumer(wire, patient)["members"]] == [member.id]


@pytest.mark.newer_protocol
def test_settings_outlive_their_group(wire: Connection, group: str, topic: str) -> None:
    member = ConsumerMember(wire, group, [topic])
    member.join()
    alter(wire, group, (SESSION, SET, "20000"))
    member.leave()
    (deleted,) = wire.call("DeleteGroups", 2, {"groups_names": [group]})["results"]
    assert deleted["error_code"] == NONE
    assert described(wire, group)[SESSION]["value"] == "20000"
