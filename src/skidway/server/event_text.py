"""Events of a node as text: one line for each, in plain English."""

from collections.abc import Sequence

from skidway.broker.coordinators.news import MarkerRefused, MarkersLate, ScheduleRefused
from skidway.broker.events import (
    NO_LEADER,
    BrokerFenced,
    BrokerRegistered,
    BrokerStopping,
    BrokerUnfenced,
    BrokerUnregistered,
    ConfigsChanged,
    ControllerChanged,
    ControllerLost,
    CoordinatorNotLoaded,
    CoordinatorTopicNotCreated,
    DoubtAtStart,
    Event,
    FencedHere,
    FirstStart,
    InSyncChange,
    InSyncChanged,
    JoinedCluster,
    LastRunNotRemoved,
    LeaderChange,
    LeadersElected,
    ListenerMissing,
    LogLevelChanged,
    MetadataLogCut,
    MetadataSnapshotNotSaved,
    OutsiderAsked,
    PartitionsAdded,
    PeerHungUpOn,
    QuorumLeft,
    QuorumTroubled,
    RegistrationRefused,
    TooFewReplicas,
    TopicCreated,
    TopicDeleted,
    UnsyncedRewritten,
    VoterLost,
    VoterReturned,
    VotersChanged,
    VoterWiped,
    Why,
    WritesStopped,
)
from skidway.broker.partitions.news import (
    BatchRejected,
    CopyRestored,
    FilesChanged,
    PartitionMetadataRewritten,
    PartitionOffline,
    PartitionOpened,
    PartitionQuarantined,
    PartitionUnavailable,
    StrayLogKept,
)
from skidway.broker.shares.news import LettersBlocked, LettersGoOn, LettersLost
from skidway.broker.upkeep.news import (
    BatchesChecked,
    CheckpointNotSaved,
    CompactionFailed,
    FilesNotClosed,
    FilesNotRemoved,
    LogCompacted,
    MetadataDamaged,
    OffsetsNotSaved,
    RetentionFailed,
    SegmentNotRolled,
    SegmentsDeleted,
    SegmentUnread,
    SyncPutOff,
    SyncWithoutCheckpoint,
)
from skidway.groups.news import GroupRebalanced, MembersExpired
from skidway.metadata.config_keys import ResourceType
from skidway.quorum.news import MetadataCut, SnapshotTaken, TailDropped
from skidway.replica.news import (
    BadBatchFetched,
    CopyBegunAnew,
    CopyDamaged,
    CutMeaningless,
    CutRefused,
    DirectoryMissing,
    FetchedNotStored,
    FollowerOffline,
    LogCut,
    LogSetAside,
    OffsetRefused,
    Remedy,
    TailCut,
)
from skidway.runtime.news import ClockJumped

NO_DATA = "first start: no Skidway data in the data directory, so node"
LISTED_MAX = 10
"""Partitions, members or settings that one line names."""
TEXT_MAX = 100
"""Of a value that a client made up."""
ALONE = (
    ". There is no other replica: clients find no leader for it until the files are repaired and the node restarted. "
    "To serve what can still be read and give up the rest, put an empty file named accept-loss into the partition's "
    "directory and restart"
)


def line_of(event: Event) -> str:
    match event:
        case LeadersElected(changes):
            return _several("leader elected", "leaders elected", [_leader(change) for change in changes])
        case InSyncChanged(changes):
            return _several("in-sync set changed", "in-sync sets changed", [_in_sync(change) for change in changes])
        case GroupRebalanced(group, generation, members):
            return f"group {_cut(group)} rebalanced: generation {generation}, {_count(members, 'member')}"
        case MembersExpired(group, expired):
            named = _listed([_cut(member) for member in expired])
            return f"group {_cut(group)}: {_count(len(expired), 'member')} expired without a heartbeat: {named}"
        case ConfigsChanged(kind, resource, settings):
            named = _listed([f"{name} reset" if value is None else f"{name}={_cut(value)}" for name, value in settings])
            return f"settings of {_resource(kind, resource)} changed: {named}"
        case _:
            return _line_of_topic(event) or _line_of_broker(event) or _line_of_quorum(event) or _line_here(event)


def _line_here(event: Event) -> str:
    """Of what concerns this node alone."""
    return (
        _line_of_copy(event)
        or _line_of_following(event)
        or _line_of_partition(event)
        or _line_of_sync(event)
        or _line_of_upkeep(event)
        or _line_of_node(event)
    )


