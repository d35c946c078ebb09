"""Decisions about damaged copies: who gives one up, and where copies are (AssignReplicasToDirs).

A broker whose copy is damaged gives it up: it is then neither in sync nor eligible and does not lead, until it has
fetched everything again. That begins a leader epoch, so that nothing the broker said of its copy before brings it back.

A broker that cannot serve its copy at all says that the copy is in no directory (`LOST_DIRECTORY`). Nobody elects it
from then on, not even uncleanly. Where no other replica is known to have all that was acknowledged, it stays eligible
by name: it is remembered as the one that had everything, and an operator has to decide. The mark goes when the replica
gets in sync, or when its broker says that the copy is whole again: its files were repaired, or an operator accepted the
loss.
"""

from skidway.errors import (
    EligibleLeadersNotAvailable,
    ErrorCode,
    InvalidRequest,
    NotLeaderOrFollower,
    ProtocolError,
)
from skidway.metadata.cluster_view import ClusterView
from skidway.metadata.image import LOST_DIRECTORY, NO_CHANGE, NO_LEADER, Partition, Topic
from skidway.metadata.operations import AssignDirectories, CopyAssigned
from skidway.metadata.partition_change import Election
from skidway.metadata.partition_index import PartitionKey
from skidway.runtime.replicated import Decision
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import PartitionChangeRecord

Answer = list[tuple[bytes, list[tuple[bytes, list[CopyAssigned]]]]]


def give_up(
    view: ClusterView, broker_id: int, topic: Topic, partition: Partition, directory: bytes | None = None
) -> PartitionChangeRecord | None:
    """Who shall lead instead is decided here. EligibleLeadersNotAvailable when nobody else is known to have all."""
    others = [member for member in partition.isr if member != broker_id]
    eligible = [member for member in partition.eligible_leader_replicas if member != broker_id]
    change = view.change(topic, partition)
    change.isr = others if broker_id in partition.isr else partition.isr
    change.unclean = (broker_id,)
    change.assigned = {} if directory is None else {broker_id: directory}
    record = change.record()
    is_replaced = change.isr and change.election is Election.UNCLEAN
    if record is not None and not (others or eligible or is_replaced):
        raise EligibleLeadersNotAvailable(f"No other replica is known to have everything that broker {broker_id} had.")
    if partition.leader in (NO_LEADER, broker_id):
        return record
    # The leader stays. It may have asked to take in the copy that is given up, or be about to: not in this epoch.
    record = record or PartitionChangeRecord(partition_id=partition.index, topic_id=topic.id)
    if record.leader == NO_CHANGE:
        record.leader = partition.leader
    return record


def decide_assign(view: ClusterView, operation: AssignDirectories) -> Decision[Message, Answer]:
    view.check_epoch(operation.broker_id, operation.broker_epoch)
    records: dict[PartitionKey, Message] = {}
    answer: Answer = []
    for directory, topics in operation.directories:
        results: list[tuple[bytes, list[CopyAssigned]]] = []
        answer.append((directory, results))
        for topic_id, indexes in topics:
            results.append(
                (topic_id, [_assign(view, operation, directory, (topic_id, each), records) for each in indexes])
            )
    return Decision(list(records.values()), answer)


def _assign(
    view: ClusterView,
    operation: AssignDirectories,
    directory: bytes,
    key: PartitionKey,
    records: dict[PartitionKey, Message],
) -> CopyAssigned:
    topic = view.image.topics_by_id.get(key[0])
    if topic is None:
        return CopyAssigned(key[1], ErrorCode.UNKNOWN_TOPIC_ID)
    broker_id, error = operation.broker_id, ErrorCode.NONE
    try:
        _, partition = view.find_named(topic.name, key[1])
        if broker_id not in partition.replicas:
            raise NotLeaderOrFollower(f"Broker {broker_id} is no replica of it.")
        if key in records or (directory != LOST_DIRECTORY and directory not in view.image.brokers[broker_id].log_dirs):
            raise InvalidRequest("A partition is named twice, or the directory is not the broker's.")
        if directory == LOST_DIRECTORY:
            record, error = _lose(view, broker_id, topic, partition)
        else:
            change = view.change(topic, partition)
            change.assigned = {broker_id: directory}
            record = change.record()
    except ProtocolError as refusal:
        return CopyAssigned(key[1], refusal.code)
    if record is not None:
        records[key] = record
    return CopyAssigned(key[1], error)


def _lose(
    view: ClusterView, broker_id: int, topic: Topic, partition: Partition
) -> tuple[PartitionChangeRecord | None, ErrorCode]:
    error = ErrorCode.NONE
    if broker_id in partition.isr or broker_id in partition.eligible_leader_replicas:
        try:
            return give_up(view, broker_id, topic, partition, LOST_DIRECTORY), error
        except EligibleLeadersNotAvailable as refusal:
            error = refusal.code
    change = view.change(topic, partition)
    change.isr = [member for member in partition.isr if member != broker_id]
    change.assigned = {broker_id: LOST_DIRECTORY}
    record = change.record()
    if partition.leader == NO_LEADER and not change.isr and not change.has_eligible:
        error = EligibleLeadersNotAvailable.code
    return record, error
