"""Bounds of the columns of a Parquet file, as Delta keeps them, so that readers can pass over files.

They are read from the file's footer. Left out, which only means that nothing is skipped by them: columns inside lists
and maps, bytes, the greatest of floating-point numbers (NaN is greater, and the footer does not tell whether there is
one), texts longer than TEXT_MAX, and times that Python has none for, such as of the year 10000. Times are kept to the
millisecond: the least is rounded down, the greatest up.
"""

import datetime
import json
import math
from contextlib import suppress
from decimal import Decimal
from typing import Any

TEXT_MAX = 64
MILLISECOND = datetime.timedelta(milliseconds=1)


def delta_statistics(metadata: Any) -> str:
    """Of a file's pyarrow.parquet.FileMetaData, as JSON."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for column in range(metadata.num_columns):
        path = metadata.schema.column(column).path.split(".")
        if metadata.schema.column(column).max_repetition_level:
            continue
        found = [metadata.row_group(group).column(column).statistics for group in range(metadata.num_row_groups)]
        if not found or any(one is None for one in found):
            continue
        if all(one.has_null_count for one in found):
            _put(nulls, path, sum(one.null_count for one in found))
        bounded = [one for one in found if one.has_min_max]
        # A row group without bounds has nothing but nulls, or bounds that could not be had.
        if bounded and all(one.has_min_max or one.num_values == 0 for one in found):
            with suppress(OverflowError):  # A time that Python has none for: what one record says stops no commit.
                _put(least, path, _written(min(one.min for one in bounded), up=False))
            with suppress(OverflowError):
                _put(greatest, path, _written(max(one.max for one in bounded), up=True))
    return json.dumps({"numRecords": metadata.num_rows, "minValues": least, "maxValues": greatest, "nullCount": nulls})


def _put(into: dict[str, Any], path: list[str], value: Any) -> None:
    if value is None:
        return
    for step in path[:-1]:
        into = into.setdefault(step, {})
    into[path[-1]] = value


def _written(value: Any, *, up: bool) -> Any:
    """As Delta writes it; None for what has no bound there."""
    if isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) and not up else None
    if isinstance(value, str):
        return value if len(value) <= TEXT_MAX else None
    if isinstance(value, Decimal):
        return float(value) if value == Decimal(float(value)) else None
    if isinstance(value, datetime.datetime):
        return _time(value, up=up)
    return value.isoformat() if isinstance(value, datetime.date) else None


def _time(value: datetime.datetime, *, up: bool) -> str:
    micros = value.microsecond % 1000
    value = value - datetime.timedelta(microseconds=micros) + (MILLISECOND if up and micros else 0 * MILLISECOND)
    text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return f"{text}Z" if value.tzinfo is not None else text
