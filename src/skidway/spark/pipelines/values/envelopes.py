"""Change data as Debezium writes it: what a record says about which row. No Spark in it.

The value is an envelope `{"op": …, "before": …, "after": …, "source": …}`, alone or as the `payload` beside a
`schema`; so is the key. `op` is c (create), u (update), d (delete) or r (read by a snapshot). A value of null is a
tombstone. `Reader` turns Arrow arrays of keys and values into one of structs, with a reason where a record is refused.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from msgspec import UNSET, Raw, Struct, UnsetType

from skidway.spark.lake.changes import CREATE, DELETE, READ, TOMBSTONE, UPDATE, Position, State, Value
from skidway.spark.pipelines.options import BadPipeline
from skidway.spark.pipelines.values.rejects import NOT_OBJECT, NOT_TEXT

KEY_BYTES_MAX = 8_192
SOURCE_TEXT_MAX = 1_024
NOT_ENVELOPE = "the value is not an envelope with op, source, before and after"
UNKNOWN_OP = "the op is not c, u, d or r"
NO_AFTER = "the envelope has no after"
NO_KEY = "the record has no key"
LONG_KEY = f"the key is longer than {KEY_BYTES_MAX} bytes"
KEY_NOT_TEXT = "the key is not UTF-8 text"
AUTO = "auto"
ORDERS = (
    ("lsn",),
    ("file", "pos", "row"),
    ("scn",),
    ("commit_lsn", "change_lsn", "event_serial_no"),
    ("ts_ms",),
)
"""By which fields of `source` changes are put in order, the first of which a record has all of the time."""


def no_position(fields: Sequence[str]) -> str:
    return f"the source has no {fields[0]}"


class Told(NamedTuple):
    """What a record says. `row` is JSON; `old_key`: of the row that an update has moved to another key."""

    kind: str
    key: str
    old_key: str | None = None
    position: str | None = None
    row: str | None = None


class Envelope(Struct):
    payload: Raw | UnsetType = UNSET
    schema: Raw | UnsetType = UNSET
    op: str | None = None
    before: Raw = Raw(b"null")
    after: Raw = Raw(b"null")
    source: dict[str, Any] | None = None


class Key(NamedTuple):
    text: str


@dataclass(slots=True)
class Order:
    """Fields of `source`, of which a record must have the first; none: the first of `ORDERS` that fits."""

    fields: tuple[str, ...] = ()

    def position(self, source: dict[str, Any]) -> Position | None:
        for fields in [self.fields] if self.fields else ORDERS:
            values = [source.get(name) for name in fields]
            if values[0] is not None and all(_is_value(value) for value in values):
                return Position(tuple(zip(fields, values, strict=True)))
        return None


def _is_value(value: Value | Any) -> bool:
    if isinstance(value, str):
        return len(value) <= SOURCE_TEXT_MAX
    return value is None or (isinstance(value, int) and not isinstance(value, bool))


def order_of(text: str) -> Order:
    """`auto`, or fields with commas between: file,pos,row."""
    if text.strip() == AUTO:
        return Order()
    fields = tuple(name.strip() for name in text.split(","))
    if not all(fields) or any(name.startswith("$") for name in fields):
        raise BadPipeline(f"order_by must be auto or fields of source, as file,pos,row; not {text!r}")
    return Order(fields)


@dataclass(slots=True)
class Reader:
    """Can be pickled. `key`: fields of the row that are its key; none: the record's key is. `salt`: hashes keys."""

    key: list[str]
    order: Order
    salt: bytes = b""

    def __call__(self, keys: pa.Array, values: pa.Array) -> pa.Array:
        told = [self.read(key, value) for key, value in zip(keys.to_pylist(), values.to_pylist(), strict=True)]
        rows = [{"reason": one} if isinstance(one, str) else {**one._asdict(), "reason": None} for one in told]
        return pa.array(rows, ARROW)

    def read(self, key: bytes | None, value: bytes | None) -> Told | str:
        """Or the reason why not."""
        if value is None:
            return self._tombstone(key)
        try:
            envelope = msgspec.json.decode(value, type=Envelope)
            if isinstance(envelope.payload, Raw) and envelope.op is None:
                if bytes(envelope.payload) == b"null":
                    return self._tombstone(key)
                envelope = msgspec.json.decode(envelope.payload, type=Envelope)
            before, after = _text(envelope.before), _text(envelope.after)
        except UnicodeDecodeError:
            return NOT_TEXT
        except msgspec.ValidationError:
            return NOT_ENVELOPE if value.lstrip()[:1] == b"{" else NOT_OBJECT
        except (msgspec.DecodeError, RecursionError):
            return NOT_OBJECT
        if envelope.op is None or envelope.source is None:
            return NOT_ENVELOPE
        return self._change(key, envelope.op, before, after, envelope.source)

    def _change(
        self, key: bytes | None, op: str, before: str | None, after: str | None, source: dict[str, Any]
    ) -> Told | str:
        if op not in (CREATE, UPDATE, DELETE, READ):
            return UNKNOWN_OP
        if op != DELETE and after is None:
            return NO_AFTER
        position = self.order.position(source)
        if position is None:
            return no_position(self.order.fields or ORDERS[-1])
        found = self._key(key, before if op == DELETE else after)
        if not isinstance(found, Key):
            return found
        old = self._key(None, before) if op == UPDATE and self.key and before is not None else None
        moved = old.text if isinstance(old, Key) and old.text != found.text else None
        return Told(op, found.text, moved, State(position).text(), None if op == DELETE else after)

    def _tombstone(self, key: bytes | None) -> Told | str:
        found = self._key(key, None)
        return Told(TOMBSTONE, found.text) if isinstance(found, Key) else found

    def _key(self, key: bytes | None, row: str | None) -> Key | str:
        """Of the fields of the row, or else of the record's key."""
        try:
            told = _record_key(key)
        except UnicodeDecodeError:
            return KEY_NOT_TEXT
        if self.key:
            fields = msgspec.json.decode(row) if row is not None else {}
            beside = told if isinstance(told, dict) else {}
            values = {name: fields.get(name, beside.get(name)) for name in self.key}
            if any(value is None for value in values.values()):
                return NO_KEY
            told = values
        if told is None:
            return NO_KEY
        text = msgspec.json.encode(told, order="sorted")
        if len(text) > KEY_BYTES_MAX:
            return LONG_KEY
        if not self.salt:
            return Key(text.decode())
        return Key(hashlib.sha256(self.salt + text).hexdigest())


def _record_key(key: bytes | None) -> Any:
    """What JSON says, of `payload` if it is beside a `schema`; a text that is no JSON is itself."""
    if key is None:
        return None
    text = key.decode()
    try:
        told = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    if isinstance(told, dict) and told.keys() == {"schema", "payload"}:
        return told["payload"]
    return told


def _text(raw: Raw) -> str | None:
    """None for null; msgspec.ValidationError if it is no object."""
    content = bytes(raw)
    if content == b"null":
        return None
    if content[:1] != b"{":
        raise msgspec.ValidationError("before and after are objects")
    return content.decode()


COLUMNS = ("reason", *Told._fields)
ARROW = pa.struct([(name, pa.string()) for name in COLUMNS])
SPARK = ", ".join(f"{name} string" for name in COLUMNS)
