"""Broker settings as admin tools see and change them.

The broker names of topic settings (`log.retention.ms`, `message.max.bytes`, ...) can be changed at run time, for one
broker or for all: they are defaults that topics without an override follow. Everything else that has an effect is
shown read-only, as the operator's configuration file set it (`static`), under the names Kafka's tools know. Kafka's
other settings (`idle_configs`) have no effect: they are shown, and stored where Kafka would.
"""

from collections.abc import Collection, Mapping

from skidway.errors import InvalidConfig, InvalidRequest
from skidway.limits import DEFAULT_LIMITS, DEFAULT_SEND_BUFFER_BYTES, INT64_MAX, MIB
from skidway.metadata.config_keys import (
    NO_DEFAULTS,
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigType,
    Defaults,
    Synonym,
    at_least,
    between,
)
from skidway.metadata.idle_configs import IDLE_KEYS
from skidway.metadata.topic_configs import BROKER_NAMES, TOPIC_KEYS, BrokerName, TopicKey
from skidway.metadata.topic_names import is_legal

_B, _S, _I, _L = ConfigType.BOOLEAN, ConfigType.STRING, ConfigType.INT, ConfigType.LONG

_STATIC = (
    ConfigKey("advertised.listeners", _S, "", "The addresses that clients connect to."),
    ConfigKey("auto.create.topics.enable", _B, "true", "Whether asking for an unknown topic creates it."),
    ConfigKey("broker.id", _I, "-1", "The number of this broker in its cluster.", at_least(-1)),
    ConfigKey(
        "broker.heartbeat.interval.ms", _I, "200", "How often this broker reports to the controller.", at_least(1)
    ),
    ConfigKey("broker.rack", _S, "", "The rack of this broker; replicas are spread over racks."),
    ConfigKey(
        "broker.session.timeout.ms",
        _I,
        "1200",
        "The time without a heartbeat after which the controller fences a broker.",
        at_least(1),
    ),
    ConfigKey(
        "connections.max.idle.ms",
        _L,
        str(DEFAULT_LIMITS.connection_idle_ms),
        "How long a connection may be silent before it is closed.",
    ),
    ConfigKey(
        "controller.quorum.voters", ConfigType.LIST, "", "The voters of the metadata quorum when this node was new."
    ),
    ConfigKey(
        "default.replication.factor", _I, "1", "Replicas of a topic that is created without a number.", at_least(1)
    ),
    ConfigKey("delete.topic.enable", _B, "true", "Whether topics can be deleted."),
    ConfigKey(
        "fetch.max.bytes", _I, str(DEFAULT_LIMITS.fetch_bytes_max), "The largest fetch response.", at_least(1024)
    ),
    ConfigKey(
        "group.consumer.heartbeat.interval.ms",
        _I,
        "5000",
        "How often members of the consumer protocol send heartbeats.",
    ),
    ConfigKey("group.consumer.max.heartbeat.interval.ms", _I, "15000", "The longest such interval of a single group."),
    ConfigKey("group.consumer.max.session.timeout.ms", _I, "60000", "The longest session timeout of a single group."),
    ConfigKey("group.consumer.max.size", _I, "2147483647", "Members of one group of the consumer protocol."),
    ConfigKey("group.consumer.min.heartbeat.interval.ms", _I, "5000", "The shortest interval of a single group."),
    ConfigKey("group.consumer.min.session.timeout.ms", _I, "45000", "The shortest session timeout of a single group."),
    ConfigKey(
        "group.consumer.session.timeout.ms",
        _I,
        "45000",
        "The time without a heartbeat after which a member of the consumer protocol is removed.",
    ),
    ConfigKey("group.initial.rebalance.delay.ms", _I, "3000", "How long an empty group waits for more members."),
    ConfigKey("group.max.session.timeout.ms", _I, "1800000", "The longest session a member may ask for."),
    ConfigKey("group.max.size", _I, "2147483647", "Members of one classic group."),
    ConfigKey("group.min.session.timeout.ms", _I, "6000", "The shortest session a member may ask for."),
    ConfigKey(
        "group.share.delivery.count.limit",
        _I,
        "5",
        "How often a record is delivered to a share group at most.",
        between(2, 10),
    ),
    ConfigKey(
        "group.share.heartbeat.interval.ms",
        _I,
        "5000",
        "How often members of share groups send heartbeats.",
        at_least(1),
    ),
    ConfigKey(
        "group.share.max.delivery.count.limit",
        _I,
        "10",
        "The highest such number of a single share group.",
        between(5, 25),
    ),
    ConfigKey(
        "group.share.max.heartbeat.interval.ms",
        _I,
        "15000",
        "The longest interval of a single share group.",
        at_least(1),
    ),
    ConfigKey(
        "group.share.max.partition.max.record.locks",
        _I,
        "4000",
        "The highest such number of a single share group.",
        between(2_000, 10_000),
    ),
    ConfigKey(
        "group.share.max.record.lock.duration.ms",
        _I,
        "60000",
        "The longest such time of a single share group.",
        between(30_000, 3_600_000),
    ),
    ConfigKey(
        "group.share.max.session.timeout.ms",
        _I,
        "60000",
        "The longest session timeout of a single share group.",
        at_least(1),
    ),
    ConfigKey(
        "group.share.max.share.sessions",
        _I,
        "2000",
        "Sessions of members of share groups at one broker.",
        at_least(1),
    ),
    ConfigKey("group.share.max.size", _I, "200", "Members of one share group.", between(1, 1_000)),
    ConfigKey(
        "group.share.min.delivery.count.limit",
        _I,
        "2",
        "The lowest such number of a single share group.",
        between(2, 5),
    ),
    ConfigKey(
        "group.share.min.heartbeat.interval.ms",
        _I,
        "5000",
        "The shortest interval of a single share group.",
        at_least(1),
    ),
    ConfigKey(
        "group.share.min.partition.max.record.locks",
        _I,
        "100",
        "The lowest such number of a single share group.",
        between(100, 2_000),
    ),
    ConfigKey(
        "group.share.min.record.lock.duration.ms",
        _I,
        "15000",
        "The shortest such time of a single share group.",
        between(1_000, 30_000),
    ),
    ConfigKey(
        "group.share.min.session.timeout.ms",
        _I,
        "45000",
        "The shortest session timeout of a single share group.",
        at_least(1),
    ),
    ConfigKey(
        "group.share.partition.max.record.locks",
        _I,
        "2000",
        "How many records of a partition are locked at once for a share group.",
        between(100, 10_000),
    ),
    ConfigKey(
        "group.share.record.lock.duration.ms",
        _I,
        "30000",
        "How long a record is locked for the member of a share group that it was delivered to.",
        between(1_000, 3_600_000),
    ),
    ConfigKey(
        "group.share.session.timeout.ms",
        _I,
        "45000",
        "The time without a heartbeat after which a member of a share group is removed.",
        at_least(1),
    ),
    ConfigKey("inter.broker.listener.name", _S, "", "The listener by which nodes speak to each other."),
    ConfigKey("listeners", _S, "", "The addresses this broker listens on."),
    ConfigKey("log.dir", _S, "", "The data directory."),
    ConfigKey("log.dirs", _S, "", "The data directories; there is one."),
    ConfigKey("log.retention.check.interval.ms", _L, "300000", "How often the broker checks segments for retention."),
    ConfigKey("node.id", _I, "-1", "The number of this node in its cluster.", at_least(-1)),
    ConfigKey("num.partitions", _I, "1", "Partitions of a topic that is created without a number.", at_least(1)),
    ConfigKey("offset.metadata.max.bytes", _I, "4096", "The longest text that may be committed with an offset."),
    ConfigKey(
        "offsets.retention.check.interval.ms", _L, "600000", "How often the broker checks committed offsets for expiry."
    ),
    ConfigKey("offsets.retention.minutes", _I, "10080", "How long the offsets of an empty group are kept."),
    ConfigKey("offsets.topic.num.partitions", _I, "50", "Partitions of the topic that groups are kept in."),
    ConfigKey("process.roles", ConfigType.LIST, "broker,controller", "What this process does in its cluster."),
    ConfigKey("replica.lag.time.max.ms", _L, "10000", "How long a replica may be behind and still be in sync."),
    ConfigKey(
        "share.coordinator.snapshot.update.records.per.snapshot",
        _I,
        "500",
        "Updates of a share-partition's state after which a snapshot takes their place.",
        between(0, 500),
    ),
    ConfigKey(
        "share.coordinator.state.topic.min.isr",
        _I,
        "2",
        "The least replicas in sync of the topic that share-partitions are kept in.",
        at_least(1),
    ),
    ConfigKey(
        "share.coordinator.state.topic.num.partitions",
        _I,
        "50",
        "Partitions of the topic that share-partitions are kept in.",
        at_least(1),
    ),
    ConfigKey(
        "share.coordinator.state.topic.segment.bytes",
        _I,
        "104857600",
        "The size of that topic's segments.",
        at_least(1),
    ),
    ConfigKey(
        "share.coordinator.write.timeout.ms",
        _I,
        "5000",
        "How long a share coordinator is asked until the answer is that it is not there.",
        at_least(1),
    ),
    ConfigKey("socket.request.max.bytes", _I, str(DEFAULT_LIMITS.frame_bytes_max), "The largest request.", at_least(1)),
    ConfigKey(
        "socket.send.buffer.bytes",
        _I,
        str(DEFAULT_SEND_BUFFER_BYTES),
        "The send buffer of each client's socket; -1 leaves it to the kernel.",
        at_least(-1),
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        _I,
        "10000",
        "How often the coordinator aborts transactions that have timed out.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        _I,
        "900000",
        "The longest time-out that a transactional producer may ask for.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        _I,
        "3600000",
        "How often the coordinator looks for transactional ids to forget.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        _I,
        "50",
        "Partitions of the topic that transactions are kept in.",
        at_least(1),
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        _I,
        "604800000",
        "How long a transactional id is remembered that nobody uses.",
        at_least(1),
    ),
)
VERIFICATION = "transaction.partition.verification.enable"
CONNECTIONS_MIN = 50
"""Nodes and administrators need connections too, or nobody could take the change back."""
LETTER_TOPICS_MADE = "errors.deadletterqueue.auto.create.topics.enable"
LETTER_PREFIX = "errors.deadletterqueue.topic.name.prefix"
_OWN = (
    ConfigKey(
        LETTER_TOPICS_MADE,
        _B,
        "false",
        "Whether the topic for dead letters of a share group is created when the first one is written.",
    ),
    ConfigKey(
        LETTER_PREFIX,
        _S,
        "dlq.",
        "What the names of topics for dead letters of share groups begin with; empty: any name will do.",
        lambda value: None if not value or is_legal(str(value)) else "must be the beginning of a topic's name",
    ),
    ConfigKey(
        "follower.replication.throttled.rate",
        _L,
        str(INT64_MAX),
        "Bytes per second that throttled replicas here fetch.",
        at_least(0),
    ),
    ConfigKey(
        "leader.replication.throttled.rate",
        _L,
        str(INT64_MAX),
        "Bytes per second that leaders here send to throttled replicas.",
        at_least(0),
    ),
    ConfigKey("log.cleaner.backoff.ms", _L, "15000", "How often the broker checks which logs to compact.", at_least(0)),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        _L,
        str(DEFAULT_LIMITS.compaction_bytes_max),
        "Memory for the keys of the log that is being compacted.",
        at_least(MIB),
    ),
    ConfigKey(
        "max.connections",
        _I,
        str(DEFAULT_LIMITS.connections_max),
        "Connections of all clients together.",
        at_least(CONNECTIONS_MIN),
    ),
    ConfigKey(
        "max.connections.per.ip",
        _I,
        str(DEFAULT_LIMITS.connections_per_ip_max),
        "Connections from one address.",
        at_least(CONNECTIONS_MIN),
    ),
    ConfigKey(
        "producer.id.expiration.ms",
        _I,
        str(DEFAULT_LIMITS.producer_expiry_ms),
        "How long an idle producer's sequence numbers are remembered.",
        at_least(1),
    ),
    ConfigKey(
        VERIFICATION,
        _B,
        "true",
        "Whether a leader asks the coordinator before the first batch of a transaction, of clients that add partitions "
        "themselves.",
    ),
)
OWN_KEYS: dict[str, ConfigKey] = {key.name: key for key in _OWN}
"""Settings of a broker itself that can be changed at run time: numbers, which `number` tells, and those that `verifies`
and `letter_topics` tell."""
LIMIT_NAMES = {
    "log.cleaner.dedupe.buffer.size": "compaction_bytes_max",
    "max.connections": "connections_max",
    "max.connections.per.ip": "connections_per_ip_max",
    "producer.id.expiration.ms": "producer_expiry_ms",
}
"""Those that are bounds, and what `limits` calls them."""
DRAINED = "skidway.drained"
_DRAINED_KEY = ConfigKey(DRAINED, _B, "false", "Whether this broker is kept empty: no new replicas are placed on it.")
"""Of one broker, never of all."""
STATIC_KEYS: dict[str, ConfigKey] = {key.name: key for key in _STATIC}
DYNAMIC_NAMES: dict[str, TopicKey] = {key.broker_names[0].name: key for key in TOPIC_KEYS.values() if key.broker_names}


