"""`POST /messages`, `GET /messages`, `POST /v1/queues/{queue}/receive`, `POST /ack`, and looking at what waits."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import UNSET, UnsetType

from skidway.gateways.http.call import HttpCall, parse_number
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.queues import shapes
from skidway.gateways.http.queues.manage import default_settings
from skidway.gateways.http.queues.refusals import problem_of, refusal_of
from skidway.gateways.http.queues.values import show, to_send
from skidway.gateways.http.replies import NO_STORE, Reply, json_reply
from skidway.gateways.queues import service
from skidway.gateways.queues.errors import HeldUp, NoSuchQueue, QueueError, QueueExists
from skidway.gateways.queues.names import QueueKey
from skidway.gateways.queues.types import (
    Accept,
    Ack,
    Action,
    Extend,
    MessageToSend,
    Queue,
    Reject,
    Release,
    Sent,
)
from skidway.steps import Steps

MESSAGES_MAX = 100
WAIT_MS_MAX = 30_000
VISIBILITY_MS_MAX = 43_200_000
_SEND = msgspec.json.Decoder(shapes.SendBody)
_ACK = msgspec.json.Decoder(shapes.AckBody)
_RECEIVE = msgspec.json.Decoder(shapes.ReceiveBody)


# --- sending ---


def send(call: HttpCall) -> Steps[Reply]:
    call.body = bytes(call.body)
    given = call.decode(_SEND)
    if given.messages is UNSET:
        messages = [to_send(given, call.site.node.clock.wall_ms())]
    else:
        messages = yield from _several(given, given.messages, call.site.node.clock.wall_ms())
    try:
        queue = yield from _find_or_create(call, given.queue)
        _check_type(queue, messages)
        results = yield from service.send(call, queue, messages)
    except QueueError as error:
        raise problem_of(error) from None
    if given.messages is not UNSET:
        shown = [
            shapes.SentMessage(error=refusal_of(each))
            if isinstance(each, QueueError)
            else shapes.SentMessage(*_told(queue, each))
            for each in results
        ]
        return json_reply(shapes.SendAnswer(messages=shown))
    result = results[0]
    if isinstance(result, QueueError):
        raise problem_of(result)
    return json_reply(shapes.SendAnswer(*_told(queue, result)), 201)


def _told(queue: Queue, sent: Sent) -> tuple[str, str | UnsetType, bool | UnsetType]:
    if not queue.settings.is_fifo:
        return sent.message_id, UNSET, UNSET
    return sent.message_id, sent.sequence_number, sent.duplicate


def _check_type(queue: Queue, messages: Sequence[MessageToSend]) -> None:
    """Raises Problem."""
    if not queue.settings.is_fifo and any(each.deduplication_id is not None for each in messages):
        raise Problem(422, "bad_value", f"{queue.key.name} is a standard queue: dedupId is for FIFO queues")


def _several(given: shapes.SendBody, asked: Sequence[shapes.Message], wall_ms: int) -> Steps[list[MessageToSend]]:
    if any(getattr(given, name) is not UNSET for name in shapes.Message.__struct_fields__):
        raise Problem(422, "bad_value", "messages and a body are two ways to send: give one")
    if not 1 <= len(asked) <= MESSAGES_MAX:
        raise Problem(422, "bad_value", f"messages must be 1 to {MESSAGES_MAX}, got {len(asked)}")
    messages: list[MessageToSend] = []
    for each in asked:
        messages.append(to_send(each, wall_ms))
        yield None
    return messages


def _find_or_create(call: HttpCall, name: str) -> Steps[Queue]:
    """A queue that nobody has made is made by its first message, if topics are."""
    key = QueueKey(name)
    try:
        return service.find(call, key)
    except NoSuchQueue:
        if not call.site.node.settings.auto_create_topics:
            raise
    try:
        return (yield from service.create(call, key, default_settings(name), {}))
    except QueueExists:
        return service.find(call, key)


# --- receiving ---


def receive(call: HttpCall) -> Steps[Reply]:
    query = call.query()
    name = query.get("queue")
    if not name:
        raise Problem(400, "bad_query", "name the queue: /messages?queue=…")
    wanted = shapes.ReceiveBody(
        parse_number(query, "max", 1, 1, MESSAGES_MAX),
        parse_number(query, "wait", None, 0, WAIT_MS_MAX),
        parse_number(query, "visibility", None, 0, VISIBILITY_MS_MAX),
    )
    return (yield from _receive(call, name, wanted))


def receive_from(call: HttpCall) -> Steps[Reply]:
    wanted = call.decode(_RECEIVE) if len(call.body) else shapes.ReceiveBody()
    return (yield from _receive(call, call.values[0], wanted))


def _receive(call: HttpCall, name: str, wanted: shapes.ReceiveBody) -> Steps[Reply]:
    try:
        queue = service.find(call, QueueKey(name))
        found = yield from service.receive(call, queue, wanted.max, wanted.wait, wanted.visibility)
    except HeldUp as why:
        return json_reply(shapes.ReceiveAnswer([]), headers=NO_STORE + b"queue-held-up: %b\r\n" % why.detail.encode())
    except QueueError as error:
        raise problem_of(error) from None
    return json_reply(shapes.ReceiveAnswer([show(each) for each in found]), headers=NO_STORE)


def peek(call: HttpCall) -> Steps[Reply]:
    count: int = parse_number(call.query(), "max", 10, 1, MESSAGES_MAX)
    try:
        found = yield from service.peek(call, service.find(call, QueueKey(call.values[0])), count)
    except QueueError as error:
        raise problem_of(error) from None
    return json_reply(shapes.ReceiveAnswer([show(each) for each in found]), headers=NO_STORE)


def cancel(call: HttpCall) -> Steps[Reply]:
    name, message_id = call.values
    try:
        queue = service.find(call, QueueKey(name))
        (error,) = yield from service.settle(call, queue, [Ack(action=Accept(), message_id=message_id)])
    except QueueError as refused:
        raise problem_of(refused) from None
    if error is not None:
        raise problem_of(error)
    return json_reply(shapes.Done())


# --- acknowledging ---


def acknowledge(call: HttpCall) -> Steps[Reply]:
    call.body = bytes(call.body)
    given = call.decode(_ACK)
    several = given.acks is not UNSET
    if given.acks is UNSET:
        asked: Sequence[shapes.OneAck | shapes.AckBody] = [given]
    else:
        asked = given.acks
        if given.receipt is not UNSET or given.message_id is not UNSET:
            raise Problem(422, "bad_value", "acks and a receipt or messageId are two ways to say it: give one")
        if not 1 <= len(asked) <= MESSAGES_MAX:
            raise Problem(422, "bad_value", f"acks must be 1 to {MESSAGES_MAX}, got {len(asked)}")
    acks = [_ack(each) for each in asked]
    results = yield from _settle_all(call, given, acks)
    if several:
        shown = [
            shapes.AckResult(done=True) if each is None else shapes.AckResult(done=False, error=refusal_of(each))
            for each in results
        ]
        return json_reply(shapes.AckAnswer(acks=shown))
    if results[0] is not None:
        raise problem_of(results[0])
    return json_reply(shapes.AckAnswer(done=True))


def _ack(given: shapes.OneAck | shapes.AckBody) -> Ack:
    receipt = "" if given.receipt is UNSET else given.receipt
    message_id = "" if given.message_id is UNSET else given.message_id
    if bool(receipt) == bool(message_id):
        raise Problem(422, "bad_value", "say what is acknowledged: by its receipt, or by its messageId")
    return Ack(action=_action(given), receipt=receipt, message_id=message_id)


def _action(given: shapes.OneAck | shapes.AckBody) -> Action:
    time_ms = int(given.delay_seconds * 1_000)
    match given.action:
        case "accept":
            return Accept()
        case "release":
            return Release(time_ms)
        case "reject":
            return Reject(given.reason)
        case "extend":
            return Extend(time_ms)


def _settle_all(call: HttpCall, given: shapes.AckBody, acks: list[Ack]) -> Steps[list[QueueError | None]]:
    """Those of one queue together."""
    results: list[QueueError | None] = [None] * len(acks)
    by_queue: dict[bytes, tuple[Queue, list[int]]] = {}
    for number, ack in enumerate(acks):
        yield None
        try:
            if given.queue is not UNSET:
                queue = service.find(call, QueueKey(given.queue))
            else:
                queue = service.locate(call, ack.receipt or ack.message_id)
            by_queue.setdefault(queue.topic_id, (queue, []))[1].append(number)
        except QueueError as error:
            results[number] = error.with_traceback(None)
    for queue, numbers in by_queue.values():
        try:
            answers = yield from service.settle(call, queue, [acks[number] for number in numbers])
        except QueueError as error:
            answers = [error.with_traceback(None)] * len(numbers)
        for number, answer in zip(numbers, answers, strict=True):
            results[number] = answer
    return results
