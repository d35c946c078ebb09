"""aggregate: counts, sums and the like over windows of time, by fields of JSON values, to a topic or a table.

Events fall into windows by a time of their own, or by the record's timestamp. A watermark says how late an event may
be; a later one is left out. With `emit="final"` each window is written once, when the watermark has passed its end;
with `emit="changes"` (to a topic only) a window is written again whenever a batch changed it, newest last.

Exactly once to a table, and to a topic where the brokers can, as Skidway's can (`delivering`). Records that are no JSON
or have no time are left out, and counted in the query's progress (`observedMetrics`, shown by `skidway pipeline
status`).
"""
# ruff: noqa: RUF009 - option() makes a field, as dataclasses.field does

import re
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from skidway.spark.lake import Target, Written, open_table, write_batch
from skidway.spark.lake.target import FORMATS
from skidway.spark.pipelines import topics
from skidway.spark.pipelines.delivering import Delivering
from skidway.spark.pipelines.holding import Holding, hold_checkpoint
from skidway.spark.pipelines.options import (
    EVERY_SECOND,
    BadPipeline,
    ToTopics,
    Trigger,
    interval,
    option,
    parse_duration_ms,
)

MEASURE = re.compile(r"(count|sum|avg|min|max|distinct)(?::(.+))?")


@dataclass(slots=True, kw_only=True)
class AggregateOptions(ToTopics):
    window: str = option("How long a window is: 1m, 1h.", "1m")
    slide: str | None = option("How often a new window begins. Default: windows do not overlap.", None)
    watermark: str = option("How late an event may be and still count.", "1m")
    event_time: str | None = option("Field with the event's time. Default: the record's timestamp.", None)
    group_by: list[str] = option("Fields of the value to group by, e.g. country or user.id.", [])
    measure: list[str] = option("What to compute: count, sum:FIELD, avg:, min:, max:, distinct:FIELD.", ["count"])
    emit: str = option(
        "final: each window once, after it has ended; changes: each time it changes (topics only).", "final"
    )
    to_topic: str | None = option("Topic to write JSON to.", None)
    to_table: str | None = option("Folder of a table to write to.", None)
    format: str = option("The table's format: parquet, delta or iceberg.", "parquet")

    def __post_init__(self) -> None:
        ToTopics.__post_init__(self)
        if (self.to_topic is None) == (self.to_table is None):
            raise BadPipeline("give either to_topic or to_table")
        if self.emit not in ("final", "changes"):
            raise BadPipeline(f"emit must be final or changes, not {self.emit!r}")
        if self.emit == "changes" and self.to_table is not None:
            raise BadPipeline(
                "a table can hold final windows only, because its rows are never replaced; set emit to final"
            )
        if self.format not in FORMATS:
            raise BadPipeline(f"format must be one of {', '.join(FORMATS)}, not {self.format!r}")
        for text in (self.window, self.watermark, *([self.slide] if self.slide else [])):
            parse_duration_ms(text)
        for text in self.measure:
            match = MEASURE.fullmatch(text)
            if match is None or (match[1] != "count" and match[2] is None):
                raise BadPipeline(
                    f"{text!r} is not a measure; write count or sum:FIELD, avg:, min:, max:, distinct:FIELD"
                )
        if self.to_table is not None and (self.delivery is not None or self.sink_option):
            raise BadPipeline("delivery and sink_option are for topics; a table gets every row exactly once")
        if self.to_topic is not None:
            topics.check_apart(self.topic, [self.to_topic])


class Aggregate:
    name = "aggregate"

    def __init__(self, options: AggregateOptions) -> None:
        self.options = options
        self.delivering: Delivering | None = None
        self.holding = Holding()
        self.written = Written()
        self._table = None if options.to_table is None else open_table(Target(options.to_table, options.format))

    def start(self, spark: SparkSession, trigger: Trigger = EVERY_SECOND) -> StreamingQuery:
        options = self.options
        self.holding = hold_checkpoint(self.name, options)
        return self.holding.follow(self._started(spark, trigger))

    def _started(self, spark: SparkSession, trigger: Trigger) -> StreamingQuery:
        options = self.options
        frame = self.windows(topics.read_stream(spark, options))
        if options.to_topic is not None:
            topics.ensure_topics(options.bootstrap, [options.to_topic], options.topic[0])
            messages = self.messages(frame)
            self.delivering = topics.delivering_of(self.name, options)
            if options.emit == "changes":
                writer = topics.write_stream(messages, self.name, options, trigger, "update")
                return topics.rewriting_topics(writer, self.delivering)
            writer = topics.write_stream(messages, self.name, options, trigger)
            return topics.to_topics(writer, self.delivering)
        assert self._table is not None
        table, permit = self._table, self.holding.permit

        def write(batch: DataFrame, query: str, number: int) -> None:
            self.written.add(write_batch(table, batch, query, number, permit=permit))

        return topics.to_batches(topics.write_stream(frame, self.name, options, trigger), write)

    def windows(self, records: DataFrame) -> DataFrame:
        """window_start, window_end, the fields grouped by, the measures."""
        options = self.options
        document = topics.text(records["value"])
        groups = {column_name(field): topics.json_field(document, field) for field in options.group_by}
        inputs = {f"__{n}": self._input(document, text) for n, text in enumerate(options.measure)}
        events = records.select(
            topics.event_time(records, options.event_time).alias("__time"),
            *(column.alias(name) for name, column in groups.items()),
            *(column.alias(name) for name, column in inputs.items()),
        )
        events = events.observe(
            "events", sf.count(sf.lit(1)).alias("read"), sf.count_if(sf.col("__time").isNull()).alias("without_time")
        )
        span = sf.window("__time", interval(options.window), interval(options.slide or options.window))
        computed = [
            self._computed(text, sf.col(f"__{n}")).alias(measure_name(text)) for n, text in enumerate(options.measure)
        ]
        counted = (
            events.where("__time IS NOT NULL")
            .withWatermark("__time", interval(options.watermark))
            .groupBy(span.alias("__window"), *groups)
            .agg(*computed)
        )
        return counted.select(
            sf.col("__window.start").alias("window_start"),
            sf.col("__window.end").alias("window_end"),
            *groups,
            *(measure_name(text) for text in options.measure),
        )

    def messages(self, frame: DataFrame) -> DataFrame:
        """Keyed by what was grouped by: one group's windows stay in order."""
        groups = [column_name(field) for field in self.options.group_by]
        key = (
            sf.concat_ws("|", *(sf.coalesce(sf.col(name), sf.lit("")) for name in groups)) if groups else sf.lit("all")
        )
        assert self.options.to_topic is not None
        return frame.select(
            sf.lit(self.options.to_topic).alias("topic"),
            key.cast("binary").alias("key"),
            sf.to_json(sf.struct(*frame.columns), {"ignoreNullFields": "false"}).cast("binary").alias("value"),
        )

    def _input(self, document: Column, text: str) -> Column:
        match = MEASURE.fullmatch(text)
        assert match is not None
        if match[2] is None:
            return sf.lit(1)
        field = topics.json_field(document, match[2])
        return field if match[1] in ("count", "distinct") else field.try_cast("double")

    def _computed(self, text: str, column: Column) -> Column:
        functions = {
            "count": sf.count,
            "sum": sf.sum,
            "avg": sf.avg,
            "min": sf.min,
            "max": sf.max,
            "distinct": sf.approx_count_distinct,
        }
        return functions[text.partition(":")[0]](column)


def column_name(field: str) -> str:
    return re.sub(r"\W+", "_", field).strip("_")


def measure_name(text: str) -> str:
    return column_name(text)
