"""Log levels of a running broker, as `kafka-configs --entity-type broker-loggers` asks for them and changes them."""

from collections.abc import Iterator
from typing import Any

import pytest
from raw import Connection

from skidway.testing import Broker

pytestmark = pytest.mark.skidway_only

BROKER_LOGGER = 8
FROM_LOGGER = 6
SET, DELETE, APPEND = 0, 1, 2
INVALID_CONFIG, INVALID_REQUEST = 40, 42
LOGGER = "skidway.node"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        yield broker


def levels(wire: Connection, name: str = "1") -> tuple[int, dict[str, str]]:
    resource = {"resource_type": BROKER_LOGGER, "resource_name": name, "configuration_keys": None}
    body = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    [result] = wire.call("DescribeConfigs", 4, body)["results"]
    assert {config["config_source"] for config in result["configs"]} <= {FROM_LOGGER}
    return result["error_code"], {config["name"]: config["value"] for config in result["configs"]}


def change(wire: Connection, operation: int, value: str | None, logger: str = LOGGER, **more: Any) -> int:
    config = {"name": logger, "config_operation": operation, "value": value}
    resource = {"resource_type": BROKER_LOGGER, "resource_name": "1", "configs": [config]}
    body = {"resources": [resource], "validate_only": False, **more}
    [response] = wire.call("IncrementalAlterConfigs", 1, body)["responses"]
    return int(response["error_code"])


def test_a_level_holds_from_the_answer_on(broker: Broker) -> None:
    with Connection(broker.bootstrap) as wire:
        code, found = levels(wire)
        assert (code, found[LOGGER], found["root"]) == (0, "INFO", "INFO")
        assert change(wire, SET, "ERROR", validate_only=True) == 0
        assert levels(wire)[1][LOGGER] == "INFO", "it was only to be checked"
        assert change(wire, SET, "ERROR") == 0
        assert levels(wire)[1][LOGGER] == "ERROR"
        assert change(wire, SET, "DEBUG") == 0
        assert levels(wire)[1][LOGGER] == "DEBUG"
        assert change(wire, DELETE, None) == 0
        assert levels(wire)[1][LOGGER] == "INFO", "as the root"
    # The broker says what was changed, in the very log whose level it is.
    said = [line for line in broker.output.splitlines() if f"logger {LOGGER}" in line]
    assert [line.split(": level ")[1] for line in said] == ["DEBUG", "as above"]


@pytest.mark.parametrize(
    ("operation", "value", "logger", "code"),
    [
        (SET, "LOUD", LOGGER, INVALID_CONFIG),
        (SET, "INFO", "no.such.logger", INVALID_CONFIG),
        (APPEND, "INFO", LOGGER, INVALID_REQUEST),
        (DELETE, None, "root", INVALID_REQUEST),
    ],
)
def test_what_makes_no_sense_is_refused(
    wire: Connection, operation: int, value: str | None, logger: str, code: int
) -> None:
    assert change(wire, operation, value, logger) == code


def test_only_the_broker_itself_knows_its_levels(wire: Connection) -> None:
    assert levels(wire, "77") == (INVALID_REQUEST, {})
