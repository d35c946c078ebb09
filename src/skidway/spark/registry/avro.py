"""Avro: columns by a reader's schema, and values resolved to it by fastavro, whatever schema they were written with.

Columns: records are structs; enums and UUIDs are texts; unions with null may be null, other unions are refused. Of
logical types decimal, date, timestamp-millis and timestamp-micros have columns of their own; any other is what lies
below it, as Avro's specification says.

fastavro is in C and recurses as a schema does, without a bound, and it believes the counts of arrays. So schemas that
recurse, go too deep, or have arrays whose items take no bytes are refused before a value is looked at. What is left
cannot cost more than the value has bytes.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from skidway.spark.registry.schemas import (
    DEPTH_MAX,
    FIELDS_MAX,
    BadSchema,
    Schema,
    Undecodable,
    Unreadable,
    check_names,
    parse_json,
)

Node = Any
"""Of a parsed schema: the name of a type, a mapping, or a list for a union."""
KEPT = {
    "date": ("int",),
    "timestamp-millis": ("long",),
    "timestamp-micros": ("long",),
    "decimal": ("bytes", "fixed"),
}
"""Logical types that have columns of their own, and on what."""
PLAIN = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "fixed": pa.binary(),
    "enum": pa.string(),
}
PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
PRECISION_MAX = 38
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LEFT_OVER = "bytes are left over behind the value"
BROKEN = "the value does not decode by the schema it was written with"
RECURSIVE = "its schema is recursive"
TOO_DEEP = f"its schema has more than {DEPTH_MAX} levels"
NO_BYTES = "its schema has an array whose items are empty"
NOT_AVRO = "its schema cannot be parsed"


def broken_field(name: str) -> str:
    return f"the field {name} does not decode"


@dataclass(slots=True)
class Parsed:
    """A schema that fastavro has taken, and all named types in it."""

    root: dict[str, Any]
    named: dict[str, Any]

    def at(self, node: Node) -> Node:
        """What a name stands for."""
        return self.named.get(node, node) if isinstance(node, str) else node

    def word(self, node: Node) -> str:
        """The kind of a node that is no union."""
        found = self.at(node)
        while isinstance(found, dict):
            found = found["type"]
            if isinstance(found, list):
                return "union"
        return str(found)


def parse(schema: Schema) -> Parsed:
    """BadSchema if it is none, or not one of a record."""
    named: dict[str, Any] = {}
    try:
        for _, text in schema.references:
            fastavro.parse_schema(_stripped(parse_json(text, "a schema that the schema refers to"), 0), named)
        root = fastavro.parse_schema(_stripped(parse_json(schema.text, "the schema"), 0), named)
    except (
        SchemaParseException,
        UnknownType,
        KeyError,
        TypeError,
        ValueError,
        AttributeError,
        RecursionError,
    ) as error:
        raise BadSchema(f"the Avro schema cannot be parsed: {str(error)[:200] or type(error).__name__}") from None
    if not isinstance(root, dict) or root.get("type") not in ("record", "error"):
        raise BadSchema("the Avro schema is not one of a record; only a record has fields for columns")
    return Parsed(root, named)


def _stripped(node: Node, depth: int) -> Node:
    """Without logical types that have no columns of their own: fastavro would make of them what no column takes."""
    if depth > 4 * DEPTH_MAX:
        raise BadSchema(f"the Avro schema has more than {DEPTH_MAX} levels")
    if isinstance(node, list):
        return [_stripped(one, depth + 1) for one in node]
    if not isinstance(node, dict):
        return node
    logical = node.get("logicalType")
    kept = isinstance(logical, str) and node.get("type") in KEPT.get(logical, ())
    return {
        name: one if name in ("default", "symbols", "aliases") else _stripped(one, depth + 1)
        for name, one in node.items()
        if kept or name != "logicalType"
    }


class Columns:
    """Of a reader's schema."""

    def __init__(self, parsed: Parsed) -> None:
        self._parsed = parsed
        self._count = 0
        self.type: pa.StructType = self._type(parsed.root, "", ())

    def _type(self, node: Node, path: str, inside: tuple[str, ...]) -> pa.DataType:
        self._count += 1
        node = self._parsed.at(node)
        if self._count > FIELDS_MAX or len(inside) > DEPTH_MAX:
            raise BadSchema(f"the Avro schema has more than {FIELDS_MAX} fields, or {DEPTH_MAX} levels")
        if isinstance(node, list):
            return self._type(_of_union(node, path), path, inside)
        word = self._parsed.word(node)
        if word in ("record", "error"):
            if node["name"] in inside:
                raise BadSchema(f"{path} is of the type it is in ({node['name']}); a table has no columns for that")
            return self._struct(node, path, (*inside, node["name"]))
        if word == "array":
            return pa.list_(self._type(node["items"], f"{path}[]", (*inside, "")))
        if word == "map":
            return pa.map_(pa.string(), self._type(node["values"], f"{path}[]", (*inside, "")))
        if word not in PLAIN:
            raise BadSchema(f"{path} is always null; a table has no column for that: give it a type")
        return _logical(node, path) or PLAIN[word]

    def _struct(self, node: Node, path: str, inside: tuple[str, ...]) -> pa.StructType:
        names = [one["name"] for one in node["fields"]]
        check_names(names, path)
        prefix = f"{path}." if path else ""
        return pa.struct(
            [(one["name"], self._type(one["type"], f"{prefix}{one['name']}", inside)) for one in node["fields"]]
        )


