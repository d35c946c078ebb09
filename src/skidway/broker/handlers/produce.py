"""Produce (key 0), v3–v13.

Appends one batch per partition as it is. acks=1 is answered after the append, acks=all after the high watermark has
passed it (with flush=sync: after the sync), acks=0 never: an error then closes the connection, as there is no other
way to tell. A duplicate of one of a producer's last five batches is answered with the offset of the first.
Who asks the wrong node is told where the leader is (v10+, KIP-951).

A transactional batch is appended at once if its transaction is open in its partition. The first one waits while the
transaction's coordinator is asked, once for all of a request; the connection's later requests wait behind it, so a
producer's batches stay in their order. A batch whose connection closes meanwhile is dropped: the client sends it again
by another one, and must not find it overtaken by a copy of which it knows nothing. acks=1 counts as acks=all in a
transaction, and acks=0 is taken only where acks=all is: what a commit makes visible must not be lost with a leader.
Not as in Kafka: a request without a transactional id is refused batch by batch; plain ones in it are appended.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import TYPE_CHECKING

from skidway.broker.api.call import Hangup
from skidway.broker.handlers.transactional_batches import Questioned, have_two_producers, question_about
from skidway.broker.partitions.partition import Appended, Partition, Unverified
from skidway.broker.reads.leader_hints import address_of, leader_of
from skidway.errors import ErrorCode, InvalidProducerIdMapping, ProtocolError, StorageError
from skidway.limits import KIB
from skidway.replica.leader import ACKS_ALL
from skidway.steps import Steps
from skidway.wire.schema.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.services import Services

HINTS_SINCE = 10
TOPIC_IDS_SINCE = 13
TIMEOUT_MS_MIN = 1
NO_ACKS = 0
BATCHES_AT_ONCE = 100
COUNTED_BYTES = 128 * KIB
"""A batch counts once more for each of these: 12 MiB are appended at once, in about 20 ms."""
NO_RECORDS = memoryview(b"")


Waiting = list[tuple[Partition, Appended, PartitionProduceResponse]]
"""What acks=all waits for."""
Batch = tuple[str | bytes, list[PartitionProduceResponse], PartitionProduceData]
"""The name or id of its topic, where its answer belongs, and what was sent."""


def handle(
    node: Services, call: Call, request: ProduceRequest
) -> ProduceResponse | Steps[ProduceResponse | None] | None:
    """One loop without calls of its own: most requests have one batch, and no API is asked as often."""
    acks, version = request.acks, call.version
    if acks not in (ACKS_ALL, NO_ACKS, 1):
        return _refuse_all(request, ErrorCode.INVALID_REQUIRED_ACKS)
    if call.now_ms > node.registration.counted_on_until_ms:
        _send_elsewhere(node, call, request)
    transactional_id = request.transactional_id
    if transactional_id is not None:
        topics = request.topic_data
        if (len(topics) > 1 or (topics and len(topics[0].partition_data) > 1)) and have_two_producers(request):
            return _refuse_all(request, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
        if acks == 1:
            request.acks = ACKS_ALL
        acks = ACKS_ALL
    by_id = version >= TOPIC_IDS_SINCE
    find: Callable[..., Partition] = node.partitions.find_by_id if by_id else node.partitions.find
    wall_ms = node.world.clock.wall_ms()
    response, refused, left = ProduceResponse(), False, BATCHES_AT_ONCE
    waiting: Waiting = []
    for topic in request.topic_data:
        answers: list[PartitionProduceResponse] = []
        response.responses.append(TopicProduceResponse(topic.name, topic.topic_id, answers))
        for data in topic.partition_data:
            partition: Partition | None = None
            records: memoryview = NO_RECORDS if data.records is None else data.records  # type: ignore[assignment]
            left -= 1 + len(records) // COUNTED_BYTES
            try:
                partition = find(topic.topic_id if by_id else topic.name, data.index) if left >= 0 else None
                if partition is None or partition.rules.opens:
                    return Production(node, call, request, response, waiting, refused).in_steps(topic, data)
                appended = partition.produce(records, acks, version, wall_ms, transactional_id)
                if not isinstance(appended, Appended):
                    assert isinstance(appended, Unverified), "where nothing is opened there is nothing to wait for"
                    return Production(node, call, request, response, waiting, refused).in_steps(topic, data, appended)
            except ProtocolError as error:
                refused = True
                answers.append(_refuse(node, call, request, partition, data.index, error))
                continue
            log = partition.log
            answer = PartitionProduceResponse(
                data.index, 0, appended.base_offset, appended.append_time_ms, log.start_offset
            )
            answers.append(answer)
            if acks == ACKS_ALL and appended.end_offset > log.high_watermark:
                waiting.append((partition, appended, answer))
    if acks != NO_ACKS and not waiting and not refused:
        return response
    return _finish(node, call, request, response, waiting, refused)


class Production:
    """A produce request that is continued in later turns: its response as far as it goes, and what it waits for."""

    __slots__ = ("_by_id", "_call", "_node", "_questioned", "_refused", "_request", "_response", "_size", "_waiting")

    def __init__(
        self,
        node: Services,
        call: Call,
        request: ProduceRequest,
        response: ProduceResponse,
        waiting: Waiting,
        refused: bool,
    ) -> None:
        self._node = node
        self._call = call
        self._request = request
        self._response = response
        self._waiting = waiting
        self._refused = refused
        self._questioned: deque[Questioned] = deque()
        """What the transaction's coordinator is asked about."""
        self._size = 0
        """Of all batches."""
        self._by_id = call.version >= TOPIC_IDS_SINCE

    def in_steps(
        self, topic: TopicProduceData, data: PartitionProduceData, first: Unverified | None = None
    ) -> Steps[ProduceResponse | None]:
        """From this batch on: they have to be opened, are too many for one turn, or (the `first`, if it is given)
        have to wait for their coordinator.

        The connection's next request waits until this one is through, so a producer's batches stay in their order.
        """
        if not self._call.keep_request():
            # The shell reads into the request's buffer again before all of them are appended. It is a small one.
            for each in self._request.topic_data:
                for later in each.partition_data:
                    if later.records is not None:
                        later.records = memoryview(bytearray(later.records))  # type: ignore[arg-type]
            if first is not None:
                batch, header = first.validated
                first.validated = bytearray(batch), header
        return self._produce_in_steps(self._from(topic, data), first)

    def _from(self, topic: TopicProduceData, data: PartitionProduceData) -> Iterator[Batch]:
        """This batch of this topic, which has begun, and all behind it."""
        topics = iter(self._request.topic_data)
        while next(topics) is not topic:
            pass
        name = topic.topic_id if self._by_id else topic.name
        answers = self._response.responses[-1].partition_responses
        entries = iter(topic.partition_data)
        while next(entries) is not data:
            pass
        for each in chain((data,), entries):
            yield name, answers, each
        for later in topics:
            answers = []
            self._response.responses.append(TopicProduceResponse(later.name, later.topic_id, answers))
            name = later.topic_id if self._by_id else later.name
            for each in later.partition_data:
                yield name, answers, each

    def _produce_in_steps(self, batches: Iterator[Batch], first: Unverified | None) -> Steps[ProduceResponse | None]:
        try:
            yield from self._produce_all(batches, first)
            if self._questioned:
                yield from self._append_questioned()
        finally:
            # Some are left if the client is gone.
            for left in self._questioned:
                left.give_up(self._node.world.clock.wall_ms())
        return _finish(self._node, self._call, self._request, self._response, self._waiting, self._refused)

    def _produce_all(self, batches: Iterator[Batch], first: Unverified | None) -> Steps[None]:
        node, request, version = self._node, self._request, self._call.version
        acks = request.acks if request.transactional_id is None else ACKS_ALL
        find: Callable[..., Partition] = node.partitions.find_by_id if self._by_id else node.partitions.find
        for name, answers, data in batches:
            if first is None:
                yield None
            partition: Partition | None = None
            records: memoryview = NO_RECORDS if data.records is None else data.records  # type: ignore[assignment]
            data.records = None  # it may be large, and is not needed again
            self._size += len(records)
            try:
                partition = find(name, data.index)
                outcome, first = (
                    first
                    or partition.produce(records, acks, version, node.world.clock.wall_ms(), request.transactional_id),
                    None,
                )
                if not isinstance(outcome, Appended | Unverified):
                    outcome = yield from outcome
                if isinstance(outcome, Unverified):
                    self._line_up(Questioned(partition, outcome, answers, len(answers)))
            except ProtocolError as error:
                self._refused = True
                answers.append(_refuse(node, self._call, request, partition, data.index, error))
                continue
            if isinstance(outcome, Unverified):
                answers.append(PartitionProduceResponse(data.index))
            else:
                answers.append(self._accept(partition, data.index, outcome))

    def _line_up(self, one: Questioned) -> None:
        if self._questioned and one.producer != self._questioned[0].producer:
            one.leave()
            raise InvalidProducerIdMapping("a batch of another producer than the others in the request")
        self._questioned.append(one)

    def _append_questioned(self) -> Steps[None]:
        """Ask one question about all that wait for it, and append those that the coordinator agrees to."""
        node, call, request, questioned = self._node, self._call, self._request, self._questioned
        transactional_id = request.transactional_id
        assert transactional_id is not None, "nobody is asked without"
        for code in (yield from self._ask(transactional_id)):
            yield None
            one = questioned.popleft()
            try:
                wall_ms = node.world.clock.wall_ms()
                appended = one.append(code, transactional_id, call.version, wall_ms)
            except ProtocolError as error:
                self._refused = True
                answer = _refuse(node, call, request, one.partition, one.index, error)
            else:
                answer = self._accept(one.partition, one.index, appended)
            one.answers[one.position] = answer

    def _ask(self, transactional_id: str) -> Steps[list[ErrorCode]]:
        """A code for each batch that waits."""
        node, waiting, size = self._node, self._node.waiting, self._size
        if waiting.questioned_bytes + size > node.world.limits.receive_bytes_max:
            return [ErrorCode.COORDINATOR_NOT_AVAILABLE] * len(self._questioned)
        waiting.questioned_bytes += size
        try:
            codes: list[ErrorCode] = yield question_about(node, self._call, transactional_id, self._questioned)
        finally:
            waiting.questioned_bytes -= size
        return codes

    def _accept(self, partition: Partition, index: int, appended: Appended) -> PartitionProduceResponse:
        log = partition.log
        answer = PartitionProduceResponse(index, 0, appended.base_offset, appended.append_time_ms, log.start_offset)
        if self._request.acks == ACKS_ALL and appended.end_offset > log.high_watermark:
            self._waiting.append((partition, appended, answer))
        return answer


