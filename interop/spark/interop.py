"""Spark on a real standalone cluster, one master and one worker, against a broker: `interop.py JARS BOOTSTRAP`.

Spark's own `format("kafka")` (its jars are in JARS) and Skidway's `format("skidway")` read and write the same topics,
in batches and as streams, and see the same rows. Each check prints a line that begins with `ok`.
"""

import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from skidway.spark.pipelines.running import SLOW_START, START_ATTEMPTS_MAX
from skidway.testing.free_ports import free_ports

SPARK_HOME = Path(pyspark.__file__).parent
ROWS = 20_000
COLUMNS = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
START_TIMEOUT_S = 180.0


@contextmanager
def daemon(scratch: Path, name: str, *words: str, ready: str) -> Iterator[None]:
    """One of Spark's own processes, up when its log says so, gone afterwards with all it started."""
    log = scratch / f"{name}.log"
    environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {
        "SPARK_WORKER_DIR": str(scratch / "work"),
        "SPARK_DAEMON_MEMORY": "256m",
        "PYSPARK_PYTHON": sys.executable,
    }
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *words],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not re.search(ready, log.read_text(errors="replace")):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit(f"the {name} did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@contextmanager
def cluster(scratch: Path) -> Iterator[str]:
    port = free_ports()
    master = f"spark://127.0.0.1:{port}"
    at = ["--host", "127.0.0.1"]
    package = "org.apache.spark.deploy"
    with (
        daemon(
            scratch,
            "master",
            f"{package}.master.Master",
            *at,
            *("--port", str(port), "--webui-port", str(free_ports())),
            ready="I have been elected leader",
        ),
        daemon(
            scratch,
            "worker",
            f"{package}.worker.Worker",
            *at,
            *("--webui-port", str(free_ports()), "--cores", "2", "--memory", "1g", master),
            ready="Successfully registered with master",
        ),
    ):
        yield master


@contextmanager
def session(master: str, jars: Path, scratch: Path) -> Iterator[SparkSession]:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    sources = str(Path(__file__).parents[2] / "src")
    spark = (
        SparkSession.builder.master(master)
        .appName("skidway-interop")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.executor.memory", "700m")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.warehouse.dir", str(scratch / "warehouse"))
        .config("spark.executorEnv.PYTHONPATH", sources)
        .config("spark.jars", ",".join(str(jar) for jar in sorted(jars.glob("*.jar"))))
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


class Interop:
    def __init__(self, spark: SparkSession, bootstrap: str, scratch: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.scratch = scratch
        self.suffix = secrets.token_hex(4)

    def topic(self, name: str) -> str:
        return f"spark-{name}-{self.suffix}"

    def written(self) -> DataFrame:
        return self.spark.range(ROWS).selectExpr(
            "cast(string(id % 997) as binary) as key",
            "case when id % 100 = 7 then null else cast(concat('value ', id) as binary) end as value",
            "if(id % 3 = 0, array(named_struct('key', 'id', 'value', cast(string(id) as binary))), null) as headers",
        )

    def write(self, rows: DataFrame, connector: str, topic: str) -> None:
        rows.write.format(connector).mode("append").option("kafka.bootstrap.servers", self.bootstrap).option(
            "topic", topic
        ).save()

    def read(self, connector: str, topic: str) -> list[Any]:
        frame = (
            self.spark.read.format(connector)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", topic)
            .option("includeHeaders", "true")
            .load()
            .select(*COLUMNS, "headers")
        )
        return sorted(frame.collect(), key=lambda row: (row.partition, row.offset))

    def copy(self, reader: str, writer: str, source: str, target: str) -> None:
        stream = (
            self.spark.readStream.format(reader)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("subscribe", source)
            .option("startingOffsets", "earliest")
            .option("includeHeaders", "true")
            .option("maxOffsetsPerTrigger", str(ROWS // 3))
            .load()
            .select("key", "value", "headers")
        )
        writing = (
            stream.writeStream.format(writer)
            .option("kafka.bootstrap.servers", self.bootstrap)
            .option("topic", target)
            .option("checkpointLocation", str(self.scratch / f"checkpoint-{target}"))
            .trigger(availableNow=True)
        )
        for attempts_left in reversed(range(START_ATTEMPTS_MAX)):
            try:
                if writing.start().awaitTermination(300):
                    return
                raise SystemExit(f"the stream from {reader} to {writer} did not end")
            except StreamingQueryException as error:
                # Spark gives the Python process of a source ten seconds to start: too few on a busy machine.
                if SLOW_START not in str(error) or not attempts_left:
                    raise


def payload(rows: list[Any]) -> list[Any]:
    return sorted((row.key, row.value or b"", row.value is None, row.headers or []) for row in rows)


def check(interop: Interop) -> None:
    contents = payload(interop.written().collect())
    for writer in ("kafka", "skidway"):
        topic = interop.topic(f"by-{writer}")
        interop.write(interop.written(), writer, topic)
        seen = {reader: interop.read(reader, topic) for reader in ("kafka", "skidway")}
        assert payload(seen["kafka"]) == contents, f"what {writer} wrote is not what was given"
        assert seen["kafka"] == seen["skidway"], f"the connectors do not agree on what {writer} wrote"
        print(f"ok {ROWS} rows written by {writer}, read alike by kafka and skidway, column by column", flush=True)
    for reader, writer in (("kafka", "skidway"), ("skidway", "kafka"), ("skidway", "skidway")):
        target = interop.topic(f"{reader}-to-{writer}")
        interop.copy(reader, writer, interop.topic("by-kafka"), target)
        assert payload(interop.read("kafka", target)) == contents, f"streaming from {reader} to {writer} changed rows"
        print(f"ok {ROWS} rows streamed from {reader} to {writer}, three batches or more", flush=True)


def main(jars: Path, bootstrap: str) -> None:
    with tempfile.TemporaryDirectory(prefix="skidway-interop-spark") as name:
        scratch = Path(name)
        with cluster(scratch) as master, session(master, jars, scratch) as spark:
            check(Interop(spark, bootstrap, scratch))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
