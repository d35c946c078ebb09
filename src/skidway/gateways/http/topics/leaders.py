"""Questions to whoever leads a partition: here by a call without a connection, elsewhere over the node's own links.

The answer is a message of Kafka's protocol, so what a request does is what it does for Kafka's clients. `respond` gets
None when the node that was asked does not answer: then nobody knows what it did.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from skidway.broker.api.call import Hangup, LocalCall
from skidway.broker.api.caller import Caller
from skidway.broker.api.forwarding import handle_later
from skidway.errors import ErrorCode
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.problems import Problem, unavailable
from skidway.metadata.image import NO_LEADER, Topic
from skidway.metadata.topic_names import is_legal
from skidway.steps import Question, Steps
from skidway.wire.message import Message
from skidway.wire.schema.create_topics import CreatableTopic

Respond = Callable[[Message | None], None]
CHANNEL = "http"
RETRY_MS = 50
HEARD_MS_MAX = 5_000
THROTTLED_S = 10
SLACK_MS = 2_000
"""So much longer than the answer should take it is waited for."""

MOVED = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REPLICA_NOT_AVAILABLE,
    )
)
"""Nothing was done: the leader is elsewhere, or does not know yet that it is one. Asked again within the time."""
RETRYABLE = MOVED | frozenset(
    (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.OFFSET_NOT_AVAILABLE,
    )
)
STATUSES = {
    ErrorCode.MESSAGE_TOO_LARGE: 413,
    ErrorCode.RECORD_LIST_TOO_LARGE: 413,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: 403,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: 404,
    ErrorCode.UNKNOWN_TOPIC_ID: 404,
    ErrorCode.INVALID_TOPIC_EXCEPTION: 422,
}


def ask_node(
    call: HttpCall,
    node_id: int,
    request: Message,
    timeout_ms: int,
    respond: Respond,
    channel: str = CHANNEL,
    caller: Caller | None = None,
) -> LocalCall | None:
    """The call, if this is the node: who does not want the answer any more gives it up. `caller` asks in the place of
    the client."""
    node, services = call.site.node, call.site.services
    now_ms = node.clock.monotonic_ms()
    if node_id != node.settings.node_id:
        services.peers.ask(node_id, channel, request, now_ms, timeout_ms + SLACK_MS, respond)
        return None
    assert request.__key__ is not None
    route = node.routes.newest(request.__key__)
    inner = LocalCall(route, caller or call.caller, now_ms, respond, call.fail)
    try:
        handle_later(services, inner, route.handle, request)
    except Hangup:
        # How the handler tells a client of Kafka's protocol to go elsewhere.
        respond(None)
    return inner


def ask_leader(call: HttpCall, topic: str, index: int, request: Message, deadline_ms: int) -> Steps[Message]:
    """The answer of the leader, whose code `MOVED` makes it asked again, or a leader elected meanwhile. The request
    must be one that may be done twice. Raises Problem."""
    node = call.site.node
    while True:
        leader = leader_of(call, find_topic(call, topic), index)
        left_ms = deadline_ms - node.clock.monotonic_ms()
        if leader != NO_LEADER:
            answer = yield Question(_asking(call, leader, request, max(left_ms, 1)))
            if answer is not None and code_of(answer) not in MOVED:
                assert isinstance(answer, Message)
                return answer
        if node.clock.monotonic_ms() + RETRY_MS >= deadline_ms:
            raise no_leader(topic, index)
        yield Question(sleep(call, RETRY_MS))


def _asking(call: HttpCall, leader: int, request: Message, timeout_ms: int) -> Callable[[Respond], None]:
    def ask(respond: Respond) -> None:
        ask_node(call, leader, request, timeout_ms, respond)

    return ask


def sleep(call: HttpCall, wait_ms: int) -> Callable[[Callable[[Any], None]], None]:
    def ask(respond: Callable[[Any], None]) -> None:
        node = call.site.node
        node.timers.at(node.clock.monotonic_ms() + wait_ms, lambda: respond(None))

    return ask


def code_of(answer: Any) -> int:
    """Of the only partition of an answer."""
    if getattr(answer, "error_code", 0):
        return int(answer.error_code)
    topics = answer.topics if hasattr(answer, "topics") else answer.responses
    return int(topics[0].partitions[0].error_code) if topics else 0


def find_topic(call: HttpCall, name: str) -> Topic:
    """Raises Problem."""
    topic = call.site.node.image.topics.get(name)
    if topic is None:
        raise Problem(404, "no_such_topic", f"there is no topic {name[:250]!r}")
    return topic


def leader_of(call: HttpCall, topic: Topic, index: int) -> int:
    if index >= len(topic.partitions):
        text = f"{topic.name} has {len(topic.partitions)} partitions, counted from 0, and no {index}"
        raise Problem(404, "no_such_partition", text)
    return call.site.services.hosting.whereabouts.leader_of(topic, index)


def no_leader(topic: str, index: int) -> Problem:
    return unavailable("no_leader", f"nobody leads {topic}-{index} now")


def may_create(call: HttpCall, name: str) -> bool:
    node = call.site.node
    return name not in node.image.topics and node.settings.auto_create_topics and is_legal(name)


def create_topic(call: HttpCall, name: str) -> Steps[None]:
    """As Kafka's clients do by naming it. Raises Problem."""
    services = call.site.services

    def ask(respond: Callable[[Any], None]) -> None:
        wanted = [CreatableTopic(name, -1, -1)]
        services.controller.create_missing_topics(wanted, call.site.node.clock.monotonic_ms(), respond)

    failed = yield Question(ask)
    if failed:
        code, text = failed[name]
        raise problem_of(code, f"the topic could not be created: {text}")
    # If it was there already, this node may hear of it later than the controller answers.
    node = call.site.node
    until_ms = node.clock.monotonic_ms() + HEARD_MS_MAX
    while name not in node.image.topics:
        if node.clock.monotonic_ms() >= until_ms:
            raise unavailable("topic_not_ready", "the topic was created, but this node does not know it yet")
        yield Question(sleep(call, RETRY_MS))


def problem_of(code: int, detail: str = "") -> Problem:
    """A refusal in the words of Kafka's protocol, as HTTP tells it."""
    known = ErrorCode(code) if code in ErrorCode._value2member_map_ else ErrorCode.UNKNOWN_SERVER_ERROR
    name = known.name.lower()
    detail = detail or known.name.replace("_", " ").lower()
    if known == ErrorCode.THROTTLING_QUOTA_EXCEEDED:
        return Problem(429, name, detail, retryable=True, retry_after_s=THROTTLED_S)
    if known in RETRYABLE:
        return unavailable(name, detail)
    return Problem(STATUSES.get(known, 422), name, detail)
