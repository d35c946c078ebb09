"""`format("skidway")` as Spark calls it: the data source and its readers. Decisions are made in other modules.

Batch: `planning` on the driver, one task for each range. Stream: `streaming.StreamPlanner` lives in the driver's
Python process for as long as the query runs. Tasks get a copy of the reader and their range, and nothing else.

Spark starts several Python processes for one read (to look the source up, to make it, to plan, to run tasks), so what
only one of them needs is imported there.
"""

import logging
from collections.abc import Iterator, MutableMapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from skidway.spark.client_settings import BadOption
from skidway.spark.source.options import SourceOptions, without_effect
from skidway.spark.source.planning import OffsetRange, bundle

if TYPE_CHECKING:
    import pyarrow as pa

    from skidway.spark.source.segment_files import FileRange
    from skidway.spark.source.streaming import StreamPlanner

TYPES: dict[str, DataType] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
}
HEADERS = "headers"
PROVIDER = "provider"
"""A property of tables, which Spark hands over as an option where one is created."""

logger = logging.getLogger(__name__)


class BadSchema(ValueError):
    """A schema of the user's that a topic cannot fill."""


class SkidwaySource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)

    @classmethod
    def name(cls) -> str:
        return "skidway"

    def schema(self) -> StructType:
        if PROVIDER in self.options:
            raise BadOption(
                PROVIDER,
                "CREATE TABLE … USING skidway is not supported: Spark gives a Python source no options of a table",
                "use CREATE TEMPORARY VIEW … USING skidway OPTIONS (…)",
            )
        # Spark asks when load() is called: wrong options should not wait for the first action.
        options = SourceOptions.parse(self.options, streaming=None)
        names = [name for name in TYPES if name != HEADERS or options.include_headers]
        return StructType([StructField(name, TYPES[name]) for name in names])

    def reader(self, schema: StructType) -> "BatchReader":
        return BatchReader(self._parse(streaming=False), columns_of(schema))

    def streamReader(self, schema: StructType) -> "StreamReader | RefusedStream":  # noqa: N802
        try:
            return StreamReader(self._parse(streaming=True), columns_of(schema))
        except (BadOption, BadSchema) as error:
            return RefusedStream(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from skidway.spark.sink import writers as sink

        return sink.batch_writer(schema, self.options, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from skidway.spark.sink import writers as sink

        return sink.stream_writer(schema, self.options, overwrite)

    def _parse(self, *, streaming: bool) -> SourceOptions:
        idle = without_effect(self.options, streaming=streaming)
        if idle:
            logger.warning("accepted without effect in this read: %s", ", ".join(idle))
        return SourceOptions.parse(self.options, streaming=streaming)


class RefusedStream(DataSourceStreamReader):
    """What is wrong with a stream's options or schema, told when Spark first asks for something.

    Of an error in `streamReader` itself PySpark shows nothing but an UnboundLocalError of its own.
    """

    def __init__(self, error: ValueError) -> None:
        self.error = error

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        raise self.error

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        raise self.error

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        raise self.error

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        raise self.error

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        raise self.error


class RangePartition(InputPartition):
    """The work of one task."""

    def __init__(self, wanted: "tuple[OffsetRange, ...] | FileRange") -> None:
        super().__init__(wanted)


class BatchReader(DataSourceReader):
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = tuple(columns)

    def partitions(self) -> list[InputPartition]:
        if self.options.backfill_paths:
            from skidway.spark.source.backfill import plan_backfill

            # The rest of a partition, past its closed files, is read from the brokers.
            planned = plan_backfill(self.options)
            return [RangePartition((task,) if isinstance(task, OffsetRange) else task) for task in planned]
        from skidway.spark.source.batch import plan_batch

        return _bundled(plan_batch(self.options), self.options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return _read(partition, self.options, self.columns)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, columns: Sequence[str]) -> None:
        self.options = options
        self.columns = tuple(columns)
        self._planner: StreamPlanner | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return self.planner.initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        # Spark's Python API has no limit with both; the least is then taken from the options.
        if self.options.max_offsets_per_trigger is not None:
            return ReadMaxRows(self.options.max_offsets_per_trigger)
        if self.options.min_offsets_per_trigger is not None:
            return ReadMinRows(self.options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        least = None if isinstance(limit, ReadAllAvailable) else self.options.min_offsets_per_trigger
        from skidway.spark.source.streaming import Mark

        end = self.planner.next(Mark.from_json(start), limit=most, least=least)
        return start if end is None else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        newest = self.planner.newest
        return None if newest is None else newest.to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self.planner.stop_at_present()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        from skidway.spark.source.streaming import Mark

        ranges = self.planner.ranges(Mark.from_json(start), Mark.from_json(end))
        return _bundled(ranges, self.options)

    def read(self, partition: InputPartition) -> "Iterator[pa.RecordBatch]":
        return _read(partition, self.options, self.columns)

    def stop(self) -> None:
        if self._planner is not None:
            self._planner.close()

    @property
    def planner(self) -> "StreamPlanner":
        """Made on the driver when first needed: a reader is pickled for the tasks, connections cannot be."""
        if self._planner is None:
            from skidway.spark.source.streaming import StreamPlanner

            self._planner = StreamPlanner(self.options)
        return self._planner


def _bundled(ranges: list[OffsetRange], options: SourceOptions) -> list[InputPartition]:
    asked = {"min_partitions": options.min_partitions, "max_records": options.max_records_per_partition}
    return [RangePartition(together) for together in bundle(ranges, **asked)]


def _read(partition: InputPartition, options: SourceOptions, columns: Sequence[str]) -> "Iterator[pa.RecordBatch]":
    # Spark makes up a partition of its own where a batch read planned none.
    if not isinstance(partition, RangePartition):
        return iter(())
    from skidway.spark.workers import settled

    if isinstance(partition.value, tuple):
        from skidway.spark.source.reading import read_range

        return settled(chain.from_iterable(read_range(wanted, options, columns) for wanted in partition.value))
    from skidway.spark.source.backfill import read_files

    return settled(read_files(partition.value, options, columns))


def columns_of(schema: StructType) -> list[str]:
    """The columns that a schema selects, in its order."""
    names = schema.fieldNames()
    for field in schema.fields:
        expected = TYPES.get(field.name)
        if expected is None:
            raise BadSchema(f"a topic has no column {field.name!r}; it has {', '.join(TYPES)}")
        if field.dataType != expected:
            raise BadSchema(
                f"column {field.name} is {expected.simpleString()}, not {field.dataType.simpleString()}: select it as"
                " it is and convert it with cast or from_json"
            )
        if not field.nullable:
            raise BadSchema(f"column {field.name} is declared NOT NULL; leave that out: columns of a topic may be null")
        if names.count(field.name) > 1:
            raise BadSchema(f"column {field.name} is named twice")
    return list(names)
