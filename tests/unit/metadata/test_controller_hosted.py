"""The controller in its host, over a store: what clients see when records commit late, and after a restart."""

from collections.abc import Sequence
from typing import Any

from controller_world import Cluster

from skidway.errors import ErrorCode, ProtocolError, StorageError
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.controller import Controller
from skidway.metadata.image import Endpoint, Image
from skidway.metadata.operations import (
    AlterOp,
    Bootstrap,
    BrokerHeartbeat,
    ConfigChange,
    CreateTopics,
    Heartbeat,
    IncrementalAlterConfigs,
    NewTopic,
    RegisterBroker,
    TopicCreated,
)
from skidway.metadata.records import to_batch
from skidway.runtime.replicated import Now, Operation, Replicated
from skidway.wire.message import Message


class Numbered:
    """Topic ids 1, 2, 3, ..."""

    def __init__(self) -> None:
        self.given = 0

    def randbytes(self, size: int) -> bytes:
        self.given += 1
        return b"t" + self.given.to_bytes(size - 1, "big")

    def randrange(self, stop: int) -> int:
        return 0


class MemoryStore:
    def __init__(self) -> None:
        self.records: list[Message] = []
        self.committed_offset = 0
        self.full = False

    @property
    def end_offset(self) -> int:
        return len(self.records)

    def append(self, records: Sequence[Message], now_ms: int) -> int:
        if self.full:
            raise StorageError("disk full")
        self.records.extend(records)
        return self.end_offset

    def read_all(self) -> Sequence[Message]:
        return list(self.records)


class Node:
    """A controller, and the image the rest of the node sees: only what is committed."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self.image = Image()
        self.replies: list[Any] = []
        self.host: Replicated[Controller, Message] = Replicated(lambda: Controller(Numbered()), store, self.publish)

    def publish(self, records: Sequence[Message]) -> None:
        for record in records:
            self.image.apply(record)

    def submit(self, operation: Operation[Any]) -> None:
        self.host.submit(operation, Now(0, 0), self.replies.append)

    def commit(self) -> None:
        self.store.committed_offset = self.store.end_offset
        self.host.on_committed(self.store.committed_offset)


def started() -> Node:
    node = Node(MemoryStore())
    node.submit(Bootstrap())
    node.submit(RegisterBroker(1, bytes(16), [Endpoint("PLAINTEXT", "localhost", 9092)]))
    node.commit()
    node.replies.clear()
    return node


def test_a_topic_is_visible_when_its_creation_is_answered_and_not_before() -> None:
    node = started()
    node.submit(CreateTopics([NewTopic("orders")]))
    assert node.replies == []
    assert node.image.topics == {}
    node.commit()
    [[created]] = node.replies
    assert isinstance(created, TopicCreated)
    assert node.image.topics_by_id[created.id].name == "orders"


def test_a_second_creation_is_refused_even_before_the_first_is_committed() -> None:
    node = started()
    node.submit(CreateTopics([NewTopic("orders")]))
    node.submit(CreateTopics([NewTopic("orders")]))
    assert node.replies == []
    node.commit()
    assert [reply[0].error for reply in node.replies] == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS]


def test_a_full_disk_refuses_the_topic_and_the_next_attempt_can_succeed() -> None:
    node = started()
    node.store.full = True
    node.submit(CreateTopics([NewTopic("orders")]))
    [failure] = node.replies
    assert isinstance(failure, ProtocolError)
    node.store.full = False
    node.submit(CreateTopics([NewTopic("orders")]))
    node.commit()
    assert node.replies[1][0].error == ErrorCode.NONE
    assert list(node.image.topics) == ["orders"]


def test_a_broker_is_unfenced_when_the_quorum_has_committed_it_and_watched_from_its_first_heartbeat() -> None:
    node = started()
    node.submit(RegisterBroker(2, b"2" * 16, [], fenced=True, log_end_offset=node.store.end_offset))
    node.commit()
    epoch = node.replies.pop().epoch
    node.submit(BrokerHeartbeat(2, epoch, metadata_offset=epoch, log_end_offset=node.store.end_offset))
    assert node.image.brokers[2].fenced
    assert node.replies == []
    node.commit()
    assert not node.image.brokers[2].fenced
    assert node.replies == [Heartbeat(is_caught_up=True, is_fenced=False, should_shut_down=False)]
    assert node.host.machine.due(1_199) == []
    [fence] = node.host.machine.due(1_200)
    node.host.submit(fence, Now(1_200, 1_200), node.replies.append)
    node.commit()
    assert node.image.brokers[2].fenced
    assert not node.image.brokers[1].fenced, "nobody watches a quorum of one"


def test_after_a_restart_everything_is_as_it_was() -> None:
    node = started()
    node.submit(CreateTopics([NewTopic("orders", 3)]))
    node.submit(IncrementalAlterConfigs([ConfigChange(2, "orders", [("flush", AlterOp.SET, "os")])]))
    node.commit()
    again = Node(node.store)
    assert again.image == node.image == again.host.machine.image


def test_a_message_that_quotes_the_client_stays_short() -> None:
    node = started()
    node.submit(CreateTopics([NewTopic("x" * 32_000), NewTopic("y", configs=[("flush", "z" * 32_000)])]))
    node.submit(IncrementalAlterConfigs([ConfigChange(4, "1" * 32_000, [])]))
    node.commit()
    for reply in node.replies:
        for result in reply:
            assert result.error != ErrorCode.NONE
            assert len(result.message) <= 1_000


class Unlucky(Numbered):
    """First the ids that mean something else, then one that prints as an option (`-...`), then a free one."""

    def randbytes(self, size: int) -> bytes:
        self.given += 1
        return [bytes(16), bytes(15) + b"\x01", b"\xf8" * 16, b"free" * 4][min(self.given, 4) - 1]


def test_reserved_and_awkward_topic_ids_are_drawn_again() -> None:
    controller = Controller(Unlucky())
    for operation in (RegisterBroker(1, bytes(16), []), CreateTopics([NewTopic("orders")])):
        decision = controller.decide(operation, Now(0, 0))
        for record in decision.records:
            controller.apply(record)
    assert controller.image.topics["orders"].id == b"free" * 4


def test_a_list_that_is_appended_to_again_and_again_has_an_end() -> None:
    """What does not fit a record is refused before anybody tries to write it."""
    cluster = Cluster()
    cluster.start(1)
    cluster.create("orders", 1)
    name, errors = "leader.replication.throttled.replicas", []
    for first in (0, 3_000):
        more = ",".join(f"{index}:1" for index in range(first, first + 3_000))
        change = ConfigChange(ResourceType.TOPIC, "orders", [(name, AlterOp.APPEND, more)])
        [reply] = cluster.decide(IncrementalAlterConfigs([change]))
        errors.append(reply.error)
        if cluster.last:
            to_batch(cluster.last, 0)
    assert errors == [ErrorCode.NONE, ErrorCode.INVALID_CONFIG]
