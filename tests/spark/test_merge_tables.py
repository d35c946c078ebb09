"""Merged tables and two drivers at once: one row for each key, each batch once. Without Spark."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from merged_tables import FORMATS, FRAME, ID, changes, merge, rows

from skidway.spark.lake import Target
from skidway.spark.lake.changes import Change, Folded, Position, State, fold
from skidway.spark.lake.maintenance import maintain
from skidway.spark.lake.merged_rows import Changes
from skidway.spark.lake.merging import merge_batch, open_merged
from skidway.spark.lake.target import BadTable


class Interrupted(Changes):
    """Something happens between the look at the table and the commit, once."""

    def __init__(self, made: Changes, meanwhile: Callable[[], Any]) -> None:
        super().__init__(made.changes, made.rows)
        self.meanwhile: Callable[[], Any] | None = meanwhile

    def above(self, below: dict[tuple[str, int], int]) -> Changes:
        return self

    def onto(self, states: dict[str, State]) -> Folded:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return fold(self.changes, states)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_that_is_in_the_table_is_not_merged_again(tmp_path: Path, kind: str) -> None:
    where = Target(str(tmp_path / "t"), kind)
    assert merge(open_merged(where), "q", 0, 0, 10).folded.inserted == 10
    assert merge(open_merged(where), "q", 0, 0, 10).skipped
    # By another query, whose checkpoint begins before what the table has: only the rest.
    assert merge(open_merged(where), "other", 0, 5, 12).folded.counts() == {
        "inserted": 2,
        "updated": 0,
        "deleted": 0,
        "older": 0,
    }
    assert rows(where) == list(range(12))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_second_driver_at_the_same_batch_is_refused(tmp_path: Path, kind: str) -> None:
    where = Target(str(tmp_path / "t"), kind)
    merge(open_merged(where), "q", 0, 0, 5)
    deleting = changes(0, 8, kind="d", lsn=100, at=5)
    slow = Interrupted(changes(5, 8), lambda: merge(open_merged(where), "q", 1, 5, 8, deleting))
    assert merge(open_merged(where), "q", 1, 5, 8, slow).skipped
    assert rows(where) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_a_key_that_another_query_adds_meanwhile_is_there_once(tmp_path: Path, kind: str) -> None:
    """What was looked at is looked at again."""
    where = Target(str(tmp_path / "t"), kind)
    merge(open_merged(where), "q", 0, 0, 5)
    newer = changes(5, 8, lsn=1000)

    def meanwhile() -> None:
        merge_batch(open_merged(where), newer, FRAME, "of another topic", 0)

    slow = Interrupted(changes(5, 9), meanwhile)
    assert merge(open_merged(where), "q", 1, 5, 9, slow).folded.counts() == {
        "inserted": 1,
        "updated": 0,
        "deleted": 0,
        "older": 3,
    }
    assert rows(where) == list(range(9))


@pytest.mark.parametrize("kind", FORMATS)
def test_a_batch_that_changes_no_row_moves_the_positions(tmp_path: Path, kind: str) -> None:
    where = Target(str(tmp_path / "t"), kind)
    merge(open_merged(where), "q", 0, 0, 5, changes(0, 5, lsn=10))
    stale = Changes([Change("0", "u", ("shop", 0, 5), Position((("lsn", 1),)), 0)], pa.table({"n": [77]}))
    merged = merge(open_merged(where), "q", 1, 5, 6, stale)
    assert (merged.folded.older, merged.files, merged.skipped) == (1, 0, False)
    assert open_merged(where).positions([(ID, 0)]) == {(ID, 0): 6}
    assert merge(open_merged(where), "q", 1, 5, 6, stale).skipped


def test_a_commit_whose_answer_was_lost_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitStateUnknownException

    where = Target(str(tmp_path / "t"), "iceberg")
    merge(open_merged(where), "q", 0, 0, 5)
    real = SqlCatalog.commit_table
    lost: list[Any] = []

    def commit(*arguments: Any) -> Any:
        answer = real(*arguments)
        if not lost:
            lost.append(answer)
            raise CommitStateUnknownException("the answer was lost")
        return answer

    monkeypatch.setattr(SqlCatalog, "commit_table", commit)
    merged = merge(open_merged(where), "q", 1, 0, 8, changes(3, 8, lsn=50))
    assert (merged.folded.inserted, merged.skipped, len(lost)) == (3, False, 1)
    assert rows(where) == list(range(8))


def test_care_deletes_the_files_that_were_replaced(tmp_path: Path) -> None:
    where = Target(str(tmp_path / "t"), "iceberg")
    for batch in range(8):
        # Each second batch changes rows of the one before it, the others add some.
        begin = 10 * batch
        made = changes(begin - 5 if batch % 2 else begin, begin + 10, lsn=batch, at=begin)
        merge(open_merged(where), "q", batch, begin, begin + 10, made)
    before = rows(where)
    files = {path.name for path in tmp_path.glob("t/*.parquet")}
    dry = maintain(where, dry_run=True, keep_snapshots=2)
    done = maintain(where, keep_snapshots=2)
    assert (done.expired, done.deleted) == (dry.expired, dry.deleted)
    left = {path.name for path in tmp_path.glob("t/*.parquet")}
    table: Any = open_merged(where)
    opened = table.catalog.load_table(table.name)
    reached = {
        Path(task.file.file_path).name
        for snapshot in opened.metadata.snapshots
        for task in opened.scan(snapshot_id=snapshot.snapshot_id).plan_files()
    }
    assert left == reached
    assert left < files
    assert rows(where) == before == list(range(80))


def test_a_table_with_two_rows_of_a_key_is_refused(tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    where = Target(str(tmp_path / "t"), "delta")
    merge(open_merged(where), "q", 0, 0, 2)
    write_deltalake(where.path, DeltaTable(where.path).to_pyarrow_table(), mode="append")
    renamed = Changes([Change("1", "u", ("shop", 0, 2), Position((("lsn", 9),)), 0)], pa.table({"n": [7]}))
    with pytest.raises(BadTable, match="the table has two rows of the key 1"):
        merge(open_merged(where), "q", 1, 1, 3, renamed)


def test_parquet_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadTable, match="changes are merged into delta and iceberg tables"):
        open_merged(Target(str(tmp_path / "t"), "parquet"))
