"""JSON Schema: columns by the types it gives, and JSON values read into them.

Columns: an object with properties is a struct, one with `additionalProperties` of a type alone a map, `integer` is
bigint, `number` double, a text of format `date` a date and of format `date-time` a timestamp. A type with null, as a
list, `oneOf` or `anyOf`, may be null; so may whatever is missing. What has no type, or several, is refused, and so is
what contains itself. Of the other words of JSON Schema none is looked at: `minimum`, `pattern`, `required` are for the
conditions of whoever reads.

A value is read by the schema of the columns, whichever it was written with: JSON has the names in it. A property that
the columns do not have is left out, one of another type makes the value one that cannot be decoded.
"""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any
from urllib.parse import unquote, urljoin

import msgspec
import pyarrow as pa

from skidway.spark.registry.schemas import (
    DEPTH_MAX,
    FIELDS_MAX,
    BadSchema,
    Schema,
    Undecodable,
    check_names,
    parse_json,
)

Take = Callable[[Any], Any]
"""From JSON to what Arrow takes; Undecodable if it is of another type."""
NOT_JSON = "the value is not JSON"
INT64 = range(-(2**63), 2**63)


def misfit(path: str) -> Undecodable:
    return Undecodable(f"the field {path} does not have the type that the schema gives it")


class Documents:
    """The schema and what it refers to, and where a reference leads."""

    def __init__(self, schema: Schema) -> None:
        self._root = parse_json(schema.text, "the schema")
        self._others = {name: parse_json(text, f"the schema {name}") for name, text in schema.references}
        base = self._root.get("$id", "") if isinstance(self._root, dict) else ""
        self._base = base if isinstance(base, str) else ""

    @property
    def root(self) -> Any:
        return self._root

    def at(self, reference: Any, base: Any) -> tuple[Any, Any]:
        """What a `$ref` in the document `base` leads to, and the document it is in."""
        if not isinstance(reference, str):
            raise BadSchema("the JSON schema has a $ref that is no text")
        name, _, pointer = reference.partition("#")
        document = base if not name or name == self._base else self._others.get(name)
        if document is None:
            document = self._others.get(urljoin(self._base, name))
        found = document
        for step in pointer.split("/")[1:] if pointer else []:
            step = unquote(step).replace("~1", "/").replace("~0", "~")
            found = found.get(step) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            raise BadSchema(f"the JSON schema refers to {reference[:100]!r}, which is not there")
        return found, document


class Columns:
    """Of a schema: their type, and what takes them from JSON."""

    def __init__(self, schema: Schema) -> None:
        self._documents = Documents(schema)
        self._count = 0
        root = self._documents.root
        kind, self.take = self._node(root, root, "", 0)
        if not pa.types.is_struct(kind):
            raise BadSchema("the JSON schema is not one of an object with properties; only that has fields for columns")
        self.type: pa.StructType = kind

    def _node(self, node: Any, base: Any, path: str, depth: int) -> tuple[pa.DataType, Take]:
        self._count += 1
        if self._count > FIELDS_MAX or depth > DEPTH_MAX:
            raise BadSchema(
                f"{path.partition('.')[0] or 'the JSON schema'} contains itself, or the schema has more than"
                f" {FIELDS_MAX} fields or {DEPTH_MAX} levels; a table has no columns for that"
            )
        if isinstance(node, dict) and "$ref" in node:
            return self._node(*self._documents.at(node["$ref"], base), path, depth + 1)
        choices = _choices(node)
        if choices is not None:
            return self._node(_only(choices, path), base, path, depth + 1)
        word = _word(node, path)
        if word == "object":
            return self._object(node, base, path, depth)
        if word == "array":
            return self._array(node, base, path, depth)
        return _plain(word, node, path)

    def _object(self, node: Any, base: Any, path: str, depth: int) -> tuple[pa.DataType, Take]:
        properties, more = node.get("properties") or {}, node.get("additionalProperties")
        if not properties and isinstance(more, dict) and more:
            kind, take = self._node(more, base, f"{path}[]", depth + 1)
            return pa.map_(pa.string(), kind), _taker_of_map(take, path)
        if not isinstance(properties, dict):
            raise BadSchema(f"the properties of {path or 'the JSON schema'} are no object")
        check_names(list(properties), path)
        prefix = f"{path}." if path else ""
        found = {name: self._node(one, base, f"{prefix}{name}", depth + 1) for name, one in properties.items()}
        takes = {name: take for name, (_, take) in found.items()}
        return pa.struct([(name, kind) for name, (kind, _) in found.items()]), _taker_of_struct(takes, path)

    def _array(self, node: Any, base: Any, path: str, depth: int) -> tuple[pa.DataType, Take]:
        if not isinstance(node.get("items"), dict):
            raise BadSchema(f"the items of {path or 'the JSON schema'} have no type of their own; give them one")
        kind, take = self._node(node["items"], base, f"{path}[]", depth + 1)
        return pa.list_(kind), _taker_of_list(take, path)


