"""The laws of brokers that come and go.

| law | meaning |
|---|---|
| broker-epochs | every run of a broker has an epoch of its own, higher than that of the run before |
| holdings | at the end a node has the copies that metadata gives it, and no others |
"""

from __future__ import annotations

from skidway.broker.node import Node
from skidway.metadata.image import Image
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import Violation


class BrokerLaws:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._runs: dict[int, tuple[int, bytes]] = {}
        """Broker epoch -> whose."""
        self._epochs: dict[int, int] = {}
        self._checked_offset = -1

    def sweep(self) -> None:
        newest = max((node for _, node in self.cluster.running), key=_published, default=None)
        if newest is not None and _published(newest) > self._checked_offset:
            self._checked_offset = _published(newest)
            self._check_epochs(newest.image)

    def _check_epochs(self, image: Image) -> None:
        for broker in image.brokers.values():
            run = (broker.id, broker.incarnation_id)
            first = self._runs.setdefault(broker.epoch, run)
            if first != run:
                raise Violation("broker-epochs", f"epoch {broker.epoch} was given to {first[0]} and to {broker.id}")
            before, self._epochs[broker.id] = self._epochs.get(broker.id, -1), broker.epoch
            if broker.epoch < before:
                raise Violation("broker-epochs", f"broker {broker.id} went from epoch {before} to {broker.epoch}")

    def check_holdings(self) -> None:
        for host, node in self.cluster.running:
            if not node.rooms.hosting.started:
                continue
            given = {
                (topic.id, partition.index)
                for topic in node.image.topics.values()
                for partition in topic.partitions
                if host.settings.node_id in partition.replicas
            }
            held = {(partition.topic_id, partition.index): str(partition) for partition in node.partitions}
            if set(held) != given:
                over = sorted(held[key] for key in set(held) - given)
                missing = sorted((node.image.topics_by_id[topic].name, index) for topic, index in given - set(held))
                raise Violation(
                    "holdings", f"{host.name} has copies the metadata does not assign to it: {over}; it lacks {missing}"
                )


def _published(node: Node) -> int:
    return node.quorum.published_offset
