"""Killing what takes part in a pipeline, and counting what became of the rows, each by its value.

A `Stage` has one topic that is fed without pause, pipelines that read it, and a driver (`fault_driver`) that runs them
side by side: a driver takes seconds to start, so one kill is to strike all of them. Rows are numbered; in the end a
`Tally` says for each pipeline how many are there twice and how many are missing.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import confluent_kafka
from topic_contents import read_topic

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.testing import Broker

SOURCES = Path(__file__).parents[2] / "src"
SCRIPT = Path(__file__).with_name("fault_driver.py")
# A slot for each task of the two topics' pipelines, which may stand still in it, and one for all others: every slot is
# a Python process to start. Tasks may fail as often as they are killed.
LOCAL = "local[5,20]"
LOCAL_CLUSTER = "local-cluster[2,1,512]"
PARTITIONS = 2
RECORDS_PER_BATCH = 400
PATIENCE_S = 300.0
PAUSE_S = 0.02
LOG_SHOWN = 6_000
TABLES = ("parquet", "delta", "iceberg")
TOPIC = "topic"
TOPIC_ONCE = "topic-once"
"""With delivery=exactly_once."""
TOPICS = (TOPIC, TOPIC_ONCE)
TRANSACTION_TIMEOUT_MS = 60_000
PLANTED = ("naive", "forgetful")


class Process(NamedTuple):
    pid: int
    parent: int
    command: str


def descendants(root: int) -> list[Process]:
    listed = subprocess.run(["ps", "-A", "-ww", "-o", "pid=,ppid=,args="], capture_output=True, text=True, check=True)
    everybody = [line.split(None, 2) for line in listed.stdout.splitlines()]
    processes = [Process(int(one[0]), int(one[1]), one[2]) for one in everybody if len(one) == 3]
    family = {root}
    while found := [one for one in processes if one.parent in family and one.pid not in family]:
        family.update(one.pid for one in found)
    return [one for one in processes if one.pid in family and one.pid != root]


def kill(pids: Iterable[int]) -> int:
    """SIGKILL; how many were there to be killed."""
    struck = 0
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            struck += 1
    return struck


class Driver:
    """The process that runs the queries, with its JVM and its workers."""

    def __init__(self, folder: Path, bootstrap: str, master: str, configuration: dict[str, str]) -> None:
        folder.mkdir(parents=True)
        self.master = master
        self._events = folder / "events.jsonl"
        self._log = folder / "log.txt"
        places = {"events": str(self._events), "scratch": str(folder)}
        settings = {**places, "master": master, "bootstrap": bootstrap, "configuration": configuration}
        path = os.pathsep.join([str(SOURCES), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
                start_new_session=True,
            )
        self.orphans: list[Process] = []

    def tell(self, command: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def events(self) -> list[dict[str, Any]]:
        text = self._events.read_text() if self._events.exists() else ""
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def check(self) -> None:
        """Nobody killed it, so it runs, and so do its queries."""
        failed = [event["reason"] for event in self.events() if event["event"] == "failed"]
        if failed or self.process.poll() is not None:
            log = self._log.read_text(errors="replace")[-LOG_SHOWN:]
            why = failed[0] if failed else f"the driver ended with {self.process.returncode}"
            raise AssertionError(f"{why}\nthe driver printed:\n{log}")

    def await_true(self, condition: Callable[[], object], about: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        check_at = 0.0
        while not condition():
            now = time.monotonic()
            assert now < deadline, f"waited in vain for {about}; events: {self.events()}"
            if now > check_at:
                self.check()
                check_at = now + 0.5
            time.sleep(PAUSE_S)

    def await_event(self, event: str, count: int) -> None:
        self.await_true(lambda: [one["event"] for one in self.events()].count(event) >= count, f"{count}. {event}")

    def kill(self) -> None:
        """SIGKILL for Python and the JVM in one blow; executors of a local cluster find out by themselves."""
        family = descendants(self.process.pid)
        executors = {one.pid for one in family if "CoarseGrainedExecutorBackend" in one.command}
        below = {one.pid for pid in executors for one in descendants(pid)} | executors
        kill([self.process.pid, *(one.pid for one in family if one.pid not in below)])
        self.orphans = [one for one in family if one.pid in below]
        self.process.wait()

    def kill_workers(self) -> int:
        """The processes that run the Python side of the tasks, which are all there is of an executor in local mode."""
        family = descendants(self.process.pid)
        daemons = {one.pid for one in family if one.command.endswith("pyspark.daemon pyspark.worker")}
        return kill(one.pid for one in family if one.parent in daemons)

    def kill_executor(self) -> int:
        """One JVM of a local cluster, the youngest."""
        executors = [one for one in descendants(self.process.pid) if "CoarseGrainedExecutorBackend" in one.command]
        return kill([max(one.pid for one in executors)]) if executors else 0

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        there = {one.pid: one.command for one in descendants(1)} if self.orphans else {}
        kill(one.pid for one in self.orphans if there.get(one.pid) == one.command)


class Feeder:
    """Numbered rows into a topic until stopped, by a client that is not ours; all are acknowledged in the end."""

    def __init__(self, bootstrap: str, topic: str, rows_per_s: int = 100) -> None:
        self.topic = topic
        self.sent = 0
        self._errors: list[str] = []
        self._pause_s = 0.1
        self._step = max(1, int(rows_per_s * self._pause_s))
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "message.timeout.ms": 300_000}
        # A broker that is killed is no news here.
        self._producer = confluent_kafka.Producer({**settings, "log_level": 0, "reconnect.backoff.max.ms": 500})
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="feeder", daemon=True)
        self._thread.start()

    def stop(self) -> int:
        """How many rows there are."""
        self._stop.set()
        self._thread.join()
        left = self._producer.flush(PATIENCE_S)
        assert not left, f"{left} rows are not acknowledged"
        assert not self._errors, self._errors[0]
        return self.sent

    def leave(self) -> None:
        """Whatever has become of the rows."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            for _ in range(self._step):
                key = str(self.sent % 17).encode()
                self._producer.produce(self.topic, value_of(self.sent), key=key, on_delivery=self._delivered)
                self.sent += 1
            self._producer.poll(0)
            self._stop.wait(self._pause_s)

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            self._errors.append(str(error))


