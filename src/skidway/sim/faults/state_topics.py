"""What an administrator does to topics that transactions depend on.

- `to and fro`: a coordinator's partition goes to another leader, and back soon after.
- `delete`: a topic in which transactions write is deleted and made again under its name.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from skidway.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from skidway.errors import ErrorCode
from skidway.sim.plan import TopicPlan
from skidway.sim.transactional_plan import STATE_PARTITIONS
from skidway.sim.workload import Admin
from skidway.wire.schema.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from skidway.wire.schema.delete_topics import DeleteTopicsRequest, DeleteTopicState
from skidway.wire.schema.elect_leaders import ElectLeadersRequest
from skidway.wire.schema.elect_leaders import TopicPartitions as ElectedPartitions

TIMEOUT_MS = 3_000
RETRY_MS = 100
BACK_MS = [20, 100, 400]
FINE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class StateTopics:
    def __init__(self, admin: Admin, nodes: int, deleted: list[TopicPlan]) -> None:
        """`deleted`: topics that come and go."""
        self._admin = admin
        self._nodes = nodes
        self._deleted = deleted

    @property
    def operations(self) -> dict[str, Callable[[Random], None]]:
        return {"to and fro": self.hand_over, "delete": self.delete}

    def hand_over(self, random: Random) -> None:
        index = random.randrange(STATE_PARTITIONS)
        first = list(range(1, self._nodes + 1))
        random.shuffle(first)
        self._lead(index, first)
        wait_ms = random.choice(BACK_MS)
        self._admin.after(wait_ms, lambda: self._lead(index, [*first[1:], first[0]]))
        self._admin.after(2 * wait_ms, lambda: self._lead(index, first))

    def _lead(self, index: int, replicas: list[int]) -> None:
        lead(self._admin, TRANSACTIONS_TOPIC, index, replicas[: min(3, self._nodes)])

    def delete(self, random: Random) -> None:
        if not self._deleted:
            return
        topic = random.choice(self._deleted)
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=TIMEOUT_MS)
        wait_ms = random.choice(BACK_MS)
        self._admin.ask(-1, request, lambda reply: self._admin.after(wait_ms, lambda: self._make(topic)))

    def _make(self, topic: TopicPlan) -> None:
        def made(code: int) -> None:
            if code not in FINE:
                self._admin.after(RETRY_MS, lambda: self._make(topic))

        self._admin.create(topic, made)


def lead(admin: Admin, topic: str, index: int, replicas: list[int]) -> None:
    """The first of them shall lead."""
    order = ReassignableTopic(topic, [ReassignablePartition(index, replicas)])
    request = AlterPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=[order])
    wanted = [ElectedPartitions(topic=topic, partitions=[index])]
    election = ElectLeadersRequest(election_type=0, topic_partitions=wanted, timeout_ms=TIMEOUT_MS)
    admin.ask(-1, request, lambda reply: admin.ask(-1, election, _nothing))


def _nothing(reply: Any) -> None:
    pass
