"""Mistakes about brokers that join, are drained and forgotten."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.broker.handlers import metadata
from skidway.broker.partitions.hosting import Hosting
from skidway.metadata import brokers
from skidway.metadata.partition_change import PartitionChange


@contextmanager
def drained_by_number() -> Iterator[None]:
    """A drained broker's copy goes when as many are in sync as shall stay, whoever they are (KAFKA-15665's cousin)."""

    def complete(self: PartitionChange) -> None:
        staying = [broker_id for broker_id in self.replicas if broker_id not in self.removing]
        if (self.adding or self.removing) and len(self.isr) >= len(staying) and set(staying) & set(self.isr):
            self.isr = [broker_id for broker_id in self.isr if broker_id in staying]
            self.replicas, self.adding, self.removing = staying, [], []

    with patch.object(PartitionChange, "_complete_reassignment", complete):
        yield


@contextmanager
def newcomers_in_sync() -> Iterator[None]:
    """A replica that is added counts as in sync before it has caught up."""
    original = PartitionChange._complete_reassignment

    def complete(self: PartitionChange) -> None:
        new = [each for each in self.adding if each not in self.isr and each not in self.before.adding_replicas]
        self.isr = [*self.isr, *filter(self.active, new)] if self.isr else self.isr
        original(self)

    with patch.object(PartitionChange, "_complete_reassignment", complete):
        yield


@contextmanager
def epochs_of_forgotten_brokers() -> Iterator[None]:
    """The next run gets the epoch of a broker that was forgotten."""
    original = brokers.decide_register

    def decide_register(view: Any, liveness: Any, operation: Any, now_ms: int) -> Any:
        operation.log_end_offset = -1
        view.image.next_broker_epoch = max((each.epoch for each in view.image.brokers.values()), default=0) + 1
        return original(view, liveness, operation, now_ms)

    with patch.object(brokers, "decide_register", decide_register):
        yield


@contextmanager
def moved_copies_kept() -> Iterator[None]:
    """A node keeps the copy of a partition that has moved away, as it was."""
    original = Hosting.follow

    def follow(self: Hosting, topic: Any, index: int, unclean: bool, wall_ms: int) -> None:
        if self._node_id in topic.partitions[index].replicas:
            original(self, topic, index, unclean, wall_ms)

    with patch.object(Hosting, "follow", follow):
        yield


@contextmanager
def fenced_never_named() -> Iterator[None]:
    """While no broker is unfenced, clients are told that there is none (librdkafka then stood still for good)."""
    original = metadata._brokers

    def brokers_of(node: Any, listener: str | None) -> list[Any]:
        online = [broker.id for broker in node.image.brokers.values() if not broker.fenced]
        return [broker for broker in original(node, listener) if broker.node_id in online]

    with patch.object(metadata, "_brokers", brokers_of):
        yield
