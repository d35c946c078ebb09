"""Messages in every format, and JSON there and back again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skidway.blocking_client.consumer import Consumed
from skidway.cli.formats import Format, Shown, writer
from skidway.cli.json_lines import BadLine, from_json, json_value

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
    assert written(Format.TEXT, nasty, Shown()) == b"\x1b]0;owned\x07\xff tab\there\n", (
        "into a file or a pipe nothing is changed"
    )


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
def test_json_goes_there_and_back(key: bytes | None, value: bytes | None, headers: list[Any]) -> None:
    line = written(Format.JSON, MESSAGE._replace(key=key, value=value, headers=headers))
    draft = from_json(line)
    assert (draft.key, draft.value, list(draft.headers)) == (key, value, headers)
    assert draft.timestamp == MESSAGE.timestamp


def test_json_by_hand_may_be_short() -> None:
    assert from_json(b'{"value": "x"}').value == b"x"
    assert from_json(b'{"value": null}').value is None
    assert from_json(b'{"value": {"a": 1}}').value == b'{"a": 1}'
    assert from_json(b'{"value": "x", "headers": {"a": "1"}}').headers == [("a", b"1")]
    assert from_json(b'{"value": "x", "partition": 3}').partition == 3
    assert from_json(b'{"value": "x", "time": "2023-11-14T22:13:20.123Z"}').timestamp == MESSAGE.timestamp
    assert from_json(b'{"value": "x", "time": "2020-01-01", "timestamp": 5}').timestamp == 5


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"", "not JSON"),
        (b"nonsense", "not JSON: Expecting value at column 1"),
        (b'{"value": "\xff"}', "not UTF-8"),
        (b'{"value": NaN}', "NaN is not a JSON number"),
        (b"[]", "a list instead of a JSON object"),
        (b'"hello"', "--format json-value sends each line as a value"),
        (b"{}", "no value (the message; null makes a tombstone)"),
        (b'{"key": "ann", "valeu": "b"}', "unknown field 'valeu', did you mean 'value'?"),
        (b'{"name": "ann", "age": 5}', "unknown field 'name'"),
        (b'{"name": "ann", "age": 5}', "--format json-value sends each line as a value"),
        (b'{"value": "a", "value": "b"}', "the field 'value' is there twice"),
        (b'{"value": "a", "value_base64": "YQ=="}', "both value and value_base64"),
        (b'{"value_base64": "!"}', "value_base64 is not base64"),
        (b'{"value_base64": null}', "value_base64 is not base64"),
        (b'{"value": "\\ud800"}', "half of a surrogate pair"),
        (b'{"value": 1, "headers": [1]}', "a header without a name"),
        (b'{"value": 1, "headers": "a=b"}', "headers is 'a=b'; expected [{"),
        (b'{"value": 1, "headers": [{"name": "a"}]}', "no value (of the header 'a')"),
        (b'{"value": 1, "headers": [{"name": "a", "value": "b", "v": 1}]}', "unknown field 'v'"),
        (b'{"value": 1, "partition": "0"}', "partition is '0'; expected a number, 0 or greater"),
        (b'{"value": 1, "partition": -1}', "partition is -1; expected a number, 0 or greater"),
        (b'{"value": 1, "partition": true}', "partition is True; expected a number"),
        (b'{"value": 1, "timestamp": "now"}', "timestamp is 'now'; expected milliseconds since 1970"),
        (b'{"value": 1, "timestamp": 1.5}', "timestamp is 1.5"),
        (b'{"value": 1, "timestamp": 9223372036854775808}', "expected milliseconds"),
        (b'{"value": 1, "time": "yesterday"}', "time is 'yesterday'"),
        (b'{"value": 1, "time": 5}', "time is 5; expected text"),
        (b'{"value": 1, "topic": 5}', "topic is 5; expected text"),
        (b'{"value": 1, "offset": "5"}', "offset is '5'; expected a number"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_json_that_is_no_message(line: bytes, said: str) -> None:
    with pytest.raises(BadLine) as refused:
        from_json(line)
    assert said in str(refused.value)


def test_a_json_value_is_sent_byte_for_byte() -> None:
    line = b' {"price": 1.10,  "name": "gr\\u00f6\xc3\x9fe"} '
    assert json_value(line).value == line
    assert json_value(b"null").value == b"null"
    with pytest.raises(BadLine):
        json_value(b"{nonsense}")
