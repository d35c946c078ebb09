"""What the decoders work on: a run of record batches whose records become rows of one table.

The batches of a run lie unpacked in one buffer, their headers were checked, and they share a timestamp type, so that
the readers (`decode_kernel`, `decode_python`) only have to look at records. Both give the same parts for the same run.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import pyarrow as pa

from skidway.records.batch import BatchHeader

HEADERS_TYPE = pa.list_(pa.field("element", pa.struct([("key", pa.string()), ("value", pa.binary())])))
TIMESTAMP_TYPE = pa.timestamp("us", tz="UTC")

TIMESTAMP_MS_MAX = (2**63 - 1) // 1000
"""Milliseconds that still fit as microseconds; what a producer set beyond is held at this, so that its row is kept."""


class Piece(NamedTuple):
    """One batch of a run: where its records lie in the buffer."""

    header: BatchHeader
    position: int
    end: int


@dataclass(slots=True)
class Run:
    source: memoryview
    pieces: list[Piece]


@dataclass(slots=True)
class Wanted:
    """Which rows and columns of a run to build, and how much of it at a time."""

    start: int
    end: int
    columns: frozenset[str]
    rows_max: int
    bytes_max: int
    """Keys, values and headers of one part; a single larger row is a part of its own."""


@dataclass(slots=True)
class Part:
    """Some rows of a run: those of key, value, offset, timestamp and headers that were wanted."""

    rows: int
    columns: dict[str, pa.Array]


class MalformedRecord(Exception):
    """The records of one batch are not what its header says."""

    def __init__(self, base_offset: int, reason: str) -> None:
        super().__init__(base_offset, reason)
        self.base_offset = base_offset
        self.reason = reason


class Reader(Protocol):
    def read(self, run: Run, wanted: Wanted) -> Iterator[Part]:
        """The wanted rows in their order; MalformedRecord."""
        ...
