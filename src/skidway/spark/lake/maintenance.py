"""What a table needs that is committed to for years: fewer files, fewer snapshots, nothing that no reader can reach.

`maintain` answers figures, and with `dry_run` changes nothing. It may run beside a pipeline: a commit that the other
one overtook is looked at again and repeated.

Delta: small files of a partition become large ones (the batch numbers stay), files that no version of the last
`keep_hours` has are deleted, old log files too. Iceberg: snapshots that pipelines made are expired but for the newest
`keep_snapshots`, with their manifests, manifest lists and the data files that no other snapshot has; other snapshots,
branches and tags are left alone. Small data files stay: pyiceberg cannot merge them yet.
"""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from skidway.spark.lake.table import open_table
from skidway.spark.lake.target import CATALOG_FILE, BadTable, Target

KEEP_HOURS = 168
KEEP_SNAPSHOTS = 100
ATTEMPTS = 5


@dataclass(slots=True)
class Care:
    """What was done, or with a dry run would be."""

    files_before: int = 0
    files_after: int | None = None
    """Of data. None: a dry run does not know."""
    expired: int = 0
    """Snapshots."""
    deleted: int = 0
    """Files that no reader reaches."""


def maintain(
    target: Target, *, dry_run: bool = False, keep_hours: int = KEEP_HOURS, keep_snapshots: int = KEEP_SNAPSHOTS
) -> Care:
    if target.format == "parquet":
        raise BadTable("a plain Parquet table has no log to maintain; Delta and Iceberg tables have")
    if keep_snapshots < 1:
        raise BadTable("keep at least 1 snapshot: it is the table")
    table: Any = open_table(target)
    opened = table._open()
    if opened is None:
        raise BadTable(f"there is no {target.format} table at {target.path}")
    if target.format == "delta":
        return _care_for_delta(opened, keep_hours, dry_run=dry_run)
    return _care_for_iceberg(table, opened, keep_snapshots, dry_run=dry_run)


def kind_of(path: str, catalog: str | None) -> str:
    """The format of the table there; of one in an object store that no catalog has: Delta."""
    if catalog is not None:
        return "iceberg"
    folder = Target(path).folder()
    if "://" in path.removeprefix("file://") or (folder / "_delta_log").is_dir():
        return "delta"
    if (folder / CATALOG_FILE).is_file():
        return "iceberg"
    if not folder.is_dir():
        raise BadTable(f"there is no table at {path}")
    return "parquet"


def _care_for_delta(table: Any, keep_hours: int, *, dry_run: bool) -> Care:
    care = Care(files_before=len(table.file_uris()))
    if not dry_run:
        table.optimize.compact()
        care.files_after = len(table.file_uris())
    # Its own rule forbids less than the table's retention, unless told; who says so here means it.
    gone = table.vacuum(keep_hours, dry_run=dry_run, enforce_retention_duration=False)
    care.deleted = len(gone)
    if not dry_run:
        table.cleanup_metadata()
    return care


def _care_for_iceberg(table: Any, opened: Any, keep: int, *, dry_run: bool) -> Care:
    from pyiceberg.exceptions import CommitFailedException

    for attempt in range(ATTEMPTS):
        old = _expirable(opened, keep)
        files = len(opened.inspect.files()) if opened.current_snapshot() is not None else 0
        orphans = _unreachable(opened, old)
        care = Care(files, None if dry_run else files, len(old), len(orphans))
        if dry_run or not old:
            return care
        try:
            opened.maintenance.expire_snapshots().by_ids(old).commit()
            break
        except CommitFailedException:
            if attempt == ATTEMPTS - 1:
                raise
            opened = table._open()
    for path in orphans:
        with suppress(FileNotFoundError):
            opened.io.delete(path)
    return care


def _expirable(opened: Any, keep: int) -> list[int]:
    """Snapshots of pipelines, oldest first, that nothing names and that are not among the newest."""
    from skidway.spark.lake.iceberg import BATCH_ID

    named = {reference.snapshot_id for reference in opened.metadata.refs.values()}
    ours = [
        snapshot.snapshot_id
        for snapshot in sorted(opened.metadata.snapshots, key=lambda one: one.sequence_number or 0)
        if snapshot.summary is not None and BATCH_ID in snapshot.summary.additional_properties
    ]
    return [one for one in ours[:-keep] if one not in named]


def _unreachable(opened: Any, expired: list[int]) -> list[str]:
    """Manifests, lists of them and data files that only expired snapshots have."""
    gone = set(expired)
    kept = [one for one in opened.metadata.snapshots if one.snapshot_id not in gone]
    left = [one for one in opened.metadata.snapshots if one.snapshot_id in gone]
    manifests, reached = _manifests(opened, left), _manifests(opened, kept)
    only_gone = {path: one for path, one in manifests.items() if path not in reached}
    files = _data_files(opened, only_gone.values())
    # A manifest that was written anew has files of the one before it.
    files -= _data_files(opened, reached.values()) if files else set()
    lists = {one.manifest_list for one in left} - {one.manifest_list for one in kept}
    return sorted(lists | only_gone.keys() | files)


def _manifests(opened: Any, snapshots: list[Any]) -> dict[str, Any]:
    return {one.manifest_path: one for snapshot in snapshots for one in snapshot.manifests(opened.io)}


def _data_files(opened: Any, manifests: Iterable[Any]) -> set[str]:
    """Those that are rows of some snapshot."""
    return {
        entry.data_file.file_path
        for manifest in manifests
        for entry in manifest.fetch_manifest_entry(opened.io, discard_deleted=True)
    }
