"""Decisions about moving replicas: AlterPartitionReassignments and ListPartitionReassignments.

A reassignment first only adds: the partition has its old and its wanted replicas, and knows which of them came
(`adding`) and which are to go (`removing`). It ends, in whatever decision brings that about, when all wanted ones are
in sync: then the others go (`partition_change`). Cancelled, it goes back to what it was. Neither may take away the last
replica that has everything.
"""

from collections import Counter
from collections.abc import Sequence

from msgspec import Struct, field

from skidway.errors import (
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    NoReassignmentInProgress,
    PolicyViolation,
    ProtocolError,
)
from skidway.limits import Limits
from skidway.metadata.cluster_view import ClusterView
from skidway.metadata.image import Partition, Topic
from skidway.metadata.operations import (
    AlterReassignments,
    ListReassignments,
    PartitionReassigned,
    Reassignment,
    sentence,
)
from skidway.metadata.partition_index import PartitionKey
from skidway.runtime.replicated import Decision
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import PartitionChangeRecord


class Draft(Struct):
    view: ClusterView
    limits: Limits
    resize: bool
    """Whether the number of replicas may change."""
    records: dict[PartitionKey, Message | None] = field(default_factory=dict)
    added: Counter[int] = field(default_factory=Counter)
    """Replicas that brokers get by this request."""


def decide_reassign(
    view: ClusterView, limits: Limits, operation: AlterReassignments
) -> Decision[Message, list[tuple[str, list[PartitionReassigned]]]]:
    draft = Draft(view, limits, operation.allow_replication_factor_change)
    results: list[tuple[str, list[PartitionReassigned]]] = []
    for name, partitions in operation.topics:
        reassigned: list[PartitionReassigned] = []
        for index, replicas in partitions:
            try:
                _alter(draft, name, index, replicas)
                reassigned.append(PartitionReassigned(index))
            except ProtocolError as refusal:
                reassigned.append(PartitionReassigned(index, refusal.code, sentence(refusal)))
        results.append((name, reassigned))
    return Decision([record for record in draft.records.values() if record is not None], results)


def _alter(draft: Draft, name: str, index: int, replicas: list[int] | None) -> None:
    topic, partition = draft.view.find_named(name, index)
    if (topic.id, index) in draft.records:
        raise InvalidRequest("Each partition must appear at most once.")
    record = _cancel(draft, topic, partition) if replicas is None else _move(draft, topic, partition, replicas)
    draft.records[topic.id, index] = record


def _cancel(draft: Draft, topic: Topic, partition: Partition) -> PartitionChangeRecord | None:
    if not partition.adding_replicas and not partition.removing_replicas:
        raise NoReassignmentInProgress("No partition reassignment is in progress.")
    return _change(draft, topic, partition, _originals(partition), [])


def _move(draft: Draft, topic: Topic, partition: Partition, wanted: list[int]) -> PartitionChangeRecord | None:
    _refuse_odd(draft, partition, wanted)
    kept = set(partition.replicas)
    coming = [each for each in wanted if each not in kept]
    for broker_id in coming:
        held = draft.view.image.replica_counts.get(broker_id, 0) + draft.added[broker_id]
        if held >= draft.limits.partitions_max:
            raise PolicyViolation(f"Broker {broker_id} holds {held} partition(s), as many as it may.")
    record = _change(draft, topic, partition, wanted, [each for each in _originals(partition) if each not in wanted])
    draft.added.update(coming)
    return record


def _originals(partition: Partition) -> list[int]:
    """Where it was before it began to move."""
    return [each for each in partition.replicas if each not in partition.adding_replicas]


def _refuse_odd(draft: Draft, partition: Partition, wanted: list[int]) -> None:
    if not wanted:
        raise InvalidReplicaAssignment("The manual partition assignment includes an empty replica list.")
    for broker_id in wanted:
        if broker_id not in draft.view.image.brokers:
            raise InvalidReplicaAssignment(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
    if len(set(wanted)) != len(wanted):
        raise InvalidReplicaAssignment(f"The manual partition assignment {wanted} includes a broker more than once.")
    present = len(partition.replicas) - len(partition.removing_replicas)
    if not draft.resize and len(wanted) != present:
        raise InvalidReplicationFactor(f"The replication factor is changed from {present} to {len(wanted)}.")


def _change(
    draft: Draft, topic: Topic, partition: Partition, wanted: list[int], removing: list[int]
) -> PartitionChangeRecord | None:
    originals = set(_originals(partition))
    change = draft.view.change(topic, partition)
    change.replicas = wanted + removing
    change.removing = removing
    change.adding = [each for each in wanted if each not in originals]
    change.isr = [each for each in partition.isr if each in change.replicas]
    _refuse_loss(partition, change.replicas)
    return change.record()


def _refuse_loss(partition: Partition, replicas: Sequence[int]) -> None:
    """Replicas that were about to come and shall no longer may be the only ones that have everything by now."""
    complete = partition.isr or partition.eligible_leader_replicas or partition.last_known_elr
    if complete and not set(complete) & set(replicas):
        raise InvalidReplicaAssignment(
            f"Of the replicas that have all records, {complete}, none would stay: let others catch up first, or have a "
            "leader elected uncleanly."
        )


def decide_list(
    view: ClusterView, operation: ListReassignments
) -> Decision[Message, list[tuple[str, list[Reassignment]]]]:
    asked = operation.topics
    if asked is None:
        by_topic: dict[str, list[int]] = {}
        for topic_id, index in view.index.reassigning:
            by_topic.setdefault(view.image.topics_by_id[topic_id].name, []).append(index)
        asked = sorted((name, sorted(indexes)) for name, indexes in by_topic.items())
    results: list[tuple[str, list[Reassignment]]] = []
    for name, indexes in asked:
        topic = view.image.topics.get(name)
        partitions = [topic.partitions[each] for each in indexes if 0 <= each < len(topic.partitions)] if topic else []
        under_way = [
            Reassignment(each.index, list(each.replicas), list(each.adding_replicas), list(each.removing_replicas))
            for each in partitions
            if each.adding_replicas or each.removing_replicas
        ]
        if under_way:
            results.append((name, under_way))
    return Decision([], results)
