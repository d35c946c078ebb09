"""ManageSchedules (key 30005), v0: messages that a queue gets at a later time, or again and again.

Skidway's own. The coordinator of the queue's schedules answers (FindCoordinator, key type 3, the queue's topic as key),
any other node NOT_COORDINATOR. What is to be created comes first, then what is to be cancelled, each answered by
itself; then up to `list_max` schedules are listed, by id, from the first behind `list_after` on. Answered when all of
it is committed. A schedule that is created again just the same is answered with `existed`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skidway.broker.shares.opening import TIME_HEADERS
from skidway.errors import CoordinatorNotAvailable, InvalidRequest, ProtocolError, UnknownTopicOrPartition
from skidway.records.queue_headers import QUEUE_DELIVER_AT
from skidway.records.record import Headers
from skidway.runtime.replicated import Operation
from skidway.schedules.machine import LIST_MAX
from skidway.schedules.operations import Cancel, Cancelled, Create, Created, Listed, ListSchedules
from skidway.schedules.schedule import Definition, ScheduledMessage
from skidway.steps import Steps
from skidway.wire.schema.manage_schedules import (
    CancelledSchedule,
    CreatedSchedule,
    ListedSchedule,
    ManageSchedulesRequest,
    ManageSchedulesResponse,
    ScheduleToCreate,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

AT_ONCE_MAX = 100
"""To be created or cancelled, in one request."""


def handle(node: Services, call: Call, request: ManageSchedulesRequest) -> Steps[ManageSchedulesResponse | None]:
    response = ManageSchedulesResponse()
    try:
        topic = _coordinated(node, request)
    except ProtocolError as error:
        response.error_code, response.error_message = error.code, error.message
        return response
    missing = 1

    def done() -> None:
        nonlocal missing
        missing -= 1
        if not missing:
            call.reply(response)

    def ask(operation: Operation[Any], fill: Callable[[Any], None]) -> None:
        nonlocal missing
        missing += 1

        def answer(reply: Any) -> None:
            fill(reply)
            done()

        node.schedules.submit(topic, operation, call.now_ms, answer)

    for wanted in request.create:
        yield None
        created = CreatedSchedule()
        response.created.append(created)
        ask(Create(bytes(request.topic_id), wanted.id, _definition(wanted)), _created(created))
    for id_ in request.cancel:
        yield None
        cancelled = CancelledSchedule()
        response.cancelled.append(cancelled)
        ask(Cancel(bytes(request.topic_id), id_), _cancelled(cancelled))
    if request.list_after is not None:
        count_max = min(max(0, request.list_max), LIST_MAX)
        ask(ListSchedules(bytes(request.topic_id), request.list_after, count_max), _listed(response))
    done()
    return None


def _coordinated(node: Services, request: ManageSchedulesRequest) -> str:
    """The queue's topic, if its schedules are coordinated here."""
    if len(request.create) + len(request.cancel) > AT_ONCE_MAX:
        raise InvalidRequest(f"at most {AT_ONCE_MAX} schedules are created and cancelled in one request")
    topic = node.image.topics_by_id.get(request.topic_id)
    if topic is None:
        raise UnknownTopicOrPartition("there is no topic with this id")
    if not node.serving:
        raise CoordinatorNotAvailable("the node is starting: retry")
    refusal = node.schedules.coordinator_of(topic.name).refusal()
    if refusal is not None:
        raise refusal
    return topic.name


def _definition(wanted: ScheduleToCreate) -> Definition:
    # The request's buffer is read into again before this is committed.
    headers: Headers = tuple(
        (each.name, None if each.content is None else bytes(each.content)) for each in wanted.headers
    )
    if any(name in TIME_HEADERS for name, _ in headers):
        # An attribute of the message may be called like that: it says nothing about its delivery.
        headers = (*headers, (QUEUE_DELIVER_AT, b"0"))
    key = None if wanted.message_key is None else bytes(wanted.message_key)
    value = None if wanted.body is None else bytes(wanted.body)
    message = ScheduledMessage(key, value, headers, wanted.key_hash)
    return Definition(0, wanted.due_ms, message, wanted.cron, wanted.zone)


def _created(told: CreatedSchedule) -> Callable[[Created | ProtocolError], None]:
    def fill(reply: Created | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            told.error_code, told.error_message = reply.code, reply.message
        else:
            told.due_ms, told.existed = reply.due_ms, reply.existed

    return fill


def _cancelled(told: CancelledSchedule) -> Callable[[Cancelled | ProtocolError], None]:
    def fill(reply: Cancelled | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            told.error_code, told.error_message = reply.code, reply.message
        else:
            told.on_its_way = reply.on_its_way

    return fill


def _listed(response: ManageSchedulesResponse) -> Callable[[list[Listed] | ProtocolError], None]:
    def fill(reply: list[Listed] | ProtocolError) -> None:
        if isinstance(reply, ProtocolError):
            response.error_code, response.error_message = reply.code, reply.message
            return
        response.schedules = [
            ListedSchedule(each.id, each.due_ms, each.cron, each.zone, each.created_ms, each.size) for each in reply
        ]

    return fill