def _line_of_topic(event: Event) -> str:
    match event:
        case TopicCreated(topic, partitions, replicas):
            return f"topic {topic} created: {_count(partitions, 'partition')}, {_count(replicas, 'replica')}"
        case TooFewReplicas(topic, replicas, min_in_sync):
            have = f"topic {topic} has {_count(replicas, 'replica')}, fewer than min.insync.replicas={min_in_sync}"
            return f"{have}: acks=all is acknowledged without the others"
        case TopicDeleted(topic, partitions):
            return f"topic {topic} deleted: {_count(partitions, 'partition')}"
        case PartitionsAdded(topic, before, now):
            return f"topic {topic} has grown from {before} to {now} partitions"
    return ""


def _line_of_copy(event: Event) -> str:
    match event:
        case CopyDamaged(partition, why, Remedy.FETCH):
            return f"{partition}: damaged, will be fetched again: {why}"
        case CopyDamaged(partition, why, Remedy.FETCH_LATER):
            return f"{partition}: damaged, will be fetched again once another replica leads: {why}"
        case CopyDamaged(partition, why):
            return (
                f"{partition}: damaged, and there is no other replica to fetch it from: {why}. Nothing was dropped; "
                "readers get KAFKA_STORAGE_ERROR there. Restore the files from a backup and restart, or delete the "
                "topic. `skidway inspect log` shows what is left"
            )
        case BadBatchFetched(partition, leader_id, why):
            return f"{partition}: a bad batch from node {leader_id}, this broker fetches it again: {why}"
        case LogCut(_, what):
            return what
        case LogSetAside(directory, kept):
            return f"{directory}: this log belongs to no topic; the broker keeps it as {kept}"
        case DirectoryMissing(directory):
            return f"{directory}: its directory is missing; it starts empty"
    return ""


def _line_of_following(event: Event) -> str:
    match event:
        case TailCut(partition, leader_id, offset, end_offset, end_before):
            gone = f"{partition}: cut, offsets {end_offset} to {end_before} are gone"
            return f"{gone}: node {leader_id} leads and has another log from {offset} on"
        case CopyBegunAnew(partition, offset, start_before, end_before, why):
            held = f"offsets {start_before} to {end_before}"
            return f"{partition}: starts again at offset {offset}, without {held}: {why}"
        case CutRefused(partition, leader_id, offset, high_watermark):
            return (
                f"{partition}: node {leader_id} lacks what was committed: its log parts from the one here at {offset}, "
                f"below the high watermark {high_watermark}. Not cut, and not followed in this epoch: find out which "
                "of them is right. After a restart this node cuts its log as the leader asks"
            )
        case CutMeaningless(partition, leader_id, offset):
            return f"{partition}: node {leader_id} says that the logs part at {offset}, the end of the log here"
        case OffsetRefused(partition, leader_id, end_offset, leader_start):
            return f"{partition}: node {leader_id} refused offset {end_offset}, its log begins at {leader_start}"
        case FollowerOffline(partition, why):
            return f"{partition}: offline, it accepts no writes: {why}"
        case FetchedNotStored(partition, leader_id, why):
            return f"{partition}: cannot store what node {leader_id} sent, this broker retries later: {why}"
    return ""


def _line_of_partition(event: Event) -> str:
    match event:
        case PartitionOffline(partition, why):
            return f"{partition} is offline: {why}"
        case PartitionOpened(partition):
            return f"{partition} is open again"
        case PartitionQuarantined(_, why, alone):
            return f"quarantined: the broker neither serves nor truncates it: {why}{ALONE if alone else ''}"
        case PartitionUnavailable(partition):
            return (
                f"{partition} is unavailable: the copy here is damaged, and no other replica is known to have "
                "everything that was acknowledged. Start a replica that was in sync, or repair the files here and "
                "restart; or give up what the others lack: set unclean.leader.election.enable=true on the topic, and "
                "take it back afterwards (a damaged copy is not elected)"
            )
        case CopyRestored(partition):
            return f"{partition}: whole again: fetched from the leader, and in sync"
        case FilesChanged(partition, why):
            return f"{partition} accepts no more writes, because another program changed its files: {why}"
        case BatchRejected(partition, why):
            return f"{partition}: rejected a batch: {why}"
        case StrayLogKept(directory, why):
            return f"{directory}: this log belongs to no topic; the broker leaves it where it is: {why}"
        case PartitionMetadataRewritten(directory, damage):
            return f"{directory}: its partition.metadata {damage}; the broker wrote it again"
    return ""


def _line_of_sync(event: Event) -> str:
    match event:
        case SyncPutOff(hosted, why):
            return f"{hosted}: fsync failed for now, the broker retries: {why}"
        case SyncWithoutCheckpoint(hosted, why):
            return f"{hosted}: fsync succeeded, but a checkpoint could not be saved; the broker retries later: {why}"
        case CheckpointNotSaved(hosted, why):
            return f"{hosted}: cannot save a checkpoint, the broker retries later: {why}"
        case OffsetsNotSaved(why):
            return f"cannot save offset checkpoints, the broker retries later: {why}"
        case FilesNotRemoved(why):
            return f"cannot remove the files of deleted partitions, the broker retries later: {why}"
        case FilesNotClosed(partition, why):
            return f"{partition}: cannot close its files: {why}"
    return ""


