"""What this node fetches from others: one fetcher for each node that leads partitions this one follows.

A partition is with one fetcher at most. It joins it when it begins to follow, changes it with its leader, and leaves
when it leads, is removed or cannot be written to.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from skidway.broker.cluster.peers import Peers
from skidway.broker.partitions.partition import Partition
from skidway.broker.world import World
from skidway.log.health import ReadOnly
from skidway.metadata.image import NO_LEADER
from skidway.replica.fetcher import Fetcher, Replica
from skidway.runtime.timers import Timer
from skidway.runtime.turn import TurnNotes
from skidway.wire.message import Message

CHANNEL = "replica-0"
TIMEOUT_MS = 5000
"""Of a fetch, the time it may wait at the leader included."""


class Fetchers:
    def __init__(
        self,
        world: World,
        turn: TurnNotes[Partition],
        peers: Peers,
        broker_epoch: Callable[[], int],
        on_damaged: Callable[[Partition], None],
        save_starts: Callable[[], None],
    ) -> None:
        """`on_damaged`: a copy was found damaged, as if it had been so at the start. `save_starts` has the files
        written that say where logs begin."""
        self._world = world
        self._turn = turn
        self._peers = peers
        self._broker_epoch = broker_epoch
        self._on_damaged_copy = on_damaged
        self._save_all_starts = save_starts
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
        if leader in (NO_LEADER, self._world.settings.node_id) or self._stopped:
            return
        log = partition.log
        if log.quarantined and partition.counted_on:
            # To begin anew now would make an empty log electable. The controller is asked to do without it first.
            return
        if isinstance(log.health, ReadOnly):
            return
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            world = self._world
            fetcher = self._fetchers[leader] = Fetcher(world.settings.node_id, leader, world.report)
            fetcher.on_damaged = self._on_damaged
        fetcher.follow(partition)
        self._with[partition] = fetcher
        # Not at once: more of them come with the same change, and all go into one request.
        self._arm(fetcher, self._world.clock.monotonic_ms())

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

    def on_starts_saved(self) -> None:
        """The files that say where logs begin were written."""
        for fetcher in list(self._fetchers.values()):
            if fetcher.waits_for_save:
                self._pump(fetcher)

    def stop(self) -> None:
        """Fetch nothing more."""
        self._stopped = True
        for partition in list(self._with):
            self.on_removed(partition)

    def _on_damaged(self, replica: Replica) -> None:
        """As if it had been found so at the start: nobody may count on it before it begins anew."""
        for partition in [partition for partition in self._with if partition is replica]:
            self._on_damaged_copy(partition)

    def _pump(self, fetcher: Fetcher) -> None:
        now_ms = self._world.clock.monotonic_ms()
        request = fetcher.next_request(self._broker_epoch(), now_ms)
        if request is not None:
            respond = partial(self._on_response, fetcher)
            self._peers.ask(fetcher.leader_id, CHANNEL, request, now_ms, TIMEOUT_MS, respond)
        elif (deadline_ms := fetcher.deadline_ms) is not None:
            self._arm(fetcher, deadline_ms)

    def _on_response(self, fetcher: Fetcher, response: Message | None) -> None:
        clock = self._world.clock
        fetcher.on_response(response, clock.monotonic_ms(), clock.wall_ms())
        self._save_starts(fetcher)
        if len(fetcher):
            self._pump(fetcher)
        else:
            self._drop(fetcher)

    def _save_starts(self, fetcher: Fetcher) -> None:
        moved = {id(replica) for replica in fetcher.take_moved()}
        if not moved:
            return
        for partition in [partition for partition in self._with if id(partition) in moved]:
            if partition.log.dirty:
                self._turn.wants_sync(partition)
        self._save_all_starts()
        self._world.on_work()

    def _arm(self, fetcher: Fetcher, deadline_ms: int) -> None:
        """A look too early does no harm, so a timer only moves down."""
        timer = self._timers.get(fetcher)
        if timer is not None and timer.armed:
            if timer.deadline_ms <= deadline_ms:
                return
            timer.cancel()
        self._timers[fetcher] = self._world.timers.at(deadline_ms, partial(self._pump, fetcher))

    def _drop(self, fetcher: Fetcher) -> None:
        if self._fetchers.get(fetcher.leader_id) is fetcher:
            del self._fetchers[fetcher.leader_id]
        timer = self._timers.pop(fetcher, None)
        if timer is not None:
            timer.cancel()
