"""Transactions in a run: who makes them, who reads them, and the laws about them."""

from __future__ import annotations

from collections.abc import Callable

from skidway.groups.placement import partition_of
from skidway.log.bounds import Bound
from skidway.sim.clients.base import Client
from skidway.sim.clients.committed_readers import CommittedReader
from skidway.sim.clients.copiers import Copier
from skidway.sim.clients.copying_members import CopyingMember, JobProducer
from skidway.sim.clients.transactional import TransactionalProducer
from skidway.sim.laws.history import History
from skidway.sim.laws.invariants import Invariants
from skidway.sim.laws.next_transactions import NextTransactionLaws
from skidway.sim.laws.transaction_logs import TransactionLogLaws
from skidway.sim.laws.transactions import TransactionLaws
from skidway.sim.plan import DELETED
from skidway.sim.transactional_plan import SHARING, TransactionalPlan
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import SECOND, Violation, World
from skidway.sim.world.network import Network

CONVERGE_S = 60
READ_S = 60


class Transactions:
    def __init__(
        self,
        world: World,
        network: Network,
        cluster: Cluster,
        plan: TransactionalPlan,
        history: History,
        invariants: Invariants,
    ) -> None:
        self.world = world
        self.network = network
        self.cluster = cluster
        self.plan = plan
        self.history = history
        self.laws = TransactionLaws(world, history, [DELETED])
        topics = [topic.name for topic in plan.topics]
        self.logs = TransactionLogLaws(world, cluster, topics, [DELETED], plan.expiration_ms)
        self.laws.decided = self.logs.ids.get
        self.laws.given = self.logs.given
        self.laws.committed_us = lambda transactional_id: self.logs.committed_us.get(transactional_id, -1)
        invariants.more_steps.append(self.logs.on_step)
        invariants.more_sweeps.append(self.logs.sweep)
        self.next = NextTransactionLaws(cluster)
        invariants.more_starts.append(self.next.on_start)
        invariants.more_sweeps.append(self.next.sweep)
        self.producers: list[TransactionalProducer] = []
        self.members: list[CopyingMember] = []

    def make_clients(self) -> list[Client]:
        addresses = self.cluster.addresses
        for plan in self.plan.transactional:
            kind = Copier if plan.input else TransactionalProducer
            for number in range(plan.instances):
                place = f"{plan.id}{'abcd'[number]}"
                self.producers.append(kind(self.world, self.network, place, addresses, plan, self.laws))
        self._make_members()
        return [
            *self.producers,
            *self.members,
            *(self._reader(f"c{number}") for number in range(self.plan.committed_readers)),
        ]

    def _make_members(self) -> None:
        addresses, source = self.cluster.addresses, self.plan.topics[0]
        for number, plan in enumerate(self.plan.sharing):
            producer = JobProducer(self.world, self.network, f"{plan.id}a", addresses, plan, self.laws)
            self.producers.append(producer)
            self.members.append(
                CopyingMember(
                    self.world,
                    self.network,
                    f"m{number}",
                    addresses,
                    SHARING,
                    {source.name: source.partitions},
                    self.history,
                    producer,
                )
            )

    def _reader(self, place: str) -> CommittedReader:
        counts = {topic.name: topic.partitions for topic in self.plan.topics if topic.name != DELETED}
        return CommittedReader(self.world, self.network, place, self.cluster.addresses, counts, self.laws)

    # --- after the faults ---

    def converge(self) -> None:
        """Nobody goes on, and whatever is open comes to an end."""
        for member in self.members:
            member.stop()
        for producer in self.producers:
            producer.producing = False
        self._wait(lambda: all(producer.is_idle for producer in self.producers), self._who_waits)
        for producer in self.producers:
            producer.stop()
        self._wait(lambda: not self.logs.what_is_stuck(), self.logs.what_is_stuck)

    def _who_waits(self) -> str:
        return f"{[producer.place for producer in self.producers if not producer.is_idle]} still wait for an answer"

    def _wait(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        if not self.world.run_until(condition, CONVERGE_S * SECOND):
            raise Violation("stuck-transaction", f"{CONVERGE_S} s after the last fault: {what()}")

    def check_end(self) -> None:
        last = self._reader("last committed")
        last.start()

        def read_up(topic: str, index: int) -> bool:
            host = self.cluster.leader_host(topic, index)
            if host is None or host.node is None:
                return False
            log, offset = host.node.partitions.find(topic, index).log, last.positions[topic, index].offset
            # Where the end is compacted, nothing comes after the last record.
            return offset >= log.high_watermark or log.read(offset, 1, Bound.LAST_STABLE) is None

        self._wait(
            lambda: all(topic in last.known and read_up(topic, index) for topic, index in last.positions),
            lambda: f"only so much can be read: { {str(key): each.offset for key, each in last.positions.items()} }",
        )
        last.stop()
        self.logs.check_end()
        self.next.check_end()
        self.laws.check_complete([known.topic_id for known in last.known.values()])
        self.laws.check_order()
        for plan in self.plan.transactional:
            if plan.input:
                self._check_copied([plan.id], plan.id, last, [(plan.input, plan.input_partition)])
        if self.members:
            source = self.plan.topics[0]
            ids = [producer.plan.id for producer in self.producers if isinstance(producer, JobProducer)]
            self._check_copied(ids, SHARING, last, [(source.name, index) for index in range(source.partitions)])

    def _check_copied(self, ids: list[str], group: str, last: CommittedReader, places: list[tuple[str, int]]) -> None:
        expected: list[bytes] = []
        for topic, index in places:
            end_offset = self._committed_offset(group, (topic, index))
            read = self.laws.stable.get((last.known[topic].topic_id, index))
            expected += [] if read is None else [value for at, value in read.values.items() if at < end_offset]
        self.laws.check_copied(ids, expected)

    def _committed_offset(self, group: str, key: tuple[str, int]) -> int:
        """What its coordinator has; 0 for nothing."""
        for _, node in self.cluster.running:
            for partition, coordinator in node.rooms.services.groups.loaded.items():
                topic = node.image.topics.get(partition.topic)
                if topic is not None and partition.index == partition_of(group, len(topic.partitions)):
                    found = coordinator.host.machine.offsets.of(group).get(key)
                    return 0 if found is None else found.offset
        return 0
