"""archive: topics into a table of Parquet files, or a Delta or Iceberg table, exactly once.

Without a schema the table has the records as they are: key, value, headers and where and when they were. With
`parse="json"` the value must be a JSON object and is stored as text; with a `schema` it becomes a struct of those
fields. With a `registry` the value is framed for it, and the newest schema of its subject says which fields there are.
What cannot be parsed goes, whole and with the reason, into a second table of the same kind beside the first,
`PATH-rejected`: nothing is lost and nothing stops the archive.

Fields that are to be masked are masked when all else has been done with them: conditions and times see what the record
says, tables and their folders do not. Rejected records then lose their values, which nobody could mask.

Exactly once: each batch is committed together with the positions behind it (see `skidway.spark.lake`). Both tables are
written in one pass over the records and committed one after the other, the rejects first; each has every record that
belongs there once. An archive whose checkpoint was lost goes on where its table ends.
"""
# ruff: noqa: RUF009 - option() makes a field, as dataclasses.field does

from copy import copy
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from skidway.spark.lake import Target, Written, open_table, write_batch
from skidway.spark.lake.together import Share, write_together
from skidway.spark.pipelines import topics
from skidway.spark.pipelines.holding import Holding, hold_checkpoint, hold_table
from skidway.spark.pipelines.options import EVERY_SECOND, BadPipeline, Trigger, option
from skidway.spark.pipelines.redo import Redo, Redone
from skidway.spark.pipelines.resuming import reached, starting_where_the_table_ends
from skidway.spark.pipelines.spans import span_of_batch
from skidway.spark.pipelines.values.masking import mask_frame, rejected_columns, unmasked_columns
from skidway.spark.pipelines.values.masks import Drop, Masks
from skidway.spark.pipelines.values.registered import FromRegistry, registered
from skidway.spark.pipelines.values.rejects import MISFIT, NOT_OBJECT, NOT_TEXT
from skidway.spark.pipelines.values.schemas import fields_of
from skidway.spark.registry.frame_columns import ddl_of, decoded

RECORD = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
TIMES = {"date": "to_date(__time)", "hour": "hour(__time)"}
CORRUPT = "__corrupt"
IS_NULL = "the value is null"


def missing(name: str) -> str:
    return f"the field {name} is missing"


def untrue(condition: str) -> str:
    return f"not true: {condition.strip()}"


@dataclass(slots=True, kw_only=True)
class ArchiveOptions(FromRegistry):
    partition_by: list[str] = option(
        "Folders of the table, in order: topic, date, hour, or fields of the value.", ["topic", "date", "hour"]
    )
    parse: str = option("none: values as they are; json: values must be JSON objects.", "none")
    schema: str | None = option('Fields of the JSON value: "user string, amount double". Implies --parse json.', None)
    require: list[str] = option("Fields of the schema that must not be missing.", [])
    expect: list[str] = option(
        "SQL about fields of the schema that must be true, else the record is rejected: 'amount > 0'.", []
    )
    event_time: str | None = option(
        "Field with the time that gives date and hour. Default: the record's timestamp.", None
    )
    files: int | None = option(
        "Files that a batch writes per folder, at most. Default: as many as Spark has tasks.", None
    )
    redo_rejected: bool = option(
        "Do not read topics: judge the rejected records again, and add those that pass now.", False
    )

    def __post_init__(self) -> None:
        FromRegistry.__post_init__(self)
        if self.parse not in ("none", "json"):
            raise BadPipeline(f"parse must be none or json, not {self.parse!r}")
        if self.schema is not None:
            self.parse = "json"
        if self.registry is not None and self.parse != "none":
            raise BadPipeline("the registry says which fields a value has: leave out schema and parse")
        has_fields = self.schema is not None or self.registry is not None
        if self.require and not has_fields:
            raise BadPipeline("require needs a schema: it names fields of the schema")
        if self.expect and not has_fields:
            raise BadPipeline("expect needs a schema: its conditions are about fields of the schema")
        if self.redo_rejected and self.takes_all:
            raise BadPipeline(
                "redo_rejected needs a schema, a registry, or parse json: without them no record is rejected"
            )

    @property
    def takes_all(self) -> bool:
        """Whether no record can be rejected."""
        return self.parse == "none" and self.registry is None

    def masks(self) -> Masks:
        masks = self.masks_of_fields(None if self.schema is None else fields_of(self.schema))
        for name in self.partition_by:
            if masks.drops(name) or isinstance(masks.record.get(name), Drop):
                raise BadPipeline(f"{name} is dropped, so that the table cannot be partitioned by it; hash it instead")
        return masks

    def target(self) -> Target:
        return self.target_by([name.rpartition(".")[2] for name in self.partition_by])


