"""Topics as frames, and frames as topics, for all pipelines: reading, JSON fields, times, writing, making topics."""

from collections.abc import Callable, Iterable
from typing import Any

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import BrokerError
from skidway.errors import ErrorCode
from skidway.spark.pipelines.checkpoints import clear_unfinished, location
from skidway.spark.pipelines.delivering import Delivering, choose_for_stream
from skidway.spark.pipelines.options import BadPipeline, Common, ToTopics, Trigger, pairs
from skidway.spark.sink.options import APPLICATION, VERSION

FORMAT = "skidway"
HEADER_MARK = "header:"
# Spark's own names for the local property; they are pinned by a test.
QUERY_ID = "sql.streaming.queryId"


def source_options(options: Common) -> dict[str, str]:
    chosen = {
        "kafka.bootstrap.servers": options.bootstrap,
        "subscribe": ",".join(options.topic),
        "includeHeaders": "true",
    }
    if options.max_records is not None:
        chosen["maxOffsetsPerTrigger"] = str(options.max_records)
    if options.group is not None:
        chosen["groupId"] = options.group
    return chosen | pairs(options.source_option, "source_option")


def stream_settings(options: Common) -> dict[str, str]:
    return {"startingOffsets": options.start} | source_options(options)


def read_stream(spark: SparkSession, options: Common, settings: dict[str, str] | None = None) -> DataFrame:
    """key, value, topic, partition, offset, timestamp, timestampType, headers."""
    settings = stream_settings(options) if settings is None else settings
    return spark.readStream.format(FORMAT).options(**settings).load()


def write_stream(
    frame: DataFrame,
    name: str,
    options: Common,
    trigger: Trigger,
    mode: str = "append",
) -> Any:
    """The writer of a pipeline's query; a sink and `start` are left to say."""
    checkpoint = options.folder(name)
    clear_unfinished(checkpoint)
    return (
        frame.writeStream.queryName(options.name or name)
        .outputMode(mode)
        .option("checkpointLocation", location(checkpoint))
        .trigger(**trigger.spark())
    )


def to_topics(writer: Any, delivering: Delivering) -> StreamingQuery:
    """Rows of topic, key, value and maybe headers."""
    started: StreamingQuery = writer.format(FORMAT).options(**delivering.settings).start()
    return started


def rewriting_topics(writer: Any, delivering: Delivering) -> StreamingQuery:
    """As `to_topics`, for queries whose rows change: Spark gives Python sinks only rows that do not."""

    def write(batch: DataFrame, query: str, number: int) -> None:
        numbering = {APPLICATION: query, VERSION: str(number)} if delivering.exactly_once else {}
        batch.write.format(FORMAT).mode("append").options(**delivering.settings, **numbering).save()

    return to_batches(writer, write)


def delivering_of(name: str, options: ToTopics) -> Delivering:
    """Before the query starts: the checkpoint must not have changed yet."""
    return choose_for_stream(name, options.bootstrap, options.delivery, options.sink_option, options.folder(name))


def to_batches(writer: Any, write: Callable[[DataFrame, str, int], None]) -> StreamingQuery:
    """`write(batch, query id, batch id)` for each batch. Run again after a crash: the same ids and the same rows."""

    def each(batch: DataFrame, number: int) -> None:
        query = batch.sparkSession.sparkContext.getLocalProperty(QUERY_ID)
        assert query, f"Spark no longer sets the query's id as {QUERY_ID}"
        write(batch, query, number)

    started: StreamingQuery = writer.foreachBatch(each).start()
    return started


def text(value: Column) -> Column:
    """Bytes as text; null if they are not UTF-8."""
    return sf.try_validate_utf8(value.cast("string"))


def json_field(document: Column, path: str) -> Column:
    """A field as text: `amount`, `user.id`, `items[0].sku`. Null where it is missing or the text is no JSON."""
    return sf.get_json_object(document, path if path.startswith("$") else f"$.{path}")


def is_json_object(document: Column) -> Column:
    # Spark's parser stops behind the first document: what follows it has to be looked at here.
    braces = sf.ltrim(document).startswith("{") & sf.rtrim(document).endswith("}")
    return sf.coalesce(braces & sf.try_parse_json(document).isNotNull(), sf.lit(False))


def field_or_header(frame: DataFrame, name: str) -> Column:
    """`header:message-id` is the last header of that name, anything else a field of a JSON value."""
    if not name.startswith(HEADER_MARK):
        return json_field(text(frame["value"]), name)
    wanted = name.removeprefix(HEADER_MARK)
    found = sf.filter(frame["headers"], lambda header: header["key"] == wanted)
    return sf.try_element_at(found, sf.lit(-1))["value"].cast("string")


def time_of(written: Column) -> Column:
    """A time as people and programs write it: ISO 8601, or milliseconds since 1970."""
    milliseconds = sf.timestamp_millis(sf.expr("try_cast(null AS bigint)"))
    milliseconds = sf.when(written.rlike(r"^-?\d{1,15}$"), sf.timestamp_millis(written.try_cast("bigint"))).otherwise(
        milliseconds
    )
    return sf.coalesce(milliseconds, written.try_cast("timestamp"))


def event_time(frame: DataFrame, field: str | None) -> Column:
    """The time in a field of the value, or the record's own."""
    return frame["timestamp"] if field is None else time_of(field_or_header(frame, field))


def ensure_topics(bootstrap: str, names: Iterable[str], like: str) -> list[str]:
    """Make the topics that do not exist, with as many partitions as `like` has. Answers those made."""
    made = []
    with Cluster(bootstrap, client_id="skidway-pipeline") as cluster:
        admin = Admin(cluster)
        there = {topic.name: len(topic.partitions) for topic in admin.topics()}
        for name in dict.fromkeys(names):
            if name in there:
                continue
            try:
                admin.create_topic(name, partitions=there.get(like, -1))
                made.append(name)
            except BrokerError as error:
                if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
                    raise
    return made


def check_apart(sources: Iterable[str], sinks: Iterable[str]) -> None:
    """A pipeline that reads what it writes never ends."""
    both = sorted(set(sources) & set(sinks))
    if both:
        raise BadPipeline(f"{', '.join(both)} would be both read and written, which never ends; write to another topic")
