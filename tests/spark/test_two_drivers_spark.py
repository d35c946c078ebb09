"""Two drivers of one archive, with real Spark: as overlapping cron jobs start them, and one that stands still.

Rows = distinct rows = sent, whatever the drivers end with. `make test-all` has one story; `make chaos` has the matrix,
with SKIDWAY_SPARK_PAIRS pairs of drivers for each format.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from fault_harness import descendants
from pipeline_topics import new_topic, put

from skidway.cli.output import EXIT_BUSY
from skidway.spark.lake import Target, open_table
from skidway.spark.pipelines import status as status_of
from waiting import SPARK_PATIENCE_S, eventually

SOURCES = Path(__file__).parents[2] / "src"
FORMATS = ("parquet", "delta", "iceberg")
PAIRS = int(os.environ.get("SKIDWAY_SPARK_PAIRS", "10"))
ROWS = 6_000
RECORDS_PER_BATCH = 600
SPARK = ("--conf", "spark.driver.memory=512m", "--master", "local[2]")


class Case:
    """A topic with numbered rows, and a folder for one archive of it."""

    def __init__(self, bootstrap: str, folder: Path, kind: str) -> None:
        self.bootstrap, self.folder, self.kind = bootstrap, folder, kind
        self.topic = new_topic(bootstrap, "drivers")
        put(bootstrap, self.topic, [b"%d" % number for number in range(ROWS)])
        folder.mkdir(parents=True, exist_ok=True)

    @contextmanager
    def driver(self, *more: str) -> Iterator[subprocess.Popen[str]]:
        words = ["run", "archive", "-t", self.topic, "--bootstrap", self.bootstrap, "--path", "lake", "--once"]
        words += ["--format", self.kind, "--max-records", str(RECORDS_PER_BATCH), "--checkpoint", "checkpoint"]
        path = os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])
        with subprocess.Popen(
            [sys.executable, "-m", "skidway", "pipeline", *words, "--partition-by", "topic", *SPARK, *more],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": path},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                family = [one.pid for one in descendants(process.pid)]
                process.kill()
                strike(family, signal.SIGKILL)

    def batches(self) -> int:
        status = status_of.read(self.folder / "checkpoint")
        return status.batches if status else 0

    def counts(self) -> tuple[int, int]:
        """Rows, and distinct ones."""
        found = open_table(Target(str(self.folder / "lake"), self.kind, ["topic"])).read()
        values = [] if found is None else found.column("value").to_pylist()
        return len(values), len(set(values))


def strike(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def stopped_and_woken(case: Case) -> None:
    """As a virtual machine that is paused: the successor finishes, then the first goes on where it stood."""
    with case.driver() as first:
        eventually(lambda: case.batches() >= 2 or first.poll() is not None, SPARK_PATIENCE_S)
        assert first.poll() is None, first.communicate()[1]
        family = [first.pid, *(one.pid for one in descendants(first.pid))]
        strike(family, signal.SIGSTOP)
        with case.driver() as second:
            told = second.communicate(timeout=2 * SPARK_PATIENCE_S)[1]
            assert second.returncode == 0, told
        strike(family, signal.SIGCONT)
        told = first.communicate(timeout=SPARK_PATIENCE_S)[1]
        assert first.returncode == EXIT_BUSY, told
        assert "another driver has taken over" in told
    assert case.counts() == (ROWS, ROWS)


@pytest.mark.timeout(900)
def test_a_driver_that_stood_still_while_its_successor_finished_adds_nothing(bootstrap: str, tmp_path: Path) -> None:
    stopped_and_woken(Case(bootstrap, tmp_path / "case", "parquet"))


@pytest.mark.chaos
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", FORMATS)
def test_pairs_of_drivers_and_one_that_stands_still(bootstrap: str, tmp_path: Path, kind: str) -> None:
    """0 to 5 seconds apart. The second ends with its own code, or waits and then finds nothing left to do."""
    chance = random.Random(kind)
    stopped_and_woken(Case(bootstrap, tmp_path / "stopped", kind))
    print(f"\n{kind}: a driver stopped and woken after its successor: {ROWS} rows, {ROWS} distinct, {ROWS} sent")
    for number in range(PAIRS):
        case = Case(bootstrap, tmp_path / str(number), kind)
        waits = ("--wait", "10m") if number % 2 else ()
        apart_s = chance.uniform(0, 5)
        with case.driver() as first:
            time.sleep(apart_s)
            with case.driver(*waits) as second:
                told = [one.communicate(timeout=2 * SPARK_PATIENCE_S)[1] for one in (first, second)]
        codes = sorted((first.returncode, second.returncode))
        rows, distinct = case.counts()
        about = f"{kind}: {apart_s:.1f} s apart, {' '.join(waits) or 'no --wait'}: exit codes {codes}"
        print(f"{about}, {rows} rows, {distinct} distinct, {ROWS} sent", flush=True)
        assert codes == [0, 0] if waits else codes in ([0, 0], [0, EXIT_BUSY]), told
        assert (rows, distinct) == (ROWS, ROWS)
