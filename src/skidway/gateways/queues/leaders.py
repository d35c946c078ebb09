"""Questions about partitions of one queue, to whichever nodes lead them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from skidway.broker.api.call import LocalCall
from skidway.broker.api.caller import this_node
from skidway.errors import ErrorCode
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.topics.leaders import CHANNEL, MOVED, RETRY_MS, Respond, ask_node, sleep
from skidway.gateways.queues.errors import NoSuchQueue, QueueUnavailable
from skidway.gateways.queues.types import Queue
from skidway.metadata.image import NO_LEADER
from skidway.steps import Question, Steps
from skidway.wire.message import Message

ANSWER_MS = 10_000
AGAIN = MOVED | {
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}
"""Nothing was done: it is asked again within the time."""


def ask_as_node(
    call: HttpCall, node_id: int, request: Message, timeout_ms: int, respond: Respond, channel: str = CHANNEL
) -> LocalCall | None:
    """What only nodes may ask. What the client may do with the queue is known before."""
    caller = this_node(call.site.node.settings.node_id)
    return ask_node(call, node_id, request, timeout_ms, respond, channel, caller)


def by_leader(call: HttpCall, queue: Queue, indexes: Iterable[int]) -> dict[int, list[int]]:
    """Partitions by the node that leads them, those of this node first. Raises NoSuchQueue."""
    topic = call.site.node.image.topics_by_id.get(queue.topic_id)
    if topic is None:
        raise NoSuchQueue(f"{queue.key.name!r} was deleted")
    whereabouts = call.site.services.hosting.whereabouts
    here = call.site.node.settings.node_id
    found: dict[int, list[int]] = {}
    for index in indexes:
        if index < len(topic.partitions):
            found.setdefault(whereabouts.leader_of(topic, index), []).append(index)
    if len(found) < 2:
        return found
    return {node_id: found[node_id] for node_id in sorted(found, key=lambda node_id: node_id != here)}


def ask_all(
    call: HttpCall,
    queue: Queue,
    indexes: Iterable[int],
    request_of: Callable[[list[int]], Message],
    take: Callable[[Any], int],
) -> Steps[list[int]]:
    """Ask about each partition until somebody has answered it, or the time is over. `request_of` is the request about
    some of them, which may be done twice. `take` gets the answer about one, and returns its error code. Returns those
    that nobody answered. Raises NoSuchQueue."""
    node = call.site.node
    deadline_ms = node.clock.monotonic_ms() + ANSWER_MS
    left = list(dict.fromkeys(indexes))
    while True:
        asked = by_leader(call, queue, left)
        asked.pop(NO_LEADER, None)
        answers = yield Question(partial(_ask_each, call, asked, request_of))
        for answer in answers:
            for partition in answer.partitions:
                if take(partition) not in AGAIN and partition.partition_index in left:
                    left.remove(partition.partition_index)
        if not left or node.clock.monotonic_ms() + RETRY_MS >= deadline_ms:
            return left
        yield Question(sleep(call, RETRY_MS))


def _ask_each(
    call: HttpCall,
    asked: dict[int, list[int]],
    request_of: Callable[[list[int]], Message],
    respond: Callable[[list[Any]], None],
) -> None:
    answers: list[Any] = []
    open_count = 1  # ours: this node answers at once

    def take(answer: Message | None) -> None:
        nonlocal open_count
        open_count -= 1
        if answer is not None:
            answers.append(answer)
        if not open_count:
            respond(answers)

    for node_id, indexes in asked.items():
        open_count += 1
        ask_as_node(call, node_id, request_of(indexes), ANSWER_MS, take)
    open_count -= 1
    if not open_count:
        respond(answers)


def nobody_leads(queue: Queue) -> QueueUnavailable:
    return QueueUnavailable(f"nobody answers for {queue.key.name!r} now: retry")