def value_of(number: int) -> bytes:
    return b"%09d" % number + b"." * 91


@dataclass(slots=True)
class Tally:
    """Rows by value: `strangers` were never sent."""

    sent: int
    rows: int
    duplicates: int
    losses: int
    strangers: int

    @classmethod
    def of(cls, sent: int, values: Iterable[bytes]) -> "Tally":
        found = Counter(values)
        rows, wanted = found.total(), {value_of(number) for number in range(sent)}
        losses, strangers = len(wanted - found.keys()), len(found.keys() - wanted)
        return cls(sent, rows, rows - len(found), losses, strangers)

    @property
    def exactly_once(self) -> bool:
        return self.rows == self.sent and not (self.duplicates or self.losses or self.strangers)


@dataclass(slots=True)
class Pipeline:
    kind: str
    folder: Path
    topic: str
    timeout_ms: int = TRANSACTION_TIMEOUT_MS
    tasks: int = 0
    """Into so many the rows are split before they are written to a topic; 0: as they were read."""

    @property
    def to(self) -> str:
        return f"{self.topic}-{self.kind}" if self.kind in TOPICS else str(self.folder / self.kind / "table")

    @property
    def checkpoint(self) -> Path:
        return self.folder / self.kind / "checkpoint"

    @property
    def flag(self) -> Path:
        return self.folder / self.kind / "halted"

    def newest(self, log: str) -> int:
        """The last batch in `offsets` (planned) or `commits` (done) of the checkpoint; -1 if there is none."""
        where = self.checkpoint / log
        names = [path.name for path in where.iterdir()] if where.exists() else []
        return max((int(name) for name in names if name.isdigit()), default=-1)

    @property
    def in_a_batch(self) -> bool:
        return self.newest("offsets") > self.newest("commits")

    def order(self, halt: str | None, max_records: int | None, *, wait: bool = False) -> dict[str, Any]:
        """For the driver. It is to stand still in the next new batch, and never in the very first."""
        self.flag.parent.mkdir(parents=True, exist_ok=True)
        for flag in self.flag.parent.glob(f"{self.flag.name}*"):
            flag.unlink()
        where = {"point": halt, "batch": max(self.newest("offsets") + 1, 1), "flag": str(self.flag), "wait": wait}
        told = {"kind": self.kind, "topic": self.topic, "to": self.to, "checkpoint": str(self.checkpoint)}
        once = {"delivery": "exactly_once", "kafka.transaction.timeout.ms": str(self.timeout_ms)}
        sink = once if self.kind == TOPIC_ONCE else {}
        halts = where if halt else None
        return {**told, "max_records": max_records, "halt": halts, "sink": sink, "tasks": self.tasks}

    def values(self, bootstrap: str) -> list[bytes]:
        """What a reader finds there now."""
        if self.kind in TOPICS:
            return [one.value or b"" for one in read_topic(bootstrap, self.to)]
        if self.kind in PLANTED:
            from pyarrow.dataset import dataset

            found = dataset(self.to, format="parquet").to_table() if Path(self.to).exists() else None
        else:
            from skidway.spark.lake import Target, open_table

            found = open_table(Target(self.to, self.kind)).read()
        return [] if found is None else list(found.column("value").to_pylist())


