"""When the laws are looked at: at every crash, after every recovery, every few milliseconds, and at the end.

At a crash the promises of that machine are noted, and held against what it has when it comes back.
"""

from __future__ import annotations

from collections.abc import Callable

from skidway.broker.node import Node
from skidway.log.health import Damage, Quarantined
from skidway.log.log import Log
from skidway.sim.laws.brokers import BrokerLaws
from skidway.sim.laws.elections import ElectionLaws
from skidway.sim.laws.groups import GroupLaws
from skidway.sim.laws.history import History
from skidway.sim.laws.log_checks import check_log, check_told, stored_bytes
from skidway.sim.laws.partitions import PartitionLaws
from skidway.sim.laws.quorum import QuorumLaws
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import MS, SECOND, Violation, World
from skidway.sim.world.host import Host

SWEEP_MS = 50
IMAGES_EVERY = 40


class Invariants:
    def __init__(self, world: World, cluster: Cluster, history: History) -> None:
        self.world = world
        self.cluster = cluster
        self.history = history
        self._promised: dict[str, dict[str, int]] = {}
        self._stored: dict[str, dict[str, int]] = {}
        """How long the files of each log were before a start looked at them."""
        self._opened: dict[str, int] = {}
        self._recovered: dict[tuple[str, int], set[str]] = {}
        self._shortened: dict[str, int] = {}
        """How often a machine has cut or removed a file, and of each of its logs, by life and name, how often that was
        cut."""
        self._cuts: dict[tuple[str, int, str], int] = {}
        self.quorum = QuorumLaws(cluster)
        self.elections = ElectionLaws()
        self.partitions = PartitionLaws(cluster, history)
        self.brokers = BrokerLaws(cluster)
        self.groups = GroupLaws(world, cluster)
        self.is_rotten: Callable[[Host, Log], bool] = lambda host, log: False
        """Whether a log may have a damaged batch that its node has not come upon yet."""
        self.is_lost: Callable[[Host, Log], bool] = lambda host, log: False
        """Whether something of what was stored of it is gone."""
        self.more_steps: list[Callable[[Node], None]] = []
        self.more_starts: list[Callable[[Host], None]] = []
        self.more_sweeps: list[Callable[[], None]] = []
        """Of laws that only some runs have."""
        self._sweeps = 0
        cluster.watch(self.watch)

    def watch(self, host: Host) -> None:
        host.on_crash = self.on_crash
        host.on_step = self.on_step
        host.on_start = self.on_start
        host.on_starting = self.on_starting

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

    def on_starting(self, host: Host) -> None:
        self._stored[host.name] = stored_bytes(host.disk)

    def on_start(self, host: Host) -> None:
        node = host.node
        assert node is not None
        self.quorum.on_start(host, node)
        for start in self.more_starts:
            start(host)
        self._check_told(host, node.quorum.log)
        self._check_kept(host, "metadata", node.quorum.log)
        self._promised.get(host.name, {}).pop("metadata", None)

    def on_step(self, host: Host) -> None:
        """Called after everything that happens to a machine, so only to note what changed."""
        node = host.node
        assert node is not None
        self.elections.on_step(host, node)
        if node.turn.moved:
            self.partitions.on_step(node)
        for step in self.more_steps:
            step(node)
        # A log that begins anew has its files removed.
        if host.disk.shortened != self._shortened.get(host.name):
            self._shortened[host.name] = host.disk.shortened
            self._check_cut(host, node)
        if self._opened.get(host.name) != host.life and node.rooms.hosting.begun:
            self._check_recovered(host, node)
            if node.rooms.hosting.started:
                self._opened[host.name] = host.life
                self._promised.pop(host.name, None)

    def _check_cut(self, host: Host, node: Node) -> None:
        """Of what was cut off, nothing is remembered."""
        for name, log in _logs(node)[1:]:
            key = (host.name, host.life, name)
            if key not in self._cuts and self._opened.get(host.name) != host.life:
                continue  # It is noted when it is looked at as a recovered one.
            before, self._cuts[key] = self._cuts.get(key, 0), log.saved.truncated.count
            starts = log.epochs.starts
            if log.saved.truncated.count != before and log.failure is None and starts and starts[-1] >= log.end_offset:
                raise Violation(
                    "epoch-cache",
                    f"{host.name} {name} was truncated to {log.end_offset}; its epoch cache has {log.epochs.entries()}",
                )

    def _check_recovered(self, host: Host, node: Node) -> None:
        """Each log when it is there: what its leader has cut off since is not lost."""
        known = self._recovered.setdefault((host.name, host.life), set())
        for name, log in _logs(node):
            if name in known:
                continue
            known.add(name)
            self._cuts[host.name, host.life, name] = log.saved.truncated.count
            if isinstance(log.health, Quarantined):
                is_damaged = isinstance(log.health.reason, Damage)
                if is_damaged and self._is_alone and not self.is_lost(host, log):
                    raise Violation("quarantine", f"{host.name} {name}: {log.failure}")
                continue
            self._check_kept(host, name, log)
            if name != "metadata":
                # The metadata was looked at when it was loaded; since then a leader may have had its end cut off.
                self._check_told(host, log)
                self._promised.get(host.name, {}).pop(name, None)

    def _check_told(self, host: Host, log: Log) -> None:
        check_told(host.name, log, self._stored[host.name].get(log.directory, 0), host.reported)

    def _check_kept(self, host: Host, name: str, log: Log) -> None:
        least = self._promised.get(host.name, {}).get(name, 0)
        # Where others have it, it is fetched from them, and nobody may count on this copy before: `candidates`.
        if log.end_offset < least and (self._is_alone or not self.is_lost(host, log)):
            raise Violation(
                "durability", f"{host.name} {name} was synced up to {least} and came back with {log.end_offset}"
            )
        if not self.is_rotten(host, log):
            check_log(host.name, log)

    @property
    def _is_alone(self) -> bool:
        return len(self.cluster.hosts) == 1

    def on_wiped(self, host: Host) -> None:
        self._promised.pop(host.name, None)
        self.quorum.on_wiped(host)

    # --- now and then ---

    def sweep(self) -> None:
        self._sweeps += 1
        self.quorum.sweep()
        self.partitions.sweep()
        self.brokers.sweep()
        self.groups.sweep()
        for sweep in self.more_sweeps:
            sweep()
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
