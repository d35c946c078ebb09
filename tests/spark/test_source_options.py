"""Options of a read: what each means, and that a wrong one is refused by name, with the way out."""

import pickle
from typing import Any

import pytest

from skidway.blocking_client.offsets import EARLIEST, LATEST, READ_COMMITTED, READ_UNCOMMITTED
from skidway.spark.source.options import BadOption, SourceOptions, without_effect
from skidway.spark.source.positions import Assign, AtOffsets, AtTime, AtTimes, Edge, Subscribe, SubscribePattern

BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}
LEAST = {**BROKERS, "subscribe": "orders"}


def parse(streaming: bool | None = False, **options: str) -> SourceOptions:
    return SourceOptions.parse({**LEAST, **named(options)}, streaming=streaming)


def named(options: dict[str, str]) -> dict[str, str]:
    """`kafka__client__id` → `kafka.client.id`: keywords hold no dots."""
    return {name.replace("__", "."): value for name, value in options.items()}


def test_the_defaults_are_those_of_the_kafka_connector_but_for_the_isolation() -> None:
    batch, stream = parse(), parse(streaming=True)
    assert (batch.start, batch.end) == (Edge(EARLIEST), Edge(LATEST))
    assert stream.start == Edge(LATEST)
    assert batch.topics == Subscribe(("orders",))
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert batch.isolation_level == READ_COMMITTED
    assert stream.max_trigger_delay_ms == 15 * 60_000
    assert stream.min_partitions is stream.max_offsets_per_trigger is stream.min_offsets_per_trigger is None
    assert stream.group_id is None
    assert batch.brokers.bootstrap == "localhost:9092"
    assert (batch.offset_retries, batch.offset_retry_pause_ms) == (3, 1_000)


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"subscribe": " a, b ,a"}, "topics", Subscribe(("a", "b"))),
        ({"startingOffsets": " Earliest "}, "start", Edge(EARLIEST)),
        (
            {"startingOffsets": '{"a":{"0":23,"1":-2}}'},
            "start",
            AtOffsets({("a", 0): 23, ("a", 1): EARLIEST}),
        ),
        ({"endingOffsets": '{"a":{"0":50,"1":-1}}'}, "end", AtOffsets({("a", 0): 50, ("a", 1): LATEST})),
        ({"startingTimestamp": "1000"}, "start", AtTime(1000)),
        ({"endingTimestamp": "2000"}, "end", AtTime(2000)),
        ({"startingOffsetsByTimestamp": '{"a":{"0":5}}'}, "start", AtTimes({("a", 0): 5})),
        ({"endingOffsetsByTimestamp": '{"a":{"0":5}}'}, "end", AtTimes({("a", 0): 5})),
        (
            {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "LATEST"},
            "start_unmatched_is_latest",
            True,
        ),
        ({"failOnDataLoss": "FALSE"}, "fail_on_data_loss", False),
        ({"minPartitions": "7"}, "min_partitions", 7),
        ({"maxRecordsPerPartition": "70"}, "max_records_per_partition", 70),
        ({"includeHeaders": "true"}, "include_headers", True),
        ({"isolation": "read_uncommitted"}, "isolation_level", READ_UNCOMMITTED),
        ({"kafka.isolation.level": "read_uncommitted"}, "isolation_level", READ_UNCOMMITTED),
        ({"isolation": "read_committed", "kafka.isolation.level": "READ_COMMITTED"}, "isolation_level", READ_COMMITTED),
        ({"kafka.fetch.max.bytes": "1000000"}, "fetch_bytes", 1_000_000),
        ({"kafkaConsumer.pollTimeoutMs": "512"}, "fetch_timeout_ms", 512),
        ({"kafka.request.timeout.ms": "700"}, "fetch_timeout_ms", 700),
        ({"fetchOffset.numRetries": "0"}, "offset_retries", 0),
        ({"fetchOffset.retryIntervalMs": "10"}, "offset_retry_pause_ms", 10),
        ({"kernel": "python"}, "kernel", "python"),
        ({"backfill.path": "/data, with a comma"}, "backfill_paths", ("/data, with a comma",)),
        ({"backfill.path": '["/a", "/b"]', "backfill.active": "true"}, "backfill_paths", ("/a", "/b")),
    ],
)
def test_a_batch_option_means(given: dict[str, str], field: str, expected: Any) -> None:
    assert getattr(SourceOptions.parse({**LEAST, **given}), field) == expected


