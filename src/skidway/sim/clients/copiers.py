"""A job that copies a partition exactly once: what it reads, writes and has read is committed together."""

from __future__ import annotations

from collections import deque
from typing import Any

from skidway.errors import ErrorCode
from skidway.records.batch import iter_headers
from skidway.sim.clients.committed_readers import is_hidden
from skidway.sim.clients.outcomes import RETRY_MS, Outcome
from skidway.sim.clients.readers import open_batch
from skidway.sim.clients.scripts import Ask, Pause, Script
from skidway.sim.clients.transactional import GROUPS, TransactionalProducer
from skidway.sim.clients.transactional_offsets import send_offsets
from skidway.sim.laws.transactions import Fate, Written
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from skidway.wire.schema.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics

RECORDS_MAX = 10


class Copier(TransactionalProducer):
    """Its group is named as its transactional id, and has no members."""

    position = 0
    _reached = 0
    _last: Written | None = None

    def prepare(self) -> Script[None]:
        """Where the work goes on: nothing of the life before may be pending any more."""
        topics = [OffsetFetchRequestTopics(name=self.plan.input, partition_indexes=[self.plan.input_partition])]
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.plan.id, topics=topics)], require_stable=True
        )
        self._last = None
        while True:
            reply = yield from self.ask_coordinator(request, GROUPS, self.plan.id)
            group = None if reply is None else reply.groups[0]
            found = None if group is None or group.error_code else group.topics[0].partitions[0]
            if found is not None and not found.error_code:
                self.position = max(0, found.committed_offset)
                self.say(f"goes on at {self.position}")
                return
            if found is not None and found.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT:
                yield Pause(RETRY_MS)
            else:
                yield from self.elsewhere(GROUPS)

    def work(self, written: Written) -> Script[Outcome]:
        if self._last is not None and self._last.fate is Fate.COMMITTED:
            self.position = self._reached
        self._last = written
        found = yield from self._read()
        if not found:
            return Outcome.ABORT
        self.laws.used(written, [value for _, value in found])
        place = ("", 0)
        for topic, count in self.plan.topics.items():
            place = (topic, self.random.randrange(count))
        outcome = yield from self.write(written, {place: [self.numbered(value) for _, value in found]})
        if outcome is not Outcome.FINE:
            return outcome
        self._reached = found[-1][0] + 1
        place = (self.plan.input, self.plan.input_partition)
        return (yield from send_offsets(self, self.plan.id, {place: self._reached}))

    def _read(self) -> Script[list[tuple[int, bytes]]]:
        """What comes next; nothing only when the work is over."""
        topic, index = self.plan.input, self.plan.input_partition
        while self.producing:
            leader, epoch = self.leader_of(topic, index)
            if leader in self.brokers.addresses:
                topic_id = self.known[topic].topic_id
                wanted = FetchPartition(index, epoch, self.position, partition_max_bytes=1 << 20)
                request = FetchRequest(
                    max_wait_ms=100,
                    min_bytes=1,
                    topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
                    isolation_level=1,
                )
                found = self._values((yield Ask(leader, request)))
                if found:
                    return found[: 1 + self.random.randrange(RECORDS_MAX)]
            self.refresh()
            yield Pause(RETRY_MS)
        return []

    def _values(self, reply: Any) -> list[tuple[int, bytes]]:
        if reply is None or reply.error_code or not reply.responses:
            return []
        data = reply.responses[0].partitions[0]
        if not data.records:
            return []
        stored = bytes(data.records)
        aborted = deque((each.first_offset, each.producer_id) for each in data.aborted_transactions or [])
        active: set[int] = set()
        found: list[tuple[int, bytes]] = []
        end_offset = self.position
        for at, header in iter_headers(stored):
            batch = stored[at : at + header.size]
            if not is_hidden(header, batch, aborted, active):
                found += open_batch(batch) or []
            end_offset = header.last_offset + 1
        visible = [(offset, value) for offset, value in found if offset >= self.position]
        if not visible:
            self.position = end_offset  # There was nothing but markers and what was aborted.
        return visible