def _refuse(
    node: Services, call: Call, request: ProduceRequest, partition: Partition | None, index: int, error: ProtocolError
) -> PartitionProduceResponse:
    if request.acks == NO_ACKS:
        raise Hangup(f"a produce request with acks=0 failed: {error}") from error
    if isinstance(error, StorageError) and partition is not None:
        node.room.on_refused(partition, error)
    return _refusal(index, error)


def _finish(
    node: Services, call: Call, request: ProduceRequest, response: ProduceResponse, waiting: Waiting, refused: bool
) -> ProduceResponse | None:
    """The response, or None after arranging to be woken."""
    if request.acks == NO_ACKS:
        call.silent = True
        return None
    if refused:
        _tell_leaders(node, call, response)
    if not waiting:
        return response
    deadline_ms = call.now_ms + max(request.timeout_ms, TIMEOUT_MS_MIN)
    _reply_when_committed(node, call, response, waiting, deadline_ms)
    return None


def _reply_when_committed(
    node: Services,
    call: Call,
    response: ProduceResponse,
    waiting: Waiting,
    deadline_ms: int,
) -> None:
    def answer(failed: Mapping[Partition, ProtocolError]) -> None:
        for partition, _, entry in waiting:
            error = failed.get(partition)
            if error is not None:
                entry.error_code = error.code
                entry.error_message = error.message
                entry.base_offset = entry.log_append_time_ms = entry.log_start_offset = -1
        if failed:
            _tell_leaders(node, call, response)
        call.reply(response)

    ends = {partition: appended.end_offset for partition, appended, _ in waiting}
    parked = node.waiting.acknowledgements.park(ends, deadline_ms, answer)
    call.on_gone = lambda: node.waiting.acknowledgements.cancel(parked)


