"""Log levels of this node as the settings of a resource of their own, BROKER_LOGGER, named by the node's number.

They are read and changed by the node that is asked, at once, and last until it stops: nothing is stored, so nothing is
asked of the controller. A logger without a level of its own follows the one above it; DELETE takes its own away.
"""

from __future__ import annotations

from collections.abc import Collection

from skidway.broker.events import LogLevelChanged
from skidway.broker.services import Services
from skidway.errors import InvalidConfig, InvalidRequest, ProtocolError
from skidway.metadata.config_keys import ConfigEntry, ConfigSource, ConfigType, ResourceType
from skidway.metadata.operations import AlterOp
from skidway.ports import LOG_LEVELS, ROOT_LOGGER, Loggers
from skidway.steps import Steps
from skidway.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

DOC = "The lowest level that this logger writes; a logger without a level uses that of its parent."


def describe(node: Services, name: str, names: Collection[str] | None) -> list[ConfigEntry]:
    levels = _loggers(node, name).levels()
    source, kind = ConfigSource.DYNAMIC_BROKER_LOGGER, ConfigType.STRING
    return [
        ConfigEntry(logger, level, source, kind, DOC)
        for logger, level in sorted(levels.items())
        if names is None or logger in names
    ]


def alters_only_log_levels(request: IncrementalAlterConfigsRequest) -> bool:
    """Such a request is answered by the node that is asked."""
    asked = request.resources
    return bool(asked) and all(resource.resource_type == ResourceType.BROKER_LOGGER for resource in asked)


def alter(node: Services, request: IncrementalAlterConfigsRequest) -> Steps[IncrementalAlterConfigsResponse]:
    response = IncrementalAlterConfigsResponse()
    for resource in request.resources:
        response.responses.append((yield from _alter(node, resource, request.validate_only)))
        yield None
    return response


def _alter(node: Services, resource: AlterConfigsResource, validate_only: bool) -> Steps[AlterConfigsResourceResponse]:
    result = AlterConfigsResourceResponse(0, None, resource.resource_type, resource.resource_name)
    try:
        loggers = _loggers(node, resource.resource_name)
        known = loggers.levels()
        for config in resource.configs:
            _check(config, known)
            yield None
        if not validate_only:
            for config in resource.configs:
                level = config.value if config.config_operation == AlterOp.SET else None
                loggers.set_level(config.name, level)
                node.world.report(LogLevelChanged(config.name, level))
                yield None
    except ProtocolError as error:
        result.error_code, result.error_message = error.code, error.message
    return result


def _check(config: AlterableConfig, known: Collection[str]) -> None:
    if config.config_operation not in (AlterOp.SET, AlterOp.DELETE):
        raise InvalidRequest(f"operation {config.config_operation} is not allowed for log levels: only SET and DELETE")
    if config.name not in known:
        raise InvalidConfig(f"Logger {config.name} does not exist!")
    if config.config_operation == AlterOp.DELETE and config.name == ROOT_LOGGER:
        raise InvalidRequest(f"the level of {ROOT_LOGGER} cannot be removed, only changed")
    if config.config_operation == AlterOp.SET and config.value not in LOG_LEVELS:
        raise InvalidConfig(
            f"Cannot set the log level of {config.name} to {config.value}. Valid levels are {', '.join(LOG_LEVELS)}."
        )


def _loggers(node: Services, name: str) -> Loggers:
    if name != str(node.world.settings.node_id):
        raise InvalidRequest(f"this is broker {node.world.settings.node_id}, not {name!r}")
    if node.loggers is None:
        raise InvalidRequest("this node has no log levels to change")
    return node.loggers
