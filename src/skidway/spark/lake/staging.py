"""Writing a batch as Parquet files where nobody reads yet, and moving them to where they belong.

Folders whose names begin with an underscore are not looked into by Spark, pyarrow and Hive, so what is staged under
`_skidway` is no part of a table that others read as a folder of Parquet files. Staging and table are on one file
system: a file moves by a rename. Files and folders are synced, so that a batch Spark believes done survives power loss.

Each attempt at a batch has a folder of its own. Executors outlive a driver that was killed, for a while: what they
still write must not end up among the files of the attempt after it.
"""

import os
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow.parquet as pq

from skidway.spark.lake.target import BadTable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PRIVATE = "_skidway"
TIMESTAMP_SETTING = "spark.sql.parquet.outputTimestampType"
MARK_SETTING = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
# A copy of a partition column, for formats whose files hold the column itself: Spark leaves out what it puts in paths.
COPY_PREFIX = "_in_path_"


@dataclass(slots=True)
class DataFile:
    staged: Path
    final: Path
    partition: dict[str, str | None]
    rows: int
    bytes: int


def staging_folder(root: Path, query: str, batch: int) -> Path:
    return root / PRIVATE / query / f"staging-{batch}"


def stage(
    frame: "DataFrame", root: Path, query: str, batch: int, partition_by: Sequence[str], *, keep_columns: bool = False
) -> list[DataFile]:
    """Every row of the frame in files below the staging folder, with the place each file will have in the table."""
    sweep(root, query, batch)
    folder = staging_folder(root, query, batch) / f"attempt-{secrets.token_hex(4)}"
    folder.mkdir(parents=True)
    columns = list(partition_by)
    if keep_columns:
        columns = [COPY_PREFIX + name for name in partition_by]
        for name, copy in zip(partition_by, columns, strict=True):
            frame = frame.withColumn(copy, frame[name])
    with _readable_timestamps(frame):
        writer = frame.write.mode("overwrite").option(MARK_SETTING, "true").partitionBy(*columns)
        writer.parquet(f"file://{folder}")
    if not any(folder.iterdir()):
        raise BadTable(
            f"Spark did not write to {str(folder)!r} but to a folder of another name: Java does not know all characters"
            " of the path in this locale; set LC_ALL=C.UTF-8, or choose a path of ASCII characters"
        )
    files: list[DataFile] = []
    for path in sorted(folder.rglob("*.parquet")):
        rows = pq.read_metadata(path).num_rows
        if rows:
            files.append(_data_file(path, root, folder, query, batch, len(files), rows))
    return files


@contextmanager
def _readable_timestamps(frame: "DataFrame") -> Iterator[None]:
    """Spark's default, INT96, has no place in Iceberg and no statistics anywhere."""
    settings = frame.sparkSession.conf
    before = settings.get(TIMESTAMP_SETTING)
    settings.set(TIMESTAMP_SETTING, "TIMESTAMP_MICROS")
    try:
        yield
    finally:
        settings.set(TIMESTAMP_SETTING, str(before))


def _data_file(path: Path, root: Path, folder: Path, query: str, batch: int, number: int, rows: int) -> DataFile:
    steps = [step.removeprefix(COPY_PREFIX) for step in path.parent.relative_to(folder).parts]
    # Named by query and batch: a batch that is written again writes the same names.
    final = root.joinpath(*steps, f"part-{query[:8]}-{batch:08d}-{number:05d}.parquet")
    values = (step.partition("=")[::2] for step in steps)
    partition = {name: None if value == NO_VALUE else unquote(value) for name, value in values}
    return DataFile(path, final, partition, rows, path.stat().st_size)


def sync(files: Sequence[DataFile]) -> None:
    for file in files:
        _sync_path(file.staged)


def move(pairs: Sequence[tuple[Path, Path]]) -> None:
    """Rename, in any state a crash may have left: what is not staged any more has been moved before."""
    folders = set()
    for staged, final in pairs:
        if staged.exists():
            if final.parent not in folders:
                final.parent.mkdir(parents=True, exist_ok=True)
                folders.add(final.parent)
            staged.replace(final)
    for folder in folders:
        _sync_path(folder)


def sweep(root: Path, query: str, batch: int) -> None:
    shutil.rmtree(staging_folder(root, query, batch), ignore_errors=True)


def write_whole(path: Path, text: str) -> None:
    """The file has the old content or the new, whatever happens."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    _sync_path(path.parent)


def _sync_path(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
