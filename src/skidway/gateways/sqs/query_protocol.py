"""The protocol of older SDKs: a form with `Action`, XML back.

A form may be the body of a POST or the query of a GET. It goes to `/` or to the path of a queue; a parameter QueueUrl
is worth more than the path. Lists and maps are flat. The tables say how what the JSON protocol knows by one name is
spelled here, in requests and in answers.
"""

from __future__ import annotations

import re
from types import UnionType
from typing import Any, get_args, get_type_hints

import msgspec

from skidway.gateways.http.replies import Reply
from skidway.gateways.sqs.actions import ACTIONS, Action
from skidway.gateways.sqs.errors import SqsError, bad_serialization, invalid_value, unknown_operation
from skidway.gateways.sqs.forms import Leaves, Tree, grow, items
from skidway.gateways.sqs.shapes import Answer, Request, Shape
from skidway.gateways.sqs.texts import only_allowed

CONTENT_TYPE = b"text/xml"
FORM = b"application/x-www-form-urlencoded"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
LISTS = {
    "AttributeNames": "AttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "MessageAttributeNames": "MessageAttributeName",
    "TagKeys": "TagKey",
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
    "StringListValues": "StringListValue",
    "BinaryListValues": "BinaryListValue",
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
    "Messages": "Message",
    "Failed": "BatchResultErrorEntry",
    "Results": "ListMessageMoveTasksResultEntry",
}
MAPS = {
    "Attributes": ("Attribute", "Name", "Value"),
    "MessageAttributes": ("MessageAttribute", "Name", "Value"),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name", "Value"),
    "Tags": ("Tag", "Key", "Value"),
    "tags": ("Tag", "Key", "Value"),
}
ENTRIES = "Entries"
SUCCESSFUL = "Successful"
OF_ACCOUNT = ("CreateQueue", "ListQueues")
"""Actions that a queue's path refuses."""
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,18}")
_SPECIAL = re.compile("[&<>\"'\r]")
_ESCAPES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&apos;", "\r": "&#xD;"}


# --- requests ---


def find_action(leaves: Leaves) -> Action:
    """Raises SqsError."""
    name = leaves.get("Action", "")
    action = ACTIONS.get(name)
    if action is None:
        raise unknown_operation(name)
    return action


def decode(action: Action, leaves: Leaves, path: list[str]) -> Request:
    """Raises SqsError."""
    tree = grow(leaves)
    of_queue = len(path) >= 2
    if of_queue and action.name in OF_ACCOUNT:
        raise unknown_operation(action.name)
    if of_queue and action.takes_queue:
        tree.setdefault("QueueUrl", "/".join(["", *path]))
    try:
        return msgspec.convert(_plain(action.request, tree, action.name), action.request)
    except msgspec.ValidationError as error:
        raise bad_serialization(str(error)) from None


class _Field(msgspec.Struct, frozen=True):
    name: str
    inner: type[Shape] | None
    """What a list or a map is made of, if it is a shape."""
    is_number: bool


_fields: dict[type[Shape], list[_Field]] = {}


def _fields_of(shape: type[Shape]) -> list[_Field]:
    found = _fields.get(shape)
    if found is None:
        hints = get_type_hints(shape)
        found = _fields[shape] = [
            _Field(field.encode_name, _inner(hints[field.name]), hints[field.name] == int | None)
            for field in msgspec.structs.fields(shape)
        ]
    return found


def _inner(hint: Any) -> type[Shape] | None:
    for each in get_args(hint):
        if isinstance(each, type) and not isinstance(each, UnionType) and issubclass(each, Shape):
            return each
        if (found := _inner(each)) is not None:
            return found
    return None


def _plain(shape: type[Shape], tree: Tree, action: str) -> dict[str, Any]:
    """What the JSON protocol would have said."""
    plain: dict[str, Any] = {}
    for field in _fields_of(shape):
        name = field.name
        if name in MAPS:
            value: Any = _map(field, tree, action)
        elif name == ENTRIES or name in LISTS:
            value = _list(field, tree, action)
        else:
            value = _leaf(tree.get(name), name)
            if value is not None and field.is_number:
                if not _WHOLE_NUMBER.fullmatch(value):
                    raise invalid_value(value, name, "Must be an integer.")
                value = int(value)
        if value is not None:
            plain[name] = value
    return plain


def _map(field: _Field, tree: Tree, action: str) -> dict[str, Any] | None:
    name, key_name, value_name = MAPS[field.name]
    found: dict[str, Any] = {}
    if name not in tree:
        return None
    for item in items(tree[name]):
        if isinstance(item, str):
            raise bad_serialization(f"{name} has {key_name} and {value_name}")
        key, value = _leaf(item.get(key_name), name), item.get(value_name)
        if key is None or value is None:
            raise bad_serialization(f"{name} needs {key_name} and {value_name}")
        if key in found:
            raise bad_serialization(f"{name} has {key[:100]} twice")
        found[key] = _below(field, value, name, action)
    return found


def _list(field: _Field, tree: Tree, action: str) -> list[Any] | None:
    name = action + "RequestEntry" if field.name == ENTRIES else LISTS[field.name]
    if name not in tree:
        return None
    return [_below(field, item, name, action) for item in items(tree[name])]


def _below(field: _Field, value: str | Tree, name: str, action: str) -> Any:
    if field.inner is None:
        return _leaf(value, name)
    if isinstance(value, str):
        raise bad_serialization(f"{name} has parts")
    return _plain(field.inner, value, action)


def _leaf(value: str | Tree | None, name: str) -> str | None:
    if isinstance(value, dict):
        raise bad_serialization(f"{name} has a value and no parts")
    return value


# --- answers ---


def encode(action: Action, answer: Answer, request_id: str) -> Reply:
    parts = [f'<?xml version="1.0"?><{action.name}Response xmlns="{NAMESPACE}">']
    if action.has_answer:
        parts.append(f"<{action.name}Result>")
        _write(msgspec.to_builtins(answer), action.name, parts)
        parts.append(f"</{action.name}Result>")
    parts.append(f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action.name}Response>")
    return Reply(200, CONTENT_TYPE, "".join(parts).encode(), _headers(request_id))


def encode_error(error: SqsError, request_id: str) -> Reply:
    text = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{error.fault}</Type>'
        f"<Code>{escape(error.code)}</Code><Message>{escape(error.old_text)}</Message><Detail/></Error>"
        f"<RequestId>{request_id}</RequestId></ErrorResponse>"
    )
    return Reply(error.status, CONTENT_TYPE, text.encode(), _headers(request_id))


def _write(plain: dict[str, Any], action: str, parts: list[str]) -> None:
    for name, value in plain.items():
        if name in MAPS:
            element, key_name, value_name = MAPS[name]
            for key, each in value.items():
                parts.append(f"<{element}><{key_name}>{escape(key)}</{key_name}>")
                _write({value_name: each}, action, parts)
                parts.append(f"</{element}>")
        elif name == SUCCESSFUL or name in LISTS:
            element = action + "ResultEntry" if name == SUCCESSFUL else LISTS[name]
            for each in value:
                _write({element: each}, action, parts)
        elif isinstance(value, dict):
            parts.append(f"<{name}>")
            _write(value, action, parts)
            parts.append(f"</{name}>")
        else:
            parts.append(f"<{name}>{escape(_text(value))}</{name}>")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def escape(text: str) -> str:
    """A document with a character that XML does not have cannot be read at all."""
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], only_allowed(text))


def _headers(request_id: str) -> bytes:
    return b"x-amzn-requestid: %b\r\ncache-control: no-store\r\n" % request_id.encode()
