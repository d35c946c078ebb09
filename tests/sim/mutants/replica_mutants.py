"""Mistakes that replication has been known to make: truncation, epochs, the in-sync set, elections."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.broker.partitions.partition import Partition
from skidway.broker.relay import Relay
from skidway.metadata import brokers, leadership
from skidway.metadata.partition_change import PartitionChange
from skidway.replica import fetcher
from skidway.replica.fetcher import Fetcher
from skidway.replica.follower import Follower
from skidway.replica.leader import Leader
from skidway.replica.role import PartitionRole


@contextmanager
def cuts_to_high_watermark() -> Iterator[None]:
    """A follower cuts its log to its own high watermark, which lags behind (KIP-101)."""
    original = Partition.follow

    def follow(self: Partition, role: PartitionRole, now_ms: int) -> None:
        original(self, role, now_ms)
        if role.leader >= 0 and self.log.failure is None and self.log.high_watermark < self.log.end_offset:
            self.cut_to(self.log.high_watermark, now_ms)

    with patch.object(Partition, "follow", follow):
        yield


@contextmanager
def divergence_ignored() -> Iterator[None]:
    """The leader appends to whatever a follower has (KIP-279)."""
    with patch.object(Partition, "divergence", lambda self, last_fetched_epoch, offset: None):
        yield


@contextmanager
def old_epochs_served() -> Iterator[None]:
    """A leader serves replicas that believe in another epoch (KIP-320)."""
    with patch.object(Leader, "check_epoch", lambda self, epoch: None):
        yield


@contextmanager
def late_answers_taken() -> Iterator[None]:
    """What a leader answered in an epoch that is over is appended all the same (KAFKA-7786)."""
    original = Fetcher._take

    def take(self: Fetcher, response: Any, now_ms: int, wall_ms: int) -> None:
        if response.error_code:
            original(self, response, now_ms, wall_ms)
            return
        self._session.answered(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                key = bytes(topic.topic_id), data.partition_index
                followed = self._followed.get(key)
                if followed is not None:
                    self._take_partition(key, followed, data, now_ms, wall_ms)

    with patch.object(Fetcher, "_take", take):
        yield


@contextmanager
def old_leaders_heard() -> Iterator[None]:
    """The same, and a replica has not left the leader before whose answer was under way."""
    original = Fetcher.leave
    left: dict[int, dict[Any, Any]] = {}

    def leave(self: Fetcher, replica: Any) -> None:
        key = replica.topic_id, replica.index
        if self.under_way and key in self._followed:
            left.setdefault(id(self), {})[key] = self._followed[key]
        original(self, replica)

    def take(self: Fetcher, response: Any, now_ms: int, wall_ms: int) -> None:
        if not response.error_code:
            self._session.answered(response.session_id)
        for topic in response.responses:
            for data in topic.partitions:
                key = bytes(topic.topic_id), data.partition_index
                followed = self._followed.get(key)
                late = left.get(id(self), {}).pop(key, None)
                if followed is not None:
                    self._take_partition(key, followed, data, now_ms, wall_ms)
                elif late is not None:
                    self._take_partition(key, late, data, now_ms, wall_ms)
                    self._leave(key)

    with patch.object(Fetcher, "leave", leave), patch.object(Fetcher, "_take", take):
        yield


@contextmanager
def joins_below_epoch_start() -> Iterator[None]:
    """A replica joins the in-sync set though it lacks what the leader had when its epoch began (KAFKA-7128)."""

    def may_join(self: Leader, follower: Follower) -> bool:
        return follower.offset >= self.high_watermark and self._is_eligible(follower)

    with patch.object(Leader, "_may_join", may_join):
        yield


@contextmanager
def joins_at_any_offset() -> Iterator[None]:
    """Whoever fetches is taken for in sync."""
    with patch.object(Leader, "_may_join", lambda self, follower: self._is_eligible(follower)):
        yield


@contextmanager
def watermark_on_committed_set() -> Iterator[None]:
    """The high watermark does not wait for replicas that may have been added already (KIP-497)."""

    def count(self: Leader) -> None:
        self._counted = [follower for follower in self._followers.values() if follower.id in self.in_sync]
        self._others = []

    with (
        patch.object(Leader, "_count", count),
        patch.object(Leader, "_is_about_to_join", lambda self, follower: False),
    ):
        yield


@contextmanager
def watermark_before_removal() -> Iterator[None]:
    """A replica that is to be removed is not waited for any longer (KIP-497, the other way)."""

    def count(self: Leader) -> None:
        wanted = [member for member, _ in self.proposal.members] if self.proposal is not None else self.in_sync
        self._counted = [follower for follower in self._followers.values() if follower.id in wanted]
        self._others = [follower for follower in self._followers.values() if follower.id not in wanted]

    with patch.object(Leader, "_count", count):
        yield


@contextmanager
def watermark_below_minimum() -> Iterator[None]:
    """The high watermark moves though fewer are in sync than the topic asks for (KAFKA-15583)."""
    original = Leader._advance

    def advance(self: Leader) -> int:
        kept, self.min_in_sync = self.min_in_sync, 1
        try:
            return original(self)
        finally:
            self.min_in_sync = kept

    with patch.object(Leader, "_advance", advance):
        yield


@contextmanager
def watermark_without_followers() -> Iterator[None]:
    """The leader's own copy is enough (acks=all as acks=1)."""

    def advance(self: Leader) -> int:
        self.high_watermark = max(self.high_watermark, self.stored)
        return self.high_watermark

    with patch.object(Leader, "_advance", advance):
        yield


