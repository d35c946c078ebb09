"""Every topic setting Kafka 4.x has, and Skidway's own `flush`.

Each is either obeyed, or refused with a reason unless it is set to its default: a setting that is accepted has its
effect. A topic's value is its own override, else the broker setting of the same meaning (`Defaults`), else the
default.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import msgspec

from skidway.errors import InvalidConfig
from skidway.limits import INT64_MAX, MIB
from skidway.metadata.config_keys import (
    NO_DEFAULTS,
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigType,
    Defaults,
    Synonym,
    Value,
    at_least,
    between,
    each_of,
    one_of,
)

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
NO_TIERS = "tiered storage is not available"


class BrokerName(msgspec.Struct):
    """A broker setting that gives topics their default; one unit of it is worth `factor` of the topic's."""

    name: str
    factor: int = 1

    def to_topic(self, text: str) -> str:
        if self.factor == 1:
            return text
        # Any negative number of hours means "never", which topics write as -1.
        return str(max(int(text) * self.factor, -1))

    def from_topic(self, text: str) -> str:
        return text if self.factor == 1 else str(int(text) // self.factor)


LEAST_OF_ALL = -(2**63)


class TopicKey(ConfigKey):
    broker_names: tuple[BrokerName, ...] = ()
    """In order of precedence. Only the first can be set at run time; the last is the one that has a default."""
    refusal: str = ""
    """Why no value but the default is accepted; empty for settings that are obeyed."""
    least: int = LEAST_OF_ALL
    """Nobody may set less. What is stored already is obeyed, whatever it is."""
    internal: bool = False
    """Shown only where it is set."""

    def accept(self, text: str) -> Value:
        value = self.parse(text)
        if isinstance(value, int) and value < self.least:
            raise InvalidConfig(
                f"Invalid value {text} for configuration {self.name}: it must be at least {self.least}."
            )
        if self.refusal and value != self.parse(self.default):
            raise InvalidConfig(f"Invalid value {text} for configuration {self.name}: {self.refusal}.")
        return value


class QueueConfig(msgspec.Struct):
    """What a topic is as a queue: the settings `queue.…`."""

    type: str
    visibility_timeout_ms: int
    delay_ms: int
    receive_wait_ms: int
    max_message_bytes: int
    max_deliveries: int
    dead_letter_topic: str
    content_deduplication: bool
    deduplication_scope: str
    attributes: str
    tags: str
    move_tasks: str
    created_ms: int
    modified_ms: int


class TopicConfig(msgspec.Struct):
    """The settings that leaders and logs obey, typed. Field names are the settings' with underscores."""

    cleanup_policy: tuple[str, ...]
    compression_gzip_level: int
    compression_lz4_level: int
    compression_type: str
    compression_zstd_level: int
    delete_retention_ms: int
    file_delete_delay_ms: int
    flush: str
    follower_replication_throttled_replicas: tuple[str, ...]
    index_interval_bytes: int
    leader_replication_throttled_replicas: tuple[str, ...]
    max_compaction_lag_ms: int
    max_message_bytes: int
    message_timestamp_after_max_ms: int
    message_timestamp_before_max_ms: int
    message_timestamp_type: str
    min_cleanable_dirty_ratio: float
    min_compaction_lag_ms: int
    min_insync_replicas: int
    retention_bytes: int
    retention_ms: int
    internal_segment_bytes: int
    segment_bytes: int
    segment_index_bytes: int
    segment_jitter_ms: int
    segment_ms: int
    unclean_leader_election_enable: bool


def throttled_replicas(value: Value) -> str | None:
    assert isinstance(value, tuple)
    fine = value == ("*",) or all(re.fullmatch(r"[0-9]+:[0-9]+", each, re.ASCII) for each in value)
    return None if fine else "must be * or a list of partition:broker"


def _gzip_level(value: Value) -> str | None:
    return None if value == -1 or (isinstance(value, int) and 1 <= value <= 9) else "must be between 1 and 9, or -1"


def _log(name: str) -> tuple[BrokerName, ...]:
    return (BrokerName("log." + name),)


def _same(name: str) -> tuple[BrokerName, ...]:
    return (BrokerName(name),)


_B, _S, _I, _L = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG
_D, _LIST = ConfigType.DOUBLE, ConfigType.LIST
_FOREVER = str(INT64_MAX)


def _key(
    name: str,
    kind: ConfigType,
    default: object,
    doc: str,
    check: Any = None,
    names: tuple[BrokerName, ...] = (),
    refusal: str = "",
    least: int = LEAST_OF_ALL,
    internal: bool = False,
) -> TopicKey:
    return TopicKey(name, kind, str(default), doc, check, names, refusal, least, internal)


_OBEYED = (
    _key("cleanup.policy", _LIST, "delete", "How old data is deleted: `delete` drops whole segments by age "
         "and size, `compact` drops records whose key has a newer one; both may be set.",
         each_of("delete", "compact"), _log("cleanup.policy")),
    _key("compression.type", _S, "producer", "The codec batches are stored with; `producer` keeps what was sent.",
         one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"), _same("compression.type")),
    _key("compression.gzip.level", _I, -1, "The level used when batches are converted to gzip; -1 is the codec's "
         "own default.", _gzip_level, _same("compression.gzip.level")),
    _key("compression.lz4.level", _I, 9, "The level used when batches are converted to lz4.", between(1, 17),
         _same("compression.lz4.level")),
    _key("compression.zstd.level", _I, 3, "The level used when batches are converted to zstd.",
         between(-131_072, 22), _same("compression.zstd.level")),
    _key("delete.retention.ms", _L, DAY_MS, "How long a compacted topic keeps its tombstones.", at_least(0),
         _log("cleaner.delete.retention.ms")),
    _key("min.compaction.lag.ms", _L, 0, "How long a record stays uncompacted at least.", at_least(0),
         _log("cleaner.min.compaction.lag.ms")),
    _key("max.compaction.lag.ms", _L, _FOREVER, "How long a record stays uncompacted at most.", at_least(1),
         _log("cleaner.max.compaction.lag.ms")),
    _key("min.cleanable.dirty.ratio", _D, 0.5, "The uncompacted share of a log at which compaction begins.",
         between(0, 1), _log("cleaner.min.cleanable.ratio")),
    _key("errors.deadletterqueue.group.enable", _B, "false", "Whether share groups may write their dead letters to "
         "the topic."),
    _key("file.delete.delay.ms", _L, 60_000, "How long a dropped segment's file stays on disk.", at_least(0),
         _log("segment.delete.delay.ms")),
    _key("flush", _S, "sync", "When a batch counts as written: `sync` when it is on the disk, `os` when the "
         "operating system has it.", one_of("sync", "os"), _same("flush")),
    _key("follower.replication.throttled.replicas", _LIST, "", "Replicas that fetch at a bounded rate while they are "
         "not in sync: `*`, or partition:broker, where broker is the one that fetches.", throttled_replicas),
    _key("leader.replication.throttled.replicas", _LIST, "", "Replicas that send at a bounded rate to those that are "
         "not in sync: `*`, or partition:broker, where broker is the one that leads.", throttled_replicas),
    _key("internal.segment.bytes", _I, -1, "For tests only: a segment size below the floor of segment.bytes, which it "
         "replaces; -1 for none.", at_least(-1), internal=True),
    _key("index.interval.bytes", _I, 4_096, "About how many bytes of log lie between two index entries.",
         at_least(0), _log("index.interval.bytes")),
    _key("max.message.bytes", _I, MIB + 12, "The largest record batch that is accepted.", at_least(0),
         _same("message.max.bytes")),
    _key("message.timestamp.after.max.ms", _L, HOUR_MS, "How far a record's timestamp may lie in the broker's "
         "future.", at_least(0), _log("message.timestamp.after.max.ms")),
    _key("message.timestamp.before.max.ms", _L, _FOREVER, "How far a record's timestamp may lie in the broker's "
         "past.", at_least(0), _log("message.timestamp.before.max.ms")),
    _key("message.timestamp.type", _S, "CreateTime", "Whether records keep the producer's time or get the time of "
         "the append.", one_of("CreateTime", "LogAppendTime"), _log("message.timestamp.type")),
    _key("min.insync.replicas", _I, 1, "How many replicas must be in sync before acks=all is accepted.",
         at_least(1), _same("min.insync.replicas")),
    _key("retention.bytes", _L, -1, "The size a partition may reach before its oldest segments go; -1 for no bound.",
         at_least(-1), _log("retention.bytes")),
    _key("retention.ms", _L, 7 * DAY_MS, "The age at which segments go; -1 for never.", at_least(-1),
         (BrokerName("log.retention.ms"), BrokerName("log.retention.minutes", 60_000),
          BrokerName("log.retention.hours", HOUR_MS))),
    _key("segment.bytes", _I, 1024 * MIB, "The size at which a new segment file is begun.", at_least(14),
         _log("segment.bytes"), least=MIB),
    _key("segment.index.bytes", _I, 10 * MIB, "The size an index may reach before a new segment is begun; "
         "an entry takes 8.", at_least(8), _log("index.size.max.bytes")),
    _key("segment.jitter.ms", _L, 0, "A random time up to this is taken off segment.ms, so that partitions do not "
         "roll together.", at_least(0),
         (BrokerName("log.roll.jitter.ms"), BrokerName("log.roll.jitter.hours", HOUR_MS))),
    _key("segment.ms", _L, 7 * DAY_MS, "The age at which a new segment file is begun.", at_least(1),
         (BrokerName("log.roll.ms"), BrokerName("log.roll.hours", HOUR_MS))),
    _key("unclean.leader.election.enable", _B, "false", "Whether a replica that lost data may lead when no other can.",
         None, _same("unclean.leader.election.enable")),
)  # fmt: skip

_QUEUES = (
    _key("queue.type", _S, "", "Whether the topic is a queue: `standard` or `fifo`; empty for none.",
         one_of("", "standard", "fifo"), internal=True),
    _key("queue.visibility.timeout.ms", _L, 30_000, "How long a message that was received is hidden from others, if "
         "the receiver does not say.", between(0, 12 * HOUR_MS), internal=True),
    _key("queue.delay.ms", _L, 0, "How long a new message waits before anybody gets it, if its sender does not say.",
         between(0, 900_000), internal=True),
    _key("queue.receive.wait.ms", _L, 0, "How long a receive waits for a message, if it does not say.",
         between(0, 20_000), internal=True),
    _key("queue.max.message.bytes", _I, MIB, "The largest message, with its attributes, that a door takes.",
         between(1_024, MIB), internal=True),
    _key("queue.max.deliveries", _I, 0, "How often a message is delivered before it is dead; 0: until somebody settles "
         "it.", between(0, 1_000), internal=True),
    _key("queue.dead.letter.topic", _S, "", "Where dead messages go; empty: nowhere.", None, internal=True),
    _key("queue.content.deduplication", _B, "false", "Whether the SHA-256 of a FIFO message stands in for the "
         "deduplication id that it does not have.", None, internal=True),
    _key("queue.deduplication.scope", _S, "queue", "Where a FIFO message is compared with others.",
         one_of("queue", "messageGroup"), internal=True),
    _key("queue.attributes", _S, "", "What a door keeps for its clients and nobody obeys, as JSON.", None,
         internal=True),
    _key("queue.tags", _S, "", "The queue's tags, as JSON.", None, internal=True),
    _key("queue.move.tasks", _S, "", "The last tasks that moved messages out of the queue, as JSON.", None,
         internal=True),
    _key("queue.created.ms", _L, 0, "When the queue was created, in ms since 1970.", at_least(0), internal=True),
    _key("queue.modified.ms", _L, 0, "When a door changed its settings last, in ms since 1970.", at_least(0),
         internal=True),
)  # fmt: skip

_REFUSED = (
    _key("flush.messages", _L, _FOREVER, "After how many records the log is synced.", at_least(1),
         _log("flush.interval.messages"), "the setting `flush` decides when data is synced"),
    _key("flush.ms", _L, _FOREVER, "After what time the log is synced.", at_least(0),
         (BrokerName("log.flush.interval.ms"), BrokerName("log.flush.scheduler.interval.ms")),
         "the setting `flush` decides when data is synced"),
    _key("preallocate", _B, "false", "Whether segment files are created at their full size.", None,
         _log("preallocate"), "segment files are not preallocated"),
    _key("remote.storage.enable", _B, "false", "Whether old segments move to remote storage.", None, (), NO_TIERS),
    _key("remote.log.copy.disable", _B, "false", "Whether remote storage takes no more segments.", None, (), NO_TIERS),
    _key("remote.log.delete.on.disable", _B, "false", "Whether remote data goes when remote storage is turned off.",
         None, (), NO_TIERS),
    _key("local.retention.ms", _L, -2, "The age at which segments leave the local disk for remote storage.",
         at_least(-2), _log("local.retention.ms"), NO_TIERS),
    _key("local.retention.bytes", _L, -2, "The local size at which segments are left to remote storage.",
         at_least(-2), _log("local.retention.bytes"), NO_TIERS),
)  # fmt: skip

TOPIC_KEYS: dict[str, TopicKey] = {
    key.name: key for key in sorted(_OBEYED + _QUEUES + _REFUSED, key=lambda key: key.name)
}
BROKER_NAMES: dict[str, TopicKey] = {broker.name: key for key in TOPIC_KEYS.values() for broker in key.broker_names}
_TYPED = [(name, TOPIC_KEYS[name.replace("_", ".")]) for name in TopicConfig.__struct_fields__]
_QUEUE_TYPED = [(name, TOPIC_KEYS["queue." + name.replace("_", ".")]) for name in QueueConfig.__struct_fields__]


def validate(overrides: Mapping[str, str]) -> None:
    """Raises InvalidConfig for the first override that is unknown, malformed, out of bounds or not obeyed."""
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise InvalidConfig(f"Unknown topic config name: {name}")
        key.accept(text)
    least, most = (
        int(overrides.get(name, TOPIC_KEYS[name].default))
        for name in ("min.compaction.lag.ms", "max.compaction.lag.ms")
    )
    if least > most:
        raise InvalidConfig(f"min.compaction.lag.ms ({least}) is above max.compaction.lag.ms ({most}).")


def resolve(overrides: Mapping[str, str], defaults: Defaults = NO_DEFAULTS) -> TopicConfig:
    """What a topic with these overrides does. Overrides and defaults were validated when they were set."""
    return TopicConfig(**{name: _value_of(key, overrides, defaults) for name, key in _TYPED})  # type: ignore[arg-type]


def resolve_queue(overrides: Mapping[str, str]) -> QueueConfig:
    """What a topic with these overrides is as a queue."""
    queue = {name: _value_of(key, overrides, NO_DEFAULTS) for name, key in _QUEUE_TYPED}
    return QueueConfig(**queue)  # type: ignore[arg-type]


def value_of(name: str, overrides: Mapping[str, str], defaults: Defaults = NO_DEFAULTS) -> Value:
    """One setting of a topic."""
    return _value_of(TOPIC_KEYS[name], overrides, defaults)


def _value_of(key: TopicKey, overrides: Mapping[str, str], defaults: Defaults) -> Value:
    text = overrides.get(key.name)
    if text is not None:
        return key.parse(text)
    for synonym, value in _broker_settings(key, defaults):
        return key.parse(synonym.to_topic(value.value or ""))
    return key.parse(key.default)


def _broker_settings(key: TopicKey, defaults: Defaults) -> Iterator[tuple[BrokerName, Synonym]]:
    for source, layer in defaults.layers():
        for broker in key.broker_names:
            text = layer.get(broker.name)
            if text is not None:
                yield broker, Synonym(broker.name, text, source)


def describe(
    overrides: Mapping[str, str], defaults: Defaults = NO_DEFAULTS, names: Collection[str] | None = None
) -> list[ConfigEntry]:
    """Every setting of a topic, or those named, sorted by name; names that do not exist are passed over."""
    return [
        _describe_key(key, overrides, defaults)
        for name, key in TOPIC_KEYS.items()
        if (names is None or name in names) and (not key.internal or name in overrides)
    ]


def _describe_key(key: TopicKey, overrides: Mapping[str, str], defaults: Defaults) -> ConfigEntry:
    value, source, synonyms = key.default, ConfigSource.DEFAULT, list[Synonym]()
    if key.name in overrides:
        value, source = overrides[key.name], ConfigSource.DYNAMIC_TOPIC
        synonyms.append(Synonym(key.name, value, source))
    for broker, synonym in _broker_settings(key, defaults):
        if synonym.source is ConfigSource.STATIC_BROKER and broker.to_topic(synonym.value or "") == key.default:
            continue  # The node tells all its settings, also those that nobody set: they are no override.
        if not synonyms:
            value, source = broker.to_topic(synonym.value or ""), synonym.source
        synonyms.append(synonym)
    if key.broker_names:
        fallback = key.broker_names[-1]
        synonyms.append(Synonym(fallback.name, fallback.from_topic(key.default), ConfigSource.DEFAULT))
    return ConfigEntry(key.name, value, source, key.type, key.doc, synonyms=synonyms)
