"""Spark runs two attempts of a task at once (`spark.speculation`), on two hosts: every row is there once.

In each case the first attempt of a task stands still after it has written rows; Spark starts another one on the other
host. Then one of them wins, and the other goes on too late, or is killed, or stands there for ever. What counts is what
readers at read_committed find: all rows once, and nothing that holds up a row written afterwards. That Spark itself
calls the second attempts speculative is read from its event log.
"""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from fault_harness import descendants, kill
from pipeline_topics import new_topic, put
from speculation_driver import ALL, HALF
from standalone_cluster import HOSTS, standalone_cluster
from topic_contents import values_of

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.transactions import Transactions
from skidway.spark import java
from skidway.testing import Broker
from waiting import SPARK_PATIENCE_S, eventually

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(1200)]

SOURCES = Path(__file__).parents[2] / "src"
SCRIPT = Path(__file__).with_name("speculation_driver.py")
ROWS = 600
"""In two partitions, 100 rows in each of Spark's batches."""
ONCE, AT_LEAST_ONCE = "exactly_once", "at_least_once"


class Run(NamedTuple):
    """One attempt of a task, as Spark's event log has it."""

    stage: int
    task: int
    attempt: int
    host: str
    speculative: bool


class Case:
    """A topic and what was written to it."""

    def __init__(
        self, bootstrap: str, folder: Path, process: subprocess.Popen[bytes], kind: str, delivery: str
    ) -> None:
        self.bootstrap = bootstrap
        self.folder = folder / f"{kind}-{delivery}"
        self.flags = self.folder / "flags"
        self.flags.mkdir(parents=True)
        self._process = process
        self._answers = folder / "answers"
        self._kind, self._delivery = kind, delivery
        self.source, self.topic = (new_topic(bootstrap, f"speculation-{name}") for name in ("from", "to"))
        self.sent: list[bytes] = []

    def begin(self, *, standing: int, point: str) -> None:
        """Spark is to write more rows; so many attempts of the first task stand still."""
        for flag in self.flags.iterdir():
            flag.unlink()
        first = len(self.sent)
        rows = [b"%d" % number for number in range(first, first + ROWS)]
        for partition in (0, 1) if self._kind == "stream" else ():
            put(self.bootstrap, self.source, rows[partition::2], partition=partition)
        self.sent += rows
        command = {
            "do": self._kind,
            "source": self.source,
            "topic": self.topic,
            "checkpoint": str(self.folder / "checkpoint"),
            "delivery": self._delivery,
            "start": first,
            "end": first + ROWS,
            "stand": {"folder": str(self.flags), "attempts": standing, "point": point},
        }
        assert self._process.stdin is not None
        self._answered = len(self.answers())
        self._process.stdin.write(json.dumps(command).encode() + b"\n")
        self._process.stdin.flush()

    def answers(self) -> list[str]:
        text = self._answers.read_text() if self._answers.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def await_flag(self, name: str) -> str:
        def told() -> str:
            assert self._process.poll() is None, f"the driver ended with {self._process.returncode}"
            assert self.answers()[self._answered :] == [], "nobody stood still"
            return self._read(name)

        return eventually(told, SPARK_PATIENCE_S)

    def await_end(self, turn: int) -> str:
        return eventually(lambda: self._read(f"{turn}.ended"), SPARK_PATIENCE_S)

    def let_go(self, turn: int) -> None:
        (self.flags / str(turn)).unlink()

    def await_done(self) -> None:
        def answered() -> list[str]:
            assert self._process.poll() is None, f"the driver ended with {self._process.returncode}"
            return self.answers()[self._answered :]

        assert eventually(answered, SPARK_PATIENCE_S) == ["done"]

    def _read(self, name: str) -> str:
        path = self.flags / name
        return path.read_text() if path.exists() else ""

    def write_beside(self) -> None:
        """A row of somebody else in every partition: it is visible unless something is open before it."""
        for partition in (0, 1):
            row = b"beside %d" % len(self.sent)
            put(self.bootstrap, self.topic, [row], partition=partition)
            self.sent.append(row)

    def counts(self) -> Counter[bytes]:
        return Counter(value or b"" for value in values_of(self.bootstrap, self.topic))

    def comes_to_all_once(self) -> None:
        """Well before any transaction times out."""
        self.write_beside()
        wanted = Counter(self.sent)
        eventually(lambda: self.counts().total() >= wanted.total())
        found = self.counts()
        assert found == wanted, f"too many: {found - wanted}; missing: {wanted - found}"


def open_transactions(bootstrap: str) -> list[str]:
    with Cluster(bootstrap) as cluster:
        return Transactions(cluster).open_beside("anybody")


