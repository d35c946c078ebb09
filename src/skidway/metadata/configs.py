"""Decisions about configuration: of topics, groups, one broker, all brokers (the broker resource without a name).

A resource is changed as a whole or not at all. What is stored was accepted by `topic_configs`, `broker_configs` or
`group_configs`, so whoever resolves it later need not check again.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct

from skidway.errors import (
    BrokerIdNotRegistered,
    InvalidConfig,
    InvalidRequest,
    PolicyViolation,
    ProtocolError,
    UnknownTopicOrPartition,
)
from skidway.metadata import broker_configs, group_configs, topic_configs
from skidway.metadata.config_keys import ConfigType, ResourceType, split_list
from skidway.metadata.image import Image
from skidway.metadata.operations import (
    AlterConfigs,
    AlterOp,
    ConfigChange,
    ConfigReplacement,
    ConfigsAltered,
    IncrementalAlterConfigs,
    sentence,
)
from skidway.metadata.topic_names import validate_topic_name
from skidway.runtime.replicated import Decision
from skidway.wire.message import Message
from skidway.wire.primitives import STRING_BYTES_MAX
from skidway.wire.schema.metadata_records import ConfigRecord

_NOT_KEPT = {
    ResourceType.BROKER_LOGGER: "Log levels are changed by IncrementalAlterConfigs, in a request of their own.",
    ResourceType.CLIENT_METRICS: "Client metrics subscriptions are not available.",
}


MIN_IN_SYNC = "min.insync.replicas"
SETTINGS_MAX = 1_000
"""Of one resource in one request: more than there are of any kind."""
RESOURCES_MAX = 100_000
"""With settings of their own, of all types. Groups need not exist to have some, so nothing else bounds them."""

# The one spelling of a number: "01" is not another broker than "1".
BROKER_ID = re.compile(r"0|[1-9][0-9]{0,9}")

Asked = TypeVar("Asked", ConfigReplacement, ConfigChange)


class Resource(Struct):
    """One resource, its settings now, and the rules they obey."""

    type: int
    name: str
    present: Mapping[str, str]
    validate: Callable[[Mapping[str, str]], None]


def decide_alter(
    image: Image, static: Mapping[str, str], operation: AlterConfigs
) -> Decision[Message, list[ConfigsAltered]]:
    def altered(resource: Resource, asked: ConfigReplacement) -> dict[str, str]:
        _refuse_nulls([name for name, value in asked.configs if value is None])
        return {name: value for name, value in asked.configs if value is not None}

    return _decide(image, static, operation.resources, operation.validate_only, lambda asked: asked.configs, altered)


def decide_incremental(
    image: Image, static: Mapping[str, str], operation: IncrementalAlterConfigs
) -> Decision[Message, list[ConfigsAltered]]:
    def altered(resource: Resource, asked: ConfigChange) -> dict[str, str]:
        _refuse_nulls([name for name, kind, value in asked.changes if value is None and kind != AlterOp.DELETE])
        settings = dict(resource.present)
        for name, kind, value in asked.changes:
            _change(settings, resource, name, kind, value or "")
        return settings

    return _decide(image, static, operation.resources, operation.validate_only, lambda asked: asked.changes, altered)


def _refuse_nulls(names: list[str]) -> None:
    if names:
        raise InvalidRequest(f"Null value not supported for : {', '.join(names)}")


def _decide(
    image: Image,
    static: Mapping[str, str],
    resources: Sequence[Asked],
    validate_only: bool,
    named: Callable[[Asked], Sequence[tuple[object, ...]]],
    altered: Callable[[Resource, Asked], dict[str, str]],
) -> Decision[Message, list[ConfigsAltered]]:
    times_named = Counter((asked.resource_type, asked.resource_name) for asked in resources)
    records: list[Message] = []
    results: list[ConfigsAltered] = []
    for asked in resources:
        result = ConfigsAltered(asked.resource_type, asked.resource_name)
        try:
            if times_named[asked.resource_type, asked.resource_name] > 1:
                raise InvalidRequest("Each resource must appear at most once.")
            if len(named(asked)) > SETTINGS_MAX:
                raise InvalidRequest(f"More than {SETTINGS_MAX} settings of one resource: there are not so many.")
            if len({entry[0] for entry in named(asked)}) != len(named(asked)):
                raise InvalidRequest("Error due to duplicate config keys")
            resource = _open(image, static, asked.resource_type, asked.resource_name)
            settings = altered(resource, asked)
            resource.validate(settings)
            _refuse_absent(image, resource)
            records.extend(_difference(resource, settings))
        except ProtocolError as refusal:
            result.error, result.message = refusal.code, sentence(refusal)
        results.append(result)
    return Decision([] if validate_only else records, results)


def _open(image: Image, static: Mapping[str, str], resource_type: int, name: str) -> Resource:
    present = image.config(resource_type, name)
    if resource_type == ResourceType.TOPIC:
        if not name:
            raise InvalidRequest("Default topic resources are not allowed.")
        validate_topic_name(name)
        return Resource(resource_type, name, present, topic_configs.validate)
    if resource_type == ResourceType.BROKER:
        if name and not BROKER_ID.fullmatch(name):
            raise InvalidRequest(f"Node id must be an integer, but it is: {name}")
        return Resource(resource_type, name, present, lambda settings: _validate_broker(name, present, settings))
    if resource_type == ResourceType.GROUP:
        if not name:
            raise InvalidRequest("Default group resources are not allowed.")
        if not present and len(image.configs) >= RESOURCES_MAX:
            raise PolicyViolation(f"There are {RESOURCES_MAX} resources with settings of their own already.")
        return Resource(resource_type, name, present, lambda settings: group_configs.validate(settings, static))
    if resource_type in _NOT_KEPT:
        raise InvalidRequest(_NOT_KEPT[ResourceType(resource_type)])
    raise InvalidRequest(f"Unknown resource type {resource_type}")


def _validate_broker(name: str, present: Mapping[str, str], settings: Mapping[str, str]) -> None:
    """A leader that asks for fewer replicas in sync than the controller believes acknowledges what the replicas lack
    that the controller takes for eligible leaders. So the number is the same on all brokers, as in Kafka."""
    if name and settings.get(MIN_IN_SYNC, present.get(MIN_IN_SYNC)) != present.get(MIN_IN_SYNC):
        raise InvalidConfig(f"{MIN_IN_SYNC} cannot be set for one broker: set it for a topic, or for all brokers.")
    validate = broker_configs.validate_of_one if name else broker_configs.validate_of_all
    validate(settings)


def _refuse_absent(image: Image, resource: Resource) -> None:
    if resource.type == ResourceType.TOPIC and resource.name not in image.topics:
        raise UnknownTopicOrPartition("This server does not host this topic-partition.")
    if resource.type == ResourceType.BROKER and resource.name and int(resource.name) not in image.brokers:
        raise BrokerIdNotRegistered(f"No broker with id {resource.name} found.")


def _change(settings: dict[str, str], resource: Resource, name: str, kind: int, value: str) -> None:
    match kind:
        case AlterOp.SET:
            settings[name] = value
        case AlterOp.DELETE:
            settings.pop(name, None)
        case AlterOp.APPEND | AlterOp.SUBTRACT:
            key = topic_configs.TOPIC_KEYS.get(name) or broker_configs.dynamic_key(name)
            if key is None or key.type is not ConfigType.LIST:
                raise InvalidConfig(f"Can't {AlterOp(kind).name} to key {name} because its type is not LIST.")
            parts = split_list(settings.get(name, key.default))
            operands = split_list(value)
            if kind == AlterOp.APPEND:
                parts += tuple(part for part in dict.fromkeys(operands) if part not in parts)
            else:
                parts = tuple(part for part in parts if part not in operands)
            settings[name] = _short(name, ",".join(parts))
        case _:
            raise InvalidRequest(f"Unknown operations type {kind}")


def _short(name: str, value: str) -> str:
    """What is appended again and again: a record's strings have an end."""
    if len(value.encode()) > STRING_BYTES_MAX:
        raise InvalidConfig(f"{name} would take more than {STRING_BYTES_MAX} bytes.")
    return value


def _difference(resource: Resource, settings: Mapping[str, str]) -> list[Message]:
    gone = {name: None for name in resource.present if name not in settings}
    changed = {name: value for name, value in settings.items() if resource.present.get(name) != value}
    return [
        ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=value)
        for name, value in {**changed, **gone}.items()
    ]