@contextmanager
def restarted_replicas_counted() -> Iterator[None]:
    """Fetches of an earlier run of a broker count for the new one (KAFKA-14139, KAFKA-15221)."""

    def find(self: Leader, replica_id: int, broker_epoch: int) -> Follower:
        return self._followers.get(replica_id) or Follower(replica_id)

    def refuse(view: Any, alteration: Any) -> None:
        pass

    with (
        patch.object(Leader, "_find", find),
        patch.object(Leader, "_is_eligible", lambda self, follower: True),
        patch.object(leadership, "_refuse_ineligible", refuse),
    ):
        yield


@contextmanager
def fenced_brokers_join() -> Iterator[None]:
    """A fenced broker, or one that shuts down, gets in sync (KAFKA-13916, KAFKA-14140)."""
    with (
        patch.object(Leader, "_is_eligible", lambda self, follower: True),
        patch.object(leadership, "_refuse_ineligible", lambda view, alteration: None),
    ):
        yield


@contextmanager
def unclean_restart_trusted() -> Iterator[None]:
    """A broker that lost power stays in sync (KIP-966)."""
    original = brokers.decide_register

    def decide_register(view: Any, liveness: Any, operation: Any, now_ms: int) -> Any:
        known = view.image.brokers.get(operation.broker_id)
        if known is not None and operation.fenced:
            operation.previous_broker_epoch = known.epoch
        return original(view, liveness, operation, now_ms)

    with patch.object(brokers, "decide_register", decide_register):
        yield


@contextmanager
def fetches_promise_unsynced() -> Iterator[None]:
    """A follower asks for more before what it has is durable: the position was a promise."""
    with (
        patch.object(fetcher, "_is_stored", lambda replica: True),
        patch.object(Partition, "stored_offset", property(lambda self: self.log.end_offset)),
    ):
        yield


@contextmanager
def anybody_elected() -> Iterator[None]:
    """When the in-sync replicas are gone, any other leads (Kafka 0.8 as Jepsen found it)."""

    def complete_leader(self: PartitionChange) -> int:
        able = [each for each in self.replicas if self.active(each)]
        if self.before.leader in able:
            return self.before.leader
        leader = able[0] if able else -1
        if leader >= 0 and leader not in self.isr:
            self.isr = [leader, *(each for each in self.isr if each in able)]
        return leader

    with patch.object(PartitionChange, "_complete_leader", complete_leader):
        yield


@contextmanager
def eligible_not_forgotten() -> Iterator[None]:
    """Eligible leader replicas stay eligible while others go on without them."""

    def follow_eligible(self: PartitionChange) -> None:
        had_all = {*self.before.isr, *self._eligible} - set(self.isr)
        self._eligible = [broker_id for broker_id in self.replicas if broker_id in had_all]

    with patch.object(PartitionChange, "_follow_eligible", follow_eligible):
        yield


@contextmanager
def moves_end_early() -> Iterator[None]:
    """A reassignment ends before the new replicas are in sync (KAFKA-15665)."""

    def complete(self: PartitionChange) -> None:
        if not self.adding and not self.removing:
            return
        staying = [broker_id for broker_id in self.replicas if broker_id not in self.removing]
        if staying and set(staying) & set(self.isr):
            self.isr = [broker_id for broker_id in self.isr if broker_id in staying] or staying[:1]
            self.replicas, self.adding, self.removing = staying, [], []

    with patch.object(PartitionChange, "_complete_reassignment", complete):
        yield


@contextmanager
def moves_trust_newcomers() -> Iterator[None]:
    """A reassignment takes the new replicas for in sync from the beginning."""

    def complete(self: PartitionChange) -> None:
        if not self.adding and not self.removing:
            return
        staying = [broker_id for broker_id in self.replicas if broker_id not in self.removing]
        self.isr = staying
        self.replicas, self.adding, self.removing = staying, [], []

    with patch.object(PartitionChange, "_complete_reassignment", complete):
        yield


@contextmanager
def epoch_not_begun() -> Iterator[None]:
    """A new leader writes under the epoch of the old one (KAFKA-7415)."""
    original = Partition.append

    def append(self: Partition, batch: Any, header: Any, wall_ms: int) -> int:
        kept, self.leader.epoch = self.leader.epoch, max(self.log.epochs.latest - 1, 0)
        try:
            return original(self, batch, header, wall_ms)
        finally:
            self.leader.epoch = kept

    with patch.object(Partition, "append", append):
        yield


@contextmanager
def lost_leaders_acknowledge() -> Iterator[None]:
    """Whoever waits at a leader that is replaced is told that its batch is committed."""
    original = Relay.on_role_changed

    def on_role_changed(self: Relay, partition: Partition) -> None:
        self.waiting.acknowledgements.wake(partition, partition.log.end_offset)
        original(self, partition)

    with patch.object(Relay, "on_role_changed", on_role_changed):
        yield


@contextmanager
def diverging_fetch_counted() -> Iterator[None]:
    """The position of a follower whose log has parted counts at the leader (KAFKA-13141)."""
    original = Partition.divergence

    def divergence(self: Partition, last_fetched_epoch: int, offset: int) -> Any:
        found = original(self, last_fetched_epoch, offset)
        leader = self.leader
        if found is not None and isinstance(leader, Leader):
            for follower in leader._followers.values():
                follower.offset = max(follower.offset, self.log.end_offset)
            self.advance(leader._advance())
        return found

    with patch.object(Partition, "divergence", divergence):
        yield
