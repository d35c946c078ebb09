"""The machines of a run, and what an all-knowing observer may ask of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from skidway.broker.listeners import only_listener
from skidway.broker.node import Node
from skidway.broker.partitions.partition import Partition
from skidway.broker.settings import NodeSettings
from skidway.groups.settings import GroupSettings
from skidway.shares.coordinator.settings import ShareCoordinatorSettings
from skidway.sim import share_plan
from skidway.sim.plan import Plan
from skidway.sim.share_plan import SharePlan
from skidway.sim.transactional_plan import STATE_PARTITIONS, TIMEOUT_CHECK_MS, TransactionalPlan
from skidway.sim.world.events import World
from skidway.sim.world.host import DiskSpeed, Host
from skidway.sim.world.network import Address, Network
from skidway.transactions.settings import TransactionSettings

PORT = 9092
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"


class Cluster:
    def __init__(self, world: World, network: Network, plan: Plan) -> None:
        self.world = world
        self.network = network
        self.plan = plan
        self.hosts: dict[int, Host] = {}
        self._watchers: list[Callable[[Host], None]] = []
        self._last_number = 0
        for _ in range(plan.nodes):
            self.add()

    def add(self) -> Host:
        """A machine that nobody knows yet, with a number that no other had."""
        self._last_number = number = self._last_number + 1
        plan = self.plan
        speed = DiskSpeed(plan.sync_us, plan.stall_us, plan.stall_chance)
        host = Host(self.world, self.network, node_settings(plan, number), speed=speed)
        if isinstance(plan, TransactionalPlan):
            # Coordinators compare times that others wrote down, so their clocks are about right.
            host.clock.wall_offset_ms -= host.clock.monotonic_ms()
        if plan.drift_ppm:
            host.clock.drift_ppm = (number % 3 - 1) * plan.drift_ppm
        self.hosts[number] = host
        for watcher in self._watchers:
            watcher(host)
        return host

    def watch(self, watcher: Callable[[Host], None]) -> None:
        """Show it every machine, also those that come later."""
        self._watchers.append(watcher)
        for host in self.hosts.values():
            watcher(host)

    def retire(self, host: Host) -> None:
        """It is off and stays off."""
        host.retired = True
        del self.hosts[host.settings.node_id]

    @property
    def addresses(self) -> list[Address]:
        return [host.address for host in self.hosts.values()]

    @property
    def running(self) -> list[tuple[Host, Node]]:
        return [(host, host.node) for host in self.hosts.values() if host.node is not None]

    def start(self) -> None:
        for host in self.hosts.values():
            host.start()

    def leader_host(self, topic: str, partition: int) -> Host | None:
        """The machine that believes, in the newest epoch, that it leads."""
        best: tuple[int, Host] | None = None
        for host, node in self.running:
            for found in node.partitions.of_topic(topic):
                if found.index == partition and found.leads and (best is None or found.leader.epoch > best[0]):
                    best = (found.leader.epoch, host)
        return None if best is None else best[1]

    def controller_host(self) -> Host | None:
        for host, node in self.running:
            if node.controls:
                return host
        return None

    def copies(self, topic: str, partition: int) -> Iterator[tuple[Host, Partition]]:
        for host, node in self.running:
            for found in node.partitions.of_topic(topic):
                if found.index == partition:
                    yield host, found


def rack_of(plan: Plan, number: int) -> str:
    return f"rack{number % plan.racks}"


def _share_settings(plan: SharePlan) -> dict[str, int]:
    return {
        "share_session_timeout_ms": 3_000,
        "share_session_timeout_ms_min": 1_000,
        "share_heartbeat_interval_ms": 300,
        "share_heartbeat_interval_ms_min": 100,
        "share_lock_ms": plan.lock_ms,
        "share_lock_ms_min": 1_000,
        "share_deliveries": plan.deliveries,
        "share_locks": plan.locks,
        "share_locks_min": 100,
    }


def node_settings(plan: Plan, number: int) -> NodeSettings:
    chosen: dict[str, Any] = {
        "node_id": number,
        "listeners": only_listener(f"n{number}", PORT),
        "data_dir": f"n{number}",
        "cluster_id": CLUSTER_ID,
        "auto_create_topics": False,
        "default_replication_factor": min(3, plan.nodes),
        "checkpoint_ms": plan.checkpoint_ms,
        "replica_lag_ms": plan.replica_lag_ms,
        "retention_check_ms": 10_000,
        "compaction_check_ms": 10_000,
        "scrub_interval_ms": plan.scrub_ms,
        "groups": GroupSettings(
            offsets_partitions=2,
            initial_rebalance_delay_ms=100,
            session_timeout_ms_min=1_000,
            consumer_session_timeout_ms=4_000,
            consumer_session_timeout_ms_min=1_000,
            consumer_heartbeat_interval_ms=300,
            consumer_heartbeat_interval_ms_min=100,
        ),
    }
    if isinstance(plan, TransactionalPlan):
        chosen["compaction_check_ms"] = plan.compaction_ms
        chosen["transactions"] = TransactionSettings(
            state_partitions=STATE_PARTITIONS,
            timeout_check_ms=TIMEOUT_CHECK_MS,
            id_expiration_ms=plan.expiration_ms,
            id_expiration_check_ms=TIMEOUT_CHECK_MS,
            first_epoch=plan.first_epoch,
        )
    if isinstance(plan, SharePlan):
        chosen["groups"] = replace(chosen["groups"], **_share_settings(plan))
        chosen["shares"] = ShareCoordinatorSettings(
            state_partitions=share_plan.STATE_PARTITIONS,
            updates_per_snapshot=plan.updates_per_snapshot,
            prune_interval_ms=plan.prune_ms,
            write_timeout_ms=plan.write_timeout_ms,
        )
    if plan.racks:
        chosen["rack"] = rack_of(plan, number)
    if plan.nodes > 1:
        chosen["voters"] = [(other, f"n{other}", PORT) for other in range(1, min(plan.nodes, 3) + 1)]
    return NodeSettings(**chosen)
