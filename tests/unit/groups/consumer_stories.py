"""A coordinator on a log in memory, and clients that speak in one line, for stories about consumer groups."""

import random
from collections.abc import Sequence
from typing import Any

from durable import check_durable
from model_world import compact

from skidway.errors import MemberIdRequired, ProtocolError
from skidway.groups.consumer.group import ConsumerGroup
from skidway.groups.consumer.operations import ConsumerHeartbeat, ConsumerHeartbeatReply
from skidway.groups.consumer.protocol import ConsumerProtocol
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.operations import (
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaving,
    SyncGroup,
    SyncReply,
    Tick,
)
from skidway.groups.records import GroupRecord, from_batches, to_batch
from skidway.groups.settings import GroupSettings
from skidway.runtime.replicated import Now, Operation, Replicated
from skidway.wire.registry import codec
from skidway.wire.schema.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from skidway.wire.schema.consumer_protocol import ConsumerProtocolSubscriptionTopicPartition as OwnedPartition


class Cluster:
    """Topics by name and size; the id is the name, padded."""

    def __init__(self, **sizes: int) -> None:
        self.sizes = dict(sizes)
        self.epoch = 0

    def grow(self, name: str, size: int | None) -> None:
        if size is None:
            del self.sizes[name]
        else:
            self.sizes[name] = size
        self.epoch += 1

    def partition_count(self, name: str) -> int | None:
        return self.sizes.get(name)

    def id_of(self, name: str) -> bytes | None:
        return topic_id(name) if name in self.sizes else None

    def name_of(self, topic_id: bytes) -> str | None:
        name = topic_id.decode().strip()
        return name if name in self.sizes else None

    def names(self) -> list[str]:
        return list(self.sizes)


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16)


