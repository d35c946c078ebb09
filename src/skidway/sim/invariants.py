"""The laws of partitions and metadata, looked at from above, where all machines can be seen at once.

At every crash the promises of that machine are noted, and held against what it has when it comes back. The rest is
looked at now and then, and at the end.
"""

from __future__ import annotations

from skidway.broker.node import Node
from skidway.sim.cluster import Cluster
from skidway.sim.history import History
from skidway.sim.host import Host
from skidway.sim.log_checks import check_log
from skidway.sim.world import MS, SECOND, Violation, World

SWEEP_MS = 50


class Invariants:
    def __init__(self, world: World, cluster: Cluster, history: History) -> None:
        self.world = world
        self.cluster = cluster
        self.history = history
        self._promised: dict[str, dict[tuple[bytes, int], int]] = {}
        for host in cluster.hosts.values():
            host.on_crash = self.on_crash
            host.on_start = self.on_start

    def begin(self) -> None:
        def sweep() -> None:
            self.sweep()
            self.world.after(SWEEP_MS * MS, sweep)

        self.world.after(SWEEP_MS * MS, sweep)

    # --- crash and recovery ---

    def on_crash(self, host: Host) -> None:
        assert host.node is not None
        self._promised[host.name] = {
            (partition.topic_id, partition.index): partition.log.synced_offset
            for partition in _all(host.node)
            if not partition.log.quarantined and partition.log.failure is None
        }

    def on_start(self, host: Host) -> None:
        node = host.node
        assert node is not None
        promised = self._promised.pop(host.name, {})
        for partition in _all(node):
            log = partition.log
            least = promised.get((partition.topic_id, partition.index), 0)
            if log.quarantined and "[Errno" in str(log.failure):
                continue  # the disk failed during the start; nothing is known to be damaged
            if log.quarantined:
                raise Violation("quarantine", f"{host.name} {partition}: {log.failure}")
            if log.end_offset < least:
                raise Violation(
                    "durability",
                    f"{host.name} {partition} was synced up to {least} and came back with {log.end_offset}",
                )
            check_log(host.name, log)

    # --- now and then ---

    def sweep(self) -> None:
        pass

    # --- the end ---

    def check_converged(self, within_s: int) -> None:
        self.world.run(self.world.now_us + SECOND)

    def is_empty(self, topic: str, index: int) -> bool:
        return all(partition.log.end_offset == 0 for _, partition in self.cluster.copies(topic, index))

    def check_end(self) -> None:
        for host, node in self.cluster.running:
            for partition in _all(node):
                check_log(host.name, partition.log)


def _all(node: Node) -> list:  # type: ignore[type-arg]
    return [node.quorum, *node.partitions]
