"""What a write promises, and the steps in which it keeps the promise.

A task attempt calls `begin`, writes rows, and `prepare`s: what it returns travels to the driver in the commit message.
The driver then calls `commit` with the messages of all tasks, or `abort` with those of the tasks that got that far.
A streaming query that is restarted runs the same batch id again, and a task that fails is run again: `Attempt` tells
them apart, and with them a two-phase commit can leave out what is decided already.

`AtLeastOnce`: rows are in their topics once `prepare` returns, so there is nothing left to decide. Within one attempt
each row is stored once; an attempt that fails leaves behind what it had written, and the next one writes it again.
`exactly_once.ExactlyOnce` prepares transactions, which the driver commits together.
"""

import logging
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from skidway.blocking_client.transactions import Producer
from skidway.limits import MIB
from skidway.spark.codec.encoding import Encoder
from skidway.spark.sink.options import HEADERS, KEY, VALUE, SinkOptions
from skidway.spark.sink.producing import BatchProducer, Receipt
from skidway.spark.sink.routing import Router, column_of

GATHER_BYTES_MAX = 16 * MIB
"""Rows gathered before they are sorted out: more make larger batches where there are many partitions."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """Who writes. A batch job has no query and no batch id."""

    query_id: str | None
    batch_id: int | None
    partition: int
    attempt: int


@dataclass(slots=True)
class Prepared:
    """What one task attempt wrote: by topic and partition, rows, bytes and offsets."""

    attempt: Attempt
    receipts: dict[tuple[str, int], Receipt] = field(default_factory=dict)
    transaction: Producer | None = None
    """What has to be committed before any of it is visible; None if nothing was written, or it is visible."""
    next_id: str | None = None
    """The transactional id of the task's next attempt, which Spark may run beside this one."""

    @property
    def rows(self) -> int:
        return sum(receipt.records for receipt in self.receipts.values())

    @property
    def bytes(self) -> int:
        return sum(receipt.bytes for receipt in self.receipts.values())


class Writing(Protocol):
    """One task attempt's write."""

    def write(self, rows: Iterable[pa.RecordBatch]) -> None: ...

    def prepare(self) -> Prepared: ...

    def close(self) -> None: ...


class Delivery(Protocol):
    """Picklable: made on the driver, sent to the tasks, made anew for commit and abort."""

    def begin(self, attempt: Attempt) -> Writing:
        """In the task."""
        ...

    def commit(self, prepared: Sequence[Prepared], batch_id: int | None) -> None:
        """On the driver, once every task is prepared. A batch job has no batch id."""
        ...

    def abort(self, prepared: Sequence[Prepared], batch_id: int | None) -> None:
        """On the driver, with what those tasks prepared that did not fail."""
        ...


@dataclass(frozen=True, slots=True)
class AtLeastOnce:
    options: SinkOptions

    def begin(self, attempt: Attempt) -> "Acknowledged":
        return Acknowledged(self.options, attempt)

    def commit(self, prepared: Sequence[Prepared], batch_id: int | None) -> None:
        logger.info("%s: %s", _job(prepared, batch_id), _amount(prepared))

    def abort(self, prepared: Sequence[Prepared], batch_id: int | None) -> None:
        logger.warning(
            "%s was given up: tasks that did not fail have written %s, and those that failed perhaps some more; "
            "all of this stays, and writing it again will store it a second time",
            _job(prepared, batch_id),
            _amount(prepared),
        )


class Acknowledged:
    """Rows go out as they come; prepared means that every one of them is acknowledged."""

    def __init__(self, options: SinkOptions, attempt: Attempt, producer: BatchProducer | None = None) -> None:
        self.options = options
        self.attempt = attempt
        self.producer = producer or BatchProducer(options)
        self._router = Router(options.topic, self._partition_count, options.batch_bytes)
        self._lanes: dict[str, int] = {}

    def write(self, rows: Iterable[pa.RecordBatch]) -> None:
        for gathered in self._gather(rows):
            self._send(gathered)

    def prepare(self) -> Prepared:
        self.producer.flush()
        return Prepared(self.attempt, self.producer.receipts)

    def close(self) -> None:
        self.producer.close()

    def _partition_count(self, topic: str) -> int:
        count = self._lanes.get(topic)
        if count is None:
            count = self._lanes[topic] = len(self.producer.topic(topic).partitions)
        return count

    def _gather(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        held: list[pa.RecordBatch] = []
        held_bytes = 0
        for batch in rows:
            if batch.num_rows == 0:
                continue
            held.append(batch)
            held_bytes += batch.nbytes
            # Before the topics are known, the first rows that come tell.
            if held_bytes >= min(GATHER_BYTES_MAX, self.options.batch_bytes * sum(self._lanes.values())):
                yield _joined(held)
                held, held_bytes = [], 0
        if held:
            yield _joined(held)

    def _send(self, rows: pa.RecordBatch) -> None:
        now_ms = time.time_ns() // 1_000_000
        groups = self._router.route(rows)
        encoder = Encoder(*(column_of(rows, name) for name in (VALUE, KEY, HEADERS)))
        for topic, partition, numbers in groups:
            # One group is all of the rows: nothing to choose from.
            chosen = None if len(groups) == 1 else numbers
            size = self.producer.batch_bytes(topic)
            for batch in encoder.encode(chosen, timestamp_ms=now_ms, batch_bytes=size, codec=self.options.codec):
                self.producer.put(topic, partition, batch)
        self.producer.pump()


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    return batches[0] if len(batches) == 1 else pa.concat_batches(batches)


def _job(prepared: Sequence[Prepared], batch_id: int | None) -> str:
    if batch_id is None:
        return "a batch job"
    query = next((one.attempt.query_id for one in prepared if one.attempt.query_id), None)
    return f"batch {batch_id}" if query is None else f"batch {batch_id} of query {query}"


def _amount(prepared: Sequence[Prepared]) -> str:
    rows, size = sum(one.rows for one in prepared), sum(one.bytes for one in prepared)
    partitions = {where for one in prepared for where in one.receipts}
    return f"{rows} rows, {size} bytes to {len(partitions)} partitions"
