"""`/v1/queues`: queues made, changed, described, emptied, deleted."""

from __future__ import annotations

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from skidway.gateways.http.call import HttpCall, parse_number
from skidway.gateways.http.problems import Problem
from skidway.gateways.http.queues import shapes
from skidway.gateways.http.queues.refusals import problem_of
from skidway.gateways.http.replies import NO_STORE, Reply, json_reply
from skidway.gateways.queues import service
from skidway.gateways.queues.errors import NoSuchQueue, QueueError
from skidway.gateways.queues.names import DEFAULT_ACCOUNT, DEFAULT_REGION, QueueKey
from skidway.gateways.queues.types import FIFO, Queue, QueueSettings
from skidway.limits import TOPIC_NAME_MAX
from skidway.steps import Steps

LISTED_MAX = 1_000
TAGS_MAX = 50
DELIVERIES_MAX = 5
DEAD_LETTERS = "-dlq"
_SETTINGS = msgspec.json.Decoder(shapes.SettingsBody)


def list_queues(call: HttpCall) -> Steps[Reply]:
    query = call.query()
    count: int = parse_number(query, "max", LISTED_MAX, 1, LISTED_MAX)
    found = yield from service.list_queues(
        call, DEFAULT_ACCOUNT, DEFAULT_REGION, query.get("prefix", ""), query.get("after", ""), count
    )
    return json_reply(shapes.QueueList([_shown(queue) for queue in found]), headers=NO_STORE)


def put(call: HttpCall) -> Steps[Reply]:
    """Makes it, or changes it to what is given; what is not given stays."""
    given = _given(call)
    key = QueueKey(call.values[0])
    try:
        try:
            queue = service.find(call, key)
        except NoSuchQueue:
            tags = {} if given.tags is UNSET else given.tags
            partitions = 0 if given.partitions is UNSET else given.partitions
            queue = yield from service.create(call, key, _changed(default_settings(key.name), given), tags, partitions)
            return json_reply(_shown(queue), 201)
        _check_fixed(queue, given)
        yield from service.change_settings(call, queue, _changed(queue.settings, given))
        if given.tags is not UNSET:
            yield from service.change_tags(call, service.find(call, key), given.tags)
        return json_reply(_shown(service.find(call, key)))
    except QueueError as error:
        raise problem_of(error) from None


def default_settings(name: str) -> QueueSettings:
    """A message that was delivered five times without success goes to a queue for dead letters, and stays there."""
    letters = name + DEAD_LETTERS
    if name.endswith(DEAD_LETTERS) or len(letters) > TOPIC_NAME_MAX:
        return QueueSettings()
    return QueueSettings(deliveries_max=DELIVERIES_MAX, dead_letters=letters)


def _given(call: HttpCall) -> shapes.SettingsBody:
    given = call.decode(_SETTINGS) if len(call.body) else shapes.SettingsBody()
    if given.tags is not UNSET and len(given.tags) > TAGS_MAX:
        raise Problem(422, "bad_value", f"{len(given.tags)} tags; at most {TAGS_MAX} are allowed")
    return given


def _check_fixed(queue: Queue, given: shapes.SettingsBody) -> None:
    if given.type is not UNSET and given.type != queue.settings.type:
        text = f"{queue.key.name} is a {queue.settings.type} queue: the type is chosen when a queue is made"
        raise Problem(409, "other_settings", text)
    if given.partitions is not UNSET and given.partitions != queue.partitions:
        text = f"{queue.key.name} has {queue.partitions} partitions: their number is chosen when a queue is made"
        raise Problem(409, "other_settings", text)


def _changed(settings: QueueSettings, given: shapes.SettingsBody) -> QueueSettings:
    asked = {
        "type": given.type,
        "visibility_ms": given.visibility_ms,
        "delay_ms": given.delay_ms,
        "wait_ms": given.wait_ms,
        "message_bytes_max": given.max_message_bytes,
        "retention_ms": given.retention_ms,
        "deliveries_max": given.max_deliveries,
        "dead_letters": given.dead_letters,
        "content_deduplication": given.content_deduplication,
        "deduplication_scope": given.deduplication_scope,
    }
    type_ = settings.type if given.type is UNSET else given.type
    if type_ != FIFO and not (given.content_deduplication is UNSET and given.deduplication_scope is UNSET):
        raise Problem(422, "bad_value", "contentDeduplication and deduplicationScope are for FIFO queues")
    return replace(settings, **{name: value for name, value in asked.items() if value is not UNSET})


def describe(call: HttpCall) -> Reply:
    try:
        return json_reply(_shown(service.find(call, QueueKey(call.values[0]))), headers=NO_STORE)
    except QueueError as error:
        raise problem_of(error) from None


def delete(call: HttpCall) -> Steps[Reply]:
    try:
        yield from service.delete_queue(call, service.find(call, QueueKey(call.values[0])))
    except QueueError as error:
        raise problem_of(error) from None
    return json_reply(shapes.Done())


def stats(call: HttpCall) -> Steps[Reply]:
    try:
        found = yield from service.counters(call, service.find(call, QueueKey(call.values[0])))
    except QueueError as error:
        raise problem_of(error) from None
    shown = shapes.Stats(found.visible, found.in_flight, found.delayed, found.blocked or UNSET)
    if found.dead:
        shown.dead = found.dead
        shown.letter_trouble = found.letter_trouble or UNSET
    shown.held_up = found.held_up or UNSET
    return json_reply(shown, headers=NO_STORE)


def purge(call: HttpCall) -> Steps[Reply]:
    try:
        yield from service.purge(call, service.find(call, QueueKey(call.values[0])))
    except QueueError as error:
        raise problem_of(error) from None
    return json_reply(shapes.Done())


def _shown(queue: Queue) -> shapes.QueueAnswer:
    settings = queue.settings
    return shapes.QueueAnswer(
        name=queue.key.name,
        topic=queue.topic,
        type=settings.type,
        partitions=queue.partitions,
        visibility_ms=settings.visibility_ms,
        delay_ms=settings.delay_ms,
        wait_ms=settings.wait_ms,
        max_message_bytes=settings.message_bytes_max,
        retention_ms=settings.retention_ms,
        max_deliveries=settings.deliveries_max,
        dead_letters=settings.dead_letters,
        content_deduplication=settings.content_deduplication,
        deduplication_scope=settings.deduplication_scope,
        tags=queue.tags,
        created_at=queue.created_ms,
        modified_at=queue.modified_ms,
    )
