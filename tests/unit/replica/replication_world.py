"""One partition, its replicas and a controller, in memory, drawn from one seed.

Leaders are the product's; logs, followers and the controller are as simple as they can be. Messages arrive late, in any
order, or never; brokers lose what they had not stored, come back, are fenced while they live. After every step `check`
holds what is committed against every replica the controller could elect.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from skidway.errors import ErrorCode, ProtocolError
from skidway.replica.leader import Leader, Leadership, NotLeading, Proposal
from skidway.replica.role import PartitionRole

LAG_MS = 1_000
NOBODY = -1


@dataclass(frozen=True)
class Entry:
    epoch: int
    value: int


@dataclass(frozen=True)
class State:
    """What the controller has decided, after each of its decisions."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    brokers: dict[int, tuple[int, bool]]
    """Epoch, and whether it is fenced."""


class Controller:
    def __init__(self, replicas: list[int], min_in_sync: int) -> None:
        self.replicas = replicas
        self.min_in_sync = min_in_sync
        self.next_broker_epoch = 100
        brokers = {replica: (replica, False) for replica in replicas}
        self.history = [State(replicas[0], 0, 0, tuple(replicas), (), brokers)]

    @property
    def now(self) -> State:
        return self.history[-1]

    def _decide(
        self,
        isr: tuple[int, ...],
        brokers: dict[int, tuple[int, bool]],
        unclean: int = NOBODY,
        *,
        confirmed: bool = False,
    ) -> None:
        """Whoever leaves the in-sync set while it is too small stays electable; then elect, if nobody may lead."""
        now = self.now
        elr: tuple[int, ...] = ()
        if len(isr) < self.min_in_sync:
            kept = [*now.elr, *(replica for replica in now.isr if replica not in now.elr)]
            elr = tuple(replica for replica in kept if replica not in isr and replica != unclean)
        leader, epoch = now.leader, now.leader_epoch
        if leader not in isr:
            leader = next((replica for replica in isr if not brokers[replica][1]), NOBODY)
            if leader == NOBODY:
                leader = next((replica for replica in elr if not brokers[replica][1]), NOBODY)
                if leader != NOBODY:
                    isr, elr = (leader,), tuple(replica for replica in elr if replica != leader)
                    elr = () if len(isr) >= self.min_in_sync else elr
            if leader != now.leader:
                epoch += 1
        changed = confirmed or (leader, isr, elr) != (now.leader, now.isr, now.elr)
        self.history.append(State(leader, epoch, now.partition_epoch + changed, isr, elr, brokers))

    def fence(self, broker: int) -> None:
        now = self.now
        brokers = {**now.brokers, broker: (now.brokers[broker][0], True)}
        self._decide(tuple(replica for replica in now.isr if replica != broker), brokers)

    def unfence(self, broker: int) -> None:
        now = self.now
        self._decide(now.isr, {**now.brokers, broker: (now.brokers[broker][0], False)})

    def register(self, broker: int, *, unclean: bool) -> int:
        now = self.now
        self.next_broker_epoch += 1
        brokers = {**now.brokers, broker: (self.next_broker_epoch, True)}
        isr = tuple(replica for replica in now.isr if replica != broker)
        self._decide(isr, brokers, broker if unclean else NOBODY)
        return self.next_broker_epoch

    def alter(self, broker: int, broker_epoch: int, proposal: Proposal) -> State | ErrorCode:
        now = self.now
        if broker_epoch != now.brokers[broker][0]:
            return ErrorCode.STALE_BROKER_EPOCH
        if broker != now.leader or proposal.leader_epoch != now.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if proposal.partition_epoch != now.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        for replica, epoch in proposal.members:
            known, fenced = now.brokers[replica]
            if fenced or epoch not in (-1, known):
                # A new partition epoch: copies of the request that are still under way are too old for it.
                self._decide(now.isr, now.brokers, confirmed=True)
                return ErrorCode.INELIGIBLE_REPLICA
        self._decide(tuple(replica for replica, _ in proposal.members), now.brokers)
        return self.now


