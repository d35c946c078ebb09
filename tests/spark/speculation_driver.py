"""A Spark driver whose tasks stand still where they are told to: `speculation_driver.py SETTINGS`, which are JSON.

Each line of standard input is a command, and is answered with a line in the file `answers`: `stream` runs a query from
topic to topic until nothing is left, `job` writes a range of numbers. `stand` says how many attempts of the first task
stand still, and at which point: `half`, when the broker has the first of its rows, or `all`, when it has all of them
and Spark has not been told. Who stands raises a flag (`1` the first attempt, `2` the next) and goes on when the flag
is taken away. What became of it is in `1.ended`. The attempt behind those waits until they stand. Only calls are
wrapped here: what writes is the product's code.
"""

import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark import TaskContext
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from skidway.spark import session
from skidway.spark.source.readers import SkidwaySource

HALF, ALL = "half", "all"
PAUSE_S = 0.02
STARVED = "failed to connect back"
CONFIGURATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.0",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.speculation.efficiency.enabled": "false",
    # Whoever lost and stands still is killed by the test, or goes on: Spark would kill its Python after two seconds.
    "spark.python.task.killTimeout": "1h",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "512m",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.locality.wait": "0s",
    "spark.task.maxFailures": "20",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
}


@dataclass(frozen=True)
class Stand:
    """Where flags are raised, how many attempts stand still, and at which point."""

    folder: str
    attempts: int
    point: str

    def write(self, inner: Any, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        assert context is not None
        turn = context.attemptNumber() + 1
        if context.partitionId() != 0 or turn > self.attempts:
            if context.partitionId() == 0:
                # A process that is there already is quicker than one that has to start.
                self._await(lambda: all(self._has_stood(before) for before in range(1, self.attempts + 1)))
            written: WriterCommitMessage = inner.write(iterator)
            return written
        try:
            written = inner.write(self._halves(iterator, turn))
            if self.point == ALL:
                self._stand(turn)
        except BaseException as error:
            self._tell(f"{turn}.ended", f"{type(error).__name__}: {error}")
            raise
        self._tell(f"{turn}.ended", "written")
        return written

    def _has_stood(self, turn: int) -> bool:
        return any((Path(self.folder) / name).exists() for name in (f"{turn}", f"{turn}.ended"))

    def _halves(self, iterator: Iterator[Any], turn: int) -> Iterator[Any]:
        """All rows are at hand before the first is written: who goes on when Spark has closed the connection has them
        still."""
        first, *others = list(iterator)
        yield first
        if self.point == HALF:
            self._stand(turn)
        yield from others

    def _stand(self, turn: int) -> None:
        self._tell(f"{turn}", str(os.getpid()))
        flag = Path(self.folder) / f"{turn}"
        self._await(lambda: not flag.exists())

    def _await(self, condition: Callable[[], bool]) -> None:
        """A worker process also ends when its daemon does."""
        parent = os.getppid()
        while not condition():
            if os.getppid() != parent:
                os._exit(1)
            time.sleep(PAUSE_S)

    def _tell(self, name: str, text: str) -> None:
        written = Path(self.folder) / f"{name}.new"
        written.write_text(text)
        written.rename(Path(self.folder) / name)


class StandingJob(DataSourceArrowWriter):
    def __init__(self, inner: Any, stand: Stand) -> None:
        self.inner = inner
        self.stand = stand

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.stand.write(self.inner, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self.inner.commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self.inner.abort(messages)


class StandingStream(DataSourceStreamArrowWriter):
    def __init__(self, inner: Any, stand: Stand) -> None:
        self.inner = inner
        self.stand = stand

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self.stand.write(self.inner, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.inner.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        self.inner.abort(messages, batchId)


def standing_sink(stand: Stand) -> type[DataSource]:
    class StandingSink(SkidwaySource):
        @classmethod
        def name(cls) -> str:
            return "standing"

        def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
            return StandingJob(super().writer(schema, overwrite), stand)

        def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
            return StandingStream(super().streamWriter(schema, overwrite), stand)

    return StandingSink


class Driver:
    def __init__(self, settings: dict[str, Any]) -> None:
        self.brokers = {"kafka.bootstrap.servers": settings["bootstrap"]}
        self.answers = Path(settings["answers"])
        configuration = CONFIGURATION | settings["configuration"]
        self.spark: SparkSession = session.build("speculation", master=settings["master"], configuration=configuration)
        # A speculative attempt needs another host than the first.
        tracker: Any = self.spark.sparkContext._jsc
        while len(tracker.sc().statusTracker().getExecutorInfos()) < 3:
            time.sleep(PAUSE_S)

    def obey(self, command: dict[str, Any]) -> None:
        while True:
            self.spark.dataSource.register(standing_sink(Stand(**command["stand"])))
            try:
                {"stream": self.stream, "job": self.job}[command["do"]](command)
            except StreamingQueryException as error:
                # Spark gives a Python process ten seconds to start: on a busy machine that may be too few.
                if STARVED not in str(error):
                    raise
                for flag in Path(command["stand"]["folder"]).iterdir():
                    flag.unlink()
            else:
                return

    def stream(self, command: dict[str, Any]) -> None:
        source = {"subscribe": command["source"], "startingOffsets": "earliest"}
        rows = self.spark.readStream.format("skidway").options(**self.brokers, **source).load().select("key", "value")
        sink = {"checkpointLocation": command["checkpoint"], "topic": command["topic"], "delivery": command["delivery"]}
        writer = rows.writeStream.format("standing").options(**self.brokers, **sink)
        writer.trigger(availableNow=True).start().awaitTermination()

    def job(self, command: dict[str, Any]) -> None:
        rows = self.spark.range(command["start"], command["end"], 1, 2).selectExpr(
            "cast(id as string) as key", "cast(id as string) as value"
        )
        sink = {"topic": command["topic"], "delivery": command["delivery"]}
        rows.write.format("standing").mode("append").options(**self.brokers, **sink).save()

    def answer(self, text: str) -> None:
        with self.answers.open("a") as answers:
            answers.write(json.dumps(text) + "\n")


def main() -> None:
    driver = Driver(json.loads(sys.argv[1]))
    for line in sys.stdin:
        try:
            driver.obey(json.loads(line))
        except Exception:
            driver.answer(traceback.format_exc())
        else:
            driver.answer("done")
    driver.spark.stop()


if __name__ == "__main__":
    main()
