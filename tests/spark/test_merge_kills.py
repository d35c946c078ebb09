"""A driver of merge that is killed: before the commit of a table, and behind it before Spark knows. With real Spark.

Random changes of some 200 keys, out of order and many of them twice, with tombstones behind deletions. In the end the
tables are, by value, what the source is.
"""

import itertools
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from fault_harness import SOURCES, descendants, kill
from pipeline_topics import new_topic, put

from skidway.spark.lake.merging import open_merged
from skidway.spark.pipelines.merge import MergeOptions
from waiting import SPARK_PATIENCE_S, eventually

FORMATS = ("delta", "iceberg")
SCRIPT = Path(__file__).with_name("merge_driver.py")
KEYS = 200
CHANGES = 1_500
RECORDS_PER_BATCH = 300
DELAY_MAX = 400
Record = tuple[bytes, bytes | None]


class Source:
    """A table of a database, and all that Debezium would say about it."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.rows: dict[int, dict[str, Any]] = {}
        self.told: list[list[Record]] = []
        """A deletion has its tombstone with it."""
        for number in range(0, KEYS, 3):
            self._set("r", number, 1)
        for lsn in range(2, CHANGES):
            number = self.chance.randrange(KEYS)
            if number in self.rows and self.chance.random() < 0.25:
                self._delete(number, lsn)
            else:
                self._set("u" if number in self.rows else "c", number, lsn)

    def _set(self, op: str, number: int, lsn: int) -> None:
        before = self.rows.get(number)
        self.rows[number] = {"id": number, "name": f"{op}{lsn}", "amount": self.chance.choice([None, lsn / 4])}
        self._tell(op, number, lsn, before, self.rows[number])

    def _delete(self, number: int, lsn: int) -> None:
        self._tell("d", number, lsn, self.rows.pop(number), None)
        self.told[-1].append((_key(number), None))

    def _tell(self, op: str, number: int, lsn: int, before: Any, after: Any) -> None:
        value = {"op": op, "before": before, "after": after, "source": {"connector": "postgresql", "lsn": lsn}}
        document = json.dumps(value).encode()
        whole = b'{"schema": {}, "payload": %s}' % document if self.chance.random() < 0.3 else document
        self.told.append([(_key(number), whole)])

    def delivered(self) -> list[Record]:
        """Late by up to DELAY_MAX records, and a third of it twice."""
        due = [(n + self.chance.randrange(DELAY_MAX), n) for n in range(len(self.told))]
        due += [(n + self.chance.randrange(2 * DELAY_MAX), n) for n in range(len(self.told)) if n % 3 == 0]
        return [record for _, n in sorted(due) for record in self.told[n]]


def _key(number: int) -> bytes:
    return b'{"id": %d}' % number


def _all_there(flags: list[Path]) -> bool:
    return all(flag.exists() for flag in flags)


class Company:
    """Two merges of one topic, and the drivers that run them."""

    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.folder = folder
        self.topic = new_topic(bootstrap, "killed-merge")
        self.options: dict[str, dict[str, Any]] = {
            kind: {
                "topic": [self.topic],
                "bootstrap": bootstrap,
                "name": kind,
                "path": str(folder / kind),
                "format": kind,
                "checkpoint": str(folder / f"checkpoint-{kind}"),
                "schema": "id bigint, name string, amount double",
                "max_records": RECORDS_PER_BATCH,
            }
            for kind in FORMATS
        }

    @contextmanager
    def driver(self, point: str = "", batch: int = 0) -> Iterator[tuple[subprocess.Popen[str], list[Path]]]:
        flags = [self.folder / f"{point}-{kind}" for kind in FORMATS]
        merges = [
            {"options": options, "halt": {"point": point, "batch": batch, "flag": str(flag)} if point else None}
            for options, flag in zip(self.options.values(), flags, strict=True)
        ]
        settings = {"scratch": str(self.folder / "scratch"), "merges": merges}
        log = self.folder / f"driver-{point}.log"
        with (
            log.open("w") as output,
            subprocess.Popen(
                [sys.executable, str(SCRIPT), json.dumps(settings)],
                cwd=self.folder,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCES), os.environ.get("PYTHONPATH", "")])},
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            ) as process,
        ):
            try:
                yield process, flags
            finally:
                family = [one.pid for one in descendants(process.pid)]
                kill([process.pid, *family])

    def kill_at(self, point: str, batch: int) -> None:
        with self.driver(point, batch) as (process, flags):
            eventually(lambda: _all_there(flags) or process.poll() is not None, SPARK_PATIENCE_S)
            assert _all_there(flags), self.log(point)

    def finish(self) -> None:
        with self.driver() as (process, _):
            assert process.wait(2 * SPARK_PATIENCE_S) == 0, self.log("")

    def log(self, point: str) -> str:
        return (self.folder / f"driver-{point}.log").read_text()

    def batches(self, kind: str) -> int:
        """As the table knows them."""
        table = open_merged(MergeOptions(**self.options[kind]).target())
        [query] = [
            json.loads(line)["id"]
            for line in (self.folder / f"checkpoint-{kind}" / "metadata").read_text().splitlines()
        ]
        return table.last_batch(query) + 1

    def living(self, kind: str) -> list[dict[str, Any]]:
        found = open_merged(MergeOptions(**self.options[kind]).target()).read()
        assert found is not None
        alive = [row for row in found.to_pylist() if not row["__deleted"]]
        told = [{name: value for name, value in row.items() if not name.startswith("__")} for row in alive]
        return sorted(told, key=lambda row: int(row["id"]))


@pytest.fixture(scope="module")
def company(bootstrap: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Company, Source, dict[str, list[int]]]:
    company = Company(bootstrap, tmp_path_factory.mktemp("merges"))
    source = Source(16)
    records = source.delivered()
    third = len(records) // 3
    seen: dict[str, list[int]] = {kind: [] for kind in FORMATS}

    def look() -> None:
        for kind in FORMATS:
            seen[kind].append(company.batches(kind))

    put(bootstrap, company.topic, records[:third])
    company.kill_at("before", 1)
    look()
    put(bootstrap, company.topic, records[third : 2 * third])
    company.kill_at("after", 3)
    look()
    put(bootstrap, company.topic, records[2 * third :])
    company.finish()
    look()
    return company, source, seen


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kind", FORMATS)
def test_the_table_is_the_source_whatever_was_killed(
    company: tuple[Company, Source, dict[str, list[int]]], kind: str
) -> None:
    killed, source, seen = company
    assert killed.living(kind) == [source.rows[number] for number in sorted(source.rows)]
    # Batch 1 was not in the table when the driver was killed before its commit; batch 3 was, behind it.
    assert seen[kind][:2] == [1, 4]
    assert seen[kind][2] > 4


@pytest.mark.timeout(1800)
def test_changes_were_out_of_order_and_repeated() -> None:
    """Else the test above would show nothing."""
    source = Source(16)
    records = source.delivered()
    lsns = [json.loads(value).get("payload", json.loads(value))["source"]["lsn"] for _, value in records if value]
    assert sum(later < earlier for earlier, later in itertools.pairwise(lsns)) > 500
    assert len(lsns) > len(set(lsns)) + 300
    assert sum(value is None for _, value in records) > 100
    assert 100 < len(source.rows) < KEYS