def validate_static(static: Mapping[str, str]) -> None:
    """Raises InvalidConfig unless every setting is known and its value is one this broker obeys."""
    for name, text in static.items():
        if name in BROKER_NAMES or name in OWN_KEYS:
            _accept(name, text)
        elif name in STATIC_KEYS:
            STATIC_KEYS[name].parse(text)
        elif name in IDLE_KEYS:
            raise InvalidConfig(f"{name} has no effect here: {IDLE_KEYS[name].why}.")
        else:
            raise InvalidConfig(f"Unknown broker config name: {name}")


def validate_of_one(overrides: Mapping[str, str]) -> None:
    """Settings of one broker."""
    if DRAINED in overrides:
        try:
            _DRAINED_KEY.parse(overrides[DRAINED])
        except InvalidConfig as refusal:
            raise InvalidRequest(str(refusal)) from None
    validate_of_all({name: text for name, text in overrides.items() if name != DRAINED})


def validate_of_all(overrides: Mapping[str, str]) -> None:
    """As Kafka answers: what cannot be changed at run time, or not to that value, is an InvalidRequest."""
    for name, text in overrides.items():
        if name == DRAINED:
            raise InvalidRequest(f"Cannot update {name} for all brokers: set it for one of them.")
        if dynamic_key(name) is None:
            raise InvalidRequest(f"Cannot update {name} dynamically: {_why_not(name)}.")
        try:
            _accept(name, text)
        except InvalidConfig as refusal:
            raise InvalidRequest(str(refusal)) from None


