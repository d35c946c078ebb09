"""Bytes into columns, or reasons why not: the one door to what this package does. No Spark in it.

`decoder_of` makes a decoder by the newest schema of a subject. It may be pickled: what it has parsed and asked for is
kept by the process, for all decoders of the same schema.

An id that the registry does not know makes values that cannot be decoded, and so does whatever is wrong with a value or
with the schema it was written with. A registry that cannot be asked makes an error (`RegistryFailed`): the values may
be as they should be. Reasons are the same for values of the same kind; nothing that a value says is in them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

import pyarrow as pa

from skidway.spark.registry.folder import FolderRegistry
from skidway.spark.registry.frames import unframe, unframe_by_header
from skidway.spark.registry.http import HttpRegistry
from skidway.spark.registry.schemas import (
    AVRO,
    LATEST,
    PROTOBUF,
    BadSchema,
    Schema,
    Undecodable,
    UnknownSchema,
    Unreadable,
    resolve,
)

READERS_MAX = 256
"""Schemas that a process remembers. They never change, so each is asked for once as long as it is remembered."""
UNKNOWN_MAX = 1_000
"""Ids that the registry does not know, asked for by one task: more are not asked for."""
CHUNK_BYTES = 1024 * 1024
"""Of values that are decoded at a time: a byte of a value may become many of Python's."""

IS_NULL = "the value is null"
UNKNOWN_ID = "the registry does not know the id of its schema"
TOO_MANY_IDS = f"the registry was not asked for its schema: more than {UNKNOWN_MAX} ids in its batch are unknown"
OTHER_KIND = "its schema is of another format than that of the columns"
BAD_WRITER = "its schema cannot be parsed"
ODD = (BadSchema, KeyError, TypeError, ValueError, AttributeError, RecursionError)
"""What a schema that is none may lead to: registries check what they are given, more or less."""
NO_ARROW = (pa.ArrowException, TypeError, ValueError, OverflowError)


def no_fit(name: str) -> str:
    return f"the field {name} does not fit its column"


Read = Callable[[bytes], dict[str, Any]]
Source = HttpRegistry | FolderRegistry


class Reader(Protocol):
    type: pa.StructType

    def reader_of(self, schema: Schema) -> Read:
        """What reads values that were written with this schema; Unreadable if none can be."""
        ...


@dataclass(slots=True)
class Decoded:
    """As many rows as values; of each either the columns or the reason is null."""

    values: pa.StructArray
    reasons: list[str | None]


@dataclass(slots=True, frozen=True)
class Decoder:
    registry: Source
    schema: Schema
    """Of the columns."""
    message: str | None = None
    """Protobuf: which message of it, if it is not the first."""

    @property
    def type(self) -> pa.StructType:
        """BadSchema if there are no columns for it."""
        return _reader(self.schema, self.message).type

    def begin(self) -> "Decoding":
        """For all values of a task."""
        return Decoding(self, _reader(self.schema, self.message))


