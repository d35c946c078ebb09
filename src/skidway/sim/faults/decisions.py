"""Faults that come when the end of a transaction has been decided and its markers are on their way.

They befall its coordinator, or the leader of one of its partitions: between the decision, the markers and the end.
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
from skidway.transactions.transaction import Transaction

WAITS = [0, 0, 1, 5, 30]
"""Milliseconds, or times the latency of the network if that is longer."""


class Decisions:
    def __init__(
        self, world: World, cluster: Cluster, strikes: Sequence[Callable[[Fault, Host, Random], None]]
    ) -> None:
        self.world = world
        self.cluster = cluster
        self.over = False
        self._strikes = strikes
        self._waiting: list[tuple[Fault, Random]] = []

    def wait(self, fault: Fault, host: Host, random: Random) -> None:
        self._waiting.append((fault, random))

    def on_decided(self, transaction: Transaction) -> None:
        if not self._waiting or self.over or not transaction.places:
            return
        fault, random = self._waiting.pop()
        places = [(TRANSACTIONS_TOPIC, partition_of(transaction.id, STATE_PARTITIONS)), *sorted(transaction.places)]
        place = places[0] if random.random() < 0.5 else random.choice(places[1:])
        strike = random.choice(self._strikes)

        def due() -> None:
            host = self.cluster.leader_host(*place)
            if host is not None and not self.over:
                self.world.mark("struck at the end of a transaction")
                self.world.say("!", f"{strike.__name__} {host.name}, which leads {place}, as {transaction.id} ends")
                strike(fault, host, random)

        wait_ms = random.choice(WAITS) * (1 + self.cluster.network.latency_us // MS)
        self.world.after(wait_ms * MS, due)
