"""What leaders have in memory of share-partitions, looked at now and then.

| law | meaning |
|---|---|
| delivery-counts | a record that is leased has a count that is not one more than before |
| lock-times | a lease lasts longer than its time |
| share-bounds | more is leased than the group may have, or more sessions are open |
| old-epochs | a share-partition outlives the leader epoch that it was loaded in |
| share-sessions | a session outlives its connection, or a lease its session |
| sleeping-fetch | a fetch waits though there is something for it |
| share-state | a leader takes something for stored that is not |
"""

from __future__ import annotations

from skidway.broker.node import Node
from skidway.broker.shares.share_partition import SharePartition
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.delivery import Delivery
from skidway.shares.states import AVAILABLE
from skidway.sim.laws.shares import ShareLaws
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import MS, Violation, World
from skidway.sim.world.host import Host

SLEEP_US = 180 * MS
LATE_MS = 50


class ShareLeaderLaws:
    def __init__(self, world: World, cluster: Cluster, laws: ShareLaws) -> None:
        self.world = world
        self.cluster = cluster
        self.laws = laws
        self._made: dict[SharePartition, int] = {}
        self._counts: dict[SharePartition, dict[int, int]] = {}
        self._doubts: dict[object, int] = {}
        """What was not right when it was looked at last, and since when."""

    # --- counts ---

    def on_step(self, node: Node) -> None:
        for shares in node.rooms.services.share_fetches.partitions.groups.values():
            for share in shares.values():
                delivery = share.delivery
                if delivery is not None and delivery.leases.made != self._made.get(share):
                    times = delivery.leases.made - self._made.get(share, 0)
                    self._made[share] = delivery.leases.made
                    self._note_counts(share, delivery, times)

    def _note_counts(self, share: SharePartition, delivery: Delivery, times: int) -> None:
        """So many leases were made since the last look, perhaps one after the other of the same offset."""
        key = _key(share)
        told, stored = self.laws.of(key), self.laws.states.stored.get(key)
        mine = self._counts.setdefault(share, {})
        for lease in delivery.leases:
            for offset in range(lease.first, lease.end):
                before = mine.get(offset)
                if before is None:
                    before = 0 if stored is None else stored.count_of(offset)
                if not before <= lease.count <= before + times:
                    raise Violation("delivery-counts", f"{key}: {offset} had {before} deliveries, now {lease.count}")
                mine[offset] = lease.count
                if lease.count > told.counts.get(offset, 0):
                    told.counts[offset] = lease.count

    # --- now and then ---

    def sweep(self) -> None:
        doubts: dict[object, tuple[str, str]] = {}
        for host, node in self.cluster.running:
            if host.paused:
                continue
            self._look_at_sessions(host, node, doubts)
            for shares in node.rooms.services.share_fetches.partitions.groups.values():
                for share in shares.values():
                    if share.delivery is not None and not share.closed:
                        self._look_at(host, share, share.delivery, doubts)
        now_us = self.world.now_us
        self._doubts = {doubt: self._doubts.get(doubt, now_us) for doubt in doubts}
        for doubt, since_us in self._doubts.items():
            if now_us - since_us >= SLEEP_US:
                raise Violation(*doubts[doubt])

    def _look_at_sessions(self, host: Host, node: Node, doubts: dict[object, tuple[str, str]]) -> None:
        fetches = node.rooms.services.share_fetches
        if len(fetches.sessions.open) > fetches.sessions_max:
            raise Violation("share-bounds", f"{host.name}: {len(fetches.sessions.open)} share sessions")
        for session in fetches.sessions.open.values():
            if getattr(session.connection, "gone", False):
                doubts[session] = ("share-sessions", f"{host.name}: {session.key} goes on without its connection")

    def _look_at(
        self, host: Host, share: SharePartition, delivery: Delivery, doubts: dict[object, tuple[str, str]]
    ) -> None:
        who, key, partition = f"{host.name} {_key(share)}", _key(share), share.partition
        if not partition.leads or share.leader_epoch != partition.role.leader_epoch:
            doubts[share, "epoch"] = ("old-epochs", f"{who} was loaded in leader epoch {share.leader_epoch}")
            return
        held = delivery.leases.offsets + delivery.settling_offsets
        if held > delivery.rules.leases_max:
            raise Violation("share-bounds", f"{who}: {held} offsets are leased")
        if delivery.start_offset < partition.log.start_offset:
            doubts[share, "start"] = ("share-start", f"{who} begins at {delivery.start_offset}, below its log")
        now_ms = host.clock.monotonic_ms()
        sessions = host.node.rooms.services.share_fetches.sessions.open if host.node is not None else {}
        for lease in delivery.leases:
            if lease.deadline_ms < now_ms - LATE_MS:
                doubts[lease, "late"] = ("lock-times", f"{who}: {lease} is there at {now_ms}")
            # A lease that another leader has stored may belong to who has no session here.
            if (key.group_id, lease.owner) not in sessions and not delivery.rules.keeps_leases:
                doubts[lease, "owner"] = ("share-sessions", f"{who}: {lease} is there, and no session of its owner")
        self._check_durable(who, key, share, delivery)
        bound = partition.log.bound(share.rules.upto)
        delivery.contents.refresh(delivery)
        at = delivery.live.find(AVAILABLE, delivery.start_offset, max(delivery.start_offset, bound))
        if at < bound and held < delivery.rules.leases_max:
            for waiter in share.waiters:
                doubts[waiter, share] = ("sleeping-fetch", f"{who}: a fetch waits though {at} is available")

    def _check_durable(self, who: str, key: ShareKey, share: SharePartition, delivery: Delivery) -> None:
        stored, durable = self.laws.states.stored.get(key), delivery.durable
        if stored is None or stored.state_epoch != durable.state_epoch or stored.leader_epoch != share.leader_epoch:
            return
        if durable.start_offset > stored.start:
            raise Violation("share-state", f"{who} begins at {durable.start_offset}, stored is {stored.start}")
        for batch in durable.batches():
            for offset in range(max(batch.first, stored.start), batch.end):
                if (batch.count, batch.state) > stored.cells.get(offset, (0, 0)):
                    raise Violation(
                        "share-state", f"{who} takes {batch} for stored; at {offset} is {stored.cells.get(offset)}"
                    )


def _key(share: SharePartition) -> ShareKey:
    return ShareKey(share.key.group_id, share.key.topic_id, share.key.partition)