def _refusal(index: int, error: ProtocolError) -> PartitionProduceResponse:
    record_errors = [
        BatchIndexAndErrorMessage(batch_index, message) for batch_index, message in getattr(error, "record_errors", ())
    ]
    return PartitionProduceResponse(index, error.code, -1, record_errors=record_errors, error_message=error.message)


def _tell_leaders(node: Services, call: Call, response: ProduceResponse) -> None:
    if call.version < HINTS_SINCE:
        return
    leaders: dict[int, None] = {}
    for topic in response.responses:
        name = topic.topic_id if call.version >= TOPIC_IDS_SINCE else topic.name
        for entry in topic.partition_responses:
            if entry.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                leader, epoch = leader_of(node.image, name, entry.index)
                entry.current_leader = LeaderIdAndEpoch(leader, epoch)
                leaders[leader] = None
    response.node_endpoints = [
        NodeEndpoint(*found) for leader in leaders if (found := address_of(node.image, leader, call.caller.listener))
    ]


def _send_elsewhere(node: Services, call: Call, request: ProduceRequest) -> None:
    """No controller answers this node: what it appends may never be committed, and it cannot know who leads now.

    A client that is answered would go on asking here, of all nodes, for the leader; one that is hung up on asks others.
    """
    find = node.partitions.find_by_id if call.version >= TOPIC_IDS_SINCE else node.partitions.find
    for topic in request.topic_data:
        name = topic.topic_id if call.version >= TOPIC_IDS_SINCE else topic.name
        for data in topic.partition_data:
            try:
                partition = find(name, data.index)  # type: ignore[arg-type]
                partition.leader.admit(request.acks)
            except ProtocolError:
                continue  # refused anyway, with a reason
            if not partition.alone:
                raise Hangup("this node is cut off from the controller and accepts no messages")


def _refuse_all(request: ProduceRequest, code: ErrorCode) -> ProduceResponse:
    return ProduceResponse(
        [
            TopicProduceResponse(
                topic.name,
                topic.topic_id,
                [PartitionProduceResponse(data.index, code, -1) for data in topic.partition_data],
            )
            for topic in request.topic_data
        ]
    )
