"""Where the rows of a table go: format, path, names; checked as a whole before a stream begins."""

import importlib.util
import os
import re
from dataclasses import dataclass, field
from pathlib import Path

from skidway.spark.folders import BadFolder, writable
from skidway.spark.objects import BadStore, Bucket, bucket_of

FORMATS = ("parquet", "delta", "iceberg")
CATALOG_FILE = "catalog.db"
CATALOG_PATH_BYTES_MAX = 500
"""SQLite opens files whose path, with `-journal` behind it, has at most 512 bytes."""


class BadTable(ValueError):
    """The table cannot be what the pipeline was told, or take what it was given."""


@dataclass(slots=True)
class Target:
    """Where rows go. `catalog` and `table` are for Iceberg: a catalog of pyiceberg's configuration, and a name in it;
    without them a SQLite catalog is kept beside the files."""

    path: str
    format: str = "parquet"
    partition_by: list[str] = field(default_factory=list)
    catalog: str | None = None
    table: str | None = None
    store_options: dict[str, str] = field(default_factory=dict)

    def root(self) -> Path | Bucket:
        return bucket_of(self.path, self.store_options) or self.folder()

    def folder(self) -> Path:
        return Path(self.path.removeprefix("file://")).absolute()

    def check(self) -> None:
        """BadTable if no table of this format can be there."""
        if self.format not in FORMATS:
            raise BadTable(f"no table format {self.format!r}; known are {', '.join(FORMATS)}")
        if self.format != "iceberg" and (self.catalog or self.table):
            raise BadTable(f"a catalog and a table name are for Iceberg; {self.format} tables are a path")
        try:
            if bucket_of(self.path, self.store_options) is not None:
                self._check_bucket()
                return
            root = writable(self.path)
        except (BadFolder, BadStore) as error:
            raise BadTable(str(error)) from None
        if self.store_options:
            raise BadTable(f"store options are for object stores; {self.path!r} is a folder")
        if root == Path(root.anchor):
            raise BadTable(f"{self.path!r} is the root of the file system; a table needs a folder of its own: name one")
        if self.format == "delta":
            self._check_delta()
        if self.format == "iceberg":
            self._check_iceberg()

    def _check_bucket(self) -> None:
        if importlib.util.find_spec("obstore") is None:
            raise BadTable("object stores need the package obstore: pip install 'skidway[pipelines]'")
        if self.format == "iceberg" and self.catalog is None:
            raise BadTable(
                f"an Iceberg table at {self.path} needs a catalog: SQLite beside the files is for one machine; name one"
                " of pyiceberg's configuration (--catalog)"
            )

    def _check_delta(self) -> None:
        # deltalake takes one for an escaped character, and the other for a slash, and then looks elsewhere.
        found = re.search(r"%[0-9A-Fa-f]{2}|\\", str(self.folder()))
        if found is not None:
            raise BadTable(
                f"a Delta table cannot be at {self.path!r}: the library deltalake would read {found[0]!r} as another"
                " character; choose a path without it, or the format parquet"
            )

    def _check_iceberg(self) -> None:
        root = self.folder()
        if re.search(r"[#?]", str(root)):
            raise BadTable(
                f"an Iceberg table cannot be at {self.path!r}: Iceberg knows files by URL, which # and ? would end;"
                " choose a path without them, or the format parquet"
            )
        if self.catalog is not None:
            return
        if len(os.fsencode(root / CATALOG_FILE)) > CATALOG_PATH_BYTES_MAX:
            raise BadTable(
                f"an Iceberg table cannot be at {self.path!r}: with /{CATALOG_FILE} the path is longer than the"
                f" {CATALOG_PATH_BYTES_MAX} bytes that SQLite opens; choose a shorter path, or a catalog"
            )
        if self.table is not None and not re.fullmatch(r"[^.]+\.[^.]+", self.table):
            raise BadTable(f"the table name {self.table!r} is not NAMESPACE.NAME; write for example lake.orders")
