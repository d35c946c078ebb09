"""Where dead letters of share groups go: the topic is found or made, and batches are produced to whoever leads there.

All share-partitions of a node use one office. `Refused` says why a letter cannot be written as things are, in words for
an operator.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from skidway.broker.api.call import Hangup
from skidway.broker.cluster.producer_ids import Answer
from skidway.broker.partitions.topic_settings import TopicSettings
from skidway.errors import ErrorCode
from skidway.metadata.broker_configs import letter_topics
from skidway.metadata.image import NO_LEADER, Image, Topic
from skidway.metadata.topic_configs import value_of
from skidway.replica.leader import ACKS_ALL
from skidway.shares.letter_notes import Plan
from skidway.wire.message import Message
from skidway.wire.schema.create_topics import CreatableTopic, CreatableTopicConfig
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

CHANNEL = "letters"
APPEND_MS = 10_000
"""So long the leader of the dead letters may take."""
ANSWER_MS = 15_000
ENABLED = "errors.deadletterqueue.group.enable"
FIFO = "fifo"
KEPT = ("queue.type", "queue.max.message.bytes", "max.message.bytes", "queue.created.ms", "queue.modified.ms")
"""What a queue for dead letters has of the queue that they come from; its letters are kept as long as any record."""

AskNode = Callable[[int, str, Message, int, int, Callable[[Message | None], None]], None]
CreateTopics = Callable[
    [list[CreatableTopic], int, Callable[[dict[str, tuple[ErrorCode, str]]], None]],
    None,
]
Sent = Callable[[ErrorCode, str], None]
"""(code, what the leader said): NONE when the letters are there."""


class Target(NamedTuple):
    topic: Topic
    partition: int
    bytes_max: int


class Refused(Exception):
    """Why nothing can be written."""


class Missing(Exception):
    """The topic is not there, and may be made."""


class LetterOffice:
    __slots__ = ("_ask", "_create", "_image", "_settings", "given_up", "take_id", "written")

    def __init__(
        self,
        image: Image,
        settings: TopicSettings,
        ask: AskNode,
        create: CreateTopics,
        take_id: Callable[[int, Answer], None],
    ) -> None:
        """`take_id` gives a producer's id that nobody else has."""
        self._image = image
        self._settings = settings
        self._ask = ask
        self._create = create
        self.take_id = take_id
        self.written = self.given_up = 0
        """Letters of records that died here, and records that were archived without one: counted for metrics."""

    def target(self, name: str, source: str, partition: int, *, of_queue: bool = False) -> Target:
        """For letters of a partition of `source`."""
        if name == source:
            raise Refused(f"{name} is the topic where the records come from: choose another one")
        if of_queue:
            return self._queue(name, partition)
        made, prefix = letter_topics(self._settings.defaults)
        if not name.startswith(prefix):
            rule = f"errors.deadletterqueue.topic.name.prefix asks for names that begin with {prefix}"
            raise Refused(f"{name} is not allowed: {rule}")
        topic = self._image.topics.get(name)
        if topic is None and made:
            raise Missing
        if topic is None:
            raise Refused(f"there is no topic {name}: create it with {ENABLED}=true")
        if value_of(ENABLED, self._image.topic_config(name)) is not True:
            raise Refused(f"{name} does not take dead letters: set {ENABLED}=true there")
        return Target(topic, partition % len(topic.partitions), self._settings.of(name).max_message_bytes)

    def _queue(self, name: str, partition: int) -> Target:
        """Who may set up a queue has said where its letters go."""
        topic = self._image.topics.get(name)
        if topic is None:
            raise Missing
        return Target(topic, partition % len(topic.partitions), self._settings.of(name).max_message_bytes)

    def is_there(self, plan: Plan) -> bool:
        topic = self._image.topics_by_id.get(plan.topic_id)
        return topic is not None and plan.partition < len(topic.partitions)

    def create(self, name: str, now_ms: int, respond: Callable[[str], None], queue_like: str = "") -> None:
        """As a queue like that one, if one is named. `respond` gets why it could not be made, or nothing."""

        def answer(failed: dict[str, tuple[ErrorCode, str]]) -> None:
            code, text = failed.get(name, (ErrorCode.NONE, ""))
            respond(f"{name} cannot be created: {code.name} {text}" if code else "")

        configs = [CreatableTopicConfig(ENABLED, "true"), CreatableTopicConfig("message.timestamp.type", "CreateTime")]
        count = -1
        if queue_like:
            like = self._image.topic_config(queue_like)
            configs = [CreatableTopicConfig(each, like[each]) for each in KEPT if each in like]
            count = 1 if like.get("queue.type") == FIFO else -1
        self._create([CreatableTopic(name, count, -1, [], configs)], now_ms, answer)

    def send(self, plan: Plan, batch: bytearray, now_ms: int, sent: Sent) -> None:
        leader = self._image.topics_by_id[plan.topic_id].partitions[plan.partition].leader
        if leader == NO_LEADER:
            sent(ErrorCode.LEADER_NOT_AVAILABLE, "the partition has no leader")
            return
        data = PartitionProduceData(plan.partition, memoryview(batch))
        topics = [TopicProduceData(self._image.topics_by_id[plan.topic_id].name, plan.topic_id, [data])]
        request = ProduceRequest(None, ACKS_ALL, APPEND_MS, topics)
        try:
            self._ask(leader, CHANNEL, request, now_ms, ANSWER_MS, lambda response: sent(*_outcome(response)))
        except Hangup as hangup:
            sent(ErrorCode.NOT_LEADER_OR_FOLLOWER, str(hangup))


def _outcome(response: Message | None) -> tuple[ErrorCode, str]:
    if not isinstance(response, ProduceResponse):
        return ErrorCode.REQUEST_TIMED_OUT, "the leader does not answer"
    result = response.responses[0].partition_responses[0]
    return ErrorCode(result.error_code), result.error_message or ""
