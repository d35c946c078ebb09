"""Topic settings: what is accepted is obeyed, what is not is refused with a reason, and every value has a source."""

import pytest

from skidway.errors import InvalidConfig, InvalidRequest
from skidway.metadata import broker_configs, topic_configs
from skidway.metadata.config_keys import ConfigEntry, ConfigSource, ConfigType, Defaults, Synonym
from skidway.metadata.idle_configs import IDLE_KEYS
from skidway.metadata.topic_configs import (
    TOPIC_KEYS,
    QueueConfig,
    TopicConfig,
    describe,
    resolve,
    resolve_queue,
    validate,
)

DAY_MS = 86_400_000


def entry(name: str, overrides: dict[str, str], defaults: Defaults) -> ConfigEntry:
    [found] = describe(overrides, defaults, [name])
    return found


def test_a_topic_without_settings_does_what_kafka_4_does() -> None:
    config = resolve({})
    assert config == TopicConfig(
        cleanup_policy=("delete",),
        compression_gzip_level=-1,
        compression_lz4_level=9,
        compression_type="producer",
        compression_zstd_level=3,
        file_delete_delay_ms=60_000,
        flush="sync",
        index_interval_bytes=4096,
        internal_segment_bytes=-1,
        delete_retention_ms=DAY_MS,
        max_compaction_lag_ms=2**63 - 1,
        min_cleanable_dirty_ratio=0.5,
        min_compaction_lag_ms=0,
        max_message_bytes=1_048_588,
        message_timestamp_after_max_ms=3_600_000,
        message_timestamp_before_max_ms=2**63 - 1,
        message_timestamp_type="CreateTime",
        min_insync_replicas=1,
        follower_replication_throttled_replicas=(),
        leader_replication_throttled_replicas=(),
        retention_bytes=-1,
        retention_ms=7 * DAY_MS,
        segment_bytes=1 << 30,
        segment_index_bytes=10 << 20,
        segment_jitter_ms=0,
        segment_ms=7 * DAY_MS,
        unclean_leader_election_enable=False,
    )


def test_a_topic_without_settings_is_no_queue() -> None:
    assert resolve_queue({}) == QueueConfig(
        type="",
        visibility_timeout_ms=30_000,
        delay_ms=0,
        receive_wait_ms=0,
        max_message_bytes=1 << 20,
        max_deliveries=0,
        dead_letter_topic="",
        content_deduplication=False,
        deduplication_scope="queue",
        attributes="",
        tags="",
        move_tasks="",
        created_ms=0,
        modified_ms=0,
    )


def test_every_setting_is_either_obeyed_or_refused() -> None:
    obeyed = {name.replace("_", ".") for name in TopicConfig.__struct_fields__}
    obeyed |= {"queue." + name.replace("_", ".") for name in QueueConfig.__struct_fields__}
    refused = {name for name, key in TOPIC_KEYS.items() if key.refusal}
    of_share_groups = {"errors.deadletterqueue.group.enable"}  # logs and leaders know nothing of it
    assert obeyed | refused | of_share_groups == set(TOPIC_KEYS)
    assert obeyed & refused == set()


@pytest.mark.parametrize("name", sorted(TOPIC_KEYS))
def test_every_default_is_a_value_that_may_be_set(name: str) -> None:
    validate({name: TOPIC_KEYS[name].default})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-1"),
        ("retention.ms", " 60000 "),
        ("segment.bytes", "1048576"),
        ("compression.gzip.level", "-1"),
        ("compression.gzip.level", "9"),
        ("compression.zstd.level", "-131072"),
        ("compression.type", "uncompressed"),
        ("message.timestamp.type", "LogAppendTime"),
        ("preallocate", "FALSE"),
        ("cleanup.policy", "delete"),
        ("flush", "os"),
        ("min.cleanable.dirty.ratio", "5e-1"),
    ],
)
def test_accepted(name: str, value: str) -> None:
    validate({name: value})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("retention.ms", "-2", "at least -1"),
        ("retention.ms", "a week", "not a number of type LONG"),
        ("retention.ms", "1_000", "not a number"),
        ("retention.ms", "٣", "not a number"),
        ("retention.ms", "", "not a number"),
        ("retention.ms", str(2**63), "not a number of type LONG"),
        ("segment.bytes", "1048575", "at least 1048576"),
        ("segment.bytes", str(2**31), "not a number of type INT"),
        ("segment.ms", "0", "at least 1"),
        ("min.insync.replicas", "0", "at least 1"),
        ("compression.gzip.level", "0", "between 1 and 9, or -1"),
        ("compression.lz4.level", "18", "between 1 and 17"),
        ("compression.zstd.level", "23", "between -131072 and 22"),
        ("compression.type", "brotli", "one of uncompressed"),
        ("message.timestamp.type", "createtime", "one of CreateTime"),
        ("cleanup.policy", "archive", "may hold only delete, compact"),
        ("delete.retention.ms", "-1", "at least 0"),
        ("max.compaction.lag.ms", "0", "at least 1"),
        ("flush.messages", "1", "the setting `flush`"),
        ("preallocate", "true", "not preallocated"),
        ("preallocate", "yes", "true or false"),
        ("unclean.leader.election.enable", "yes", "true or false"),
        ("remote.storage.enable", "true", "tiered storage"),
        ("local.retention.ms", "5", "tiered storage"),
        ("leader.replication.throttled.replicas", "1:2,3", "partition:broker"),
        ("min.cleanable.dirty.ratio", "nan", "not a number of type DOUBLE"),
        ("min.cleanable.dirty.ratio", "1.1", "between 0 and 1"),
        ("retention.days", "1", "Unknown topic config name: retention.days"),
        ("message.format.version", "2.0", "Unknown topic config name"),
    ],
)
def test_refused_with_a_reason(name: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidConfig) as refusal:
        validate({name: value})
    assert reason in str(refusal.value)
    assert name in str(refusal.value)


