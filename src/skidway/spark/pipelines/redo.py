"""Rejected records judged again, after a fix of the schema or of the expectations.

Slice by slice: those that pass now are added to the archive's table in one commit, then the slice of the table of
rejects is replaced by those that do not, with the reasons of today. A driver that dies in between leaves records in
both; the next run finds them in the table by topic, partition, offset and time, adds them not again, and takes them
away from the rejects. So a record is added once, however often and wherever a run is cut short.

The archive commits the rejects of a batch before its rows. If it died in between, it will do the batch again, perhaps
with another schema, and add what passes by itself: such rejects are left until the table has come so far.

What a slice was judged to be is held in memory: an expectation about the time of day cannot change its mind between the
two commits.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from skidway.limits import INT64_MAX
from skidway.spark.lake.evolution import arrow_of
from skidway.spark.lake.slices import IDENTITY, Identity, Slice, identities, slices_of, where
from skidway.spark.lake.table import LOOKS_MAX, BadCommit, Table, write_batch
from skidway.spark.source.readers import TYPES

QUERY = "redo-rejected"
"""As which the commits are numbered in the table."""
KEYS = ("topic", "partition", "offset", "value")
RECORD = ("key", "value", "headers", "topic", "partition", "offset", "timestamp")


@dataclass(slots=True)
class Redone:
    read: int = 0
    added: int = 0
    there: int = 0
    """In the table already, by a run that was cut short."""
    early: int = 0
    """Not read: the archive was cut short in their batch, and will judge them once more by itself."""
    reasons: dict[str, int] = field(default_factory=dict)
    """Of those that stay."""

    @property
    def stay(self) -> int:
        return sum(self.reasons.values())


@dataclass(slots=True)
class Redo:
    table: Table
    rejected: Table
    topics: list[str]
    reached: Mapping[tuple[str, int], int]
    """How far the table has come in the partitions that exist."""
    judge: Callable[[DataFrame], DataFrame]
    """Answers columns `accepted` and `rejected`, structs of which one is null."""
    permit: Callable[[], None] = lambda: None

    def run(self, spark: SparkSession) -> Redone:
        done = Redone()
        for within in slices_of(self._due(done)):
            added: set[Identity] = set()
            for _ in range(LOOKS_MAX):
                if self._redo(spark, within, done, added):
                    break
            else:
                raise BadCommit(f"other drivers kept changing the tables of {within.topic}; stop them and run it again")
        return done

    def _due(self, done: Redone) -> Iterator[pa.RecordBatch]:
        """Those that the archive is done with. What it would add to its table by itself must not be there twice."""
        for batch in self.rejected.scan(KEYS):
            places = zip(*(batch.column(name).to_pylist() for name in KEYS[:3]), strict=True)
            chosen = []
            for topic, partition, offset in places:
                early = topic in self.topics and offset >= self.reached.get((topic, partition), INT64_MAX)
                done.early += early
                chosen.append(topic in self.topics and not early)
            yield batch.filter(pa.array(chosen, pa.bool_()))

    def _redo(self, spark: SparkSession, within: Slice, done: Redone, added: set[Identity]) -> bool:
        """False: another driver has changed one of the tables. `added`: by this run, of the slice."""
        parts = [pa.Table.from_batches([batch]) for batch in self.rejected.scan(within=within)]
        if not parts:
            return True  # Another run has done it.
        rows = pa.concat_tables(parts, promote_options="permissive")
        accepted, kind, reasons = self._judged(spark, rows)
        ids = identities(accepted)
        # The number before the look: what another run adds behind the look takes this number away.
        number = self.table.last_batch(QUERY) + 1
        there = self._in_table(within)
        new = where(accepted, (one not in there for one in ids))
        if new.num_rows:
            frame = spark.createDataFrame(new, kind)
            if write_batch(self.table, frame, QUERY, number, permit=self.permit).skipped:
                return False
            added.update(identities(new))
        leaving = set(ids)
        left = where(rows, (one not in leaving for one in identities(rows)))
        stay = _with_reasons(left, reasons)
        changed = left.num_rows < rows.num_rows or stay.column("reason") != left.column("reason")
        self.permit()
        if changed and not self.rejected.replace(within, stay):
            return False
        done.read += rows.num_rows
        done.added += len(added)
        done.there += len(leaving - added)
        for reason in stay.column("reason").to_pylist():
            done.reasons[reason] = done.reasons.get(reason, 0) + 1
        return True

    def _judged(self, spark: SparkSession, rows: pa.Table) -> tuple[pa.Table, StructType, dict[Identity, str]]:
        """Rows for the table and their columns, and reasons by identity. A value that was not kept cannot be judged."""
        kind = StructType([StructField(name, TYPES[name]) for name in RECORD])
        known = rows.filter(pc.is_valid(rows.column("value"))).select(list(RECORD)).cast(arrow_of(kind))
        judged = self.judge(spark.createDataFrame(known, kind)).select("accepted", "rejected")
        accepted_kind = judged.schema["accepted"].dataType
        assert isinstance(accepted_kind, StructType)
        # Not as structs: pyspark refuses those that are null and have fields that never are.
        kept, left = accepted_kind.fieldNames(), [*IDENTITY, "reason"]
        answer = judged.select(
            *(judged["accepted"].getField(name).alias(f"accepted {name}") for name in kept),
            *(judged["rejected"].getField(name).alias(f"rejected {name}") for name in left),
        ).toArrow()
        accepted, rejected = _part(answer, "accepted", kept), _part(answer, "rejected", left)
        reasons = dict(zip(identities(rejected), rejected.column("reason").to_pylist(), strict=True))
        return accepted, accepted_kind, reasons

    def _in_table(self, within: Slice) -> set[Identity]:
        return {one for batch in self.table.scan(IDENTITY, within) for one in identities(batch)}


def _part(answer: pa.Table, which: str, names: list[str]) -> pa.Table:
    """Every record has a topic: a row without one is not of this part."""
    rows = answer.filter(pc.is_valid(answer.column(f"{which} topic")))
    return rows.select([f"{which} {name}" for name in names]).rename_columns(names)


def _with_reasons(rows: pa.Table, reasons: dict[Identity, str]) -> pa.Table:
    old = rows.column("reason").to_pylist()
    new = [reasons.get(one, before) for one, before in zip(identities(rows), old, strict=True)]
    at = rows.schema.get_field_index("reason")
    return rows.set_column(at, rows.schema.field("reason"), pa.array(new, rows.schema.field("reason").type))
