"""dedupe: a topic without its duplicates, to a topic.

Two records are one if they have the same key and the same id (a field of the JSON value, or a header) and come within
the window. By default that is the time of reading, so that no record is ever too late; with `event_time` it is a time
of the event itself, and what is later than the window is dropped. A record without an id passes as it is.

Keys, values and headers are not touched. Exactly once where the brokers can, as Skidway's can (`delivering`); elsewhere
what a crash makes Spark write again is there twice.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from skidway.spark.pipelines import topics
from skidway.spark.pipelines.delivering import Delivering
from skidway.spark.pipelines.holding import Holding, hold_checkpoint
from skidway.spark.pipelines.options import EVERY_SECOND, ToTopics, Trigger, interval, option, parse_duration_ms


@dataclass(slots=True, kw_only=True)
class DedupeOptions(ToTopics):
    to_topic: str = option("Topic to write to.")
    id: str = option("What identifies a record: a field of the value, or header:NAME.")
    window: str = option("How long duplicates are recognized: 10m, 1h.", "1h")
    across_keys: bool = option("Compare the id alone, not the key and the id.", False)
    event_time: str | None = option("Field with the event's time. Default: the time of reading; nothing is late.", None)

    def __post_init__(self) -> None:
        ToTopics.__post_init__(self)
        parse_duration_ms(self.window)
        topics.check_apart(self.topic, [self.to_topic])


class Dedupe:
    name = "dedupe"

    def __init__(self, options: DedupeOptions) -> None:
        self.options = options
        self.delivering: Delivering | None = None
        self.holding = Holding()

    def start(self, spark: SparkSession, trigger: Trigger = EVERY_SECOND) -> StreamingQuery:
        options = self.options
        self.holding = hold_checkpoint(self.name, options)
        topics.ensure_topics(options.bootstrap, [options.to_topic], options.topic[0])
        frame = self.distinct(topics.read_stream(spark, options))
        self.delivering = topics.delivering_of(self.name, options)
        writer = topics.write_stream(frame, self.name, options, trigger)
        return self.holding.follow(topics.to_topics(writer, self.delivering))

    def distinct(self, records: DataFrame) -> DataFrame:
        options = self.options
        own_place = sf.concat_ws("/", "topic", "partition", "offset")
        found = topics.field_or_header(records, options.id)
        time = sf.current_timestamp() if options.event_time is None else topics.event_time(records, options.event_time)
        marked = records.withColumns(
            {
                # A record without an id is like no other; the prefix keeps its place apart from any id.
                "__id": sf.when(found.isNull(), sf.concat(sf.lit("place "), own_place)).otherwise(
                    sf.concat(sf.lit("id "), found)
                ),
                "__time": sf.coalesce(time, records["timestamp"]),
            }
        )
        same = ["__id"] if options.across_keys else ["key", "__id"]
        once = marked.withWatermark("__time", interval(options.window)).dropDuplicatesWithinWatermark(same)
        return once.select(sf.lit(options.to_topic).alias("topic"), "key", "value", "headers")
