"""Decisions about who leads and who is in sync: AlterPartition, ElectLeaders, balancing, brokers that come and go.

Every order of a leader carries its broker, leader and partition epochs; one that is stale is refused, so that a leader
that was replaced changes nothing.

An in-sync set that lacks whoever asks for it gives up a damaged copy (see `copies`). Kafka's controller refuses such a
set, and so does this one where nobody else is known to have all that was acknowledged.
"""

from collections.abc import Sequence

from skidway.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    ErrorCode,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NotController,
    PreferredLeaderNotAvailable,
    ProtocolError,
    UnknownTopicOrPartition,
)
from skidway.metadata import copies
from skidway.metadata.cluster_view import ClusterView
from skidway.metadata.config_keys import ResourceType
from skidway.metadata.image import NO_CHANGE, NO_LEADER, Partition, Topic
from skidway.metadata.operations import (
    AlterPartition,
    ElectionType,
    ElectLeaders,
    LeaderElected,
    PartitionAlteration,
    PartitionAltered,
    sentence,
)
from skidway.metadata.partition_change import RECOVERED, RECOVERING, Election
from skidway.metadata.partition_index import PartitionKey
from skidway.runtime.replicated import Decision
from skidway.wire.message import Message
from skidway.wire.schema.metadata_records import ConfigRecord, PartitionChangeRecord

RULES = frozenset({"min.insync.replicas", "unclean.leader.election.enable"})
"""Settings that say who may lead."""


# --- what leaders ask ---


def decide_alter(
    view: ClusterView, operation: AlterPartition
) -> Decision[Message, list[tuple[bytes, list[PartitionAltered]]]]:
    view.check_epoch(operation.broker_id, operation.broker_epoch)
    records: list[Message] = []
    changed: set[PartitionKey] = set()
    results: list[tuple[bytes, list[PartitionAltered]]] = []
    for topic_id, asked in operation.topics:
        topic = view.image.topics_by_id.get(topic_id)
        altered: list[PartitionAltered] = []
        results.append((topic_id, altered))
        for alteration in asked:
            if topic is None:
                altered.append(PartitionAltered(alteration.index, ErrorCode.UNKNOWN_TOPIC_ID))
                continue
            record: PartitionChangeRecord | None = None
            try:
                if (topic_id, alteration.index) in changed:
                    raise InvalidUpdateVersion("The partition was changed by this request already.")
                record = _alter(view, operation.broker_id, topic, alteration)
                altered.append(_altered(topic.partitions[alteration.index], record))
            except ProtocolError as refusal:
                altered.append(PartitionAltered(alteration.index, refusal.code))
                if isinstance(refusal, IneligibleReplica):
                    # The leader takes it back. A copy that was delayed must not be obeyed when the replica is
                    # eligible again: it is of an older epoch then.
                    record = PartitionChangeRecord(partition_id=alteration.index, topic_id=topic.id)
            if record is not None:
                records.append(record)
                changed.add((topic_id, alteration.index))
    return Decision(records, results)


def _alter(
    view: ClusterView, broker_id: int, topic: Topic, alteration: PartitionAlteration
) -> PartitionChangeRecord | None:
    _, partition = view.find_named(topic.name, alteration.index)
    gives_up = broker_id in partition.replicas and broker_id not in [member for member, _ in alteration.new_isr]
    _refuse_stale(partition, partition.leader if gives_up else broker_id, alteration)
    if gives_up:
        others = [member for member in partition.isr if member != broker_id]
        members = [member for member, _ in alteration.new_isr]
        if sorted(members) != sorted(others):
            raise InvalidRequest(f"A broker that gives up its copy leaves {others} in sync, not {members}.")
        return copies.give_up(view, broker_id, topic, partition)
    _refuse_odd(partition, alteration)
    _refuse_ineligible(view, alteration)
    change = view.change(topic, partition)
    wanted = {member for member, _ in alteration.new_isr}
    # In the order of the replicas: the same set is the same list.
    change.isr = [member for member in partition.replicas if member in wanted]
    change.isr = partition.isr if wanted == set(partition.isr) else change.isr
    change.recovery_state = alteration.recovery_state
    return change.record()


def _refuse_stale(partition: Partition, broker_id: int, alteration: PartitionAlteration) -> None:
    if alteration.leader_epoch > partition.leader_epoch or alteration.partition_epoch > partition.partition_epoch:
        # It knows more than we do: somebody else must be the controller by now.
        raise NotController("The partition's epochs are newer than any this controller knows.")
    if alteration.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch(f"The leader epoch is {partition.leader_epoch}, not {alteration.leader_epoch}.")
    if broker_id != partition.leader:
        raise InvalidRequest(f"The leader is {partition.leader}, not {broker_id}.")
    if alteration.partition_epoch < partition.partition_epoch:
        raise InvalidUpdateVersion(
            f"The partition epoch is {partition.partition_epoch}, not {alteration.partition_epoch}."
        )