class Checked(GroupCoordinator):
    """Deciding changes nothing."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        before = repr((self.groups, self.offsets, self.deadline_ms))
        try:
            return super().decide(operation, now)
        finally:
            assert repr((self.groups, self.offsets, self.deadline_ms)) == before


class World:
    """The host of a coordinator, its clock and its log."""

    def __init__(self, cluster: Cluster, settings: GroupSettings | None = None, seed: int = 0) -> None:
        self.cluster = cluster
        self.settings = settings or GroupSettings(initial_rebalance_delay_ms=0)
        self.random = random.Random(seed)
        self.now_ms = 0
        self.batches: list[tuple[int, bytes]] = []
        self.host: Replicated[Checked, GroupRecord] = Replicated(self.new_machine, self)
        self.ask(Tick())

    def new_machine(self) -> Checked:
        return Checked(self.settings, self.cluster, self.random, ConsumerProtocol)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.wall_ms())

    def wall_ms(self) -> int:
        return 10**12 + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    @property
    def end_offset(self) -> int:
        return self.batches[-1][0] if self.batches else 0

    @property
    def committed_offset(self) -> int:
        return self.end_offset

    def append(self, records: Sequence[GroupRecord], now_ms: int) -> int:
        self.batches.append((self.end_offset + len(records), bytes(to_batch(records, 0))))
        return self.end_offset

    def read_all(self) -> list[GroupRecord]:
        return [record for _, batch in self.batches for record in from_batches(batch)]

    def ask(self, operation: Operation[Any]) -> Any:
        """The answer; a refusal is raised; None while the call waits."""
        answers: list[Any] = []
        self.host.submit(operation, self.now, answers.append)
        self.check_rebuilt()
        if answers and isinstance(answers[0], ProtocolError):
            raise answers[0]
        return answers[0] if answers else None

    def pass_time(self, wait_ms: int) -> None:
        end_ms = self.now_ms + wait_ms
        while self.host.machine.deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.host.machine.deadline_ms)
            self.ask(Tick())
        self.now_ms = end_ms

    def reload(self) -> None:
        self.host = Replicated(self.new_machine, self)
        self.ask(Tick())

    def group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.host.machine.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def check_rebuilt(self) -> None:
        """What the log says is what the coordinator knows, be it compacted or not."""
        records = self.read_all()
        for log in (records, compact(records)):
            rebuilt = self.new_machine()
            for record in log:
                rebuilt.apply(record)
            check_durable(self.host.machine, rebuilt)


class Client:
    """A consumer that remembers its epoch and its partitions, as names like "t-0"."""

    def __init__(self, world: World, name: str, *topics: str, **fields: Any) -> None:
        self.world = world
        self.name = name
        self.topics = list(topics)
        self.fields = fields
        self.epoch = 0
        self.owned: list[str] = []

    def beat(self, **fields: Any) -> str:
        """Sends a heartbeat and shows the answer: "epoch partitions", without partitions when they are not told."""
        first: dict[str, Any] = {}
        if self.epoch == 0:
            self.owned = []
            first = {"topics": self.topics or None, "rebalance_timeout_ms": 60_000, "owned": [], **self.fields}
        instance_id = self.fields.get("instance_id")
        said: dict[str, Any] = {"group_id": "g", "member_id": self.name, "member_epoch": self.epoch}
        said |= {"instance_id": instance_id} | first | fields
        call = ConsumerHeartbeat(**said)
        reply = self.world.ask(call)
        assert isinstance(reply, ConsumerHeartbeatReply)
        self.epoch = reply.member_epoch if reply.member_epoch > 0 else 0
        if reply.assignment is None:
            return str(reply.member_epoch)
        self.owned = named(reply.assignment)
        return f"{reply.member_epoch} {' '.join(self.owned)}"

    def acknowledge(self) -> str:
        """Says that it owns what it was told, and no more."""
        return self.beat(owned=numbered(self.owned))

    def leave(self, epoch: int = -1) -> str:
        return self.beat(member_epoch=epoch, owned=None, topics=None)


def named(assignment: list[tuple[bytes, list[int]]]) -> list[str]:
    return [f"{topic.decode().strip()}-{number}" for topic, numbers in assignment for number in numbers]


def numbered(partitions: list[str]) -> list[tuple[bytes, list[int]]]:
    return [(topic_id(each.rpartition("-")[0]), [int(each.rpartition("-")[2])]) for each in partitions]


class ClassicClient:
    """A consumer of the classic protocol that rebalances cooperatively."""

    def __init__(self, world: World, name: str, *topics: str, instance_id: str | None = None) -> None:
        self.world = world
        self.name = name
        self.topics = list(topics)
        self.instance_id = instance_id
        self.member_id = ""
        self.generation = -1
        self.owned: list[str] = []
        self.replies: list[Any] = []
        self.protocols = ["cooperative-sticky"]

    def _submit(self, operation: Operation[Any]) -> Any:
        """The answer, or None while it waits; then it comes with `answer`."""
        self.replies = []
        self.world.host.submit(operation, self.world.now, self.replies.append)
        self.world.check_rebuilt()
        return self.replies[0] if self.replies else None

    def join(self) -> Any:
        """The refusal or the reply; the detour with a new id is taken silently."""
        subscription = ConsumerProtocolSubscription(
            self.topics, None, [OwnedPartition(*each) for each in _by_name(self.owned)], self.generation
        )
        metadata = _embedded(subscription, 2)
        reply = self._submit(
            JoinGroup(
                "g",
                self.member_id,
                self.instance_id,
                self.name,
                "host",
                10_000,
                30_000,
                "consumer",
                [(name, metadata) for name in self.protocols],
            )
        )
        if isinstance(reply, MemberIdRequired):
            self.member_id = reply.member_id
            return self.join()
        return self.joined(reply)

    def joined(self, reply: Any = None) -> Any:
        reply = reply or (self.replies[0] if self.replies else None)
        if isinstance(reply, JoinReply):
            self.member_id, self.generation = reply.member_id, reply.generation
        return reply

    def sync(self, **shares: list[str]) -> Any:
        """By member id, when this one leads: who gets what."""
        assignments: list[tuple[str, Any]] = [(member_id, written(share)) for member_id, share in shares.items()]
        return self.synced(
            self._submit(
                SyncGroup("g", self.member_id, self.instance_id, self.generation, assignments=assignments),
            )
        )

    def synced(self, reply: Any = None) -> Any:
        reply = reply or (self.replies[0] if self.replies else None)
        if not isinstance(reply, SyncReply):
            return reply
        self.owned = read(reply.assignment)
        return " ".join(self.owned)

    def beat(self) -> Any:
        return self._submit(Heartbeat("g", self.member_id, self.instance_id, self.generation))

    def leave(self) -> Any:
        return self._submit(LeaveGroup("g", [Leaving(self.member_id, self.instance_id)]))


def written(partitions: list[str]) -> bytes:
    topics = [ConsumerProtocolAssignmentTopicPartition(*each) for each in _by_name(partitions)]
    return _embedded(ConsumerProtocolAssignment(topics), 1)


def read(assignment: Any) -> list[str]:
    if not assignment:
        return []
    message, _ = codec(ConsumerProtocolAssignment).decoder(0)(assignment, 2)
    return [f"{each.topic}-{number}" for each in message.assigned_partitions for number in each.partitions]


def _by_name(partitions: list[str]) -> list[tuple[str, list[int]]]:
    return [(topic.decode().strip(), numbers) for topic, numbers in numbered(partitions)]


def _embedded(message: Any, version: int) -> bytes:
    parts: list[Any] = [version.to_bytes(2, "big")]
    codec(type(message)).encoder(version)(message, parts)
    return b"".join(parts)
