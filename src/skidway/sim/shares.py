"""Share groups in a run: their settings, their members, and the laws about them."""

from __future__ import annotations

from skidway.errors import ErrorCode
from skidway.shares.coordinator.keys import ShareKey
from skidway.sim.clients.base import Client
from skidway.sim.clients.producers import Producer
from skidway.sim.clients.share_members import ShareMember
from skidway.sim.laws.history import History
from skidway.sim.laws.invariants import Invariants
from skidway.sim.laws.share_leaders import ShareLeaderLaws
from skidway.sim.laws.shares import ShareLaws
from skidway.sim.plan import TRIMMED
from skidway.sim.share_plan import GROWN_MAX, ShareGroupPlan, SharePlan
from skidway.sim.workload import Admin
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import SECOND, Violation, World
from skidway.sim.world.network import Network
from skidway.wire.schema.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from skidway.wire.schema.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from skidway.wire.schema.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

CONVERGE_S = 60
RETRY_MS = 200
GROUP_RESOURCE = 32


class Shares:
    def __init__(
        self,
        world: World,
        network: Network,
        cluster: Cluster,
        plan: SharePlan,
        history: History,
        invariants: Invariants,
        admin: Admin,
    ) -> None:
        self.world = world
        self.network = network
        self.cluster = cluster
        self.plan = plan
        self.history = history
        self.admin = admin
        self.laws = ShareLaws(world, cluster, history, plan.deliveries)
        self.leaders = ShareLeaderLaws(world, cluster, self.laws)
        self.laws.states.came_later = self._came_later
        self.laws.keys.keys = {group.name: group.keys for group in plan.share_groups if group.keys}
        invariants.more_steps += [self.leaders.on_step, self.laws.states.on_step, self.laws.keys.on_step]
        invariants.more_sweeps += [self.laws.states.sweep, self.leaders.sweep]
        self.members: list[ShareMember] = []
        self._unset = {group.name: group for group in plan.share_groups}
        self._lags: dict[str, dict[ShareKey, int]] = {}

    # --- before ---

    def configure(self) -> None:
        for group in self.plan.share_groups:
            self._set(group)
        if not self.world.run_until(lambda: not self._unset, CONVERGE_S * SECOND):
            raise Violation("liveness", f"the settings of share groups were not taken within {CONVERGE_S} s")

    def _set(self, group: ShareGroupPlan) -> None:
        configs = [AlterableConfig(name, 0, value) for name, value in group.configs.items()]
        request = IncrementalAlterConfigsRequest(resources=[AlterConfigsResource(GROUP_RESOURCE, group.name, configs)])

        def answered(reply: IncrementalAlterConfigsResponse | None) -> None:
            if reply is None or reply.responses[0].error_code:
                self.admin.after(RETRY_MS, lambda: self._set(group))
            else:
                self._unset.pop(group.name, None)

        self.admin.ask(-1, request, answered)

    def make_clients(self) -> list[Client]:
        addresses = self.cluster.addresses
        for group in self.plan.share_groups:
            for number in range(group.members):
                place = f"{group.name[-1]}{'abcdefgh'[number]}"
                self.members.append(ShareMember(self.world, self.network, place, addresses, group, self.laws))
        known = self.admin.known.get(TRIMMED)
        if known is not None:
            self.history.forgotten.add(known.topic_id)
        return list(self.members)

    def watch_growth(self, clients: list[Client]) -> None:
        """Who writes to the topic that grows writes to its new partitions, too."""
        for client in clients:
            if isinstance(client, Producer) and client.plan.topic == TRIMMED:
                client.plan.partitions = self._first_count
                self._follow_growth(client)

    def _follow_growth(self, producer: Producer) -> None:
        known = producer.known.get(TRIMMED)
        if known is not None:
            producer.plan.partitions = min(len(known.leaders), len(producer.lanes))
        producer.after(RETRY_MS, lambda: self._follow_growth(producer))

    def _came_later(self, key: ShareKey) -> bool:
        known = self.admin.known.get(TRIMMED)
        return known is not None and known.topic_id == key.topic_id and key.partition >= self._first_count

    @property
    def _first_count(self) -> int:
        return next(topic.partitions for topic in self.plan.topics if topic.name == TRIMMED)

    # --- after the faults ---

    def converge(self) -> None:
        """Everybody accepts what it gets, and everything comes to an end."""
        for member in self.members:
            member.calm = True
        if not self.world.run_until(lambda: not self._left(), CONVERGE_S * SECOND):
            raise Violation("never-settled", f"{CONVERGE_S} s after the last fault: {self._left()[:5]}")
        if not self.world.run_until(self._all_lags_known, CONVERGE_S * SECOND, step_us=SECOND):
            raise Violation("share-lag", f"{CONVERGE_S} s after the last fault, all is settled: {self._lags}")

    def _left(self) -> list[str]:
        """What is not settled, though members read it."""
        found = []
        for group in self.plan.share_groups:
            for name in group.topics:
                for index in range(self._partitions(name)):
                    host = self.cluster.leader_host(name, index)
                    if host is None or host.node is None:
                        found.append(f"{name}-{index} has no leader")
                        continue
                    partition = host.node.partitions.find(name, index)
                    end_offset = partition.log.high_watermark
                    stored = self.laws.states.stored.get(ShareKey(group.name, partition.topic_id, index))
                    start = -1 if stored is None else stored.start
                    if end_offset > max(start, partition.log.start_offset if start >= 0 else -1):
                        found.append(f"{group.name} has settled {name}-{index} up to {start} of {end_offset}")
        return found

    def _partitions(self, name: str) -> int:
        known = self.admin.known.get(name)
        return 0 if known is None else len(known.leaders)

    def _all_lags_known(self) -> bool:
        """By what an administrator is told. 0 for all."""
        if self._lags and all(lags and not any(lags.values()) for lags in self._lags.values()):
            return True
        self._lags = {group.name: {} for group in self.plan.share_groups}
        for group in self.plan.share_groups:
            self._ask_lag(group.name)
        return False

    def _ask_lag(self, group: str) -> None:
        def found(reply: FindCoordinatorResponse | None) -> None:
            if reply is not None and not reply.coordinators[0].error_code:
                asked = DescribeShareGroupOffsetsRequestGroup(group_id=group, topics=None)
                request = DescribeShareGroupOffsetsRequest(groups=[asked])
                self.admin.ask(reply.coordinators[0].node_id, request, lambda answer: self._on_lag(group, answer))

        self.admin.ask(-1, FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), found)

    def _on_lag(self, group: str, reply: DescribeShareGroupOffsetsResponse | None) -> None:
        if reply is None or reply.groups[0].error_code:
            return
        for topic in reply.groups[0].topics:
            for each in topic.partitions:
                if each.error_code == ErrorCode.NONE:
                    if each.lag < -1:
                        raise Violation("share-lag", f"{group} {topic.topic_name}-{each.partition_index}: {each.lag}")
                    self._lags[group][ShareKey(group, topic.topic_id, each.partition_index)] = each.lag

    def check_end(self) -> None:
        for member in self.members:
            member.stop()
        self.laws.states.sweep()


def lanes_of(plan: SharePlan) -> None:
    """Producers get lanes for partitions that come later."""
    for producer in plan.producers:
        if producer.topic == TRIMMED:
            producer.partitions += GROWN_MAX
