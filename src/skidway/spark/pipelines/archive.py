"""archive: topics into a table of Parquet files, or a Delta or Iceberg table, exactly once.

Without a schema the table has the records as they are: key, value, headers and where and when they were. With
`parse="json"` the value must be a JSON object and is stored as text; with a `schema` it becomes a struct of those
fields. What cannot be parsed goes, whole and with the reason, into a second table of the same kind beside the first,
`PATH-rejected`: nothing is lost and nothing stops the archive.

Exactly once: each batch is committed together with its number (see `skidway.spark.lake`). The two tables are committed
one after the other; each has every record that belongs there once.
"""
# ruff: noqa: RUF009 - option() makes a field, as dataclasses.field does

from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, Observation, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from skidway.spark.lake import Target, open_table, write_batch
from skidway.spark.lake.target import FORMATS
from skidway.spark.pipelines import topics
from skidway.spark.pipelines.options import EVERY_SECOND, BadPipeline, Common, Trigger, option

RECORD = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
TIMES = {"date": "to_date(__time)", "hour": "hour(__time)"}
CORRUPT = "__corrupt"


@dataclass(slots=True, kw_only=True)
class ArchiveOptions(Common):
    path: str = option("Where the table is: a local or mounted folder.")
    format: str = option("parquet, delta or iceberg.", "parquet")
    partition_by: list[str] = option(
        "Folders of the table, in order: topic, date, hour, or fields of the value.", ["topic", "date", "hour"]
    )
    parse: str = option("none: values as they are; json: values must be JSON objects.", "none")
    schema: str | None = option('Fields of the JSON value: "user string, amount double". Implies --parse json.', None)
    require: list[str] = option("Fields of the schema that must not be missing.", [])
    event_time: str | None = option(
        "Field with the time that gives date and hour. Default: the record's timestamp.", None
    )
    files: int | None = option(
        "Files that a batch writes per folder, at most. Default: as many as Spark has tasks.", None
    )
    rejected: str | None = option("Where the table of rejected records is. Default: PATH-rejected.", None)
    catalog: str | None = option("Iceberg: a catalog of pyiceberg's configuration. Default: SQLite in PATH.", None)
    table: str | None = option(
        "Iceberg: the table's name in the catalog. Default: skidway.<last part of PATH>, with _ for dots.", None
    )

    def __post_init__(self) -> None:
        Common.__post_init__(self)
        if self.format not in FORMATS:
            raise BadPipeline(f"format must be one of {', '.join(FORMATS)}, not {self.format!r}")
        if self.parse not in ("none", "json"):
            raise BadPipeline(f"parse must be none or json, not {self.parse!r}")
        if self.schema is not None:
            self.parse = "json"
        if self.require and self.schema is None:
            raise BadPipeline("require needs a schema: it names fields of the schema")

    def target(self) -> Target:
        columns = [name.rpartition(".")[2] for name in self.partition_by]
        return Target(self.path, self.format, columns, self.catalog, self.table)

    def rejected_target(self) -> Target:
        path = self.rejected or f"{self.path.rstrip('/')}-rejected"
        table = f"{self.table}_rejected" if self.table else None
        return Target(path, self.format, ["topic"], self.catalog, table)


class Archive:
    name = "archive"

    def __init__(self, options: ArchiveOptions) -> None:
        self.options = options
        # Both now: a wrong path or a missing library is told before Spark starts.
        self._table, self._rejected = open_table(options.target()), open_table(options.rejected_target())

    def start(self, spark: SparkSession, trigger: Trigger = EVERY_SECOND) -> StreamingQuery:
        frame = topics.read_stream(spark, self.options)
        return topics.to_batches(topics.write_stream(frame, self.name, self.options, trigger), self.write)

    def write(self, batch: DataFrame, query: str, number: int) -> None:
        if self.options.parse == "none":
            write_batch(self._table, self._laid_out(batch), query, number)
            return
        judged = self.judge(batch)
        counted = Observation()
        watched = judged.observe(counted, sf.count_if(sf.col("reason").isNotNull()).alias("rejected"))
        accepted = self._laid_out(watched.where("reason IS NULL").drop("reason"))
        written = write_batch(self._table, accepted, query, number)
        # Most batches have nothing to reject: only those that do are read a second time.
        if written.skipped or counted.get["rejected"]:
            write_batch(self._rejected, self._rejects(judged, batch), query, number)

    def judge(self, batch: DataFrame) -> DataFrame:
        """The record with its value parsed, and a reason where that failed."""
        document = topics.text(batch["value"])
        broken = (
            sf.when(batch["value"].isNull(), "the value is null")
            .when(document.isNull(), "the value is not UTF-8 text")
            .when(~topics.is_json_object(document), "the value is not a JSON object")
        )
        if self.options.schema is None:
            return batch.withColumns({"__raw": batch["value"], "reason": broken, "value": document})
        settings = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        parsed = sf.from_json(document, f"{self.options.schema}, {CORRUPT} string", settings)
        frame = batch.withColumns({"__raw": batch["value"], "__broken": broken, "value": parsed})
        misfit = sf.when(frame[f"value.{CORRUPT}"].isNotNull(), "a field does not have the type the schema gives it")
        absent = [
            sf.when(frame[f"value.{name}"].isNull(), f"the field {name} is missing") for name in self.options.require
        ]
        reason = sf.coalesce(frame["__broken"], misfit, *absent)
        return frame.withColumns({"reason": reason, "value": frame["value"].dropFields(CORRUPT)}).drop("__broken")

    def _laid_out(self, frame: DataFrame) -> DataFrame:
        """The columns of the table: the record's, then those to partition by that the record does not have."""
        when = self._event_time(frame)
        frame = frame.withColumn("__time", sf.coalesce(when, frame["timestamp"]))
        added: dict[str, Column] = {}
        for field in self.options.partition_by:
            name = field.rpartition(".")[2]
            if name in TIMES:
                added[name] = sf.expr(TIMES[name])
            elif name not in RECORD:
                added[name] = self._field(frame, field)
        frame = frame.withColumns(added).select(*RECORD, *added)
        return frame if self.options.files is None else frame.coalesce(self.options.files)

    def _event_time(self, frame: DataFrame) -> Column:
        field = self.options.event_time
        return frame["timestamp"] if field is None else topics.time_of(self._field(frame, field).cast("string"))

    def _field(self, frame: DataFrame, field: str) -> Column:
        """Of the value, by the schema if there is one."""
        if self.options.schema is not None:
            return frame[f"value.{field}"]
        return topics.json_field(frame["value"].cast("string"), field)

    def _rejects(self, judged: DataFrame, batch: DataFrame) -> DataFrame:
        rejected = judged.where("reason IS NOT NULL").drop("value").withColumnRenamed("__raw", "value")
        return rejected.select(*RECORD, "reason", sf.current_timestamp().alias("rejected_at"))
