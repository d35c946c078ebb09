"""replay: a slice of a topic's history, by time or by offset, filtered by SQL, back to a topic.

A batch job: it reads what lies between the start and the end as they are when it begins, writes it, and is done. Keys,
values and headers stay as they were; headers `replay.topic`, `replay.partition` and `replay.offset` say where a record
came from. Records get the time of writing. Where the brokers can, as Skidway's can, a run that
died has written nothing (`delivering`); elsewhere the next run writes again what it had written.

Into the topic it reads from only when asked to (`into_same_topic`): every consumer would see those records again.
"""
# ruff: noqa: RUF009 - option() makes a field, as dataclasses.field does

from dataclasses import dataclass
from datetime import datetime

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf

from skidway.spark.pipelines import topics
from skidway.spark.pipelines.delivering import choose
from skidway.spark.pipelines.options import (
    DELIVERY_HELP,
    SINK_OPTION_HELP,
    BadPipeline,
    check_delivery,
    option,
    pairs,
)

PLACES = ("topic", "partition", "offset")


@dataclass(slots=True, kw_only=True)
class ReplayOptions:
    topic: list[str] = option("Topics to read.")
    to_topic: str = option("Topic to write to.")
    bootstrap: str = option("Brokers to connect to first: host:port, separated by commas.", "127.0.0.1:9092")
    since: str | None = option("From this time on: 2026-01-31T12:00Z, or milliseconds since 1970.", None)
    until: str | None = option("Up to this time.", None)
    offsets: str | None = option('From these offsets on: {"topic": {"0": 100}}. Not with --since.', None)
    end_offsets: str | None = option('Up to these offsets: {"topic": {"0": 200}}. Not with --until.', None)
    where: str | None = option(
        "SQL condition over key and value (as text), partition, offset, timestamp, headers.", None
    )
    into_same_topic: bool = option("Allow to_topic to be one of the topics to read.", False)
    source_option: list[str] = option('More options of format("skidway"): name=value.', [])
    delivery: str | None = option(DELIVERY_HELP, None)
    sink_option: list[str] = option(SINK_OPTION_HELP, [])

    def __post_init__(self) -> None:
        check_delivery(self.delivery)
        if not self.topic:
            raise BadPipeline("no topic to read; name one or more")
        if self.to_topic in self.topic and not self.into_same_topic:
            told = f"{self.to_topic} would get its own records a second time, and so would its consumers"
            raise BadPipeline(f"{told}; set into_same_topic if you mean that")
        if (self.since and self.offsets) or (self.until and self.end_offsets):
            raise BadPipeline("give a time or offsets, not both: since or offsets, until or end_offsets")
        if self.since and self.until and milliseconds(self.since) > milliseconds(self.until):
            raise BadPipeline(f"since ({self.since}) is later than until ({self.until})")


class Replay:
    name = "replay"

    def __init__(self, options: ReplayOptions) -> None:
        self.options = options

    def run(self, spark: SparkSession) -> int:
        """Answers how many records were written."""
        options = self.options
        topics.ensure_topics(options.bootstrap, [options.to_topic], options.topic[0])
        counted = Observation()
        frame = self.slice(spark).observe(counted, sf.count(sf.lit(1)).alias("records"))
        delivering = choose(self.name, options.bootstrap, options.delivery, options.sink_option)
        frame.write.format(topics.FORMAT).mode("append").options(**delivering.settings).save()
        return int(counted.get["records"])

    def slice(self, spark: SparkSession) -> DataFrame:
        records = spark.read.format(topics.FORMAT).options(**self._settings()).load()
        seen = records.withColumns({"__key": records["key"], "__value": records["value"]})
        seen = seen.withColumns({"key": topics.text(records["key"]), "value": topics.text(records["value"])})
        if self.options.where is not None:
            seen = seen.where(sf.expr(self.options.where))
        return seen.select(
            sf.lit(self.options.to_topic).alias("topic"),
            sf.col("__key").alias("key"),
            sf.col("__value").alias("value"),
            self._headers().alias("headers"),
        )

    def _settings(self) -> dict[str, str]:
        options = self.options
        chosen = {
            "kafka.bootstrap.servers": options.bootstrap,
            "subscribe": ",".join(options.topic),
            "includeHeaders": "true",
        }
        if options.since is not None:
            chosen["startingTimestamp"] = str(milliseconds(options.since))
            # Nothing as young as that in a partition: nothing to replay there.
            chosen["startingOffsetsByTimestampStrategy"] = "latest"
        if options.until is not None:
            chosen["endingTimestamp"] = str(milliseconds(options.until))
        if options.offsets is not None:
            chosen["startingOffsets"] = options.offsets
        if options.end_offsets is not None:
            chosen["endingOffsets"] = options.end_offsets
        return chosen | pairs(options.source_option, "source_option")

    def _headers(self) -> Column:
        kind = "array<struct<key: string, value: binary>>"
        mark = [
            sf.struct(
                sf.lit(f"replay.{place}").alias("key"), sf.col(place).cast("string").cast("binary").alias("value")
            )
            for place in PLACES
        ]
        own = sf.filter(sf.col("headers"), lambda one: ~one["key"].startswith("replay."))
        return sf.concat(sf.coalesce(own.cast(kind), sf.array().cast(kind)), sf.array(*mark).cast(kind))


def milliseconds(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadPipeline(f"{text!r} is not a time; write 2026-01-31T12:00Z or milliseconds since 1970") from None
