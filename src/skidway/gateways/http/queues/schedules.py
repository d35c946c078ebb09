"""`/v1/queues/{queue}/schedules`: messages at a later time, or again and again."""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from skidway.gateways.http.call import HttpCall, parse_number
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.queues import shapes
from skidway.gateways.http.queues.refusals import problem_of
from skidway.gateways.http.queues.values import to_send
from skidway.gateways.http.replies import NO_STORE, Reply, json_reply
from skidway.gateways.queues import service
from skidway.gateways.queues.errors import QueueError
from skidway.gateways.queues.names import QueueKey
from skidway.gateways.queues.schedules import (
    WantedSchedule,
    cancel_schedule,
    create_schedule,
    list_schedules,
)
from skidway.steps import Steps
from skidway.wire.schema.manage_schedules import ListedSchedule

LISTED_MAX = 1_000
UTC = "UTC"
_BODY = msgspec.json.Decoder(shapes.ScheduleBody)


def create(call: HttpCall) -> Steps[Reply]:
    call.body = bytes(call.body)
    given = call.decode(_BODY)
    wanted = _wanted(call, given)
    try:
        queue = service.find(call, QueueKey(call.values[0]))
        created = yield from create_schedule(call, queue, wanted)
    except QueueError as error:
        raise problem_of(error) from None
    answer = shapes.CreatedSchedule(wanted.id, created.due_ms, bool(created.existed))
    return json_reply(answer, 200 if created.existed else 201)


def show_all(call: HttpCall) -> Steps[Reply]:
    query = call.query()
    count: int = parse_number(query, "max", LISTED_MAX, 1, LISTED_MAX)
    try:
        queue = service.find(call, QueueKey(call.values[0]))
        found = yield from list_schedules(call, queue, query.get("after", ""), count)
    except QueueError as error:
        raise problem_of(error) from None
    return json_reply(shapes.ScheduleList([_shown(each) for each in found]), headers=NO_STORE)


def cancel(call: HttpCall) -> Steps[Reply]:
    try:
        queue = service.find(call, QueueKey(call.values[0]))
        cancelled = yield from cancel_schedule(call, queue, call.values[1])
    except QueueError as error:
        raise problem_of(error) from None
    return json_reply(shapes.CancelledSchedule(on_its_way=bool(cancelled.on_its_way)))


def _wanted(call: HttpCall, given: shapes.ScheduleBody) -> WantedSchedule:
    """Raises Problem."""
    node = call.site.node
    wall_ms = node.clock.wall_ms()
    message = shapes.Message(body=given.body, body_base64=given.body_base64, key=given.key, attributes=given.attributes)
    wanted = WantedSchedule(
        id=node.world.random.randbytes(16).hex() if given.id is UNSET else given.id,
        message=to_send(message, wall_ms),
    )
    times = [each for each in (given.deliver_at, given.delay_seconds, given.cron) if each is not UNSET]
    if len(times) != 1:
        raise Problem(422, "bad_value", "say when: give one of deliverAt, delaySeconds and cron")
    if given.cron is not UNSET:
        wanted.cron, wanted.zone = given.cron, UTC if given.time_zone is UNSET else given.time_zone
    elif given.time_zone is not UNSET:
        raise Problem(422, "bad_value", "timeZone is for cron: deliverAt is in milliseconds since 1970")
    elif given.deliver_at is not UNSET:
        wanted.due_ms = given.deliver_at
    elif given.delay_seconds is not UNSET:
        wanted.due_ms = wall_ms + int(given.delay_seconds * 1_000)
    return wanted


def _shown(listed: ListedSchedule) -> shapes.Schedule:
    shown = shapes.Schedule(listed.id, listed.due_ms, listed.created_ms, listed.size)
    if listed.cron:
        shown.cron, shown.time_zone = listed.cron, listed.zone
    return shown
