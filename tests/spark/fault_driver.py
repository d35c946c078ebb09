"""A Spark driver to be killed: it runs pipelines side by side and stands still where it is told to.

Run as a process of its own with settings as JSON (`events`, `scratch`, `master`, `bootstrap`). Each line of standard
input is a command: `{"do": "start", "queries": [...]}` lets queries run on, `{"do": "finish", ...}` stops them, runs
each until nothing is left and ends them. What happens is told, a line of JSON each, in the file `events`. When
standard input ends, so does the driver: it never outlives the test.

Where to stand still (`halt`): before a batch's commit, during it, or after it and before Spark knows. For exactly-once
topics also `late`, in one task when another is done, and `marked`, when the commit has everything but its decision; a
`halt` with `wait` goes on once its flag is taken away. The code between these points is the product's as it is; only
the calls are wrapped, here. `naive` and `forgetful` are planted bugs: a
pipeline that does not know which batches it has, and one that remembers them too early.
"""

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from skidway.blocking_client.transactions import Producer, Transactions
from skidway.spark import session
from skidway.spark.lake import delta, iceberg, parquet, staging
from skidway.spark.pipelines import topics
from skidway.spark.pipelines.archive import Archive, ArchiveOptions
from skidway.spark.pipelines.options import ONCE, Trigger
from skidway.spark.sink.writers import current_attempt
from skidway.spark.source.readers import SkidwaySource

TOPICS = ("topic", "topic-once")
BEFORE, DURING, AFTER = "before", "during", "after"
LATE, MARKED = "late", "marked"
REFUSED = "BatchNotCommitted"
# Not at once: a pipeline that is quicker than the others would only take their time.
TRIGGER = Trigger(500)
PAUSE_S = 0.05
FINISH_S = 900
STARVED = "failed to connect back"
CONFIGURATION = {
    # Small processes that live for seconds: the optimising compiler would never earn back what it costs.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.memory": "512m",
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
    "spark.ui.showConsoleProgress": "false",
    # Executors are killed again and again: that is no reason to give the job up.
    "spark.task.maxFailures": "20",
    "spark.deploy.maxExecutorRetries": "-1",
}


@dataclass
class Halt:
    """At this point of the first batch from `batch` on: raise the flag, and go no further."""

    point: str
    batch: int
    flag: str
    wait: bool = False
    """Only until the flag is taken away, and only once."""

    @property
    def over(self) -> Path:
        return Path(f"{self.flag}.over")

    @property
    def first_is_done(self) -> Path:
        return Path(f"{self.flag}.first")

    def due(self, point: str, batch: int | None) -> bool:
        return self.point == point and batch is not None and batch >= self.batch and not self.over.exists()

    def at(self, point: str, batch: int | None) -> None:
        if self.due(point, batch):
            raised = Path(f"{self.flag}.{os.getpid()}")  # Several tasks may be here at once.
            raised.write_text(str(os.getpid()))
            raised.rename(self.flag)
            stand_still(lambda: self.wait and not Path(self.flag).exists())
            self.over.touch()

    def late(self, partition: int, batch: int | None) -> None:
        """The second task waits for the first."""
        if partition == 1 and self.due(LATE, batch):
            stand_still(self.first_is_done.exists)
            self.at(LATE, batch)


NOWHERE = Halt("", sys.maxsize, "")


def stand_still(until: Callable[[], bool] = lambda: False) -> None:
    """Or until killed; a worker process also ends when its daemon does."""
    parent = os.getppid()
    while not until():
        if os.getppid() != parent:
            os._exit(1)
        time.sleep(PAUSE_S)


# Tables.

_inside = threading.local()
_all_begun = threading.Event()


class HaltingTable:
    """A table of the lake whose commit can be stopped at its door, inside, and behind it."""

    def __init__(self, table: Any, halt: Halt) -> None:
        self._table = table
        self._halt = halt

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def commit(self, query: str, batch: int, files: Sequence[Any], frame: DataFrame, advance: Any = None) -> bool:
        self._halt.at(BEFORE, batch)
        _inside.halt, _inside.batch = self._halt, batch
        try:
            committed: bool = self._table.commit(query, batch, files, frame, advance)
        finally:
            _inside.halt = NOWHERE
        self._halt.at(AFTER, batch)
        return committed


