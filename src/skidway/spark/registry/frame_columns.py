"""Values of a Spark frame decoded in its tasks, by batches of Arrow; streams and tables alike.

from skidway.spark.registry.frame_columns import from_registry
frame = spark.read.format("skidway").option("subscribe", "orders").load()
orders = from_registry(frame, "http://localhost:8081", "orders-value")
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from skidway.spark.registry.decoding import Decoder, decoder_of
from skidway.spark.registry.frames import VALUE_HEADER
from skidway.spark.registry.opening import open_registry
from skidway.spark.workers import settled

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

REASON = "reason"


def from_registry(frame: "DataFrame", registry: str, subject: str, message: str | None = None) -> "DataFrame":
    """The frame with `value` as a struct by the subject's newest schema, and a column `reason`: null, or why the value,
    which is null then, cannot be decoded. `registry`: a URL, or a folder. Credentials: the driver's environment."""
    return decoded(frame, decoder_of(open_registry(registry), subject, message), REASON)


def decoded(frame: "DataFrame", decoder: Decoder, reason: str, raw: str | None = None) -> "DataFrame":
    """`reason` and `raw` are the names of new columns; the latter has the value as it was."""
    kind = from_arrow_type(decoder.type)
    fields = [StructField(one.name, kind if one.name == "value" else one.dataType) for one in frame.schema]
    fields.append(StructField(reason, StringType()))
    if raw is not None:
        fields.append(StructField(raw, frame.schema["value"].dataType))

    def decode(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return settled(_decoded(batches, decoder, reason, raw))

    functions: Any = frame
    answer: DataFrame = functions.mapInArrow(decode, StructType(fields))
    return answer


def _decoded(
    batches: Iterator[pa.RecordBatch], decoder: Decoder, reason: str, raw: str | None
) -> Iterator[pa.RecordBatch]:
    decoding = decoder.begin()
    for batch in batches:
        headers = _id_headers(batch.column("headers")) if "headers" in batch.schema.names else None
        done = 0
        for part in decoding.decode(batch.column("value").to_pylist(), headers):
            rows = batch.slice(done, len(part.reasons))
            done += len(part.reasons)
            columns = {name: rows.column(name) for name in batch.schema.names}
            columns |= {"value": part.values, reason: pa.array(part.reasons, pa.string())}
            if raw is not None:
                columns[raw] = rows.column("value")
            yield pa.RecordBatch.from_pydict(columns)


def _id_headers(headers: pa.Array) -> list[bytes | None] | None:
    """Of each record the last header with a schema's id; None if no record has one."""
    flat = headers.flatten()
    if not flat or VALUE_HEADER not in flat.field("key").unique().to_pylist():
        return None
    return [
        next((one["value"] or b"" for one in reversed(each or ()) if one["key"] == VALUE_HEADER), None)
        for each in headers.to_pylist()
    ]


def ddl_of(kind: pa.StructType) -> str:
    """The columns as Spark's SQL writes them: `id` INT, `at` STRUCT<…>."""
    found = from_arrow_type(kind)
    assert isinstance(found, StructType)
    return ", ".join(f"{_quoted(one.name)} {_written(one.dataType)}" for one in found)


def _written(kind: DataType) -> str:
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{_quoted(one.name)}: {_written(one.dataType)}' for one in kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_written(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_written(kind.keyType)}, {_written(kind.valueType)}>"
    return kind.simpleString().upper()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