@dataclass(slots=True)
class Outcome:
    scenario: str
    target: str
    kills: int
    tally: Tally

    def __str__(self) -> str:
        one = self.tally
        return (
            f"| {self.scenario:52} | {self.target:9} | {self.kills:5} |"
            f" {one.rows:7} | {one.duplicates:10} | {one.losses:6} |"
        )


HEADING = (
    f"| {'killed with SIGKILL':52} | {'target':9} | kills |    rows | duplicates | losses |\n"
    f"| {'-' * 52} | {'-' * 9} | ----- | ------- | ---------- | ------ |"
)


@dataclass(slots=True)
class Company:
    """A broker, and the driver that is alive, if one is: the next scenario goes on with it."""

    folder: Path
    broker: Broker
    driver: Driver | None = None
    drivers: list[Driver] = field(default_factory=list)
    configuration: dict[str, str] = field(default_factory=dict)

    def ready(self, master: str) -> Driver:
        if self.driver is not None and self.driver.master != master:
            self.driver.close()
            self.driver = None
        if self.driver is None:
            folder = self.folder / f"driver-{len(self.drivers)}"
            self.driver = Driver(folder, self.broker.bootstrap, master, self.configuration)
            self.drivers.append(self.driver)
            self.driver.await_event("ready", 1)
        return self.driver

    def close(self) -> None:
        for driver in self.drivers:
            driver.close()