@pytest.mark.parametrize(
    ("given", "field", "expected"),
    [
        ({"startingOffsets": "latest"}, "start", Edge(LATEST)),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "start", AtOffsets({("a", 0): LATEST})),
        ({"maxOffsetsPerTrigger": "9"}, "max_offsets_per_trigger", 9),
        ({"minOffsetsPerTrigger": "9"}, "min_offsets_per_trigger", 9),
        ({"maxTriggerDelay": "90s"}, "max_trigger_delay_ms", 90_000),
        ({"maxTriggerDelay": "2h"}, "max_trigger_delay_ms", 7_200_000),
        ({"maxTriggerDelay": "250"}, "max_trigger_delay_ms", 250),
        ({"groupId": "lag"}, "group_id", "lag"),
    ],
)
def test_a_stream_option_means(given: dict[str, str], field: str, expected: Any) -> None:
    assert getattr(SourceOptions.parse({**LEAST, **given}, streaming=True), field) == expected


def test_topics_can_be_assigned_or_matched_instead() -> None:
    assigned = SourceOptions.parse({**BROKERS, "assign": '{"a":[0,2],"b":[1]}'})
    assert assigned.topics == Assign((("a", 0), ("a", 2), ("b", 1)))
    matched = SourceOptions.parse({**BROKERS, "SUBSCRIBEPATTERN": "orders-.*"})
    assert matched.topics == SubscribePattern("orders-.*")


def test_case_does_not_matter_because_spark_folds_it() -> None:
    assert SourceOptions.parse({"BOOTSTRAP.servers": "h:1", "SubScribe": "a", "MINpartitions": "2"}).min_partitions == 2


def test_a_prefix_for_groups_names_the_connections_unless_the_client_has_a_name() -> None:
    assert parse(groupIdPrefix="billing").brokers.client_id == "billing"
    assert parse(groupIdPrefix="billing", kafka__client__id="me").brokers.client_id == "me"


def test_options_travel_to_tasks() -> None:
    options = parse(startingOffsets='{"a":{"0":1}}')
    assert pickle.loads(pickle.dumps(options)) == options


def test_what_is_taken_without_effect_is_known() -> None:
    given = {**LEAST, "kafka.max.poll.records": "5", "maxOffsetsPerTrigger": "5"}
    SourceOptions.parse(given)
    assert without_effect(given, streaming=False) == ["kafka.max.poll.records", "maxOffsetsPerTrigger"]
    assert without_effect(given, streaming=True) == ["kafka.max.poll.records"]


