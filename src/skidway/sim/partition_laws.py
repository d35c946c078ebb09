"""The laws of replicated partitions, over all their copies at once.

| law | meaning |
|---|---|
| leaders | one leader for each epoch of a partition |
| epochs | what a node is told of a partition never goes back |
| leader-completeness | the newest leader has everything that was acknowledged or read |
| candidates | so has everybody who may be elected: the in-sync and the eligible |
| in-sync | a leader is in sync with itself, and counts on everybody the controller may elect |
| membership | in-sync and eligible replicas are replicas, apart from each other; no fenced broker is in sync |
| copies | below the watermark all copies have the same bytes |
| bounds | start <= watermark <= end |
"""

from __future__ import annotations

from skidway.broker.node import Node
from skidway.broker.partition import Partition
from skidway.metadata.image import Image, Topic
from skidway.metadata.image import Partition as Described
from skidway.replica.leader import Leader
from skidway.sim.cluster import Cluster
from skidway.sim.history import History
from skidway.sim.host import Host
from skidway.sim.log_checks import batches_of
from skidway.sim.world import Violation


class PartitionLaws:
    def __init__(self, cluster: Cluster, history: History) -> None:
        self.cluster = cluster
        self.history = history
        self._leaders: dict[tuple[bytes, int, int], str] = {}
        self._epochs: dict[tuple[str, int, bytes, int], tuple[int, int]] = {}
        self._checked_offset = -1

    def sweep(self) -> None:
        newest: Node | None = None
        for host, node in self.cluster.running:
            for partition in node.partitions:
                self._check_role(host, partition)
                if partition.leads:
                    self._check_leader(host, partition)
            if newest is None or node.quorum.published_offset > newest.quorum.published_offset:
                newest = node
        if newest is not None and newest.quorum.published_offset >= self._checked_offset:
            # Not when all who know better are down: then nobody can say who may be elected.
            self._check_image(newest.image, newest.quorum.published_offset)

    # --- one copy ---

    def _check_role(self, host: Host, partition: Partition) -> None:
        log, role = partition.log, partition.role
        if not log.quarantined and not log.start_offset <= log.high_watermark <= log.end_offset:
            raise Violation(
                "bounds", f"{host.name} {partition}: {log.start_offset}, {log.high_watermark}, {log.end_offset}"
            )
        key = (host.name, host.life, partition.topic_id, partition.index)
        now = (role.leader_epoch, role.partition_epoch)
        before = self._epochs.get(key, now)
        if now[0] < before[0] or now[1] < before[1]:
            raise Violation("epochs", f"{host.name} {partition}: epochs went from {before} to {now}")
        self._epochs[key] = now

    def _check_leader(self, host: Host, partition: Partition) -> None:
        leader = partition.leader
        epoch_key = (partition.topic_id, partition.index, leader.epoch)
        first = self._leaders.setdefault(epoch_key, host.name)
        if first != host.name:
            raise Violation("leaders", f"{partition} epoch {leader.epoch} is led by {first} and by {host.name}")
        if host.settings.node_id not in leader.in_sync:
            raise Violation("in-sync", f"{host.name} leads {partition} and is not in sync: {leader.in_sync}")

    # --- the newest metadata ---

    def _check_image(self, image: Image, offset: int) -> None:
        changed, self._checked_offset = offset != self._checked_offset, offset
        for topic in image.topics.values():
            for described in topic.partitions:
                if changed:
                    self._check_membership(image, topic, described)
                self._check_candidates(topic, described)

    def _check_membership(self, image: Image, topic: Topic, described: Described) -> None:
        name = f"{topic.name}-{described.index}"
        in_sync, eligible = described.isr, described.eligible_leader_replicas
        if not set(in_sync) <= set(described.replicas) or not set(eligible) <= set(described.replicas):
            raise Violation("membership", f"{name}: {in_sync} and {eligible} are not all of {described.replicas}")
        if set(in_sync) & set(eligible) or len(set(in_sync)) != len(in_sync):
            raise Violation("membership", f"{name}: in sync {in_sync}, eligible {eligible}")
        if described.leader >= 0 and described.leader not in in_sync:
            raise Violation("membership", f"{name}: its leader {described.leader} is not in sync: {in_sync}")
        fenced = [broker for broker in in_sync if broker in image.brokers and image.brokers[broker].fenced]
        if fenced and len(in_sync) > 1:
            raise Violation("membership", f"{name}: {fenced} are fenced and in sync: {in_sync}")

    def _check_candidates(self, topic: Topic, described: Described) -> None:
        seen = self.history.seen.get((topic.id, described.index))
        if seen is None:
            return
        needed = seen.end_offset
        for node_id in [*described.isr, *described.eligible_leader_replicas]:
            host = self.cluster.hosts.get(node_id)
            if host is None or host.node is None or host.paused:
                continue
            partition = host.node.partitions.get(topic.id, described.index)
            if partition is None or partition.log.quarantined or partition.log.failure is not None:
                continue
            self._check_complete(host, partition, described, needed)

    def _check_complete(self, host: Host, partition: Partition, described: Described, needed: int) -> None:
        log = partition.log
        stored = log.synced_offset if partition.flush_sync else log.end_offset
        leads = described.leader == host.settings.node_id
        if leads and log.end_offset < needed:
            raise Violation(
                "leader-completeness",
                f"{host.name} leads {partition} in epoch {described.leader_epoch} and ends at {log.end_offset}; "
                f"clients were promised everything below {needed}",
            )
        if stored < needed:
            raise Violation(
                "candidates",
                f"{host.name} may be elected for {partition} (in sync {described.isr}, eligible "
                f"{described.eligible_leader_replicas}) and has {stored}; clients were promised {needed}",
            )
        if leads and partition.leads and isinstance(partition.leader, Leader):
            self._check_maximal(host, partition, partition.leader, described)

    def _check_maximal(self, host: Host, partition: Partition, leader: Leader, described: Described) -> None:
        if leader.epoch != described.leader_epoch or len(described.isr) < partition.min_in_sync:
            return
        missing = set(described.isr) - set(leader.maximal)
        if missing:
            raise Violation(
                "in-sync",
                f"{host.name} leads {partition} and does not count on {sorted(missing)}, whom the controller may elect",
            )

    # --- the end ---

    def check_copies(self) -> None:
        """Byte for byte the same below the lowest watermark."""
        names = {(p.topic, p.index) for _, node in self.cluster.running for p in node.partitions}
        for topic, index in sorted(names):
            copies = [(host, p.log) for host, p in self.cluster.copies(topic, index) if not p.log.quarantined]
            if len(copies) < 2:
                continue
            start = max(log.start_offset for _, log in copies)
            end = min(log.high_watermark for _, log in copies)
            if any(log.settings.compact for _, log in copies):
                continue
            first = [data for _, data in batches_of(copies[0][1], start, end)]
            for host, log in copies[1:]:
                if [data for _, data in batches_of(log, start, end)] != first:
                    raise Violation("copies", f"{topic}-{index} differs on {copies[0][0].name} and {host.name}")
