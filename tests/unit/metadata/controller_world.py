"""A controller and brokers that do as they are told, for tests: every decision is applied at once, as if committed.

Brokers are numbers; `brokers` keeps the epoch of each one's run, and which of them a clean stop left on its disk.
"""

from dataclasses import dataclass, field
from typing import Any, TypeVar

from skidway.metadata.controller import Controller, ControllerSettings
from skidway.metadata.image import Endpoint, Partition
from skidway.metadata.operations import (
    AlterPartition,
    Bootstrap,
    BrokerHeartbeat,
    ControllerStarted,
    CreateTopics,
    Heartbeat,
    NewTopic,
    PartitionAlteration,
    PartitionAltered,
    RegisterBroker,
)
from skidway.runtime.replicated import Now, Operation
from skidway.wire.message import Message

Reply = TypeVar("Reply")
SETTINGS = ControllerSettings(session_timeout_ms=1_000, leader_imbalance_check_ms=60_000)


class FirstChoice:
    """Ids are numbered; of all choices the first is taken."""

    def __init__(self) -> None:
        self.given = 0

    def randbytes(self, size: int) -> bytes:
        self.given += 1
        return b"i" + self.given.to_bytes(size - 1, "big")

    def randrange(self, stop: int) -> int:
        return 0


@dataclass(slots=True)
class Cluster:
    settings: ControllerSettings = field(default_factory=lambda: SETTINGS)
    random: FirstChoice = field(default_factory=FirstChoice)
    now_ms: int = 0
    log: list[Message] = field(default_factory=list)
    epochs: dict[int, int] = field(default_factory=dict)
    last: list[Message] = field(default_factory=list)
    """The records of the last decision."""
    controller: Controller = field(init=False)

    def __post_init__(self) -> None:
        self.controller = Controller(self.random, settings=self.settings)
        self.decide(Bootstrap())
        self.decide(ControllerStarted())

    def decide(self, operation: Operation[Reply]) -> Reply:
        decision = self.controller.decide(operation, Now(self.now_ms, self.now_ms))
        self.last = decision.records
        self.log.extend(decision.records)
        for record in decision.records:
            self.controller.apply(record)
        for note in decision.notes:
            self.controller.note(note)
        reply: Any = decision.reply
        return reply  # type: ignore[no-any-return]

    def elsewhere(self, predecessor: int = -1) -> None:
        """Another node becomes the controller: it knows the log, and nothing else."""
        self.controller = Controller(self.random, settings=self.settings)
        for record in self.log:
            self.controller.apply(record)
        self.decide(ControllerStarted(predecessor))

    # --- brokers ---

    def register(self, broker_id: int, *, clean: bool = False, rack: str | None = None, disk: int = 1) -> None:
        reply = self.decide(
            RegisterBroker(
                broker_id,
                self.random.randbytes(16),
                [Endpoint("PLAINTEXT", f"host-{broker_id}", 9092)],
                rack,
                [bytes([broker_id, disk]) * 8],
                fenced=True,
                previous_broker_epoch=self.epochs.get(broker_id, -1) if clean else -1,
                log_end_offset=len(self.log),
            )
        )
        self.epochs[broker_id] = reply.epoch

    def heartbeat(
        self, broker_id: int, offset: int | None = None, *, fence: bool = False, stop: bool = False
    ) -> Heartbeat:
        return self.decide(
            BrokerHeartbeat(
                broker_id,
                self.epochs[broker_id],
                len(self.log) - 1 if offset is None else offset,
                fence,
                stop,
                log_end_offset=len(self.log),
            )
        )

    def start(self, *broker_ids: int, clean: bool = False) -> None:
        for broker_id in broker_ids:
            self.register(broker_id, clean=clean)
            assert not self.heartbeat(broker_id).is_fenced

    def silence(self, *broker_ids: int) -> None:
        """These say nothing any more, the others do, until everything that is due was decided."""
        self.now_ms += self.settings.session_timeout_ms - 1
        for broker in list(self.controller.image.brokers.values()):
            if broker.id not in broker_ids and not broker.fenced:
                self.heartbeat(broker.id)
        self.now_ms += 1
        self.do_what_is_due()

    def do_what_is_due(self) -> None:
        while due := self.controller.due(self.now_ms):
            for operation in due:
                self.decide(operation)

    # --- partitions ---

    def create(self, name: str, *replicas: int, **configs: str) -> None:
        """One partition on these brokers."""
        settings: list[tuple[str, str | None]] = [(key.replace("_", "."), value) for key, value in configs.items()]
        [created] = self.decide(CreateTopics([NewTopic(name, assignments=[(0, list(replicas))], configs=settings)]))
        assert not created.error, created

    def partition(self, name: str, index: int = 0) -> Partition:
        return self.controller.image.topics[name].partitions[index]

    def alter(
        self,
        name: str,
        *isr: int,
        leader_epoch: int = 0,
        partition_epoch: int = 0,
        recovering: bool = False,
        **who: int,
    ) -> PartitionAltered:
        """By the leader, with everybody's present epochs; the epochs given are differences."""
        topic = self.controller.image.topics[name]
        partition = topic.partitions[0]
        broker_id = who.get("by", partition.leader)
        alteration = PartitionAlteration(
            0,
            partition.leader_epoch + leader_epoch,
            partition.partition_epoch + partition_epoch,
            [(each, self.epochs[each]) for each in isr],
            int(recovering),
        )
        [(_, [altered])] = self.decide(AlterPartition(broker_id, self.epochs[broker_id], [(topic.id, [alteration])]))
        return altered


def shape(partition: Partition) -> str:
    """Leader and epoch, in-sync set, eligible leader replicas: what most stories are about."""
    leader = f"leader {partition.leader}" if partition.leader >= 0 else "no leader"
    eligible = f", eligible {partition.eligible_leader_replicas}" if partition.eligible_leader_replicas else ""
    return f"{leader}, in sync {partition.isr}{eligible}"
