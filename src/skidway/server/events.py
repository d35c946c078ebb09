"""Events of a node in its log: how loud each kind is, and how many of a kind are logged. `event_text` has the words.

`EventLog` logs an event at once. A storm (a client that creates topics in a loop, a thousand groups that rebalance)
gets LINES_MAX lines of each kind in WINDOW_MS; the rest is counted, and the count is logged when the window ends.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

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
    FirstStart,
    InSyncChanged,
    JoinedCluster,
    LeadersElected,
    ListenerMissing,
    LogLevelChanged,
    MetadataLogCut,
    OutsiderAsked,
    PartitionsAdded,
    PeerHungUpOn,
    RegistrationRefused,
    TopicCreated,
    TopicDeleted,
    VoterReturned,
    VotersChanged,
    Why,
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
from skidway.broker.shares.news import LettersGoOn, LettersLost
from skidway.broker.upkeep.news import BatchesChecked, CompactionFailed, LogCompacted, MetadataDamaged, SegmentsDeleted
from skidway.groups.news import GroupRebalanced
from skidway.ports import Clock
from skidway.replica.news import CopyBegunAnew, CopyDamaged, CutRefused, DirectoryMissing, LogCut, LogSetAside, TailCut
from skidway.server.event_text import line_of

log = logging.getLogger("skidway.node")

LINES_MAX = 20
WINDOW_MS = 10_000
NEWS = (
    BrokerRegistered,
    BrokerUnfenced,
    BrokerStopping,
    BrokerUnregistered,
    InSyncChanged,
    TopicCreated,
    TopicDeleted,
    PartitionsAdded,
    ConfigsChanged,
    ControllerChanged,
    ControllerLost,
    FirstStart,
    JoinedCluster,
    VoterReturned,
    VotersChanged,
    GroupRebalanced,
    TailCut,
    CopyBegunAnew,
    MetadataLogCut,
    CopyRestored,
    PartitionOpened,
    LogLevelChanged,
    SegmentsDeleted,
    LogCompacted,
    BatchesChecked,
    LettersGoOn,
)
"""What all is well with. The others are warnings: somebody should look at them."""
ALWAYS = (
    CopyDamaged,
    LogCut,
    LogSetAside,
    DirectoryMissing,
    TailCut,
    CopyBegunAnew,
    CutRefused,
    MetadataLogCut,
    MetadataDamaged,
    PartitionOffline,
    PartitionOpened,
    PartitionQuarantined,
    PartitionUnavailable,
    CopyRestored,
    FilesChanged,
    StrayLogKept,
    PartitionMetadataRewritten,
    SegmentsDeleted,
    LogCompacted,
    CompactionFailed,
    DoubtAtStart,
    CoordinatorNotLoaded,
    LettersLost,
)
"""Logged each time: what was lost, and where, must be found in the log however much it is."""
ONCE_PER_WINDOW: dict[type, Callable[[Any], object]] = {
    BatchRejected: lambda event: None,
    RegistrationRefused: lambda event: None,
    PeerHungUpOn: lambda event: event.node_id,
    OutsiderAsked: lambda event: event.node_id,
}
"""What is tried again and again: one line in a window, for each of what these functions tell apart."""
WHEN_IT_CHANGES: dict[type, Callable[[Any], object]] = {
    CoordinatorTopicNotCreated: lambda event: event.noun,
    ListenerMissing: lambda event: event.node_id,
}
"""The same, where even a line in every window says nothing new."""


class EventLog:
    def __init__(self, clock: Clock, later: Callable[[float, Callable[[], None]], object] | None = None) -> None:
        """`later(seconds, step)`; without it the running event loop's."""
        self._clock = clock
        self._later = later or (lambda wait_s, step: asyncio.get_running_loop().call_later(wait_s, step))
        self._until_ms = 0
        self._counts: dict[tuple[type, object], int] = {}
        """Events in this window, by kind and by what it is told apart by."""
        self._ends_by_itself = False
        self._last: dict[tuple[type, object], Event] = {}

    def report(self, event: Event) -> None:
        kind = type(event)
        if kind in WHEN_IT_CHANGES:
            key = kind, WHEN_IT_CHANGES[kind](event)
            if self._last.get(key) != event:
                self._last[key] = event
                _log(event)
        elif kind in ALWAYS:
            _log(event)
        elif kind in ONCE_PER_WINDOW:
            self._count(event, ONCE_PER_WINDOW[kind](event), 1)
        else:
            self._count(event, None, LINES_MAX)

    def _count(self, event: Event, key: object, lines_max: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._until_ms:
            self._end_window()
            self._until_ms = now_ms + WINDOW_MS
        kind = type(event), key
        count = self._counts[kind] = self._counts.get(kind, 0) + 1
        if count <= lines_max:
            _log(event)
        elif not self._ends_by_itself:
            self._ends_by_itself = True
            self._later((self._until_ms - now_ms) / 1000, self._end_window)

    def _end_window(self) -> None:
        counts, self._counts = self._counts, {}
        self._ends_by_itself = False
        left_out: dict[type, int] = {}
        for (kind, _), count in counts.items():
            more = count - (1 if kind in ONCE_PER_WINDOW else LINES_MAX)
            if more > 0:
                left_out[kind] = left_out.get(kind, 0) + more
        for kind, more in left_out.items():
            log.info("%s: %d more of these in the last %d s", kind.__name__, more, WINDOW_MS // 1000)


def _log(event: Event) -> None:
    log.log(level_of(event), "%s", line_of(event))


def level_of(event: Event) -> int:
    if isinstance(event, BrokerFenced):
        return logging.INFO if event.why is Why.STOPPED else logging.WARNING
    if isinstance(event, LeadersElected):
        return logging.WARNING if any(change.now == NO_LEADER for change in event.changes) else logging.INFO
    return logging.INFO if isinstance(event, NEWS) else logging.WARNING
