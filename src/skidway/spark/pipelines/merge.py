"""merge: change data of a database, as Debezium writes it, into a Delta or Iceberg table with one row for each key.

The table says what the source says: envelopes become rows, an older change never replaces a newer one, in whatever
order they come, and a deleted row leaves its key behind, so that it stays deleted. What is no envelope, or has no key,
goes whole and with the reason into a second table beside the first, `PATH-rejected`.

Exactly once: each batch is committed together with the positions behind it, the rejects first, as `archive` does it.
The changes of a batch come to the driver, which folds them into one for each key (see `skidway.spark.lake.merging`).
"""
# ruff: noqa: RUF009 - option() makes a field, as dataclasses.field does

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as sf
from pyspark.sql.streaming.query import StreamingQuery

from skidway.spark.lake import Span, Target, Written, open_table
from skidway.spark.lake.changes import DELETE, KEPT, KEY, TOMBSTONE, Change, state_of
from skidway.spark.lake.evolution import arrow_of
from skidway.spark.lake.merged_rows import Changes
from skidway.spark.lake.merging import MERGED, merge_batch, open_merged
from skidway.spark.lake.together import Share, write_together
from skidway.spark.pipelines import topics
from skidway.spark.pipelines.holding import Holding, hold_checkpoint, hold_table
from skidway.spark.pipelines.options import EVERY_SECOND, BadPipeline, Trigger, option
from skidway.spark.pipelines.resuming import starting_where_the_table_ends
from skidway.spark.pipelines.spans import span_of_batch
from skidway.spark.pipelines.table_options import TableOptions
from skidway.spark.pipelines.values.envelopes import SPARK, Reader, order_of
from skidway.spark.pipelines.values.masking import mask_frame, rejected_columns, unmasked_columns
from skidway.spark.pipelines.values.masks import KEY as RECORD_KEY
from skidway.spark.pipelines.values.masks import Hash, Masks
from skidway.spark.pipelines.values.rejects import MISFIT
from skidway.spark.pipelines.values.schemas import fields_of

RECORDS_PER_BATCH = 100_000
RECORD = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")
CORRUPT = "__corrupt"
TOLD = ("key", "old_key", "kind", "position")
PLACE = ("topic", "partition", "offset")


@dataclass(slots=True, kw_only=True)
class MergeOptions(TableOptions):
    format: str = option("delta or iceberg.", "delta")
    schema: str = option('Fields of a row, which are the columns of the table: "id bigint, name string".')
    key: list[str] = option("Fields of a row that are its key. Default: the key of the record.", [])
    order_by: str = option(
        "Fields of the envelope's source that put changes in order: lsn, or file,pos,row. auto: what the source has of"
        " lsn, file and pos, scn, commit_lsn, ts_ms.",
        "auto",
    )
    max_records: int | None = option("Records per batch, at most; the driver holds their changes.", RECORDS_PER_BATCH)

    def __post_init__(self) -> None:
        TableOptions.__post_init__(self)
        if self.format not in MERGED:
            raise BadPipeline(f"format must be {' or '.join(MERGED)}, not {self.format!r}: others cannot replace rows")
        order_of(self.order_by)
        fields = fields_of(self.schema).fields
        for name in self.key:
            if name not in fields:
                raise BadPipeline(f"key: there is no field {name} in the schema; its fields are {', '.join(fields)}")
        taken = [name for name in fields if name.lower() in (*KEPT, CORRUPT)]
        if taken:
            raise BadPipeline(f"a field cannot be called {taken[0]}: the table has a column of its own by that name")
        ticked = [name for name in fields if "`" in name]
        if self.format == "delta" and ticked:
            raise BadPipeline(f"deltalake merges no column whose name has a ` in it: {ticked[0]}; take iceberg")

    def masks(self) -> Masks:
        masks = self.masks_of_fields(fields_of(self.schema))
        hashed = masks.record.get(RECORD_KEY)
        if hashed is not None and not isinstance(hashed, Hash):
            raise BadPipeline("the key can be hashed, and not dropped or truncated: rows are found by it")
        if masks.value and hashed is None:
            raise BadPipeline(f"with fields masked, the column {KEY} would still say what the key is: add --hash key")
        return masks

    def reader(self, masks: Masks) -> Reader:
        return Reader(list(self.key), order_of(self.order_by), masks.salt if RECORD_KEY in masks.record else b"")

    def target(self) -> Target:
        return self.target_by([])


