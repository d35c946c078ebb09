"""What this node fetches from others: one fetcher for each node that leads partitions this one follows.

A partition is with one fetcher at most. It joins it when it begins to follow, changes it with its leader, and leaves
when it leads, is removed or cannot be written to.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from skidway.metadata.image import NO_LEADER
from skidway.replica.fetcher import Fetcher, Replica
from skidway.runtime.timers import Timer
from skidway.wire.message import Message

if TYPE_CHECKING:
    from skidway.broker.node import Node
    from skidway.broker.partition import Partition

CHANNEL = "replica-0"
TIMEOUT_MS = 5000
"""Of a fetch, the time it may wait at the leader included."""


class Followers:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._fetchers: dict[int, Fetcher] = {}
        """By the node they fetch from."""
        self._timers: dict[Fetcher, Timer] = {}
        self._with: dict[Partition, Fetcher] = {}
        self._stopped = False

    def __len__(self) -> int:
        """How many partitions are fetched."""
        return len(self._with)

    def on_role_changed(self, partition: Partition) -> None:
        self.on_removed(partition)
        leader = partition.role.leader
        if leader in (NO_LEADER, self._node.settings.node_id) or self._stopped:
            return
        log = partition.log
        if log.quarantined and partition.counted_on:
            # To begin anew now would make an empty log electable. The controller is asked to do without it first.
            return
        if log.failure is not None and not log.quarantined:
            return
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            node = self._node
            fetcher = self._fetchers[leader] = Fetcher(node.settings.node_id, leader, node.on_trouble)
            fetcher.on_damaged = self._on_damaged
        fetcher.follow(partition)
        self._with[partition] = fetcher
        # Not at once: more of them come with the same change, and all go into one request.
        self._arm(fetcher, self._node.clock.monotonic_ms())

    def on_removed(self, partition: Partition) -> None:
        fetcher = self._with.pop(partition, None)
        if fetcher is None:
            return
        fetcher.leave(partition)
        if not len(fetcher) and not fetcher.under_way:
            self._drop(fetcher)

    def on_stored(self, partition: Partition) -> None:
        """Something of it was synced."""
        fetcher = self._with.get(partition)
        if fetcher is not None:
            fetcher.on_stored(partition)
            self._pump(fetcher)

    def stop(self) -> None:
        """Fetch nothing more."""
        self._stopped = True
        for partition in list(self._with):
            self.on_removed(partition)

    def _on_damaged(self, replica: Replica) -> None:
        """As if it had been found so at the start: nobody may count on it before it begins anew."""
        for partition in [partition for partition in self._with if partition is replica]:
            self._node.on_role_changed(partition)

    def _pump(self, fetcher: Fetcher) -> None:
        node = self._node
        now_ms = node.clock.monotonic_ms()
        request = fetcher.next_request(node.broker_epoch, now_ms)
        if request is not None:
            respond = partial(self._on_response, fetcher)
            node.peers.ask(fetcher.leader_id, CHANNEL, request, now_ms, TIMEOUT_MS, respond)
        elif (deadline_ms := fetcher.deadline_ms) is not None:
            self._arm(fetcher, deadline_ms)

    def _on_response(self, fetcher: Fetcher, response: Message | None) -> None:
        clock = self._node.clock
        fetcher.on_response(response, clock.monotonic_ms(), clock.wall_ms())
        if len(fetcher):
            self._pump(fetcher)
        else:
            self._drop(fetcher)

    def _arm(self, fetcher: Fetcher, deadline_ms: int) -> None:
        """A look too early does no harm, so a timer only moves down."""
        timer = self._timers.get(fetcher)
        if timer is not None and timer.armed:
            if timer.deadline_ms <= deadline_ms:
                return
            timer.cancel()
        self._timers[fetcher] = self._node.timers.at(deadline_ms, partial(self._pump, fetcher))

    def _drop(self, fetcher: Fetcher) -> None:
        if self._fetchers.get(fetcher.leader_id) is fetcher:
            del self._fetchers[fetcher.leader_id]
        timer = self._timers.pop(fetcher, None)
        if timer is not None:
            timer.cancel()
