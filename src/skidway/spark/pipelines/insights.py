"""insights: hot keys, skew, throughput and end-to-end delay of topics, by partition: tables, and a report with plots.

Each batch adds a few rows to three small tables below `path`: `partitions` (records and bytes by time), `keys` (the
most frequent keys of the batch) and `delays` (how many records were how late, in steps of 15 %). They are committed
exactly once, so sums over them are right over restarts. The report (report.html, PNG files, summary.json) is made of
the tables: while the pipeline runs, and when it ends.

Delay has two parts: `produced`, from the event's own time to the record's timestamp (with `event_time`), and `read`,
from the record's timestamp to the batch that read it. Of a backlog, `read` is its age.
Hot keys are the sum of the most frequent ones of each batch: a key that is never among them is not counted.
"""

import time
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from skidway.spark.folders import writable
from skidway.spark.lake import Target, Written, open_table, write_batch
from skidway.spark.lake.target import FORMATS
from skidway.spark.pipelines import topics
from skidway.spark.pipelines.holding import Holding, hold_checkpoint
from skidway.spark.pipelines.options import EVERY_SECOND, BadPipeline, Common, Trigger, option, parse_duration_ms
from skidway.spark.pipelines.report import STEP, Findings, write_report

TABLES = ("partitions", "keys", "delays")
KEY_CHARACTERS_MAX = 200


@dataclass(slots=True, kw_only=True)
class InsightsOptions(Common):
    path: str = option("Folder of the tables and the report.")
    format: str = option("The tables' format: parquet, delta or iceberg.", "parquet")
    event_time: str | None = option("Field with the event's time, to know how late it was produced.", None)
    resolution: str = option("Length of the intervals in which throughput is counted.", "10s")
    keys: int = option("How many of the most frequent keys of a batch are kept, per topic.", 100)
    report_every: str = option("How often the report is written while the pipeline runs.", "30s")

    def __post_init__(self) -> None:
        Common.__post_init__(self)
        if self.format not in FORMATS:
            raise BadPipeline(f"format must be one of {', '.join(FORMATS)}, not {self.format!r}")
        parse_duration_ms(self.report_every)
        if parse_duration_ms(self.resolution) < 1000:
            raise BadPipeline("resolution must be 1s or more")
        if self.keys < 1:
            raise BadPipeline("keys must be 1 or more")


class Insights:
    name = "insights"

    def __init__(self, options: InsightsOptions) -> None:
        self.options = options
        self._folder = writable(options.path)
        self._tables = {name: open_table(Target(str(self._folder / name), options.format)) for name in TABLES}
        self._reported_s = time.monotonic()
        self.holding = Holding()
        self.written = Written()

    def start(self, spark: SparkSession, trigger: Trigger = EVERY_SECOND) -> StreamingQuery:
        self.holding = hold_checkpoint(self.name, self.options)
        frame = topics.read_stream(spark, self.options)
        writer = topics.write_stream(frame, self.name, self.options, trigger)
        return self.holding.follow(topics.to_batches(writer, self.write))

    def write(self, batch: DataFrame, query: str, number: int) -> None:
        seen = self.seen(batch).persist()
        try:
            for name, frame in self.summaries(seen).items():
                part = frame.coalesce(1)
                self.written.add(write_batch(self._tables[name], part, query, number, permit=self.holding.permit))
        finally:
            seen.unpersist()
        if (time.monotonic() - self._reported_s) * 1000 >= parse_duration_ms(self.options.report_every):
            self.finish()

    def finish(self) -> list[Path]:
        """The report, as of now. Answers its files."""
        self._reported_s = time.monotonic()
        return write_report(self.findings(), self._folder)

    def findings(self) -> Findings:
        rows = {}
        for name, table in self._tables.items():
            found = table.read()
            rows[name] = [] if found is None else found.to_pylist()
        return Findings.of(rows["partitions"], rows["keys"], rows["delays"])

    def seen(self, records: DataFrame) -> DataFrame:
        """What is looked at, one small row for each record."""
        seconds = parse_duration_ms(self.options.resolution) // 1000
        produced = sf.lit(None).cast("timestamp")
        if self.options.event_time is not None:
            produced = topics.event_time(records, self.options.event_time)
        now = sf.current_timestamp()
        size = sf.coalesce(sf.octet_length("key"), sf.lit(0)) + sf.coalesce(sf.octet_length("value"), sf.lit(0))
        return records.select(
            "topic",
            "partition",
            sf.substring(sf.col("key").cast("string"), 1, KEY_CHARACTERS_MAX).alias("key"),
            size.cast("bigint").alias("bytes"),
            sf.timestamp_seconds(sf.floor(sf.unix_seconds("timestamp") / seconds) * seconds).alias("at"),
            _step(sf.unix_millis("timestamp") - sf.unix_millis(produced)).alias("produced"),
            _step(sf.unix_millis(now) - sf.unix_millis("timestamp")).alias("read"),
        )

    def summaries(self, seen: DataFrame) -> dict[str, DataFrame]:
        counted = sf.count(sf.lit(1)).alias("records")
        keys = seen.where("key IS NOT NULL").groupBy("topic", "partition", "key").agg(counted)
        rank = sf.row_number().over(Window.partitionBy("topic").orderBy(sf.desc("records"), "key"))
        delays = seen.select(
            "topic", "partition", sf.expr("stack(2, 'produced', produced, 'read', read) AS (part, step)")
        )
        return {
            "partitions": seen.groupBy("topic", "partition", "at").agg(counted, sf.sum("bytes").alias("bytes")),
            "keys": keys.withColumn("rank", rank).where(sf.col("rank") <= self.options.keys).drop("rank"),
            "delays": delays.where("step IS NOT NULL").groupBy("topic", "partition", "part", "step").agg(counted),
        }


def _step(delay_ms: Column) -> Column:
    """A delay is kept as a power of STEP milliseconds: few rows, and percentiles that add up over batches."""
    return sf.ceil(sf.log(STEP, sf.greatest(delay_ms, sf.lit(1)))).cast("int")