def test_a_record_cannot_have_to_wait_longer_than_it_may() -> None:
    validate({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "5"})
    with pytest.raises(InvalidConfig, match="is above"):
        validate({"min.compaction.lag.ms": "6", "max.compaction.lag.ms": "5"})


@pytest.mark.parametrize("policy", ["compact", "compact,delete", "delete,compact"])
def test_compaction_can_be_asked_for_alone_and_with_deletion(policy: str) -> None:
    config = resolve({"cleanup.policy": policy, "min.cleanable.dirty.ratio": "0.1"})
    assert config.cleanup_policy == tuple(policy.split(","))
    assert config.min_cleanable_dirty_ratio == 0.1


def test_the_nearest_setting_wins_and_all_others_are_listed() -> None:
    defaults = Defaults(
        node={"log.retention.ms": "1"},
        cluster={"log.retention.ms": "2"},
        static={"log.retention.minutes": "3", "log.retention.hours": "4"},
    )
    topic = {"retention.ms": "0"}
    assert resolve(topic, defaults).retention_ms == 0
    shown = entry("retention.ms", topic, defaults)
    assert (shown.value, shown.source, shown.type) == ("0", ConfigSource.DYNAMIC_TOPIC, ConfigType.LONG)
    assert shown.synonyms == [
        Synonym("retention.ms", "0", ConfigSource.DYNAMIC_TOPIC),
        Synonym("log.retention.ms", "1", ConfigSource.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.minutes", "3", ConfigSource.STATIC_BROKER),
        Synonym("log.retention.hours", "4", ConfigSource.STATIC_BROKER),
        Synonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]


@pytest.mark.parametrize(
    ("defaults", "value", "source"),
    [
        (Defaults(node={"log.retention.ms": "1"}, cluster={"log.retention.ms": "2"}), 1, 2),
        (Defaults(cluster={"log.retention.ms": "2"}, static={"log.retention.ms": "9"}), 2, 3),
        (Defaults(static={"log.retention.minutes": "3", "log.retention.hours": "4"}), 180_000, 4),
        (Defaults(static={"log.retention.hours": "-1"}), -1, 4),
        (Defaults(), 7 * DAY_MS, 5),
    ],
)
def test_broker_settings_are_the_topics_defaults_in_their_own_units(
    defaults: Defaults, value: int, source: int
) -> None:
    assert resolve({}, defaults).retention_ms == value
    shown = entry("retention.ms", {}, defaults)
    assert (shown.value, shown.source) == (str(value), source)


def test_describing_shows_every_setting_once_with_a_sentence() -> None:
    shown = describe({})
    assert [each.name for each in shown] == sorted(name for name, key in TOPIC_KEYS.items() if not key.internal)
    assert [each.value for each in describe({"internal.segment.bytes": "100"}, names=["internal.segment.bytes"])] == [
        "100"
    ]
    assert all(each.doc.endswith(".") and each.source == ConfigSource.DEFAULT for each in shown)
    assert describe({}, names=["no.such.key"]) == []


def test_broker_settings_that_topics_follow_can_be_changed_at_run_time() -> None:
    broker_configs.validate_of_all({"log.retention.ms": "5", "message.max.bytes": "100", "flush": "os"})


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("log.retention.hours", "5", "configuration file"),
        ("listeners", "PLAINTEXT://:9", "configuration file"),
        ("num.io.thread", "8", "no such broker config"),
        ("num.io.threads", "0", "at least 1"),
        ("controller.quorum.fetch.timeout.ms", "100", "Kafka reads it when it starts, and it has no effect here"),
        ("ssl.keystore.password", "x", "there is no TLS yet"),
        ("log.retention.ms", "-5", "at least -1"),
        ("log.cleanup.policy", "compress", "may hold only delete, compact"),
        ("skidway.drained", "true", "set it for one of them"),
    ],
)
def test_other_broker_settings_cannot(name: str, value: str, reason: str) -> None:
    with pytest.raises(InvalidRequest) as refusal:
        broker_configs.validate_of_all({name: value})
    assert reason in str(refusal.value)
    assert name in str(refusal.value)


