"""A fetch session (KIP-227) as the one who fetches sees it: the leader keeps what was asked, requests carry changes.

`set` says what is wanted of a partition, `next_request` asks for all that changed since the last request, `asked` is
what the leader goes by for the request under way. When the leader keeps no session, every request carries everything.
"""

from __future__ import annotations

import msgspec

from skidway.limits import INT32_MAX
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

NO_SESSION = 0
FULL_FETCH = 0
Key = tuple[bytes, int]


class Position(msgspec.Struct, frozen=True):
    """What a fetch says about a partition."""

    offset: int
    leader_epoch: int
    last_epoch: int
    """Of the last record below `offset`, -1 if there is none."""
    start_offset: int


class FetchSession:
    __slots__ = ("_asked", "_changed", "_epoch", "_forgotten", "_id", "_wanted")

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = FULL_FETCH
        self._wanted: dict[Key, Position] = {}
        self._asked: dict[Key, Position] = {}
        self._changed: dict[Key, None] = {}
        self._forgotten: dict[Key, None] = {}

    @property
    def has_targets(self) -> bool:
        return bool(self._wanted)

    def set(self, key: Key, position: Position | None) -> None:
        """None: it is not to be fetched for now."""
        if position is not None:
            self._forgotten.pop(key, None)
            self._wanted[key] = position
            self._changed[key] = None
        elif self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            self._forgotten[key] = None

    def asked(self, key: Key) -> Position | None:
        return self._asked.get(key)

    def next_request(self, partition_bytes_max: int) -> FetchRequest:
        full = self._epoch == FULL_FETCH
        if full:
            self._asked = dict(self._wanted)
            named = self._wanted
        else:
            for key in self._forgotten:
                self._asked.pop(key, None)
            named = {key: self._wanted[key] for key in self._changed if self._asked.get(key) != self._wanted[key]}
            self._asked.update(named)
        request = FetchRequest(session_id=self._id, session_epoch=self._epoch)
        request.topics = _by_topic(named, partition_bytes_max)
        if not full:
            forgotten: dict[bytes, ForgottenTopic] = {}
            for topic_id, index in self._forgotten:
                forgotten.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(
                    index
                )
            request.forgotten_topics_data = list(forgotten.values())
        self._changed.clear()
        self._forgotten.clear()
        return request

    def answered(self, session_id: int) -> None:
        """The leader took the request, and names its session; 0 if it keeps none."""
        if self._epoch == FULL_FETCH:
            self._id = session_id
            self._epoch = 1 if session_id != NO_SESSION else FULL_FETCH
        else:
            self._epoch = 1 if self._epoch == INT32_MAX else self._epoch + 1

    def end(self) -> None:
        """Begin anew with the next request; the leader is told to forget the old session."""
        self._epoch = FULL_FETCH


def _by_topic(positions: dict[Key, Position], partition_bytes_max: int) -> list[FetchTopic]:
    topics: dict[bytes, FetchTopic] = {}
    for (topic_id, index), position in positions.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
        topic.partitions.append(
            FetchPartition(
                partition=index,
                current_leader_epoch=position.leader_epoch,
                fetch_offset=position.offset,
                last_fetched_epoch=position.last_epoch,
                log_start_offset=position.start_offset,
                partition_max_bytes=partition_bytes_max,
            )
        )
    return list(topics.values())