@dataclass
class Server:
    id: int
    broker_epoch: int
    entries: list[Entry] = field(default_factory=list)
    stored: int = 0
    high_watermark: int = 0
    leader: Leadership = field(default_factory=lambda: NotLeading(NOBODY, -1))
    known: int = 0
    """How many of the controller's decisions it has heard of."""
    up: bool = True
    lossy: bool = False
    """It lost what it had stored, and the controller does not know yet."""
    asked: object = None
    """The request to the controller whose answer it waits for."""
    start_of_epoch: int = 0

    @property
    def last_epoch(self) -> int:
        return self.entries[-1].epoch if self.entries else -1

    def end_of_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch up to `epoch` in the log, and where it ends; the leader's own counts although empty."""
        if self.leader.leads and epoch >= self.leader.epoch:
            return self.leader.epoch, len(self.entries)
        end = next((at for at, entry in enumerate(self.entries) if entry.epoch > epoch), len(self.entries))
        return (self.entries[end - 1].epoch if end else -1), end


class Broken(AssertionError):
    pass


class World:
    counts_diverging = False

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        self.replicas = [1, 2, 3] if random.random() < 0.7 else [1, 2, 3, 4]
        self.min_in_sync = random.choice([1, 2, 2, 2])
        self.sync = random.random() < 0.4
        """Whether stored means synced; otherwise a crash may take anything away."""
        self.controller = Controller(self.replicas, self.min_in_sync)
        self.servers = {replica: Server(replica, replica) for replica in self.replicas}
        self.net: list[Callable[[], None]] = []
        self.now_ms = 0
        self.next_value = 0
        self.committed: list[Entry] = []
        self.loss = random.choice([0.0, 0.05, 0.2])
        self.early = random.choice([0.0, 0.05, 0.3])
        """How often a fetch does not say under which registration."""
        self.calm = False
        self.weights = [random.choice([1, 3, 8]) for _ in range(7)] + [random.choice([0.1, 0.5, 2]) for _ in range(2)]
        self.hasty = random.random() < 0.5
        """Whether brokers come back at once."""
        for server in self.servers.values():
            self._take_role(server)

    # --- steps ---

    def run(self, steps: int) -> None:
        actions = [
            self.write, self.fetch, self.deliver, self.deliver, self.publish, self.pass_time, self.propose,
            self.fence_or_unfence, self.crash_or_restart,
        ]  # fmt: skip
        for _ in range(steps):
            self.random.choices(actions, self.weights)[0]()
            self.check()

    def settle(self) -> None:
        """No more faults: everybody comes back, everything arrives. Then all are in sync and all is committed."""
        self.calm, self.loss = True, 0.0
        for server in self.servers.values():
            if not server.up:
                self._restart(server)
        for _ in range(40):
            self.now_ms += LAG_MS // 4
            for broker, (_, fenced) in list(self.controller.now.brokers.items()):
                if fenced:
                    self.controller.unfence(broker)
            for server in self.servers.values():
                while server.known < len(self.controller.history) - 1:
                    self._hear(server)
                self._store(server)
                self._check_lag(server)
                self._propose(server)
                self._fetch(server)
            while self.net:
                self.net.pop(0)()
                self.check()
        now = self.controller.now
        leader = self.servers[now.leader]
        if sorted(now.isr) != self.replicas:
            raise Broken(f"only {now.isr} are in sync in the end")
        if leader.high_watermark < len(leader.entries):
            raise Broken(f"{leader.high_watermark} of {len(leader.entries)} are committed in the end")

    def _any(self) -> Server:
        return self.servers[self.random.choice(self.replicas)]

    def _send(self, message: Callable[[], None]) -> None:
        if self.random.random() >= self.loss:
            self.net.append(message)

    def deliver(self) -> None:
        if self.net:
            self.net.pop(self.random.randrange(len(self.net)))()

    def pass_time(self) -> None:
        self.now_ms += self.random.choice([1, 10, 100, 600])
        server = self._any()
        self._store(server)
        self._check_lag(server)

    def _check_lag(self, server: Server) -> None:
        if server.up and isinstance(server.leader, Leader):
            self._advance(server, server.leader.check_lag(len(server.entries), self.now_ms))

    def write(self) -> None:
        server = self._any()
        if not server.up or not isinstance(server.leader, Leader):
            return
        for _ in range(self.random.randrange(1, 4)):
            self.next_value += 1
            server.entries.append(Entry(server.leader.epoch, self.next_value))
        if not self.sync or self.random.random() < 0.2:
            self._store(server)

    def _store(self, server: Server) -> None:
        if not server.up:
            return
        server.stored = len(server.entries)
        if isinstance(server.leader, Leader):
            self._advance(server, server.leader.on_stored(server.stored))

    def _advance(self, server: Server, high_watermark: int) -> None:
        server.high_watermark = max(server.high_watermark, high_watermark)

    # --- metadata ---

    def publish(self) -> None:
        server = self._any()
        if server.up and server.known < len(self.controller.history) - 1:
            self._hear(server)

    def _hear(self, server: Server) -> None:
        server.known += 1
        self._take_role(server)

    def _take_role(self, server: Server) -> None:
        state = self.controller.history[server.known]
        eligible = {broker: epoch for broker, (epoch, fenced) in state.brokers.items() if not fenced}
        role = PartitionRole(
            state.leader, state.leader_epoch, state.partition_epoch, self.replicas, state.isr, eligible
        )
        leader = server.leader
        if state.leader != server.id:
            server.leader = NotLeading(state.leader, state.leader_epoch)
        elif isinstance(leader, Leader):
            self._advance(server, leader.on_metadata(role, len(server.entries), self.now_ms))
        else:
            end = len(server.entries)
            leader = server.leader = Leader(server.id, role, server.stored, end, self.now_ms, LAG_MS, self.min_in_sync)
            self._advance(server, leader.on_stored(server.stored))

    def fence_or_unfence(self) -> None:
        broker = self.random.choice(self.replicas)
        if not self.controller.now.brokers[broker][1]:
            if self.random.random() < 0.5:
                self.controller.fence(broker)
        elif self.servers[broker].up:
            self.controller.unfence(broker)

    # --- crashes ---

    def crash_or_restart(self) -> None:
        server = self._any()
        if not server.up:
            self._restart(server)
            return
        if not self._may_lose(server):
            return
        # What it said last may be heard long after.
        self._fetch(server)
        server.up = False
        server.leader = NotLeading(NOBODY, -1)
        server.asked = None
        if self.sync:
            del server.entries[server.stored :]
        elif self.random.random() < 0.7:
            server.lossy = True
            del server.entries[self.random.randint(0, len(server.entries)) :]
        server.stored = len(server.entries)
        server.high_watermark = min(server.high_watermark, self.random.randint(0, len(server.entries)))
        if self.hasty:
            self._restart(server)

    def _may_lose(self, server: Server) -> bool:
        """A copy of what is committed must be left with somebody who can be elected."""
        if self.min_in_sync == 1 and not self.sync:
            return False
        now = self.controller.now
        left = {*now.isr, *now.elr} - {server.id}
        return any(self.servers[other].up for other in left) and all(other.up for other in self.servers.values())

    def _restart(self, server: Server) -> None:
        """It acts only on metadata that includes its new registration."""
        server.broker_epoch = self.controller.register(server.id, unclean=not self.sync)
        server.lossy = False
        server.up = True
        if self.hasty:
            self.controller.unfence(server.id)
        server.known = len(self.controller.history) - 1
        self._take_role(server)

    # --- replication ---

    def fetch(self) -> None:
        self._fetch(self._any())

    def _fetch(self, server: Server) -> None:
        if not server.up or server.leader.leads or server.leader.leader_id == NOBODY:
            return
        if server.stored < len(server.entries):
            if self.sync and self.random.random() < 0.5:
                return
            self._store(server)
        # Not registered yet, as far as it knows: an early bird, which must not count.
        epoch = -1 if self.random.random() < self.early and not self.calm else server.broker_epoch
        asked = (server.id, epoch, server.leader.epoch, server.stored, server.last_epoch)
        leader = self.servers[server.leader.leader_id]
        self._send(lambda: self.on_fetch(leader, *asked))

    def on_fetch(
        self, server: Server, replica: int, broker_epoch: int, leader_epoch: int, offset: int, last_epoch: int
    ) -> None:
        leader = server.leader
        if not server.up or not isinstance(leader, Leader):
            return
        try:
            leader.check_epoch(leader_epoch)
            diverging = self.divergence(server, last_epoch, offset)
            if diverging is None or self.counts_diverging:
                self._advance(server, leader.on_fetch(replica, broker_epoch, offset, len(server.entries), self.now_ms))
        except ProtocolError:
            return
        size = 100 if self.calm else self.random.randrange(1, 6)
        entries = server.entries[offset : offset + size] if diverging is None else []
        high_watermark = server.high_watermark
        follower = self.servers[replica]
        self._send(
            lambda: self.on_fetched(follower, leader_epoch, offset, last_epoch, diverging, entries, high_watermark)
        )

    @staticmethod
    def divergence(server: Server, last_epoch: int, offset: int) -> tuple[int, int] | None:
        """The last epoch in which both logs may agree, and where that ends at the leader; None if all agrees."""
        if last_epoch < 0:
            return None
        epoch, end = server.end_of_epoch(last_epoch)
        return (epoch, end) if epoch < last_epoch or end < offset else None

    def on_fetched(
        self,
        server: Server,
        leader_epoch: int,
        offset: int,
        last_epoch: int,
        diverging: tuple[int, int] | None,
        entries: list[Entry],
        high_watermark: int,
    ) -> None:
        unchanged = (server.stored, server.last_epoch) == (offset, last_epoch) and len(server.entries) == offset
        if not server.up or server.leader.leads or server.leader.epoch != leader_epoch or not unchanged:
            return
        if diverging is not None:
            epoch, end = diverging
            del server.entries[min(end, server.end_of_epoch(epoch)[1]) :]
            server.stored = len(server.entries)
            server.high_watermark = min(server.high_watermark, len(server.entries))
            return
        server.entries += entries
        if not self.sync:
            server.stored = len(server.entries)
        self._advance(server, min(high_watermark, len(server.entries)))

    # --- proposals ---

    def propose(self) -> None:
        self._propose(self._any())

    def _propose(self, server: Server) -> None:
        """Asks; and again if it got no answer yet, although the first request may still be under way."""
        leader = server.leader
        proposal = leader.proposal
        if not server.up or not isinstance(leader, Leader) or proposal is None or proposal.settled:
            return
        if server.asked is not None:
            leader.on_alter_failed(proposal, ErrorCode.REQUEST_TIMED_OUT)
        asked = server.asked = object()
        epoch = server.broker_epoch
        self._send(lambda: self._on_alter(server, epoch, proposal, asked))

    def _on_alter(self, server: Server, broker_epoch: int, proposal: Proposal, asked: object) -> None:
        answer = self.controller.alter(server.id, broker_epoch, proposal)
        self._send(lambda: self._on_answer(server, proposal, answer, asked))

    def _on_answer(self, server: Server, proposal: Proposal, answer: State | ErrorCode, asked: object) -> None:
        leader = server.leader
        if not server.up or server.asked is not asked:
            return
        server.asked = None
        if isinstance(answer, State):
            self._advance(server, leader.on_altered(proposal, answer.leader_epoch, answer.partition_epoch, answer.isr))
        else:
            self._advance(server, leader.on_alter_failed(proposal, answer))

    # --- laws ---

    def check(self) -> None:
        for server in self.servers.values():
            if server.up and isinstance(server.leader, Leader):
                self._check_leader(server, server.leader)
        now = self.controller.now
        for replica in {*now.isr, *now.elr}:
            server = self.servers[replica]
            if not server.lossy and server.entries[: len(self.committed)] != self.committed:
                raise Broken(f"{replica} could be elected ({now}), but lacks some of {len(self.committed)} committed")

    def _check_leader(self, server: Server, leader: Leader) -> None:
        high_watermark, committed = server.high_watermark, self.committed
        if high_watermark > len(server.entries):
            raise Broken(f"the watermark of {server.id} is above its end")
        if high_watermark > len(committed):
            if server.entries[: len(committed)] != committed:
                raise Broken(f"{server.id} commits over what was committed")
            committed += server.entries[len(committed) : high_watermark]
        elif server.entries[:high_watermark] != committed[:high_watermark]:
            raise Broken(f"{server.id} shows something else than what was committed")
        if leader._advance() > high_watermark:
            raise Broken(f"{server.id} waits with what is committed")
        now = self.controller.now
        if leader.epoch == now.leader_epoch and len(now.isr) >= self.min_in_sync:
            missing = {*now.isr, *now.elr} - set(leader.maximal)
            if missing:
                raise Broken(f"{server.id} commits without {missing}")


def storm(seed: int, steps: int = 400) -> World:
    world = World(seed)
    world.run(steps)
    world.settle()
    return world
