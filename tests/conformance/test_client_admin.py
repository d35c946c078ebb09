"""Administration with every client: topics, partitions, configs, records, and the errors they are refused with."""

from typing import Any

import pytest
from clients import BEGINNING, Admin, Client, Message, Placement, ProducerOptions, Refused, Synonym
from raw import Connection, MakeTopic
from raw_batches import Record, build, now_ms
from wire_calls import end_offset, produce, start_offset, topic_id

from waiting import eventually

OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
INVALID_TOPIC = 17
TOPIC_ALREADY_EXISTS = 36
INVALID_PARTITIONS = 37
INVALID_REPLICATION_FACTOR = 38
INVALID_CONFIG = 40

DYNAMIC_TOPIC = 1
STATIC_BROKER = 4
DEFAULT = 5

START_MS = now_ms() - 3_600_000


def settled(admin: Admin, name: str, partitions: int) -> None:
    """A client may ask before the broker has heard from the controller, or while an older topic of that name goes."""

    def there() -> bool:
        try:
            found = admin.describe(name).values()
        except Refused:
            return False
        return len(found) == partitions and all(partition.leader >= 0 for partition in found)

    eventually(there)


def config_becomes(admin: Admin, name: str, key: str, value: str | None) -> None:
    eventually(lambda: admin.configs(name)[key].value == value)


def test_create_describe_delete(admin: Admin, name: str) -> None:
    admin.create(name, partitions=3)
    settled(admin, name, 3)
    nodes = [node.id for node in admin.cluster().nodes]
    described = admin.describe(name)
    assert sorted(described) == [0, 1, 2]
    for partition in described.values():
        assert partition.leader in nodes
        assert partition.replicas == partition.isr == (partition.leader,)
    assert name in admin.topics()
    admin.delete(name)
    eventually(lambda: name not in admin.topics())
    with pytest.raises(Refused) as refused:
        admin.delete(name)
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION


def test_create_with_configs(admin: Admin, name: str) -> None:
    admin.create(name, configs={"retention.ms": "3600000", "max.message.bytes": "2097152"})
    settled(admin, name, 1)
    configs = admin.configs(name)
    assert (configs["retention.ms"].value, configs["retention.ms"].source) == ("3600000", DYNAMIC_TOPIC)
    assert (configs["max.message.bytes"].value, configs["max.message.bytes"].source) == ("2097152", DYNAMIC_TOPIC)
    assert configs["cleanup.policy"].value == "delete"
    assert configs["cleanup.policy"].source == DEFAULT


def test_validate_only_creates_nothing_but_finds_what_is_wrong(admin: Admin, name: str) -> None:
    admin.create(name, partitions=2, validate_only=True)
    assert name not in admin.topics()
    with pytest.raises(Refused) as refused:
        admin.create(name, configs={"retention.ms": "soon"}, validate_only=True)
    assert refused.value.code == INVALID_CONFIG


def test_a_topic_that_exists(admin: Admin, topic: str) -> None:
    with pytest.raises(Refused) as refused:
        admin.create(topic)
    assert refused.value.code == TOPIC_ALREADY_EXISTS
    with pytest.raises(Refused) as refused:
        admin.create(topic, validate_only=True)
    assert refused.value.code == TOPIC_ALREADY_EXISTS


@pytest.mark.parametrize("bad", ["with space", "sl/ash", "ü", ".", "..", "x" * 250])
def test_bad_topic_names(admin: Admin, bad: str) -> None:
    with pytest.raises(Refused) as refused:
        admin.create(bad)
    assert refused.value.code == INVALID_TOPIC


def test_the_longest_name(admin: Admin, name: str) -> None:
    longest = name + "x" * (249 - len(name))
    admin.create(longest)
    settled(admin, longest, 1)
    admin.delete(longest)


def test_names_that_would_collide_as_metrics(admin: Admin, name: str) -> None:
    admin.create(f"{name}.a_b")
    settled(admin, f"{name}.a_b", 1)
    with pytest.raises(Refused) as refused:
        admin.create(f"{name}_a.b")
    assert refused.value.code == INVALID_TOPIC


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("retention.ms", "soon"),
        ("no.such.config", "1"),
        ("cleanup.policy", "shred"),
        ("max.message.bytes", "-1"),
        ("segment.bytes", "0"),
        ("compression.type", "brotli"),
        ("message.timestamp.type", "Sometime"),
        ("min.insync.replicas", "0"),
        ("min.insync.replicas", "70000000000"),
    ],
)
def test_bad_configs(admin: Admin, name: str, key: str, value: str) -> None:
    with pytest.raises(Refused) as refused:
        admin.create(name, configs={key: value})
    assert refused.value.code == INVALID_CONFIG
    assert name not in admin.topics()


@pytest.mark.parametrize("replication", [0, 2, 100])
def test_bad_replication_factor(admin: Admin, name: str, replication: int) -> None:
    with pytest.raises(Refused) as refused:
        admin.create(name, replication=replication)
    assert refused.value.code == INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("partitions", [0, -2])