def _of_union(node: list[Node], path: str) -> Node:
    others = [one for one in node if one != "null"]
    if len(others) != 1:
        told = f"a union of {len(others)} types" if others else "always null"
        raise BadSchema(
            f"{path} is {told}, and a column has one; make it a union of null and one type (such as a record with a"
            " field for each), in a new version of the schema"
        )
    return others[0]


def _logical(node: Node, path: str) -> pa.DataType | None:
    logical = node.get("logicalType") if isinstance(node, dict) else None
    if logical is None:
        return None
    if logical == "date":
        return pa.date32()
    if logical == "decimal":
        precision, scale = node.get("precision"), node.get("scale", 0)
        if not (isinstance(precision, int) and isinstance(scale, int) and 0 <= scale <= precision <= PRECISION_MAX):
            raise BadSchema(f"{path} is a decimal of {precision} digits; a column has at most {PRECISION_MAX}")
        return pa.decimal128(max(precision, 1), scale)
    return pa.timestamp("us", "UTC")


class Checked:
    """A writer's schema, of which no value can cost more than it has bytes; else Unreadable."""

    def __init__(self, parsed: Parsed) -> None:
        self._parsed = parsed
        self._records: dict[str, tuple[int, int]] = {}
        self._measure(parsed.root, ())

    def _measure(self, node: Node, inside: tuple[str, ...]) -> tuple[int, int]:
        """The fewest bytes that a value takes, 0 or 1; and how many levels the schema has from here."""
        if len(inside) > DEPTH_MAX:
            raise Unreadable(TOO_DEEP)
        node = self._parsed.at(node)
        if isinstance(node, list):
            return 1, self._deepest(node, (*inside, ""))[1]
        word = self._parsed.word(node)
        if word in ("record", "error"):
            return self._of_record(node, inside)
        if word in ("array", "map"):
            least, levels = self._deepest([node["items" if word == "array" else "values"]], (*inside, ""))
            if word == "array" and not least:
                raise Unreadable(NO_BYTES)
            return 1, levels
        if word == "fixed":
            if node["size"] < 0:
                raise Unreadable(NOT_AVRO)
            return min(1, int(node["size"])), 0
        return 0 if word == "null" else 1, 0

    def _of_record(self, node: Node, inside: tuple[str, ...]) -> tuple[int, int]:
        name = node["name"]
        if name in inside:
            raise Unreadable(RECURSIVE)
        if name not in self._records:
            self._records[name] = self._deepest([one["type"] for one in node["fields"]], (*inside, name))
        if len(inside) + self._records[name][1] > DEPTH_MAX:
            raise Unreadable(TOO_DEEP)
        return self._records[name]

    def _deepest(self, nodes: list[Node], inside: tuple[str, ...]) -> tuple[int, int]:
        found = [self._measure(one, inside) for one in nodes]
        return max((least for least, _ in found), default=0), 1 + max((levels for _, levels in found), default=0)


class Resolution:
    """Whether a writer's schema can be read into a reader's; Unreadable says which field cannot."""

    def __init__(self, writer: Parsed, reader: Parsed) -> None:
        self._writer, self._reader = writer, reader
        self._check(writer.root, reader.root, "")

    def _check(self, writer: Node, reader: Node, path: str) -> None:
        reader = self._reader.at(reader)
        if isinstance(reader, list):
            others = [one for one in reader if one != "null"]
            if writer == "null":
                return
            reader = self._reader.at(others[0])
        writer = self._writer.at(writer)
        if isinstance(writer, list):
            self._check_union(writer, reader, path)
            return
        word, wanted = self._writer.word(writer), self._reader.word(reader)
        if wanted not in (word, *PROMOTED.get(word, ())) or _annotation(writer) != _annotation(reader):
            raise Unreadable(f"the field {path or 'around all'} had another type in the schema it was written with")
        if word in ("record", "error", "enum", "fixed"):
            self._check_name(writer, reader, path)
        if word in ("record", "error"):
            self._check_record(writer, reader, path)
        elif word in ("array", "map"):
            inner = "items" if word == "array" else "values"
            self._check(writer[inner], reader[inner], f"{path}[]")

    def _check_union(self, writer: list[Node], reader: Node, path: str) -> None:
        """What one of its types can be read into; a value of another is refused when it comes."""
        refused: Unreadable | None = None
        for one in writer:
            if one == "null":
                continue
            try:
                self._check(one, reader, path)
                return
            except Unreadable as error:
                refused = error
        if refused is not None:
            raise refused

    def _check_name(self, writer: Node, reader: Node, path: str) -> None:
        name, short = writer["name"], writer["name"].rpartition(".")[2]
        same = short == reader["name"].rpartition(".")[2] or {name, short} & set(reader.get("aliases", ()))
        if not same or (writer.get("size") != reader.get("size")):
            raise Unreadable(
                f"the type of {path or 'the value'} had another name, or size, in the schema it was written with"
            )

    def _check_record(self, writer: Node, reader: Node, path: str) -> None:
        there = {one["name"]: one for one in writer["fields"]}
        for one in reader["fields"]:
            names = [one["name"], *one.get("aliases", ())]
            found = next((there[name] for name in names if name in there), None)
            inner = f"{path}.{one['name']}" if path else one["name"]
            if found is not None:
                self._check(found["type"], one["type"], inner)
            elif "default" not in one:
                raise Unreadable(f"the schema it was written with lacks the field {inner}, which has no default")


