"""Members of share groups by hand: sessions, fetches and acknowledgements as frames."""

from typing import Any

from broker_world import Peer, World, batch, part, values

from skidway.shares.coordinator.keys import ShareKey

Ranges = list[tuple[int, int, list[int]]]
"""First and last offset, and types."""


class Member:
    def __init__(self, world: World, name: str = "ann", group: str = "g", peer: Peer | None = None) -> None:
        self.world = world
        self.name = name
        self.group = group
        self.peer = peer or world.peer()
        self.epoch = 0
        self.version = 2

    def fetch_later(self, *indexes: int, acks: Ranges | None = None, epoch: int | None = None, **fields: Any) -> None:
        """Acknowledgements are about the first partition that is named."""
        defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        self._send("ShareFetch", "FetchTopic", "FetchPartition", indexes, acks, epoch, {**defaults, **fields})

    def fetch(self, *indexes: int, acks: Ranges | None = None, epoch: int | None = None, **fields: Any) -> Any:
        """Long enough for its partitions to be loaded, unless it says otherwise."""
        wait_ms = fields.setdefault("max_wait_ms", 0 if fields.get("is_renew_ack") else 10)
        self.fetch_later(*indexes, acks=acks, epoch=epoch, **fields)
        self.world.settle()
        if not (replies := self.peer.replies()):
            self.world.pass_time(wait_ms)
            self.world.settle()
            replies = self.peer.replies()
        ((_, response),) = replies
        return response

    def acknowledge_later(self, index: int, acks: Ranges, epoch: int | None = None, **fields: Any) -> None:
        self._send("ShareAcknowledge", "AcknowledgeTopic", "AcknowledgePartition", (index,), acks, epoch, fields)

    def acknowledge(self, index: int, acks: Ranges, epoch: int | None = None, **fields: Any) -> Any:
        self.acknowledge_later(index, acks, epoch, **fields)
        self.world.settle()
        return self.peer.reply()

    def _send(
        self,
        name: str,
        topic: str,
        partition: str,
        indexes: tuple[int, ...],
        acks: Ranges | None,
        epoch: int | None,
        fields: dict[str, Any],
    ) -> None:
        topic_id = fields.pop("topic_id", None) or self.world.node.image.topics["t"].id
        entries = []
        for number, index in enumerate(indexes):
            said = [part(name, "AcknowledgementBatch", *each) for each in acks or []] if not number else []
            entries.append(part(name, partition, index, acknowledgement_batches=said))
        topics = [part(name, topic, topic_id, entries)] if entries else []
        spoken = self.epoch if epoch is None else epoch
        if epoch is None:
            self.epoch += 1
        names = {"group_id": self.group, "member_id": self.name, **fields}
        self.peer.send(name, version=self.version, share_session_epoch=spoken, topics=topics, **names)


def made_world(partitions: int = 1, **settings: Any) -> World:
    world = World(**settings)
    world.peer().create("t", partitions)
    return world


def initialise(world: World, group: str = "g", index: int = 0, start: int = 0, epoch: int = 1) -> None:
    answers: list[Any] = []
    key = ShareKey(group, world.node.image.topics["t"].id, index)
    world.node.rooms.services.share_states.initialize(key, epoch, start, world.clock.now_ms, answers.append)
    for _ in range(50):
        world.settle()
        if answers:
            break
        world.pass_time(50)
    assert answers, "nobody answered"
    assert not isinstance(answers[0], Exception), answers[0]


def produce(world: World, *sizes: int, index: int = 0) -> None:
    """Batches of so many records each."""
    peer = world.peer()
    for size in sizes:
        peer.produce("t", batch(*[b"%d" % number for number in range(size)]), index=index)
        world.settle()
        assert peer.reply().responses[0].partition_responses[0].error_code == 0


def acquired(response: Any) -> list[tuple[int, int, int]]:
    assert response.error_code == 0, response
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for topic in response.responses
        for data in topic.partitions
        for each in data.acquired_records
    ]


def only(response: Any) -> Any:
    """What a reply says of its only partition."""
    ((data,),) = ([*topic.partitions] for topic in response.responses)
    return data


def count_of_records(response: Any) -> int:
    return len(values(response))
