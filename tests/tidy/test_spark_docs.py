"""The options of the Spark source and sink are told with their defaults, and what is refused is told too."""

import re

from test_docs import REFERENCE, table

from skidway.spark import client_settings
from skidway.spark.sink import options as sink_options
from skidway.spark.sink.options import SinkOptions
from skidway.spark.source import options
from skidway.spark.source.options import SourceOptions

DOCUMENT = "spark.md"
NEEDED = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
SPARKS_OWN = {"checkpointLocation", "queryName"}
SOURCE_DEFAULTS = {
    "failOnDataLoss": "fail_on_data_loss",
    "maxOffsetsPerTrigger": "max_offsets_per_trigger",
    "minOffsetsPerTrigger": "min_offsets_per_trigger",
    "minPartitions": "min_partitions",
    "maxRecordsPerPartition": "max_records_per_partition",
    "includeHeaders": "include_headers",
    "groupId": "group_id",
    "kafka.fetch.max.bytes": "fetch_bytes",
    "kafka.max.partition.fetch.bytes": "fetch_bytes",
    "kafkaConsumer.pollTimeoutMs": "fetch_timeout_ms",
    "fetchOffset.numRetries": "offset_retries",
    "fetchOffset.retryIntervalMs": "offset_retry_pause_ms",
    "kernel": "kernel",
    "backfill.active": "backfill_active",
}
SINK_DEFAULTS = {
    "topic": "topic",
    "kafka.batch.size": "batch_bytes",
    "kafka.buffer.memory": "buffer_bytes",
    "kafka.max.request.size": "request_bytes_max",
    "kafka.max.in.flight.requests.per.connection": "in_flight_max",
    "kafka.delivery.timeout.ms": "delivery_timeout_ms",
    "kafka.max.block.ms": "topic_wait_ms",
}


def told(heading: str) -> dict[str, str]:
    return {name: default for name, default, *_ in table(DOCUMENT, heading)}


def named(heading: str) -> set[str]:
    """All that is in backquotes below a heading, but for patterns."""
    section = (REFERENCE / DOCUMENT).read_text().split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return {name for name in re.findall(r"`([^`]+)`", section) if "*" not in name}


def written(value: object) -> str:
    return "(none)" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def test_every_option_is_told() -> None:
    assert set(told("Brokers")) == set(client_settings.CLIENT_OPTIONS)
    assert set(told("Source options")) == set(options.NAMES)
    assert set(told("Sink options")) == set(sink_options.KNOWN) - SPARKS_OWN


def test_options_are_told_with_their_defaults() -> None:
    source, sink = SourceOptions.parse({**NEEDED, "subscribe": "t"}), SinkOptions.parse(NEEDED)
    for heading, names, parsed in (
        ("Source options", SOURCE_DEFAULTS, source),
        ("Sink options", SINK_DEFAULTS, sink),
    ):
        shown = told(heading)
        assert {name: shown[name] for name in names} == {
            name: written(getattr(parsed, attribute)) for name, attribute in names.items()
        }
    brokers = told("Brokers")
    assert brokers["kafka.client.id"] == source.brokers.client_id
    assert brokers["kafka.request.timeout.ms"] == str(source.brokers.request_timeout_ms)
    assert f"{source.max_trigger_delay_ms // 60_000}m" == told("Source options")["maxTriggerDelay"]


def test_refused_options_are_told() -> None:
    by_kind = {name for name in (*options.ENDS, "groupId") if name in named("Refused by the source")}
    assert named("Refused by the source") - by_kind == set(options.REFUSED)
    assert named("Refused by the sink") == set(sink_options.REFUSED)


def test_options_without_effect_are_told() -> None:
    taken = {
        *client_settings.WITHOUT_EFFECT,
        *options.WITHOUT_EFFECT,
        *options.WITHOUT_EFFECT_IN_BATCH,
        *sink_options.WITHOUT_EFFECT_HERE,
    }
    assert named("Without effect") == taken


def test_the_columns_of_the_sink_are_told() -> None:
    shown = {name: kinds for name, kinds, _ in table(DOCUMENT, "Columns of the sink")}
    assert shown == {name: " or ".join(kinds) for name, kinds in sink_options.COLUMN_TYPES.items()}
