"""The laws of replicated partitions, over all their copies at once.

| law | meaning |
|---|---|
| leaders | one leader for each epoch of a partition |
| epochs | what a node is told of a partition never goes back, and what a leader writes is of its epoch |
| leader-completeness | the newest leader has everything that was acknowledged, read or called committed |
| candidates | so has everybody who may be elected (in sync or eligible), or is about to be taken in by the leader |
| in-sync | a leader is in sync with itself, and waits for everybody the controller may elect |
| fencing | a leader counts on nobody who has not heard of its epoch |
| moves | a move ends when every replica that is to stay is in sync |
| membership | in-sync and eligible replicas are replicas, apart from each other; no fenced broker is in sync |
| copies | below the watermark all copies have the same bytes |
| bounds | start <= watermark <= end |
"""

from __future__ import annotations

from skidway.broker.node import Node
from skidway.broker.partitions.partition import Partition
from skidway.log.bounds import Bound
from skidway.metadata.image import Image, Topic
from skidway.metadata.image import Partition as Described
from skidway.records.batch import read_header
from skidway.replica.leader import Leader
from skidway.sim.laws.history import History
from skidway.sim.laws.log_checks import batches_of
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import Violation
from skidway.sim.world.host import Host


class PartitionLaws:
    def __init__(self, cluster: Cluster, history: History) -> None:
        self.cluster = cluster
        self.history = history
        history.committed = self.committed
        self._committed: dict[tuple[bytes, int], int] = {}
        """The highest watermark that a leader was seen with."""
        self._led: set[tuple[str, int, bytes, int]] = set()
        self._leaders: dict[tuple[bytes, int, int], str] = {}
        self._epochs: dict[tuple[str, int, bytes, int], tuple[int, int]] = {}
        self._checked_offset = -1
        self._begun: set[tuple[bytes, int, int]] = set()
        """Epochs whose first batch was looked at."""
        self._replicas: dict[tuple[bytes, int], tuple[int, set[int]]] = {}
        """Partition epoch, and the replicas that are not just being added."""

    def sweep(self) -> None:
        for host, node in self.cluster.running:
            for partition in node.partitions:
                self._check_role(host, partition)
                if partition.leads:
                    self._check_leader(host, partition)
        newest = max((node for _, node in self.cluster.running), key=_published, default=None)
        if newest is not None and _published(newest) >= self._checked_offset:
            # Not when all who know better are down: then nobody can say who may be elected.
            self._check_image(newest.image, _published(newest))

    def on_step(self, node: Node) -> None:
        """What a leader calls committed, all who may be elected have at that very moment."""
        for partition in node.turn.moved:
            if partition.leads:
                self._note_committed(partition)
                newest = max((other for _, other in self.cluster.running), key=_published)
                topic = newest.image.topics_by_id.get(partition.topic_id)
                if _published(newest) >= self._checked_offset and topic is not None:
                    self._check_candidates(topic, topic.partitions[partition.index])

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

    def committed(self, topic_id: bytes, index: int) -> int:
        """Up to where a leader of now or before called it so; also one that has just lost the lead."""
        for host, node in self.cluster.running:
            partition = node.partitions.get(topic_id, index)
            if partition is not None and (partition.leads or (host.name, host.life, topic_id, index) in self._led):
                self._note_committed(partition)
        return self._committed.get((topic_id, index), 0)

    def _note_committed(self, partition: Partition) -> None:
        key = (partition.topic_id, partition.index)
        self._committed[key] = max(self._committed.get(key, 0), partition.log.high_watermark)

    def _check_leader(self, host: Host, partition: Partition) -> None:
        self._note_committed(partition)
        self._led.add((host.name, host.life, partition.topic_id, partition.index))
        leader = partition.leader
        epoch_key = (partition.topic_id, partition.index, leader.epoch)
        first = self._leaders.setdefault(epoch_key, host.name)
        if first != host.name:
            raise Violation("leaders", f"{partition} epoch {leader.epoch} is led by {first} and by {host.name}")
        if host.settings.node_id not in leader.in_sync:
            raise Violation("in-sync", f"{host.name} leads {partition} and is not in sync: {leader.in_sync}")
        if isinstance(leader, Leader) and epoch_key not in self._begun:
            self._check_first_batch(host, partition, leader)

    def _check_first_batch(self, host: Host, partition: Partition, leader: Leader) -> None:
        log, start = partition.log, leader.start_of_epoch_offset
        if log.failure is not None or not log.start_offset <= start < log.end_offset:
            return
        found = log.read(start, 1, Bound.END)
        assert found is not None
        epoch = read_header(found.read()).partition_leader_epoch
        if epoch != leader.epoch:
            raise Violation(
                "epochs", f"{host.name} leads {partition} in epoch {leader.epoch} and writes epoch {epoch} at {start}"
            )
        self._begun.add((partition.topic_id, partition.index, epoch))

    # --- the newest metadata ---

    def _check_image(self, image: Image, offset: int) -> None:
        changed, self._checked_offset = offset != self._checked_offset, offset
        for topic in image.topics.values():
            for described in topic.partitions:
                if changed:
                    self._check_membership(image, topic, described)
                    self._check_move(topic, described)
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

    def _check_move(self, topic: Topic, described: Described) -> None:
        """Whoever is a replica for good now, and was none before, is in sync."""
        key = (topic.id, described.index)
        settled = set(described.replicas) - set(described.adding_replicas)
        epoch, before = self._replicas.get(key, (-1, settled))
        self._replicas[key] = (described.partition_epoch, settled)
        late = settled - before - set(described.isr)
        # When more than one thing happened since, it may have been in sync and left again.
        if late and described.partition_epoch == epoch + 1:
            raise Violation(
                "moves",
                f"{topic.name}-{described.index} moved to {described.replicas} while only {described.isr} were in sync",
            )

    def _check_candidates(self, topic: Topic, described: Described) -> None:
        seen = self.history.seen.get((topic.id, described.index))
        needed = 0 if seen is None else seen.end_offset
        copies = self._copies(topic, described)
        leader = copies.get(described.leader)
        joining: list[int] = []
        if leader is not None and isinstance(leader[1].leader, Leader):
            host, partition = leader
            leading = partition.leader
            assert isinstance(leading, Leader)
            if leading.epoch == described.leader_epoch:
                self._check_counted(host, partition, leading, described)
                needed = max(needed, leading.high_watermark)
                joining = self._joining(leading)
        for node_id in [*described.isr, *described.eligible_leader_replicas, *joining]:
            if node_id in copies:
                self._check_complete(*copies[node_id], described, needed)

    def _joining(self, leader: Leader) -> list[int]:
        """Whom it proposes to take in. A broker that was registered again since is not meant: the controller refuses
        the epoch that it had."""
        proposal = leader.proposal
        if proposal is None:
            return []
        nodes = {host.settings.node_id: node for host, node in self.cluster.running}
        epochs = dict(proposal.members)
        return [each for each in proposal.added if each in nodes and nodes[each].broker_epoch in (-1, epochs[each])]

    def _copies(self, topic: Topic, described: Described) -> dict[int, tuple[Host, Partition]]:
        """Where it can be looked at: of machines that run, and whose disk does what it should."""
        found = {}
        for node_id in described.replicas:
            host = self.cluster.hosts.get(node_id)
            if host is None or host.node is None or host.paused:
                continue
            partition = host.node.partitions.get(topic.id, described.index)
            if partition is not None and not partition.log.quarantined and partition.log.failure is None:
                found[node_id] = (host, partition)
        return found

    def _check_complete(self, host: Host, partition: Partition, described: Described, needed: int) -> None:
        log = partition.log
        stored = log.synced_offset if log.is_flushed else log.end_offset
        leads = described.leader == host.settings.node_id
        if leads and log.end_offset < needed:
            raise Violation(
                "leader-completeness",
                f"{host.name} leads {partition} in epoch {described.leader_epoch} and ends at {log.end_offset}; "
                f"everything below {needed} was promised",
            )
        if stored < needed:
            raise Violation(
                "candidates",
                f"{host.name} may be elected for {partition} (in sync {described.isr}, eligible "
                f"{described.eligible_leader_replicas}) and has {stored}; everything below {needed} was promised",
            )

    def _check_counted(self, host: Host, partition: Partition, leader: Leader, described: Described) -> None:
        counted = {follower.id for follower in leader._counted}
        if len(described.isr) >= leader.min_in_sync:
            missing = set(described.isr) - counted - {leader.node_id}
            if missing:
                raise Violation(
                    "in-sync",
                    f"{host.name} leads {partition} and does not wait for {sorted(missing)}, which the controller may "
                    "elect",
                )
        for follower in leader._followers.values():
            far = self.cluster.hosts.get(follower.id)
            if follower.offset < 0 or far is None or far.node is None or far.node.broker_epoch != follower.broker_epoch:
                continue
            copy = far.node.partitions.get(partition.topic_id, partition.index)
            if copy is not None and copy.role.leader_epoch < leader.epoch:
                raise Violation(
                    "fencing",
                    f"{host.name} leads {partition} in epoch {leader.epoch} and counts {far.name} as in sync, which "
                    f"knows no epoch after {copy.role.leader_epoch}",
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


def _published(node: Node) -> int:
    """How far it follows the metadata."""
    return node.quorum.published_offset