def test_bad_partition_count(admin: Admin, client: Client, name: str, partitions: int) -> None:
    if client.name == "confluent-kafka":
        pytest.skip("librdkafka refuses such a count itself")
    with pytest.raises(Refused) as refused:
        admin.create(name, partitions=partitions)
    assert refused.value.code == INVALID_PARTITIONS


def test_grow(admin: Admin, client: Client, name: str) -> None:
    admin.create(name, partitions=2)
    settled(admin, name, 2)
    admin.grow(name, 5, validate_only=True)
    assert len(admin.describe(name)) == 2
    admin.grow(name, 5)
    settled(admin, name, 5)
    placed = client.produce(name, [Message(b"v", partition=partition) for partition in range(5)])
    assert [(place.partition, place.offset) for place in placed] == [(partition, 0) for partition in range(5)]


@pytest.mark.parametrize("count", [2, 3])
def test_a_topic_cannot_shrink_or_stay(admin: Admin, make_topic: MakeTopic, count: int) -> None:
    topic = make_topic(partitions=3)
    with pytest.raises(Refused) as refused:
        admin.grow(topic, count)
    assert refused.value.code == INVALID_PARTITIONS


def test_growing_an_unknown_topic(admin: Admin, name: str) -> None:
    with pytest.raises(Refused) as refused:
        admin.grow(name, 3)
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION


def test_describe_an_unknown_topic(admin: Admin, client: Client, name: str) -> None:
    if client.name == "aiokafka":
        pytest.skip("aiokafka's describe_topics lets the broker make the topic")
    with pytest.raises(Refused) as refused:
        admin.describe(name)
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION
    assert name not in admin.topics()


def test_describe_cluster(admin: Admin, bootstrap: str) -> None:
    cluster = admin.cluster()
    assert cluster.id
    assert cluster.controller in [node.id for node in cluster.nodes]
    assert int(bootstrap.rpartition(":")[2]) in [node.port for node in cluster.nodes]


def test_configs_of_an_unknown_topic(admin: Admin, client: Client, name: str) -> None:
    if client.name == "kafka-python":
        pytest.skip("kafka-python's describe_configs drops the error code")
    with pytest.raises(Refused) as refused:
        admin.configs(name)
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION


