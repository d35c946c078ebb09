"""The sink as Spark sees it: `batch_writer` and `stream_writer`, made on the driver before the job starts.

Whatever is wrong with options, columns or save mode is raised there. Spark pickles the writer to the tasks, which call
`write`; `commit` and `abort` are called on the driver, on yet another copy. The tasks know which query and batch they
belong to only through local properties that Spark does not document; the commit messages carry them to the driver.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from skidway.spark.client_settings import BadOption
from skidway.spark.sink.delivery import AtLeastOnce, Attempt, Delivery, Prepared
from skidway.spark.sink.exactly_once import ExactlyOnce, Job, Numbered, Stream, Write
from skidway.spark.sink.options import APPLICATION, SinkOptions, check_columns
from skidway.spark.workers import settle

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID_PROPERTY = "sql.streaming.queryId"
BATCH_ID_PROPERTY = "streaming.sql.batchId"


class BadSaveMode(ValueError):
    """A save mode that a topic cannot have."""


@dataclass(slots=True)
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    prepared: Prepared

    @property
    def rows(self) -> int:
        return self.prepared.rows


def batch_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> DataSourceArrowWriter:
    if overwrite:
        raise BadSaveMode(
            "save mode overwrite is not possible: a topic is added to, never replaced; "
            'use mode("append"), or delete and create the topic first'
        )
    return BatchWriter(_delivery(schema, options, _batch_write))


def stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> DataSourceStreamArrowWriter:
    """`overwrite` is output mode complete: as Spark's Kafka sink does, each batch then writes all rows anew."""
    return StreamWriter(_delivery(schema, options, _stream_write))


def _batch_write(options: SinkOptions) -> Write:
    return Job(str(uuid4())) if options.application is None else Numbered(options.application, options.version)


def _stream_write(options: SinkOptions) -> Write:
    if options.application is not None:
        raise BadOption(APPLICATION, "Spark itself names and numbers the batches of a stream", "leave it out")
    return Stream()


def _delivery(schema: StructType, options: Mapping[str, str], what: Callable[[SinkOptions], Write]) -> Delivery:
    parsed = SinkOptions.parse(options)
    check_columns([(field.name, field.dataType.simpleString()) for field in schema.fields], parsed.topic)
    if not parsed.exactly_once:
        return AtLeastOnce(parsed)
    delivery = ExactlyOnce(parsed, what(parsed))
    delivery.check()
    return delivery


class BatchWriter(DataSourceArrowWriter):
    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return _write(self.delivery, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.delivery.commit(_prepared(messages), None)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.delivery.abort(_prepared(messages), None)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, delivery: Delivery) -> None:
        self.delivery = delivery

    def write(self, iterator: "Iterator[pa.RecordBatch]") -> Written:
        return _write(self.delivery, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.delivery.commit(_prepared(messages), batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.delivery.abort(_prepared(messages), batchId)


def _write(delivery: Delivery, batches: "Iterator[pa.RecordBatch]") -> Written:
    writing = delivery.begin(current_attempt())
    try:
        writing.write(batches)
        written = Written(writing.prepare())
    finally:
        writing.close()
    settle()
    return written


def current_attempt() -> Attempt:
    """Who runs this code, as Spark tells its tasks."""
    context = TaskContext.get()
    if context is None:
        return Attempt(None, None, 0, 0)
    batch_id = context.getLocalProperty(BATCH_ID_PROPERTY)
    return Attempt(
        query_id=context.getLocalProperty(QUERY_ID_PROPERTY),
        batch_id=None if batch_id is None else int(batch_id),
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
    )


def _prepared(messages: list[WriterCommitMessage | None]) -> list[Prepared]:
    return [message.prepared for message in messages if isinstance(message, Written)]
