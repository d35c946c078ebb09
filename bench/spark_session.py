"""The Spark side of the benchmark, in a process of its own: `python -m bench.spark_session ORDER` (`Order` as JSON).

Every load is run by three subjects in turns: Skidway's connector, rows that are ready in memory (`bench.spark_memory`,
Spark's own ceiling) and Spark's Kafka connector. A line of JSON on standard output tells each measurement. CPU seconds
are those of this process and all below it: the JVM, its Python daemon and the workers, also those that have ended.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructField, StructType

from bench.frames import BenchError, Peer
from bench.spark_memory import NAME, MemoryRows
from bench.subject import TICKS_PER_S, cpu_seconds
from skidway.spark import session
from skidway.spark.source.options import SourceOptions
from skidway.spark.source.readers import TYPES, BatchReader

SKIDWAY, MEMORY, CONNECTOR = "skidway", "memory", "connector"
FORMATS = {SKIDWAY: "skidway", MEMORY: NAME, CONNECTOR: "kafka"}
COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp")
PAIR = ("key", "value")
WARM_UPS = 1
"""Loading and compiling is CPU time too. A JVM goes on compiling later; that is why the best round counts."""
STREAM_TIMEOUT_S = 120
EMPTY = "bench-spark-empty"
WRITES = ("sink", "once", "stream", "stream-once", "start")
ONCE = ("once", "stream-once")
"""With transactions, which only Skidway's own connector has here."""


@dataclass(slots=True)
class Order:
    bootstrap: str
    broker_pid: int
    data_dir: str
    topic: str
    partitions: int
    rows: int
    rounds: int
    seconds_max: float
    jars: list[str]
    loads: list[str]


@dataclass(slots=True)
class Measured:
    load: str
    subject: str
    rows: int
    cpu_s: float
    broker_s: float
    elapsed_s: float


def tree_cpu_seconds(root: int) -> float:
    """Of a process and all its descendants; what those that ended have used is in their parents' account."""
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        parents[int(entry)] = int(fields[1])
        used[int(entry)] = sum(int(ticks) for ticks in fields[11:15]) / TICKS_PER_S

    def is_below(pid: int) -> bool:
        while pid != root and pid in parents:
            pid = parents[pid]
        return pid == root

    return sum(seconds for pid, seconds in used.items() if is_below(pid))