def _choices(node: Any) -> list[Any] | None:
    if not isinstance(node, dict):
        return None
    for word in ("oneOf", "anyOf", "allOf"):
        if isinstance(node.get(word), list):
            return list(node[word])
    return None


def _only(choices: list[Any], path: str) -> Any:
    others = [one for one in choices if one != {"type": "null"}]
    if len(others) != 1:
        raise _several(path)
    return others[0]


def _several(path: str) -> BadSchema:
    return BadSchema(
        f"{path or 'the value'} has no type, or several, and a column has one; give it one type, with null if need be,"
        " in a new version of the schema"
    )


def _word(node: Any, path: str) -> str:
    if not isinstance(node, dict):
        raise _several(path)
    given = node.get("type")
    if given is None and "properties" in node:
        return "object"
    if given is None:
        values = node.get("enum", [node["const"]] if "const" in node else [])
        if isinstance(values, list) and values and all(isinstance(one, str | None) for one in values):
            return "string"
    words = [one for one in (given if isinstance(given, list) else [given]) if one != "null"]
    if len(words) != 1 or not isinstance(words[0], str):
        raise _several(path)
    return words[0]


def _plain(word: str, node: Any, path: str) -> tuple[pa.DataType, Take]:
    if word == "string":
        if node.get("format") == "date":
            return pa.date32(), _taker_of_text(date.fromisoformat, path)
        if node.get("format") == "date-time":
            return pa.timestamp("us", "UTC"), _taker_of_text(_time, path)
        return pa.string(), _taker(lambda one: isinstance(one, str), path)
    if word == "integer":
        return pa.int64(), _whole(path)
    if word == "number":
        return pa.float64(), _number(path)
    if word == "boolean":
        return pa.bool_(), _taker(lambda one: isinstance(one, bool), path)
    raise BadSchema(f"{path or 'the value'} has the type {word[:40]!r}, which JSON Schema does not have")


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError("a time without an offset is none of RFC 3339")
    return found.astimezone(UTC)  # Arrow would take a time before the year 1, and readers of the table would not.


def _taker(fits: Callable[[Any], bool], path: str) -> Take:
    def take(value: Any) -> Any:
        if value is None or fits(value):
            return value
        raise misfit(path)

    return take


def _whole(path: str) -> Take:
    def take(value: Any) -> int | None:
        if value is None:
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # 1.0 is an integer in JSON Schema.
        if isinstance(value, int) and not isinstance(value, bool) and value in INT64:
            return value
        raise misfit(path)

    return take


def _number(path: str) -> Take:
    def take(value: Any) -> float | None:
        if value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                pass
        raise misfit(path)

    return take


def _taker_of_text(parse: Callable[[str], Any], path: str) -> Take:
    def take(value: Any) -> Any:
        if value is None:
            return None
        try:
            return parse(value)
        except (ValueError, TypeError, OverflowError):
            raise misfit(path) from None

    return take


def _taker_of_list(take: Take, path: str) -> Take:
    def take_all(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, list):
            raise misfit(path)
        return [take(one) for one in value]

    return take_all


def _taker_of_map(take: Take, path: str) -> Take:
    def take_all(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise misfit(path)
        return [(name, take(one)) for name, one in value.items()]

    return take_all


def _taker_of_struct(takes: dict[str, Take], path: str) -> Take:
    def take_all(value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, dict):
            raise misfit(path or "around all")
        return {name: take(value.get(name)) for name, take in takes.items()}

    return take_all


Read = Callable[[bytes], dict[str, Any]]


class JsonReader:
    """Of one schema of columns; which schema a value was written with makes no difference."""

    def __init__(self, schema: Schema) -> None:
        columns = Columns(schema)
        self._take = columns.take
        self.type = columns.type

    def reader_of(self, schema: Schema) -> Read:
        def read(value: bytes) -> dict[str, Any]:
            try:
                document = msgspec.json.decode(value)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                raise Undecodable(NOT_JSON) from None
            if not isinstance(document, dict):
                raise Undecodable(NOT_OBJECT)
            found: dict[str, Any] = self._take(document)
            return found

        return read


NOT_OBJECT = "the value is not a JSON object"