def dynamic_key(name: str) -> ConfigKey | None:
    """What can be changed at run time, for one broker or for all."""
    idle = IDLE_KEYS.get(name)
    return DYNAMIC_NAMES.get(name) or OWN_KEYS.get(name) or (idle if idle is not None and idle.is_dynamic else None)


def _why_not(name: str) -> str:
    if name in STATIC_KEYS or name in BROKER_NAMES:
        return "it is set in the broker's configuration file"
    if name in IDLE_KEYS:
        return f"Kafka reads it when it starts, and it has no effect here: {IDLE_KEYS[name].why}"
    return "there is no such broker config"


def _accept(name: str, text: str) -> None:
    """The value must be fine for the topic setting it is the default of."""
    if name in OWN_KEYS or name in IDLE_KEYS:
        (OWN_KEYS.get(name) or IDLE_KEYS[name]).parse(text)
        return
    key = BROKER_NAMES[name]
    broker = _broker_name(name)
    if broker.factor != 1:
        text = broker.to_topic(str(ConfigKey(name, ConfigType.INT, "", "").parse(text)))
    try:
        key.accept(text)
    except InvalidConfig as refusal:
        raise InvalidConfig(f"{name}: {refusal}") from None


def _broker_name(name: str) -> BrokerName:
    return next(broker for broker in BROKER_NAMES[name].broker_names if broker.name == name)


