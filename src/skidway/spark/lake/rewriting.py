"""The rows of a Delta table once more, with wider types.

Delta knows no widening without a feature of the protocol that deltalake cannot write. So all rows are rewritten, in
the commit that adds the batch, as files with the wide types in the place of the old ones. That is done here, on the
driver, for tables up to REWRITE_BYTES_MAX.
"""

from typing import Any

import pyarrow as pa

from skidway.spark.lake.staging import Attempt, DataFile
from skidway.spark.lake.target import BadTable
from skidway.spark.lake.uploading import Part, PartWriter, data_file

REWRITE_BYTES_MAX = 1024 * 1024 * 1024
ROWS_PER_BATCH = 16_384


def check_size(table: Any, widened: list[str], url: str) -> None:
    size = sum(pa.table(table.get_add_actions(flatten=False)).column("size_bytes").to_pylist())
    if size > REWRITE_BYTES_MAX:
        raise BadTable(
            f"{', '.join(widened)} of the Delta table at {url} cannot be widened in passing: its {size:,} bytes would"
            f" have to be rewritten, and that is done up to {REWRITE_BYTES_MAX:,}. Rewrite it with Spark, or archive to"
            " another path; nothing was written"
        )


def rewritten(table: Any, schema: pa.Schema, attempt: Attempt, partition_by: list[str]) -> list[DataFile]:
    """All rows of the table in files of the attempt, with these columns."""
    part = PartWriter.of(Part(attempt, partition_by, keep_columns=False))
    attempt.make()
    for batch in table.to_pyarrow_dataset().to_batches(batch_size=ROWS_PER_BATCH):
        if batch.num_rows:
            part.write(widened(batch, schema))
    answers = part.finish()
    return [data_file({name: value for name, value in one.items() if name != "counts"}) for one in answers]


def widened(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)
