"""What an administrator does to topics that share groups depend on.

- `states to and fro`: a partition of what is stored of share-partitions goes to another leader, and back soon after.
- `leaders to and fro`: the same with a partition that members read.
- `trim`: the beginning of a topic's partition is deleted.
- `grow`: a topic gets another partition.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from skidway.broker.coordinators.shares import SHARES_TOPIC
from skidway.sim.faults.state_topics import BACK_MS, TIMEOUT_MS, lead
from skidway.sim.plan import TRIMMED
from skidway.sim.share_plan import GROWN_MAX, STATE_PARTITIONS, SharePlan
from skidway.sim.workload import Admin
from skidway.sim.world.cluster import Cluster
from skidway.wire.schema.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from skidway.wire.schema.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic


class ShareTopics:
    def __init__(self, admin: Admin, cluster: Cluster, plan: SharePlan) -> None:
        self._admin = admin
        self._cluster = cluster
        self._nodes = plan.nodes
        self._first = plan.topics[0]
        self._counts = {topic.name: topic.partitions for topic in plan.topics if topic.name == TRIMMED}
        self._grown = 0

    @property
    def operations(self) -> dict[str, Callable[[Random], None]]:
        return {
            "states to and fro": self.hand_over_states,
            "leaders to and fro": self.hand_over,
            "trim": self.trim,
            "grow": self.grow,
        }

    def hand_over_states(self, random: Random) -> None:
        self._hand_over(SHARES_TOPIC, random.randrange(STATE_PARTITIONS), random)

    def hand_over(self, random: Random) -> None:
        self._hand_over(self._first.name, random.randrange(self._first.partitions), random)

    def _hand_over(self, topic: str, index: int, random: Random) -> None:
        first = list(range(1, self._nodes + 1))
        random.shuffle(first)
        self._lead(topic, index, first)
        wait_ms = random.choice(BACK_MS)
        self._admin.after(wait_ms, lambda: self._lead(topic, index, [*first[1:], first[0]]))
        self._admin.after(2 * wait_ms, lambda: self._lead(topic, index, first))

    def _lead(self, topic: str, index: int, replicas: list[int]) -> None:
        lead(self._admin, topic, index, replicas[: min(3, self._nodes)])

    def trim(self, random: Random) -> None:
        host = self._cluster.leader_host(TRIMMED, 0) if self._counts else None
        if host is None or host.node is None:
            return
        log = host.node.partitions.find(TRIMMED, 0).log
        if log.high_watermark <= log.start_offset:
            return
        # Near the end: there members have something that is not settled.
        offset = max(log.start_offset, log.high_watermark - random.randrange(30))
        topic = DeleteRecordsTopic(TRIMMED, [DeleteRecordsPartition(0, offset)])
        self._admin.ask(host.settings.node_id, DeleteRecordsRequest([topic], TIMEOUT_MS), _nothing)

    def grow(self, random: Random) -> None:
        if not self._counts or self._grown >= GROWN_MAX:
            return
        self._grown += 1
        topic = CreatePartitionsTopic(TRIMMED, self._counts[TRIMMED] + self._grown, None)
        self._admin.ask(-1, CreatePartitionsRequest([topic], TIMEOUT_MS), _nothing)


def _nothing(reply: Any) -> None:
    pass