def describe_broker(defaults: Defaults = NO_DEFAULTS, names: Collection[str] | None = None) -> list[ConfigEntry]:
    """Every setting of one broker, or those named, sorted by name."""
    entries: list[ConfigEntry] = []
    for name in sorted({*STATIC_KEYS, *BROKER_NAMES, *OWN_KEYS, *IDLE_KEYS, DRAINED}):
        if names is not None and name not in names:
            continue
        if name == DRAINED:
            entries.append(_describe_drained(defaults.node))
        elif name in BROKER_NAMES:
            entries.append(_describe_topic_default(name, defaults))
        elif name in IDLE_KEYS:
            entries.append(_describe_idle(name, defaults))
        else:
            entries.append(_describe_own(name, defaults) if name in OWN_KEYS else _fixed(name, defaults))
    return entries


def is_drained(settings: Mapping[str, str]) -> bool:
    """By what one broker was told for itself."""
    return bool(_DRAINED_KEY.parse(settings.get(DRAINED, _DRAINED_KEY.default)))


def _describe_drained(settings: Mapping[str, str]) -> ConfigEntry:
    synonyms = [Synonym(DRAINED, _DRAINED_KEY.default, ConfigSource.DEFAULT)]
    if DRAINED in settings:
        synonyms.insert(0, Synonym(DRAINED, settings[DRAINED], ConfigSource.DYNAMIC_BROKER))
    first = synonyms[0]
    return ConfigEntry(DRAINED, first.value, first.source, _DRAINED_KEY.type, _DRAINED_KEY.doc, synonyms=synonyms)