def _line_of_upkeep(event: Event) -> str:
    match event:
        case SegmentNotRolled(partition, why):
            return f"{partition}: cannot start a new segment: {why}"
        case RetentionFailed(partition, why):
            return f"{partition}: cannot apply retention: {why}"
        case SegmentsDeleted(partition, segments, start_offset):
            return f"{partition}: {segments} segment(s) deleted by retention, the log now starts at {start_offset}"
        case LogCompacted(partition, end_offset, dropped, kept):
            return f"{partition}: compacted to offset {end_offset}, {dropped} of {dropped + kept} records dropped"
        case CompactionFailed(partition, why, retried):
            again = "the broker retries later" if retried else "the broker does not retry before a restart"
            return f"{partition}: compaction failed, {again}: {why}"
        case SegmentUnread(hosted, path, why):
            return f"{hosted}: cannot check {path}, the broker retries in the next round: {why}"
        case MetadataDamaged(damage):
            return (
                f"the metadata log: {damage}. The next start of this node may refuse it, and nothing was dropped: "
                "restore the file from a backup, or make another node a voter in the place of this one"
            )
        case BatchesChecked(bytes_read, segments, damaged, unread):
            checked = f"stored batches checked: {bytes_read} bytes in {segments} segment(s), {damaged} damaged"
            return f"{checked}, {unread} could not be read" if unread else checked
    return ""


def _line_of_node(event: Event) -> str:
    match event:
        case DoubtAtStart(what):
            return what
        case UnsyncedRewritten(written_bytes):
            return f"rewrote {written_bytes} unsynced bytes to new files: an fsync of the last run may have failed"
        case WritesStopped(why):
            return f"the data directory accepts no more writes until a restart: {why}"
        case LastRunNotRemoved():
            return "cannot remove the file last-run: remove it before the next start of this broker"
        case LogLevelChanged(logger, level):
            return f"logger {logger}: level {level or 'as above'}"
        case RegistrationRefused(code):
            return f"the controller has not registered this broker yet: {code.name}"
        case ListenerMissing(node_id, listener):
            todo = "set inter_broker_listener to one that all nodes have"
            return f"node {node_id} has no listener {listener}, so this node cannot reach it: {todo}"
        case PeerHungUpOn(_, link, why):
            return f"closed the connection to {_cut(link)}: {why}"
        case CoordinatorTopicNotCreated(noun, why):
            return f"cannot create the topic for {noun}: {why}"
        case CoordinatorNotLoaded(partition, noun, why):
            return f"{partition}: cannot load {noun}: {why}"
        case LettersBlocked(group, partition, offset, _, why):
            waits = f"a dead record of {partition}, offset {offset}, waits for its letter"
            return f"group {_cut(group)}: {waits}: {why}; the broker retries"
        case LettersGoOn(group, partition, topic):
            return f"group {_cut(group)}: dead letters of {partition} are written to {topic} again"
        case LettersLost(group, partition, first, last, why):
            which = f"offset {first}" if first == last else f"offsets {first} to {last}"
            return f"group {_cut(group)}: {partition}, {which}: archived without a dead letter: {why}"
        case MarkerRefused(transactional_id, partition, code):
            refused = f"{partition} refuses its marker ({code.name})"
            return f"the transaction of {_cut(transactional_id)} cannot end: {refused}"
        case MarkersLate(transactional_id, partition, others, since_ms):
            more = f" and {_count(others, 'other partition')}" if others else ""
            late = f"{partition}{more} did not take its marker for {since_ms // 1000} s"
            return f"the transaction of {_cut(transactional_id)} is still ending: {late}; the broker retries"
        case ScheduleRefused(queue, schedule, others, why):
            more = f" and {_count(others, 'other')}" if others else ""
            return (
                f"queue {_cut(queue)} does not take the scheduled message {schedule}{more}: {why}; the broker retries"
            )
        case ClockJumped(leap_ms, wait_ms):
            return (
                f"the wall clock jumped forwards by {leap_ms // 1000} s: the broker deletes nothing by age for the "
                f"next {wait_ms // 1000} s (limits.clock_jump_wait_ms). Correct the clock if it is wrong"
            )
    raise AssertionError(f"no text for {event}")


