"""Settings of single groups, as admin tools see and change them.

A group without a setting of its own follows the broker's. What a group may set lies between bounds that the broker's
operator chose. The bounds may have moved since a setting was stored, so `timeouts` keeps to those of now.
"""

import re
from collections.abc import Collection, Mapping
from typing import NamedTuple

from skidway.errors import InvalidConfig
from skidway.metadata.config_keys import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigType,
    Synonym,
    at_least,
    between,
    one_of,
)
from skidway.metadata.topic_names import is_legal

BY_DURATION = "by_duration"
# As Java reads a duration, without signs: none may go forwards. At most nine digits each, so no number is too long.
_DURATION = re.compile(r"P(?:(\d{1,9})D)?(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,9})?)S)?)?", re.ASCII)

NOT_YET = {
    "share.assignment.interval.ms": "a group is rebalanced immediately, never with a delay",
    "streams.": "streams groups are not available yet",
    "consumer.assignment.interval.ms": "a group is rebalanced immediately, never with a delay",
}


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
SHARE_SESSION = GroupKey(
    "share.session.timeout.ms",
    ConfigType.INT,
    "45000",
    "The time without a heartbeat after which a member of a share group is removed.",
    at_least(1),
    "group.share.session.timeout.ms",
    "group.share.min.session.timeout.ms",
    "group.share.max.session.timeout.ms",
)
SHARE_HEARTBEAT = GroupKey(
    "share.heartbeat.interval.ms",
    ConfigType.INT,
    "5000",
    "How often members of a share group send heartbeats.",
    at_least(1),
    "group.share.heartbeat.interval.ms",
    "group.share.min.heartbeat.interval.ms",
    "group.share.max.heartbeat.interval.ms",
)
SHARE_LOCK = GroupKey(
    "share.record.lock.duration.ms",
    ConfigType.INT,
    "30000",
    "How long a record is locked for the member of a share group that it was delivered to.",
    between(1_000, 3_600_000),
    "group.share.record.lock.duration.ms",
    "group.share.min.record.lock.duration.ms",
    "group.share.max.record.lock.duration.ms",
)
SHARE_DELIVERIES = GroupKey(
    "share.delivery.count.limit",
    ConfigType.INT,
    "5",
    "How often a record is delivered at most.",
    between(2, 25),
    "group.share.delivery.count.limit",
    "group.share.min.delivery.count.limit",
    "group.share.max.delivery.count.limit",
)
SHARE_LOCKS = GroupKey(
    "share.partition.max.record.locks",
    ConfigType.INT,
    "2000",
    "How many records of a partition are locked at once.",
    between(100, 10_000),
    "group.share.partition.max.record.locks",
    "group.share.min.partition.max.record.locks",
    "group.share.max.partition.max.record.locks",
)
SHARE_RESET = GroupKey(
    "share.auto.offset.reset",
    ConfigType.STRING,
    "latest",
    "Where a share group begins with a partition: latest, earliest, or by_duration: and how far back (PnDTnHnMn.nS).",
    lambda value: None if _start(str(value)) is not None else "must be latest, earliest or by_duration:PnDTnHnMn.nS",
)
SHARE_ISOLATION = GroupKey(
    "share.isolation.level",
    ConfigType.STRING,
    "read_uncommitted",
    "Whether a share group is delivered records of transactions that are open or were aborted.",
    one_of("read_committed", "read_uncommitted"),
)
SHARE_RENEW = GroupKey(
    "share.renew.acknowledge.enable",
    ConfigType.BOOLEAN,
    "true",
    "Whether members of a share group may renew their locks.",
)
LETTER_TOPIC = GroupKey(
    "errors.deadletterqueue.topic.name",
    ConfigType.STRING,
    "",
    "The topic for copies of records that a share group rejects, or fails to process too often; empty: none.",
    lambda value: _letter_topic_complaint(str(value)),
)
LETTER_COPIES = GroupKey(
    "errors.deadletterqueue.copy.record.enable",
    ConfigType.BOOLEAN,
    "true",
    "Whether a dead letter has the key, value, headers and timestamp of its record, or only says where it was.",
)
LETTER_FAILURE = GroupKey(
    "errors.deadletterqueue.on.failure",
    ConfigType.STRING,
    "block",
    "What becomes of a dead record whose letter cannot be written: block keeps it and retries, archive gives it up.",
    one_of("block", "archive"),
)
SHARE_ORDER = GroupKey(
    "share.key.order",
    ConfigType.STRING,
    "none",
    "Whether records with the same key come in order, and are with one member at a time (key), or not (none).",
    one_of("none", "key"),
)
SHARE_DELAYS = GroupKey(
    "share.record.delays.enable",
    ConfigType.BOOLEAN,
    "false",
    "Whether a record with a header deliver-at or delay is delivered to members of a share group no earlier than that.",
)
GROUP_KEYS: dict[str, GroupKey] = {
    key.name: key
    for key in (
        HEARTBEAT,
        SESSION,
        LETTER_COPIES,
        LETTER_FAILURE,
        LETTER_TOPIC,
        SHARE_RESET,
        SHARE_DELIVERIES,
        SHARE_HEARTBEAT,
        SHARE_ISOLATION,
        SHARE_ORDER,
        SHARE_LOCKS,
        SHARE_LOCK,
        SHARE_DELAYS,
        SHARE_RENEW,
        SHARE_SESSION,
    )
}
_PAIRS = ((SESSION, HEARTBEAT), (SHARE_SESSION, SHARE_HEARTBEAT))


