"""Messages for a queue at a later time, or again and again: asked of the coordinator of the queue's schedules.

Any node may be asked. A request that was certainly not carried out is made again for a while. One that may have been is
made again only where that does no harm: to list; and to create what is not due before all this is over, since the
coordinator knows it again by its id. Otherwise: OutcomeUnknown.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import msgspec

from skidway.blocking_client.partitioners import murmur2
from skidway.errors import CoordinatorNotAvailable, ErrorCode
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.topics.leaders import RETRY_MS, Respond, sleep
from skidway.gateways.queues.errors import (
    BadSchedule,
    MessageTooLarge,
    NoSuchQueue,
    NoSuchSchedule,
    OutcomeUnknown,
    QueueError,
    QueueUnavailable,
    ScheduleDue,
    ScheduleExists,
    TooManySchedules,
)
from skidway.gateways.queues.leaders import AGAIN, ANSWER_MS, ask_as_node
from skidway.gateways.queues.sending import check_size
from skidway.gateways.queues.types import MessageToSend, Queue
from skidway.steps import Question, Steps
from skidway.wire.schema.manage_schedules import (
    CancelledSchedule,
    CreatedSchedule,
    ListedSchedule,
    ManageSchedulesRequest,
    ManageSchedulesResponse,
    MessageHeader,
    ScheduleToCreate,
)

CHANNEL = "schedules"
NO_KEY = -1
KEY_HASH_MASK = 0x7FFFFFFF
_ERRORS: dict[int, type[QueueError]] = {
    ErrorCode.DUPLICATE_RESOURCE: ScheduleExists,
    ErrorCode.RESOURCE_NOT_FOUND: NoSuchSchedule,
    ErrorCode.INVALID_RECORD_STATE: ScheduleDue,
    ErrorCode.POLICY_VIOLATION: TooManySchedules,
    ErrorCode.MESSAGE_TOO_LARGE: MessageTooLarge,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: NoSuchQueue,
    ErrorCode.INVALID_REQUEST: BadSchedule,
    ErrorCode.INVALID_TIMESTAMP: BadSchedule,
}


class WantedSchedule(msgspec.Struct, kw_only=True):
    id: str
    due_ms: int = 0
    cron: str = ""
    """If it is given, `due_ms` is not."""
    zone: str = ""
    message: MessageToSend


def create_schedule(call: HttpCall, queue: Queue, wanted: WantedSchedule) -> Steps[CreatedSchedule]:
    """Answers when it is stored on all in-sync replicas. BadSchedule, ScheduleExists, TooManySchedules,
    MessageTooLarge, NoSuchQueue, QueueUnavailable, OutcomeUnknown."""
    message = wanted.message
    if (refusal := check_size(queue, message)) is not None:
        raise refusal
    item = ScheduleToCreate(
        wanted.id,
        wanted.due_ms,
        wanted.cron,
        wanted.zone,
        NO_KEY if message.key is None else murmur2(message.key) & KEY_HASH_MASK,
        message.key,
        message.body,
        [MessageHeader(name, value) for name, value in message.headers],
    )
    safe_until_ms = call.site.node.clock.wall_ms() + 2 * ANSWER_MS
    request = ManageSchedulesRequest(queue.topic_id, create=[item])
    response = yield from _ask(call, queue, request, repeats=bool(wanted.cron) or wanted.due_ms > safe_until_ms)
    created: CreatedSchedule = response.created[0]
    return created


def cancel_schedule(call: HttpCall, queue: Queue, id_: str) -> Steps[CancelledSchedule]:
    """NoSuchSchedule, ScheduleDue, NoSuchQueue, QueueUnavailable, OutcomeUnknown."""
    response = yield from _ask(call, queue, ManageSchedulesRequest(queue.topic_id, cancel=[id_]), repeats=False)
    cancelled: CancelledSchedule = response.cancelled[0]
    return cancelled


def list_schedules(call: HttpCall, queue: Queue, after: str, count_max: int) -> Steps[list[ListedSchedule]]:
    """By id. NoSuchQueue, QueueUnavailable."""
    if not call.site.services.schedules.has_topic:
        return []
    request = ManageSchedulesRequest(queue.topic_id, list_after=after, list_max=count_max)
    response = yield from _ask(call, queue, request, repeats=True)
    listed: list[ListedSchedule] = response.schedules
    return listed


def _ask(
    call: HttpCall, queue: Queue, request: ManageSchedulesRequest, *, repeats: bool
) -> Steps[ManageSchedulesResponse]:
    """`repeats`: it may be carried out twice."""
    clock, schedules = call.site.node.clock, call.site.services.schedules
    deadline_ms = clock.monotonic_ms() + ANSWER_MS
    while True:
        certain, why = True, "the coordinator of the queue's schedules has moved, or is loading"
        failed = yield Question(partial(schedules.prepare, clock.monotonic_ms()))
        try:
            if failed is not None:
                raise failed
            node_id = schedules.find(queue.topic).id
        except CoordinatorNotAvailable as error:
            why = str(error)
        else:
            left_ms = max(deadline_ms - clock.monotonic_ms(), 1)
            response = yield Question(_asking(call, node_id, request, left_ms))
            if response is None:
                certain, why = False, "the coordinator of the queue's schedules does not answer"
            else:
                code, text, certain = _outcome(response)
                why = text or why
                if code not in AGAIN:
                    if code:
                        raise _ERRORS.get(code, QueueError)(text or ErrorCode(code).name)
                    return response  # type: ignore[no-any-return]
        if not certain and not repeats:
            raise OutcomeUnknown(f"{why}: look whether it was done")
        if clock.monotonic_ms() + RETRY_MS >= deadline_ms:
            raise QueueUnavailable(f"{why}: retry") if certain else OutcomeUnknown(f"{why}: retry")
        yield Question(sleep(call, RETRY_MS))


def _asking(
    call: HttpCall, node_id: int, request: ManageSchedulesRequest, timeout_ms: int
) -> Callable[[Respond], None]:
    def ask(respond: Respond) -> None:
        ask_as_node(call, node_id, request, timeout_ms, respond, CHANNEL)

    return ask


def _outcome(response: ManageSchedulesResponse) -> tuple[int, str, bool]:
    """Code, text, and whether it is certain that nothing was done if the code is of those that are asked again."""
    if response.error_code:
        return response.error_code, response.error_message or "", True
    items: list[CreatedSchedule | CancelledSchedule] = [*response.created, *response.cancelled]
    for each in items:
        if each.error_code:
            return each.error_code, each.error_message or "", False
    return 0, "", True
