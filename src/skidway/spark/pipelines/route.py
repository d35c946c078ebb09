"""route: filter, split and enrich a topic by SQL, to other topics; what fails goes to a dead-letter topic.

A route is `TOPIC: SQL condition`; a record goes to the first one that is true (or to all of them), a route without a
condition takes what is left. Expressions see these columns: key and value as text, data (the value parsed by `schema`),
topic, partition, offset, timestamp, headers; and those that `sql` adds, e.g. by a join with a lookup table.
`set` adds fields to the JSON value; the fields it has stay as they are, byte for byte.

A record that is no JSON, does not fit the schema, fails a `check`, or whose new value comes out null is a dead letter:
its own key, value and headers with the reason in headers, as `skidway.client.DeadLetters` writes them, so that
`skidway dlq show` and `skidway dlq replay` work. SQL is not ANSI here: a bad cast is null and fails nobody else.

Exactly once where the brokers can, as Skidway's can (`delivering`).
"""
# ruff: noqa: RUF009 - option() makes a field, as dataclasses.field does

from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from skidway.records import dead_letter_headers as letters
from skidway.spark.pipelines import topics
from skidway.spark.pipelines.delivering import Delivering
from skidway.spark.pipelines.holding import Holding, hold_checkpoint
from skidway.spark.pipelines.options import EVERY_SECOND, BadPipeline, ToTopics, Trigger, labelled, option, pairs

DROP, DEAD = "drop", "dead"
CORRUPT = "__corrupt"
RAW = ("__key", "__value")
SEEN = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
LOOKUPS = {".csv": "csv", ".json": "json", ".jsonl": "json", ".parquet": "parquet", "": "parquet"}
OUT = "struct<topic: string, key: binary, value: binary, headers: array<struct<key: string, value: binary>>>"


@dataclass(slots=True, kw_only=True)
class RouteOptions(ToTopics):
    route: list[str] = option('Where records go: "TOPIC: SQL condition", or "TOPIC" for all other records.')
    every: bool = option("Send a record to every route whose condition is true, not only to the first.", False)
    unmatched: str = option("Where records go that match no route: drop, dead (a dead letter), or a topic.", DROP)
    parse: str = option("none: values may be anything; json: they must be JSON objects.", "json")
    schema: str | None = option('Fields of the JSON value, as the column data: "user string, amount double".', None)
    check: list[str] = option('What must be true of every record: "NAME: SQL condition".', [])
    set: list[str] = option('Field to add to the JSON value: "FIELD = SQL expression".', [])
    sql: str | None = option("Query over the view events: SELECT e.*, … FROM events e LEFT JOIN …", None)
    lookup: list[str] = option("Table to join in sql: NAME=PATH (csv with a header line, json or parquet).", [])
    dead_letter_topic: str | None = option("Topic for dead letters. Default: the source topic and -dlq.", None)

    def __post_init__(self) -> None:
        ToTopics.__post_init__(self)
        if not self.route:
            raise BadPipeline('no route; give one or more: "TOPIC: SQL condition"')
        if self.parse not in ("none", "json"):
            raise BadPipeline(f"parse must be none or json, not {self.parse!r}")
        if self.parse == "none" and (self.schema or self.set):
            raise BadPipeline("schema and set need JSON values: set parse to json")
        if self.lookup and self.sql is None:
            raise BadPipeline("lookup tables need sql: the query joins them")
        topics.check_apart(self.topic, [*self.targets(), *self.dead_letter_topics()])

    def routes(self) -> list[tuple[str, str]]:
        return [labelled(text, "route") for text in self.route]

    def targets(self) -> list[str]:
        more = [self.unmatched] if self.unmatched not in (DROP, DEAD) else []
        return [*(topic for topic, _ in self.routes()), *more]

    def dead_letter_topics(self) -> list[str]:
        if self.dead_letter_topic is not None:
            return [self.dead_letter_topic]
        return [letters.dead_letter_topic(topic) for topic in self.topic]


