"""Settings of single groups, as admin tools see and change them.

A group without a setting of its own follows the broker's. What a group may set lies between bounds that the broker's
operator chose. The bounds may have moved since a setting was stored, so `timeouts` keeps to those of now.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from skidway.errors import InvalidConfig
from skidway.metadata.config_keys import ConfigEntry, ConfigKey, ConfigSource, ConfigType, Synonym, at_least

NOT_YET = {
    "share.": "share groups are not available yet",
    "streams.": "streams groups are not available yet",
    "consumer.assignment.interval.ms": "a group is rebalanced immediately, never with a delay",
}


@dataclass(slots=True)
class GroupKey(ConfigKey):
    """With the broker setting it overrides, and those that bound it."""

    broker_name: str = ""
    minimum: str = ""
    maximum: str = ""


SESSION = GroupKey(
    "consumer.session.timeout.ms",
    ConfigType.INT,
    "45000",
    "The time without a heartbeat after which a member of the consumer protocol is removed.",
    at_least(1),
    "group.consumer.session.timeout.ms",
    "group.consumer.min.session.timeout.ms",
    "group.consumer.max.session.timeout.ms",
)
HEARTBEAT = GroupKey(
    "consumer.heartbeat.interval.ms",
    ConfigType.INT,
    "5000",
    "How often members of the consumer protocol send heartbeats.",
    at_least(1),
    "group.consumer.heartbeat.interval.ms",
    "group.consumer.min.heartbeat.interval.ms",
    "group.consumer.max.heartbeat.interval.ms",
)
GROUP_KEYS: dict[str, GroupKey] = {key.name: key for key in (HEARTBEAT, SESSION)}


def validate(overrides: Mapping[str, str], static: Mapping[str, str]) -> None:
    """Raises InvalidConfig unless the broker would obey each of them, and all together."""
    for name, text in overrides.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise InvalidConfig(_refusal(name))
        value = _number(key, text)
        if key.minimum in static and value < int(static[key.minimum]):
            raise InvalidConfig(f"{name} must be greater than or equal to {key.minimum} ({static[key.minimum]})")
        if key.maximum in static and value > int(static[key.maximum]):
            raise InvalidConfig(f"{name} must be less than or equal to {key.maximum} ({static[key.maximum]})")
    session_ms, heartbeat_ms = (_number(key, _text(key, overrides, static)) for key in (SESSION, HEARTBEAT))
    if overrides and session_ms <= heartbeat_ms:
        raise InvalidConfig(
            f"{SESSION.name} ({session_ms}) must be greater than {HEARTBEAT.name} ({heartbeat_ms}): "
            "a member would be removed before its next heartbeat"
        )


def timeouts(overrides: Mapping[str, str], static: Mapping[str, str]) -> tuple[int, int]:
    """Of a group with overrides that were once accepted: session timeout and heartbeat interval."""
    return _bounded(SESSION, overrides, static), _bounded(HEARTBEAT, overrides, static)


def describe(
    overrides: Mapping[str, str], static: Mapping[str, str], names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Every setting of one group, or those named, sorted by name. A group need not exist to have settings."""
    return [_entry(key, overrides, static) for key in GROUP_KEYS.values() if names is None or key.name in names]


def _refusal(name: str) -> str:
    for prefix, reason in NOT_YET.items():
        if name.startswith(prefix):
            return f"Cannot set {name}: {reason}."
    return f"Unknown group config name: {name}"


def _text(key: GroupKey, overrides: Mapping[str, str], static: Mapping[str, str]) -> str:
    return overrides.get(key.name) or static.get(key.broker_name, key.default)


def _number(key: GroupKey, text: str) -> int:
    value = key.parse(text)
    assert isinstance(value, int)
    return value


def _bounded(key: GroupKey, overrides: Mapping[str, str], static: Mapping[str, str]) -> int:
    value = _number(key, _text(key, overrides, static))
    if key.maximum in static:
        value = min(value, int(static[key.maximum]))
    if key.minimum in static:
        value = max(value, int(static[key.minimum]))
    return value


def _entry(key: GroupKey, overrides: Mapping[str, str], static: Mapping[str, str]) -> ConfigEntry:
    synonyms = [Synonym(key.broker_name, key.default, ConfigSource.DEFAULT)]
    if static.get(key.broker_name, key.default) != key.default:
        synonyms.insert(0, Synonym(key.broker_name, static[key.broker_name], ConfigSource.STATIC_BROKER))
    if key.name in overrides:
        synonyms.insert(0, Synonym(key.name, overrides[key.name], ConfigSource.DYNAMIC_GROUP))
    return ConfigEntry(key.name, synonyms[0].value, synonyms[0].source, key.type, key.doc, synonyms=synonyms)