@dataclass(slots=True)
class Decoding:
    decoder: Decoder
    reader: Reader
    _reads: dict[int | str, Read | Unreadable] = field(default_factory=dict)
    _unknown: set[int | str] = field(default_factory=set)

    def decode(
        self, values: Sequence[bytes | None], headers: Sequence[bytes | None] | None = None
    ) -> Iterator[Decoded]:
        """In order and in parts. `headers`: of each value's record the one with the schema's id, None without one."""
        given = [None] * len(values) if headers is None else headers
        begin, size = 0, 0
        for place, value in enumerate(values):
            size += len(value or b"")
            if size >= CHUNK_BYTES or place == len(values) - 1:
                yield self._part(values[begin : place + 1], given[begin : place + 1])
                begin, size = place + 1, 0

    def _part(self, values: Sequence[bytes | None], headers: Sequence[bytes | None]) -> Decoded:
        rows: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for value, header in zip(values, headers, strict=True):
            try:
                rows.append(self._one(value, header))
                reasons.append(None)
            except (Undecodable, Unreadable) as error:
                rows.append(None)
                reasons.append(str(error))
        return _to_columns(rows, reasons, self.reader.type)

    def _one(self, value: bytes | None, header: bytes | None) -> dict[str, Any]:
        if value is None:
            raise Undecodable(IS_NULL)
        frame = unframe(value) if header is None else unframe_by_header(header, value)
        read = self._reads.get(frame.schema)
        if read is None:
            read = self._reads[frame.schema] = self._asked(frame.schema)
        if isinstance(read, Unreadable):
            raise Undecodable(str(read))
        return read(frame.rest)

    def _asked(self, place: int | str) -> Read | Unreadable:
        key = (self.decoder.registry, place, self.decoder.schema, self.decoder.message)
        if place in self._unknown:
            raise Undecodable(UNKNOWN_ID)
        made = _remembered.get(key)
        if made is not None:
            return made
        if len(self._unknown) >= UNKNOWN_MAX:
            raise Undecodable(TOO_MANY_IDS)
        try:
            made = _read_of(self.decoder.registry, place, self.decoder.schema.kind, self.reader)
        except UnknownSchema:
            # Not for good: the id may be given to a schema later.
            self._unknown.add(place)
            raise Undecodable(UNKNOWN_ID) from None
        while len(_remembered) >= READERS_MAX:
            _remembered.pop(next(iter(_remembered)), None)
        _remembered[key] = made
        return made


_remembered: dict[tuple[Source, int | str, Schema, str | None], Read | Unreadable] = {}


def _read_of(registry: Source, place: int | str, kind: str, reader: Reader) -> Read | Unreadable:
    answer = registry.by_id(place) if isinstance(place, int) else registry.by_guid(place)
    try:
        schema = resolve(registry, answer)
        if schema.kind != kind:
            return Unreadable(OTHER_KIND)
        return reader.reader_of(schema)
    except Unreadable as error:
        return error
    except ODD:
        return Unreadable(BAD_WRITER)


@lru_cache(16)
def _reader(schema: Schema, message: str | None) -> Reader:
    # Each needs a library of its own, which takes time and need not be there for the others.
    if schema.kind == AVRO:
        from skidway.spark.registry.avro import AvroReader

        return AvroReader(schema)
    if schema.kind == PROTOBUF:
        from skidway.spark.registry.protobuf import ProtobufReader

        return ProtobufReader(schema, message)
    from skidway.spark.registry.json_schema import JsonReader

    return JsonReader(schema)


def _to_columns(rows: list[dict[str, Any] | None], reasons: list[str | None], kind: pa.StructType) -> Decoded:
    try:
        return Decoded(pa.array(rows, kind), reasons)
    except NO_ARROW:
        pass
    for place, row in enumerate(rows):
        if row is not None and not _fits(row, kind):
            rows[place] = None
            reasons[place] = next(
                (no_fit(one.name) for one in kind if not _fits(row.get(one.name), one.type)), no_fit("around all")
            )
    return Decoded(pa.array(rows, kind), reasons)


def _fits(value: Any, kind: pa.DataType) -> bool:
    try:
        pa.array([value], kind)
    except NO_ARROW:
        return False
    return True


def decoder_of(registry: Source, subject: str, message: str | None = None) -> Decoder:
    """By the newest schema of the subject. BadSchema if there is none, or none that columns can be made by."""
    try:
        schema = resolve(registry, registry.by_version(subject, LATEST))
    except UnknownSchema:
        raise BadSchema(f"the registry has no subject {subject}, or lacks what its schema refers to") from None
    except Unreadable as error:
        raise BadSchema(f"there are no columns for the subject {subject}: {error}") from None
    if message is not None and schema.kind != PROTOBUF:
        raise BadSchema(f"the subject {subject} has no Protobuf schema, so that there is no message to choose")
    decoder = Decoder(registry, schema, message)
    try:
        decoder.type  # noqa: B018 - what is wrong with it is told here
    except ImportError as error:
        raise BadSchema(f"to decode {schema.kind} install skidway[registry]: {error}") from None
    except BadSchema:
        raise
    except ODD as error:
        raise BadSchema(f"the schema of {subject} cannot be parsed: {type(error).__name__} {str(error)[:80]}") from None
    return decoder
