"""A folder of Parquet files that any tool reads as it is: no duplicate and no torn batch in it, once a run has ended.

Spark's own file sink keeps a log of its files, which only Spark honours: another reader also sees what failed
attempts left behind. Here the files of a batch are named in a manifest first (`_skidway/log/<number>.json`, which can
be created once: the decision), then renamed into the table. A crash before the manifest leaves nothing visible; one
after it is completed by whoever looks at the table next, and always before the next manifest is made. While the renames
run, and only then, a reader may see part of a batch.

In an object store nothing can be renamed: files have their names from the beginning, so a reader that lists the folder
may see some that are in no batch. There all manifests are kept, and `committed_files` says what counts.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.dataset import dataset

from skidway.spark.lake.evolution import Change, arrow_of, compare, loosened
from skidway.spark.lake.manifests import Manifest, Manifests, Older
from skidway.spark.lake.parquet_files import ParquetFiles
from skidway.spark.lake.positions import Advance, Place, Positions, is_next
from skidway.spark.lake.slices import Slice
from skidway.spark.lake.staging import PRIVATE, DataFile, move, moves
from skidway.spark.lake.target import Target
from skidway.spark.objects import Bucket, ObjectStore
from skidway.spark.stores import FolderStore, Store

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

COLUMNS = "_common_metadata"
COMMIT_ATTEMPTS = 100
"""Each time another driver was quicker."""


class ParquetTable:
    keeps_partition_columns = False

    def __init__(self, target: Target) -> None:
        self.root = target.root()
        self.partition_by = target.partition_by
        self._store: Store | None = None

    def exists(self) -> bool:
        if isinstance(self.root, Bucket):
            return bool(self.committed_files())
        return any(self.root.glob("[!_.]*"))

    def last_batch(self, query: str) -> int:
        return self._last_batch(self._settled(), query)

    def accept(self, frame: "DataFrame") -> None:
        self._change(self._settled(), frame)

    def positions(self, places: Iterable[Place]) -> Positions:
        has = self._settled().positions
        return {place: has[place] for place in places if place in has}

    def topic_ids(self, name: str) -> list[str]:
        return [topic for topic, called in self._settled().names.items() if called == name]

    def commit(
        self, query: str, batch: int, files: Sequence[DataFile], frame: "DataFrame", advance: Advance | None = None
    ) -> bool:
        manifests = Manifests(self.store)
        named = [(self._staged(file), file.path) for file in files]
        for _ in range(COMMIT_ATTEMPTS):
            newest = self._settled()
            if not is_next(batch, self._last_batch(newest, query), advance, newest.positions):
                return False
            change = self._change(newest, frame)
            schema = change.merged.jsonValue()
            if newest.schema != schema:
                self._tell_columns(change)
            if manifests.decide(newest.next(query, batch, named, advance, schema)):
                move(moves(self.root, files))
                return True
        return False

    def committed_files(self) -> list[str]:
        """Paths below the folder, of a table in an object store."""
        assert isinstance(self.store, ObjectStore)
        older = [one for query in self.store.folders() for one in Older(self.store, query).all()]
        files = [one.files for one in older] + [one.files for one in Manifests(self.store).all()]
        return sorted(path for some in files for _, path in some)

    def _settled(self) -> Manifest:
        """The newest manifest, when all of its files are in their places; an empty one if there is none."""
        newest = Manifests(self.store).newest()
        if newest is None:
            return Manifest()
        if isinstance(self.root, Path):
            self._move(newest.files)
            Manifests(self.store).forget_older(newest.number)
        return newest

    def _change(self, newest: Manifest, frame: "DataFrame") -> Change:
        from pyspark.sql.types import StructType

        given = loosened(frame.schema)
        there = given if newest.schema is None else StructType.fromJson(newest.schema)
        return compare(there, given).check(f"the Parquet table at {self.root}")

    def _tell_columns(self, change: Change) -> None:
        """For readers, who would take the columns of the first file they find; Spark looks here by itself.

        Before the commit: columns that no file has are null.
        """
        content = io.BytesIO()
        pq.write_metadata(arrow_of(change.merged), content, store_schema=False)
        if isinstance(self.root, Bucket):
            import obstore

            obstore.put(self.root.connect(), COLUMNS, content.getvalue())
        else:
            FolderStore(self.root).replace(COLUMNS, content.getvalue())

    def _last_batch(self, newest: Manifest, query: str) -> int:
        if query in newest.batches:
            return newest.batches[query]
        older = Older(self.store, query).newest()
        if older is None:
            return -1
        self._move(older.files)
        return older.number

    def _move(self, files: Sequence[tuple[str, str]]) -> None:
        if isinstance(self.root, Path):
            move([(self.root / staged, self.root / final) for staged, final in files])

    def scan(self, columns: Sequence[str] = (), within: Slice | None = None) -> Iterator[pa.RecordBatch]:
        return self._files().scan(columns, within)

    def replace(self, within: Slice, rows: pa.Table) -> bool:
        """File by file, for a folder has no commit that could replace several."""
        self._files().replace(within, rows)
        return True

    def _files(self) -> ParquetFiles:
        from pyspark.sql.types import StructType

        told = self._settled().schema
        kinds = {} if told is None else {one.name: one.type for one in arrow_of(StructType.fromJson(told))}
        return ParquetFiles(self.root, self._paths, kinds)

    def _paths(self) -> list[str]:
        """Of all files that count."""
        if isinstance(self.root, Bucket):
            return self.committed_files()
        found = (path.relative_to(self.root) for path in self.root.rglob("*.parquet"))
        return sorted(str(path) for path in found if not any(step[0] in "_." for step in path.parts))

    def read(self) -> pa.Table | None:
        if isinstance(self.root, Bucket):
            return self._read_objects(self.root)
        if not self.exists():
            return None
        columns = self.root / COLUMNS
        schema = pq.read_schema(columns) if columns.exists() else None
        return dataset(self.root, schema=schema, format="parquet", partitioning="hive").to_table()

    def _read_objects(self, bucket: Bucket) -> pa.Table | None:
        import obstore

        store = bucket.connect()
        files = [obstore.get(store, path).bytes() for path in self.committed_files()]
        return (
            pa.concat_tables([pq.read_table(io.BytesIO(bytes(file))) for file in files], promote_options="permissive")
            if files
            else None
        )

    @property
    def store(self) -> Store:
        if self._store is None:
            root = self.root
            self._store = ObjectStore(root, PRIVATE) if isinstance(root, Bucket) else FolderStore(root / PRIVATE)
        return self._store

    def _staged(self, file: DataFile) -> str:
        if file.staged is None:
            return file.path
        assert isinstance(self.root, Path)
        return str(file.staged.relative_to(self.root))
