"""Message move tasks: dead letters sent back to where they came from, or elsewhere.

The node that is asked runs the task; every node lists and cancels it. A handle is the id of the task and the ARN of its
queue, as JSON in base64, which is what clients of Amazon see.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode

import msgspec

from skidway.gateways.http.errand import Errand
from skidway.gateways.http.topics.leaders import sleep
from skidway.gateways.queues import service
from skidway.gateways.queues.errors import QueueError
from skidway.gateways.queues.mover import Mover, Overtaken
from skidway.gateways.queues.moves import Move, Status, keep, moves_of
from skidway.gateways.queues.names import key_of
from skidway.gateways.queues.types import Queue
from skidway.gateways.sqs import shapes
from skidway.gateways.sqs.addresses import arn_of, read_arn
from skidway.gateways.sqs.asking import Asked
from skidway.gateways.sqs.bounds import LISTED_MAX, MOVES_LISTED_MAX, MOVES_MAX, MOVES_PER_SECOND_MAX
from skidway.gateways.sqs.errors import (
    SqsError,
    invalid_parameter,
    invalid_value,
    no_such_resource,
    over_limit,
    unsupported,
)
from skidway.gateways.sqs.handlers.queues import is_source
from skidway.gateways.sqs.shapes import Answer
from skidway.steps import Question, Steps

CANCEL_MS = 3_000
"""So long it is seen to that the node with the task hears of its end."""
LOOK_MS = 50
HANDLE_LENGTH_MAX = 2_048


class Handle(msgspec.Struct, rename="camel"):
    task_id: str
    source_arn: str


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Handle).decode


def start_message_move_task(asked: Asked, request: shapes.StartMessageMoveTask) -> Steps[Answer]:
    rate = request.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= MOVES_PER_SECOND_MAX:
        reason = f"Must be between 1 and {MOVES_PER_SECOND_MAX}, if provided."
        raise invalid_value(rate, "MaxNumberOfMessagesPerSecond", reason)
    queue = _find(asked, request.source_arn or "", "SourceArn")
    destination = _destination(asked, queue, request.destination_arn)
    if not (yield from _has_source(asked, queue)):
        raise invalid_parameter("Source queue must be configured as a Dead Letter Queue.")
    waiting = yield from service.counters(asked.call, queue)
    # From here to the entry among the movers nothing else happens: this node starts one task of a queue at a time.
    _check_free(asked, queue)
    node = asked.call.site.node
    move = Move(
        id=node.world.random.randbytes(16).hex(),
        queue_id=queue.topic_id.hex(),
        node_id=node.settings.node_id,
        broker_epoch=node.rooms.registration.epoch,
        started_ms=node.clock.wall_ms(),
        destination="" if destination is None else destination.topic,
        rate=rate or 0,
        to_move=waiting.visible,
    )
    mover = _mover(asked, queue, move)
    asked.movers[move.id] = mover
    refusal: QueueError | None = yield Question(mover.start)
    if refusal is not None:
        raise _busy() if isinstance(refusal, Overtaken) else refusal
    return shapes.MoveStarted(task_handle=_handle(queue, move))


def _mover(asked: Asked, queue: Queue, move: Move) -> Mover:
    def on_bug(error: Exception) -> None:
        mover.on_error(error)

    mover = Mover(Errand(asked.call.site, asked.call.caller, on_bug), queue, move, asked.movers)
    return mover


def _check_free(asked: Asked, queue: Queue) -> None:
    if any(mover.moves_from(queue) for mover in asked.movers.values()):
        raise _busy()
    if any(each.is_active for each in moves_of(asked.call, queue)):
        raise _busy()
    if len(asked.movers) >= MOVES_MAX:
        raise over_limit(f"This node runs {MOVES_MAX} message move tasks already: wait for one of them, or cancel it.")


def _busy() -> SqsError:
    text = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    return invalid_parameter(text)


def _destination(asked: Asked, queue: Queue, arn: str | None) -> Queue | None:
    if arn is None:
        return None
    found = _find(asked, arn, "DestinationArn")
    if found.topic_id == queue.topic_id:
        raise invalid_value(arn, "DestinationArn", "The source and the destination must be two queues.")
    if found.settings.is_fifo != queue.settings.is_fifo:
        raise invalid_value(arn, "DestinationArn", "The source and the destination must both be FIFO, or neither.")
    return found


def _has_source(asked: Asked, target: Queue) -> Steps[bool]:
    after = ""
    while True:
        found = yield from service.list_queues(asked.call, target.key.account, target.key.region, "", after, LISTED_MAX)
        if any(is_source(queue, target) for queue in found):
            return True
        if len(found) < LISTED_MAX:
            return False
        after = found[-1].key.name


def cancel_message_move_task(asked: Asked, request: shapes.CancelMessageMoveTask) -> Steps[Answer]:
    handle = _read_handle(request.task_handle or "")
    queue = _find(asked, handle.source_arn, "TaskHandle")
    move = _known(asked, queue, handle)
    if move is None:
        raise no_such_resource("Task does not exist.")
    if move.status is not Status.RUNNING:
        raise unsupported("Only active tasks can be cancelled.")
    if (mover := asked.movers.get(move.id)) is not None:
        mover.is_cancelled = True
        move = msgspec.structs.replace(mover.move)
    move.status = Status.CANCELLING
    yield from keep(asked.call, queue, move)
    yield from _see_to_it(asked, queue, handle)
    ended = _known(asked, queue, handle) or move
    return shapes.MoveCancelled(approximate_number_of_messages_moved=ended.moved)


def _see_to_it(asked: Asked, queue: Queue, handle: Handle) -> Steps[None]:
    """The node with the task may have written how far it is before it heard of this, over what was written here."""
    clock = asked.call.site.node.clock
    until_ms = clock.monotonic_ms() + CANCEL_MS
    while clock.monotonic_ms() < until_ms:
        move = _known(asked, queue, handle)
        if move is None or not move.is_active:
            return
        here = move.node_id == asked.call.site.node.settings.node_id
        if move.status is Status.RUNNING or (here and move.id not in asked.movers):
            move.status = Status.CANCELLED if here and move.id not in asked.movers else Status.CANCELLING
            yield from keep(asked.call, queue, move)
        yield Question(sleep(asked.call, LOOK_MS))


def list_message_move_tasks(asked: Asked, request: shapes.ListMessageMoveTasks) -> Steps[Answer]:
    yield None
    count = 1 if request.max_results is None else request.max_results
    if not 1 <= count <= MOVES_LISTED_MAX:
        raise invalid_value(count, "MaxResults", f"Must be between 1 and {MOVES_LISTED_MAX}, if provided.")
    queue = _find(asked, request.source_arn or "", "SourceArn")
    return shapes.MoveTasks(results=[_shown(asked, queue, move) for move in moves_of(asked.call, queue)[:count]])


def _shown(asked: Asked, queue: Queue, move: Move) -> shapes.MoveTask:
    mover = asked.movers.get(move.id)
    return shapes.MoveTask(
        task_handle=_handle(queue, move) if move.status is Status.RUNNING else None,
        status=move.status,
        source_arn=arn_of(queue.key),
        destination_arn=arn_of(key_of(move.destination)) if move.destination else None,
        max_number_of_messages_per_second=move.rate or None,
        approximate_number_of_messages_moved=move.moved if mover is None else mover.move.moved,
        approximate_number_of_messages_to_move=move.to_move,
        failure_reason=move.failure or None,
        started_timestamp=move.started_ms,
    )


def _known(asked: Asked, queue: Queue, handle: Handle) -> Move | None:
    return next((each for each in moves_of(asked.call, queue) if each.id == handle.task_id), None)


def _find(asked: Asked, arn: str, parameter: str) -> Queue:
    try:
        return asked.find(read_arn(arn, parameter))
    except SqsError as error:
        if error.shape != "QueueDoesNotExist":
            raise
        text = f"The resource that you specified for the {parameter} parameter doesn't exist."
        raise no_such_resource(text) from None


def _handle(queue: Queue, move: Move) -> str:
    return b64encode(_encode(Handle(move.id, arn_of(queue.key)))).decode()


def _read_handle(text: str) -> Handle:
    try:
        if len(text) > HANDLE_LENGTH_MAX:
            raise ValueError
        return _decode(b64decode(text.encode("ascii"), validate=True))
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise invalid_value(text, "TaskHandle", "It is not the handle of a task.") from None