class Archive:
    name = "archive"

    def __init__(self, options: ArchiveOptions) -> None:
        self.options = copy(options)
        self.holding = Holding()
        self.written = Written()
        self._rejects_seen = options.rejects()
        self._registered = registered(options)
        self._take_fields()
        # Both now: a wrong path or a missing library is told before Spark starts.
        self._table, self._rejected = open_table(options.target()), open_table(options.rejected_target())

    def start(self, spark: SparkSession, trigger: Trigger = EVERY_SECOND) -> StreamingQuery:
        self.holding = hold_checkpoint(self.name, self.options)
        self.holding.keepers += hold_table(self._table, self.options).keepers
        checkpoint = self.options.folder(self.name)
        settings = starting_where_the_table_ends(topics.stream_settings(self.options), self._table, checkpoint)
        frame = topics.read_stream(spark, self.options, settings)
        writer = topics.write_stream(frame, self.name, self.options, trigger)
        return self.holding.follow(topics.to_batches(writer, self.write))

    def _take_fields(self) -> None:
        """Those of the registry stand for a schema."""
        if self._registered is not None:
            self.options.schema = ddl_of(self._registered.decoder.type)
        self._masks = self.options.masks()

    def write(self, batch: DataFrame, query: str, number: int) -> None:
        if self._registered is not None and self._registered.refresh():
            self._take_fields()
        permit = self.holding.permit
        span = span_of_batch(batch.sparkSession, self.options.folder(self.name), number)
        if self.options.takes_all:
            laid_out = self._laid_out(batch)
            self.written.add(write_batch(self._table, laid_out, query, number, permit=permit, span=span))
            return
        frame = self._divided(self.judge(batch))
        # The table comes last: it says how far the archive has come, and the rejects of that must be there then.
        shares = [
            Share(self._rejected, frame.select("rejected.*"), "rejected", always=False, count_by="reason"),
            Share(self._table, frame.select("accepted.*"), "accepted"),
        ]
        rejected, accepted = write_together(frame, shares, query, number, permit=permit, span=span)
        self.written.add(accepted)
        self._rejects_seen.add(accepted.rows + rejected.rows, rejected.counts)
        self._rejects_seen.check()

    def redo(self, spark: SparkSession) -> Redone:
        """The rejected records once more, as the options are now. Not while another driver runs the archive."""
        self.holding = hold_checkpoint(self.name, self.options)
        self.holding.keepers += hold_table(self._table, self.options).keepers
        try:
            come = reached(topics.stream_settings(self.options), self._table)
            redo = Redo(self._table, self._rejected, self.options.topic, come, self._rejudged, self.holding.permit)
            return redo.run(spark)
        finally:
            self.holding.release()

    def _rejudged(self, records: DataFrame) -> DataFrame:
        return self._divided(self.judge(records))

    def counts(self) -> dict[str, int]:
        """What this run has rejected, and why."""
        return self._rejects_seen.counts()

    def judge(self, batch: DataFrame) -> DataFrame:
        """The record with its value parsed, and a reason where that failed."""
        if self._registered is not None:
            return self._conditioned(decoded(batch, self._registered.decoder, "__broken", "__raw"), None)
        document = topics.text(batch["value"])
        broken = (
            sf.when(batch["value"].isNull(), IS_NULL)
            .when(document.isNull(), NOT_TEXT)
            .when(~topics.is_json_object(document), NOT_OBJECT)
        )
        if self.options.schema is None:
            return batch.withColumns({"__raw": batch["value"], "reason": broken, "value": document})
        settings = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        parsed = sf.from_json(document, f"{self.options.schema}, {CORRUPT} string", settings)
        frame = batch.withColumns({"__raw": batch["value"], "__broken": broken, "value": parsed})
        misfit = sf.when(frame[f"value.{CORRUPT}"].isNotNull(), MISFIT)
        frame = self._conditioned(frame, misfit)
        return frame.withColumn("value", frame["value"].dropFields(CORRUPT))

    def _conditioned(self, frame: DataFrame, misfit: Column | None) -> DataFrame:
        """With the reason: what was broken, or the first condition that the fields do not meet."""
        assert self.options.schema is not None
        absent = [sf.when(frame[f"value.{name}"].isNull(), missing(name)) for name in self.options.require]
        # Fields go by their names in conditions; one that is called like a column of the record is value.NAME there.
        fields = StructType.fromDDL(self.options.schema)
        assert isinstance(fields, StructType)
        free = [name for name in fields.fieldNames() if name not in (*frame.columns, "reason")]
        named = {name: frame["value"].getField(name) for name in free}
        frame = frame.withColumns(named) if self.options.expect else frame
        misfits = [] if misfit is None else [misfit]
        reason = sf.coalesce(frame["__broken"], *misfits, *absent, *self._unmet())
        return frame.withColumn("reason", reason).drop("__broken", *named)

    def _unmet(self) -> list[Column]:
        """Null is not true."""
        return [
            sf.when(~sf.coalesce(sf.expr(f"({condition})").cast("boolean"), sf.lit(False)), untrue(condition))
            for condition in self.options.expect
        ]

    def _laid_out(self, frame: DataFrame) -> DataFrame:
        """The columns of the table."""
        frame, columns = self._layout(frame)
        return self._in_files(frame.select(*columns))

    def _divided(self, judged: DataFrame) -> DataFrame:
        """A row for the table, or one for the table of rejects."""
        frame, columns = self._layout(judged)
        raw = rejected_columns(frame, self._masks, RECORD, keep=self.options.keeps_rejected_values)
        why = [frame["reason"], sf.current_timestamp().alias("rejected_at")]
        accepted = sf.when(frame["reason"].isNull(), sf.struct(*columns)).alias("accepted")
        rejected = sf.when(frame["reason"].isNotNull(), sf.struct(*raw, *why)).alias("rejected")
        return self._in_files(frame.select("topic", "partition", "offset", accepted, rejected))

    def _layout(self, frame: DataFrame) -> tuple[DataFrame, list[Column]]:
        """The record's columns, then those to partition by that the record does not have."""
        when = self._event_time(frame)
        unmasked = unmasked_columns(frame, self._masks)
        frame = frame.withColumns({"__time": sf.coalesce(when, frame["timestamp"]), **unmasked})
        frame = mask_frame(frame, self._masks)
        columns = [frame[name] for name in RECORD]
        for field in self.options.partition_by:
            name = field.rpartition(".")[2]
            if name in TIMES:
                columns.append(sf.expr(TIMES[name]).alias(name))
            elif name not in RECORD:
                columns.append(self._field(frame, field).alias(name))
        return frame, columns

    def _in_files(self, frame: DataFrame) -> DataFrame:
        return frame if self.options.files is None else frame.coalesce(self.options.files)

    def _event_time(self, frame: DataFrame) -> Column:
        field = self.options.event_time
        return frame["timestamp"] if field is None else topics.time_of(self._field(frame, field).cast("string"))

    def _field(self, frame: DataFrame, field: str) -> Column:
        """Of the value, by the schema if there is one."""
        if self.options.schema is not None:
            return frame[f"value.{field}"]
        return topics.json_field(frame["value"].cast("string"), field)
