"""A streaming query with exactly-once delivery as Spark runs its batches, without Spark: tasks, attempts, a driver.

`kill_at` ends whoever talks to the broker at one of its requests, before it is sent or before its answer is read, as
SIGKILL would: nothing of its own runs afterwards. Questions that change nothing at the broker are not counted: to die
at one of them is to die before the next request that does.
"""

import pickle
import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from skidway.blocking_client.connection import Connection
from skidway.spark.sink.delivery import Attempt, Delivery, Prepared
from skidway.spark.sink.writers import StreamWriter, stream_writer

SCHEMA = StructType([StructField("value", BinaryType())])

CHANGING = ("InitProducerId", "Produce", "TxnOffsetCommit", "CommitTransactions", "EndTxn", "OffsetCommit")


class Killed(BaseException):
    """Not an Exception: no handler of the delivery may see it."""


class Query:
    def __init__(self, bootstrap: str, topic: str, query_id: str | None = None, **options: str) -> None:
        self.options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "delivery": "exactly_once", **options}
        self.id = query_id or secrets.token_hex(6)

    def delivery(self) -> Delivery:
        """As Spark does: another copy for every call."""
        writer = pickle.loads(pickle.dumps(stream_writer(SCHEMA, self.options, False)))
        assert isinstance(writer, StreamWriter)
        return writer.delivery

    def task(self, batch: int, partition: int, rows: Sequence[bytes], attempt: int = 0) -> Prepared:
        writing = self.delivery().begin(Attempt(self.id, batch, partition, attempt))
        try:
            writing.write([pa.record_batch({"value": pa.array(list(rows), pa.binary())})])
            prepared = writing.prepare()
        finally:
            writing.close()
        returned: Prepared = pickle.loads(pickle.dumps(prepared))
        return returned

    def commit(self, batch: int, prepared: Sequence[Prepared]) -> None:
        self.delivery().commit(prepared, batch)

    def abort(self, batch: int, prepared: Sequence[Prepared]) -> None:
        self.delivery().abort(prepared, batch)

    def run(self, batch: int, rows: Mapping[int, Sequence[bytes]], attempt: int = 0) -> None:
        """All tasks of a batch, and its commit."""
        self.commit(batch, [self.task(batch, partition, rows[partition], attempt) for partition in rows])


class Requests:
    """Counts what is said to brokers: sending is one step, reading the answer the next."""

    def __init__(self, last: int) -> None:
        self.left = last
        self.names: list[str] = []

    def step(self, verb: str, name: str) -> None:
        if not name.startswith(CHANGING):
            return
        self.names.append(f"{verb} {name}")
        self.left -= 1
        if self.left < 0:
            raise Killed(self.names[-1])


@contextmanager
def kill_at(step: int) -> Iterator[Requests]:
    """After so many steps. A killed process is silent from then on."""
    requests = Requests(step)
    send, receive = Connection.send, Connection.receive

    def counted_send(connection: Any, request: Any, **options: Any) -> None:
        requests.step("send", type(request).__name__)
        send(connection, request, **options)

    def counted_receive(connection: Any, reply: Any, **options: Any) -> Any:
        requests.step("receive", reply.__name__)
        return receive(connection, reply, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "send", counted_send)
        patch.setattr(Connection, "receive", counted_receive)
        yield requests