class Stage:
    """One scenario: a topic that is fed, pipelines that read it, and kills."""

    def __init__(self, company: Company, name: str, kinds: Iterable[str], master: str = LOCAL) -> None:
        self.company = company
        self.bootstrap = company.broker.bootstrap
        self.name = name
        self.master = master
        self.kills = 0
        self.resting: set[str] = set()
        """Kinds that have been through enough: they run again in the end."""
        topic = f"faults-{len(list(company.folder.iterdir()))}"
        with Cluster(self.bootstrap) as cluster:
            for one in (topic, *(f"{topic}-{kind}" for kind in TOPICS)):
                Admin(cluster).create_topic(one, partitions=PARTITIONS)
        self.pipelines = [Pipeline(kind, company.folder / topic, topic) for kind in kinds]
        (company.folder / topic).mkdir()
        self.feeder = Feeder(self.bootstrap, topic)

    def __enter__(self) -> "Stage":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.feeder.leave()

    @property
    def driver(self) -> Driver:
        return self.company.ready(self.master)

    @property
    def running(self) -> list[Pipeline]:
        return [one for one in self.pipelines if one.kind not in self.resting]

    def run(self, halts: Mapping[str, str] | None = None, *, wait: bool = False) -> Driver:
        """Let the pipelines run, each as far as its kind's point of a commit; returns when they do."""
        driver = self.driver
        started = [one["event"] for one in driver.events()].count("started")
        points = halts or {}
        orders = [one.order(points.get(one.kind), RECORDS_PER_BATCH, wait=wait) for one in self.running]
        driver.tell({"do": "start", "queries": orders})
        driver.await_event("started", started + 1)
        return driver

    def lose_driver(self) -> None:
        assert self.company.driver is not None
        self.company.driver.kill()
        self.company.driver = None
        self.kills += 1

    def kill_driver_at(self, point: str) -> None:
        """When every pipeline stands at this point of a commit."""
        self.kill_driver_with({one.kind: point for one in self.running})

    def kill_driver_with(self, points: Mapping[str, str]) -> None:
        """When every pipeline stands at its kind's point of a commit."""
        driver = self.run(points)
        driver.await_true(lambda: all(one.flag.exists() for one in self.running), f"all to stand at {points}")
        self.lose_driver()

    @contextmanager
    def pause_at(self, point: str) -> Iterator[int]:
        """While the one pipeline stands at this point: the process that does. It goes on afterwards."""
        (pipeline,) = self.pipelines
        driver = self.run({pipeline.kind: point}, wait=True)
        driver.await_true(pipeline.flag.exists, f"{pipeline.kind} to stand {point}")
        yield int(pipeline.flag.read_text())
        pipeline.flag.unlink(missing_ok=True)

    def kill_driver_when(self, pipeline: Pipeline, condition: Callable[[], object], about: str) -> None:
        """At a moment that the checkpoint shows. The others are struck wherever they are."""
        self.run().await_true(condition, f"{pipeline.kind}: {about}")
        self.lose_driver()

    def kill_while_running(self, strike: Callable[[], int], times: int) -> None:
        """Executors or brokers: the queries have to go on by themselves, each by two batches after every kill."""
        driver = self.run()
        self.await_progress(driver)
        for number in range(times):
            watched = self.pipelines[number % len(self.pipelines)]
            driver.await_true(lambda one=watched: one.in_a_batch, f"a batch of {watched.kind}")  # type: ignore[misc]
            self.kills += strike() > 0
            self.await_progress(driver)

    def await_progress(self, driver: Driver, batches: int = 2) -> None:
        goals = [(one, one.newest("commits") + batches) for one in self.running]
        driver.await_true(lambda: all(one.newest("commits") >= goal for one, goal in goals), "the next batches")

    def finish(self) -> dict[str, Outcome]:
        """No more rows; every pipeline to its end; the count."""
        sent = self.feeder.stop()
        driver = self.driver
        finished = [one["event"] for one in driver.events()].count("finished")
        driver.tell({"do": "finish", "queries": [one.order(None, None) for one in self.pipelines]})
        driver.await_event("finished", finished + 1)
        return {one.kind: Outcome(self.name, one.kind, self.kills, self._count(one, sent)) for one in self.pipelines}

    def _count(self, pipeline: Pipeline, sent: int) -> Tally:
        """What a task left open holds up readers until it times out."""
        deadline = time.monotonic() + (2 * pipeline.timeout_ms / 1000 if pipeline.kind == TOPIC_ONCE else 0)
        while True:
            tally = Tally.of(sent, pipeline.values(self.bootstrap))
            if not tally.losses or time.monotonic() > deadline:
                return tally
            time.sleep(1.0)

    def doubled(self, kind: str) -> int:
        """Rows that a reader sees twice at this moment."""
        found = next(one for one in self.pipelines if one.kind == kind).values(self.bootstrap)
        return len(found) - len(set(found))
