"""One member of a consumer group, by the consumer protocol (KIP-848): the coordinator assigns, the member obeys.

There are no threads: who reads calls `beat` between polls, which sends a heartbeat when one is due. A member that does
not come to that for the group's session timeout (45 s by default) loses its partitions; `beat` then joins again.
Partitions that the coordinator takes away are given up in `beat`, after `on_revoked` had a chance to commit.
"""

import base64
import time
import uuid
from collections.abc import Callable, Iterable, Mapping

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import BrokerError, ClientError, Unsupported
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.reader import Place, by_topic
from skidway.errors import ErrorCode
from skidway.wire.schema.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)

JOINING = 0
LEAVING = -1
REBALANCE_TIMEOUT_MS = 60_000
"""How long the group waits for this member to give a partition up."""
IDLE_BEAT_S = 0.2
"""A member without partitions asks this often: another member may just have given some up."""
LOST_MEMBERSHIP = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class Membership:
    """Not for several threads at once. `owned` is what may be read now."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        topics: Iterable[str],
        *,
        pattern: str | None = None,
        on_revoked: Callable[[set[Place]], None] = lambda places: None,
    ) -> None:
        """`pattern`: topics by a regular expression (RE2) instead of by name. `on_revoked` is called with what is about
        to be given up; with nothing to commit any more after the membership was lost."""
        self.cluster = cluster
        self.group = group
        self.groups = Groups(cluster)
        self.member_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        self.epoch = JOINING
        self.owned: set[Place] = set()
        self.rejoined = 0
        self._topics = list(topics)
        self._pattern = pattern
        self._on_revoked = on_revoked
        self._due_s = 0.0
        self._joined = False

    def beat(self) -> None:
        """Join, stay, and take or give up partitions. Cheap unless a heartbeat is due."""
        if self._joined and time.monotonic() < self._due_s:
            return
        try:
            reply = self._send(report=False)
        except BrokerError as error:
            if error.code not in LOST_MEMBERSHIP or not self._joined:
                raise _explained(error, self.group) from None
            self._forget()
            reply = self._send(report=False)
        self._joined = True
        if reply.assignment is not None:
            self._obey(reply.assignment)

    def commit(self, offsets: Mapping[Place, int]) -> None:
        """Offsets of partitions that are owned; others belong to somebody else by now and are left out."""
        mine = {place: offset for place, offset in offsets.items() if place in self.owned}
        if not mine:
            return
        try:
            self.groups.commit(self.group, mine, member=(self.member_id, self.epoch))
        except BrokerError as error:
            if error.code == ErrorCode.STALE_MEMBER_EPOCH:
                self._due_s = 0.0
                self.beat()
                mine = {place: offset for place, offset in mine.items() if place in self.owned}
                self.groups.commit(self.group, mine, member=(self.member_id, self.epoch))
            elif error.code in LOST_MEMBERSHIP:
                self._due_s = 0.0  # the next beat joins again; what was not committed is read again
            else:
                raise

    def leave(self) -> None:
        """The others get the partitions at once. A coordinator that cannot be reached notices later by itself."""
        if not self._joined:
            return
        self._joined = False
        self.epoch = LEAVING
        try:
            self._send(report=False)
        except ClientError:
            pass

    def _send(self, *, report: bool) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self.epoch, topic_partitions=None
        )
        if self.epoch == JOINING:
            request.rebalance_timeout_ms = REBALANCE_TIMEOUT_MS
            request.subscribed_topic_names = [] if self._pattern is not None else self._topics
            request.subscribed_topic_regex = self._pattern
            request.topic_partitions = []
        elif report:
            request.topic_partitions = [
                TopicPartitions(topic_id=self.cluster.topic(topic).id, partitions=partitions)
                for topic, partitions in by_topic(self.owned).items()
            ]
        try:
            reply = self.groups.heartbeat(request)
        except Unsupported:
            text = "the broker does not serve the consumer protocol (KIP-848), which reading in a group needs"
            raise Unsupported(f"group {self.group}: {text}") from None
        if self.epoch != LEAVING:
            self.epoch = reply.member_epoch
            self.member_id = reply.member_id or self.member_id
        interval_s = reply.heartbeat_interval_ms / 1000
        self._due_s = time.monotonic() + (interval_s if self.owned else min(interval_s, IDLE_BEAT_S))
        return reply

    def _obey(self, assignment: Assignment) -> None:
        wanted = {
            (self._name(entry.topic_id), partition)
            for entry in assignment.topic_partitions
            for partition in entry.partitions
        }
        revoked = self.owned - wanted
        if revoked:
            self._on_revoked(revoked)
        changed = wanted != self.owned
        self.owned = wanted
        if changed:
            # Says what is owned now, so that others get at once what was given up.
            reply = self._send(report=True)
            if reply.assignment is not None:
                self._obey(reply.assignment)

    def _name(self, topic_id: bytes) -> str:
        for _ in range(2):
            for topic in self.cluster.picture.topics.values():
                if topic.id == bytes(topic_id):
                    return topic.name
            self.cluster.refresh()
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"group {self.group}: a topic of the assignment")

    def _forget(self) -> None:
        """The group has gone on without this member: what it owned is another's."""
        lost, self.owned = self.owned, set()
        self.epoch = JOINING
        self.rejoined += 1
        self._on_revoked(lost)


def _explained(error: BrokerError, group: str) -> ClientError:
    if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
        text = "it is a share group, or used by members of the classic protocol; a consumer needs another group"
        return BrokerError(error.code, f"group {group}", text)
    return error
