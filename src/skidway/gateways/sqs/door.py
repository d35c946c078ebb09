"""SQS beside the HTTP API, on one listener: told apart by headers, not by paths.

A request is of SQS if it has the header X-Amz-Target, or if it is a form, or a query with `Action`, on a path that the
HTTP API does not have. It is decoded, its sender identified, and its action carried out. Every answer has a request id,
and whatever goes wrong is said in the protocol of the request.
"""

from __future__ import annotations

from functools import partial

from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.head import Head
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.replies import Reply
from skidway.gateways.http.routes import Route, Routes
from skidway.gateways.queues.errors import QueueError
from skidway.gateways.queues.mover import Mover
from skidway.gateways.sqs import json_protocol, query_protocol
from skidway.gateways.sqs.actions import Action
from skidway.gateways.sqs.asking import Asked, translate
from skidway.gateways.sqs.bounds import REQUEST_BYTES_MAX
from skidway.gateways.sqs.errors import SqsError
from skidway.gateways.sqs.forms import parse_form
from skidway.gateways.sqs.handlers.table import HANDLERS
from skidway.gateways.sqs.purges import Purges
from skidway.gateways.sqs.query_protocol import FORM
from skidway.gateways.sqs.shapes import Request
from skidway.gateways.sqs.signatures import Keys, identify
from skidway.steps import Job, Steps

DECODED_AT_ONCE_BYTES = 64 << 10
ABOUT = "Amazon SQS: told by the header X-Amz-Target, or by a form with Action."


class SqsDoor:
    def __init__(self, routes: Routes, keys: Keys, *, is_open: bool) -> None:
        """`is_open`: without keys anybody may come in, because the address is of this machine alone."""
        self._routes = routes
        self._keys = keys
        self._is_open = is_open
        self._purges = Purges()
        self._movers: dict[str, Mover] = {}
        self.route = Route("POST", "/", self.handle, ABOUT, body_bytes_max=REQUEST_BYTES_MAX)
        self.taking = Route("POST", "/", self.handle, ABOUT, body_bytes_max=REQUEST_BYTES_MAX, takes=True)
        """For what may be a receive: of a form nobody knows before it is decoded."""

    def find(self, head: Head) -> Route | None:
        headers = head.headers
        target = headers.get(b"x-amz-target")
        if target is not None:
            return self.taking if target.endswith(b".ReceiveMessage") else self.route
        kind = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if (kind == FORM or _has_action(head)) and not self._routes.knows(head):
            return self.taking
        return None

    def handle(self, call: HttpCall) -> Steps[Reply]:
        call.body = bytes(call.body)
        return self._answer(call)

    def _answer(self, call: HttpCall) -> Steps[Reply]:
        request_id = _request_id(call)
        target = call.head.headers.get(b"x-amz-target")
        action: Action | None = None
        try:
            wall_ms = call.site.node.clock.wall_ms()
            identity = identify(call.head, call.body, wall_ms, self._keys, is_open=self._is_open)
            decode = partial(_decode_form, call) if target is None else partial(_decode_json, call, target)
            if len(call.body) > DECODED_AT_ONCE_BYTES:
                action, request = yield Job(decode)
            else:
                action, request = decode()
            action.check(request)
            answer = yield from HANDLERS[action.name](Asked(call, identity, self._purges, self._movers), request)
        except SqsError as refusal:
            error = refusal
        except QueueError as refusal:
            error = translate(refusal)
        else:
            if target is not None:
                return json_protocol.encode(answer, request_id)
            return query_protocol.encode(action, answer, request_id)
        if target is not None:
            return json_protocol.encode_error(error, request_id)
        return query_protocol.encode_error(error, request_id)


def _has_action(head: Head) -> bool:
    query = head.target.partition(b"?")[2]
    return query.startswith(b"Action=") or b"&Action=" in query


def _decode_json(call: HttpCall, target: bytes) -> tuple[Action, Request]:
    action = json_protocol.find_action(target.decode("latin-1"))
    return action, json_protocol.decode(action, call.body)


def _decode_form(call: HttpCall) -> tuple[Action, Request]:
    leaves = parse_form(call.head.target.partition(b"?")[2])
    kind = call.head.headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
    if kind == FORM:
        leaves |= parse_form(bytes(call.body))
    if "Action" not in leaves:
        raise Problem(404, "no_such_path", "there is nothing at this path; a form is for SQS if it has an Action")
    action = query_protocol.find_action(leaves)
    path = [part for part in call.head.path() if part]
    return action, query_protocol.decode(action, leaves, path)


def _request_id(call: HttpCall) -> str:
    """In the shape of a UUID."""
    text = call.site.node.world.random.randbytes(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-8{text[17:20]}-{text[20:]}"
