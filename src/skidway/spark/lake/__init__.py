"""Tables that take each batch of a streaming query once, whatever crashes: plain Parquet, Delta and Iceberg.

Executors write a batch as Parquet files into a staging folder; then one atomic step makes all of them part of the
table together with the batch's number: a manifest (Parquet), a commit with an app transaction (Delta), a snapshot and
a property (Iceberg). A batch that is run again after a crash finds its number and is skipped; what it had staged
before the step is swept away and written anew. The number is kept per query: several queries may feed one table.
With the offsets of a batch (`Span`) a table also keeps how far it has come in each partition, in the same step: it is
its own checkpoint, and takes each record once whatever becomes of Spark's.

`open_table(Target(...))`, then `write_batch(table, frame, query_id, batch_id)` inside `foreachBatch`.
"""

from skidway.spark.lake.positions import Span
from skidway.spark.lake.table import Written, open_table, write_batch
from skidway.spark.lake.target import BadTable, Target

__all__ = ["BadTable", "Span", "Target", "Written", "open_table", "write_batch"]