class Merge:
    name = "merge"

    def __init__(self, options: MergeOptions) -> None:
        self.options = options
        self.holding = Holding()
        self.written = Written()
        self._rejects_seen = options.rejects()
        self._done: dict[str, int] = {}
        self._masks = options.masks()
        self._reader = options.reader(self._masks)
        # Both now: a wrong path or a missing library is told before Spark starts.
        self._table, self._rejected = open_merged(options.target()), open_table(options.rejected_target())

    def start(self, spark: SparkSession, trigger: Trigger = EVERY_SECOND) -> StreamingQuery:
        self.holding = hold_checkpoint(self.name, self.options)
        self.holding.keepers += hold_table(self._table, self.options).keepers
        checkpoint = self.options.folder(self.name)
        wanted = topics.stream_settings(self.options)
        settings = starting_where_the_table_ends(wanted, self._table, checkpoint, may_double=False)
        frame = topics.read_stream(spark, self.options, settings)
        writer = topics.write_stream(frame, self.name, self.options, trigger)
        return self.holding.follow(topics.to_batches(writer, self.write))

    def write(self, batch: DataFrame, query: str, number: int) -> None:
        span = span_of_batch(batch.sparkSession, self.options.folder(self.name), number)
        judged = self.judge(batch)
        read = judged.toArrow()
        refused = read.filter(read.column("reason").is_valid())
        # The table comes last: it says how far the pipeline has come, and the rejects of that must be there then.
        rejected = self._reject(judged, refused, query, number, span)
        rows = judged.select(
            sf.lit("").alias(KEPT[0]), sf.lit(False).alias(KEPT[1]), sf.lit("").alias(KEPT[2]), "row.*"
        )
        changes = _changes_of(read.filter(read.column("reason").is_null()), rows)
        merged = merge_batch(self._table, changes, rows, query, number, permit=self.holding.permit, span=span)
        for name, count in merged.folded.counts().items():
            self._done[name] = self._done.get(name, 0) + count
        self.written.add(Written(len(merged.folded.outcomes), merged.files, merged.bytes))
        accepted = 0 if merged.skipped else read.num_rows - refused.num_rows
        self._rejects_seen.add(accepted + sum(rejected.values()), rejected)
        self._rejects_seen.check()

    def counts(self) -> dict[str, int]:
        """What this run has done to rows, and rejected."""
        return {name: count for name, count in self._done.items() if count} | self._rejects_seen.counts()

    def judge(self, batch: DataFrame) -> DataFrame:
        """What each record says: its reason to be rejected, or its key, kind, position and row. And what it was."""
        arrow_udf: Any = sf.arrow_udf  # type: ignore[attr-defined]  # Whose stubs do not know it.
        told = arrow_udf(self._reader, SPARK)(batch["key"], batch["value"])
        frame = batch.withColumn("__told", told)
        settings = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
        row = sf.from_json(frame["__told.row"], f"{self.options.schema}, {CORRUPT} string", settings)
        frame = frame.withColumns({"__raw": frame["value"], "value": row})
        misfit = sf.when(frame[f"value.{CORRUPT}"].isNotNull(), MISFIT)
        frame = frame.withColumn("reason", sf.coalesce(frame["__told.reason"], misfit))
        frame = frame.withColumns({"value": frame["value"].dropFields(CORRUPT), **unmasked_columns(frame, self._masks)})
        frame = mask_frame(frame, self._masks)
        columns = [frame[f"__told.{name}"].alias(f"told_{name}") for name in TOLD]
        raw = rejected_columns(frame, self._masks, RECORD, keep=self.options.keeps_rejected_values)
        raw = [
            sf.when(frame["reason"].isNotNull(), one).alias(name) if name not in PLACE else one
            for name, one in zip(RECORD, raw, strict=True)
        ]
        return frame.select(*raw, "reason", *columns, sf.when(frame["reason"].isNull(), frame["value"]).alias("row"))

    def _reject(
        self, judged: DataFrame, refused: pa.Table, query: str, number: int, span: Span | None
    ) -> dict[str, int]:
        """How many by reason; none where they are in the table of rejects already."""
        if not refused.num_rows:
            return {}
        names = [*RECORD, "reason"]
        kept = judged.select(*names)
        frame = judged.sparkSession.createDataFrame(refused.select(names).cast(arrow_of(kept.schema)), kept.schema)
        whole = sf.struct(*names, sf.current_timestamp().alias("rejected_at")).alias("rejected")
        frame = frame.select(*PLACE, whole)
        share = Share(self._rejected, frame.select("rejected.*"), "rejected", always=False, count_by="reason")
        [written] = write_together(frame, [share], query, number, permit=self.holding.permit, span=span)
        return written.counts


def _changes_of(read: pa.Table, rows: DataFrame) -> Changes:
    """`rows` has the columns of the table, for their types."""
    columns = (read.column(name).to_pylist() for name in (*(f"told_{one}" for one in TOLD), *PLACE))
    changes = []
    for number, (key, old_key, kind, position, *place) in enumerate(zip(*columns, strict=True)):
        where = None if kind == TOMBSTONE else state_of(position, deleted=False).position
        at = (str(place[0]), int(place[1]), int(place[2]))
        if old_key is not None:
            changes.append(Change(old_key, DELETE, at, where))
        changes.append(Change(key, kind, at, where, number))
    names = [one.name for one in arrow_of(rows.schema) if one.name not in KEPT]
    fields = read.column("row").combine_chunks().flatten()
    return Changes(changes, pa.table(fields, names))
