"""The law `unanswered`: what a producer adds while its last transaction is ending waits for a moment, not longer, and
is answered once, whatever happens meanwhile. At the end nobody waits."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from skidway.broker.coordinators.next_transactions import NextTransactions, Respond
from skidway.errors import ProtocolError
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import Violation
from skidway.sim.world.host import Host
from skidway.transactions.operations import AddPartitions

SLACK_MS = 500
"""A node may have been paused, and hears of the time when it goes on."""


class Watched:
    """Between a node and those of its transactions that wait."""

    def __init__(self, who: str, inner: NextTransactions) -> None:
        self._who = who
        self.inner = inner
        self.asked: dict[int, AddPartitions] = {}
        """What is not answered yet."""
        self._numbers = 0
        self.on_ended = inner.on_ended

    def __len__(self) -> int:
        return len(self.inner)

    def add(self, operation: AddPartitions, now_ms: int, respond: Respond) -> None:
        self._numbers += 1
        number = self._numbers
        self.asked[number] = operation

        def answered(reply: ProtocolError | None) -> None:
            if self.asked.pop(number, None) is None:
                raise Violation("unanswered", f"{self._who} answers twice: {operation}")
            respond(reply)

        self.inner.add(operation, now_ms, answered)

    def overdue(self, now_ms: int) -> list[AddPartitions]:
        waiting = [each for some in self.inner._waiting.values() for each in some]
        return [each.operation for each in waiting if each.until_ms + SLACK_MS < now_ms]


class NextTransactionLaws:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._watched: dict[str, Watched] = {}

    def on_start(self, host: Host) -> None:
        assert host.node is not None
        coordinators = host.node.rooms.services.transactions
        watched = self._watched[host.name] = Watched(host.name, coordinators.next)
        coordinators.next = cast(NextTransactions, watched)

    def sweep(self) -> None:
        self._check(lambda host, watched: watched.overdue(host.clock.monotonic_ms()), "waits for too long")

    def check_end(self) -> None:
        self._check(lambda host, watched: list(watched.asked.values()), "was never answered")

    def _check(self, find: Callable[[Host, Watched], list[AddPartitions]], what: str) -> None:
        for host, _ in self.cluster.running:
            watched = self._watched.get(host.name)
            if watched is not None and not host.paused and (found := find(host, watched)):
                raise Violation("unanswered", f"{host.name}: {found[0]} {what}")
