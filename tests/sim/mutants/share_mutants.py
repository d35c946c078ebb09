"""Mistakes about share groups at the leaders of their partitions, most of which Kafka has made: delivery, sessions."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.broker.shares import fetches, share_partition
from skidway.broker.shares.fetches import ShareFetches
from skidway.broker.shares.group_rules import GroupRules, GroupRulesOf
from skidway.broker.shares.reading import Read, look
from skidway.broker.shares.share_partition import SharePartition
from skidway.broker.shares.share_partitions import SharePartitions
from skidway.errors import ProtocolError
from skidway.shares import delivery
from skidway.shares.delivery import Delivery
from skidway.shares.durable import Durable
from skidway.shares.leases import Lease, Leases
from skidway.shares.records import StateBatch
from skidway.shares.sessions import FINAL_EPOCH, ShareSession, ShareSessions
from skidway.shares.settling import Answer, Said
from skidway.shares.states import AVAILABLE, TERMINAL, Verb
from values import replace

LATE_MS = 300


@contextmanager
def acquires_what_is_settling() -> Iterator[None]:
    """What is on its way to the store is delivered (KAFKA-18084)."""
    original = Delivery.next_write

    def next_write(self: Delivery, now_ms: int, wall_ms: int) -> Any:
        update = original(self, now_ms, wall_ms)
        if update is not None and self.outbox.writing is not None:
            for settlement in self.outbox.writing.settlements:
                for part in settlement.parts:
                    self.free(part.lease.first, part.lease.end)
        return update

    with patch.object(Delivery, "next_write", next_write):
        yield


@contextmanager
def one_delivery_too_many() -> Iterator[None]:
    """The limit is off by one."""
    original = GroupRulesOf._rules

    def rules(self: GroupRulesOf, overrides: Any) -> GroupRules:
        found = original(self, overrides)
        return found._replace(delivery=replace(found.delivery, count_limit=found.delivery.count_limit + 1))

    with patch.object(GroupRulesOf, "_rules", rules):
        yield


@contextmanager
def beginning_not_given_up() -> Iterator[None]:
    """The log's start moves, and what lay below is still waited for (KAFKA-19630)."""
    with patch.object(Delivery, "on_log_start", lambda self, offset: None):
        yield


@contextmanager
def beginning_heard_by_who_asks() -> Iterator[None]:
    """The log's start moves, and nobody hears of it before the next request."""
    with patch.object(SharePartitions, "on_start_moved", lambda self, partition: None):
        yield


@contextmanager
def replies_before_the_store() -> Iterator[None]:
    """An acknowledgement is answered when it is heard."""
    original = Delivery.settle

    def settle(self: Delivery, owner: str, said: list[Said], now_ms: int, answer: Answer, lock_ms: Any = None) -> None:
        told: list[Any] = []

        def once(error: ProtocolError | None) -> None:
            if not told:
                told.append(error)
                answer(error)

        original(self, owner, said, now_ms, once, lock_ms)
        if not told:
            once(None)

    with patch.object(Delivery, "settle", settle):
        yield


@contextmanager
def locks_end_late() -> Iterator[None]:
    original = Delivery.on_time
    with patch.object(Delivery, "on_time", lambda self, now_ms: original(self, now_ms - LATE_MS)):
        yield


@contextmanager
def locks_end_early() -> Iterator[None]:
    original = Delivery.on_time
    with patch.object(Delivery, "on_time", lambda self, now_ms: original(self, now_ms + LATE_MS)):
        yield


@contextmanager
def strangers_settle() -> Iterator[None]:
    """Nobody asks whose lease it is."""
    original = Delivery._check_held

    def check(self: Delivery, owner: str, first: int, end: int) -> None:
        for lease in self.leases.within(first, end):
            lease.owner = owner
        original(self, owner, first, end)

    with patch.object(Delivery, "_check_held", check):
        yield


@contextmanager
def part_of_an_ack_applied() -> Iterator[None]:
    """What comes before the mistake takes effect."""
    original = Delivery.settle

    def settle(self: Delivery, owner: str, said: list[Said], now_ms: int, answer: Answer, lock_ms: Any = None) -> None:
        for word in said[:-1]:
            original(self, owner, [word], now_ms, lambda error: None, lock_ms)
        original(self, owner, said[-1:], now_ms, answer, lock_ms)

    with patch.object(Delivery, "settle", settle):
        yield


@contextmanager
def named_twice_passes() -> Iterator[None]:
    """An offset may be named twice in one request: `<` for `<=`."""

    def words(batches: Any, *, renews: bool) -> Any:
        yield None
        said: list[Said] = []
        for batch in batches:
            types = batch.acknowledge_types
            for offset in range(batch.first_offset, batch.last_offset + 1):
                verb = types[0] if len(types) == 1 else types[offset - batch.first_offset]
                if not said or offset >= said[-1].end:
                    said.append(Said(offset, offset + 1, Verb(verb)))
        return said

    with patch.object(fetches, "words", words), patch.object(delivery, "check_order", lambda said: None):
        yield


