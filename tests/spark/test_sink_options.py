"""What the sink takes, and how it refuses the rest: each refusal names the option or column and says what to do."""

import pickle

import pytest

from skidway.limits import KIB
from skidway.spark.client_settings import BadOption
from skidway.spark.sink.options import BadColumns, SinkOptions, check_columns

HERE = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(**options: str) -> SinkOptions:
    return SinkOptions.parse({**HERE, **{name.replace("__", "."): value for name, value in options.items()}})


def test_a_bootstrap_list_is_all_that_is_needed() -> None:
    options = SinkOptions.parse(HERE)
    assert options.client.bootstrap == "127.0.0.1:9092"
    assert (options.topic, options.codec, options.in_flight_max) == (None, 0, 5)
    assert SinkOptions.parse({"bootstrap.servers": "127.0.0.1:9092"}) == options
    assert SinkOptions.parse({"KAFKA.Bootstrap.Servers": "127.0.0.1:9092"}) == options


def test_settings_of_kafkas_producer_are_used() -> None:
    options = parse(
        topic="events",
        delivery="at_least_once",
        kafka__compression__type="ZSTD",
        kafka__batch__size="65536",
        kafka__acks="-1",
        kafka__client__id="me",
        kafka__request__timeout__ms="5000",
        kafka__delivery__timeout__ms="60000",
        kafka__buffer__memory="1000000",
        kafka__max__in__flight__requests__per__connection="1",
        kafka__max__block__ms="2000",
    )
    assert (options.topic, options.codec, options.batch_bytes) == ("events", 4, 64 * KIB)
    assert (options.client.client_id, options.client.request_timeout_ms) == ("me", 5000)
    assert (options.delivery_timeout_ms, options.buffer_bytes) == (60_000, 1_000_000)
    assert (options.in_flight_max, options.topic_wait_ms) == (1, 2000)
    assert pickle.loads(pickle.dumps(options)) == options


def test_tuning_without_a_meaning_here_is_taken_and_said(caplog: pytest.LogCaptureFixture) -> None:
    plain = parse()
    assert parse(kafka__linger__ms="5", kafka__retry__backoff__ms="100", checkpointLocation="/tmp/x") == plain
    assert "kafka.linger.ms" in caplog.text
    assert "kafka.retry.backoff.ms" in caplog.text
    assert "checkpointLocation" not in caplog.text


@pytest.mark.parametrize(
    ("options", "named", "fix"),
    [
        ({"topik": "events"}, "topik", "did you mean topic?"),
        ({"kafka.compresion.type": "lz4"}, "kafka.compresion.type", "did you mean kafka.compression.type?"),
        ({"nonsense": "1"}, "nonsense", "the options are"),
        ({"topic": " "}, "topic", "give it a value"),
        ({"delivery": "sometimes"}, "delivery", "choose from at_least_once, exactly_once"),
        ({"kafka.compression.type": "brotli"}, "kafka.compression.type", "choose from gzip, lz4, none, snappy, zstd"),
        ({"kafka.batch.size": "0"}, "kafka.batch.size", "whole number from 1"),
        ({"kafka.batch.size": "many"}, "kafka.batch.size", "whole number from 1"),
        ({"kafka.batch.size": "9" * 30}, "kafka.batch.size", "whole number from 1"),
        ({"kafka.acks": "1"}, "kafka.acks", "set all"),
        ({"kafka.acks": "0"}, "kafka.acks", "set all"),
        ({"kafka.enable.idempotence": "false"}, "kafka.enable.idempotence", "set true"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "kafka.max.in.flight", "from 1 to 5"),
        ({"kafka.delivery.timeout.ms": "10"}, "kafka.delivery.timeout.ms", "raise the one"),
        ({"kafka.request.timeout.ms": "-1"}, "kafka.request.timeout.ms", "whole number"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.security.protocol", "PLAINTEXT"),
        ({"kafka.sasl.jaas.config": "x"}, "kafka.sasl.jaas.config", "PLAINTEXT"),
        ({"kafka.ssl.truststore.location": "x"}, "kafka.ssl.truststore.location", "PLAINTEXT"),
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer", "cast the columns"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id", "transactionalIdPrefix"),
        ({"kafka.transaction.timeout.ms": "0"}, "kafka.transaction.timeout.ms", "whole number from 1"),
        ({"firstBatch": "-1"}, "firstBatch", "whole number from 0"),
        ({"delivery": "exactly_once", "txnAppId": "a"}, "txnVersion", "give both"),
        ({"delivery": "exactly_once", "txnVersion": "1"}, "txnAppId", "give both"),
        ({"txnAppId": "a", "txnVersion": "1"}, "txnAppId", "has no effect without delivery=exactly_once"),
        ({"kafka.partitioner.class": "x"}, "kafka.partitioner.class", "column `partition`"),
        ({"subscribe": "events"}, "subscribe", "leave it out of the write"),
        ({"includeheaders": "true"}, "includeHeaders", "a column `headers` is written"),
        ({"path": "events"}, "path", "set topic"),
        ({"bootstrap.servers": "elsewhere:1"}, "bootstrap.servers", "leave one of them out"),
        ({"kafka.bootstrap.servers": "host:port"}, "kafka.bootstrap.servers", "give host:port"),
    ],
)
def test_refused_options(options: dict[str, str], named: str, fix: str) -> None:
    with pytest.raises(BadOption) as refused:
        SinkOptions.parse({**HERE, **options})
    assert str(refused.value).startswith(f"option {named}")
    assert fix in str(refused.value)


def test_without_brokers_there_is_nothing_to_write_to() -> None:
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers: it is missing; say where the brokers are"):
        SinkOptions.parse({"topic": "events"})


ALL = [
    ("key", "binary"),
    ("value", "string"),
    ("headers", "array<struct<key:string,value:binary>>"),
    ("topic", "string"),
    ("partition", "int"),
]


@pytest.mark.parametrize(
    ("columns", "topic"),
    [
        ([("value", "string")], "events"),
        ([("value", "binary"), ("topic", "string")], None),
        (ALL, None),
        (ALL, "events"),
        # What the source gives can be written as it is.
        ([*ALL, ("offset", "bigint"), ("timestamp", "timestamp"), ("timestampType", "int")], None),
    ],
)
def test_columns_that_are_taken(columns: list[tuple[str, str]], topic: str | None) -> None:
    check_columns(columns, topic)


@pytest.mark.parametrize(
    ("columns", "problem"),
    [
        ([("key", "string")], r"no column value, which is required; make one with to_json"),
        ([("value", "string")], r"no topic is given: set option topic"),
        ([("value", "bigint"), ("topic", "string")], r"column value is of type bigint and must be binary or string"),
        ([("value", "string"), ("topic", "int")], r"column topic is of type int and must be string; cast"),
        ([("value", "string"), ("key", "int"), ("topic", "string")], r"column key is of type int .* CAST\(key AS"),
        ([("value", "string"), ("partition", "bigint")], r"column partition is of type bigint and must be int"),
        ([("value", "string"), ("headers", "map<string,string>")], r"column headers is of type map"),
        ([("value", "string"), ("topic", "string"), ("user", "string")], r"column user is not .* would be lost; drop"),
        ([("Value", "string"), ("topic", "string")], r"column Value is not .* rename it to value"),
        ([("value", "string"), ("value", "string"), ("topic", "string")], r"two columns value"),
    ],
)
def test_refused_columns(columns: list[tuple[str, str]], problem: str) -> None:
    with pytest.raises(BadColumns, match=problem):
        check_columns(columns, None)
