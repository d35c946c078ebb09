"""Incremental fetch sessions (KIP-227), for whoever fetches.

A reader names its partitions once; later requests carry only what changed and replies only what is new. A table of
sessions is bounded by sessions and by partitions; when it is full, a session unused for two minutes makes room,
otherwise the reader simply gets no session (id 0) and goes on with full fetches.

Kinds of readers differ in what they remember of a partition and in which partitions a fetch has to look at: they have a
class of targets and one of sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from skidway.errors import FetchSessionIdNotFound, FetchSessionTopicIdError, InvalidFetchSessionEpoch
from skidway.limits import INT32_MAX, Limits
from skidway.ports import Random
from skidway.steps import Steps
from skidway.wire.schema.fetch import FetchPartition, FetchRequest

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
FULL_EPOCHS = (INITIAL_EPOCH, FINAL_EPOCH)
"""Of requests that name everything."""
NOBODY_IN_PARTICULAR = -1
"""The owner of sessions that anyone may use who knows their id."""
IDLE_BEFORE_EVICTION_MS = 120_000
TARGETS_PER_STEP = 100
TOPIC_IDS_SINCE = 13

TopicKey = str | bytes
"""A topic as the request names it: by name before version 13, by id from then on."""
TargetKey = tuple[TopicKey, int]


class Named(Protocol):
    """What a request says about a partition."""

    partition: int


class Target(Protocol):
    """One partition of a session, and what is remembered about it."""

    def update(self, asked: Any) -> None:
        """A later request names it again."""


T = TypeVar("T", bound=Target)
AnySession = TypeVar("AnySession", bound="Session[Any]")


class Asked(Protocol):
    """What a request asks of a session, however it names topics."""

    session_id: int
    session_epoch: int
    by_id: bool
    named: int
    """How many partitions are in `topics`."""

    @property
    def topics(self) -> Sequence[tuple[TopicKey, Sequence[Named]]]: ...

    @property
    def forgotten(self) -> Sequence[tuple[TopicKey, Sequence[int]]]: ...


class AskedByFetch:
    __slots__ = ("by_id", "forgotten", "named", "session_epoch", "session_id", "topics")

    def __init__(self, request: FetchRequest, version: int) -> None:
        self.session_id = request.session_id
        self.session_epoch = request.session_epoch
        self.by_id = by_id = version >= TOPIC_IDS_SINCE
        self.topics: list[tuple[TopicKey, list[FetchPartition]]] = []
        self.forgotten: list[tuple[TopicKey, list[int]]] = []
        self.named = 0
        for topic in request.topics:
            self.topics.append((topic.topic_id if by_id else topic.topic, topic.partitions))
            self.named += len(topic.partitions)
        for gone in request.forgotten_topics_data:
            self.forgotten.append((gone.topic_id if by_id else gone.topic, gone.partitions))


class FetchTarget:
    """One partition that a Fetch asks for, and what the session last said about it."""

    __slots__ = ("asked", "index", "key", "told_high_watermark", "told_start_offset", "topic")

    def __init__(self, key: TargetKey, asked: FetchPartition) -> None:
        self.key = key
        self.topic, self.index = key
        self.asked = asked
        self.told_high_watermark = self.told_start_offset = -1

    def update(self, asked: FetchPartition) -> None:
        self.asked = asked


class Session(Generic[T]):
    """What one reader asks for again and again; without an id it lasts for one request."""

    __slots__ = ("by_id", "closed", "epoch", "id", "owner", "row", "targets", "used_ms")

    def __init__(self, session_id: int, owner: int, by_id: bool, used_ms: int) -> None:
        self.id = session_id
        self.owner = owner
        self.by_id = by_id
        self.used_ms = used_ms
        self.epoch = 1
        self.closed = False
        self.targets: dict[TargetKey, T] = {}
        self.row = self.targets
        """Those that a fetch looks at, in this order. What got bytes goes to the end, so that a busy partition does not
        starve the others."""

    def new_target(self, key: TargetKey, asked: Any) -> T:
        raise NotImplementedError

    def on_dropped(self, target: T) -> None:
        """It is not in the session any more."""

    def is_idle(self, now_ms: int) -> bool:
        """Whether it may be forgotten."""
        return now_ms - self.used_ms >= IDLE_BEFORE_EVICTION_MS


class Sessions(Generic[AnySession]):
    def __init__(
        self,
        new_session: Callable[[int, int, bool, int], AnySession],
        limits: Limits,
        random: Random,
        on_closed: Callable[[list[Any]], None] = lambda targets: None,
    ) -> None:
        """`new_session` gets id, owner, whether topics are named by id, and the time; `on_closed` what was in one."""
        self._new_session = new_session
        self._limits = limits
        self._random = random
        self._on_closed = on_closed
        self.open: dict[int, AnySession] = {}
        """In the order of their last use."""
        self.partition_count = 0

    def session_of(self, asked: Asked, owner: int, now_ms: int) -> AnySession:
        """For a full fetch a new one, in the place of the one it names; otherwise the one it goes on with."""
        if asked.session_epoch in FULL_EPOCHS:
            old = self.open.get(asked.session_id) if asked.session_id != NO_SESSION else None
            if old is not None and old.owner == owner:
                self.close(old)
            if asked.session_epoch == FINAL_EPOCH or not asked.named or not self._make_room(asked.named, now_ms):
                return self._new_session(NO_SESSION, owner, asked.by_id, now_ms)
            session_id = self._new_id()
            session = self.open[session_id] = self._new_session(session_id, owner, asked.by_id, now_ms)
            return session
        known = self.open.get(asked.session_id)
        if known is None or known.owner != owner:
            raise FetchSessionIdNotFound()
        if known.epoch != asked.session_epoch:
            raise InvalidFetchSessionEpoch()
        if known.by_id != asked.by_id:
            raise FetchSessionTopicIdError()
        known.epoch = 1 if known.epoch == INT32_MAX else known.epoch + 1
        known.used_ms = now_ms
        del self.open[known.id]
        self.open[known.id] = known
        return known

    def update(self, session: AnySession, asked: Asked) -> Steps[None]:
        """Take in what a request names, and let go of what it forgets. A partition named twice is there once, as it was
        last named. FetchSessionIdNotFound when the session was closed meanwhile, or is too large now."""
        count = 0
        targets, row = session.targets, session.row
        for topic, partitions in asked.topics:
            for named in partitions:
                count += 1
                if not count % TARGETS_PER_STEP:
                    yield None
                    if session.closed:
                        raise FetchSessionIdNotFound()
                key = (topic, named.partition)
                target = targets.get(key)
                if target is None:
                    target = targets[key] = session.new_target(key, named)
                    if session.id != NO_SESSION:
                        self.partition_count += 1
                        if self.partition_count > self._limits.fetch_session_partitions_max:
                            self.close(session)
                            raise FetchSessionIdNotFound()
                else:
                    target.update(named)
                row[key] = target
        for topic, indexes in asked.forgotten:
            for index in indexes:
                count += 1
                if not count % TARGETS_PER_STEP:
                    yield None
                self._drop(session, (topic, index))

    def close(self, session: AnySession) -> None:
        targets = list(session.targets.values())
        if session.id != NO_SESSION and self.open.pop(session.id, None) is not None:
            self.partition_count -= len(targets)
        session.closed = True
        session.targets = {}
        session.row = {}
        self._on_closed(targets)

    def close_idle(self, now_ms: int) -> None:
        """Forget those of readers that do not come any more."""
        for session in list(self.open.values()):
            if session.is_idle(now_ms):
                self.close(session)

    def _drop(self, session: AnySession, key: TargetKey) -> None:
        target = session.targets.pop(key, None)
        if target is None:
            return
        session.row.pop(key, None)
        if session.id != NO_SESSION:
            self.partition_count -= 1
        session.on_dropped(target)

    def _make_room(self, partitions: int, now_ms: int) -> bool:
        if partitions > self._limits.fetch_session_partitions_max:
            return False
        while not self._has_room(partitions):
            oldest = next(iter(self.open.values()))
            if not oldest.is_idle(now_ms):
                return False
            self.close(oldest)
        return True

    def _has_room(self, partitions: int) -> bool:
        return (
            len(self.open) < self._limits.fetch_sessions_max
            and self.partition_count + partitions <= self._limits.fetch_session_partitions_max
        )

    def _new_id(self) -> int:
        while True:
            session_id = 1 + self._random.randrange(INT32_MAX)
            if session_id not in self.open:
                return session_id
