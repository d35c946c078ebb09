"""A broker that exists only on the wire: it registers, sends heartbeats and fetches as a test tells it to."""

from copy import copy
from typing import Any

from broker_world import Peer, World, part

from skidway.metadata.features import SUPPORTED
from skidway.wire.message import Message

FETCH_VERSION = 17


class Follower:
    def __init__(self, world: World, broker_id: int, rack: str | None = None) -> None:
        self.world = world
        self.id = broker_id
        self.rack = rack
        self.peer: Peer = world.peer()
        self.session_id = 0
        self.session_epoch = 0
        self.broker_epoch = -1
        self.register()

    def again(self) -> "Follower":
        """The same run of the same broker on another connection, where it knows of no session."""
        other = copy(self)
        other.peer = self.world.peer()
        other.session_id = other.session_epoch = 0
        return other

    def register(self) -> None:
        """Begin a run, and be let in."""
        listener = part("BrokerRegistration", "Listener", "PLAINTEXT", f"host{self.id}", 9092)
        registered = self.peer.call(
            "BrokerRegistration",
            version=4,
            broker_id=self.id,
            cluster_id=self.world.node.cluster_id,
            incarnation_id=self.world.node.world.random.randbytes(16),
            listeners=[listener],
            features=[part("BrokerRegistration", "Feature", name, *levels) for name, levels in SUPPORTED.items()],
            rack=self.rack,
            log_dirs=[bytes([self.id]) * 16],
            previous_broker_epoch=self.broker_epoch,
        )
        assert registered.error_code == 0, registered
        self.broker_epoch = registered.broker_epoch
        self.heartbeat()

    def heartbeat(self, *, want_fence: bool = False) -> None:
        answer = self.peer.call(
            "BrokerHeartbeat",
            version=1,
            broker_id=self.id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self.world.node.quorum.published_offset,
            want_fence=want_fence,
        )
        assert answer.error_code == 0, answer

    def fetch(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        last_epoch: int = -1,
        leader_epoch: int | None = None,
        start_offset: int = 0,
        forget: list[tuple[str, int]] | None = None,
        **fields: Any,
    ) -> int:
        """Name these positions in the session; the first fetch opens it."""
        topics: dict[str, list[Message]] = {}
        for (topic, index), offset in offsets.items():
            epoch = self.world.partition(topic, index).leader.epoch if leader_epoch is None else leader_epoch
            asked = part(
                "Fetch",
                "FetchPartition",
                index,
                current_leader_epoch=epoch,
                fetch_offset=offset,
                last_fetched_epoch=last_epoch,
                log_start_offset=start_offset,
                partition_max_bytes=1_000_000,
            )
            topics.setdefault(topic, []).append(asked)
        forgotten = [
            part("Fetch", "ForgottenTopic", topic_id=self._id_of(topic), partitions=[index])
            for topic, index in forget or []
        ]
        replica = part("Fetch", "ReplicaState", self.id, fields.pop("broker_epoch", self.broker_epoch))
        defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 10_000_000}
        return self.peer.send(
            "Fetch",
            version=FETCH_VERSION,
            replica_state=replica,
            session_id=self.session_id,
            session_epoch=self.session_epoch,
            topics=[
                part("Fetch", "FetchTopic", topic_id=self._id_of(topic), partitions=asked)
                for topic, asked in topics.items()
            ],
            forgotten_topics_data=forgotten,
            **{**defaults, **fields},
        )

    def reply(self) -> dict[tuple[str, int], Any]:
        """What the leader said, by partition."""
        response = self.peer.reply()
        assert response.error_code == 0, response
        self.session_id = response.session_id
        self.session_epoch = self.session_epoch + 1 if self.session_id else 0
        names = {topic.id: topic.name for topic in self.world.node.image.topics.values()}
        return {
            (names[bytes(topic.topic_id)], data.partition_index): data
            for topic in response.responses
            for data in topic.partitions
        }

    def ask(self, offsets: dict[tuple[str, int], int], **fields: Any) -> dict[tuple[str, int], Any]:
        self.fetch(offsets, **fields)
        self.world.end_turn()
        return self.reply()

    def _id_of(self, topic: str) -> bytes:
        return bytes(self.world.node.image.topics[topic].id)


def replicated_topic(world: World, topic: str, assignments: list[list[int]], **configs: str) -> None:
    """A topic whose replicas are where the test says."""
    entries = [
        part("CreateTopics", "CreatableTopicConfig", key.replace("_", "."), value) for key, value in configs.items()
    ]
    assigned = [
        part("CreateTopics", "CreatableReplicaAssignment", index, brokers) for index, brokers in enumerate(assignments)
    ]
    asked = part("CreateTopics", "CreatableTopic", topic, -1, -1, assignments=assigned, configs=entries)
    (made,) = world.peer().call("CreateTopics", topics=[asked], timeout_ms=1000).topics
    assert made.error_code == 0, made
