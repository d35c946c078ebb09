"""SettleMessages (key 30002), v0: what became of messages of a queue, in partitions that this node leads.

Skidway's own. Each message is answered by itself; all when the last is stored. A delivery count of 0
stands for whatever delivery there is. Verbs are those of share groups, and 5: the delivery reached nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from skidway.errors import CoordinatorNotAvailable, ProtocolError
from skidway.shares.states import Verb
from skidway.steps import Steps
from skidway.wire.schema.settle_messages import (
    MessageToSettle,
    PartitionToSettle,
    SettledMessage,
    SettledPartition,
    SettleMessagesRequest,
    SettleMessagesResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services
    from skidway.broker.shares.share_partition import SharePartition

NOT_LOADED = CoordinatorNotAvailable("what is stored of the queue cannot be loaded: retry")


def handle(node: Services, call: Call, request: SettleMessagesRequest) -> Steps[None]:
    topic = node.image.topics_by_id.get(request.topic_id)
    response = SettleMessagesResponse()
    left = 1  # ours: answers may come before all is said

    def answered() -> None:
        nonlocal left
        left -= 1
        if not left:
            call.reply(response)

    for asked in request.partitions:
        yield None
        settled = SettledPartition(asked.partition_index, [SettledMessage() for _ in asked.messages])
        response.partitions.append(settled)
        left += len(asked.messages)
        try:
            place = (request.topic_id, asked.partition_index)
            share = node.queues.open(None if topic is None else topic.name, place, call.now_ms)
        except ProtocolError as error:
            for message in settled.messages:
                _note(message, answered, error.with_traceback(None))
            continue
        share.when_loaded(_settling(node, share, asked, settled, answered))
    answered()


def _settling(
    node: Services,
    share: SharePartition,
    asked: PartitionToSettle,
    settled: SettledPartition,
    answered: Callable[[], None],
) -> Callable[[], None]:
    def settle() -> None:
        now_ms = node.world.clock.monotonic_ms()
        words, at = asked.messages, 0
        while at < len(words):
            end = _run_end(words, at)
            if end - at > 1:
                answer = _answer_all(settled.messages[at:end], answered)
                first = words[at]
                if node.queues.accept_held(share, first.offset, end - at, first.delivery_count, now_ms, answer):
                    at = end
                    continue
            for each, message in zip(words[at:end], settled.messages[at:end], strict=True):
                if share.delivery is None or share.closed:
                    _note(message, answered, share.refusal or NOT_LOADED)
                    continue
                answer = _answer(message, answered)
                count, reason = each.delivery_count, each.reason or ""
                node.queues.settle(share, each.offset, count, each.verb, each.time_ms, now_ms, answer, reason)
            at = end
        share.pump()

    return settle


def _run_end(words: Sequence[MessageToSettle], at: int) -> int:
    """Up to where neighbours in the log are accepted by the same number: most likely they were delivered together."""
    first, end = words[at], at + 1
    if first.verb == Verb.ACCEPT:
        while end < len(words):
            word = words[end]
            if word.offset != first.offset + end - at or word.delivery_count != first.delivery_count:
                break
            if word.verb != Verb.ACCEPT:
                break
            end += 1
    return end


def _answer_all(
    messages: Sequence[SettledMessage], answered: Callable[[], None]
) -> Callable[[ProtocolError | None], None]:
    def answer(error: ProtocolError | None) -> None:
        for message in messages:
            _note(message, answered, error)

    return answer


def _answer(message: SettledMessage, answered: Callable[[], None]) -> Callable[[ProtocolError | None], None]:
    return lambda error: _note(message, answered, error)


def _note(message: SettledMessage, answered: Callable[[], None], error: ProtocolError | None) -> None:
    if error is not None:
        message.error_code, message.error_message = error.code, error.message
    answered()
