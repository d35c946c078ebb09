"""The path of a table: it works, or is refused in words before Spark starts. Without Spark: files are written here."""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.types import LongType, StructField, StructType

from skidway.cli.commands import pipeline as command
from skidway.cli.main import main as skidway
from skidway.spark.folders import PROBE, BadFolder, writable
from skidway.spark.lake import BadTable, Target, open_table
from skidway.spark.lake.staging import Attempt, DataFile, stage, staging_folder

pytest.importorskip("deltalake")
pytest.importorskip("pyiceberg")

FORMATS = ("parquet", "delta", "iceberg")
QUERY = "11111111-aaaa"
NOBODY = 65_534

# How a folder is called, and which formats cannot be there.
NAMES: dict[str, dict[str, str]] = {
    "two words": {},
    'it\'s "quoted"': {},
    "Österreich, 日本": {},
    "100%": {},
    "a%20b": {"delta": "would read '%20' as another character"},
    "a\\b": {"delta": "as another character"},
    "a#b": {"iceberg": "which # and \\? would end"},
    "a?b": {"iceberg": "which # and \\? would end"},
    "a:b;c@d&e=f+g": {},
    "[a]{b}*": {},
    "orders.v2": {},
    "~": {},
    "a/../b": {},
    "/".join(["deep" * 12] * 8): {},
    "/".join(["deep" * 12] * 12): {"iceberg": "longer than the 500 bytes that SQLite opens"},
    "a\nb": dict.fromkeys(FORMATS, "control character"),
    "a\0b": dict.fromkeys(FORMATS, "control character"),
    "a\udcffb": dict.fromkeys(FORMATS, "not UTF-8"),
    "n" * 300: dict.fromkeys(FORMATS, "a name in it is too long"),
    "/".join(["d" * 200] * 16): dict.fromkeys(FORMATS, "longer than"),
}


def commit(target: Target, batch: int) -> None:
    """One row as the batch, written as Spark's tasks would."""
    table = open_table(target)
    assert table.last_batch(QUERY) == batch - 1
    assert isinstance(table.root, Path)
    folder = staging_folder(table.root, QUERY, batch)
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([batch], pa.int64())}), folder / "rows.parquet")
    size = (folder / "rows.parquet").stat().st_size
    frame: Any = SimpleNamespace(schema=StructType([StructField("id", LongType())]))
    assert table.commit(QUERY, batch, [DataFile(f"part-{batch}.parquet", {}, 1, size, folder / "rows.parquet")], frame)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("name", NAMES, ids=lambda name: ascii(name)[1:25])
def test_a_table_is_where_its_path_says_or_is_refused(tmp_path: Path, kind: str, name: str) -> None:
    (tmp_path / "a").mkdir()
    before = sorted(tmp_path.iterdir())
    target = Target(f"{tmp_path}/{name}", kind)
    refused = NAMES[name].get(kind)
    if refused is not None:
        with pytest.raises(BadTable, match=refused):
            open_table(target)
        assert sorted(tmp_path.iterdir()) == before, "nothing is left behind"
        return
    for batch in range(2):
        commit(target, batch)
    rows = open_table(target).read()
    assert rows is not None
    assert sorted(rows.column("id").to_pylist()) == [0, 1]
    assert (target.folder() / "part-1.parquet").is_file()
    assert not list(tmp_path.rglob(f"{PROBE}*"))


def file_in_the_way(folder: Path) -> str:
    (folder / "taken").write_text("a file")
    return str(folder / "taken")


def file_above(folder: Path) -> str:
    return file_in_the_way(folder) + "/lake/orders"


def loop_of_links(folder: Path) -> str:
    (folder / "left").symlink_to(folder / "right")
    (folder / "right").symlink_to(folder / "left")
    return str(folder / "left" / "orders")


def dangling_link(folder: Path) -> str:
    (folder / "link").symlink_to(folder / "nowhere")
    return str(folder / "link" / "orders")


BROKEN: list[tuple[Callable[[Path], str], str]] = [
    (lambda folder: "", "it is empty; expected a folder that this user can make and write to; name a folder"),
    (lambda folder: "  ", "it is empty"),
    (lambda folder: "/", "is the root of the file system"),
    (file_in_the_way, "taken' is a file; expected a folder"),
    (file_above, "taken' is a file; expected a folder"),
    (loop_of_links, "symbolic links lead in a circle"),
    (dangling_link, "is a symbolic link to something that does not exist"),
    (lambda folder: f"{folder}/none/../../orders", "from a folder that does not exist"),
    (lambda folder: f"{folder}/{'n' * 300}", "a name in it is too long for the file system; expected"),
    (lambda folder: f"{folder}/line\nbreak", "control character"),
    (lambda folder: "hdfs://namenode/lake/orders", "and not to hdfs://; mount it"),
    (lambda folder: "s3://bucket", "write for example s3://lake/orders"),
]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("broken", "message"), BROKEN)
def test_the_command_refuses_a_broken_path_before_spark_starts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    kind: str,
    broken: Callable[[Path], str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "_spark", spark_is_not_to_start)
    path = broken(tmp_path)
    before = sorted(tmp_path.iterdir())
    assert skidway(["pipeline", "run", "archive", "-t", "orders", "--format", kind, "--path", path]) == 2
    assert message in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before, "nothing is left behind"


@pytest.mark.parametrize(
    "words",
    [
        ["aggregate", "--to-table", "taken"],
        ["insights", "--path", "taken"],
        ["insights", "--path", ""],
        ["archive", "--path", "lake", "--rejected", "taken"],
        ["archive", "--path", "lake", "--checkpoint", "taken"],
        ["dedupe", "--id", "id", "--to-topic", "once", "--checkpoint", "taken"],
        ["archive", "--path", "lake", "--format", "iceberg", "--table", "a.b.c"],
    ],
    ids=" ".join,
)
def test_every_path_of_every_pipeline_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "_spark", spark_is_not_to_start)
    file_in_the_way(tmp_path)
    assert skidway(["pipeline", "run", *words, "-t", "orders"]) == 2
    told = capsys.readouterr().err
    assert any(text in told for text in ("is a file; expected", "it is empty; expected", "is not NAMESPACE.NAME"))


@contextmanager
def spark_is_not_to_start(*_: Any) -> Iterator[Any]:
    raise AssertionError("Spark was to start")
    yield


def test_a_folder_of_others_is_refused() -> None:
    """Root may write everywhere, so it becomes somebody else for the test."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(NOBODY)
        for path in (folder, folder / "lake" / "orders"):
            with pytest.raises(BadFolder, match=r"this user may not write there; expected .*; give this user"):
                writable(str(path))
    finally:
        os.seteuid(user)
        shutil.rmtree(folder)


def test_rows_that_java_wrote_to_another_name_are_missed(tmp_path: Path) -> None:
    """In a locale without the path's characters Java replaces them, and the rows are elsewhere."""

    class Elsewhere:
        def __getattr__(self, name: str) -> Any:
            return lambda *_, **__: self

    settings = SimpleNamespace(get=lambda key: "INT96", set=lambda key, value: None)
    frame: Any = SimpleNamespace(write=Elsewhere(), sparkSession=SimpleNamespace(conf=settings))
    with pytest.raises(BadTable, match=r"set LC_ALL=C\.UTF-8"):
        stage(frame, Attempt(tmp_path, QUERY, 0), [])
