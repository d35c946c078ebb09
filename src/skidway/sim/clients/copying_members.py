"""Members of a group that copy what they read exactly once (KIP-447), each with a transactional id of its own.

What a member has read it writes, together with its offsets, in a transaction of its producer, which names the member
and its epoch. A member that leaves does not wait for its producer: whoever gets its partitions next has to wait until
nothing of them is pending, and what the former member still commits is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from skidway.sim.clients.members import RETRY_MS, Member
from skidway.sim.clients.outcomes import Outcome
from skidway.sim.clients.readers import Partition
from skidway.sim.clients.scripts import Script
from skidway.sim.clients.transactional import TransactionalProducer
from skidway.sim.clients.transactional_offsets import MemberOf, send_offsets
from skidway.sim.laws.history import History
from skidway.sim.laws.transactions import Fate, Written
from skidway.sim.world.events import World
from skidway.sim.world.network import Address, Network
from skidway.wire.schema.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

RECORDS_MAX = 5
"""Of a partition, in one transaction."""
LEAVES_CHANCE = 0.4
"""With every heartbeat, while its producer is at work."""
LEAVES = -1
"""As an epoch."""


@dataclass(slots=True)
class Job:
    """What goes into one transaction."""

    group: str
    member: MemberOf
    values: list[bytes]
    offsets: dict[Partition, int]
    done: Callable[[bool], None]
    """Told whether it is committed for certain."""


class JobProducer(TransactionalProducer):
    """Makes a transaction of each job that it is given."""

    job: Job | None = None
    _written: Written | None = None

    @property
    def has_work(self) -> bool:
        return self.job is not None

    def _transaction(self) -> Script[Outcome]:
        job = self.job
        assert job is not None
        outcome = yield from super()._transaction()
        written, self.job = self._written, None
        job.done(written is not None and written.fate is Fate.COMMITTED)
        return outcome

    def work(self, written: Written) -> Script[Outcome]:
        job, self._written = self.job, written
        assert job is not None
        topic, count = next(iter(self.plan.topics.items()))
        place = (topic, self.random.randrange(count))
        outcome = yield from self.write(written, {place: [self.numbered(value) for value in job.values]})
        if outcome is not Outcome.FINE:
            return outcome
        return (yield from send_offsets(self, job.group, job.offsets, job.member))


@dataclass(slots=True)
class _Read:
    """What a member has read of a partition and not committed."""

    start: int
    values: dict[int, bytes] = field(default_factory=dict)


class _Silent:
    """Laws about plain commits do not fit: these count when the transaction's markers are there."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *arguments: None


class CopyingMember(Member):
    def __init__(
        self,
        world: World,
        network: Network,
        place: str,
        seeds: list[Address],
        group: str,
        topics: dict[str, int],
        history: History,
        producer: JobProducer,
    ) -> None:
        laws: Any = _Silent()
        super().__init__(world, network, place, seeds, group, topics, history, laws)
        self.producer = producer
        self._history = history
        self._unwritten: dict[Partition, _Read] = {}
        self.on_read = self._on_read

    # --- what it reads ---

    def _on_read(self, topic: str, index: int, offset: int) -> None:
        unwritten = self._unwritten[topic, index]
        seen = self._history.of(topic, self.known[topic].topic_id, index).values
        first = max(unwritten.values, default=unwritten.start - 1) + 1
        unwritten.values.update({at: seen[at] for at in range(first, offset) if at in seen})

    def _on_offsets(self, asked: tuple[int, int, int], added: list[Partition], reply: Any) -> None:
        super()._on_offsets(asked, added, reply)
        for key in added:
            if key in self.owned and key not in self._unwritten:
                self._unwritten[key] = _Read(self.positions[key].offset)

    def _revoke(self, revoked: list[Partition]) -> None:
        for key in revoked:
            self._unwritten.pop(key, None)
        super()._revoke(revoked)

    def _rejoin(self, why: str) -> None:
        self._unwritten = {}
        super()._rejoin(why)

    def _on_beat(self, epoch: int, reply: ConsumerGroupHeartbeatResponse | None) -> None:
        super()._on_beat(epoch, reply)
        at_work = self.epoch > 0 and self.coordinator >= 0 and self.producer.job is not None
        if at_work and self.random.random() < LEAVES_CHANCE:
            request = ConsumerGroupHeartbeatRequest(group_id=self.group, member_id=self.member_id, member_epoch=LEAVES)
            self.ask(self.coordinator, request, lambda reply: None, 2_000)
            self.world.mark("copying member left")
            self._rejoin("leaves")
            self.member_id = f"{self.place}-{self.random.randrange(1 << 30)}"

    # --- what it commits ---

    def _commit(self, partitions: list[Partition], then: Callable[[], None]) -> None:
        self._committing = True
        life = self._life
        if self.producer.job is not None:
            self.after(RETRY_MS, lambda: self._commit(partitions, then) if life == self._life else None)
            return
        offsets: dict[Partition, int] = {}
        values: list[bytes] = []
        for key in partitions:
            unwritten = self._unwritten.get(key)
            if unwritten is not None and unwritten.values:
                chosen = sorted(unwritten.values)[:RECORDS_MAX]
                offsets[key] = chosen[-1] + 1
                values += [unwritten.values[at] for at in chosen]
        if not offsets:
            self._committing = False
            self.after(0, then)
            return

        def done(committed: bool) -> None:
            if life != self._life or self.stopped:
                return
            self._committing = False
            if not committed:
                self._rejoin("a transaction failed")
                return
            for key, offset in offsets.items():
                unwritten = self._unwritten.get(key)
                if unwritten is not None:
                    unwritten.start = offset
                    unwritten.values = {at: each for at, each in unwritten.values.items() if at >= offset}
            then()

        member = MemberOf(self.member_id, self.epoch)
        self.producer.job = Job(self.group, member, values, offsets, done)
