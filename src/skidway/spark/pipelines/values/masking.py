"""Masking in columns: Arrow arrays in, masked ones out, and the same for Spark's frames and types.

A hash is SHA-256 of the salt and then the value's bytes (a whole number's decimal digits), as 64 hexadecimal digits:
the same value has the same hash in every field, so masked tables can be joined. The masks are applied by the tasks in
Python: as a literal of an SQL expression the salt would be in every plan that Spark shows and logs.
"""

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructField, StructType

from skidway.spark.pipelines.values.masks import Drop, Hash, Mask, Masks, Rules

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

RAW = {"key": "__unmasked_key", "value": "__raw", "headers": "__unmasked_headers"}
"""Columns with what a record had before it was parsed and masked."""


def mask_array(array: pa.Array, rule: Mask | Rules, salt: bytes) -> pa.Array:
    """Null stays null. Dropped: all null, where a struct around it cannot leave it out."""
    if isinstance(rule, Drop):
        return pa.nulls(len(array), array.type)
    if pa.types.is_list(array.type):
        array = array if array.offset == 0 else pa.concat_arrays([array, array.slice(0, 0)])
        values = mask_array(array.values, rule, salt)
        return pa.ListArray.from_arrays(array.offsets, values, mask=array.is_null())
    if isinstance(rule, Hash):
        return _hashed(array, salt)
    if isinstance(rule, dict):
        return _masked_struct(array, rule, salt)
    cut = pc.binary_slice if _is_binary(array.type) else pc.utf8_slice_codeunits
    return cut(array, 0, rule.length)


def _masked_struct(array: pa.StructArray, rules: Rules, salt: bytes) -> pa.StructArray:
    names, columns = [], []
    for n, one in enumerate(array.type):
        rule = rules.get(one.name)
        if not isinstance(rule, Drop):
            names.append(one.name)
            columns.append(array.field(n) if rule is None else mask_array(array.field(n), rule, salt))
    return pa.StructArray.from_arrays(columns, names, mask=array.is_null())


def _hashed(array: pa.Array, salt: bytes) -> pa.Array:
    as_bytes = _is_binary(array.type)
    told = array if as_bytes else array.cast(pa.string()).cast(pa.binary())
    salted = hashlib.sha256(salt)
    hashes: list[str | None] = []
    for value in told.to_pylist():
        if value is None:
            hashes.append(None)
            continue
        one = salted.copy()
        one.update(value)
        hashes.append(one.hexdigest())
    return pa.array(hashes, pa.string()).cast(pa.binary() if as_bytes else pa.string())


def _is_binary(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def masked_type(kind: DataType, rule: Mask | Rules) -> DataType:
    """What becomes of a type."""
    if isinstance(kind, ArrayType):
        return ArrayType(masked_type(kind.elementType, rule), kind.containsNull)
    if isinstance(rule, Hash):
        return kind if isinstance(kind, BinaryType) else StringType()
    if isinstance(rule, dict):
        assert isinstance(kind, StructType)
        return StructType([_masked_field(one, rule.get(one.name)) for one in kind if not _drops(rule, one.name)])
    return kind


def _drops(rules: Rules, name: str) -> bool:
    return isinstance(rules.get(name), Drop)


def _masked_field(one: StructField, rule: Mask | Rules | None) -> StructField:
    return one if rule is None else StructField(one.name, masked_type(one.dataType, rule), True)


def mask_frame(frame: "DataFrame", masks: Masks) -> "DataFrame":
    """A frame, of a stream or not, with columns as an archive has them: value as a struct, key, headers."""
    chosen: dict[str, Column] = {}
    for name, rule in masks.record.items():
        kind = frame.schema[name].dataType
        chosen[name] = sf.lit(None).cast(kind) if isinstance(rule, Drop) else _column(frame, name, rule, masks.salt)
    if masks.value:
        chosen["value"] = _column(frame, "value", masks.value, masks.salt)
    return frame.withColumns(chosen) if chosen else frame


def unmasked_columns(frame: "DataFrame", masks: Masks) -> "dict[str, Column]":
    """Of the record as it is before it is masked, for `rejected_columns`; the value there is `__raw`, unparsed."""
    return {RAW[name]: frame[name] for name in masks.record}


def rejected_columns(frame: "DataFrame", masks: Masks, names: Sequence[str], *, keep: bool) -> "list[Column]":
    """Columns of a rejected record: as it was, or what may be stored of it, for values cannot be masked."""
    columns = []
    for name in names:
        as_it_was = name == "value" or (name in masks.record and keep)
        column = frame[RAW[name] if as_it_was else name]
        columns.append((sf.lit(None).cast("binary") if name == "value" and not keep else column).alias(name))
    return columns


def _column(frame: "DataFrame", name: str, rule: Mask | Rules, salt: bytes) -> "Column":
    def masked(values: pa.Array) -> pa.Array:
        return mask_array(values, rule, salt)

    functions: Any = sf  # Whose types do not know arrow_udf.
    column: Column = functions.arrow_udf(masked, masked_type(frame.schema[name].dataType, rule))(frame[name])
    return column
