"""A quorum on virtual time: members, a network that delays, loses and cuts, disks that forget.

Everything is drawn from one seed. `check` holds the state of all members against the laws of Raft after every event.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from quorum_disks import Entry, MemoryStore, Store, StoredLog
from quorum_laws import Laws

from skidway.quorum.machine import Quorum
from skidway.quorum.messages import Answer, Ask, BeginEpoch, EndEpoch, Fetch, FetchAnswer, FetchSnapshot, Vote
from skidway.quorum.settings import QuorumSettings
from skidway.quorum.voters import Member, Voter, Voters
from skidway.sim.world.disk import Crashed, SimDisk
from values import replace


@dataclass
class Host:
    member: Member
    store: Store
    machine: Quorum | None = None
    log: StoredLog | None = None
    life: int = 0
    """Counts restarts: what was meant for an earlier life never arrives."""
    syncing: bool = False
    powerless: bool = False
    parked: list[tuple[Fetch, int, int, int]] = field(default_factory=list)
    """Fetches held back: request, from whom, and the two lives."""

    kept: list[Entry] = field(default_factory=list)
    """What it had on disk for certain when it crashed."""

    def holds(self, offset: int, entry: Entry) -> bool:
        """Whether a crash would leave it the record."""
        durable = self.log.kept if self.log is not None else self.kept
        return offset < len(durable) and durable[offset] == entry


class World:
    def __init__(
        self,
        seed: int,
        *,
        voters: int = 3,
        observers: int = 1,
        quorum: type[Quorum] = Quorum,
        store: Callable[[], Store] = MemoryStore,
    ) -> None:
        self.random = Random(seed)
        self.now_ms = 0
        self.quorum = quorum
        self.settings = QuorumSettings()
        self.latency_ms = self.random.choice([1, 5, 40])
        self.sync_ms = self.random.choice([1, 5, 60])
        self.loss = self.random.choice([0.0, 0.0, 0.02, 0.2])
        self.batch = self.random.choice([5, 20, 100])
        members = [Member(number, bytes([number]) * 16) for number in range(1, voters + observers + 1)]
        self.static = Voters([Voter(member) for member in members[:voters]])
        self.hosts = {member.node_id: Host(member, store()) for member in members}
        self.cuts: set[tuple[int, int]] = set()
        self.events: list[tuple[int, int, Callable[[], None]]] = []
        self.counter = 0
        self.acknowledged: dict[int, Entry] = {}
        """What some leader said is committed, by offset."""
        self.leaders: dict[int, int] = {}
        self.proposals: list[tuple[int, int, int, Entry]] = []
        self.proposed = 0
        self.laws = Laws(self)
        for node_id in self.hosts:
            self.start(node_id)

    # --- events ---

    def at(self, when_ms: int, what: Callable[[], None]) -> None:
        self.counter += 1
        heapq.heappush(self.events, (when_ms, self.counter, what))

    def run(self, until_ms: int) -> None:
        while self.events and self.events[0][0] <= until_ms:
            self.now_ms, _, what = heapq.heappop(self.events)
            try:
                what()
            except Crashed:
                self.crash_stopped()
            self.check()
        self.now_ms = until_ms

    def start(self, node_id: int) -> None:
        host = self.hosts[node_id]
        host.life += 1
        host.powerless = False
        host.syncing = False
        host.parked = []
        host.log = host.store.open(self.batch)
        history = host.log.history(self.static)
        host.machine = self.quorum(
            host.member, history, host.log, host.store.memory(), self.random, self.settings, self.now_ms
        )
        self.laws.on_start(node_id, host.machine, host.log)
        self.pump(node_id)

    def crash(self, node_id: int, *, powerless: bool = False) -> None:
        """Everything that was not synced is gone, or a part of it came through. Where only the process died, those
        who wait for an answer are told at once, and whoever asks is refused."""
        host = self.hosts[node_id]
        if host.machine is None or host.log is None:
            return
        host.powerless = powerless
        for request, sender, sender_life, _ in () if powerless else host.parked:
            ask = Ask(node_id, request)
            self.at(self.now_ms + 1, lambda s=sender, n=sender_life, a=ask: self.unanswered(s, n, a))  # type: ignore[misc]
        self.lose(host)

    def lose(self, host: Host) -> None:
        if host.log is not None:
            host.kept = list(host.log.kept)
        host.store.crash(host.log, self.random)
        host.machine = host.log = None
        host.life += 1

    def crash_stopped(self) -> None:
        """A machine stopped in the middle of an operation of its disk."""
        for host in self.hosts.values():
            disk = getattr(host.store, "disk", None)
            if isinstance(disk, SimDisk) and disk.crash_at is not None and disk.operations >= disk.crash_at:
                host.powerless = True
                self.lose(host)
                node_id = host.member.node_id
                self.at(self.now_ms + self.random.randrange(2_000), lambda n=node_id: self.restart(n))  # type: ignore[misc]

    def alive(self, node_id: int, life: int) -> bool:
        return self.hosts[node_id].life == life and self.hosts[node_id].machine is not None

    def pump(self, node_id: int) -> None:
        """Carry what the machine wants carried; called after each of its steps."""
        host = self.hosts[node_id]
        machine, log = host.machine, host.log
        assert machine is not None
        assert log is not None
        asks, machine.outbox = machine.outbox, []
        for ask in asks:
            self.send(node_id, ask)
        if log.synced_offset < log.end_offset and not host.syncing:
            host.syncing = True
            life = host.life
            self.at(self.now_ms + self.draw(self.sync_ms), lambda: self.synced(node_id, life))
        self.release(node_id)
        life, deadline = host.life, machine.deadline_ms
        self.at(max(deadline, self.now_ms + 1), lambda: self.wake(node_id, life, deadline))

    def wake(self, node_id: int, life: int, deadline: int) -> None:
        if self.alive(node_id, life):
            machine = self.hosts[node_id].machine
            assert machine is not None
            if machine.deadline_ms == deadline:
                machine.on_time(self.now_ms)
                self.pump(node_id)

    def synced(self, node_id: int, life: int) -> None:
        host = self.hosts[node_id]
        if not self.alive(node_id, life):
            return
        assert host.log is not None
        assert host.machine is not None
        host.syncing = False
        host.log.sync()
        host.machine.on_synced(self.now_ms)
        self.pump(node_id)

    def draw(self, mean_ms: int) -> int:
        return 1 + int(self.random.expovariate(1 / mean_ms))

    # --- the network ---

    def send(self, sender: int, ask: Ask) -> None:
        lives = (self.hosts[sender].life, self.hosts[ask.to].life)
        if self.random.random() < self.loss:
            return
        self.at(self.now_ms + self.draw(self.latency_ms), lambda: self.arrive(sender, ask, *lives))

    def arrive(self, sender: int, ask: Ask, sender_life: int, life: int) -> None:
        if (sender, ask.to) in self.cuts:
            return
        if not self.alive(ask.to, life):
            if self.hosts[ask.to].powerless:
                return
            self.at(self.now_ms + 1, lambda: self.unanswered(sender, sender_life, ask))
            return
        host = self.hosts[ask.to]
        machine = host.machine
        assert machine is not None
        answer = self.deliver(machine, ask)
        self.laws.on_delivered(sender, ask, answer)
        if isinstance(ask.request, Fetch) and not answer.error and self.holds_back(answer, ask.request):
            host.parked.append((ask.request, sender, sender_life, self.now_ms + self.settings.fetch_wait_ms))
            self.at(
                self.now_ms + self.settings.fetch_wait_ms,
                lambda: self.pump(ask.to) if self.alive(ask.to, life) else None,
            )
        else:
            self.reply(ask.to, sender, sender_life, ask, answer)
        self.pump(ask.to)

    def deliver(self, machine: Quorum, ask: Ask) -> Any:
        match ask.request:
            case Vote():
                return machine.on_vote(ask.request, self.now_ms)
            case BeginEpoch():
                return machine.on_begin_epoch(ask.request, self.now_ms)
            case EndEpoch():
                return machine.on_end_epoch(ask.request, self.now_ms)
            case Fetch():
                return machine.on_fetch(ask.request, self.now_ms)
            case FetchSnapshot():
                return machine.on_fetch_snapshot(ask.request, self.now_ms)

    @staticmethod
    def holds_back(answer: Any, request: Fetch) -> bool:
        return (
            not answer.records
            and answer.diverging is None
            and answer.snapshot is None
            and answer.high_watermark <= request.high_watermark
        )

    def release(self, node_id: int) -> None:
        """Fetches that were held back are looked at again after each step."""
        host = self.hosts[node_id]
        waiting, host.parked = host.parked, []
        for request, sender, sender_life, until_ms in waiting:
            assert host.machine is not None
            answer = host.machine.fetch_answer(request)
            if answer.error or until_ms <= self.now_ms or not self.holds_back(answer, request):
                self.reply(node_id, sender, sender_life, Ask(node_id, request), answer)
            else:
                host.parked.append((request, sender, sender_life, until_ms))

    def reply(self, node_id: int, to: int, life: int, ask: Ask, answer: Answer) -> None:
        if self.random.random() < self.loss:
            return
        if isinstance(answer, FetchAnswer) and answer.records and self.random.random() < self.loss / 4:
            answer = replace(answer, records=self.hosts[node_id].store.damaged(answer.records))
        self.at(self.now_ms + self.draw(self.latency_ms), lambda: self.answered(node_id, to, life, ask, answer))

    def answered(self, node_id: int, to: int, life: int, ask: Ask, answer: Any) -> None:
        if (node_id, to) in self.cuts or not self.alive(to, life):
            return
        machine = self.hosts[to].machine
        assert machine is not None
        machine.on_answer(node_id, ask.request, answer, self.now_ms)
        self.pump(to)

    def unanswered(self, sender: int, life: int, ask: Ask) -> None:
        if self.alive(sender, life):
            machine = self.hosts[sender].machine
            assert machine is not None
            machine.on_unanswered(ask.to, ask.request, self.now_ms)
            self.pump(sender)

    # --- workload and faults ---

    @property
    def running(self) -> list[Host]:
        return [host for host in self.hosts.values() if host.machine is not None]

    def leader(self) -> Host | None:
        leaders = [host for host in self.running if host.machine is not None and host.machine.leads]
        return max(leaders, key=lambda host: host.machine.epoch if host.machine else -1, default=None)

    def propose(self) -> None:
        """Every node that believes to lead takes a value."""
        for host in self.running:
            assert host.machine is not None
            assert host.log is not None
            if host.machine.leads:
                self.proposed += 1
                offset = host.log.append(self.proposed, host.machine.epoch)
                self.proposals.append((host.member.node_id, host.life, offset, host.log.whole()[-1]))
                self.pump(host.member.node_id)

    def take_snapshot(self) -> None:
        """By whoever knows more as committed than it has on disk, if anybody does: that is where it may go wrong."""
        hosts = [host for host in self.running if host.machine is not None and host.log is not None]
        ahead = [
            host for host in hosts if host.machine and host.log and host.machine.high_watermark > host.log.synced_offset
        ]
        if not hosts:
            return
        host = self.random.choice(ahead or hosts)
        assert host.machine is not None
        assert host.log is not None
        end = host.log.snapshot_end(host.machine.high_watermark)
        if end > host.log.start_offset:
            voters = host.machine.history.at(end)
            host.log.take_snapshot(end, voters)
            host.machine.history.forget_before(end)
            if self.random.random() < 0.2:
                node_id = host.member.node_id
                self.crash(node_id, powerless=True)
                self.at(self.now_ms + self.random.randrange(2_000), lambda: self.restart(node_id))

    def change_voters(self) -> None:
        host = self.leader()
        if host is None or host.machine is None or host.machine.may_change_voters is not None:
            return
        machine = host.machine
        others = [h.member for h in self.hosts.values() if h.member not in machine.voters]
        if others and (len(machine.voters) < 3 or self.random.random() < 0.5):
            machine.change_voters(machine.voters.with_voter(Voter(self.random.choice(others))), self.now_ms)
        elif len(machine.voters) > 1:
            gone = self.random.choice(machine.voters.members)
            machine.change_voters(machine.voters.without(gone.node_id), self.now_ms)
        self.pump(host.member.node_id)

    def nemesis(self) -> None:
        kind = self.random.choice(
            ["crash", "crash", "crash all", "cut", "cut", "one way", "heal", "resign", "snapshot", "stop"]
        )
        node_ids = sorted(self.hosts)
        victim = self.random.choice(node_ids)
        match kind:
            case "crash":
                self.crash(victim, powerless=self.random.random() < 0.3)
                self.at(self.now_ms + self.random.randrange(2_000), lambda: self.restart(victim))
            case "crash all":
                for node_id in node_ids:
                    self.crash(node_id)
                    self.at(self.now_ms + self.random.randrange(3_000), lambda n=node_id: self.restart(n))  # type: ignore[misc]
            case "cut":
                self.cuts |= {(victim, other) for other in node_ids} | {(other, victim) for other in node_ids}
            case "one way":
                self.cuts.add((victim, self.random.choice(node_ids)))
            case "heal":
                self.cuts.clear()
            case "resign":
                host = self.leader()
                if host is not None and host.machine is not None:
                    host.machine.resign(self.now_ms)
                    self.pump(host.member.node_id)
            case "snapshot":
                self.take_snapshot()
            case "stop":
                disk = getattr(self.hosts[victim].store, "disk", None)
                if isinstance(disk, SimDisk):
                    disk.crash_at = disk.operations + 1 + self.random.randrange(30)
                self.take_snapshot()

    def restart(self, node_id: int) -> None:
        if self.hosts[node_id].machine is None:
            self.start(node_id)

    def every(self, mean_ms: int, what: Callable[[], None], until_ms: int) -> None:
        def again() -> None:
            if self.now_ms < until_ms:
                self.at(self.now_ms + self.draw(mean_ms), again)
                what()

        self.at(self.now_ms + self.draw(mean_ms), again)

    def heal(self) -> None:
        self.cuts.clear()
        self.loss = 0.0
        for node_id, host in sorted(self.hosts.items()):
            disk = getattr(host.store, "disk", None)
            if isinstance(disk, SimDisk):
                disk.crash_at = None
            self.restart(node_id)

    # --- the laws ---

    def check(self) -> None:
        for host in self.running:
            assert host.machine is not None
            assert host.log is not None
            self.laws.check(host.member.node_id, host.machine, host.log)
        self._note_acknowledged()

    def _note_acknowledged(self) -> None:
        """A leader answers its clients when the watermark has passed: from then on nothing may be lost."""
        waiting = []
        for node_id, life, offset, entry in self.proposals:
            host = self.hosts[node_id]
            if not self.alive(node_id, life) or host.machine is None or host.log is None:
                continue
            if host.machine.leads and host.machine.epoch == entry.epoch and host.machine.high_watermark > offset:
                known = self.acknowledged.setdefault(offset, entry)
                assert known == entry, f"{entry} was acknowledged at {offset}, {known} is there"
            else:
                waiting.append((node_id, life, offset, entry))
        self.proposals = waiting

    def check_converged(self) -> None:
        """Everybody has every committed record, in place, and the same leader."""
        leader = self.leader()
        assert leader is not None, "nobody leads"
        end = max(self.acknowledged, default=-1) + 1
        for host in self.hosts.values():
            assert host.machine is not None
            assert host.log is not None
            assert host.machine.leader == leader.member.node_id, f"{host.member.node_id} follows {host.machine.leader}"
            assert host.machine.high_watermark >= end, f"{host.member.node_id} is behind"
            whole = host.log.whole()
            for offset, entry in self.acknowledged.items():
                assert whole[offset] == entry, f"{host.member.node_id} lost {entry} at {offset}"


def storm(
    seed: int,
    *,
    quorum: type[Quorum] = Quorum,
    seconds: int = 20,
    voters: int = 3,
    store: Callable[[], Store] = MemoryStore,
) -> World:
    """Faults for a while, then none: laws all along, and an end at which everybody agrees."""
    world = World(seed, voters=voters, observers=2, quorum=quorum, store=store)
    end_ms = seconds * 1_000
    world.every(30, world.propose, end_ms + 5_000)
    world.every(700, world.nemesis, end_ms)
    if seed % 2:
        world.every(1_500, world.change_voters, end_ms)
    if seed % 3 == 0:
        world.every(700, world.take_snapshot, end_ms)
    world.run(end_ms)
    world.heal()
    proposed = world.proposed
    world.run(end_ms + 20_000)
    world.check_converged()
    assert world.proposed > proposed, "nobody led after the faults were over"
    return world