def test_describe_configs_names_sources_and_synonyms(admin: Admin, client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(configs={"segment.bytes": "2000000"})
    configs = admin.configs(topic)
    assert len(configs) >= 25
    segment = configs["segment.bytes"]
    assert (segment.value, segment.source, segment.read_only, segment.sensitive) == (
        "2000000",
        DYNAMIC_TOPIC,
        False,
        False,
    )
    synonyms = {synonym.name: synonym for synonym in segment.synonyms}
    if client.name != "confluent-kafka":  # it folds synonyms of one name into one
        assert Synonym("segment.bytes", "2000000", DYNAMIC_TOPIC) in segment.synonyms
    assert synonyms["log.segment.bytes"].value == "1073741824"
    assert synonyms["log.segment.bytes"].source in (STATIC_BROKER, DEFAULT)
    assert configs["message.timestamp.type"].value == "CreateTime"
    assert configs["message.timestamp.type"].source == DEFAULT
    assert configs["compression.type"].value == "producer"


def test_replacing_configs_resets_what_is_not_named(admin: Admin, make_topic: MakeTopic) -> None:
    topic = make_topic(configs={"retention.ms": "1000000", "segment.bytes": "2000000"})
    admin.replace_configs(topic, {"retention.ms": "2000000"})
    config_becomes(admin, topic, "retention.ms", "2000000")
    assert admin.configs(topic)["segment.bytes"].value == "1073741824"
    assert admin.configs(topic)["segment.bytes"].source in (STATIC_BROKER, DEFAULT)
    with pytest.raises(Refused) as refused:
        admin.replace_configs(topic, {"retention.ms": "never"})
    assert refused.value.code == INVALID_CONFIG
    assert admin.configs(topic)["retention.ms"].value == "2000000"


def test_changing_configs_one_by_one(admin: Admin, make_topic: MakeTopic) -> None:
    topic = make_topic(configs={"retention.ms": "1000000", "segment.bytes": "2000000"})
    admin.change_configs(topic, [("SET", "retention.ms", "3000000"), ("DELETE", "segment.bytes", None)])
    config_becomes(admin, topic, "retention.ms", "3000000")
    configs = admin.configs(topic)
    assert configs["segment.bytes"].value == "1073741824"
    assert configs["segment.bytes"].source in (STATIC_BROKER, DEFAULT)
    assert configs["retention.ms"].source == DYNAMIC_TOPIC


def test_appending_to_a_list_and_taking_from_it(admin: Admin, topic: str) -> None:
    """cleanup.policy is a list; appending what is there and subtracting what is not changes nothing."""
    admin.change_configs(topic, [("APPEND", "cleanup.policy", "delete")])
    assert admin.configs(topic)["cleanup.policy"].value == "delete"
    admin.change_configs(topic, [("SUBTRACT", "cleanup.policy", "compact")])
    assert admin.configs(topic)["cleanup.policy"].value == "delete"


@pytest.mark.parametrize(
    ("operation", "key", "value"),
    [("SET", "retention.ms", "never"), ("APPEND", "retention.ms", "5"), ("SET", "no.such.config", "1")],
)
def test_bad_changes_change_nothing(admin: Admin, make_topic: MakeTopic, operation: Any, key: str, value: str) -> None:
    topic = make_topic(configs={"retention.ms": "1000000"})
    with pytest.raises(Refused) as refused:
        admin.change_configs(topic, [("SET", "segment.bytes", "2000000"), (operation, key, value)])
    assert refused.value.code == INVALID_CONFIG
    configs = admin.configs(topic)
    assert (configs["retention.ms"].value, configs["segment.bytes"].value) == ("1000000", "1073741824")


def test_changing_configs_of_an_unknown_topic(admin: Admin, name: str) -> None:
    with pytest.raises(Refused) as refused:
        admin.change_configs(name, [("SET", "retention.ms", "1000")])
    assert refused.value.code == UNKNOWN_TOPIC_OR_PARTITION


def test_a_changed_limit_is_obeyed(admin: Admin, client: Client, topic: str) -> None:
    client.produce(topic, [Message(b"v" * 5_000)])
    admin.replace_configs(topic, {"max.message.bytes": "1000"})
    config_becomes(admin, topic, "max.message.bytes", "1000")
    with pytest.raises(Refused) as refused:
        client.produce(topic, [Message(b"v" * 5_000)])
    assert refused.value.code == 10


def test_delete_records(admin: Admin, client: Client, topic: str, wire: Connection) -> None:
    produce(wire, topic, build([b"%d" % offset for offset in range(10)]))
    assert admin.delete_records(topic, {0: 4}) == {0: 4}
    assert start_offset(wire, topic) == 4
    assert admin.delete_records(topic, {0: 2}) == {0: 4}, "the start never moves back"
    found = client.read(topic, {0: BEGINNING}, 6)
    assert [(got.offset, got.value) for got in found] == [(offset, b"%d" % offset) for offset in range(4, 10)]
    with pytest.raises(Refused) as refused:
        admin.delete_records(topic, {0: 11})
    assert refused.value.code == OFFSET_OUT_OF_RANGE
    assert admin.delete_records(topic, {0: -1}) == {0: 10}
    assert start_offset(wire, topic) == 10


def test_list_offsets(admin: Admin, make_topic: MakeTopic, wire: Connection) -> None:
    topic = make_topic(partitions=4)
    for partition in range(4):
        records = [Record(b"v", timestamp_delta=delta) for delta in (0, 500, 200)]
        produce(wire, topic, build(records, timestamp=START_MS), partition=partition)
    admin.delete_records(topic, {0: 1})
    found = admin.list_offsets(topic, {0: "earliest", 1: "latest", 2: "max_timestamp", 3: START_MS + 1})
    assert found == {0: (1, -1), 1: (3, -1), 2: (1, START_MS + 500), 3: (1, START_MS + 500)}
    assert admin.list_offsets(topic, {0: START_MS + 501}) == {0: (-1, -1)}


def test_list_offsets_of_tiers(admin: Admin, topic: str, wire: Connection) -> None:
    """Without tiered storage the local log is the whole log."""
    produce(wire, topic, build([b"a", b"b"]))
    admin.delete_records(topic, {0: 1})
    assert admin.list_offsets(topic, {0: "earliest_local"}) == {0: (1, -1)}
    assert admin.list_offsets(topic, {0: "latest_tiered"}) == {0: (-1, -1)}


@pytest.mark.parametrize("idempotent", [False, True], ids=["plain", "idempotent"])
def test_a_topic_made_again_is_a_new_topic(
    admin: Admin, client: Client, name: str, wire: Connection, idempotent: bool
) -> None:
    """New id, empty log, and a producer that knew the old one goes on."""
    admin.create(name)
    settled(admin, name, 1)
    with client.producer(ProducerOptions(idempotent=idempotent)) as producer:
        assert producer.send(name, [Message(b"old 0"), Message(b"old 1")]) == [Placement(0, 0), Placement(0, 1)]
        first_id = topic_id(wire, name)
        admin.delete(name)
        eventually(lambda: created(admin, name))
        settled(admin, name, 1)
        assert topic_id(wire, name) != first_id
        assert eventually(lambda: end_offset(wire, name) + 1) == 1
        assert producer.send(name, [Message(b"new")]) == [Placement(0, 0)]
    assert [got.value for got in client.read(name, {0: BEGINNING}, 1)] == [b"new"]


def created(admin: Admin, name: str) -> bool:
    try:
        admin.create(name)
    except Refused as refused:
        if refused.code != TOPIC_ALREADY_EXISTS:
            raise
        return False
    return True
