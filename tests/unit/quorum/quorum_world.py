"""A quorum in memory, on virtual time: members, a network that delays, loses and cuts, disks that forget.

Everything is drawn from one seed. `check` holds the state of all members against the laws of Raft after every event.
"""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from skidway.errors import CorruptMessage
from skidway.quorum.machine import Quorum, Role
from skidway.quorum.messages import Answer, Ask, BeginEpoch, EndEpoch, EpochEnd, Fetch, FetchSnapshot, Vote
from skidway.quorum.settings import QuorumSettings
from skidway.quorum.storage import Remembered
from skidway.quorum.voters import Member, Voter, VoterHistory, Voters


@dataclass(frozen=True)
class Entry:
    epoch: int
    value: object
    """A number written by the workload, a set of voters, or the name of the leader whose epoch began."""


@dataclass
class Disk:
    """What a node has on disk: the durable part, and what would be lost now."""

    remembered: Remembered = field(default_factory=Remembered)
    durable: list[Entry] = field(default_factory=list)
    start: int = 0
    snapshot: tuple[EpochEnd, list[Entry], Voters] | None = None


class MemoryLog:
    """The log as a list; batches travel as tuples of entries with their base offset, in the place of bytes."""

    def __init__(self, disk: Disk, batch: int) -> None:
        self.disk = disk
        self.entries = list(disk.durable)
        self.synced = len(self.entries)
        self.batch = batch
        self.coming: list[Entry] = []
        self.coming_id: EpochEnd | None = None

    @property
    def start_offset(self) -> int:
        return self.disk.start

    @property
    def end_offset(self) -> int:
        return self.disk.start + len(self.entries)

    @property
    def synced_offset(self) -> int:
        return self.disk.start + self.synced

    @property
    def last_epoch(self) -> int:
        if self.entries:
            return self.entries[-1].epoch
        return self.disk.snapshot[0].epoch if self.disk.snapshot else 0

    @property
    def snapshot(self) -> EpochEnd | None:
        return self.disk.snapshot[0] if self.disk.snapshot else None

    @property
    def base(self) -> EpochEnd:
        return EpochEnd(self.disk.snapshot[0].epoch, self.disk.start) if self.disk.snapshot else EpochEnd(0, 0)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        found, end = (self.disk.snapshot[0].epoch, self.disk.start) if self.disk.snapshot else (0, 0)
        for offset, entry in enumerate(self.entries, self.disk.start):
            if entry.epoch > epoch:
                break
            found, end = entry.epoch, offset + 1
        return EpochEnd(found, end)

    def append(self, value: object, epoch: int) -> int:
        self.entries.append(Entry(epoch, value))
        return self.end_offset - 1

    def append_leader_change(self, leader: Member, voters: Voters, granted: list[Member], epoch: int) -> int:
        return self.append(f"leader {leader.node_id}", epoch)

    def append_voters(self, voters: Voters, epoch: int) -> int:
        return self.append(voters, epoch)

    def append_fetched(self, records: Any) -> list[tuple[int, Voters]]:
        base, entries = records
        if base == "corrupt":
            raise CorruptMessage("bits were flipped")
        assert base == self.end_offset, "a gap or an overlap in what was fetched"
        found = []
        for entry in entries:
            self.entries.append(entry)
            if isinstance(entry.value, Voters):
                found.append((self.end_offset - 1, entry.value))
        return found

    def truncate_to(self, offset: int) -> None:
        """Durable on return, as the product's is."""
        del self.entries[max(offset - self.disk.start, 0) :]
        self.synced = min(self.synced, len(self.entries))
        self.disk.durable = list(self.entries[: self.synced])

    def read(self, offset: int) -> Any:
        entries = self.entries[offset - self.disk.start : offset - self.disk.start + self.batch]
        return (offset, entries) if entries else ()

    def read_snapshot(self, snapshot: EpochEnd, position: int) -> tuple[int, Any] | None:
        if self.disk.snapshot is None or self.disk.snapshot[0] != snapshot:
            return None
        entries = self.disk.snapshot[1]
        # Position 0 is a header with the voters, so that an empty snapshot has bytes too.
        data = [self.disk.snapshot[2], *entries][position : position + 10 * self.batch]
        return len(entries) + 1, data

    def begin_snapshot(self, snapshot: EpochEnd) -> None:
        self.coming_id, self.coming = snapshot, []

    def append_snapshot(self, data: Any) -> int:
        self.coming += data
        return len(self.coming)

    def finish_snapshot(self) -> Voters:
        assert self.coming_id is not None
        voters = self.coming[0]
        assert isinstance(voters, Voters)
        self.disk.snapshot = (self.coming_id, self.coming[1:], voters)
        self.disk.start = self.coming_id.end_offset
        self.entries = []
        self.synced = 0
        self.disk.durable = []
        return voters

    def take_snapshot(self, end_offset: int, voters: Voters) -> None:
        """Keep what is below in a snapshot, and the log from there on."""
        kept = end_offset - self.disk.start
        before = self.disk.snapshot[1] if self.disk.snapshot else []
        epoch = self.entries[kept - 1].epoch
        self.disk.snapshot = (EpochEnd(epoch, end_offset), before + self.entries[:kept], voters)
        self.disk.start = end_offset
        del self.entries[:kept]
        self.synced -= kept
        self.disk.durable = self.entries[: self.synced]

    def sync(self) -> None:
        self.synced = len(self.entries)
        self.disk.durable = list(self.entries)

    def whole(self) -> list[Entry]:
        return (self.disk.snapshot[1] if self.disk.snapshot else []) + self.entries