def _line_of_broker(event: Event) -> str:
    match event:
        case BrokerRegistered(broker_id, address, rack, again):
            what = "registered again (it restarted)" if again else "registered"
            return f"broker {broker_id} {what} at {_cut(address)}" + (f", rack {_cut(rack)}" if rack else "")
        case BrokerFenced(broker_id, why, timeout_ms):
            return f"broker {broker_id} fenced: {_because(why, timeout_ms)}"
        case BrokerUnfenced(broker_id):
            return f"broker {broker_id} unfenced: it serves again"
        case BrokerStopping(broker_id):
            return f"broker {broker_id} is about to stop: other brokers take over its partitions"
        case BrokerUnregistered(broker_id):
            return f"broker {broker_id} unregistered"
        case FirstStart(node_id, cluster_id, alone=True):
            begun = f"{NO_DATA} {node_id} begins the new cluster {cluster_id}"
            return f"{begun}. To join another cluster, start it with --voters"
        case FirstStart(node_id, cluster_id):
            return f"{NO_DATA} {node_id} is new in cluster {cluster_id}"
        case JoinedCluster():
            return "a member of the cluster"
        case FencedHere():
            return "the controller fenced this broker: other brokers lead its partitions now"
    return ""


def _line_of_quorum(event: Event) -> str:
    match event:
        case ControllerChanged(_, epoch, here=True):
            return f"this node is the active controller, epoch {epoch}"
        case ControllerChanged(node_id, epoch):
            return f"node {node_id} is the active controller, epoch {epoch}"
        case ControllerLost():
            return "this node is no longer the active controller"
        case VoterLost(node_id, silent_ms, left, voters):
            return f"voter {node_id} has not been heard from for {silent_ms} ms: {left} of {voters} voters are left"
        case VoterReturned(node_id):
            return f"voter {node_id} is heard from again"
        case VotersChanged(added, removed):
            named = [f"{node_id} added" for node_id in added] + [f"{node_id} removed" for node_id in removed]
            return f"voters of the metadata quorum: {', '.join(named)}"
        case VoterWiped(node_id, here):
            return _wiped(node_id, here)
        case OutsiderAsked(node_id, why):
            return f"node {node_id} is not part of this quorum: {why}"
        case QuorumLeft(why):
            return f"this node does not take part in the quorum for now: {why}"
        case QuorumTroubled(why):
            return f"the metadata quorum: {why}"
        case MetadataLogCut(cut, leader_id, epoch):
            return f"the metadata log: {_cut_of_metadata(cut)} (node {leader_id} leads, epoch {epoch})"
        case MetadataSnapshotNotSaved(why):
            return f"cannot write a snapshot of the metadata, the broker retries later: {why}"
    return ""


def _cut_of_metadata(cut: MetadataCut) -> str:
    match cut:
        case TailDropped(offset, end_before):
            return f"cut, offsets {offset} to {end_before} are gone: the leader has another log from {offset} on"
        case SnapshotTaken(offset, start_before, end_before):
            held = f"offsets {start_before} to {end_before}"
            return f"starts again at offset {offset}, without {held}: the leader sent a snapshot"


def _wiped(node_id: int, here: bool) -> str:
    who = "this node's data directory" if here else f"the data directory of voter {node_id}"
    mend = f"run `skidway cluster remove-voter {node_id}`, then `skidway cluster add-voter {node_id}`"
    return (
        f"{who} is not the one it voted with: it was emptied or replaced, so node {node_id} does not vote. "
        f"If that was a mistake, restart it with the old directory; otherwise {mend}"
    )


def _because(why: Why, timeout_ms: int) -> str:
    match why:
        case Why.SILENT:
            return f"no heartbeat for session_timeout_ms={timeout_ms}, or a quarter of that after its connection closed"
        case Why.ASKED:
            return "it asked to be fenced, because it cannot write now"
        case Why.STOPPED:
            return "it stopped cleanly"


def _leader(change: LeaderChange) -> str:
    def named(node: int) -> str:
        return "none" if node == NO_LEADER else str(node)

    return f"{change.partition} {named(change.before)} -> {named(change.now)} (epoch {change.epoch})"


def _in_sync(change: InSyncChange) -> str:
    return f"{change.partition} {','.join(map(str, change.before))} -> {','.join(map(str, change.now))}"


def _several(one: str, many: str, parts: Sequence[str]) -> str:
    return f"{one}: {parts[0]}" if len(parts) == 1 else f"{many}, {len(parts)} partitions: {_listed(parts)}"


def _listed(parts: Sequence[str]) -> str:
    more = len(parts) - LISTED_MAX
    return ", ".join(parts[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _cut(text: str) -> str:
    """Clients choose it: one line, and not a long one."""
    shown = text if text.isprintable() else repr(text)
    return shown if len(shown) <= TEXT_MAX else f"{shown[:TEXT_MAX]}…"


def _resource(kind: ResourceType, name: str) -> str:
    return f"{kind.name.lower().replace('_', ' ')} {_cut(name)}" if name else f"all {kind.name.lower()}s"
