"""Carries out the faults of a plan, and takes them back when their time is over or the run ends."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from skidway.broker.coordinators.groups import OFFSETS_TOPIC
from skidway.broker.coordinators.shares import SHARES_TOPIC
from skidway.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from skidway.sim.faults.damage import Damage
from skidway.sim.faults.decisions import Decisions
from skidway.sim.faults.held_messages import HeldMessages
from skidway.sim.faults.held_states import HeldStates
from skidway.sim.faults.losses import Losses
from skidway.sim.plan import LOSSES, MORE_LOSSES, Fault, Plan
from skidway.sim.share_plan import GROUP_COORDINATOR, SHARE_COORDINATOR
from skidway.sim.transactional_plan import COORDINATOR, STATE_PARTITIONS
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import MS, World
from skidway.sim.world.host import Host

HOUR_MS = 3_600_000
SPARE_BYTES = 2_000
STATE_TOPICS = {COORDINATOR: TRANSACTIONS_TOPIC, SHARE_COORDINATOR: SHARES_TOPIC, GROUP_COORDINATOR: OFFSETS_TOPIC}
STOPPED_US = 20 * MS
"""How often to look whether a machine that stops has stopped."""


class Nemesis:
    def __init__(self, world: World, cluster: Cluster, plan: Plan, clients: Callable[[], list[str]]) -> None:
        self.world = world
        self.cluster = cluster
        self.plan = plan
        self.network = cluster.network
        self.over = False
        self.operations: dict[str, Callable[[Random], None]] = {}
        """Faults that are requests of an administrator, by name."""
        self.elect_uncleanly: Callable[[str, int, list[int]], None] = lambda topic, index, replicas: None
        self.damage = Damage(world, cluster, [topic.name for topic in plan.topics])
        self.losses = Losses(world, cluster, plan, self.damage, self._down, self.revive)
        self._clients = clients
        strikes = [self._power, self._kill, self._cut, self._pause]
        self.decisions = Decisions(world, cluster, strikes)
        self.held = HeldMessages(world, cluster, self._kill)
        self.held_states = HeldStates(world, cluster)
        self._kinds: dict[str, Callable[[Fault, Host, Random], None]] = {
            "power": self._power,
            "kill": self._kill,
            "stop": self._stop,
            "pause": self._pause,
            "cut": self._cut,
            "cut one way": self._cut_one_way,
            "cut pair": self._cut_pair,
            "cut clients": self._cut_clients,
            "reset": self._reset,
            "slow": self._slow,
            "clock": self._clock,
            "full": self._full,
            "bad sync": self._bad_sync,
            "op": self._op,
            "all": self._all,
            "two": self._two,
            "flip": self._flip,
            "rot": self._rot,
            **self.decisions.kinds,
            **self.held.kinds,
            **self.held_states.kinds,
            **dict.fromkeys((*LOSSES, *MORE_LOSSES), self.losses.strike),
        }

    def begin(self) -> None:
        for fault in self.plan.faults:
            self.world.at(fault.at_ms * MS, lambda fault=fault: self._strike(fault))  # type: ignore[misc]

    def end(self) -> None:
        """No more faults: everything is healed and runs."""
        self.over = self.losses.over = self.decisions.over = self.held.over = self.held_states.over = True
        self.network.heal_all()
        for host in self.cluster.hosts.values():
            host.disk.capacity = None
            host.disk.crash_at = None
            host.disk.failing_syncs = None
            host.speed.stall_chance = 0.0
            host.resume()
            if host.is_hurt:
                self._down(host)
        self._keep_running()

    def _keep_running(self) -> None:
        """Also who was still stopping when the faults ended, and who was mended."""
        for copy in self.damage.last_copies():
            self._down(self.cluster.hosts[copy.node_id])
            self.damage.mend(copy)
        for topic, index, replicas in self.damage.without_candidates():
            self.world.mark("elected uncleanly by hand")
            self.elect_uncleanly(topic, index, replicas)
        for host in self.cluster.hosts.values():
            if host.node is None:
                host.start()
        self.world.after(1_000 * MS, self._keep_running)

    def revive(self, host: Host) -> None:
        if host.node is None and not host.start():
            self.world.after(1_000 * MS, lambda: self.revive(host))

    # --- inside ---

    def _strike(self, fault: Fault) -> None:
        if self.over:
            return
        host = self._target(fault)
        random = self.world.stream(f"fault {fault}")
        self.world.say("!", f"{fault.kind} {host.name} for {fault.lasts_ms} ms")
        self.world.mark(fault.kind)
        if fault.kind in self.operations:
            self.operations[fault.kind](random)
        elif fault.kind in self._kinds:
            self._kinds[fault.kind](fault, host, random)

    def _target(self, fault: Fault) -> Host:
        hosts = list(self.cluster.hosts.values())
        found: Host | None = None
        if fault.target == -1:
            topic = self.plan.topics[fault.amount % len(self.plan.topics)]
            found = self.cluster.leader_host(topic.name, fault.amount % topic.partitions)
        elif fault.target == -2:
            found = self.cluster.controller_host()
        elif fault.target in STATE_TOPICS:
            found = self.cluster.leader_host(STATE_TOPICS[fault.target], fault.amount % STATE_PARTITIONS)
        return found if found is not None else hosts[fault.target % len(hosts)]

    def _later(self, fault: Fault, step: Callable[[], None]) -> None:
        def due() -> None:
            if not self.over:
                step()

        self.world.after(fault.lasts_ms * MS, due)

    @property
    def _is_lossy(self) -> bool:
        """Not while a disk is lost: of several machines that may have lost something, nobody could be elected."""
        return self.plan.lossy and not self.losses.is_disk_lost

    def _down(self, host: Host) -> None:
        if self._is_lossy and not self.losses.is_unread(host):
            host.power_off()
        else:
            host.kill()

    def _others_hold_everything(self, host: Host) -> bool:
        """All machines run, and every partition has all its replicas in sync, by everybody's word.

        Of a run that has not registered yet, the metadata tells what the run before had, and a loss of power may lie
        between the two.
        """
        nodes = [node for _, node in self.cluster.running]
        if len(nodes) < len(self.cluster.hosts) or any(
            each.paused or each.is_hurt for each in self.cluster.hosts.values()
        ):
            return False
        newest = max(nodes, key=lambda node: node.quorum.published_offset)
        known = {broker.id: broker.epoch for broker in newest.image.brokers.values()}
        if any(known.get(node.settings.node_id) != node.broker_epoch for node in nodes):
            return False
        return all(
            sorted(partition.isr) == sorted(partition.replicas) and len(partition.isr) > 1
            for topic in newest.image.topics.values()
            for partition in topic.partitions
        )

    def _power(self, fault: Fault, host: Host, random: Random) -> None:
        if self.plan.one_by_one and not self.losses.is_disk_lost and self._others_hold_everything(host):
            self.world.mark("power, unsynced")
            host.power_off()
        else:
            self._down(host)
        self._later(fault, lambda: self.revive(host))

    def _kill(self, fault: Fault, host: Host, random: Random) -> None:
        host.kill()
        self._later(fault, lambda: self.revive(host))

    def _stop(self, fault: Fault, host: Host, random: Random) -> None:
        host.stop()

        def again() -> None:
            if host.node is None:
                self.revive(host)
            else:
                self._later(fault, again)

        self._later(fault, again)

    def _all(self, fault: Fault, host: Host, random: Random) -> None:
        for each in self.cluster.hosts.values():
            self._down(each)
            self.world.after(random.randrange(fault.lasts_ms + 1) * MS, lambda each=each: self.revive(each))  # type: ignore[misc]

    def _two(self, fault: Fault, host: Host, random: Random) -> None:
        others = [each for each in self.cluster.hosts.values() if each is not host]
        for each in [host, *random.sample(others, min(1, len(others)))]:
            self._down(each)
            self.world.after(random.randrange(fault.lasts_ms + 1) * MS, lambda each=each: self.revive(each))  # type: ignore[misc]

    def _pause(self, fault: Fault, host: Host, random: Random) -> None:
        host.pause()
        self._later(fault, host.resume)

    def _places(self) -> list[str]:
        return [host.name for host in self.cluster.hosts.values()]

    def _cut_between(self, fault: Fault, pairs: list[tuple[str, str]]) -> None:
        for source, target in pairs:
            self.network.cut(source, target)

        def heal() -> None:
            for source, target in pairs:
                self.network.heal(source, target)

        self._later(fault, heal)

    def _cut(self, fault: Fault, host: Host, random: Random) -> None:
        """The machine alone, or with its clients, on its side."""
        far = [name for name in self._places() if name != host.name]
        if fault.amount % 2 or not far:
            far = far + self._clients()
        self._cut_between(fault, [pair for name in far for pair in ((host.name, name), (name, host.name))])

    def _cut_one_way(self, fault: Fault, host: Host, random: Random) -> None:
        far = [name for name in self._places() if name != host.name] or self._clients()
        outward = fault.amount % 2 == 0
        self._cut_between(fault, [(host.name, name) if outward else (name, host.name) for name in far])

    def _cut_pair(self, fault: Fault, host: Host, random: Random) -> None:
        far = [name for name in self._places() if name != host.name]
        if far:
            other = random.choice(far)
            self._cut_between(fault, [(host.name, other), (other, host.name)][: 1 + fault.amount % 2])

    def _cut_clients(self, fault: Fault, host: Host, random: Random) -> None:
        chosen = [name for name in self._clients() if random.random() < 0.5]
        both = [pair for name in chosen for pair in ((host.name, name), (name, host.name))]
        self._cut_between(fault, both if fault.amount % 2 else both[::2])

    def _reset(self, fault: Fault, host: Host, random: Random) -> None:
        for name in [*self._places(), *self._clients()]:
            if name != host.name and random.random() < 0.6:
                self.network.reset_between(host.name, name)

    def _slow(self, fault: Fault, host: Host, random: Random) -> None:
        for name in [*self._places(), *self._clients()]:
            if name != host.name:
                self.network.slow[host.name, name] = random.choice([3, 20, 60])
        self._later(fault, self.network.slow.clear)

    def _clock(self, fault: Fault, host: Host, random: Random) -> None:
        host.clock.wall_offset_ms += random.choice([-3 * HOUR_MS, -1_000, 1_000, HOUR_MS])

    def _full(self, fault: Fault, host: Host, random: Random) -> None:
        host.disk.capacity = host.disk.used() + random.randrange(SPARE_BYTES)

        def room() -> None:
            host.disk.capacity = None

        self._later(fault, room)

    def _bad_sync(self, fault: Fault, host: Host, random: Random) -> None:
        if not self._is_lossy:
            return  # a failed sync takes what was not synced, and here that is what was promised
        first = host.disk.syncs + random.randrange(20)
        # A stream of its own, so that seeds from before there was a choice keep their draws.
        choice = self.world.stream(f"after {fault}")
        machine_goes_on = choice.random() < 0.5
        host.disk.failing_syncs = set(range(first, first + (choice.choice([1, 4, 50]) if machine_goes_on else 1)))

        def repaired() -> None:
            host.disk.failing_syncs = None
            if host.is_hurt and machine_goes_on:
                self.world.mark("bad sync, same boot")
                host.kill()
                # What it believed and promised since is put to the test.
                self.world.after(choice.randrange(200, 3_000) * MS, lost)
            elif host.is_hurt:
                self._down(host)
            self.revive(host)

        def lost() -> None:
            if not self.over:
                self._down(host)
                self._later(fault, lambda: self.revive(host))

        self._later(fault, repaired)

    def _op(self, fault: Fault, host: Host, random: Random) -> None:
        """The machine stops inside one of its next disk operations."""
        if not self._is_lossy:
            self._kill(fault, host, random)
            return
        host.disk.crash_at = host.disk.operations + 1 + random.randrange(60)

        def again() -> None:
            host.disk.crash_at = None
            self.revive(host)

        self._later(fault, again)

    def _flip(self, fault: Fault, host: Host, random: Random) -> None:
        """While it is down, a bit of what others hold too goes wrong on its disk."""
        spare = self.damage.spare(host)
        if not spare:
            return

        def flip() -> None:
            if host.node is None:
                self.damage.flip(host, spare, random)
                self._later(fault, lambda: self.revive(host))
            elif not self.over:
                self.world.after(STOPPED_US, flip)

        if fault.amount % 2:
            self._down(host)
        else:
            host.stop()
        flip()

    def _rot(self, fault: Fault, host: Host, random: Random) -> None:
        """While it runs, a bit of what others hold too goes wrong on its disk, and nobody is told."""
        self.damage.rot(host, random)