class DiskMemory:
    def __init__(self, disk: Disk) -> None:
        self.disk = disk

    def load(self) -> Remembered:
        return self.disk.remembered

    def save(self, remembered: Remembered) -> None:
        self.disk.remembered = remembered


@dataclass
class Host:
    member: Member
    disk: Disk
    machine: Quorum | None = None
    log: MemoryLog | None = None
    life: int = 0
    """Counts restarts: what was meant for an earlier life never arrives."""
    syncing: bool = False
    powerless: bool = False
    parked: list[tuple[Fetch, int, int, int]] = field(default_factory=list)
    """Fetches held back: request, from whom, and the two lives."""

    def holds(self, offset: int, entry: Entry) -> bool:
        """Whether a crash would leave it the record."""
        durable = (self.disk.snapshot[1] if self.disk.snapshot else []) + self.disk.durable
        return offset < len(durable) and durable[offset] == entry


class World:
    def __init__(self, seed: int, *, voters: int = 3, observers: int = 1, quorum: type[Quorum] = Quorum) -> None:
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
        self.hosts = {member.node_id: Host(member, Disk()) for member in members}
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
            what()
            self.check()
        self.now_ms = until_ms

    def start(self, node_id: int) -> None:
        host = self.hosts[node_id]
        host.life += 1
        host.powerless = False
        host.syncing = False
        host.parked = []
        host.log = MemoryLog(host.disk, self.batch)
        history = VoterHistory(self.static)
        if host.disk.snapshot is not None:
            history.add(host.disk.snapshot[0].end_offset - 1, host.disk.snapshot[2])
        for offset, entry in enumerate(host.log.entries, host.disk.start):
            if isinstance(entry.value, Voters):
                history.add(offset, entry.value)
        host.machine = self.quorum(
            host.member, history, host.log, DiskMemory(host.disk), self.random, self.settings, self.now_ms
        )
        self.laws.on_start(node_id, host.machine)
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
        unsynced = host.log.entries[host.log.synced :]
        kept = self.random.randrange(len(unsynced) + 1)
        host.disk.durable = host.log.entries[: host.log.synced] + unsynced[:kept]
        host.machine = host.log = None
        host.life += 1

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
        if log.synced < len(log.entries) and not host.syncing:
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
        if isinstance(ask.request, Fetch) and getattr(answer, "records", ()) and self.random.random() < self.loss / 4:
            answer = replace(answer, records=("corrupt", []))
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
                self.proposals.append((host.member.node_id, host.life, offset, host.log.entries[-1]))
                self.pump(host.member.node_id)

    def take_snapshot(self) -> None:
        host = self.random.choice(self.running or [None])  # type: ignore[list-item]
        if host is None or host.machine is None or host.log is None:
            return
        end = min(host.machine.high_watermark, host.log.synced_offset)
        if end > host.log.start_offset:
            voters = host.machine.history.at(end)
            host.log.take_snapshot(end, voters)
            host.machine.history.forget_before(end)

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
            ["crash", "crash", "crash all", "cut", "cut", "one way", "heal", "resign", "snapshot"]
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

    def restart(self, node_id: int) -> None:
        if self.hosts[node_id].machine is None:
            self.start(node_id)

    def every(self, mean_ms: int, what: Callable[[], None], until_ms: int) -> None:
        def again() -> None:
            if self.now_ms < until_ms:
                what()
                self.at(self.now_ms + self.draw(mean_ms), again)

        self.at(self.now_ms + self.draw(mean_ms), again)

    def heal(self) -> None:
        self.cuts.clear()
        self.loss = 0.0
        for node_id in sorted(self.hosts):
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


