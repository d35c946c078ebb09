"""What a configuration key is: its type, its bounds, its default; and the text of a value turned into that type.

Values travel and are stored as text. `ConfigKey.parse` is the only way from text to value: whatever it accepts is
within the key's bounds, whatever it refuses is an InvalidConfig that names key, value and reason.
"""

import re
from collections.abc import Callable, Mapping
from enum import IntEnum

import msgspec

from skidway.errors import InvalidConfig
from skidway.limits import INT32_MAX, INT64_MAX

Value = bool | int | float | str | tuple[str, ...]


class ConfigType(IntEnum):
    """As in a DescribeConfigs response."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value comes from, as in a DescribeConfigs response."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    DYNAMIC_GROUP = 8


class ResourceType(IntEnum):
    """What a configuration belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Synonym(msgspec.Struct):
    """One way the value was, or could have been, set; the first of a list is the one in force."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(msgspec.Struct):
    """One key as DescribeConfigs shows it."""

    name: str
    value: str | None
    source: ConfigSource
    type: ConfigType
    doc: str
    read_only: bool = False
    sensitive: bool = False
    synonyms: list[Synonym] = msgspec.field(default_factory=list)


class Defaults(msgspec.Struct):
    """What applies to a topic without an override: broker settings by their broker names, nearest first."""

    node: Mapping[str, str] = msgspec.field(default_factory=dict)
    cluster: Mapping[str, str] = msgspec.field(default_factory=dict)
    static: Mapping[str, str] = msgspec.field(default_factory=dict)

    def layers(self) -> tuple[tuple[ConfigSource, Mapping[str, str]], ...]:
        return (
            (ConfigSource.DYNAMIC_BROKER, self.node),
            (ConfigSource.DYNAMIC_DEFAULT_BROKER, self.cluster),
            (ConfigSource.STATIC_BROKER, self.static),
        )


NO_DEFAULTS = Defaults()

Complaint = str | None
Check = Callable[[Value], Complaint]


def at_least(minimum: int) -> Check:
    return lambda value: None if _number(value) >= minimum else f"must be at least {minimum}"


def between(minimum: float, maximum: float) -> Check:
    return lambda value: None if minimum <= _number(value) <= maximum else f"must be between {minimum} and {maximum}"


def one_of(*choices: str) -> Check:
    return lambda value: None if value in choices else f"must be one of {', '.join(choices)}"


def each_of(*choices: str) -> Check:
    """For lists, which may be empty."""

    def check(value: Value) -> Complaint:
        assert isinstance(value, tuple)
        return None if set(value) <= set(choices) else f"may hold only {', '.join(choices)}"

    return check


def _number(value: Value) -> float:
    assert isinstance(value, int | float)
    return value


class ConfigKey(msgspec.Struct):
    name: str
    type: ConfigType
    default: str
    doc: str
    check: Check | None = None

    def parse(self, text: str) -> Value:
        value = _convert(self.name, self.type, text)
        complaint = self.check(value) if self.check else None
        if complaint:
            raise InvalidConfig(f"Invalid value {text} for configuration {self.name}: it {complaint}.")
        return value


# Python's int() also takes "1_000" and the digits of other scripts; other brokers' tools would not read them back.
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_BOUNDS = {ConfigType.SHORT: 2**15 - 1, ConfigType.INT: INT32_MAX, ConfigType.LONG: INT64_MAX}


def _convert(name: str, kind: ConfigType, text: str) -> Value:
    trimmed = text.strip()
    if kind in _BOUNDS:
        maximum = _BOUNDS[kind]
        if not _INTEGER.fullmatch(trimmed) or not -maximum - 1 <= int(trimmed) <= maximum:
            raise InvalidConfig(f"Invalid value {text} for configuration {name}: not a number of type {kind.name}.")
        return int(trimmed)
    if kind is ConfigType.DOUBLE:
        if not _DECIMAL.fullmatch(trimmed):
            raise InvalidConfig(f"Invalid value {text} for configuration {name}: not a number of type DOUBLE.")
        return float(trimmed)
    if kind is ConfigType.BOOLEAN:
        if trimmed.lower() not in ("true", "false"):
            raise InvalidConfig(f"Invalid value {text} for configuration {name}: it must be true or false.")
        return trimmed.lower() == "true"
    if kind is ConfigType.LIST:
        return split_list(trimmed)
    return trimmed


def split_list(text: str) -> tuple[str, ...]:
    return tuple(part for part in (piece.strip() for piece in text.split(",")) if part)
