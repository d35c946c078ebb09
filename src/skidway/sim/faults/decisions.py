"""Faults that come when a transaction ends.

- `decided`: how it ends is decided, and its markers are on their way. They befall its coordinator, or the leader of one
  of its partitions: between the decision, the markers and the end.
- `asked`: its producer asks for the commit. They befall the coordinator about when it hears of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from skidway.broker.coordinators.transactions import TRANSACTIONS_TOPIC
from skidway.groups.placement import partition_of
from skidway.sim.plan import Fault
from skidway.sim.transactional_plan import STATE_PARTITIONS
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import MS, World
from skidway.sim.world.host import Host
from skidway.transactions.transaction import Place, Transaction

Strike = Callable[[Fault, Host, Random], None]

WAITS = [0, 0, 1, 5, 30]
"""Milliseconds, or times the latency of the network if that is longer."""


class Decisions:
    def __init__(self, world: World, cluster: Cluster, strikes: Sequence[Strike]) -> None:
        """The first two strikes take a machine away."""
        self.world = world
        self.cluster = cluster
        self.over = False
        self._strikes = strikes
        self._waiting: list[tuple[Fault, Random]] = []
        self._until_asked: list[tuple[Fault, Random]] = []

    @property
    def kinds(self) -> dict[str, Strike]:
        return {"decided": self.wait, "asked": self.wait_until_asked}

    def wait(self, fault: Fault, host: Host, random: Random) -> None:
        self._waiting.append((fault, random))

    def wait_until_asked(self, fault: Fault, host: Host, random: Random) -> None:
        self._until_asked.append((fault, random))

    def on_asked(self, transactional_id: str) -> None:
        if not self._until_asked or self.over:
            return
        fault, random = self._until_asked.pop()
        place = (TRANSACTIONS_TOPIC, partition_of(transactional_id, STATE_PARTITIONS))
        wait_us = int(self.cluster.network.latency_us * (0.3 + 3 * random.random()))
        self._strike_leader(fault, random, place, random.choice(self._strikes[:2]), wait_us, transactional_id)

    def on_decided(self, transaction: Transaction) -> None:
        if not self._waiting or self.over or not transaction.places:
            return
        fault, random = self._waiting.pop()
        places = [(TRANSACTIONS_TOPIC, partition_of(transaction.id, STATE_PARTITIONS)), *sorted(transaction.places)]
        place = places[0] if random.random() < 0.5 else random.choice(places[1:])
        strike = random.choice(self._strikes)
        wait_ms = random.choice(WAITS) * (1 + self.cluster.network.latency_us // MS)
        self._strike_leader(fault, random, place, strike, wait_ms * MS, transaction.id)

    def _strike_leader(
        self, fault: Fault, random: Random, place: Place, strike: Strike, wait_us: int, transactional_id: str
    ) -> None:
        def due() -> None:
            host = self.cluster.leader_host(*place)
            if host is not None and not self.over:
                self.world.mark("struck at the end of a transaction")
                self.world.say("!", f"{strike.__name__} {host.name}, which leads {place}, as {transactional_id} ends")
                strike(fault, host, random)

        self.world.after(wait_us, due)