def _annotation(node: Node) -> tuple[Any, Any]:
    """What must be the same for a number to mean the same."""
    if not isinstance(node, dict):
        return None, None
    logical = node.get("logicalType")
    return logical, node.get("scale", 0) if logical == "decimal" else None


def set_defaults(parsed: Parsed) -> None:
    """Defaults of the reader as values: schemas have bytes as text, and what logical types mean as numbers."""
    seen: set[int] = set()
    left: list[Node] = [parsed.root, *parsed.named.values()]
    while left:
        node = left.pop()
        if id(node) in seen or not isinstance(node, dict | list):
            continue
        seen.add(id(node))
        if isinstance(node, list):
            left += node
            continue
        for one in node.get("fields", ()):
            left.append(one["type"])
            # A field is in more than one list: fastavro copies what it has parsed.
            if "default" in one and id(one) not in seen:
                seen.add(id(one))
                one["default"] = _default(parsed, one["type"], one["default"], 0)
        left += [node[name] for name in ("type", "items", "values") if name in node]


def _default(parsed: Parsed, node: Node, value: Any, depth: int) -> Any:
    if depth > DEPTH_MAX:
        raise BadSchema(f"a default has more than {DEPTH_MAX} levels")
    node = parsed.at(node)
    if isinstance(node, list):
        others = [one for one in node if one != "null"]
        return None if value is None or not others else _default(parsed, others[0], value, depth + 1)
    try:
        return _plain_default(parsed, node, value, depth)
    except (TypeError, ValueError, AttributeError, KeyError, OverflowError, ArithmeticError) as error:
        raise BadSchema(f"the default {str(value)[:40]!r} is not of its field's type: {str(error)[:80]}") from None


def _plain_default(parsed: Parsed, node: Node, value: Any, depth: int) -> Any:
    word, (logical, scale) = parsed.word(node), _annotation(node)
    if word in ("record", "error"):
        return {
            one["name"]: _default(
                parsed, one["type"], value[one["name"]] if one["name"] in value else one["default"], depth + 1
            )
            for one in node["fields"]
        }
    if word == "array":
        return [_default(parsed, node["items"], one, depth + 1) for one in value]
    if word == "map":
        return {name: _default(parsed, node["values"], one, depth + 1) for name, one in value.items()}
    if word in ("bytes", "fixed"):
        value = value.encode("iso-8859-1") if isinstance(value, str) else value
    if logical == "decimal":
        return (
            value if isinstance(value, Decimal) else Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-scale)
        )
    if logical == "date":
        return value if isinstance(value, date) else (EPOCH + timedelta(days=value)).date()
    if logical is not None:
        unit = "milliseconds" if logical == "timestamp-millis" else "microseconds"
        return value if isinstance(value, datetime) else EPOCH + timedelta(**{unit: value})
    return value


Read = Callable[[bytes], dict[str, Any]]


class AvroReader:
    """Of one schema of columns; `reader_of` answers what reads the values of a writer's schema into them."""

    def __init__(self, schema: Schema) -> None:
        self._parsed = parse(schema)
        self.type = Columns(self._parsed).type
        set_defaults(self._parsed)

    def reader_of(self, schema: Schema) -> Read:
        try:
            writer = parse(schema)
        except BadSchema:
            raise Unreadable(NOT_AVRO) from None
        Checked(writer)
        Resolution(writer, self._parsed)
        reader = self._parsed.root

        def read(value: bytes) -> dict[str, Any]:
            stream = BytesIO(value)
            try:
                record: Any = fastavro.schemaless_reader(stream, writer.root, reader)
            except Exception:  # fastavro documents none, and answers a broken value with nearly any.
                raise Undecodable(_first_broken(writer, value)) from None
            if stream.tell() != len(value):
                raise Undecodable(LEFT_OVER)
            fields: dict[str, Any] = record
            return fields

        return read


def _first_broken(writer: Parsed, value: bytes) -> str:
    """Which field of a value that cannot be read; fields are there one after another."""
    stream = BytesIO(value)
    for one in writer.root["fields"]:
        alone = {**writer.root, "fields": [one]}
        try:
            fastavro.schemaless_reader(stream, alone, None)
        except Exception:
            return broken_field(one["name"])
    return BROKEN