class Bench:
    def __init__(self, spark: SparkSession, order: Order, scratch: Path) -> None:
        self.spark = spark
        self.order = order
        self.scratch = scratch
        self.made = 0
        self.works: dict[str, Callable[[str, str], int]] = {
            "source": lambda subject, _: self.drain(subject, COLUMNS),
            "pair": lambda subject, _: self.drain(subject, PAIR),
            "backfill": lambda subject, _: self.backfill(subject),
            "sink": lambda subject, topic: self.write(subject, topic, "at_least_once"),
            "once": lambda subject, topic: self.write(subject, topic, "exactly_once"),
            "stream": lambda subject, topic: self.stream(subject, topic, self.order.topic),
            "stream-once": lambda subject, topic: self.stream(subject, topic, self.order.topic, "exactly_once"),
            "start": lambda subject, topic: self.stream(subject, topic, EMPTY),
        }
        self.keep_rows()
        self.stored = self.read(SKIDWAY, PAIR).persist()

    def prepare(self) -> None:
        """The same rows from everybody, and all of them in the cache."""
        for subject in self.subjects("source"):
            found = self.read(subject, COLUMNS).selectExpr("count(*)", "sum(length(value))").first()
            if found is None or found[0] != self.order.rows:
                raise BenchError(f"{subject} reads {found} and not {self.order.rows} rows")
        self.stored.count()
        with Peer(self.order.bootstrap) as peer:
            peer.create_topic(EMPTY, self.order.partitions, {})

    def subjects(self, load: str) -> list[str]:
        if load in ONCE:
            return [SKIDWAY]
        if load == "backfill" or not self.order.jars:
            return [SKIDWAY, MEMORY]
        return [SKIDWAY, MEMORY, CONNECTOR]

    def measure(self, load: str, subject: str) -> Measured:
        with self.target(load, subject) as topic:
            started = time.monotonic()
            cpu, broker = tree_cpu_seconds(os.getpid()), cpu_seconds(self.order.broker_pid)
            rows = self.works[load](subject, topic)
            cpu, broker = tree_cpu_seconds(os.getpid()) - cpu, cpu_seconds(self.order.broker_pid) - broker
            return Measured(load, subject, rows, cpu, broker, time.monotonic() - started)

    @contextmanager
    def target(self, load: str, subject: str) -> Iterator[str]:
        """A topic for one load that writes; afterwards all rows must be in it."""
        if load not in WRITES or subject == MEMORY:
            yield ""
            return
        self.made += 1
        name = f"bench-spark-{self.made}"
        with Peer(self.order.bootstrap) as peer:
            peer.create_topic(name, self.order.partitions, {"flush": "os", "file.delete.delay.ms": "1000"})
            yield name
            present = sum(peer.end_offset(name, partition) for partition in range(self.order.partitions))
            peer.delete_topic(name)
        # Every transaction leaves a marker in each partition that it wrote to.
        wanted = 0 if load == "start" else self.order.rows
        markers_max = self.order.partitions**2 if load in ONCE else 0
        if not wanted <= present <= wanted + markers_max:
            raise BenchError(f"{load}: {subject} wrote {present} rows of {self.order.rows}")

    # Reading.

    def options(self, subject: str, topic: str = "") -> dict[str, str]:
        topic = topic or self.order.topic
        if subject == MEMORY:
            return {"files": str(self.scratch / topic)}
        return {"kafka.bootstrap.servers": self.order.bootstrap, "subscribe": topic, "startingOffsets": "earliest"}

    def read(self, subject: str, columns: tuple[str, ...]) -> DataFrame:
        reader = self.spark.read.format(FORMATS[subject]).options(**self.options(subject))
        # Sources in Python are told the columns; Spark prunes those of its own.
        return reader.load().select(*columns) if subject == CONNECTOR else reader.schema(_schema(columns)).load()

    def drain(self, subject: str, columns: tuple[str, ...]) -> int:
        self.read(subject, columns).write.format("noop").mode("overwrite").save()
        return self.order.rows

    def backfill(self, subject: str) -> int:
        """The closed segments; beside them all rows from memory, per row the same."""
        if subject == MEMORY:
            return self.drain(MEMORY, COLUMNS)
        options = {"backfill.path": self.order.data_dir, "subscribe": self.order.topic}
        reader = self.spark.read.format("skidway").options(**options).schema(_schema(COLUMNS))
        reader.load().write.format("noop").mode("overwrite").save()
        ranges = [partition.value.wanted for partition in self.plan(options).partitions()]
        return sum(wanted.end - wanted.start for wanted in ranges)

    def plan(self, options: dict[str, str]) -> BatchReader:
        return BatchReader(SourceOptions.parse(options, streaming=False), COLUMNS)

    def keep_rows(self) -> None:
        """The very tables that the source gives, one file for each of its tasks."""
        folder = self.scratch / self.order.topic
        folder.mkdir()
        reader = self.plan(self.options(SKIDWAY))
        for number, partition in enumerate(reader.partitions()):
            tables = reader.read(partition)
            first = next(tables)
            with pa.OSFile(str(folder / f"{number}.arrow"), "wb") as file, pa.ipc.new_file(file, first.schema) as out:
                out.write_batch(first)
                for table in tables:
                    out.write_batch(table)

    # Writing.

    def sink_options(self, subject: str, topic: str, rows: int, delivery: str) -> dict[str, str]:
        if subject == MEMORY:
            return {"rows": str(rows)}
        named = {"delivery": delivery} if subject == SKIDWAY else {}
        return {"kafka.bootstrap.servers": self.order.bootstrap, "topic": topic, **named}

    def write(self, subject: str, topic: str, delivery: str) -> int:
        options = self.sink_options(subject, topic, self.order.rows, delivery)
        self.stored.write.format(FORMATS[subject]).options(**options).mode("append").save()
        return self.order.rows

    def stream(self, subject: str, target: str, topic: str, delivery: str = "at_least_once") -> int:
        """All rows of a topic; of an empty one, that is what starting and ending a query takes."""
        self.made += 1
        checkpoint = self.scratch / f"checkpoint-{self.made}"
        rows = 0 if topic == EMPTY else self.order.rows
        reader = self.spark.readStream.format(FORMATS[subject]).options(**self.options(subject, topic))
        frame = reader.load().select(*PAIR) if subject == CONNECTOR else reader.schema(_schema(PAIR)).load()
        query = (
            frame.writeStream.format(FORMATS[subject])
            .options(**self.sink_options(subject, target, rows, delivery), checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        if not query.awaitTermination(STREAM_TIMEOUT_S):
            query.stop()
            raise BenchError(f"the stream of {subject} did not end in {STREAM_TIMEOUT_S} s")
        return rows


def _schema(columns: tuple[str, ...]) -> StructType:
    return StructType([StructField(name, TYPES[name]) for name in columns])


def run(bench: Bench, order: Order, began: float) -> None:
    bench.prepare()
    longest = 0.0
    for number in range(-WARM_UPS, order.rounds):
        start = time.monotonic()
        if number > 0 and start + longest > began + order.seconds_max:
            return
        for place, load in enumerate(order.loads):
            subjects = bench.subjects(load)
            first = (place + number) % len(subjects)
            for subject in subjects[first:] + subjects[:first]:
                measured = bench.measure(load, subject)
                _tell({"round": number, **asdict(measured)})
        longest = max(longest, time.monotonic() - start)


def _tell(line: dict[str, object]) -> None:
    print(json.dumps(line), flush=True)


def main(order: Order) -> None:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="bench-spark-", ignore_cleanup_errors=True) as folder:
        scratch = Path(folder)
        settings = {
            "spark.driver.memory": "2g",
            "spark.local.dir": str(scratch / "local"),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.ui.showConsoleProgress": "false",
            "spark.jars": ",".join(order.jars),
        }
        spark = session.build("skidway-bench", master="local[2]", configuration=settings)
        try:
            spark.dataSource.register(MemoryRows)
            run(Bench(spark, order, scratch), order, began)
        finally:
            spark.stop()


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))
