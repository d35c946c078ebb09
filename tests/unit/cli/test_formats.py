"""Messages in every format, and JSON there and back again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skidway.cli.formats import Format, Shown, from_json, writer
from skidway.client.consumer import Consumed

ALL = Shown(offset=True, timestamp=True, key=True, headers=True)
MESSAGE = Consumed("orders", 2, 41, 1_700_000_000_123, b"k1", "größe".encode(), [("a", b"1"), ("b", None)])

maybe_bytes = st.none() | st.binary(max_size=40)
header_lists = st.lists(st.tuples(st.text(max_size=10), maybe_bytes), max_size=4)


def written(form: Format, message: Consumed = MESSAGE, shown: Shown = ALL, *, terminal: bool = False) -> bytes:
    return writer(form, shown, terminal=terminal)(message)


def test_text_shows_the_value_and_what_was_asked_for() -> None:
    assert written(Format.TEXT, shown=Shown()) == "größe\n".encode()
    assert written(Format.TEXT) == "2\t41\t2023-11-14T22:13:20.123Z\ta=1,b=\tk1\tgröße\n".encode()


def test_null_is_told_from_empty() -> None:
    assert written(Format.TEXT, MESSAGE._replace(value=None), Shown()) == b"null\n"
    assert written(Format.TEXT, MESSAGE._replace(value=b""), Shown()) == b"\n"


def test_raw_adds_nothing() -> None:
    assert written(Format.RAW, MESSAGE._replace(value=b"\x00\xff")) == b"\x00\xff"


def test_hex() -> None:
    assert written(Format.HEX, MESSAGE._replace(value=b"\x00\xff"), Shown(key=True)) == b"6b31\t00ff\n"


def test_a_message_cannot_command_the_terminal() -> None:
    nasty = MESSAGE._replace(value=b"\x1b]0;owned\x07\xff tab\there")
    assert written(Format.TEXT, nasty, Shown(), terminal=True) == b"\\x1b]0;owned\\x07\\xff tab\there\n"
    assert written(Format.TEXT, nasty, Shown()) == nasty.value + b"\n", "into a file or a pipe nothing is changed"


def test_json_has_everything() -> None:
    assert json.loads(written(Format.JSON)) == {
        "topic": "orders",
        "partition": 2,
        "offset": 41,
        "timestamp": 1_700_000_000_123,
        "time": "2023-11-14T22:13:20.123Z",
        "key": "k1",
        "value": "größe",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }


@given(key=maybe_bytes, value=maybe_bytes, headers=header_lists)
def test_json_goes_there_and_back(key: bytes | None, value: bytes | None, headers: list) -> None:
    line = written(Format.JSON, MESSAGE._replace(key=key, value=value, headers=headers))
    draft = from_json(line)
    assert (draft.key, draft.value, list(draft.headers)) == (key, value, headers)
    assert draft.timestamp == MESSAGE.timestamp


def test_json_by_hand_may_be_short() -> None:
    assert from_json(b'{"value": "x"}').value == b"x"
    assert from_json(b'{"value": {"a": 1}}').value == b'{"a": 1}'
    assert from_json(b'{"headers": {"a": "1"}}').headers == [("a", b"1")]


@pytest.mark.parametrize(
    "line", [b"", b"[]", b"nonsense", b'{"value_base64": "!"}', b'{"headers": [1]}', b'{"timestamp": "now"}']
)
def test_json_that_is_no_message(line: bytes) -> None:
    with pytest.raises(ValueError):
        from_json(line)