@contextmanager
def failed_writes_answered() -> Iterator[None]:
    """The client hears of success whatever the store says."""
    original = Delivery.on_failed

    def on_failed(self: Delivery, error: ProtocolError, now_ms: int) -> bool:
        for settlement in self.outbox.writing.settlements if self.outbox.writing else []:
            answer = settlement.answer
            settlement.answer = lambda error, answer=answer: answer(None)  # type: ignore[misc]
        return original(self, error, now_ms)

    with patch.object(Delivery, "on_failed", on_failed):
        yield


@contextmanager
def expired_deliveries_not_counted() -> Iterator[None]:
    """A lease that ends by time did not count."""
    original = Delivery.give_back

    def give_back(self: Delivery, lease: Lease) -> bool:
        freed = original(self, lease)
        if freed:
            self.live.set_count(lease.first, lease.end, lease.count - 1)
        return freed

    with patch.object(Delivery, "give_back", give_back):
        yield


@contextmanager
def locks_without_a_bound() -> Iterator[None]:
    """What is leased is not counted."""
    with patch.object(Delivery, "held_offsets", property(lambda self: 0)):
        yield


@contextmanager
def one_leaves_all_leave() -> Iterator[None]:
    """When a session ends, everybody's leases are over."""
    original = Delivery.release_owner

    def release(self: Delivery, owner: str) -> bool:
        freed = [original(self, each) for each in {lease.owner for lease in self.leases}]
        return any(freed)

    with patch.object(Delivery, "release_owner", release):
        yield


@contextmanager
def start_passes_what_is_released() -> Iterator[None]:
    """The start offset moves over records that come again."""
    original = Durable.preview

    def preview(self: Durable, batches: list[StateBatch], floor: int) -> tuple[int, int]:
        start, complete_count = original(self, batches, floor)
        for batch in batches:
            if batch.state == AVAILABLE and batch.first <= start < batch.end:
                passed = self.cells.count_terminal(self.start_offset, min(batch.end, self.end_offset))
                above = sum(b.end - b.first for b in batches if b.state in TERMINAL and b.first >= batch.end)
                return batch.end, self.complete_count - passed + above
        return start, complete_count

    with patch.object(Durable, "preview", preview):
        yield


@contextmanager
def renewals_forgotten() -> Iterator[None]:
    with patch.object(Leases, "renew", lambda self, first, end, deadline_ms: None):
        yield


@contextmanager
def nobody_woken_by_the_store() -> Iterator[None]:
    """A release is stored, or the start has moved, and no fetch looks again (KAFKA-19227)."""
    original = SharePartition._on_written

    def on_written(self: SharePartition, error: ProtocolError | None) -> None:
        wake, self.on_change = self.on_change, lambda share: None
        original(self, error)
        if not self.closed:
            self.on_change = wake

    with patch.object(SharePartition, "_on_written", on_written):
        yield


@contextmanager
def nobody_woken_by_growth() -> Iterator[None]:
    """The log grows, and no fetch looks again."""
    with patch.object(SharePartitions, "on_moved", lambda self, partition: None):
        yield


@contextmanager
def kept_past_the_leader_epoch() -> Iterator[None]:
    """A share-partition is not closed when another leads (KAFKA-19567)."""
    with patch.object(SharePartitions, "on_disturbed", lambda self, partition: None):
        yield


@contextmanager
def sessions_outlive_connections() -> Iterator[None]:
    """KAFKA-19015."""
    with patch.object(ShareFetches, "_on_disconnected", lambda self, connection: None):
        yield


@contextmanager
def new_sessions_die_with_old_connections() -> Iterator[None]:
    """A session belongs to the first connection that its member came by."""
    begin, go_on = ShareSessions.begin, ShareSessions.go_on

    def begin_so(self: ShareSessions, key: Any, connection: object, sessions_max: int) -> ShareSession:
        before = self.open.get(key)
        session = begin(self, key, connection, sessions_max)
        session.connection = session.connection if before is None else before.connection
        return session

    def go_on_so(self: ShareSessions, key: Any, epoch: int, connection: object) -> ShareSession:
        before = self.open[key].connection if key in self.open else connection
        session = go_on(self, key, epoch, connection)
        session.connection = before
        return session

    with patch.object(ShareSessions, "begin", begin_so), patch.object(ShareSessions, "go_on", go_on_so):
        yield


@contextmanager
def any_session_epoch_taken() -> Iterator[None]:
    original = ShareSessions.go_on

    def go_on(self: ShareSessions, key: Any, epoch: int, connection: object) -> ShareSession:
        known = self.open.get(key)
        is_wrong = known is not None and epoch not in (known.epoch, FINAL_EPOCH)
        return original(self, key, known.epoch if known is not None and is_wrong else epoch, connection)

    with patch.object(ShareSessions, "go_on", go_on):
        yield


@contextmanager
def sessions_end_and_leases_stay() -> Iterator[None]:
    """What a member had stays locked when it has gone."""
    with patch.object(SharePartition, "release", lambda self, member: None):
        yield


@contextmanager
def large_batches_never_delivered() -> Iterator[None]:
    """A batch that is larger than a fetch may take is not read (KAFKA-18936)."""

    def look_so(log: Any, offset: int, max_bytes: int, *more: Any) -> Read | None:
        found = look(log, offset, max_bytes, *more)
        return None if found is None or found.file_slice.length > max(max_bytes, 120) else found

    with patch.object(share_partition, "look", look_so):
        yield
