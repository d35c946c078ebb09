"""Queues as topics: found, listed, created, changed and deleted through the controller, wherever it is.

Whatever a door asks is done to the topic's settings; nothing about a queue is kept anywhere else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from skidway.errors import ErrorCode, InvalidConfig
from skidway.gateways.http.call import HttpCall
from skidway.gateways.queues.errors import (
    BadQueueName,
    BadReceipt,
    BadSetting,
    NoSuchQueue,
    NotAQueue,
    QueueError,
    QueueExists,
    QueueUnavailable,
)
from skidway.gateways.queues.ids import Ids, topic_mark
from skidway.gateways.queues.names import QueueKey, key_of, topic_of
from skidway.gateways.queues.types import Queue, QueueSettings
from skidway.limits import KIB
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.image import Topic
from skidway.metadata.operations import AlterOp
from skidway.metadata.topic_configs import QueueConfig, validate
from skidway.steps import Question, Steps, sorted_names
from skidway.wire.message import Message
from skidway.wire.schema.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from skidway.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skidway.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

BATCH_SLACK_BYTES = 128 * KIB
"""What a batch may have beside the message: names of headers, and all that describes it."""
CHANGE_MS = 10_000
BY_GROUP = "messageGroup"
RETRY_MS = 50
FOUND_MAX = 1_000
DEAD_LETTERS = "queue.dead.letter.topic"
MOVE_TASKS = "queue.move.tasks"
_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_encode = msgspec.json.Encoder(order="sorted").encode
_decode_map = msgspec.json.Decoder(dict[str, str]).decode


def ids_of(call: HttpCall) -> Ids:
    ids = call.site.queue_ids
    if ids is None:
        ids = call.site.queue_ids = Ids(call.site.node.cluster_id)
    return ids


# --- what there is ---


def find(call: HttpCall, key: QueueKey) -> Queue:
    name = topic_of(key)
    if name is None:
        raise BadQueueName(f"{key.name[:250]!r} cannot be the name of a queue")
    topic = call.site.node.image.topics.get(name)
    if topic is None:
        raise NoSuchQueue(f"there is no queue {key.name!r}")
    queue = _queue(call, topic)
    if queue is None:
        raise NotAQueue(f"{name} is a topic but no queue: set queue.type to make it one")
    return queue


def _queue(call: HttpCall, topic: Topic) -> Queue | None:
    topic_settings = call.site.node.rooms.hosting.topic_settings
    config = topic_settings.queue(topic.name)
    if not config.type:
        return None
    known, retention_ms = call.site.queues_found, topic_settings.of(topic.name).retention_ms
    found = known.get(topic.id)
    if found is not None:
        queue = found[1]
        same = found[0] is config and queue.partitions == len(topic.partitions) and queue.topic == topic.name
        if same and queue.settings.retention_ms == retention_ms:
            return queue
    if len(known) >= FOUND_MAX:
        known.clear()
    queue = _made(topic, config, retention_ms)
    known[topic.id] = config, queue
    return queue


def _made(topic: Topic, config: QueueConfig, retention_ms: int) -> Queue:
    return Queue(
        key=key_of(topic.name),
        topic=topic.name,
        topic_id=topic.id,
        partitions=len(topic.partitions),
        settings=_settings(config, retention_ms),
        tags=_read_map(config.tags),
        created_ms=config.created_ms,
        modified_ms=config.modified_ms,
    )


def _settings(config: QueueConfig, retention_ms: int) -> QueueSettings:
    return QueueSettings(
        type=config.type,
        visibility_ms=config.visibility_timeout_ms,
        delay_ms=config.delay_ms,
        wait_ms=config.receive_wait_ms,
        message_bytes_max=config.max_message_bytes,
        retention_ms=retention_ms,
        deliveries_max=config.max_deliveries,
        dead_letters=config.dead_letter_topic,
        content_deduplication=config.content_deduplication,
        deduplication_scope=config.deduplication_scope,
        attributes=_read_map(config.attributes),
    )


def _read_map(text: str) -> dict[str, str]:
    try:
        return _decode_map(text) if text else {}
    except msgspec.DecodeError:
        return {}  # an admin wrote it


def list_queues(
    call: HttpCall, account: str, region: str, prefix: str = "", after: str = "", count_max: int = 1_000
) -> Steps[list[Queue]]:
    image = call.site.node.image
    names = yield from sorted_names(image.topics)
    found: list[Queue] = []
    for name in names:
        yield None
        key = key_of(name)
        if (key.account, key.region) != (account, region) or not key.name.startswith(prefix) or key.name <= after:
            continue
        topic = image.topics.get(name)
        queue = None if topic is None else _queue(call, topic)
        if queue is not None:
            found.append(queue)
            if len(found) >= count_max:
                break
    return found


def locate(call: HttpCall, receipt_or_id: str) -> Queue:
    image, ids = call.site.node.image, ids_of(call)
    receipt = ids.read_receipt(receipt_or_id)
    topic: Topic | None = None
    if receipt is not None:
        topic = image.topics_by_id.get(receipt.topic_id)
    elif (mark := ids.mark_of(receipt_or_id)) is not None:
        place = ids.place_of(receipt_or_id, _with_mark(call, mark))
        topic = None if place is None else image.topics_by_id.get(place.topic_id)
    queue = None if topic is None else _queue(call, topic)
    if queue is None:
        raise BadReceipt("this is neither a receipt nor a message id of any queue here")
    return queue


def _with_mark(call: HttpCall, mark: int) -> list[bytes]:
    """Topics that it may stand for. The table is made again when there are other topics."""
    site, topics = call.site, call.site.node.image.topics_by_id
    known = site.topic_marks.get(mark, ())
    if not all(topic_id in topics for topic_id in known) or not known:
        site.topic_marks.clear()
        for topic_id in topics:
            site.topic_marks.setdefault(topic_mark(topic_id), []).append(topic_id)
        known = site.topic_marks.get(mark, ())
    return list(known)


# --- changes ---


def create(
    call: HttpCall, key: QueueKey, settings: QueueSettings, tags: dict[str, str], partitions: int = 0
) -> Steps[Queue]:
    name = topic_of(key)
    if name is None:
        raise BadQueueName(f"{key.name[:250]!r} cannot be the name of a queue")
    if name in call.site.node.image.topics:
        raise QueueExists(f"there is a queue or topic {name!r} already")
    wall_ms = call.site.node.clock.wall_ms()
    configs = _configs(settings) | {"queue.created.ms": str(wall_ms), "queue.modified.ms": str(wall_ms)}
    if tags:
        configs["queue.tags"] = _encode(tags).decode()
    _check(name, configs)
    by_group = settings.deduplication_scope == BY_GROUP
    if settings.is_fifo and not by_group and partitions > 1:
        text = f"a FIFO queue with {partitions} partitions needs the scope {BY_GROUP}"
        raise BadSetting("queue.deduplication.scope", text)
    count = 1 if settings.is_fifo and not by_group else partitions or -1
    topic = CreatableTopic(name, count, -1, [], [CreatableTopicConfig(*each) for each in configs.items()])
    answer: Any = yield from _change(call, CreateTopicsRequest([topic]))
    created = answer.topics[0]
    if created.error_code == ErrorCode.TOPIC_ALREADY_EXISTS:
        raise QueueExists(created.error_message or f"there is a topic {name!r} already")
    if created.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
        raise BadQueueName(created.error_message or f"{name!r} cannot be the name of a queue")
    _refuse(created.error_code, created.error_message)
    return (yield from _when_known(call, key))


def _when_known(call: HttpCall, key: QueueKey) -> Steps[Queue]:
    """Another node may have made it: this one hears of it soon."""
    node = call.site.node
    deadline_ms = node.clock.monotonic_ms() + CHANGE_MS
    while True:
        try:
            return find(call, key)
        except NoSuchQueue:
            if node.clock.monotonic_ms() >= deadline_ms:
                raise QueueUnavailable("the queue was created, but this node does not know it yet") from None
        yield Question(_sleep(call))


def change_settings(call: HttpCall, queue: Queue, settings: QueueSettings) -> Steps[None]:
    if settings.type != queue.settings.type:
        raise BadSetting("queue.type", f"{queue.key.name} is a {queue.settings.type} queue, which never changes")
    if settings.is_fifo and settings.deduplication_scope != BY_GROUP and queue.partitions > 1:
        text = f"{queue.key.name} has {queue.partitions} partitions, so each group has ids of its own"
        raise BadSetting("queue.deduplication.scope", text)
    before, after = _configs(queue.settings), _configs(settings)
    changed = {name: text for name, text in after.items() if before.get(name) != text}
    yield from _alter(call, queue, changed, [name for name in before if name not in after])


def change_tags(call: HttpCall, queue: Queue, tags: dict[str, str]) -> Steps[None]:
    if tags:
        yield from _alter(call, queue, {"queue.tags": _encode(tags).decode()}, [])
    else:
        yield from _alter(call, queue, {}, ["queue.tags"])


def keep_moves(call: HttpCall, queue: Queue, text: str) -> Steps[None]:
    """What is known of tasks that move its messages. That is no change of its settings."""
    node = call.site.node

    def shown() -> str | None:
        return node.image.topic_config(queue.topic).get(MOVE_TASKS)

    before = shown()
    configs = [AlterableConfig(MOVE_TASKS, AlterOp.SET, text)]
    resource = AlterConfigsResource(ResourceType.TOPIC, queue.topic, configs)
    answer: Any = yield from _change(call, IncrementalAlterConfigsRequest([resource]))
    result = answer.responses[0]
    _refuse(result.error_code, result.error_message)
    deadline_ms = node.clock.monotonic_ms() + CHANGE_MS
    while before == shown() != text and node.clock.monotonic_ms() < deadline_ms:
        yield Question(_sleep(call))


def _alter(call: HttpCall, queue: Queue, changed: dict[str, str], removed: list[str]) -> Steps[None]:
    if not changed and not removed:
        return
    changed["queue.modified.ms"] = str(call.site.node.clock.wall_ms())
    _check(queue.topic, changed)
    configs = [AlterableConfig(name, AlterOp.SET, text) for name, text in changed.items()]
    configs += [AlterableConfig(name, AlterOp.DELETE, None) for name in removed]
    resource = AlterConfigsResource(ResourceType.TOPIC, queue.topic, configs)
    answer: Any = yield from _change(call, IncrementalAlterConfigsRequest([resource]))
    result = answer.responses[0]
    _refuse(result.error_code, result.error_message)
    yield from _when_changed(call, queue, int(changed["queue.modified.ms"]))


def _when_changed(call: HttpCall, queue: Queue, modified_ms: int) -> Steps[None]:
    """So that who changed a queue sees the change here."""
    node = call.site.node
    deadline_ms = node.clock.monotonic_ms() + CHANGE_MS
    while node.clock.monotonic_ms() < deadline_ms:
        overrides = node.image.topic_config(queue.topic)
        if queue.topic not in node.image.topics or int(overrides.get("queue.modified.ms", 0)) >= modified_ms:
            return
        yield Question(_sleep(call))


def delete_queue(call: HttpCall, queue: Queue) -> Steps[None]:
    node = call.site.node
    request = DeleteTopicsRequest(topics=[DeleteTopicState(None, queue.topic_id)], timeout_ms=CHANGE_MS)
    answer: Any = yield from _change(call, request)
    result = answer.responses[0]
    _refuse(result.error_code, result.error_message)
    deadline_ms = node.clock.monotonic_ms() + CHANGE_MS
    while queue.topic_id in node.image.topics_by_id and node.clock.monotonic_ms() < deadline_ms:
        yield Question(_sleep(call))


def _configs(settings: QueueSettings) -> dict[str, str]:
    """All that say something."""
    configs = {
        "queue.type": settings.type,
        "queue.visibility.timeout.ms": str(settings.visibility_ms),
        "queue.delay.ms": str(settings.delay_ms),
        "queue.receive.wait.ms": str(settings.wait_ms),
        "queue.max.message.bytes": str(settings.message_bytes_max),
        "max.message.bytes": str(settings.message_bytes_max + BATCH_SLACK_BYTES),
        "retention.ms": str(settings.retention_ms),
        "queue.max.deliveries": str(settings.deliveries_max),
    }
    if settings.dead_letters:
        configs[DEAD_LETTERS] = settings.dead_letters
    if settings.content_deduplication:
        configs["queue.content.deduplication"] = "true"
    if settings.deduplication_scope != "queue":
        configs["queue.deduplication.scope"] = settings.deduplication_scope
    if settings.attributes:
        configs["queue.attributes"] = _encode(settings.attributes).decode()
    return configs


def _check(topic: str, configs: dict[str, str]) -> None:
    """The controller says no without saying to what. A letter that nobody can write would wait for ever."""
    letters = configs.get(DEAD_LETTERS, "")
    if letters == topic:
        raise BadSetting(DEAD_LETTERS, f"{topic} cannot be the queue for its own dead letters: name another one")
    if letters and topic_of(key_of(letters)) is None:
        raise BadSetting(DEAD_LETTERS, f"{letters!r} cannot be the name of a queue for dead letters: choose another")
    for name, text in configs.items():
        try:
            validate({name: text})
        except InvalidConfig as error:
            raise BadSetting(name, error.message or str(error)) from None


def _change(call: HttpCall, request: Message) -> Steps[Message]:
    """What the controller answers. What may be done twice is asked again if it does not."""
    node = call.site.node
    deadline_ms = node.clock.monotonic_ms() + CHANGE_MS
    while True:

        def ask(respond: Callable[[Any], None]) -> None:
            call.site.services.controller.ask(request, respond, node.clock.monotonic_ms(), CHANGE_MS)

        answer = yield Question(ask)
        if isinstance(answer, Message) and _code(answer) != ErrorCode.NOT_CONTROLLER:
            return answer
        if node.clock.monotonic_ms() + RETRY_MS >= deadline_ms:
            raise QueueUnavailable("no controller answers now: retry")
        yield Question(_sleep(call))


def _code(answer: Any) -> int:
    results = answer.topics if hasattr(answer, "topics") else answer.responses
    return int(results[0].error_code) if results else 0


def _refuse(code: int, text: str | None) -> None:
    if not code:
        return
    if code in _GONE:
        raise NoSuchQueue(text or "there is no such queue")
    if code == ErrorCode.INVALID_CONFIG:
        raise BadSetting("", text or "a setting is refused")
    name = ErrorCode(code).name.replace("_", " ").lower()
    if code in (ErrorCode.POLICY_VIOLATION, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_PARTITIONS):
        raise QueueError(text or name)
    raise QueueUnavailable(text or name)


def _sleep(call: HttpCall) -> Callable[[Callable[[Any], None]], None]:
    def ask(respond: Callable[[Any], None]) -> None:
        node = call.site.node
        node.timers.at(node.clock.monotonic_ms() + RETRY_MS, lambda: respond(None))

    return ask
