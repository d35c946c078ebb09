"""Offsets of groups that a transactional producer commits, in its transaction or outside of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from skidway.sim.clients.outcomes import NO_ANSWER, Outcome, judge
from skidway.sim.clients.readers import Partition
from skidway.sim.clients.scripts import Script
from skidway.sim.transactional_plan import TransactionalClientPlan
from skidway.wire.message import Message
from skidway.wire.schema.add_offsets_to_txn import AddOffsetsToTxnRequest
from skidway.wire.schema.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from skidway.wire.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

GROUPS = 0
BOOKS = "books"
"""A group without members, whose offsets everybody moves, in transactions and outside of them."""
BOOKED: Partition = ("x0", 0)


@dataclass(slots=True, frozen=True)
class MemberOf:
    """Who commits, as a member of the group; as nobody in particular if nothing is given."""

    member_id: str = ""
    generation: int = -1


class Producing(Protocol):
    place: str
    plan: TransactionalClientPlan
    bumps: bool
    producer_id: int
    epoch: int

    def ask_coordinator(self, request: Message, kind: int = ..., key: str = ...) -> Script[Any]: ...

    def elsewhere(self, kind: int = ...) -> Script[None]: ...


def send_offsets(
    producer: Producing, group: str, offsets: Mapping[Partition, int], member: MemberOf | None = None
) -> Script[Outcome]:
    """Within the producer's transaction."""
    if not producer.bumps:
        asked = AddOffsetsToTxnRequest(producer.plan.id, producer.producer_id, producer.epoch, group)
        while True:
            reply = yield from producer.ask_coordinator(asked)
            code = NO_ANSWER if reply is None else reply.error_code
            outcome = judge(producer.place, [code], "adding offsets")
            if outcome is Outcome.FINE:
                break
            if outcome is not None:
                return outcome
            yield from producer.elsewhere()
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        topics.setdefault(topic, []).append(TxnOffsetCommitRequestPartition(index, offset, -1, ""))
    member = member or MemberOf()
    request = TxnOffsetCommitRequest(
        transactional_id=producer.plan.id,
        group_id=group,
        producer_id=producer.producer_id,
        producer_epoch=producer.epoch,
        generation_id=member.generation,
        member_id=member.member_id,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )
    while True:
        reply = yield from producer.ask_coordinator(request, GROUPS, group)
        codes = [NO_ANSWER]
        if reply is not None:
            codes = [each.error_code for topic in reply.topics for each in topic.partitions]
        outcome = judge(producer.place, codes, "offsets in a transaction")
        if outcome is Outcome.FENCED:
            return Outcome.ABORT
        if outcome is not None:
            return outcome
        yield from producer.elsewhere(GROUPS)


def commit_plainly(producer: Producing, offsets: Mapping[Partition, int]) -> Script[None]:
    """Tried once, for the group without members."""
    topics: dict[str, list[OffsetCommitRequestPartition]] = {}
    for (topic, index), offset in offsets.items():
        topics.setdefault(topic, []).append(OffsetCommitRequestPartition(index, offset, -1, ""))
    request = OffsetCommitRequest(
        group_id=BOOKS,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
    )
    reply = yield from producer.ask_coordinator(request, GROUPS, BOOKS)
    if reply is None or any(each.error_code for topic in reply.topics for each in topic.partitions):
        yield from producer.elsewhere(GROUPS)
