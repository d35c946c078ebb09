"""The protocol of SDKs since the end of 2023: `X-Amz-Target: AmazonSQS.<Action>`, JSON 1.0 both ways, on any path.

Members that nobody knows are ignored, null is the same as not there. A body is looked over before it is decoded: what
would become more objects than any request needs is refused.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from skidway.gateways.http.bounds import JSON_DEPTH_MAX
from skidway.gateways.http.replies import Reply
from skidway.gateways.sqs.actions import ACTIONS, Action
from skidway.gateways.sqs.bounds import JSON_TOKENS_MAX
from skidway.gateways.sqs.errors import SqsError, bad_serialization, unknown_operation
from skidway.gateways.sqs.shapes import Answer, Request

CONTENT_TYPE = b"application/x-amz-json-1.0"
TARGET_PREFIX = "AmazonSQS."
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{},]', re.DOTALL)
_encode = msgspec.json.Encoder().encode
_decoders: dict[str, msgspec.json.Decoder[Any]] = {}


def find_action(target: str) -> Action:
    """Raises SqsError."""
    prefix, name = target[: len(TARGET_PREFIX)], target[len(TARGET_PREFIX) :]
    action = ACTIONS.get(name)
    if prefix != TARGET_PREFIX or action is None:
        raise unknown_operation(target)
    return action


def decode(action: Action, body: bytes | memoryview) -> Request:
    """Raises SqsError."""
    raw = bytes(body) or b"{}"
    check_size(raw)
    decoder = _decoders.get(action.name)
    if decoder is None:
        decoder = _decoders[action.name] = msgspec.json.Decoder(action.request)
    try:
        request: Request = decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise bad_serialization(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise bad_serialization(f"the body is not JSON: {error}") from None
    except RecursionError:
        raise _too_deep() from None
    return request


def check_size(raw: bytes) -> None:
    """Refuse what is nested too deeply or has too many members, before there are objects of it."""
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") <= JSON_DEPTH_MAX:
        return
    depth = tokens = 0
    for token in _TOKEN.finditer(raw):
        mark = token[0]
        if mark in (b"{", b"["):
            depth += 1
            if depth > JSON_DEPTH_MAX:
                raise _too_deep()
        elif mark in (b"}", b"]"):
            depth -= 1
        elif mark != b",":
            continue
        tokens += 1
        if tokens > JSON_TOKENS_MAX:
            raise bad_serialization(f"the body has more than {JSON_TOKENS_MAX} brackets and commas")


def _too_deep() -> SqsError:
    return bad_serialization(f"the body is nested more than {JSON_DEPTH_MAX} levels deep")


def encode(answer: Answer, request_id: str) -> Reply:
    return Reply(200, CONTENT_TYPE, _encode(answer), _headers(request_id))


def encode_error(error: SqsError, request_id: str) -> Reply:
    body = _encode({"__type": error.type, "message": error.message})
    more = b"x-amzn-query-error: %b;%b\r\n" % (error.code.encode(), error.fault.encode())
    return Reply(error.status, CONTENT_TYPE, body, _headers(request_id) + more)


def _headers(request_id: str) -> bytes:
    return b"x-amzn-requestid: %b\r\ncache-control: no-store\r\n" % request_id.encode()
