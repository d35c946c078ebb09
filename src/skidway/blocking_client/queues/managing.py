"""Queues: made, found, listed, counted, emptied and deleted.

A queue is a topic, and its settings are the topic's, so all but counting is done with Kafka's own requests. What only a
leader knows is asked with APIs of Skidway's own, which its brokers advertise to clients that know them.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from skidway.blocking_client.admin import DELETE, SET, TOPIC_RESOURCE, Admin, ConfigChange
from skidway.blocking_client.cluster import Cluster, NoSuchTopic
from skidway.blocking_client.connection import Connection, Reply
from skidway.blocking_client.errors import BadReply, ClientError, check
from skidway.limits import KIB, MIB, TOPIC_NAME_MAX
from skidway.wire.message import Message
from skidway.wire.schema.count_messages import CountedPartition, CountMessagesRequest, CountMessagesResponse
from skidway.wire.schema.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

STANDARD, FIFO = "standard", "fifo"
DEAD_LETTERS_SUFFIX = "-dlq"
MAX_RECEIVES = 5
RETENTION_MS = 4 * 86_400_000
BATCH_SLACK_BYTES = 128 * KIB
"""What a batch may have beside its message: names of headers, and all that describes it."""
END_OF_LOG = -1
RESOURCES_AT_ONCE = 100
TYPE = "queue.type"
MESSAGE_BYTES = "queue.max.message.bytes"
DEFAULTS = {
    TYPE: "",
    "queue.visibility.timeout.ms": "30000",
    "queue.delay.ms": "0",
    "queue.receive.wait.ms": "0",
    "queue.max.message.bytes": str(MIB),
    "queue.max.deliveries": "0",
    "queue.dead.letter.topic": "",
    "queue.content.deduplication": "false",
    "queue.deduplication.scope": "queue",
}
"""A broker tells of these only where they are set."""
RETENTION = "retention.ms"


class NoSuchQueue(ClientError):
    def __init__(self, name: str) -> None:
        super().__init__(f"there is no queue {name}")
        self.queue = name


class NotAQueue(ClientError):
    def __init__(self, name: str) -> None:
        super().__init__(f"{name} is a topic but no queue")
        self.queue = name


@dataclass(slots=True, frozen=True)
class Queue:
    """As it was when it was looked for."""

    name: str
    topic_id: bytes
    partitions: int
    kind: str
    visibility_ms: int
    delay_ms: int
    wait_ms: int
    """How long a receive waits that does not say."""
    message_bytes_max: int
    retention_ms: int
    max_receives: int
    """0: without end."""
    dead_letters: str
    content_deduplication: bool
    deduplication_scope: str

    @property
    def is_fifo(self) -> bool:
        return self.kind == FIFO


@dataclass(slots=True)
class Counts:
    visible: int = 0
    blocked: int = 0
    """Of those: they wait for an earlier message of their group."""
    in_flight: int = 0
    delayed: int = 0
    dead: int = 0
    """They wait until their dead letters are written."""
    letter_trouble: str = ""
    """Why those cannot be written; empty: they can."""


class Queues:
    """Not for several threads at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._admin = Admin(cluster)

    # --- what there is ---

    def find(self, name: str) -> Queue:
        """Raises NoSuchQueue, NotAQueue."""
        try:
            topic = self.cluster.look_up(name)
            settings = self._settings([name]).get(name, {})
        except NoSuchTopic:
            raise NoSuchQueue(name) from None
        if not settings.get(TYPE):
            raise NotAQueue(name)
        return _queue(name, topic.id, len(topic.partitions), settings)

    def all(self) -> list[Queue]:
        """By name."""
        topics = {topic.name: topic for topic in self._admin.topics() if not topic.internal}
        names = list(topics)
        found: list[Queue] = []
        for start in range(0, len(names), RESOURCES_AT_ONCE):
            for name, settings in self._settings(names[start : start + RESOURCES_AT_ONCE]).items():
                if settings.get(TYPE):
                    found.append(_queue(name, topics[name].id, len(topics[name].partitions), settings))
        return sorted(found, key=lambda queue: queue.name)

    def _settings(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Of those topics that are there."""
        wanted = [*DEFAULTS, RETENTION]
        request = DescribeConfigsRequest(
            resources=[DescribeConfigsResource(TOPIC_RESOURCE, name, list(wanted)) for name in names]
        )
        reply = self.cluster.retrying(lambda: self.cluster.any_broker().call(request, DescribeConfigsResponse))
        return {
            result.resource_name: {each.name: each.value or "" for each in result.configs}
            for result in reply.results
            if not result.error_code
        }

    # --- changes ---

    def create(
        self, name: str, configs: Mapping[str, str], *, partitions: int = -1, replication: int = -1, dry: bool = False
    ) -> None:
        """With the settings that `configs` gives, and those that a queue has by default."""
        now_ms = str(time.time_ns() // 1_000_000)
        defaults = default_configs(name, configs) | {"queue.created.ms": now_ms, "queue.modified.ms": now_ms}
        self._admin.create_topic(
            name,
            partitions=partitions,
            replication=replication,
            configs=defaults | dict(configs),
            validate_only=dry,
            about=f"cannot create queue {name}",
        )

    def alter(self, queue: Queue, configs: Mapping[str, str], reset: Iterable[str] = (), *, dry: bool = False) -> None:
        """What is in `reset` becomes what a new queue has."""
        defaults = default_configs(queue.name, {})
        changed: dict[str, str | None] = {**configs, **{name: defaults.get(name) for name in reset}}
        if MESSAGE_BYTES in changed:
            changed["max.message.bytes"] = _batch_bytes(changed[MESSAGE_BYTES])
        changed["queue.modified.ms"] = str(time.time_ns() // 1_000_000)
        changes = [ConfigChange(name, DELETE if value is None else SET, value) for name, value in changed.items()]
        about = f"cannot alter queue {queue.name}"
        self._admin.alter_topic(queue.name, changes, validate_only=dry, about=about)

    def purge(self, queue: Queue) -> None:
        """All that was sent before is gone: waiting, delayed and in flight. Kafka's readers do not see it either."""
        self.cluster.retrying(
            lambda: self._admin.delete_records(queue.name, dict.fromkeys(range(queue.partitions), END_OF_LOG)),
            topics=[queue.name],
        )

    def delete(self, queue: Queue) -> None:
        self._admin.delete_topic(queue.name)

    # --- what leaders know ---

    def counts(self, queue: Queue) -> Counts:
        return sum_of(self.count(queue, 0))

    def count(
        self, queue: Queue, shown_max: int, partitions: Iterable[int] | None = None, shown_from: int = 0
    ) -> list[CountedPartition]:
        """For each partition, with the places of the first messages that are not settled, from an offset on."""
        found: dict[int, CountedPartition] = {}

        def request(indexes: list[int]) -> Message:
            return CountMessagesRequest(queue.topic_id, indexes, shown_max, shown_from)

        def take(answer: CountedPartition) -> None:
            check(answer.error_code, f"counting {queue.name}", answer.error_message)
            found[answer.partition_index] = answer

        wanted = range(queue.partitions) if partitions is None else partitions
        ask_leaders(self.cluster, queue, wanted, request, CountMessagesResponse, take)
        return [found[index] for index in sorted(found)]


def sum_of(counted: Iterable[CountedPartition]) -> Counts:
    total = Counts()
    for each in counted:
        total.visible += each.visible
        total.blocked += each.blocked
        total.in_flight += each.in_flight
        total.delayed += each.delayed
        total.dead += each.dead
        total.letter_trouble = total.letter_trouble or each.letter_trouble or ""
    return total


def default_configs(name: str, configs: Mapping[str, str]) -> dict[str, str]:
    """As the HTTP door has them: a message that was received five times goes to the dead letters, and stays there."""
    found = {TYPE: STANDARD, RETENTION: str(RETENTION_MS)}
    found["max.message.bytes"] = _batch_bytes(configs.get(MESSAGE_BYTES))
    if not name.endswith(DEAD_LETTERS_SUFFIX):
        found["queue.max.deliveries"] = str(MAX_RECEIVES)
        letters = name + DEAD_LETTERS_SUFFIX
        if configs.get("queue.max.deliveries") != "0" and len(letters) <= TOPIC_NAME_MAX:
            found["queue.dead.letter.topic"] = letters
    return found


def _batch_bytes(largest: str | None) -> str:
    """The largest batch of a queue. The broker refuses what is no number."""
    known = largest is not None and largest.isascii() and largest.isdecimal()
    return str(int(largest if known and largest else DEFAULTS[MESSAGE_BYTES]) + BATCH_SLACK_BYTES)


def ask_leaders(
    cluster: Cluster,
    queue: Queue,
    indexes: Iterable[int],
    request_of: Callable[[list[int]], Message],
    reply: type[Reply],
    take: Callable[[Any], None],
) -> None:
    """Ask the leader of each partition until it has answered. `request_of` is the request about some of them, which may
    be done twice. `take` gets the answer about one, and raises what is wrong with it."""
    left = list(dict.fromkeys(indexes))

    def attempt() -> None:
        by_leader: dict[Connection, list[int]] = {}
        for index in left:
            by_leader.setdefault(cluster.leader(queue.name, index), []).append(index)
        for connection, led in by_leader.items():
            for answer in ask_leader(connection, request_of(led), reply).partitions:
                if answer.partition_index in left:
                    take(answer)
                    left.remove(answer.partition_index)
        if left:
            raise BadReply(f"nobody answered about {queue.name} partition {left[0]}")

    cluster.retrying(attempt, topics=[queue.name])


def ask_leader(connection: Connection, request: Message, reply: type[Reply], timeout_ms: int | None = None) -> Any:
    """Raises Unsupported where the broker is none of Skidway's."""
    answer: Any = connection.call(request, reply, timeout_ms=timeout_ms)
    check(answer.error_code, f"asking {connection.address} about a queue")
    return answer


def _queue(name: str, topic_id: bytes, partitions: int, given: Mapping[str, str]) -> Queue:
    settings = {**DEFAULTS, **given}
    return Queue(
        name=name,
        topic_id=topic_id,
        partitions=partitions,
        kind=settings[TYPE],
        visibility_ms=int(settings["queue.visibility.timeout.ms"]),
        delay_ms=int(settings["queue.delay.ms"]),
        wait_ms=int(settings["queue.receive.wait.ms"]),
        message_bytes_max=int(settings["queue.max.message.bytes"]),
        retention_ms=int(settings[RETENTION]),
        max_receives=int(settings["queue.max.deliveries"]),
        dead_letters=settings["queue.dead.letter.topic"],
        content_deduplication=settings["queue.content.deduplication"] == "true",
        deduplication_scope=settings["queue.deduplication.scope"],
    )