def test_the_configuration_file_is_checked_by_the_same_rules() -> None:
    broker_configs.validate_static({"log.retention.hours": "24", "node.id": "1", "num.partitions": "3"})
    for name, value in [
        ("log.retention.hours", "soon"),
        ("log.cleaner.delete.retention.ms", "-5"),
        ("num.partitions", "0"),
        ("num.network.threads", "3"),
        ("num.network.thread", "3"),
    ]:
        with pytest.raises(InvalidConfig):
            broker_configs.validate_static({name: value})


def test_a_broker_shows_what_is_fixed_and_what_can_be_changed() -> None:
    defaults = Defaults(node={"log.retention.ms": "7"}, static={"node.id": "3", "log.retention.ms": "9"})
    shown = {each.name: each for each in broker_configs.describe_broker(defaults)}
    node_id, retention, hours = shown["node.id"], shown["log.retention.ms"], shown["log.retention.hours"]
    assert (node_id.value, node_id.source, node_id.read_only) == ("3", ConfigSource.STATIC_BROKER, True)
    assert (retention.value, retention.source, retention.read_only) == ("7", ConfigSource.DYNAMIC_BROKER, False)
    assert (hours.value, hours.source, hours.read_only) == ("168", ConfigSource.DEFAULT, True)
    assert shown["log.retention.minutes"].value is None
    assert list(shown) == sorted(shown)


def test_the_default_for_all_brokers_shows_only_what_was_set() -> None:
    [only] = broker_configs.describe_cluster_default({"log.retention.ms": "7"})
    assert (only.name, only.value, only.source) == ("log.retention.ms", "7", ConfigSource.DYNAMIC_DEFAULT_BROKER)


def test_names_and_types_are_those_of_the_topic_module() -> None:
    assert set(broker_configs.DYNAMIC_NAMES) <= set(topic_configs.BROKER_NAMES)


def test_kafkas_other_names_are_known_and_say_that_they_have_no_effect() -> None:
    obeyed = {*broker_configs.STATIC_KEYS, *broker_configs.BROKER_NAMES, *broker_configs.OWN_KEYS}
    assert len(IDLE_KEYS) > 240
    assert not obeyed & IDLE_KEYS.keys(), "either it is obeyed or it is not"
    for key in IDLE_KEYS.values():
        assert key.is_null or key.parse(key.default) is not None, key.name
        assert "no effect here: " in key.doc, key.name
    shown = {each.name: each for each in broker_configs.describe_broker(Defaults(cluster={"num.io.threads": "4"}))}
    threads, token = shown["num.io.threads"], shown["delegation.token.secret.key"]
    assert (threads.value, threads.source, threads.read_only) == ("4", ConfigSource.DYNAMIC_DEFAULT_BROKER, False)
    assert [each.value for each in threads.synonyms] == ["4", "8"]
    assert (token.value, token.sensitive, token.read_only) == (None, True, True)
    broker_configs.validate_of_all({"log.cleaner.threads": "3", "num.io.threads": "16"})


def test_an_empty_cleanup_policy_neither_deletes_nor_compacts() -> None:
    assert resolve({"cleanup.policy": ""}).cleanup_policy == ()


def test_what_nobody_set_is_no_override() -> None:
    """kafka-topics --topics-with-overrides lists every topic that has a setting which is not a default."""
    told = Defaults(static={"flush": "sync", "log.retention.ms": str(7 * 24 * 3600 * 1000)})
    assert {each.source for each in describe({}, told)} == {ConfigSource.DEFAULT}
    [flush] = describe({}, Defaults(static={"flush": "os"}), ["flush"])
    assert (flush.value, flush.source) == ("os", ConfigSource.STATIC_BROKER)
