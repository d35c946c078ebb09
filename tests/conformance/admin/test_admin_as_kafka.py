"""What Kafka answers where it has little to say: access lists without an authoriser, a single data directory, broker
settings that change nothing here, a cleanup policy that is empty. Tools and clients count on these answers."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import confluent_kafka as ck
import kafka.admin as ka
import pytest
from clients import Admin, Client, Message, NotInThisClient
from confluent_kafka import admin as cka
from kafka.errors import LogDirNotFoundError, NoError, SecurityDisabledError, UnknownTopicOrPartitionError

import kafka
from skidway.testing import Broker
from waiting import eventually

BINDING = cka.AclBinding(
    cka.ResourceType.TOPIC,
    "t",
    cka.ResourcePatternType.LITERAL,
    "User:a",
    "*",
    cka.AclOperation.READ,
    cka.AclPermissionType.ALLOW,
)
ANYTHING: Any = None
ANY_BINDING = cka.AclBindingFilter(
    cka.ResourceType.ANY,
    ANYTHING,
    cka.ResourcePatternType.ANY,
    ANYTHING,
    ANYTHING,
    cka.AclOperation.ANY,
    cka.AclPermissionType.ANY,
)
PATTERN = ka.ResourcePattern(ka.ResourceType.TOPIC, "t")
ACL = ka.ACL("User:a", "*", ka.ACLOperation.READ, ka.ACLPermissionType.ALLOW, PATTERN)
ANY_ACL = ka.ACLFilter(
    None,
    None,
    ka.ACLOperation.ANY,
    ka.ACLPermissionType.ANY,
    ka.ResourcePatternFilter(ka.ResourceType.ANY, None, ka.ACLResourcePatternType.ANY),
)

CONFLUENT: dict[str, Callable[[cka.AdminClient], Any]] = {
    "create_acls": lambda admin: admin.create_acls([BINDING]),
    "delete_acls": lambda admin: admin.delete_acls([ANY_BINDING]),
}
THIS_BROKER = 1
DEFAULT_CONFIG = 5


def failures(asked: Any) -> list[int]:
    futures = asked.values() if isinstance(asked, dict) else [asked]
    codes = []
    for future in futures:
        with pytest.raises(ck.KafkaException) as refused:
            future.result(30)
        codes.append(refused.value.args[0].code())
    return codes


@pytest.mark.parametrize("method", CONFLUENT)
def test_confluent_is_told_that_security_is_disabled(confluent: cka.AdminClient, method: str) -> None:
    assert failures(CONFLUENT[method](confluent)) == [ck.KafkaError.SECURITY_DISABLED]


def test_confluent_finds_no_access_lists(confluent: cka.AdminClient) -> None:
    assert confluent.describe_acls(ANY_BINDING).result(30) == [], "it does not look at the error"


def test_kafka_python_is_told_that_security_is_disabled(python: kafka.KafkaAdminClient) -> None:
    assert python.create_acls([ACL]) == {"succeeded": [], "failed": [SecurityDisabledError]}
    with pytest.raises(SecurityDisabledError, match="No Authorizer is configured"):
        python.describe_acls(ANY_ACL)
    [(_, _, error)] = python.delete_acls([ANY_ACL])
    assert error is SecurityDisabledError


def test_a_replica_stays_where_it_is(python: kafka.KafkaAdminClient, topic: str) -> None:
    [broker] = python.describe_log_dirs()
    here = broker["log_dirs"][0]["log_dir"]
    asked = {
        (topic, 0, broker["broker"]): here,
        (topic, 9, broker["broker"]): here,
        ("no-such", 0, broker["broker"]): here,
    }
    answers = {
        (replica.topic, replica.partition): error for replica, error in python.alter_replica_log_dirs(asked).items()
    }
    assert answers == {
        (topic, 0): NoError,
        (topic, 9): UnknownTopicOrPartitionError,
        ("no-such", 0): UnknownTopicOrPartitionError,
    }
    [error] = python.alter_replica_log_dirs({(topic, 0, broker["broker"]): "/nowhere"}).values()
    assert error is LogDirNotFoundError


def change(confluent: cka.AdminClient, name: str, value: str | None) -> None:
    operation = cka.AlterConfigOpType.DELETE if value is None else cka.AlterConfigOpType.SET
    entry = cka.ConfigEntry(name, value, incremental_operation=operation)
    resource = cka.ConfigResource(cka.ResourceType.BROKER, str(THIS_BROKER), incremental_configs=[entry])
    for future in confluent.incremental_alter_configs([resource]).values():
        future.result(30)


def described(confluent: cka.AdminClient) -> dict[str, cka.ConfigEntry]:
    [future] = confluent.describe_configs([cka.ConfigResource(cka.ResourceType.BROKER, str(THIS_BROKER))]).values()
    found: dict[str, cka.ConfigEntry] = future.result(30)
    return found


@pytest.mark.skidway_only
def test_settings_of_kafka_that_change_nothing_are_kept(confluent: cka.AdminClient) -> None:
    assert described(confluent)["log.cleaner.threads"].value == "1"
    change(confluent, "log.cleaner.threads", "2")
    try:
        entry = described(confluent)["log.cleaner.threads"]
        assert (entry.value, entry.is_read_only, entry.is_default) == ("2", False, False)
        for name, value in (("log.cleaner.threads", "many"), ("socket.receive.buffer.bytes", "1"), ("no.such", "1")):
            with pytest.raises(ck.KafkaException) as refused:
                change(confluent, name, value)
            assert refused.value.args[0].code() == ck.KafkaError.INVALID_REQUEST
            assert name in refused.value.args[0].str()
    finally:
        change(confluent, "log.cleaner.threads", None)
    assert described(confluent)["log.cleaner.threads"].value == "1"


def test_a_cleanup_policy_may_be_empty(client: Client, admin: Admin, name: str) -> None:
    admin.create(name, configs={"cleanup.policy": ""})
    assert admin.configs(name)["cleanup.policy"].value == ""
    client.produce(name, [Message(b"a"), Message(b"b")])
    try:
        # Unlike a compacted topic: nothing speaks against deleting by hand.
        assert admin.delete_records(name, {0: 1}) == {0: 1}
    except NotInThisClient:
        pass
    admin.delete(name)


def test_the_last_cleanup_policy_can_be_taken_away(admin: Admin, topic: str) -> None:
    admin.change_configs(topic, [("SUBTRACT", "cleanup.policy", "delete")])
    assert admin.configs(topic)["cleanup.policy"].value == ""
    admin.change_configs(topic, [("APPEND", "cleanup.policy", "compact")])
    assert admin.configs(topic)["cleanup.policy"].value == "compact"


def test_a_topic_that_nobody_configured_has_no_overrides(admin: Admin, topic: str) -> None:
    """What `kafka-topics --describe --topics-with-overrides` goes by."""
    assert {name for name, config in admin.configs(topic).items() if config.source != DEFAULT_CONFIG} == set()


@pytest.mark.skidway_only
def test_the_number_of_connections_is_changed_at_run_time() -> None:
    with Broker() as broker, ExitStack() as crowd:
        admin = cka.AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        change(admin, "max.connections", "50")
        assert described(admin)["max.connections"].value == "50"
        connections = [crowd.enter_context(socket.create_connection((broker.host, broker.port))) for _ in range(60)]
        # Those beyond the bound are closed at once, without a word.
        assert eventually(lambda: "connections_max is 50" in broker.output)
        connections[-1].settimeout(30)
        assert connections[-1].recv(1) == b""