def halting_move(pairs: Sequence[tuple[Path, Path]]) -> None:
    """In the middle of a commit half of the files are where they belong. Parquet has decided by then; the other formats
    decide with what comes next."""
    halt: Halt = getattr(_inside, "halt", NOWHERE)
    if halt.due(DURING, getattr(_inside, "batch", None)):
        staging.move(pairs[: len(pairs) // 2])
        halt.at(DURING, _inside.batch)
    staging.move(pairs)


class HaltingArchive(Archive):
    def __init__(self, options: ArchiveOptions, halt: Halt) -> None:
        super().__init__(options)
        self._halt = halt

    def write(self, batch: DataFrame, query: str, number: int) -> None:
        _all_begun.wait()
        if not isinstance(self._table, HaltingTable):
            self._table = HaltingTable(self._table, self._halt)
        super().write(batch, query, number)


# Topics.


class HaltingWriter(DataSourceStreamArrowWriter):
    """During a commit: what the first task writes is stored, what the others have is not yet."""

    def __init__(self, inner: Any, halt: Halt) -> None:
        self.inner = inner
        self.halt = halt

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        who = current_attempt()
        self.halt.at(BEFORE, who.batch_id)
        if who.partition != 0 and self.halt.due(DURING, who.batch_id):
            stand_still()
        self.halt.late(who.partition, who.batch_id)
        written: WriterCommitMessage = self.inner.write(iterator)
        self.halt.at(DURING, who.batch_id)
        if who.partition == 0 and self.halt.due(LATE, who.batch_id):
            self.halt.first_is_done.touch()
        return written

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        right = Transactions.commit_together

        def halting(transactions: Transactions, producers: Sequence[Producer]) -> None:
            self.halt.at(MARKED, batchId)
            right(transactions, producers)

        Transactions.commit_together = halting  # type: ignore[assignment, method-assign]
        try:
            self.inner.commit(messages, batchId)
        finally:
            Transactions.commit_together = right  # type: ignore[method-assign]
        self.halt.at(AFTER, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.inner.abort(messages, batchId)


def halting_sink(name: str, halt: Halt) -> type[DataSource]:
    class HaltingSink(SkidwaySource):
        @classmethod
        def name(cls) -> str:
            return name

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return HaltingWriter(super().streamWriter(schema, overwrite), halt)

    return HaltingSink


# Planted bugs.


def naive(path: str, halt: Halt) -> Callable[[DataFrame, str, int], None]:
    """Appends, whatever it appended before: a batch that is run again is there twice."""

    def write(batch: DataFrame, query: str, number: int) -> None:
        _all_begun.wait()
        batch.select("value").write.mode("append").parquet(path)
        halt.at(halt.point, number)

    return write


def forgetful(path: str, halt: Halt) -> Callable[[DataFrame, str, int], None]:
    """Remembers the batch first and writes it then: one that was cut short is never written."""
    memory = Path(f"{path}.batch")

    def write(batch: DataFrame, query: str, number: int) -> None:
        _all_begun.wait()
        if memory.exists() and number <= int(memory.read_text()):
            return
        memory.write_text(str(number))
        halt.at(halt.point, number)
        batch.select("value").write.mode("append").parquet(path)

    return write


# The process.


class Driver:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.bootstrap: str = settings["bootstrap"]
        self._events = Path(settings["events"])
        scratch = settings["scratch"]
        places = {"spark.local.dir": f"{scratch}/local", "spark.sql.warehouse.dir": f"{scratch}/warehouse"}
        configuration = CONFIGURATION | places | settings["configuration"]
        self.spark: SparkSession = session.build("faults", master=settings["master"], configuration=configuration)
        self.queries: list[tuple[dict[str, Any], Any]] = []
        self._guarded = threading.Lock()

    def tell(self, event: str, **more: Any) -> None:
        with self._events.open("a") as events:
            events.write(json.dumps({"event": event, **more}) + "\n")

    def obey(self, command: dict[str, Any]) -> None:
        ending = command["do"] == "finish"
        with self._guarded:
            for _, query in self.queries:
                query.stop()
            self.queries = []
            _all_begun.clear()
            # The queries to topics last: they have no batch function that could wait.
            for one in sorted(command["queries"], key=lambda one: one["kind"] in TOPICS):
                self.queries.append((one, self.begin(one, ONCE if ending else TRIGGER)))
            _all_begun.set()
            while ending and self.queries:
                one, query = self.queries[0]
                with suppress(StreamingQueryException):
                    assert query.awaitTermination(FINISH_S), f"{one['kind']} does not come to its end"
                if self.is_starved(query):
                    self.queries[0] = (one, self.begin(one, ONCE))
                else:
                    del self.queries[0]
        self.tell("finished" if ending else "started")

    def begin(self, one: dict[str, Any], trigger: Trigger) -> Any:
        """One at a time, and again if need be: each starts a Python process for its source."""
        while True:
            query = self.start(one, trigger)
            while query.isActive and query.status["message"] == "Initializing sources":
                time.sleep(PAUSE_S)
            if not self.is_starved(query):
                return query

    def is_starved(self, query: Any) -> bool:
        """Spark gives a Python process ten seconds to start. On a busy machine that may be too few, and means nothing;
        any other failure is one, but for batches that are refused."""
        trouble = query.exception()
        if trouble is None:
            return False
        if REFUSED in str(trouble):
            # Its transactions timed out, or were lost with a broker: the query is to be started again.
            self.tell("refused", query=str(query.id), reason=str(trouble))
            return True
        if STARVED not in str(trouble):
            raise trouble
        self.tell("starved", query=str(query.id))
        return True

    def start(self, one: dict[str, Any], trigger: Trigger) -> Any:
        halt = Halt(**one["halt"]) if one["halt"] else NOWHERE
        options = ArchiveOptions(
            topic=[one["topic"]],
            bootstrap=self.bootstrap,
            path=one["to"],
            format=one["kind"] if one["kind"] in ("delta", "iceberg") else "parquet",
            checkpoint=one["checkpoint"],
            max_records=one["max_records"],
        )
        # Queries of one session have to have different names, and all archives have the same. Spark looks in the first
        # session only for sinks that were registered.
        spark = self.spark if one["kind"] in TOPICS else self.spark.newSession()
        if one["kind"] in ("parquet", "delta", "iceberg"):
            return HaltingArchive(options, halt).start(spark, trigger)
        frame = topics.read_stream(spark, options)
        if one["kind"] in TOPICS:
            sink = f"halting-{one['kind']}"
            spark.dataSource.register(halting_sink(sink, halt))
            rows = frame.selectExpr(f"'{one['to']}' AS topic", "key", "value")
            rows = rows.repartition(one["tasks"]) if one["tasks"] else rows
            writer = topics.write_stream(rows, one["kind"], options, trigger)
            told = {"kafka.bootstrap.servers": self.bootstrap, **one["sink"]}
            return writer.format(sink).options(**told).start()
        planted = {"naive": naive, "forgetful": forgetful}[one["kind"]]
        writer = topics.write_stream(frame, one["kind"], options, trigger)
        return topics.to_batches(writer, planted(one["to"], halt))

    def watch(self) -> None:
        """A query that fails is told: the test waits for something else."""
        # In a thread of its own Spark has no session, and without one it does not find what was registered.
        java: Any = self.spark._jvm
        java.org.apache.spark.sql.classic.SparkSession.setActiveSession(self.spark._jsparkSession)
        while True:
            time.sleep(1.0)
            with self._guarded:
                for number, (one, query) in enumerate(self.queries):
                    try:
                        if not query.isActive and self.is_starved(query):
                            self.queries[number] = (one, self.begin(one, TRIGGER))
                    except Exception as error:
                        self.tell("failed", reason=str(error))
                        return


def main() -> None:
    for module in (parquet, delta, iceberg):
        module.move = halting_move  # type: ignore[attr-defined]
    driver = Driver(json.loads(sys.argv[1]))
    driver.tell("ready")
    threading.Thread(target=driver.watch, daemon=True).start()
    for line in sys.stdin:
        try:
            driver.obey(json.loads(line))
        except Exception:
            driver.tell("failed", reason=traceback.format_exc())
    # The JVM and the workers follow: their ends of the pipes close.
    os._exit(0)


if __name__ == "__main__":
    main()
