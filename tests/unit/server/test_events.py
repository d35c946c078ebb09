"""Events as log lines: every kind has a text, and a storm of one kind has a bounded number of lines."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest
from server_fake_node import HandClock

from skidway.broker.coordinators.news import MarkerRefused, MarkersLate, ScheduleRefused
from skidway.broker.events import (
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
from skidway.errors import ErrorCode
from skidway.groups.news import GroupRebalanced, MembersExpired
from skidway.metadata.config_keys import ResourceType
from skidway.quorum.news import SnapshotTaken, TailDropped
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
from skidway.server.event_text import line_of
from skidway.server.events import (
    ALWAYS,
    LINES_MAX,
    ONCE_PER_WINDOW,
    WHEN_IT_CHANGES,
    WINDOW_MS,
    EventLog,
    level_of,
)

ROOT = Path(__file__).parents[3]
LINES: list[tuple[Event, str]] = [
    (CopyDamaged("t-0", "why", Remedy.FETCH), "t-0: damaged, will be fetched again: why"),
    (
        CopyDamaged("t-0", "why", Remedy.FETCH_LATER),
        "t-0: damaged, will be fetched again once another replica leads: why",
    ),
    (
        CopyDamaged("t-0", "why", Remedy.RESTORE),
        "t-0: damaged, and there is no other replica to fetch it from: why. Nothing was dropped; readers get "
        "KAFKA_STORAGE_ERROR there. Restore the files from a backup and restart, or delete the topic. "
        "`skidway inspect log` shows what is left",
    ),
    (BadBatchFetched("t-0", 2, "why"), "t-0: a bad batch from node 2, this broker fetches it again: why"),
    (LogCut("t-0", "t-0: cut from 9 to 7, because"), "t-0: cut from 9 to 7, because"),
    (LogSetAside("t-0", "t-0.1-stray"), "t-0: this log belongs to no topic; the broker keeps it as t-0.1-stray"),
    (DirectoryMissing("t-0"), "t-0: its directory is missing; it starts empty"),
    (BrokerRegistered(3, "c:9092", "east", again=False), "broker 3 registered at c:9092, rack east"),
    (BrokerRegistered(3, "c:9092", None, again=True), "broker 3 registered again (it restarted) at c:9092"),
    (
        BrokerFenced(3, Why.SILENT, 1200),
        "broker 3 fenced: no heartbeat for session_timeout_ms=1200, or a quarter of that after its connection closed",
    ),
    (BrokerFenced(3, Why.ASKED, 1200), "broker 3 fenced: it asked to be fenced, because it cannot write now"),
    (BrokerFenced(3, Why.STOPPED, 1200), "broker 3 fenced: it stopped cleanly"),
    (BrokerUnfenced(3), "broker 3 unfenced: it serves again"),
    (BrokerStopping(3), "broker 3 is about to stop: other brokers take over its partitions"),
    (BrokerUnregistered(3), "broker 3 unregistered"),
    (LeadersElected([LeaderChange("t-0", 3, 1, 5)]), "leader elected: t-0 3 -> 1 (epoch 5)"),
    (
        LeadersElected([LeaderChange("t-0", 3, 1, 5), LeaderChange("t-1", 3, -1, 2)]),
        "leaders elected, 2 partitions: t-0 3 -> 1 (epoch 5), t-1 3 -> none (epoch 2)",
    ),
    (InSyncChanged([InSyncChange("t-0", [1, 2], [1])]), "in-sync set changed: t-0 1,2 -> 1"),
    (TopicCreated("t", 1, 3), "topic t created: 1 partition, 3 replicas"),
    (
        TooFewReplicas("t", 1, 2),
        "topic t has 1 replica, fewer than min.insync.replicas=2: acks=all is acknowledged without the others",
    ),
    (TopicDeleted("t", 4), "topic t deleted: 4 partitions"),
    (PartitionsAdded("t", 2, 5), "topic t has grown from 2 to 5 partitions"),
    (
        ConfigsChanged(ResourceType.TOPIC, "t", [("retention.ms", "1"), ("segment.ms", None)]),
        "settings of topic t changed: retention.ms=1, segment.ms reset",
    ),
    (ConfigsChanged(ResourceType.BROKER, "", [("a", "1")]), "settings of all brokers changed: a=1"),
    (ControllerChanged(2, 7, here=True), "this node is the active controller, epoch 7"),
    (ControllerChanged(2, 7, here=False), "node 2 is the active controller, epoch 7"),
    (ControllerLost(), "this node is no longer the active controller"),
    (
        FirstStart(1, "abc", alone=True),
        "first start: no Skidway data in the data directory, so node 1 begins the new cluster abc. To join another "
        "cluster, start it with --voters",
    ),
    (
        FirstStart(1, "abc", alone=False),
        "first start: no Skidway data in the data directory, so node 1 is new in cluster abc",
    ),
    (JoinedCluster(), "a member of the cluster"),
    (FencedHere(), "the controller fenced this broker: other brokers lead its partitions now"),
    (VoterLost(2, 2000, 2, 3), "voter 2 has not been heard from for 2000 ms: 2 of 3 voters are left"),
    (VoterReturned(2), "voter 2 is heard from again"),
    (VotersChanged([4], [2]), "voters of the metadata quorum: 4 added, 2 removed"),
    (
        VoterWiped(2, here=False),
        "the data directory of voter 2 is not the one it voted with: it was emptied or replaced, so node 2 does not "
        "vote. If that was a mistake, restart it with the old directory; otherwise run `skidway cluster remove-voter "
        "2`, then `skidway cluster add-voter 2`",
    ),
    (GroupRebalanced("g", 4, 2), "group g rebalanced: generation 4, 2 members"),
    (MembersExpired("g", ("m-1",)), "group g: 1 member expired without a heartbeat: m-1"),
    (TailCut("t-0", 2, 7, 7, 9), "t-0: cut, offsets 7 to 9 are gone: node 2 leads and has another log from 7 on"),
    (CopyBegunAnew("t-0", 5, 0, 3, "why"), "t-0: starts again at offset 5, without offsets 0 to 3: why"),
    (
        CutRefused("t-0", 2, 5, 7),
        "t-0: node 2 lacks what was committed: its log parts from the one here at 5, below the high watermark 7. Not "
        "cut, and not followed in this epoch: find out which of them is right. After a restart this node cuts its log "
        "as the leader asks",
    ),
    (CutMeaningless("t-0", 2, 9), "t-0: node 2 says that the logs part at 9, the end of the log here"),
    (OffsetRefused("t-0", 2, 9, 4), "t-0: node 2 refused offset 9, its log begins at 4"),
    (FollowerOffline("t-0", "why"), "t-0: offline, it accepts no writes: why"),
    (FetchedNotStored("t-0", 2, "why"), "t-0: cannot store what node 2 sent, this broker retries later: why"),
    (PartitionOffline("t-0", "why"), "t-0 is offline: why"),
    (PartitionOpened("t-0"), "t-0 is open again"),
    (
        PartitionQuarantined("t-0", "t-0: why", alone=False),
        "quarantined: the broker neither serves nor truncates it: t-0: why",
    ),
    (
        PartitionQuarantined("t-0", "t-0: why", alone=True),
        "quarantined: the broker neither serves nor truncates it: t-0: why. There is no other replica: clients find no "
        "leader for it until the files are repaired and the node restarted. To serve what can still be read and give "
        "up the rest, put an empty file named accept-loss into the partition's directory and restart",
    ),
    (
        PartitionUnavailable("t-0"),
        "t-0 is unavailable: the copy here is damaged, and no other replica is known to have everything that was "
        "acknowledged. Start a replica that was in sync, or repair the files here and restart; or give up what the "
        "others lack: set unclean.leader.election.enable=true on the topic, and take it back afterwards (a damaged "
        "copy is not elected)",
    ),
    (CopyRestored("t-0"), "t-0: whole again: fetched from the leader, and in sync"),
    (FilesChanged("t-0", "why"), "t-0 accepts no more writes, because another program changed its files: why"),
    (BatchRejected("t-0", "why"), "t-0: rejected a batch: why"),
    (StrayLogKept("t-0", "why"), "t-0: this log belongs to no topic; the broker leaves it where it is: why"),
    (
        PartitionMetadataRewritten("t-0", "is damaged"),
        "t-0: its partition.metadata is damaged; the broker wrote it again",
    ),
    (SyncPutOff("t-0", "why"), "t-0: fsync failed for now, the broker retries: why"),
    (
        SyncWithoutCheckpoint("t-0", "why"),
        "t-0: fsync succeeded, but a checkpoint could not be saved; the broker retries later: why",
    ),
    (CheckpointNotSaved("t-0", "why"), "t-0: cannot save a checkpoint, the broker retries later: why"),
    (OffsetsNotSaved("why"), "cannot save offset checkpoints, the broker retries later: why"),
    (FilesNotRemoved("why"), "cannot remove the files of deleted partitions, the broker retries later: why"),
    (FilesNotClosed("t-0", "why"), "t-0: cannot close its files: why"),
    (SegmentNotRolled("t-0", "why"), "t-0: cannot start a new segment: why"),
    (RetentionFailed("t-0", "why"), "t-0: cannot apply retention: why"),
    (SegmentsDeleted("t-0", 2, 9), "t-0: 2 segment(s) deleted by retention, the log now starts at 9"),
    (LogCompacted("t-0", 9, 4, 5), "t-0: compacted to offset 9, 4 of 9 records dropped"),
    (CompactionFailed("t-0", "why", retried=True), "t-0: compaction failed, the broker retries later: why"),
    (
        CompactionFailed("t-0", "why", retried=False),
        "t-0: compaction failed, the broker does not retry before a restart: why",
    ),
    (
        SegmentUnread("t-0", "t-0/0.log", "why"),
        "t-0: cannot check t-0/0.log, the broker retries in the next round: why",
    ),
    (
        MetadataDamaged("0.log has a damaged batch"),
        "the metadata log: 0.log has a damaged batch. The next start of this node may refuse it, and nothing was "
        "dropped: restore the file from a backup, or make another node a voter in the place of this one",
    ),
    (BatchesChecked(9, 2, 1, 0), "stored batches checked: 9 bytes in 2 segment(s), 1 damaged"),
    (BatchesChecked(9, 2, 0, 1), "stored batches checked: 9 bytes in 2 segment(s), 0 damaged, 1 could not be read"),
    (DoubtAtStart("x is damaged and was not used"), "x is damaged and was not used"),
    (UnsyncedRewritten(9), "rewrote 9 unsynced bytes to new files: an fsync of the last run may have failed"),
    (WritesStopped("why"), "the data directory accepts no more writes until a restart: why"),
    (LastRunNotRemoved(), "cannot remove the file last-run: remove it before the next start of this broker"),
    (LogLevelChanged("skidway", "DEBUG"), "logger skidway: level DEBUG"),
    (LogLevelChanged("skidway", None), "logger skidway: level as above"),
    (
        RegistrationRefused(ErrorCode.DUPLICATE_BROKER_REGISTRATION),
        "the controller has not registered this broker yet: DUPLICATE_BROKER_REGISTRATION",
    ),
    (
        ListenerMissing(2, "INSIDE"),
        "node 2 has no listener INSIDE, so this node cannot reach it: set inter_broker_listener to one that all nodes "
        "have",
    ),
    (PeerHungUpOn(2, "node 2 at b:1", "why"), "closed the connection to node 2 at b:1: why"),
    (OutsiderAsked(2, "why"), "node 2 is not part of this quorum: why"),
    (QuorumLeft("why"), "this node does not take part in the quorum for now: why"),
    (QuorumTroubled("why"), "the metadata quorum: why"),
    (
        MetadataLogCut(TailDropped(5, 9), 2, 7),
        "the metadata log: cut, offsets 5 to 9 are gone: the leader has another log from 5 on (node 2 leads, epoch 7)",
    ),
    (
        MetadataLogCut(SnapshotTaken(5, 0, 3), 2, 7),
        "the metadata log: starts again at offset 5, without offsets 0 to 3: the leader sent a snapshot (node 2 leads, "
        "epoch 7)",
    ),
    (MetadataSnapshotNotSaved("why"), "cannot write a snapshot of the metadata, the broker retries later: why"),
    (CoordinatorTopicNotCreated("groups", "why"), "cannot create the topic for groups: why"),
    (CoordinatorNotLoaded("o-0", "groups", "why"), "o-0: cannot load groups: why"),
    (
        LettersBlocked("g", "t-0", 5, "dlq.t", "topic dlq.t does not exist"),
        "group g: a dead record of t-0, offset 5, waits for its letter: topic dlq.t does not exist; the broker retries",
    ),
    (LettersGoOn("g", "t-0", "dlq.t"), "group g: dead letters of t-0 are written to dlq.t again"),
    (LettersLost("g", "t-0", 5, 7, "why"), "group g: t-0, offsets 5 to 7: archived without a dead letter: why"),
    (LettersLost("g", "t-0", 5, 5, "why"), "group g: t-0, offset 5: archived without a dead letter: why"),
    (
        MarkerRefused("copier", "t-0", ErrorCode.INVALID_PRODUCER_EPOCH),
        "the transaction of copier cannot end: t-0 refuses its marker (INVALID_PRODUCER_EPOCH)",
    ),
    (
        MarkersLate("copier", "t-0", 2, 61_000),
        "the transaction of copier is still ending: t-0 and 2 other partitions did not take its marker for 61 s; the "
        "broker retries",
    ),
    (
        MarkersLate("copier", "t-0", 0, 61_000),
        "the transaction of copier is still ending: t-0 did not take its marker for 61 s; the broker retries",
    ),
    (
        ScheduleRefused("orders", "a", 2, "MESSAGE_TOO_LARGE"),
        "queue orders does not take the scheduled message a and 2 others: MESSAGE_TOO_LARGE; the broker retries",
    ),
    (
        ScheduleRefused("orders", "a", 0, "MESSAGE_TOO_LARGE"),
        "queue orders does not take the scheduled message a: MESSAGE_TOO_LARGE; the broker retries",
    ),
    (
        ClockJumped(90_000, 60_000),
        "the wall clock jumped forwards by 90 s: the broker deletes nothing by age for the next 60 s "
        "(limits.clock_jump_wait_ms). Correct the clock if it is wrong",
    ),
]


@pytest.mark.parametrize(("event", "line"), LINES)
def test_every_event_has_a_line(event: Event, line: str) -> None:
    assert line_of(event) == line


def test_every_kind_of_event_is_above() -> None:
    assert {type(event) for event, _ in LINES} == set(get_args(Event))


def listed_rows() -> list[list[str]]:
    """What the reference says about each kind: its name, its levels, how often it is logged, an example."""
    rows = []
    for kind in sorted({type(event) for event, _ in LINES}, key=lambda kind: kind.__name__):
        examples = [(event, line) for event, line in LINES if type(event) is kind]
        levels = sorted({logging.getLevelName(level_of(event)) for event, _ in examples})
        often = f"{LINES_MAX} in {WINDOW_MS // 1000} s"
        if kind in ALWAYS:
            often = "each time"
        elif kind in ONCE_PER_WINDOW:
            often = f"1 in {WINDOW_MS // 1000} s"
        elif kind in WHEN_IT_CHANGES:
            often = "when it changes"
        rows.append([kind.__name__, ", ".join(levels), often, examples[0][1]])
    return rows


def test_the_reference_lists_every_kind() -> None:
    lines = (ROOT / "docs" / "reference" / "events.md").read_text().split("\n## Kinds\n", 1)[1].splitlines()
    rows = [line for line in lines if line.startswith("|")][2:]
    told = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    assert told == [[f"`{kind}`", *rest] for kind, *rest in listed_rows()]


def test_what_somebody_should_look_at_is_a_warning() -> None:
    assert level_of(BrokerFenced(3, Why.SILENT, 1)) == logging.WARNING
    assert level_of(BrokerFenced(3, Why.STOPPED, 1)) == logging.INFO
    assert level_of(LeadersElected([LeaderChange("t-0", 3, -1, 2)])) == logging.WARNING
    assert level_of(LeadersElected([LeaderChange("t-0", 3, 1, 2)])) == logging.INFO


def test_what_clients_choose_stays_one_short_line() -> None:
    line = line_of(GroupRebalanced("g\n2026 INFO forged" + "x" * 1_000, 1, 1))
    assert "\n" not in line
    assert len(line) < 200


def test_brokers_that_anybody_can_register_forge_no_lines() -> None:
    forged = "h\n2026 INFO forged" + "x" * 1_000
    for event in (
        BrokerRegistered(3, f"{forged}:9092", None, again=False),
        BrokerRegistered(3, "c:9092", forged, again=False),
        PeerHungUpOn(3, f"node 3 at {forged}:9092 (fetch)", "a reply to nothing"),
    ):
        line = line_of(event)
        assert "\n" not in line
        assert len(line) < 300


def test_a_storm_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skidway.node")
    clock, waiting = HandClock(), list[tuple[float, Callable[[], None]]]()
    events = EventLog(clock, lambda wait_s, step: waiting.append((wait_s, step)))
    for number in range(1_000):
        events.report(TopicCreated(f"t{number}", 1, 1))
    events.report(TopicDeleted("t0", 1))
    assert len(caplog.messages) == LINES_MAX + 1, "each kind has lines of its own"
    ((wait_s, step),) = waiting
    assert wait_s == WINDOW_MS / 1_000
    clock.now_ms += WINDOW_MS
    step()
    assert caplog.messages[-1] == f"TopicCreated: {1_000 - LINES_MAX} more of these in the last 10 s"
    events.report(TopicCreated("later", 1, 1))
    assert caplog.messages[-1] == "topic later created: 1 partition, 1 replica"


def test_damage_and_cuts_are_logged_however_many_there_are(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skidway.node")
    events = EventLog(HandClock(), lambda wait_s, step: None)
    for number in range(LINES_MAX + 5):
        events.report(LogCut(f"t-{number}", f"t-{number}: cut"))
        events.report(CopyDamaged(f"t-{number}", "why", Remedy.FETCH))
    assert len(caplog.messages) == 2 * (LINES_MAX + 5)


def test_what_is_tried_again_and_again_has_a_line_in_a_window(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "skidway.node")
    clock, waiting = HandClock(), list[Callable[[], None]]()
    events = EventLog(clock, lambda wait_s, step: waiting.append(step))
    for _ in range(3):
        for node_id in (2, 3):
            events.report(OutsiderAsked(node_id, "why"))
        events.report(BatchRejected("t-0", "why"))
    assert caplog.messages == [
        "node 2 is not part of this quorum: why",
        "node 3 is not part of this quorum: why",
        "t-0: rejected a batch: why",
    ]
    clock.now_ms += WINDOW_MS
    (step,) = waiting
    step()
    assert caplog.messages[-2:] == [
        "OutsiderAsked: 4 more of these in the last 10 s",
        "BatchRejected: 2 more of these in the last 10 s",
    ]
    events.report(OutsiderAsked(2, "why"))
    assert caplog.messages[-1] == "node 2 is not part of this quorum: why"


def test_what_never_changes_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = HandClock()
    events = EventLog(clock, lambda wait_s, step: None)
    for why in ("one", "one", "other", "one"):
        clock.now_ms += 2 * WINDOW_MS
        events.report(CoordinatorTopicNotCreated("groups", why))
    assert [line.rsplit(" ", 1)[1] for line in caplog.messages] == ["one", "other", "one"]


def test_a_kind_is_logged_in_one_way() -> None:
    policies: list[set[type]] = [set(ALWAYS), set(ONCE_PER_WINDOW), set(WHEN_IT_CHANGES)]
    assert sum(map(len, policies)) == len(set.union(*policies))
