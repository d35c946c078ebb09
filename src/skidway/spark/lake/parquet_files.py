"""The files of a plain Parquet table, one by one: their rows with the columns that only their folders have.

A file is replaced as a whole, so that a reader finds it as it was or as it is.
"""

import io
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from skidway.spark.lake.slices import Slice, identities, where
from skidway.spark.lake.staging import NO_VALUE
from skidway.spark.objects import Bucket
from skidway.spark.stores import FolderStore

BATCH_ROWS = 10_000


class ParquetFiles:
    """`paths` answers those that count, relative to the root. `kinds`: types of the columns that folders have."""

    def __init__(self, root: Path | Bucket, paths: Callable[[], Sequence[str]], kinds: dict[str, pa.DataType]) -> None:
        self._root = root
        self._paths = paths
        self._kinds = kinds
        self._store = root.connect() if isinstance(root, Bucket) else None

    def scan(self, columns: Sequence[str], within: Slice | None) -> Iterator[pa.RecordBatch]:
        """No columns: all there are."""
        for path in self._paths():
            folders = _folders(path)
            if within is not None and folders.get("topic", within.topic) != within.topic:
                continue
            file = pq.ParquetFile(self._open(path))
            groups = [n for n in range(file.num_row_groups) if within is None or _may_have(file, n, within)]
            there = set(file.schema_arrow.names)
            # What a slice is by has to be read, to be looked at.
            wanted = [*columns, *("topic", "partition", "offset")] if columns else None
            read = None if wanted is None else [name for name in dict.fromkeys(wanted) if name in there]
            for batch in file.iter_batches(BATCH_ROWS, row_groups=groups, columns=read) if groups else ():
                rows = self._with_folders(batch, folders)
                rows = rows if within is None else rows.filter(within.mask(rows))
                if rows.num_rows:
                    yield rows.select(list(columns)) if columns else rows

    def replace(self, within: Slice, rows: pa.Table) -> None:
        """Of the rows in the slice only these stay, as they are here."""
        places = {identity: n for n, identity in enumerate(identities(rows))}
        for path in self._paths():
            folders = _folders(path)
            if folders.get("topic", within.topic) != within.topic:
                continue
            file = pq.ParquetFile(self._open(path))
            if not any(_may_have(file, n, within) for n in range(file.num_row_groups)):
                continue
            old = file.read()
            told = pa.table(self._with_folders(old, folders))
            inside = [bool(one) for one in within.mask(told).to_pylist()]
            if not any(inside):
                continue
            found = (places.get(identity) for identity in identities(where(told, inside)))
            chosen = pa.array([n for n in found if n is not None], pa.int64())
            taken = rows.take(chosen).select(old.column_names).cast(old.schema)
            self._write(path, pa.concat_tables([where(old, (not one for one in inside)), taken]))

    def _with_folders(self, rows: Any, folders: dict[str, str | None]) -> Any:
        for name, value in folders.items():
            if name not in rows.schema.names:
                kind = self._kinds.get(name, pa.string())
                rows = rows.append_column(name, pa.array([value] * rows.num_rows, pa.string()).cast(kind))
        return rows

    def _open(self, path: str) -> Any:
        if self._store is None:
            assert isinstance(self._root, Path)
            return self._root / path
        import obstore

        return io.BytesIO(bytes(obstore.get(self._store, path).bytes()))

    def _write(self, path: str, rows: pa.Table) -> None:
        content = io.BytesIO()
        pq.write_table(rows, content, store_schema=False)
        if self._store is None:
            assert isinstance(self._root, Path)
            FolderStore(self._root).replace(path, content.getvalue())
        else:
            import obstore

            obstore.put(self._store, path, content.getvalue())


def _folders(path: str) -> dict[str, str | None]:
    """The values in the names of its folders."""
    steps = (step.partition("=") for step in path.split("/")[:-1])
    return {name: None if value == NO_VALUE else unquote(value) for name, sign, value in steps if sign}


def _may_have(file: pq.ParquetFile, group: int, within: Slice) -> bool:
    """By the least and the greatest offset of a row group."""
    metadata = file.metadata.row_group(group)
    for n in range(metadata.num_columns):
        column = metadata.column(n)
        if column.path_in_schema == "offset" and column.statistics is not None and column.statistics.has_min_max:
            return bool(column.statistics.min < within.end and column.statistics.max >= within.begin)
    return True
