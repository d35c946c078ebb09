"""What belongs to parts of Kafka that Skidway does not have yet: the clients say so at once, and nobody waits."""

from collections.abc import Callable
from typing import Any

import confluent_kafka as ck
import kafka.admin as ka
import pytest
from confluent_kafka import admin as cka
from kafka.errors import IncompatibleBrokerVersion, UnsupportedVersionError

import kafka

pytestmark = pytest.mark.skidway_only

NO_CREDENTIAL = cka.UserScramCredentialDeletion("u", cka.ScramMechanism.SCRAM_SHA_256)
CONFLUENT: dict[str, Callable[[cka.AdminClient], Any]] = {
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


NO_SCRAM = ka.UserScramCredentialDeletion("u", ka.ScramMechanism.SCRAM_SHA_256)
PYTHON: dict[str, Callable[[kafka.KafkaAdminClient], Any]] = {
    "describe_user_scram_credentials": lambda admin: admin.describe_user_scram_credentials(),
    "alter_user_scram_credentials": lambda admin: admin.alter_user_scram_credentials([NO_SCRAM]),
}


@pytest.mark.parametrize("method", PYTHON)
def test_kafka_python_is_told_that_the_request_is_not_served(python: kafka.KafkaAdminClient, method: str) -> None:
    with pytest.raises((IncompatibleBrokerVersion, UnsupportedVersionError)):
        PYTHON[method](python)
