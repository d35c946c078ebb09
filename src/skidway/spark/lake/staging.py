"""Writing a batch as Parquet files where nobody reads yet, and moving them to where they belong.

Folders whose names begin with an underscore are not looked into by Spark, pyarrow and Hive, so what is staged under
`_skidway` is no part of a table that others read as a folder of Parquet files. Staging and table are on one file
system: a file moves by a rename. Files and folders are synced, so that a batch Spark believes done survives power loss.

Each attempt at a batch has a folder of its own, and its files names that no other attempt has. Executors outlive a
driver that was killed, for a while, and two drivers may be at one batch: what one writes must not end up among the
files of the other, replace them, or be swept away by it before it is decided which of them counts. So an attempt
sweeps its own folder, and those of batches that are in the table: no attempt at them can count any more.
"""

import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow.parquet as pq

from skidway.spark.lake.statistics import delta_statistics
from skidway.spark.lake.target import BadTable
from skidway.spark.objects import Bucket
from skidway.spark.stores import sync_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PRIVATE = "_skidway"
STAGING = "staging-"
TIMESTAMP_SETTING = "spark.sql.parquet.outputTimestampType"
MARK_SETTING = "mapreduce.fileoutputcommitter.marksuccessfuljobs"
NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
# A copy of a partition column, for formats whose files hold the column itself: Spark leaves out what it puts in paths.
COPY_PREFIX = "_in_path_"


@dataclass(slots=True)
class DataFile:
    """`path` is where it belongs, relative to the table; `staged` where it lies until then, nothing if it is there."""

    path: str
    partition: dict[str, str | None]
    rows: int
    bytes: int
    staged: Path | None = None
    modified_ms: int = 0
    statistics: str = ""
    """As Delta keeps them; none if it is empty."""


@dataclass(slots=True)
class Attempt:
    """One try to get a batch into the table at `root`; in an object store nothing is staged."""

    root: Path | Bucket
    query: str
    batch: int
    token: str = field(default_factory=lambda: secrets.token_hex(6))

    @property
    def folder(self) -> Path:
        assert isinstance(self.root, Path)
        return staging_folder(self.root, self.query, self.batch) / f"attempt-{self.token}"

    @property
    def name_prefix(self) -> str:
        return f"part-{self.query[:8]}-{self.batch:08d}-{self.token}"

    def name(self, number: int) -> str:
        return f"{self.name_prefix}-{number:05d}.parquet"

    def make(self) -> None:
        """The folder, where there is one."""
        if isinstance(self.root, Path):
            self.folder.mkdir(parents=True)

    def sweep(self) -> None:
        if isinstance(self.root, Bucket):
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self.folder.parent.rmdir()  # Unless another attempt is there.


def staging_folder(root: Path, query: str, batch: int) -> Path:
    return root / PRIVATE / query / f"{STAGING}{batch}"


def stage(
    frame: "DataFrame", attempt: Attempt, partition_by: Sequence[str], *, keep_columns: bool = False
) -> list[DataFile]:
    """Every row of the frame in files below the attempt's folder, with the place each file will have in the table."""
    folder = attempt.folder
    attempt.make()
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
        metadata = pq.read_metadata(path)
        if metadata.num_rows:
            files.append(_data_file(path, attempt, len(files), metadata))
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


def _data_file(path: Path, attempt: Attempt, number: int, metadata: Any) -> DataFile:
    steps = [step.removeprefix(COPY_PREFIX) for step in path.parent.relative_to(attempt.folder).parts]
    values = (step.partition("=")[::2] for step in steps)
    partition = {name: None if value == NO_VALUE else unquote(value) for name, value in values}
    found = path.stat()
    place = "/".join([*steps, attempt.name(number)])
    modified_ms = found.st_mtime_ns // 1_000_000
    statistics = delta_statistics(metadata)
    return DataFile(place, partition, metadata.num_rows, found.st_size, path, modified_ms, statistics)


def sync(files: Sequence[DataFile]) -> None:
    for file in files:
        assert file.staged is not None
        sync_path(file.staged)


def moves(root: Path | Bucket, files: Sequence[DataFile]) -> list[tuple[Path, Path]]:
    """From where to where they have to be moved."""
    if isinstance(root, Bucket):
        return []
    return [(file.staged, root / file.path) for file in files if file.staged is not None]


def move(pairs: Sequence[tuple[Path, Path]]) -> None:
    """Rename, in any state a crash may have left, and beside another driver that does the same: what is not staged any
    more has been moved."""
    folders = set()
    for staged, final in pairs:
        if staged.exists():
            if final.parent not in folders:
                final.parent.mkdir(parents=True, exist_ok=True)
                folders.add(final.parent)
            with suppress(FileNotFoundError):
                staged.replace(final)
    for folder in folders:
        sync_path(folder)


def sweep_decided(root: Path | Bucket, query: str, last_batch: int) -> None:
    """What attempts at the batches up to this one left behind; all files of the table are in their places."""
    if isinstance(root, Bucket):
        return
    for folder in (root / PRIVATE / query).glob(f"{STAGING}*"):
        number = folder.name.removeprefix(STAGING)
        if number.isdecimal() and int(number) <= last_batch:
            shutil.rmtree(folder, ignore_errors=True)
