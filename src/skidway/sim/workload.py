"""Who uses the cluster during a run: an administrator who makes topics, producers, readers and groups."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from skidway.errors import ErrorCode
from skidway.sim.clients.base import Client
from skidway.sim.clients.classic_members import ClassicMember
from skidway.sim.clients.members import Member
from skidway.sim.clients.near_readers import NearReader
from skidway.sim.clients.producers import Producer
from skidway.sim.clients.readers import Reader
from skidway.sim.faults.voting import VoterChanges
from skidway.sim.laws.groups import GroupLaws
from skidway.sim.laws.history import History
from skidway.sim.plan import Plan, TopicPlan, lasting_topics
from skidway.sim.share_plan import SharePlan
from skidway.sim.transactional_plan import TransactionalPlan
from skidway.sim.world.cluster import Cluster, rack_of
from skidway.sim.world.events import World
from skidway.sim.world.network import Address, Network
from skidway.wire.schema.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from skidway.wire.schema.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from skidway.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skidway.wire.schema.elect_leaders import ElectLeadersRequest
from skidway.wire.schema.elect_leaders import TopicPartitions as ElectedPartitions

RETRY_MS = 200
FINE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class Admin(Client):
    """Makes the topics of the plan, and later does what administrators do while others suffer."""

    def __init__(
        self, world: World, network: Network, place: str, seeds: list[Address], plan: Plan, history: History
    ) -> None:
        super().__init__(world, network, place, seeds, [topic.name for topic in plan.topics])
        self.plan = plan
        self.history = history
        self._missing = {topic.name: topic for topic in plan.topics}
        self.voting = VoterChanges(self, dict(enumerate(seeds, 1)))
        self.operations: dict[str, Callable[[Random], None]] = {
            "topics": self.churn_topics,
            "elect": self.elect,
            "reassign": self.reassign,
            "voters": self.voting.change,
        }

    @property
    def is_ready(self) -> bool:
        return not self._missing and len(self.known) == len(self.plan.topics)

    def start(self) -> None:
        super().start()
        self._make_missing()

    def _make_missing(self) -> None:
        for topic in list(self._missing.values()):
            self._make(topic)

    def _make(self, topic: TopicPlan) -> None:
        self.create(topic, lambda code: self._on_made(topic, code))

    def _on_made(self, topic: TopicPlan, code: int) -> None:
        if code in FINE:
            self._missing.pop(topic.name, None)
            self.refresh()
        elif isinstance(self.plan, SharePlan) or (
            isinstance(self.plan, TransactionalPlan) and not self.plan.asks_for_all
        ):
            self.after(RETRY_MS, lambda: self._make(topic))
        else:
            self.after(RETRY_MS, self._make_missing)

    def create(self, topic: TopicPlan, respond: Callable[[int], None]) -> None:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name=topic.name,
                    num_partitions=topic.partitions,
                    replication_factor=topic.replicas,
                    configs=[CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()],
                )
            ],
            timeout_ms=3_000,
        )

        def answered(reply: CreateTopicsResponse | None) -> None:
            respond(ErrorCode.REQUEST_TIMED_OUT if reply is None else reply.topics[0].error_code)

        self.ask(-1, request, answered)

    def churn_topics(self, random: Random) -> None:
        """A topic comes and goes beside the others; its name is used again."""
        name = f"spare{random.randrange(2)}"
        if random.random() < 0.5:
            configs = {"flush": random.choice(["sync", "os"])}
            replicas = min(3, self.plan.nodes)
            self.create(TopicPlan(name, 1 + random.randrange(3), replicas, configs), lambda code: None)
        else:
            request = DeleteTopicsRequest(topics=[DeleteTopicState(name=name)], timeout_ms=3_000)
            self.ask(-1, request, _nothing)

    def elect(self, random: Random) -> None:
        """Preferred leaders for all, or for one partition."""
        topic = random.choice(self.plan.topics)
        one = [ElectedPartitions(topic=topic.name, partitions=[random.randrange(topic.partitions)])]
        request = ElectLeadersRequest(
            election_type=0, topic_partitions=None if random.random() < 0.5 else one, timeout_ms=3_000
        )
        self.ask(-1, request, _nothing)

    def elect_uncleanly(self, topic: str, index: int, replicas: list[int]) -> None:
        """Rather any copy that can be read than none: the first of these."""
        order = ReassignableTopic(topic, [ReassignablePartition(index, replicas)])
        wanted = [ElectedPartitions(topic=topic, partitions=[index])]
        election = ElectLeadersRequest(election_type=1, topic_partitions=wanted, timeout_ms=3_000)
        request = AlterPartitionReassignmentsRequest(timeout_ms=3_000, topics=[order])
        self.ask(-1, request, lambda reply: self.ask(-1, election, _nothing))

    def reassign(self, random: Random) -> None:
        """Other machines, or the same in another order; now and then a move is taken back."""
        topic = random.choice(self.plan.topics)
        index = random.randrange(topic.partitions)
        chosen = random.sample(range(1, self.plan.nodes + 1), topic.replicas)
        partition = ReassignablePartition(index, None if random.random() < 0.2 else chosen)
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=3_000, topics=[ReassignableTopic(topic.name, [partition])]
        )
        self.ask(-1, request, _nothing)


def _nothing(reply: Any) -> None:
    pass


def _reader(world: World, network: Network, cluster: Cluster, plan: Plan, number: int, history: History) -> Reader:
    place, addresses = f"r{number}", cluster.addresses
    counts = lasting_topics(plan)
    if plan.racks:
        return NearReader(world, network, place, addresses, counts, history, rack_of(plan, number))
    return Reader(world, network, place, addresses, counts, history)


def make_clients(
    world: World, network: Network, cluster: Cluster, plan: Plan, history: History, groups: GroupLaws
) -> list[Client]:
    addresses = cluster.addresses
    clients: list[Client] = []
    for number, producer_plan in enumerate(plan.producers):
        clients.append(Producer(world, network, f"p{number}", addresses, producer_plan, history))
    counts = lasting_topics(plan)
    for number in range(plan.readers):
        clients.append(_reader(world, network, cluster, plan, number, history))
    for group in plan.groups:
        read = {group.topic: counts[group.topic]}
        for number in range(group.members):
            place = f"{group.name}{'abcdefgh'[number]}"
            kind = ClassicMember if number < group.classic else Member
            mixed = 0 < group.classic < group.members
            member = kind(world, network, place, addresses, group.name, read, history, groups, mixed=mixed)
            if isinstance(member, ClassicMember):
                member.restarts = group.restarts
            clients.append(member)
    for client in clients:
        client.brokers.versions.update(plan.versions)
    return clients