@pytest.mark.parametrize(
    ("given", "option", "words"),
    [
        ({"subscribe": None}, "subscribe", "exactly one of assign, subscribe, subscribePattern"),
        ({"assign": '{"a":[0]}'}, "assign", "assign and subscribe contradict each other"),
        ({"subscribe": " , "}, "subscribe", "names no topic"),
        ({"subscribe": None, "assign": "a"}, "assign", '{"topic": [0, 1]}'),
        ({"subscribe": None, "assign": '{"a":0}'}, "assign", "no list of partitions"),
        ({"subscribe": None, "assign": '{"a":[-1]}'}, "assign", "-1 is no partition of a"),
        ({"subscribe": None, "subscribePattern": "a["}, "subscribePattern", "not a regular expression"),
        ({"subscribe": None, "subscribePattern": " "}, "subscribePattern", "empty"),
        ({"kafka.bootstrap.servers": None}, "kafka.bootstrap.servers", "it is missing"),
        ({"bootstrap.servers": "other:1"}, "bootstrap.servers", "contradicts kafka.bootstrap.servers"),
        ({"kafka.bootstrap.servers": "a:b"}, "kafka.bootstrap.servers", "the port must be a number"),
        ({"startingOffset": "earliest"}, "startingOffset", "did you mean startingOffsets?"),
        ({"kafka.fetch.maxbytes": "1"}, "kafka.fetch.maxbytes", "did you mean kafka.fetch.max.bytes?"),
        ({"zzz": "1"}, "zzz", "the options are"),
        ({"path": "/x"}, "path", "subscribe"),
        ({"topic": "x"}, "topic", "subscribe"),
        ({"startingOffsets": "latest"}, "startingOffsets", "cannot be latest"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "startingOffsets", "a partition 0 cannot be -1 (latest)"),
        ({"endingOffsets": "earliest"}, "endingOffsets", "cannot be earliest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "endingOffsets", "a partition 0 cannot be -2 (earliest)"),
        ({"startingOffsets": "first"}, "startingOffsets", 'give earliest, latest or {"topic": {"0": offset}}'),
        ({"startingOffsets": "{}"}, "startingOffsets", "give earliest"),
        ({"startingOffsets": '{"a":{"0":-3}}'}, "startingOffsets", "has -3"),
        ({"startingOffsets": '{"a":{"x":3}}'}, "startingOffsets", "'x' is no partition of a"),
        ({"startingOffsets": '{"a":{"0":true}}'}, "startingOffsets", "has True"),
        ({"startingOffsets": '{"a":7}'}, "startingOffsets", "topic a has no partitions"),
        ({"startingTimestamp": "soon"}, "startingTimestamp", "'soon' is not a number"),
        ({"startingTimestamp": "-1"}, "startingTimestamp", "from 0"),
        ({"startingOffsetsByTimestamp": "5"}, "startingOffsetsByTimestamp", "milliseconds"),
        ({"startingTimestamp": "1", "startingOffsets": "earliest"}, "startingTimestamp", "contradict each other"),
        ({"endingTimestamp": "1", "endingOffsetsByTimestamp": "{}"}, "endingTimestamp", "contradict each other"),
        (
            {"startingTimestamp": "9", "endingTimestamp": "8"},
            "startingTimestamp",
            "the start (9) lies after the end (8)",
        ),
        (
            {"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"0":8}}'},
            "startingOffsets",
            "a partition 0: the start (9) lies after the end (8)",
        ),
        (
            {"startingOffsets": '{"a":{"0":9}}', "endingOffsets": '{"a":{"1":10}}'},
            "endingOffsets",
            "a partition 0 is only in startingOffsets",
        ),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "startingOffsetsByTimestampStrategy", "nothing begins at a"),
        (
            {"startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "next"},
            "startingOffsetsByTimestampStrategy",
            "choose from error, latest",
        ),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss", "choose from false, true"),
        ({"includeHeaders": "1"}, "includeHeaders", "choose from false, true"),
        ({"minPartitions": "0"}, "minPartitions", "from 1"),
        ({"maxRecordsPerPartition": "-5"}, "maxRecordsPerPartition", "from 1"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger", "from 1"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger", "5 is more than"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay", "30s"),
        ({"isolation": "strict"}, "isolation", "read_committed"),
        (
            {"isolation": "read_committed", "kafka.isolation.level": "read_uncommitted"},
            "isolation",
            "contradicts kafka.isolation.level",
        ),
        ({"groupId": "g"}, "groupId", "for streams"),
        ({"kernel": "fast"}, "kernel", "auto"),
        ({"backfill.active": "true"}, "backfill.active", "no backfill.path"),
        ({"backfill.path": "[1]"}, "backfill.path", "not a list of directories"),
        ({"backfill.path": "[oops"}, "backfill.path", "JSON list"),
        ({"kafka.group.id": "g"}, "kafka.group.id", "groupId"),
        ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset", "startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer", "binary"),
        ({"kafka.value.deserializer": "x"}, "kafka.value.deserializer", "binary"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit", "groupId"),
        ({"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes", "leave it out"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol", "PLAINTEXT"),
        ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.sasl.mechanism", "PLAINTEXT"),
        ({"kafka.ssl.truststore.location": "/x"}, "kafka.ssl.truststore.location", "PLAINTEXT"),
    ],
)
def test_a_wrong_option_is_refused_by_name(given: dict[str, str | None], option: str, words: str) -> None:
    options = {name: value for name, value in {**LEAST, **given}.items() if value is not None}
    with pytest.raises(BadOption) as refused:
        SourceOptions.parse(options)
    assert refused.value.option == option
    assert words in str(refused.value)


@pytest.mark.parametrize("option", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "backfill.path"])
def test_a_stream_has_no_end(option: str) -> None:
    with pytest.raises(BadOption, match="batch reads"):
        SourceOptions.parse({**LEAST, option: "1"}, streaming=True)


def test_a_group_id_has_a_bound() -> None:
    with pytest.raises(BadOption, match="at most 255"):
        parse(streaming=True, groupId="x" * 256)


def test_while_the_kind_of_read_is_unknown_only_what_both_refuse_is_refused() -> None:
    parse(streaming=None, startingOffsets="latest")
    parse(streaming=None, groupId="g")
    parse(streaming=None, endingOffsets="latest")
    with pytest.raises(BadOption):
        parse(streaming=None, startingOffset="latest")


def test_a_backfill_needs_no_brokers() -> None:
    assert SourceOptions.parse({"subscribe": "a", "backfill.path": "/data"}).client is None