def _refuse_odd(partition: Partition, alteration: PartitionAlteration) -> None:
    members = [member for member, _ in alteration.new_isr]
    if len(set(members)) != len(members) or not set(members) <= set(partition.replicas):
        raise InvalidRequest(f"{members} is not a choice of the replicas {partition.replicas}.")
    if partition.leader not in members:
        raise InvalidRequest("The leader is always in sync.")
    if alteration.recovery_state not in (RECOVERED, RECOVERING):
        raise InvalidRequest(f"There is no leader recovery state {alteration.recovery_state}.")
    if alteration.recovery_state == RECOVERING and len(members) > 1:
        raise InvalidRequest("While the leader recovers, no other replica is in sync.")
    if alteration.recovery_state == RECOVERING and partition.leader_recovery_state == RECOVERED:
        raise InvalidRequest("A leader that recovered does not begin to recover again.")


def _refuse_ineligible(view: ClusterView, alteration: PartitionAlteration) -> None:
    for member, epoch in alteration.new_isr:
        broker = view.image.brokers.get(member)
        if broker is None or not broker.active:
            raise IneligibleReplica(f"Broker {member} is not registered, fenced or shutting down.")
        if epoch not in (-1, broker.epoch):
            # What was fetched by an earlier run says nothing of this one.
            raise IneligibleReplica(f"Broker {member} has the epoch {broker.epoch}, not {epoch}.")


def _altered(before: Partition, record: PartitionChangeRecord | None) -> PartitionAltered:
    """As the partition will be. Where the change ends a reassignment that takes the leader away as well, it is told
    so by an error, although the change is made."""
    if record is None:
        changed, record = 0, PartitionChangeRecord()
    else:
        changed = 1
    if record.leader not in (NO_CHANGE, before.leader):
        return PartitionAltered(before.index, ErrorCode.NEW_LEADER_ELECTED)
    return PartitionAltered(
        before.index,
        ErrorCode.NONE,
        before.leader,
        before.leader_epoch + (record.leader != NO_CHANGE),
        list(before.isr if record.isr is None else record.isr),
        before.leader_recovery_state if record.leader_recovery_state < 0 else record.leader_recovery_state,
        before.partition_epoch + changed,
    )


# --- what operators ask ---


def decide_elect(
    view: ClusterView, operation: ElectLeaders
) -> Decision[Message, list[tuple[str, list[LeaderElected]]]]:
    if operation.election_type not in tuple(ElectionType):
        raise InvalidRequest(f"Unknown election type {operation.election_type}")
    kind = ElectionType(operation.election_type)
    records: dict[tuple[str, int], Message] = {}
    results: list[tuple[str, list[LeaderElected]]] = []
    for name, indexes in operation.topics:
        elected: list[LeaderElected] = []
        for index in indexes:
            try:
                if (name, index) not in records:
                    records[name, index] = _elect(view, name, index, kind)
                elected.append(LeaderElected(index))
            except (ElectionNotNeeded, UnknownTopicOrPartition) as refusal:
                if not operation.everything:
                    elected.append(LeaderElected(index, refusal.code, sentence(refusal)))
            except ProtocolError as refusal:
                elected.append(LeaderElected(index, refusal.code, sentence(refusal)))
        results.append((name, elected))
    return Decision(list(records.values()), results)


def _elect(view: ClusterView, name: str, index: int, kind: ElectionType) -> Message:
    topic, partition = view.find_named(name, index)
    if kind is ElectionType.PREFERRED:
        if partition.leader == partition.replicas[0]:
            raise ElectionNotNeeded("The preferred replica leads already.")
        record = view.change(topic, partition, Election.PREFERRED).record()
        if record is None:
            raise PreferredLeaderNotAvailable(f"The preferred replica {partition.replicas[0]} is not in sync.")
        return record
    if partition.leader != NO_LEADER:
        raise ElectionNotNeeded("There is a leader.")
    record = view.change(topic, partition, Election.UNCLEAN).record()
    if record is None:
        raise EligibleLeadersNotAvailable("None of the replicas is alive.")
    return record


# --- what happens by itself ---


def balance(view: ClusterView, elections_max: int) -> list[Message]:
    """Back to preferred leaders, at most so many."""
    records: list[Message] = []
    for key in view.index.imbalanced:
        if len(records) >= elections_max:
            break
        topic, partition = view.find(key)
        preferred = partition.replicas[0]
        if preferred not in partition.isr or not view.active(preferred):
            continue
        record = view.change(topic, partition, Election.PREFERRED).record()
        if record is not None:
            records.append(record)
    return records


def lead_leaderless(view: ClusterView, broker_id: int) -> list[Message]:
    """A broker that came back leads what nobody leads and it can."""
    records: list[Message] = []
    for key in view.index.leaderless:
        topic, partition = view.find(key)
        if broker_id in partition.replicas:
            record = view.change(topic, partition).record()
            if record is not None:
                records.append(record)
    return records


def follow_settings(view: ClusterView, records: Sequence[Message]) -> list[Message]:
    """What settings that are about to change mean for leaders; `view.configs` has them changed."""
    changed = [record for record in records if isinstance(record, ConfigRecord) and record.name in RULES]
    if not changed:
        return []
    names = {record.resource_name for record in changed if record.resource_type == ResourceType.TOPIC}
    everywhere = any(record.resource_type == ResourceType.BROKER for record in changed)
    keys = {**view.index.with_eligible(), **view.index.leaderless}
    following: list[Message] = []
    for key in keys:
        topic, partition = view.find(key)
        if everywhere or topic.name in names:
            record = view.change(topic, partition).record()
            if record is not None:
                following.append(record)
    return following
