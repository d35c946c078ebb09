"""Tables that are committed to for long: figures stay small, care changes no row, and files can be passed over."""

import datetime
import json
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from skidway.cli.main import main as skidway
from skidway.spark.lake import BadTable, Target, open_table
from skidway.spark.lake.maintenance import kind_of, maintain
from skidway.spark.lake.staging import Attempt, DataFile
from skidway.spark.lake.statistics import delta_statistics

QUERY = "11111111-aaaa"
FRAME: Any = SimpleNamespace(schema=StructType([StructField("id", LongType())]))


def commit(where: Target, batch: int) -> None:
    attempt = Attempt(where.folder(), QUERY, batch)
    attempt.folder.mkdir(parents=True)
    path = attempt.folder / "rows.parquet"
    pq.write_table(pa.table({"id": pa.array([batch], pa.int64())}), path)
    told = delta_statistics(pq.read_metadata(path))
    file = DataFile(attempt.name(0), {}, 1, path.stat().st_size, path, 1, told)
    assert open_table(where).commit(QUERY, batch, [file], FRAME)
    attempt.sweep()


def ids(where: Target) -> Counter[int]:
    found = open_table(where).read()
    assert found is not None
    return Counter(found.column("id").to_pylist())


def test_delta_files_are_merged_and_the_batch_numbers_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = Target(str(tmp_path / "events"), "delta")
    for batch in range(12):
        commit(where, batch)
    assert skidway(["pipeline", "maintain", where.path, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("data files 12; 0 snapshots would be expired")
    assert skidway(["pipeline", "maintain", where.path, "--keep-hours", "0", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["files_before"], told["files_after"], told["deleted"]) == (12, 1, 12)
    assert len(list((tmp_path / "events").glob("part-1111*"))) == 0
    assert ids(where) == Counter(range(12))
    assert open_table(where).last_batch(QUERY) == 11
    commit(where, 12)
    assert ids(where) == Counter(range(13))


def test_metadata_of_an_iceberg_table_stay_small(tmp_path: Path) -> None:
    where = Target(str(tmp_path / "events"), "iceberg")
    for batch in range(45):
        commit(where, batch)
    metadata = tmp_path / "events" / "metadata"
    assert len(list(metadata.glob("*.metadata.json"))) <= 12
    dry = maintain(where, dry_run=True, keep_snapshots=5)
    assert (dry.expired, dry.files_after) == (40, None)
    lists = len(list(metadata.glob("snap-*")))
    done = maintain(where, keep_snapshots=5)
    assert (done.expired, done.deleted) == (dry.expired, dry.deleted)
    assert len(list(metadata.glob("snap-*"))) == lists - 40
    assert maintain(where, keep_snapshots=5).expired == 0
    assert ids(where) == Counter(range(45))
    assert open_table(where).last_batch(QUERY) == 44
    commit(where, 45)
    assert ids(where) == Counter(range(46))


def test_a_commit_beside_care_is_repeated_and_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pipeline commits between the look at the snapshots and their end."""
    from skidway.spark.lake import maintenance

    where = Target(str(tmp_path / "events"), "iceberg")
    for batch in range(8):
        commit(where, batch)
    real = maintenance._unreachable
    calls: list[int] = []

    def overtaken(*arguments: Any) -> list[str]:
        found = real(*arguments)
        if not calls:
            calls.append(1)
            commit(where, 8)
        return found

    monkeypatch.setattr(maintenance, "_unreachable", overtaken)
    assert maintain(where, keep_snapshots=2).expired >= 6
    assert ids(where) == Counter(range(9))
    assert open_table(where).last_batch(QUERY) == 8


def test_what_cannot_be_maintained_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BadTable, match="no log to maintain"):
        maintain(Target(str(tmp_path)))
    with pytest.raises(BadTable, match="there is no delta table"):
        maintain(Target(str(tmp_path / "nothing"), "delta"))
    with pytest.raises(BadTable, match="keep at least 1"):
        maintain(Target(str(tmp_path), "iceberg"), keep_snapshots=0)
    for path, message in ((tmp_path, "no log to maintain"), (tmp_path / "nothing", "there is no table at")):
        assert skidway(["pipeline", "maintain", str(path)]) == 2
        assert message in capsys.readouterr().err


def test_the_format_of_a_table_is_found(tmp_path: Path) -> None:
    for kind in ("delta", "iceberg"):
        commit(Target(str(tmp_path / kind), kind), 0)
        assert kind_of(str(tmp_path / kind), None) == kind
    assert kind_of("s3://lake/orders", None) == "delta"
    assert kind_of("s3://lake/orders", "team") == "iceberg"


def test_bounds_of_columns(tmp_path: Path) -> None:
    at = datetime.datetime(2026, 1, 31, 12, 0, 0, 1_500, datetime.UTC)
    columns = {
        "n": pa.array([3, None, 1], pa.int64()),
        "x": pa.array([1.5, float("nan"), 2.0]),
        "text": pa.array(["b", "a", "c"]),
        "long": pa.array(["b" * 100, "a", "b"]),
        "raw": pa.array([b"1", b"2", None]),
        "at": pa.array([at, at, None], pa.timestamp("us", "UTC")),
        "day": pa.array([datetime.date(2026, 1, 31)] * 3),
        "nothing": pa.array([None] * 3, pa.int64()),
        "nested": pa.array([{"a": 1, "tags": ["x"]}, {"a": 5, "tags": []}, None]),
    }
    pq.write_table(pa.table(columns), tmp_path / "file.parquet", row_group_size=2)
    told = json.loads(delta_statistics(pq.read_metadata(tmp_path / "file.parquet")))
    assert told["numRecords"] == 3
    expected = {"n": 1, "text": "a", "at": "2026-01-31T12:00:00.001Z", "day": "2026-01-31", "nested": {"a": 1}}
    assert told["minValues"] == {**expected, "long": "a", "x": 1.5}
    assert not {"x", "long", "raw", "nothing"} & told["maxValues"].keys()
    assert told["maxValues"]["at"] == "2026-01-31T12:00:00.002Z"
    assert (told["maxValues"]["n"], told["maxValues"]["nested"]) == (3, {"a": 5})
    assert (told["nullCount"]["n"], told["nullCount"]["nothing"], told["nullCount"]["raw"]) == (1, 3, 1)


def test_a_reader_passes_over_files_by_their_bounds(tmp_path: Path) -> None:
    from deltalake import DeltaTable

    where = Target(str(tmp_path / "events"), "delta")
    for batch in range(3):
        commit(where, batch)
    actions = pa.table(DeltaTable(where.path).get_add_actions(flatten=True)).to_pydict()
    assert sorted(zip(actions["min.id"], actions["max.id"], actions["null_count.id"], strict=True)) == [
        (0, 0, 0),
        (1, 1, 0),
        (2, 2, 0),
    ]


@pytest.mark.parametrize(
    ("micros", "least"),
    [(253_402_300_799_999_999, {"at": "9999-12-31T23:59:59.999Z"}), (2**60, {}), (-(2**60), {})],
)
def test_times_that_python_has_none_for_have_no_bounds(tmp_path: Path, micros: int, least: dict[str, str]) -> None:
    """One such record once stopped every commit of its table."""
    table = pa.table({"at": pa.array([micros], pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "file.parquet")
    told = json.loads(delta_statistics(pq.read_metadata(tmp_path / "file.parquet")))
    assert (told["minValues"], told["maxValues"], told["nullCount"]) == (least, {}, {"at": 0})