class ShareStart(NamedTuple):
    """Where a share group begins with a partition."""

    strategy: str
    """latest, earliest or by_duration"""
    duration_ms: int = 0


class ShareConfig(NamedTuple):
    """What the leaders of a share group's partitions obey."""

    lock_ms: int
    deliveries_max: int
    locks_max: int
    reads_committed: bool
    may_renew: bool
    in_key_order: bool = False
    delays: bool = False


class ShareLetters(NamedTuple):
    """What becomes of a share group's dead records."""

    topic: str
    copies: bool
    blocks: bool
    """A record whose letter cannot be written waits; else it is archived without."""
    of_queue: bool = False
    """Then the letters are messages of another queue, which is made if it is not there."""


def validate(overrides: Mapping[str, str], static: Mapping[str, str]) -> None:
    """Raises InvalidConfig unless the broker would obey each of them, and all together."""
    for name, text in overrides.items():
        key = GROUP_KEYS.get(name)
        if key is None:
            raise InvalidConfig(_refusal(name))
        value = key.parse(text)
        if not isinstance(value, int):
            continue
        if key.minimum in static and value < int(static[key.minimum]):
            raise InvalidConfig(f"{name} must be greater than or equal to {key.minimum} ({static[key.minimum]})")
        if key.maximum in static and value > int(static[key.maximum]):
            raise InvalidConfig(f"{name} must be less than or equal to {key.maximum} ({static[key.maximum]})")
    for session, heartbeat in _PAIRS:
        session_ms, heartbeat_ms = (_number(key, _text(key, overrides, static)) for key in (session, heartbeat))
        if overrides and session_ms <= heartbeat_ms:
            raise InvalidConfig(
                f"{session.name} ({session_ms}) must be greater than {heartbeat.name} ({heartbeat_ms}): "
                "a member would be removed before its next heartbeat"
            )


def timeouts(overrides: Mapping[str, str], static: Mapping[str, str]) -> tuple[int, int]:
    """Of a group with overrides that were once accepted: session timeout and heartbeat interval."""
    return _bounded(SESSION, overrides, static), _bounded(HEARTBEAT, overrides, static)


def share_timeouts(overrides: Mapping[str, str], static: Mapping[str, str]) -> tuple[int, int]:
    return _bounded(SHARE_SESSION, overrides, static), _bounded(SHARE_HEARTBEAT, overrides, static)


def share_config(overrides: Mapping[str, str], static: Mapping[str, str]) -> ShareConfig:
    return ShareConfig(
        _bounded(SHARE_LOCK, overrides, static),
        _bounded(SHARE_DELIVERIES, overrides, static),
        _bounded(SHARE_LOCKS, overrides, static),
        _text(SHARE_ISOLATION, overrides, static) == "read_committed",
        _text(SHARE_RENEW, overrides, static) == "true",
        _text(SHARE_ORDER, overrides, static) == "key",
        _text(SHARE_DELAYS, overrides, static) == "true",
    )


def share_letters(overrides: Mapping[str, str]) -> ShareLetters | None:
    """None: dead records are archived, and that is all."""
    topic = _text(LETTER_TOPIC, overrides, {})
    if not topic:
        return None
    return ShareLetters(
        topic,
        LETTER_COPIES.parse(_text(LETTER_COPIES, overrides, {})) is True,
        _text(LETTER_FAILURE, overrides, {}) == "block",
    )


def _letter_topic_complaint(name: str) -> str | None:
    if name.startswith("__"):
        return "must not begin with __: such topics are the broker's own"
    return None if not name or is_legal(name) else "must be the name of a topic"


def share_start(overrides: Mapping[str, str]) -> ShareStart:
    start = _start(_text(SHARE_RESET, overrides, {}))
    assert start is not None, "it was checked when it was set"
    return start


def _start(text: str) -> ShareStart | None:
    if text in ("latest", "earliest"):
        return ShareStart(text)
    prefix, _, duration = text.partition(":")
    match = _DURATION.fullmatch(duration)
    if prefix != BY_DURATION or match is None or not any(match.groups()):
        return None
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return ShareStart(BY_DURATION, int((((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000))


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
    synonyms = [Synonym(key.broker_name or key.name, key.default, ConfigSource.DEFAULT)]
    if static.get(key.broker_name, key.default) != key.default:
        synonyms.insert(0, Synonym(key.broker_name, static[key.broker_name], ConfigSource.STATIC_BROKER))
    if key.name in overrides:
        synonyms.insert(0, Synonym(key.name, overrides[key.name], ConfigSource.DYNAMIC_GROUP))
    return ConfigEntry(key.name, synonyms[0].value, synonyms[0].source, key.type, key.doc, synonyms=synonyms)