class Route:
    name = "route"

    def __init__(self, options: RouteOptions) -> None:
        self.options = options
        self.delivering: Delivering | None = None
        self.holding = Holding()

    def start(self, spark: SparkSession, trigger: Trigger = EVERY_SECOND) -> StreamingQuery:
        options = self.options
        self.holding = hold_checkpoint(self.name, options)
        # A session of its own: views and the way SQL treats a bad cast are this pipeline's business only.
        session = spark.newSession()
        session.conf.set("spark.sql.ansi.enabled", "false")
        session.conf.set("spark.sql.session.timeZone", "UTC")
        topics.ensure_topics(options.bootstrap, [*options.targets(), *options.dead_letter_topics()], options.topic[0])
        frame = self.messages(topics.read_stream(session, options))
        self.delivering = topics.delivering_of(self.name, options)
        writer = topics.write_stream(frame, self.name, options, trigger)
        return self.holding.follow(topics.to_topics(writer, self.delivering))

    def messages(self, records: DataFrame) -> DataFrame:
        """topic, key, value, headers of all that is to be written, dead letters included."""
        judged = self._judged(self._joined(self._parsed(records)))
        judged = judged.withColumn("__new", self._value(judged))
        reason = sf.coalesce(
            judged["__reason"], sf.when(judged["__new"].isNull(), _reason("EnrichmentFailed", "the new value is null"))
        )
        judged = judged.withColumn("__reason", reason if self.options.set else judged["__reason"])
        judged = judged.withColumn("__out", self._outputs())
        judged = judged.observe(
            "routes",
            sf.count(sf.lit(1)).alias("read"),
            sf.count_if(sf.col("__reason").isNotNull()).alias("dead"),
            sf.count_if(sf.size("__out") == 0).alias("dropped"),
        )
        return judged.select(sf.explode("__out").alias("__one")).select("__one.*")

    def _parsed(self, records: DataFrame) -> DataFrame:
        document = topics.text(records["value"])
        frame = records.withColumns({"__key": records["key"], "__value": records["value"], "value": document})
        frame = frame.withColumn("key", topics.text(records["key"]))
        if self.options.schema is not None:
            settings = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
            parsed = sf.from_json(sf.col("value"), f"{self.options.schema}, {CORRUPT} string", settings)
            frame = frame.withColumn("data", parsed)
        return frame

    def _joined(self, frame: DataFrame) -> DataFrame:
        if self.options.sql is None:
            return frame
        session = frame.sparkSession
        for name, path in pairs(self.options.lookup, "lookup").items():
            kind = LOOKUPS.get(Path(path).suffix)
            if kind is None:
                raise BadPipeline(f"lookup {name}: {path} must be a csv, json or parquet file")
            session.read.format(kind).options(header="true", inferSchema="true").load(path).createOrReplaceTempView(
                name
            )
        frame.createOrReplaceTempView("events")
        joined = session.sql(self.options.sql)
        lost = [name for name in (*RAW, *SEEN) if name not in joined.columns]
        if lost:
            raise BadPipeline(f"sql drops the columns {', '.join(lost)}; select e.* and what you add")
        return joined

    def _judged(self, frame: DataFrame) -> DataFrame:
        """Why a record cannot be routed, if so: a struct of the error's type and text."""
        reasons: list[Column] = []
        if self.options.parse == "json":
            reasons.append(sf.when(sf.col("__value").isNull(), _reason("NotJson", "the value is null")))
            reasons.append(sf.when(sf.col("value").isNull(), _reason("NotJson", "the value is not UTF-8 text")))
            reasons.append(
                sf.when(~topics.is_json_object(sf.col("value")), _reason("NotJson", "the value is not a JSON object"))
            )
        if self.options.schema is not None:
            told = _reason("SchemaMismatch", f"a field does not have its type in: {self.options.schema}")
            reasons.append(sf.when(sf.col(f"data.{CORRUPT}").isNotNull(), told))
        for text in self.options.check:
            name, condition = labelled(text, "check")
            failed = ~sf.coalesce(sf.expr(condition or name), sf.lit(False))
            reasons.append(sf.when(failed, _reason("CheckFailed", f"{name}: {condition or 'is not true'}")))
        return frame.withColumn("__reason", sf.coalesce(*reasons, _reason(None, None)))

    def _value(self, frame: DataFrame) -> Column:
        """The value with the new fields before its last brace; what is there is not rewritten."""
        added = pairs(self.options.set, "set")
        if not added:
            return sf.col("__value")
        document = sf.rtrim(sf.col("value"))
        body = sf.expr("substring(rtrim(value), 1, length(rtrim(value)) - 1)")
        fields = sf.to_json(
            sf.struct(*(sf.expr(sql).alias(name) for name, sql in added.items())), {"ignoreNullFields": "false"}
        )
        empty = sf.regexp_like(document, sf.lit(r"^\s*\{\s*\}$"))
        comma = sf.when(empty, "").otherwise(",")
        return sf.concat(body, comma, sf.substring(fields, 2, 2**31 - 1)).cast("binary")

    def _outputs(self) -> Column:
        """An array of what is to be written for a record."""
        alive = sf.col("__reason").isNull()
        chosen: list[Column] = []
        taken: Column = sf.lit(False)
        for topic, condition in self.options.routes():
            true = sf.coalesce(sf.expr(condition), sf.lit(False)) if condition else sf.lit(True)
            wanted = alive & true if self.options.every and condition else alive & true & ~taken
            taken = taken | true
            chosen.append(sf.when(wanted, _message(sf.lit(topic), sf.col("__new"), sf.col("headers"))))
        if self.options.unmatched not in (DROP, DEAD):
            message = _message(sf.lit(self.options.unmatched), sf.col("__new"), sf.col("headers"))
            chosen.append(sf.when(alive & ~taken, message))
        unrouted = _reason("NoRoute", "no route matches") if self.options.unmatched == DEAD else _reason(None, None)
        why = sf.coalesce(sf.col("__reason"), sf.when(~taken, unrouted))
        named = self.options.dead_letter_topic
        letters_to = sf.lit(named) if named else sf.concat("topic", sf.lit(letters.SUFFIX))
        headers = death_headers(why["type"], why["message"], self.name)
        chosen.append(sf.when(why.isNotNull(), _message(letters_to, sf.col("__value"), headers)))
        return sf.filter(sf.array(*(one.cast(OUT) for one in chosen)), lambda one: one.isNotNull())


