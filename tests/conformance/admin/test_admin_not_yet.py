"""What belongs to parts of Kafka that Skidway does not have yet: the clients say so at once, and nobody waits."""

from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import kafka.admin as ka
import pytest
from confluent_kafka import admin as cka
from kafka.errors import IncompatibleBrokerVersion

import kafka

pytestmark = pytest.mark.skidway_only

BINDING = cka.AclBinding(
    cka.ResourceType.TOPIC,
    "t",
    cka.ResourcePatternType.LITERAL,
    "User:a",
    "*",
    cka.AclOperation.READ,
    cka.AclPermissionType.ALLOW,
)
ANY_BINDING = cka.AclBindingFilter(
    cka.ResourceType.ANY,
    None,
    cka.ResourcePatternType.ANY,
    None,
    None,
    cka.AclOperation.ANY,
    cka.AclPermissionType.ANY,
)
NO_CREDENTIAL = cka.UserScramCredentialDeletion("u", cka.ScramMechanism.SCRAM_SHA_256)
CONFLUENT: dict[str, Callable[[cka.AdminClient], Any]] = {
    "create_acls": lambda admin: admin.create_acls([BINDING]),
    "describe_acls": lambda admin: admin.describe_acls(ANY_BINDING),
    "delete_acls": lambda admin: admin.delete_acls([ANY_BINDING]),
    "describe_user_scram_credentials": lambda admin: admin.describe_user_scram_credentials(["u"]),
    "alter_user_scram_credentials": lambda admin: admin.alter_user_scram_credentials([NO_CREDENTIAL]),
}


@pytest.mark.parametrize("method", CONFLUENT)
def test_confluent_is_told_that_the_feature_is_missing(confluent: cka.AdminClient, method: str) -> None:
    asked = CONFLUENT[method](confluent)
    for future in asked.values() if isinstance(asked, dict) else [asked]:
        with pytest.raises(ck.KafkaException) as refused:
            future.result(30)
        assert refused.value.args[0].code() == ck.KafkaError._UNSUPPORTED_FEATURE


PLACE = kafka.TopicPartition("t", 0)
PATTERN = ka.ResourcePattern(ka.ResourceType.TOPIC, "t")
ACL = ka.ACL("User:a", "*", ka.ACLOperation.READ, ka.ACLPermissionType.ALLOW, PATTERN)
ANY_ACL = ka.ACLFilter(
    None,
    None,
    ka.ACLOperation.ANY,
    ka.ACLPermissionType.ANY,
    ka.ResourcePatternFilter(ka.ResourceType.ANY, None, ka.ACLResourcePatternType.ANY),
)
NO_SCRAM = ka.UserScramCredentialDeletion("u", ka.ScramMechanism.SCRAM_SHA_256)
PYTHON: dict[str, Callable[[kafka.KafkaAdminClient], Any]] = {
    "create_acls": lambda admin: admin.create_acls([ACL]),
    "describe_acls": lambda admin: admin.describe_acls(ANY_ACL),
    "delete_acls": lambda admin: admin.delete_acls([ANY_ACL]),
    "describe_user_scram_credentials": lambda admin: admin.describe_user_scram_credentials(),
    "alter_user_scram_credentials": lambda admin: admin.alter_user_scram_credentials([NO_SCRAM]),
    "describe_transactions": lambda admin: admin.describe_transactions(["x"]),
    "list_transactions": lambda admin: admin.list_transactions(),
    "find_hanging_transactions": lambda admin: admin.find_hanging_transactions(),
    "abort_transaction": lambda admin: admin.abort_transaction(ka.AbortTransactionSpec(PLACE, 1, 0)),
    "alter_replica_log_dirs": lambda admin: admin.alter_replica_log_dirs({("t", 0, 1): "/nowhere"}),
    "update_features": lambda admin: admin.update_features({"metadata.version": 25}),
}


@pytest.mark.parametrize("method", PYTHON)
def test_kafka_python_is_told_that_the_request_is_not_served(
    python: kafka.KafkaAdminClient, make_topic, method: str
) -> None:
    if method == "abort_transaction":
        make_topic(name="t")  # the client looks for the partition's leader first
    with pytest.raises(IncompatibleBrokerVersion):
        PYTHON[method](python)
