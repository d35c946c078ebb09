"""What becomes of a table whose rows get other columns: fields are added, types widened, or the rows are refused.

Added: a column, or a field of a struct, also within arrays and maps; older rows have null there. Left out: rows without
a field of the table have null there. Widened: whole numbers to longer ones, float to double, decimals to more digits
before the point. All else is refused before anything is written.
"""

from dataclasses import dataclass, field
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

from skidway.spark.lake.target import BadTable

WHOLE = (ByteType(), ShortType(), IntegerType(), LongType())
BROKEN = (FloatType(), DoubleType())


@dataclass(slots=True)
class Change:
    """From the columns of a table to those that it has when it takes the given ones."""

    merged: StructType
    added: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    @property
    def is_none(self) -> bool:
        return not (self.added or self.widened)

    def check(self, table: str) -> "Change":
        if self.refused:
            raise BadTable(
                f"{table} cannot take these rows: {'; '.join(self.refused)}. Fields can be added, and types widened"
                " (int to long, float to double). Give the field another name, or archive to another path; nothing was"
                " written"
            )
        return self


def compare(there: StructType, given: StructType) -> Change:
    change = Change(StructType())
    change.merged = _struct(there, given, "", change)
    return change


def _struct(there: StructType, given: StructType, path: str, change: Change) -> StructType:
    new = {one.name: one for one in given.fields}
    fields = [
        StructField(one.name, _type(one.dataType, new[one.name].dataType, f"{path}{one.name}", change))
        if one.name in new
        else StructField(one.name, one.dataType)
        for one in there.fields
    ]
    known = {one.name for one in there.fields}
    for one in given.fields:
        if one.name not in known:
            change.added.append(f"{path}{one.name}")
            fields.append(StructField(one.name, one.dataType))
    return StructType(fields)


def _type(there: DataType, given: DataType, path: str, change: Change) -> DataType:
    if isinstance(there, StructType) and isinstance(given, StructType):
        return _struct(there, given, f"{path}.", change)
    if isinstance(there, ArrayType) and isinstance(given, ArrayType):
        return ArrayType(_type(there.elementType, given.elementType, f"{path}[]", change))
    if isinstance(there, MapType) and isinstance(given, MapType):
        key = _type(there.keyType, given.keyType, f"{path} (key)", change)
        return MapType(key, _type(there.valueType, given.valueType, f"{path}[]", change))
    if there == given:
        return there
    if is_wider(there, given):
        change.widened.append(path)
        return given
    told = f"{path} is {there.simpleString()} in the table and {given.simpleString()} in the rows"
    change.refused.append(told + (", which is narrower" if is_wider(given, there) else ""))
    return there


def is_wider(there: DataType, given: DataType) -> bool:
    for family in (WHOLE, BROKEN):
        if there in family and given in family:
            return family.index(given) > family.index(there)
    if isinstance(there, DecimalType) and isinstance(given, DecimalType):
        return given.scale == there.scale and given.precision > there.precision
    return False


def loosened(schema: StructType) -> StructType:
    """With all that may be null: a column that has none in the first batch may have one in the next."""
    return StructType([StructField(one.name, _loose(one.dataType)) for one in schema])


def _loose(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(one.name, _loose(one.dataType)) for one in kind])
    if isinstance(kind, ArrayType):
        return ArrayType(_loose(kind.elementType))
    return MapType(_loose(kind.keyType), _loose(kind.valueType)) if isinstance(kind, MapType) else kind


def small_as_int(schema: StructType) -> StructType:
    """Iceberg has no shorter whole numbers."""
    small = (ByteType(), ShortType())
    return StructType([StructField(f.name, IntegerType() if f.dataType in small else f.dataType) for f in schema])


def arrow_of(schema: StructType) -> Any:
    """As pyarrow.Schema, times in UTC."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")
