"""Requests about settings that name very many of them, or of resources: no turn of the node is long."""

from typing import Any

import pytest
from bench.worst_requests import Worst
from broker_world import World, part
from counted_turns import SCALE, TURN_CALLS_MAX, Turns

from skidway.broker.api.call import LocalCall
from skidway.broker.api.caller import this_node
from skidway.broker.api.forwarding import handle_later
from skidway.limits import DEFAULT_LIMITS
from skidway.metadata.config_keys import ResourceType
from skidway.wire.registry import api
from skidway.wire.schema.describe_configs import DescribeConfigsRequest
from skidway.wire.schema.incremental_alter_configs import IncrementalAlterConfigsRequest

ELEMENTS = DEFAULT_LIMITS.request_elements_max // SCALE
DESCRIBE, ALTER = 32, 44


class OneLogger:
    def __init__(self) -> None:
        self.changes = 0

    def levels(self) -> dict[str, str]:
        return {"root": "INFO"}

    def set_level(self, name: str, level: str | None) -> None:
        self.changes += 1


class Names(list[str]):
    """There may be as many as a request can have, and a broker has hundreds of settings."""

    def __contains__(self, name: object) -> bool:
        raise AssertionError("each look at a list of names looks at all of them")


@pytest.mark.parametrize(
    ("kind", "name", "setting"),
    [
        (ResourceType.TOPIC, "t", "retention.ms"),
        (ResourceType.BROKER, "1", "log.retention.ms"),
        (ResourceType.BROKER_LOGGER, "1", "root"),
        (ResourceType.GROUP, "g", "consumer.session.timeout.ms"),
    ],
)
def test_settings_are_not_looked_up_in_a_list_of_names(kind: ResourceType, name: str, setting: str) -> None:
    world = World()
    world.node.rooms.services.loggers = OneLogger()
    world.peer().create("t")
    resource = part("DescribeConfigs", "DescribeConfigsResource", kind, name, Names([setting, "unknown"]))
    answers: list[Any] = []
    route = world.node.routes.newest(DESCRIBE)
    call = LocalCall(route, this_node(world.node.settings.node_id), world.clock.now_ms, answers.append)
    handle_later(world.node.rooms.services, call, route.handle, DescribeConfigsRequest([resource]))
    world.settle()
    ((result,),) = [answer.results for answer in answers]
    assert result.error_code == 0
    assert {config.name for config in result.configs} <= {setting}


def alteration(count_resources: int, count_configs: int) -> Worst:
    """Of log levels only, which the node that is asked answers."""
    config = part("IncrementalAlterConfigs", "AlterableConfig", "root", 0, "INFO")
    asked = part("IncrementalAlterConfigs", "AlterConfigsResource", 8, "1", [config] * count_configs)
    request = IncrementalAlterConfigsRequest([asked] * count_resources)
    parts: list[Any] = []
    version = api(ALTER).versions[1]
    api(ALTER).request.encoder(version)(request, parts)
    return Worst(ALTER, version, "log levels", b"".join(map(bytes, parts)))


@pytest.mark.parametrize(("resources", "configs"), [(ELEMENTS // 2 - 10, 1), (1, ELEMENTS - 10)])
def test_log_levels_are_changed_in_steps(resources: int, configs: int) -> None:
    turns = Turns(1)
    loggers = turns.world.node.rooms.services.loggers = OneLogger()
    turns.longest = 0
    turns.serve(alteration(resources, configs), turns.world.peer())
    assert turns.longest < TURN_CALLS_MAX
    assert loggers.changes == resources * configs
