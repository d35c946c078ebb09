"""Incremental fetch sessions (KIP-227).

A consumer names its partitions once; later requests carry only what changed and replies only what is new. The cache
is bounded by sessions and by partitions; when it is full, a session unused for two minutes makes room, otherwise the
client simply gets no session (id 0) and goes on with full fetches.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from skidway.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from skidway.limits import INT32_MAX, Limits
from skidway.ports import Random

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
IDLE_BEFORE_EVICTION_MS = 120_000

TopicKey = str | bytes
"""A topic as the request names it: by name before version 13, by id from then on."""


@dataclass(slots=True)
class FetchTarget:
    """One partition that a fetch asks for, and what the session last said about it."""

    topic: TopicKey
    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    told_high_watermark: int = -1
    told_start_offset: int = -1

    @property
    def key(self) -> tuple[TopicKey, int]:
        return (self.topic, self.partition)

    def update(self, other: FetchTarget) -> None:
        self.offset = other.offset
        self.max_bytes = other.max_bytes
        self.leader_epoch = other.leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch


@dataclass(slots=True)
class Session:
    id: int
    by_id: bool
    used_ms: int
    epoch: int = 1
    targets: dict[tuple[TopicKey, int], FetchTarget] = field(default_factory=dict)

    def served(self, target: FetchTarget) -> None:
        """What got bytes goes to the end of the row, so that a busy partition does not starve the others."""
        # Unless a later request has taken it out while this one waited.
        if self.targets.get(target.key) is target:
            self.targets[target.key] = self.targets.pop(target.key)


def next_epoch(epoch: int) -> int:
    return 1 if epoch == INT32_MAX else epoch + 1


class FetchSessions:
    def __init__(self, limits: Limits, random: Random) -> None:
        self.limits = limits
        self.random = random
        self.sessions: dict[int, Session] = {}
        """In the order of their last use."""
        self.partition_count = 0

    def begin(
        self, session_id: int, epoch: int, by_id: bool, targets: list[FetchTarget], now_ms: int
    ) -> Session | None:
        """For a full fetch: ends the session it names, opens a new one if that is asked for and there is room."""
        if session_id != NO_SESSION:
            self._remove(session_id)
        if epoch == FINAL_EPOCH or not targets:
            return None
        if not self._make_room(len(targets), now_ms):
            return None
        session = Session(self._new_id(), by_id, now_ms)
        for target in targets:
            session.targets[target.key] = target
        self.sessions[session.id] = session
        self.partition_count += len(session.targets)
        return session

    def resume(
        self,
        session_id: int,
        epoch: int,
        by_id: bool,
        changed: list[FetchTarget],
        forgotten: Iterable[tuple[TopicKey, int]],
        now_ms: int,
    ) -> Session:
        """For an incremental fetch: bring the session up to date."""
        session = self.sessions.get(session_id)
        if session is None:
            raise FetchSessionIdNotFound()
        if session.epoch != epoch:
            raise InvalidFetchSessionEpoch()
        if session.by_id != by_id:
            raise FetchSessionTopicIdError()
        before = len(session.targets)
        added = sum(target.key not in session.targets for target in changed)
        if self.partition_count + added > self.limits.fetch_session_partitions_max:
            self._remove(session_id)
            raise FetchSessionIdNotFound()
        for target in changed:
            known = session.targets.get(target.key)
            if known is None:
                session.targets[target.key] = target
            else:
                known.update(target)
        for key in forgotten:
            session.targets.pop(key, None)
        self.partition_count += len(session.targets) - before
        session.epoch = next_epoch(epoch)
        session.used_ms = now_ms
        self.sessions[session_id] = self.sessions.pop(session_id)
        return session

    def _remove(self, session_id: int) -> None:
        session = self.sessions.pop(session_id, None)
        if session is not None:
            self.partition_count -= len(session.targets)

    def _make_room(self, partitions: int, now_ms: int) -> bool:
        if partitions > self.limits.fetch_session_partitions_max:
            return False
        while not self._has_room(partitions):
            oldest = next(iter(self.sessions.values()))
            if now_ms - oldest.used_ms < IDLE_BEFORE_EVICTION_MS:
                return False
            self._remove(oldest.id)
        return True

    def _has_room(self, partitions: int) -> bool:
        return (
            len(self.sessions) < self.limits.fetch_sessions_max
            and self.partition_count + partitions <= self.limits.fetch_session_partitions_max
        )

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self.random.randrange(INT32_MAX)
            if session_id not in self.sessions:
                return session_id
