"""What records of change data say, one by one. Without Spark."""

import hashlib
import json
from typing import Any

import pyarrow as pa
import pytest

from skidway.spark.pipelines.options import BadPipeline
from skidway.spark.pipelines.values.envelopes import (
    ARROW,
    KEY_BYTES_MAX,
    KEY_NOT_TEXT,
    LONG_KEY,
    NO_AFTER,
    NO_KEY,
    NOT_ENVELOPE,
    NOT_OBJECT,
    NOT_TEXT,
    UNKNOWN_OP,
    Order,
    Reader,
    Told,
    order_of,
)

READER = Reader([], Order())
SOURCE = {"connector": "postgresql", "lsn": 7, "ts_ms": 1}


def envelope(op: str, before: Any = None, after: Any = None, source: Any = None) -> bytes:
    return json.dumps({"op": op, "before": before, "after": after, "source": source or SOURCE, "ts_ms": 2}).encode()


def with_schema(document: bytes) -> bytes:
    return b'{"schema": {"type": "struct", "fields": []}, "payload": ' + document + b"}"


@pytest.mark.parametrize("form", [bytes, with_schema])
def test_changes_in_both_forms(form: Any) -> None:
    key = form(b'{"id": 1}')
    row = {"id": 1, "name": "ann"}
    for op in "cru":
        told = READER.read(key, form(envelope(op, None if op == "c" else row, row)))
        assert told == Told(op, '{"id":1}', None, '{"lsn":7}', '{"id": 1, "name": "ann"}')
    assert READER.read(key, form(envelope("d", row))) == Told("d", '{"id":1}', None, '{"lsn":7}')
    assert READER.read(key, None) == Told("t", '{"id":1}')
    assert READER.read(key, form(b"null")) == (Told("t", '{"id":1}') if form is with_schema else NOT_OBJECT)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", NOT_OBJECT),
        (b"[1]", NOT_OBJECT),
        (b'"text"', NOT_OBJECT),
        (b'{"op": "c"', NOT_OBJECT),
        (b"[" * 100_000, NOT_OBJECT),
        (b'{"id": 1}', NOT_ENVELOPE),
        (b'{"op": 1}', NOT_ENVELOPE),
        (b'{"op": "c", "after": 5, "source": {"lsn": 1}}', NOT_ENVELOPE),
        (b'{"op": "c", "after": {}, "source": 1}', NOT_ENVELOPE),
        (b'{"payload": {"id": 1}}', NOT_ENVELOPE),
        (b'{"payload": 5}', NOT_ENVELOPE),
        (b'{"op": "c", "after": {"a": "\xff"}, "source": {"lsn": 1}}', NOT_TEXT),
        (envelope("t", None, None), UNKNOWN_OP),
        (envelope("c", {"id": 1}), NO_AFTER),
        (envelope("c", None, {"id": 1}, {"lsn": None}), "the source has no ts_ms"),
        (envelope("c", None, {"id": 1}, {"lsn": 1.5}), "the source has no ts_ms"),
    ],
)
def test_what_is_refused(value: bytes, reason: str) -> None:
    assert READER.read(b"1", value) == reason


def test_keys_of_records() -> None:
    value = envelope("c", None, {"id": 1})

    def key(told: bytes | None) -> str:
        read = READER.read(told, value)
        return read.key if isinstance(read, Told) else read

    assert key(b'{"b": 2,  "a": "x"}') == key(with_schema(b'{"a":"x","b":2}')) == '{"a":"x","b":2}'
    assert key(b"42") == "42"
    assert key("zoë".encode()) == '"zoë"'
    assert key(None) == key(b"null") == NO_KEY
    assert key(b"\xff\xfe") == KEY_NOT_TEXT
    assert key(b"k" * KEY_BYTES_MAX) == LONG_KEY
    assert READER.read(None, None) == NO_KEY


def test_keys_of_fields() -> None:
    reader = Reader(["id", "region"], Order())
    row = {"region": "eu", "id": 1, "name": "ann"}
    assert reader.read(None, envelope("c", None, row)) == Told(
        "c", '{"id":1,"region":"eu"}', None, '{"lsn":7}', json.dumps(row)
    )
    assert reader.read(None, envelope("d", row)) == Told("d", '{"id":1,"region":"eu"}', None, '{"lsn":7}')
    # What the row does not have the record's key may have.
    beside = b'{"id": 1, "region": "eu"}'
    assert reader.read(beside, envelope("d")) == Told("d", '{"id":1,"region":"eu"}', None, '{"lsn":7}')
    assert reader.read(beside, None) == Told("t", '{"id":1,"region":"eu"}')
    assert reader.read(None, envelope("c", None, {"id": 1, "region": None})) == NO_KEY
    assert reader.read(b"1", None) == NO_KEY


def test_an_update_that_moves_a_row_says_which_key_it_had() -> None:
    reader = Reader(["id"], Order())
    moved = reader.read(None, envelope("u", {"id": 1}, {"id": 2}))
    assert moved == Told("u", '{"id":2}', '{"id":1}', '{"lsn":7}', '{"id": 2}')
    stays = reader.read(None, envelope("u", {"id": 2, "n": 1}, {"id": 2, "n": 3}))
    assert isinstance(stays, Told)
    assert stays.old_key is None


@pytest.mark.parametrize(
    ("source", "position"),
    [
        ({"lsn": 5, "ts_ms": 1}, '{"lsn":5}'),
        ({"file": "binlog.1", "pos": 4, "row": 0, "ts_ms": 1}, '{"file":"binlog.1","pos":4,"row":0}'),
        ({"file": "binlog.1", "pos": 4}, '{"file":"binlog.1","pos":4,"row":null}'),
        ({"scn": "123", "ts_ms": 1}, '{"scn":"123"}'),
        ({"commit_lsn": "0:1", "ts_ms": 1}, '{"commit_lsn":"0:1","change_lsn":null,"event_serial_no":null}'),
        ({"ts_ms": 9}, '{"ts_ms":9}'),
    ],
)
def test_positions_by_what_the_source_has(source: dict[str, Any], position: str) -> None:
    told = READER.read(b"1", envelope("c", None, {}, source))
    assert isinstance(told, Told)
    assert told.position == position


def test_positions_as_they_are_asked_for() -> None:
    reader = Reader([], order_of("ts_ms, ord"))
    told = reader.read(b"1", envelope("c", None, {}, {"lsn": 5, "ts_ms": 9, "ord": 2}))
    assert isinstance(told, Told)
    assert told.position == '{"ts_ms":9,"ord":2}'
    assert reader.read(b"1", envelope("c", None, {}, {"lsn": 5})) == "the source has no ts_ms"
    for wrong in ("", "a,,b", "$snapshot"):
        with pytest.raises(BadPipeline, match="order_by must be auto or fields of source"):
            order_of(wrong)


def test_arrays_of_records_and_hashed_keys() -> None:
    reader = Reader([], Order(), salt=b"0123456789abcdef")
    read = reader(pa.array([b"1", None], pa.binary()), pa.array([envelope("c", None, {"id": 1}), b"?"], pa.binary()))
    assert read.type == ARROW
    hashed = hashlib.sha256(b"0123456789abcdef1").hexdigest()
    assert read.to_pylist() == [
        {"reason": None, "kind": "c", "key": hashed, "old_key": None, "position": '{"lsn":7}', "row": '{"id": 1}'},
        dict.fromkeys(("kind", "key", "old_key", "position", "row")) | {"reason": NOT_OBJECT},
    ]
