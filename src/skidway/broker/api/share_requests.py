"""Requests about share-partitions, of leaders and group coordinators on other nodes, for the coordinators here.

What a request asks of one partition of `__share_group_state` is decided together, some hundred questions at a time.
Answered when all of it is committed. A share-partition whose state is not kept here: NOT_COORDINATOR.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from skidway.broker.api.call import Call
from skidway.broker.api.forwarding import ask_node
from skidway.broker.coordinators.share_messages import FORMS, Form, fill
from skidway.broker.coordinators.share_work import ShareWork
from skidway.broker.services import Services
from skidway.errors import ClusterAuthorizationFailed, InvalidRequest, ProtocolError, UnknownLeaderEpoch
from skidway.limits import INT32_MAX
from skidway.shares.coordinator.keys import ShareKey, text_of
from skidway.shares.coordinator.operations import Answer, Ask, Question
from skidway.steps import Steps
from skidway.wire.message import Message
from skidway.wire.schema.read_share_group_state import PartitionData as ReadEntry

AT_ONCE_MAX = 100
"""Questions decided in one go."""

Asked = tuple[Any, Question]
"""The result that the answer belongs into, and the question."""


def serve(node: Services, call: Call, request: Any, kind: type[Any]) -> Steps[None]:
    form = FORMS[kind]
    response, asked = yield from _questions(node, form, request)
    missing = len(asked) + 1  # this loop itself

    def answer(bunch: list[Asked], answers: list[Answer] | ProtocolError) -> None:
        nonlocal missing
        given = [answers] * len(bunch) if isinstance(answers, ProtocolError) else answers
        for (result, _), one in zip(bunch, given, strict=True):
            fill(form, result, one)
        missing -= 1
        if missing == 0:
            call.reply(response)

    for text, bunch in asked:
        questions = [question for _, question in bunch]
        node.share_states.shares.submit(text, Ask(questions), call.now_ms, partial(answer, bunch))
        yield None
    answer([], [])


def _questions(node: Services, form: Form, request: Any) -> Steps[tuple[Message, list[tuple[str, list[Asked]]]]]:
    """The response without answers, and what to ask: with a key for each bunch."""
    shares = node.share_states.shares
    bunches: dict[int, list[Asked]] = {}
    asked: list[tuple[str, list[Asked]]] = []
    topics: list[Any] = []
    for topic in request.topics:
        results: list[Any] = []
        topics.append(form.topic_result(topic.topic_id, results))
        for entry in topic.partitions:
            yield None
            result = form.result(entry.partition)
            results.append(result)
            key = ShareKey(request.group_id, bytes(topic.topic_id), entry.partition)
            if (refusal := _refusal(node, key, entry)) is not None:
                fill(form, result, refusal)
                continue
            text = text_of(key)
            place = shares.place_of(text)
            if place not in bunches or len(bunches[place]) >= AT_ONCE_MAX:
                bunches[place] = []
                asked.append((text, bunches[place]))
            bunches[place].append((result, form.question(key, entry)))
        yield None
    return form.response(topics), asked


def _refusal(node: Services, key: ShareKey, entry: Any) -> ProtocolError | None:
    """Why it is not even asked."""
    if not key.group_id or key.partition < 0:
        return InvalidRequest("a share-partition has a group and a number")
    if len(key.group_id) > (length_max := node.world.limits.group_name_length_max):
        return InvalidRequest(f"a group's id has {length_max} characters at most, limits.group_name_length_max")
    if isinstance(entry, ReadEntry) and entry.leader_epoch > (known := _leader_epoch(node, key)):
        # It would fence all leaders up to that epoch. Who leads since a moment ago asks again.
        return UnknownLeaderEpoch(f"leader epoch {entry.leader_epoch}, where {known} is the last that is known here")
    return None


def _leader_epoch(node: Services, key: ShareKey) -> int:
    topic = node.image.topics_by_id.get(key.topic_id)
    if topic is None or key.partition >= len(topic.partitions):
        return INT32_MAX  # the coordinator says what is wrong
    return topic.partitions[key.partition].leader_epoch


def share_work(node: Services) -> ShareWork:
    """Which asks the nodes that this one knows."""
    return ShareWork(node.world, node.image, node.share_states, partial(ask_node, node), node.groups.submit)


def refused(request: Any) -> Message:
    """The answer to a caller that is no node."""
    form = next(form for form in FORMS.values() if form.request is type(request))
    refusal = ClusterAuthorizationFailed()
    topics = []
    for topic in request.topics:
        results = [form.result(entry.partition) for entry in topic.partitions]
        for result in results:
            fill(form, result, refusal)
        topics.append(form.topic_result(topic.topic_id, results))
    return form.response(topics)
