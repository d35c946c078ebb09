"""A job that copies a partition exactly once: what it reads, writes and has read is committed together."""

from __future__ import annotations

from typing import Any

from skidway.errors import ErrorCode
from skidway.records.batch import iter_headers
from skidway.sim.clients.readers import open_batch
from skidway.sim.clients.scripts import Ask, Pause, Script
from skidway.sim.clients.transactional import GROUPS, RETRIED, RETRY_MS, Outcome, TransactionalProducer
from skidway.sim.laws.transactions import Fate, Written
from skidway.wire.schema.add_offsets_to_txn import AddOffsetsToTxnRequest
from skidway.wire.schema.fetch import FetchPartition, FetchRequest, FetchTopic
from skidway.wire.schema.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from skidway.wire.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

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
        place = ("", 0)
        for topic, count in self.plan.topics.items():
            place = (topic, self.random.randrange(count))
        outcome = yield from self.write(written, {place: [self.numbered(value) for _, value in found]})
        if outcome is not Outcome.FINE:
            return outcome
        self._reached = found[-1][0] + 1
        return (yield from self._send_offsets())

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
        records = reply.responses[0].partitions[0].records
        if not records:
            return []
        stored = bytes(records)
        found: list[tuple[int, bytes]] = []
        for at, header in iter_headers(stored):
            found += open_batch(stored[at : at + header.size]) or []
        return [(offset, value) for offset, value in found if offset >= self.position]

    def _send_offsets(self) -> Script[Outcome]:
        if not self.plan.bumps:
            asked = AddOffsetsToTxnRequest(self.plan.id, self.producer_id, self.epoch, self.plan.id)
            while True:
                reply = yield from self.ask_coordinator(asked)
                code = -1 if reply is None else reply.error_code
                outcome = self._judge([code], "adding offsets")
                if outcome is Outcome.FINE:
                    break
                if outcome is not None:
                    return outcome
                yield from self.elsewhere()
        partition = TxnOffsetCommitRequestPartition(self.plan.input_partition, self._reached, -1, "")
        request = TxnOffsetCommitRequest(
            transactional_id=self.plan.id,
            group_id=self.plan.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[TxnOffsetCommitRequestTopic(name=self.plan.input, partitions=[partition])],
        )
        while True:
            reply = yield from self.ask_coordinator(request, GROUPS, self.plan.id)
            code = -1 if reply is None else reply.topics[0].partitions[0].error_code
            outcome = self._judge([code], "offsets in a transaction")
            if outcome is Outcome.FENCED:
                return Outcome.ABORT
            if outcome is not None:
                return outcome
            assert code in RETRIED or code == -1
            yield from self.elsewhere(GROUPS)
