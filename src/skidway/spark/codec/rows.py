"""Rows to be written, as columns of bytes: what the encoders work on, whatever Arrow types the rows came in.

A column is one array of bytes with the place and length of each row's field in it, -1 for null. Choosing rows, by
slice or by index, copies places and lengths only.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Numbers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_NOTHING: Bytes = np.empty(0, np.uint8)
_NOTHING.flags.writeable = False


@dataclass(slots=True)
class Fields:
    source: Bytes
    places: Numbers
    lengths: Numbers

    def __len__(self) -> int:
        return len(self.places)

    def take(self, rows: Numbers) -> "Fields":
        return Fields(self.source, self.places[rows], self.lengths[rows])

    def field(self, row: int) -> bytes | None:
        place, length = int(self.places[row]), int(self.lengths[row])
        return None if length < 0 else self.source[place : place + length].tobytes()


@dataclass(slots=True)
class Rows:
    keys: Fields
    values: Fields
    header_places: Numbers
    """Which of the names and values is a row's first."""
    header_counts: Numbers
    names: Fields
    header_values: Fields

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Numbers) -> "Rows":
        return Rows(
            self.keys.take(rows),
            self.values.take(rows),
            self.header_places[rows],
            self.header_counts[rows],
            self.names,
            self.header_values,
        )


def rows_of(values: pa.Array, keys: pa.Array | None, headers: pa.Array | None) -> Rows:
    """ValueError when a column has another length, another type, or a header without a name."""
    count = len(values)
    for name, column in (("key", keys), ("headers", headers)):
        if column is not None and len(column) != count:
            raise ValueError(f"column {name!r} has {len(column)} rows where the values are {count}")
    places, counts, names, header_values = _headers_of(headers, count)
    return Rows(
        fields_of(keys, "key") if keys is not None else _nulls(count),
        fields_of(values, "value"),
        places,
        counts,
        names,
        header_values,
    )


def fields_of(array: pa.Array | pa.ChunkedArray, name: str) -> Fields:
    """Of binary, string and the large kinds of them, or what Arrow casts to binary."""
    array = _whole(array)
    kind = array.type
    if not _is_bytes(kind):
        try:
            array = array.cast(pa.binary())
        except pa.ArrowException:
            raise ValueError(f"column {name!r} is {kind}; it must be binary or string: cast it first") from None
        kind = array.type
    large = pa.types.is_large_binary(kind) or pa.types.is_large_string(kind)
    bounds = _bounds(array, np.int64 if large else np.int32)
    data = array.buffers()[2]
    source = np.frombuffer(data, np.uint8) if data is not None and len(data) else _NOTHING
    # One type for numba, whatever the buffer was.
    source.flags.writeable = False
    lengths = np.diff(bounds)
    if array.null_count:
        lengths[array.is_null().to_numpy(zero_copy_only=False)] = -1
    return Fields(source, bounds[:-1], lengths)


def _is_bytes(kind: pa.DataType) -> bool:
    checks = (pa.types.is_binary, pa.types.is_string, pa.types.is_large_binary, pa.types.is_large_string)
    return any(check(kind) for check in checks)


def _whole(array: pa.Array | pa.ChunkedArray) -> pa.Array:
    return array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array


def _bounds(array: pa.Array, kind: type[np.signedinteger]) -> Numbers:
    """The offsets of the array's own slice of its buffer."""
    buffer = array.buffers()[1]
    if buffer is None or not len(array):
        return np.zeros(len(array) + 1, np.int64)
    bounds = np.frombuffer(buffer, kind)[array.offset : array.offset + len(array) + 1]
    return bounds.astype(np.int64)


def _nulls(count: int) -> Fields:
    return Fields(_NOTHING, np.zeros(count, np.int64), np.full(count, -1, np.int64))


def _headers_of(headers: pa.Array | None, count: int) -> tuple[Numbers, Numbers, Fields, Fields]:
    if headers is None or headers.null_count == count:
        return np.zeros(count, np.int64), np.zeros(count, np.int64), _nulls(0), _nulls(0)
    headers = _whole(headers)
    kind = headers.type
    large = pa.types.is_large_list(kind)
    pair = kind.value_type if large or pa.types.is_list(kind) else None
    if pair is None or not pa.types.is_struct(pair) or {field.name for field in pair} != {"key", "value"}:
        raise ValueError(f"column 'headers' is {kind}; it must be array<struct<key: string, value: binary>>")
    bounds = _bounds(headers, np.int64 if large else np.int32)
    counts = np.diff(bounds)
    if headers.null_count:
        counts[headers.is_null().to_numpy(zero_copy_only=False)] = 0
    columns = dict(zip((field.name for field in pair), headers.values.flatten(), strict=True))
    names, values = fields_of(columns["key"], "headers.key"), fields_of(columns["value"], "headers.value")
    _check_names(bounds[:-1], counts, names)
    return bounds[:-1], counts, names, values


def _check_names(places: Numbers, counts: Numbers, names: Fields) -> None:
    if not (names.lengths < 0).any():
        return
    # Only those within a row count: what lies between rows, or under null ones, is not looked at.
    owners = np.repeat(np.arange(len(counts)), counts)
    within = np.repeat(places - (np.cumsum(counts) - counts), counts) + np.arange(len(owners))
    nameless = np.flatnonzero(names.lengths[within] < 0)
    if len(nameless):
        raise ValueError(f"row {owners[nameless[0]]} has a header without a key; give it one or drop the header")