def await_rows_in_transactions(case: Case, count: int) -> None:
    """Of the first task: a transaction is open from its first row on, under `PREFIX/NAME/TASK/ATTEMPT/N`."""

    def writing() -> list[str]:
        return [one for one in open_transactions(case.bootstrap) if one.split("/")[2:3] == ["0"]]

    eventually(lambda: len(writing()) >= count)


def goes_on_too_late(case: Case) -> None:
    case.begin(standing=1, point=HALF)
    case.await_flag("1")
    await_rows_in_transactions(case, 1)
    case.await_done()
    case.comes_to_all_once()
    case.let_go(1)
    assert case.await_end(1) != "written"
    case.comes_to_all_once()


def is_stopped_and_killed(case: Case) -> None:
    case.begin(standing=1, point=ALL)
    pid = int(case.await_flag("1"))
    os.kill(pid, signal.SIGSTOP)
    try:
        case.await_done()
        case.comes_to_all_once()
    finally:
        kill([pid])
    case.comes_to_all_once()


def the_first_wins_after_all(case: Case) -> None:
    case.begin(standing=2, point=HALF)
    case.await_flag("1")
    case.await_flag("2")
    await_rows_in_transactions(case, 2)
    case.let_go(1)
    assert case.await_end(1) == "written"
    case.await_done()
    case.comes_to_all_once()
    case.let_go(2)
    assert case.await_end(2) != "written"
    case.comes_to_all_once()


def at_least_once_has_rows_twice(case: Case) -> None:
    """So the count can fail."""
    case.begin(standing=1, point=ALL)
    case.await_flag("1")
    case.await_done()
    case.let_go(1)
    case.await_end(1)
    counts = case.counts()
    assert set(counts) == set(case.sent)
    assert sorted(Counter(counts.values()).items()) == [(1, ROWS // 2), (2, ROWS // 2)]


KINDS = ("stream", "job")
IT_WINS = (goes_on_too_late, is_stopped_and_killed)
"""The speculative attempt does."""


@contextmanager
def spark_driver(folder: Path, bootstrap: str, master: str) -> Iterator[subprocess.Popen[bytes]]:
    events = folder / "events"
    events.mkdir(parents=True)
    places = {"spark.local.dir": f"{folder}/local", "spark.sql.warehouse.dir": f"{folder}/warehouse"}
    configuration = {**places, "spark.eventLog.dir": events.as_uri()}
    told = {"master": master, "bootstrap": bootstrap, "answers": f"{folder}/answers", "configuration": configuration}
    path = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, str(SCRIPT), json.dumps(told)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        )
    try:
        yield process
    finally:
        family = [one.pid for one in descendants(process.pid)]
        process.kill()
        kill(family)
        process.communicate()


def runs_in(events: Path) -> tuple[list[Run], set[Run]]:
    """What was started, and what of it Spark counts."""
    (log,) = events.iterdir()
    started, counted = [], set()
    for event in map(json.loads, log.read_text().splitlines()):
        if event["Event"] in ("SparkListenerTaskStart", "SparkListenerTaskEnd"):
            one = event["Task Info"]
            run = Run(event["Stage ID"], one["Index"], one["Attempt"], one["Host"], one["Speculative"])
            if event["Event"] == "SparkListenerTaskStart":
                started.append(run)
            elif event["Task End Reason"]["Reason"] == "Success":
                counted.add(run)
    return started, counted


def end(process: subprocess.Popen[bytes]) -> None:
    """With the driver ends its event log."""
    assert process.stdin is not None
    process.stdin.close()
    assert process.wait(SPARK_PATIENCE_S) == 0


def check_that_spark_speculated(events: Path) -> None:
    started, counted = runs_in(events)
    speculative = [one for one in started if one.speculative]
    for one in speculative:
        others = {other.host for other in started if (other.stage, other.task) == (one.stage, one.task)} - {one.host}
        assert others == set(HOSTS) - {one.host}, one
    won = [one for one in speculative if one in counted]
    print(f"\n{len(speculative)} speculative attempts, of which {len(won)} won")
    assert len(won) >= len(KINDS) * len(IT_WINS) + 1
    assert len(speculative) - len(won) >= len(KINDS)


def test_two_attempts_at_once_write_every_row_once(spark_home: Path, tmp_path: Path) -> None:
    java.ensure(print)
    folder = tmp_path / "driver"
    with (
        Broker(flush="os") as broker,
        standalone_cluster(spark_home, tmp_path / "cluster") as master,
        spark_driver(folder, broker.bootstrap, master) as process,
    ):
        for kind in KINDS:
            case = Case(broker.bootstrap, folder, process, kind, ONCE)
            for story in (*IT_WINS, the_first_wins_after_all):
                story(case)
        at_least_once_has_rows_twice(Case(broker.bootstrap, folder, process, "job", AT_LEAST_ONCE))
        end(process)
    check_that_spark_speculated(folder / "events")
