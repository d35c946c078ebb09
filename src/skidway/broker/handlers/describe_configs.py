"""DescribeConfigs (key 32), v1–v4: the settings of topics, groups and this broker, where each comes from and what else
could set it; the log levels of this node. Of client metrics there is nothing to describe; of other brokers only
whether they are drained, where just that is asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from skidway.broker.api import log_levels
from skidway.errors import InvalidRequest, InvalidTopic, ProtocolError, UnknownTopicOrPartition
from skidway.metadata import broker_configs, group_configs, topic_configs
from skidway.metadata.config_keys import ConfigEntry, Defaults, ResourceType
from skidway.metadata.configs import BROKER_ID
from skidway.metadata.topic_names import is_legal
from skidway.steps import Steps
from skidway.wire.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services


def handle(node: Services, call: Call, request: DescribeConfigsRequest) -> Steps[DescribeConfigsResponse]:
    # Each once: a resource is far larger described than named.
    once = {(resource.resource_type, resource.resource_name): resource for resource in request.resources}
    yield None
    response = DescribeConfigsResponse()
    for resource in once.values():
        response.results.append(_describe(node, request, resource))
        yield None
    return response


def _describe(
    node: Services, request: DescribeConfigsRequest, resource: DescribeConfigsResource
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
    try:
        entries = _entries(node, resource)
    except ProtocolError as error:
        result.error_code, result.error_message = error.code, error.message
        return result
    result.configs = [_entry(request, entry) for entry in entries]
    return result


def _entries(node: Services, resource: DescribeConfigsResource) -> list[ConfigEntry]:
    name, keys = resource.resource_name, resource.configuration_keys
    # A set: there may be hundreds of thousands, and every setting is looked up in them.
    names = None if keys is None else frozenset(keys)
    if resource.resource_type == ResourceType.TOPIC:
        if not is_legal(name):
            raise InvalidTopic(f"{name!r} is not a legal topic name")
        if name not in node.image.topics:
            raise UnknownTopicOrPartition(f"there is no topic {name!r}")
        return topic_configs.describe(node.image.topic_config(name), node.hosting.topic_settings.defaults, names)
    if resource.resource_type == ResourceType.BROKER:
        if name == "":
            return broker_configs.describe_cluster_default(node.image.config(ResourceType.BROKER, ""), names)
        if keys == [broker_configs.DRAINED] and (settings := _of_any(node, name)) is not None:
            return broker_configs.describe_broker(Defaults(node=settings), names)
        if name != str(node.world.settings.node_id):
            raise InvalidRequest(f"this is broker {node.world.settings.node_id}, not {name}")
        return broker_configs.describe_broker(node.hosting.topic_settings.defaults, names)
    if resource.resource_type == ResourceType.BROKER_LOGGER:
        return log_levels.describe(node, name, names)
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise InvalidRequest("the name of a group must not be empty")
        return group_configs.describe(
            node.image.config(ResourceType.GROUP, name), node.hosting.topic_settings.static, names
        )
    raise InvalidRequest(f"nothing can be described for resource type {resource.resource_type}")


def _of_any(node: Services, name: str) -> Mapping[str, str] | None:
    """What was set for any broker that is registered, be it down: every node knows that."""
    known = BROKER_ID.fullmatch(name) and int(name) in node.image.brokers
    return node.image.config(ResourceType.BROKER, name) if known else None


def _entry(request: DescribeConfigsRequest, entry: ConfigEntry) -> DescribeConfigsResourceResult:
    return DescribeConfigsResourceResult(
        entry.name,
        entry.value,
        entry.read_only,
        entry.source,
        entry.sensitive,
        [DescribeConfigsSynonym(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms]
        if request.include_synonyms
        else [],
        entry.type,
        entry.doc if request.include_documentation else None,
    )