def number(name: str, defaults: Defaults) -> int:
    """What a broker obeys."""
    return int(_describe_own(name, defaults).value or "")


def verifies(defaults: Defaults) -> bool:
    return OWN_KEYS[VERIFICATION].parse(_describe_own(VERIFICATION, defaults).value or "") is True


def letter_topics(defaults: Defaults) -> tuple[bool, str]:
    """Topics for dead letters of share groups: whether they are created, and what their names begin with."""
    made = _describe_own(LETTER_TOPICS_MADE, defaults).value or ""
    return OWN_KEYS[LETTER_TOPICS_MADE].parse(made) is True, _describe_own(LETTER_PREFIX, defaults).value or ""


def _describe_own(name: str, defaults: Defaults) -> ConfigEntry:
    key = OWN_KEYS[name]
    synonyms = [
        Synonym(name, layer[name], source)
        for source, layer in defaults.layers()
        # The node tells all its settings, also those that nobody set.
        if name in layer and (source is not ConfigSource.STATIC_BROKER or layer[name] != key.default)
    ]
    synonyms.append(Synonym(name, key.default, ConfigSource.DEFAULT))
    return ConfigEntry(name, synonyms[0].value, synonyms[0].source, key.type, key.doc, synonyms=synonyms)


def _describe_idle(name: str, defaults: Defaults) -> ConfigEntry:
    key = IDLE_KEYS[name]
    synonyms = [Synonym(name, layer[name], source) for source, layer in defaults.layers() if name in layer]
    if not key.is_null:
        synonyms.append(Synonym(name, key.default, ConfigSource.DEFAULT))
    value, source = (synonyms[0].value, synonyms[0].source) if synonyms else (None, ConfigSource.DEFAULT)
    return ConfigEntry(
        name, value, source, key.type, key.doc, not key.is_dynamic, key.type is ConfigType.PASSWORD, synonyms
    )


def describe_cluster_default(cluster: Mapping[str, str], names: Collection[str] | None = None) -> list[ConfigEntry]:
    """What was set for all brokers (the BROKER resource with the empty name)."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    keys: dict[str, ConfigKey] = {**BROKER_NAMES, **OWN_KEYS, **IDLE_KEYS}
    return [
        ConfigEntry(name, text, source, keys[name].type, keys[name].doc, synonyms=[Synonym(name, text, source)])
        for name, text in sorted(cluster.items())
        if names is None or name in names
    ]


def _fixed(name: str, defaults: Defaults) -> ConfigEntry:
    key = STATIC_KEYS[name]
    synonyms = [Synonym(name, key.default, ConfigSource.DEFAULT)]
    if defaults.static.get(name, key.default) != key.default:
        # The node tells all its settings, also those that nobody set.
        synonyms.insert(0, Synonym(name, defaults.static[name], ConfigSource.STATIC_BROKER))
    return ConfigEntry(
        name, synonyms[0].value, synonyms[0].source, key.type, key.doc, read_only=True, synonyms=synonyms
    )


def _describe_topic_default(name: str, defaults: Defaults) -> ConfigEntry:
    key, broker = BROKER_NAMES[name], _broker_name(name)
    synonyms = [Synonym(name, layer[name], source) for source, layer in defaults.layers() if name in layer]
    if broker == key.broker_names[-1]:
        synonyms.append(Synonym(name, broker.from_topic(key.default), ConfigSource.DEFAULT))
    value, source = (synonyms[0].value, synonyms[0].source) if synonyms else (None, ConfigSource.DEFAULT)
    kind = key.type if broker.factor == 1 else ConfigType.INT
    return ConfigEntry(name, value, source, kind, key.doc, read_only=name not in DYNAMIC_NAMES, synonyms=synonyms)
