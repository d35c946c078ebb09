"""Spark beside its own ceiling and beside its Kafka connector: rows per CPU-second of everything but the broker.

The loads run in a Spark session in a process of its own (`bench.spark_session`) against a broker of its own; the
kernels of the connector are measured without Spark (`bench.spark_kernel`). Figures: `rows` per CPU-second, `broker`
CPU seconds per million rows, `cpu_s` CPU seconds of the whole load. Of several rounds the best counts: compilers,
garbage collectors and neighbours only ever add to it.
"""

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench.broker import Skidway
from bench.frames import BenchError
from bench.subject import CACHE, ROOT, Unavailable
from bench.suite import Outcome, Say
from bench.workloads import Figures

PREFIX = "spark-"
ROWS = 1_000_000
PARTITIONS = 4
TOPIC = "bench-spark"
KERNEL_ROWS, KERNEL_ROUNDS = 100_000, 5
JARS = CACHE / "interop" / "spark"
FETCH_TIMEOUT_S = 300
END_TIMEOUT_S = 60
RUN_TIMEOUT_S = 1200
LAST_LINES = 5


@dataclass(slots=True)
class SparkLoad:
    key: str
    title: str


LOADS = [
    SparkLoad("source", "source, 6 columns"),
    SparkLoad("pair", "source, key and value"),
    SparkLoad("backfill", "backfill of closed segments, 6 columns"),
    SparkLoad("sink", "sink, key and value"),
    SparkLoad("once", "sink, key and value, exactly once"),
    SparkLoad("stream", "stream, source → sink, key and value"),
    SparkLoad("stream-once", "stream, source → sink, key and value, exactly once"),
    SparkLoad("start", "start and end of a stream: CPU seconds"),
]
START = PREFIX + "start"
KERNEL = "kernel"


def titles() -> dict[str, str]:
    """By the key that chooses a load; `spark` chooses all of them."""
    return {PREFIX + load.key: f"Spark: {load.title}" for load in LOADS} | {PREFIX + KERNEL: "Spark: the kernels alone"}


def run(chosen: set[str], *, rounds: int, seconds_max: float, say: Say) -> Outcome:
    """The chosen loads (all, if none is named). What cannot be run here is said in a note."""
    began = time.monotonic()
    outcome = Outcome()
    wanted = [load.key for load in LOADS if not chosen or PREFIX + load.key in chosen]
    if not chosen or PREFIX + KERNEL in chosen:
        try:
            say("Spark: the kernels, without Spark")
            outcome.figures.update(kernel_figures())
        except ImportError as missing:
            outcome.notes.append(f"Spark's kernels skipped: {missing}")
    try:
        if wanted:
            need_spark()
            _measure(wanted, rounds, seconds_max, outcome, say)
    except Unavailable as reason:
        outcome.notes.append(str(reason))
        say(str(reason))
    except (BenchError, OSError) as problem:
        outcome.notes.append(f"FAILED Spark: {problem}")
        say(outcome.notes[-1])
    outcome.seconds = time.monotonic() - began
    return outcome


def kernel_titles() -> dict[str, str]:
    try:
        from bench.spark_kernel import LOADS as KERNELS
    except ImportError:
        return {}
    return {load.key: load.title for load in KERNELS}


def kernel_figures() -> dict[str, dict[str, Figures]]:
    from bench import spark_kernel

    found: dict[str, dict[str, Figures]] = {"skidway": {}, "python": {}}
    for key, (_, compiled, plain) in spark_kernel.measure(KERNEL_ROWS, KERNEL_ROUNDS).items():
        found["skidway"][PREFIX + key] = {"rows": compiled}
        found["python"][PREFIX + key] = {"rows": plain}
    return found


def need_spark() -> None:
    for module in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            raise Unavailable(f"Spark skipped: {module} is not installed (pip install 'skidway[spark]')")
    from skidway.spark import java

    if java.find(os.environ) is None:
        raise Unavailable(f"Spark skipped: there is no Java {java.JAVA_VERSION_MIN} or newer on this machine")


def connector_jars() -> list[str]:
    """Of Spark's Kafka connector: those that `make interop` uses, from Maven once."""
    if not list(JARS.glob("spark-sql-kafka-*.jar")):
        maven = shutil.which("mvn")
        if maven is None:
            raise Unavailable('Spark\'s format("kafka") skipped: its jars come through Maven, and there is no `mvn`')
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={JARS}"]
        command = [maven, "-q", "-B", "-f", str(ROOT / "interop" / "spark" / "pom.xml"), *copy]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise Unavailable('Spark\'s format("kafka") skipped: Maven took too long to fetch its jars') from None
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip().splitlines()
            raise Unavailable(f'Spark\'s format("kafka") skipped: {said[-1] if said else "Maven failed"}')
    return [str(jar) for jar in sorted(JARS.glob("*.jar"))]


def _measure(wanted: list[str], rounds: int, seconds_max: float, outcome: Outcome, say: Say) -> None:
    try:
        jars = connector_jars()
    except Unavailable as reason:
        outcome.notes.append(str(reason))
        jars = []
    # Imported late: there may be no pyarrow.
    from bench.spark_fill import fill

    broker = Skidway()
    with broker:
        say("Spark: filling a topic")
        fill(broker.bootstrap, TOPIC, PARTITIONS, ROWS)
        order = {
            "bootstrap": broker.bootstrap,
            "broker_pid": broker.pid,
            "data_dir": str(broker.data_dir),
            "topic": TOPIC,
            "partitions": PARTITIONS,
            "rows": ROWS,
            "rounds": rounds,
            "seconds_max": seconds_max,
            "jars": jars,
            "loads": wanted,
        }
        samples: dict[tuple[str, str], list[Figures]] = {}
        for line in _lines(order):
            say(f"round {line['round'] + 1} of {rounds}: Spark: {line['load']}, {line['subject']}")
            if line["round"] >= 0:
                samples.setdefault((line["subject"], PREFIX + line["load"]), []).append(_figures(line))
                outcome.rounds = line["round"] + 1
    if outcome.rounds < rounds:
        outcome.notes.append(f"Spark: ended after {outcome.rounds} of {rounds} rounds, to end in {seconds_max:.0f} s")
    for (subject, load), taken in samples.items():
        outcome.figures.setdefault(subject, {})[load] = min(taken, key=lambda one: one["cpu_s"])


def _figures(line: dict[str, Any]) -> Figures:
    found = {"cpu_s": line["cpu_s"]}
    if line["rows"]:
        found |= {"rows": line["rows"] / line["cpu_s"], "broker": line["broker_s"] / (line["rows"] / 1e6)}
    return found


def _lines(order: dict[str, object]) -> Iterator[dict[str, Any]]:
    """The measurements as they come."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.spark_session", json.dumps(order)],
            stdout=subprocess.PIPE,
            stderr=errors,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": path},
            start_new_session=True,
        )
        assert process.stdout is not None
        watch = threading.Timer(RUN_TIMEOUT_S, process.kill)
        watch.start()
        try:
            for line in process.stdout:
                if line.startswith("{"):
                    yield json.loads(line)
            status = process.wait(END_TIMEOUT_S)
        finally:
            watch.cancel()
            if process.poll() is None:
                # The JVM and the Python workers are in the same group.
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if status != 0:
            errors.seek(0)
            last = [text.strip() for text in errors.read().splitlines() if text.strip()][-LAST_LINES:]
            raise BenchError(f"the session ended with status {status}: {' / '.join(last)}")
