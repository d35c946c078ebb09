"""Bodies with many records, decoded some at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.replies import JSON
from skidway.gateways.http.topics.production import RECORDS_MAX, too_many
from skidway.steps import Steps

OBJECTS_AT_ONCE = 5_000
TOKENS_AT_ONCE = 50
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]', re.DOTALL)
_SPACE = b" \t\r\n"

T = TypeVar("T")


def decode_records(
    call: HttpCall,
    body: msgspec.json.Decoder[Any],
    raw_body: msgspec.json.Decoder[Any],
    record: msgspec.json.Decoder[T],
    kinds: Sequence[bytes] = (JSON,),
) -> Steps[list[T]]:
    """The member `records` of a body that is a copy. Raises Problem."""
    assert isinstance(call.body, bytes)
    if call.body.count(b"{") <= OBJECTS_AT_ONCE:
        found: list[T] = call.decode(body, kinds).records
        return found
    raw = bytes(call.decode(raw_body, kinds).records)
    records: list[T] = []
    if not raw.startswith(b"["):
        raise Problem(422, "bad_value", "Expected `array` - at `$.records`")
    depth, begin = 0, 1
    for number, token in enumerate(_TOKEN.finditer(raw)):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
        if (mark == b"," and depth == 1) or not depth:
            records.append(_decode_one(record, raw[begin : token.start()], len(records)))
            begin = token.end()
        if not number % TOKENS_AT_ONCE:
            yield None
    return records


def decode_concatenated(call: HttpCall, record: msgspec.json.Decoder[T]) -> Steps[list[T]]:
    """A body, which is a copy, of one object behind the other. Raises Problem."""
    assert isinstance(call.body, bytes)
    call.require_json()
    raw, depth, begin = call.body, 0, 0
    records: list[T] = []
    for number, token in enumerate(_TOKEN.finditer(raw)):
        mark = token[0]
        if not depth and (mark != b"{" or raw[begin : token.start()].strip(_SPACE)):
            raise Problem(400, "bad_json", f"expected an object at byte {begin}")
        if mark in (b"{", b"["):
            depth += 1
        elif mark in (b"}", b"]"):
            depth -= 1
            if not depth:
                records.append(_decode_one(record, raw[begin : token.end()], len(records)))
                begin = token.end()
        if not number % TOKENS_AT_ONCE:
            yield None
    if depth or raw[begin:].strip(_SPACE):
        raise Problem(400, "bad_json", "the last object is not whole")
    return records


def _decode_one(record: msgspec.json.Decoder[T], raw: bytes, number: int) -> T:
    if number >= RECORDS_MAX:
        raise too_many()
    try:
        return record.decode(raw)
    except msgspec.ValidationError as error:
        raise Problem(422, "bad_value", f"{error} of `$.records[{number}]`") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Problem(400, "bad_json", f"{error} of `$.records[{number}]`") from None
    except RecursionError:
        raise Problem(400, "bad_json", "the JSON is nested too deeply") from None
