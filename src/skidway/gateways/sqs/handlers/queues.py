"""Actions about queues: made, found, listed, deleted, described, changed, emptied."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

from skidway.gateways.queues import service
from skidway.gateways.queues.errors import BadQueueName, NotAQueue, QueueError, QueueExists
from skidway.gateways.queues.names import QueueKey, topic_of
from skidway.gateways.queues.types import Queue
from skidway.gateways.sqs import shapes
from skidway.gateways.sqs.addresses import arn_of, is_fifo
from skidway.gateways.sqs.asking import Asked
from skidway.gateways.sqs.bounds import ACCOUNT, LISTED_MAX, NAMES_MAX, QUEUE_NAME
from skidway.gateways.sqs.errors import (
    SqsError,
    invalid_value,
    no_such_queue,
    purge_in_progress,
    queue_exists,
)
from skidway.gateways.sqs.handlers.tags import check_tags
from skidway.gateways.sqs.queue_attributes import (
    ALLOW_ALL,
    COUNTS,
    asked_names,
    check_given,
    check_new,
    read_redrive_allow_policy,
    read_redrive_policy,
)
from skidway.gateways.sqs.queue_settings import changed, first_difference, new_settings, shown
from skidway.gateways.sqs.shapes import Answer
from skidway.steps import Steps


def create_queue(asked: Asked, request: shapes.CreateQueue) -> Steps[Answer]:
    name = request.queue_name or ""
    if not QUEUE_NAME.fullmatch(name):
        reason = "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length."
        raise invalid_value(name, "QueueName", reason)
    given = check_new(name, request.attributes or {})
    tags = request.tags or {}
    check_tags(tags)
    key = asked.key(name)
    try:
        queue = service.find(asked.call, key)
    except NotAQueue as error:
        raise _not_a_queue(error) from None
    except QueueError:
        _check_redrive(asked, key, given)
        try:
            settings = new_settings(given, is_fifo=is_fifo(key))
            yield from service.create(asked.call, key, settings, tags)
            return shapes.QueueUrlAnswer(queue_url=asked.url(key))
        except BadQueueName as error:
            raise invalid_value(name, "QueueName", error.detail) from None
        except QueueExists:
            pass  # another client was quicker
        try:
            queue = service.find(asked.call, key)
        except NotAQueue as error:
            raise _not_a_queue(error) from None
    different = first_difference(queue.settings, given)
    if different is not None:
        raise queue_exists(different)
    return shapes.QueueUrlAnswer(queue_url=asked.url(key))


def _not_a_queue(error: QueueError) -> SqsError:
    return SqsError("QueueNameExists", "QueueAlreadyExists", error.detail)


def _check_redrive(asked: Asked, key: QueueKey, given: Mapping[str, str]) -> None:
    """The queue for dead letters is there, of the same type, and lets this one have it. Raises SqsError."""
    text = given.get("RedrivePolicy", "")
    if not text:
        return
    target = asked.find(read_redrive_policy(text).target)
    if target.key == key:
        raise invalid_value(text, "RedrivePolicy", "A queue cannot be its own dead-letter queue: name another one.")
    if target.settings.is_fifo != is_fifo(key):
        reason = "A dead-letter queue has the type of its source: the one of a FIFO queue must be FIFO as well."
        raise invalid_value(text, "RedrivePolicy", reason)
    policy = target.settings.attributes.get("RedriveAllowPolicy")
    if not (ALLOW_ALL if policy is None else read_redrive_allow_policy(policy)).allows(key):
        reason = "The dead-letter queue does not allow this source queue (RedriveAllowPolicy)."
        raise invalid_value(text, "RedrivePolicy", reason)


def get_queue_url(asked: Asked, request: shapes.GetQueueUrl) -> Steps[Answer]:
    yield None
    owner = request.queue_owner_aws_account_id or asked.identity.account
    if not ACCOUNT.fullmatch(owner):
        raise no_such_queue()
    queue = asked.find(QueueKey(request.queue_name or "", owner, asked.identity.region))
    return shapes.QueueUrlAnswer(queue_url=asked.url(queue.key))


def list_queues(asked: Asked, request: shapes.ListQueues) -> Steps[Answer]:
    queues, token = yield from _page(asked, request.queue_name_prefix or "", request.max_results, request.next_token)
    return shapes.QueuesAnswer(queue_urls=[asked.url(queue.key) for queue in queues], next_token=token)


def list_dead_letter_source_queues(asked: Asked, request: shapes.ListDeadLetterSourceQueues) -> Steps[Answer]:
    target = asked.queue(request.queue_url)
    count, after = _page_bounds(request.max_results, request.next_token)
    sources: list[Queue] = []
    identity = asked.identity
    while len(sources) <= count:
        found = yield from service.list_queues(asked.call, identity.account, identity.region, "", after, LISTED_MAX)
        sources += [queue for queue in found if is_source(queue, target)]
        if len(found) < LISTED_MAX:
            break
        after = found[-1].key.name
    token = _token(sources[count - 1]) if request.max_results is not None and len(sources) > count else None
    urls = [asked.url(queue.key) for queue in sources[:count]]
    return shapes.SourceQueuesAnswer(queue_urls=urls, next_token=token)


def is_source(queue: Queue, target: Queue) -> bool:
    """Whether dead letters of the one go to the other."""
    return queue.settings.deliveries_max > 0 and queue.settings.dead_letters == target.topic


def _page(
    asked: Asked, prefix: str, max_results: int | None, next_token: str | None
) -> Steps[tuple[list[Queue], str | None]]:
    count, after = _page_bounds(max_results, next_token)
    identity = asked.identity
    found = yield from service.list_queues(asked.call, identity.account, identity.region, prefix, after, count + 1)
    more = max_results is not None and len(found) > count
    return found[:count], _token(found[count - 1]) if more else None


def _page_bounds(max_results: int | None, next_token: str | None) -> tuple[int, str]:
    """How many, and behind which name. Raises SqsError."""
    if max_results is not None and not 1 <= max_results <= LISTED_MAX:
        raise invalid_value(max_results, "MaxResults", f"Must be between 1 and {LISTED_MAX}, if provided.")
    if not next_token:
        return max_results or LISTED_MAX, ""
    try:
        after = urlsafe_b64decode(next_token.encode("ascii")).decode("ascii")
    except (ValueError, UnicodeError):
        after = ""
    if topic_of(QueueKey(after)) is None:
        raise invalid_value(next_token, "NextToken", "It is not a token of an earlier answer.")
    return max_results or LISTED_MAX, after


def _token(last: Queue) -> str:
    return urlsafe_b64encode(last.key.name.encode()).decode()


def delete_queue(asked: Asked, request: shapes.DeleteQueue) -> Steps[Answer]:
    yield from service.delete_queue(asked.call, asked.queue(request.queue_url))
    return shapes.NOTHING


def purge_queue(asked: Asked, request: shapes.PurgeQueue) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    if not asked.purges.begin(queue.topic_id, asked.call.now_ms):
        raise purge_in_progress(queue.key.name)
    try:
        yield from service.purge(asked.call, queue)
    except QueueError:
        asked.purges.failed(queue.topic_id)
        raise
    return shapes.NOTHING


def get_queue_attributes(asked: Asked, request: shapes.GetQueueAttributes) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    given = request.attribute_names or []
    if len(given) > NAMES_MAX:
        raise invalid_value(len(given), "AttributeNames", f"At most {NAMES_MAX} names.")
    names = asked_names(given, is_fifo=queue.settings.is_fifo)
    values = shown(queue.settings)
    values["QueueArn"] = arn_of(queue.key)
    values["CreatedTimestamp"] = str(queue.created_ms // 1_000)
    values["LastModifiedTimestamp"] = str(queue.modified_ms // 1_000)
    if any(name in COUNTS for name in names):
        counters = yield from service.counters(asked.call, queue)
        counts = (counters.visible, counters.in_flight + counters.dead, counters.delayed)
        values |= {name: str(count) for name, count in zip(COUNTS, counts, strict=True)}
    return shapes.AttributesAnswer(attributes={name: values[name] for name in names if name in values})


def set_queue_attributes(asked: Asked, request: shapes.SetQueueAttributes) -> Steps[Answer]:
    queue = asked.queue(request.queue_url)
    given = check_given(request.attributes or {}, is_fifo=queue.settings.is_fifo)
    _check_redrive(asked, queue.key, given)
    yield from service.change_settings(asked.call, queue, changed(queue.settings, given))
    return shapes.NOTHING