def death_headers(error_type: Column, error_message: Column, pipeline: str) -> Column:
    """What `dead_letter_headers.DeathReport` writes, as a column: the record's own headers, then the report's."""
    now = sf.unix_millis(sf.current_timestamp()).cast("string")
    told = {
        letters.TOPIC: sf.col("topic"),
        letters.PARTITION: sf.col("partition").cast("string"),
        letters.OFFSET: sf.col("offset").cast("string"),
        letters.TIMESTAMP: sf.unix_millis("timestamp").cast("string"),
        letters.GROUP: sf.lit(f"skidway-{pipeline}"),
        letters.ERROR_TYPE: error_type,
        letters.ERROR_MESSAGE: sf.substring(error_message, 1, letters.ERROR_MESSAGE_CHARACTERS_MAX),
        letters.ATTEMPTS: sf.lit("1"),
        letters.FAILED_FIRST: now,
        letters.FAILED_LAST: now,
    }
    report = sf.array(
        *(sf.struct(sf.lit(name).alias("key"), text.cast("binary").alias("value")) for name, text in told.items())
    )
    # How often it was replayed stays with a message: `skidway dlq replay` gives up on one that keeps coming back.
    own = sf.filter(
        sf.col("headers"), lambda one: (~one["key"].startswith(letters.PREFIX)) | (one["key"] == letters.REPLAYS)
    )
    kind = "array<struct<key: string, value: binary>>"
    return sf.concat(sf.coalesce(own, sf.array().cast(kind)).cast(kind), report.cast(kind))


def _message(topic: Column, value: Column, headers: Column) -> Column:
    return sf.struct(topic.alias("topic"), sf.col("__key").alias("key"), value.alias("value"), headers.alias("headers"))


def _reason(kind: str | None, told: str | None) -> Column:
    if kind is None:
        return sf.lit(None).cast("struct<type: string, message: string>")
    return sf.struct(sf.lit(kind).alias("type"), sf.lit(told).alias("message"))