class Laws:
    """What holds at every moment, whatever happens (R1 to R10 of Raft as the notes on reliability count them)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.votes: dict[tuple[int, int], Member] = {}
        """Who was promised a vote, by voter and epoch."""
        self.epochs: dict[int, int] = {}
        """The latest epoch each node was seen in."""
        self.watermarks: dict[int, tuple[int, int]] = {}
        """Life and high watermark of each node at the last look."""
        self.heard: dict[tuple[int, int], int] = {}
        """When a fetch of one node last reached another."""
        self.reigns: dict[int, tuple[int, int, Voters, int]] = {}
        """Life, epoch and voters of a leader, and since when it leads by them."""

    def on_start(self, node_id: int, machine: Quorum) -> None:
        assert machine.epoch >= self.epochs.get(node_id, 0), f"{node_id} forgot epoch {self.epochs[node_id]}"
        promised = self.votes.get((node_id, machine.epoch))
        assert promised in (None, machine.voted), f"{node_id} forgot its vote for {promised} in {machine.epoch}"

    def on_delivered(self, sender: int, ask: Ask, answer: Any) -> None:
        request = ask.request
        if isinstance(request, Fetch | FetchSnapshot) and not answer.error:
            self.heard[sender, ask.to] = self.world.now_ms
        if isinstance(request, Vote) and not request.pre_vote and answer.granted:
            first = self.votes.setdefault((ask.to, request.epoch), request.candidate)
            assert first == request.candidate, f"{ask.to} votes twice in epoch {request.epoch}"

    def check(self, node_id: int, machine: Quorum, log: MemoryLog) -> None:
        self._check_epoch(node_id, machine)
        if machine.leads:
            self._check_leadership(node_id, machine)
        self._check_committed(node_id, machine, log)
        self._check_watermark(node_id, machine, log)
        self._check_voters(node_id, machine, log)

    def _check_epoch(self, node_id: int, machine: Quorum) -> None:
        assert machine.epoch >= self.epochs.get(node_id, 0), f"{node_id} goes back in epochs"
        self.epochs[node_id] = machine.epoch
        assert (machine.role is Role.FOLLOWER) <= (machine.leader not in (-1, node_id))

    def _check_leadership(self, node_id: int, machine: Quorum) -> None:
        """One leader in an epoch, and none for long without a majority that asks it for records."""
        world = self.world
        first = world.leaders.setdefault(machine.epoch, node_id)
        assert first == node_id, f"epoch {machine.epoch}: {first} and {node_id} both lead"
        life = world.hosts[node_id].life
        reign = self.reigns.get(node_id)
        if reign is None or reign[:3] != (life, machine.epoch, machine.voters):
            self.reigns[node_id] = reign = (life, machine.epoch, machine.voters, world.now_ms)
        ids = [voter.member.node_id for voter in machine.voters]
        times = [
            world.now_ms if voter == node_id else max(self.heard.get((voter, node_id), 0), reign[3]) for voter in ids
        ]
        heard = sorted(times, reverse=True)[machine.voters.majority - 1]
        silence = world.now_ms - heard
        assert silence <= 2 * world.settings.check_quorum_ms, f"{node_id} leads, unheard for {silence} ms"

    def _check_committed(self, node_id: int, machine: Quorum, log: MemoryLog) -> None:
        whole = log.whole()
        acknowledged = self.world.acknowledged
        assert machine.high_watermark <= len(whole), f"{node_id} commits what it does not have"
        for offset in range(max(0, machine.high_watermark - 3), machine.high_watermark):
            entry = acknowledged.setdefault(offset, whole[offset])
            assert entry == whole[offset], f"{node_id} has {whole[offset]} at {offset}, {entry} was committed"

    def _check_watermark(self, node_id: int, machine: Quorum, log: MemoryLog) -> None:
        """It never goes back, and a leader moves it by records of its own epoch that a majority has on disk."""
        life = self.world.hosts[node_id].life
        before_life, before = self.watermarks.get(node_id, (life, 0))
        if before_life == life:
            assert machine.high_watermark >= before, f"{node_id} takes back what is committed"
        self.watermarks[node_id] = (life, machine.high_watermark)
        end = machine.high_watermark
        if not machine.leads or (before_life, before) == (life, end) or end == 0:
            return
        last = log.whole()[end - 1]
        if last.epoch != machine.epoch:
            assert before_life == life, "nobody leads at once"
            known = any(seen >= end for other, (_, seen) in self.watermarks.items() if other != node_id)
            assert known or end <= before, f"{node_id} commits {last} in epoch {machine.epoch}"
            return
        holders = [voter for voter in machine.voters if self.world.hosts[voter.member.node_id].holds(end - 1, last)]
        assert len(holders) >= machine.voters.majority, f"{node_id} commits {last}: only {holders} have it"

    def _check_voters(self, node_id: int, machine: Quorum, log: MemoryLog) -> None:
        offset = machine.history.latest_offset
        assert offset < log.end_offset, f"{node_id} believes in voters whose record is gone"
        if machine.leads and machine.followers is not None and offset > machine.followers.epoch_start:
            # Sets that the leader itself appended: each waits for the one before.
            pending = [at for at, _ in machine.history._sets if at >= machine.high_watermark]
            assert len(pending) <= 1, f"{node_id} has several changes of the voters under way: {pending}"
        if offset >= log.start_offset:
            assert log.entries[offset - log.start_offset].value == machine.voters, f"{node_id}: other voters in the log"


def storm(seed: int, *, quorum: type[Quorum] = Quorum, seconds: int = 20, voters: int = 3) -> World:
    """Faults for a while, then none: laws all along, and an end at which everybody agrees."""
    world = World(seed, voters=voters, observers=2, quorum=quorum)
    end_ms = seconds * 1_000
    world.every(30, world.propose, end_ms + 5_000)
    world.every(700, world.nemesis, end_ms)
    if seed % 2:
        world.every(1_500, world.change_voters, end_ms)
    world.run(end_ms)
    world.heal()
    proposed = world.proposed
    world.run(end_ms + 20_000)
    world.check_converged()
    assert world.proposed > proposed, "nobody led after the faults were over"
    return world
