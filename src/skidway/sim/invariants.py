"""When the laws are looked at: at every crash, after every recovery, every few milliseconds, and at the end.

At a crash the promises of that machine are noted, and held against what it has when it comes back.
"""

from __future__ import annotations

from collections.abc import Callable

from skidway.broker.node import Node
from skidway.log.log import Log
from skidway.sim.broker_laws import BrokerLaws
from skidway.sim.cluster import Cluster
from skidway.sim.election_laws import ElectionLaws
from skidway.sim.group_laws import GroupLaws
from skidway.sim.history import History
from skidway.sim.host import Host
from skidway.sim.log_checks import check_log
from skidway.sim.partition_laws import PartitionLaws
from skidway.sim.quorum_laws import QuorumLaws
from skidway.sim.world import MS, SECOND, Violation, World

SWEEP_MS = 50
IMAGES_EVERY = 40


class Invariants:
    def __init__(self, world: World, cluster: Cluster, history: History) -> None:
        self.world = world
        self.cluster = cluster
        self.history = history
        self._promised: dict[str, dict[str, int]] = {}
        self._opened: dict[str, int] = {}
        self._recovered: dict[tuple[str, int], set[str]] = {}
        self._truncations: dict[str, int] = {}
        """How often a machine has cut a file, and of each of its logs, by life and name, how often that was cut."""
        self._cuts: dict[tuple[str, int, str], int] = {}
        self.quorum = QuorumLaws(cluster)
        self.elections = ElectionLaws()
        self.partitions = PartitionLaws(cluster, history)
        self.brokers = BrokerLaws(cluster)
        self.groups = GroupLaws(world, cluster)
        self.is_rotten: Callable[[Host, Log], bool] = lambda host, log: False
        """Whether a log may have a damaged batch that its node has not come upon yet."""
        self._sweeps = 0
        cluster.watch(self.watch)

    def watch(self, host: Host) -> None:
        host.on_crash = self.on_crash
        host.on_step = self.on_step
        host.on_start = self.on_start

    def begin(self) -> None:
        def sweep() -> None:
            self.sweep()
            self.world.after(SWEEP_MS * MS, sweep)

        self.world.after(SWEEP_MS * MS, sweep)

    # --- crash and recovery ---

    def on_crash(self, host: Host) -> None:
        node = host.node
        assert node is not None
        self.sweep()
        self.quorum.on_crash(host, node)
        promised = self._promised.setdefault(host.name, {})
        for name, log in _logs(node):
            if not log.quarantined and log.failure is None:
                promised[name] = log.synced_offset

    def on_start(self, host: Host) -> None:
        node = host.node
        assert node is not None
        self.quorum.on_start(host, node)
        self._check_kept(host, "metadata", node.quorum.log)
        self._promised.get(host.name, {}).pop("metadata", None)

    def on_step(self, host: Host) -> None:
        """Called after everything that happens to a machine, so only to note what changed."""
        node = host.node
        assert node is not None
        self.elections.on_step(host, node)
        self.partitions.on_step(node)
        # A log that begins anew has its files removed.
        truncations = host.disk.counts.get("truncate", 0) + host.disk.counts.get("remove", 0)
        if truncations != self._truncations.get(host.name):
            self._truncations[host.name] = truncations
            self._check_cut(host, node)
        if self._opened.get(host.name) != host.life and node.hosting.begun:
            self._check_recovered(host, node)
            if node.hosting.started:
                self._opened[host.name] = host.life
                self._promised.pop(host.name, None)

    def _check_cut(self, host: Host, node: Node) -> None:
        """Of what was cut off, nothing is remembered."""
        for name, log in _logs(node)[1:]:
            key = (host.name, host.life, name)
            if key not in self._cuts and self._opened.get(host.name) != host.life:
                continue  # It is noted when it is looked at as a recovered one.
            before, self._cuts[key] = self._cuts.get(key, 0), log.truncated.count
            starts = log.epochs.starts
            if log.truncated.count != before and log.failure is None and starts and starts[-1] >= log.end_offset:
                raise Violation(
                    "epoch-cache",
                    f"{host.name} {name} was cut to {log.end_offset}: {log.epochs.entries()} is remembered",
                )

    def _check_recovered(self, host: Host, node: Node) -> None:
        """Each log when it is there: what its leader has cut off since is not lost."""
        known = self._recovered.setdefault((host.name, host.life), set())
        for name, log in _logs(node):
            if name in known:
                continue
            known.add(name)
            self._cuts[host.name, host.life, name] = log.truncated.count
            if log.quarantined:
                if "[Errno" not in str(log.failure) and len(self.cluster.hosts) == 1:
                    raise Violation("quarantine", f"{host.name} {name}: {log.failure}")
                continue
            self._check_kept(host, name, log)
            if name != "metadata":
                self._promised.get(host.name, {}).pop(name, None)

    def _check_kept(self, host: Host, name: str, log: Log) -> None:
        least = self._promised.get(host.name, {}).get(name, 0)
        if log.end_offset < least:
            raise Violation(
                "durability", f"{host.name} {name} was synced up to {least} and came back with {log.end_offset}"
            )
        if not self.is_rotten(host, log):
            check_log(host.name, log)

    # --- now and then ---

    def sweep(self) -> None:
        self._sweeps += 1
        self.quorum.sweep()
        self.partitions.sweep()
        self.brokers.sweep()
        self.groups.sweep()
        if self._sweeps % IMAGES_EVERY == 0:
            self.quorum.check_images()

    # --- the end ---

    def check_converged(self, within_s: int) -> None:
        self.world.run(self.world.now_us + SECOND)

    def is_empty(self, topic: str, index: int) -> bool:
        return all(partition.log.end_offset == 0 for _, partition in self.cluster.copies(topic, index))

    def check_end(self) -> None:
        for host, node in self.cluster.running:
            for _, log in _logs(node):
                check_log(host.name, log)
        self.quorum.check_images()
        self.partitions.check_copies()
        self.brokers.check_holdings()


def _logs(node: Node) -> list[tuple[str, Log]]:
    """By names that no other topic will ever have."""
    named = [(f"{partition} {partition.topic_id.hex()}", partition.log) for partition in node.partitions]
    return [("metadata", node.quorum.log), *named]
