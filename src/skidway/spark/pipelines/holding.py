"""The lease that a pipeline's driver has on its checkpoint while it runs.

A checkpoint on another file system than ours has none: there Spark's own logs and the tables tell drivers apart, later
and less kindly, and a batch still gets into a table once.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from skidway.spark.lake.staging import PRIVATE
from skidway.spark.lake.table import Table
from skidway.spark.lease.keeping import Keeper, hold
from skidway.spark.objects import Bucket, ObjectStore
from skidway.spark.pipelines.checkpoints import local_folder
from skidway.spark.pipelines.options import Common, parse_duration_ms
from skidway.spark.stores import FolderStore

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass(slots=True)
class Holding:
    keepers: list[Keeper] = field(default_factory=list)

    @property
    def lost(self) -> bool:
        return any(keeper.lost for keeper in self.keepers)

    def permit(self) -> None:
        """Raises LeaseLost where the driver may not commit any more."""
        for keeper in self.keepers:
            keeper.check()

    def follow(self, query: "StreamingQuery") -> "StreamingQuery":
        """The lease goes when the query has ended."""
        for keeper in self.keepers:
            keeper.follow(query)
        return query

    def release(self) -> None:
        for keeper in self.keepers:
            keeper.release()


def hold_checkpoint(name: str, options: Common) -> Holding:
    """Busy if another driver has it and lives, and does not end while `options.wait` says to wait."""
    folder = local_folder(options.folder(name))
    if folder is None:
        return Holding()
    return Holding([hold(f"the checkpoint {folder}", FolderStore(folder), _wait_s(options))])


def hold_table(table: Table, options: Common) -> Holding:
    """Of a table in an object store too: its drivers may be on machines that share no checkpoint."""
    if not isinstance(table.root, Bucket):
        return Holding()
    store = ObjectStore(table.root, PRIVATE)
    return Holding([hold(f"the table {table.root.url}", store, _wait_s(options))])


def _wait_s(options: Common) -> float:
    return parse_duration_ms(options.wait) / 1000
