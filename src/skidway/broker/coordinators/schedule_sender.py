"""Sends scheduled messages to their queues, until the leader of the partition has them.

A batch has the name that is stored with its plan, so the log takes it once, however often and by whomever it is sent.
Only if each send was refused before anything was appended, and only for a plan that this coordinator has made, it is
certain that nothing is there (`NotTaken`); or if the leader says that what comes before it is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from skidway.broker.coordinators.host import Coordinator
from skidway.broker.coordinators.news import ScheduleRefused
from skidway.broker.world import World
from skidway.errors import DamagedLog, ErrorCode, ProtocolError, StorageError
from skidway.log.log import Log
from skidway.metadata.image import NO_LEADER, Image, Topic
from skidway.records.batch import crc_matches, iter_headers
from skidway.records.queue_headers import SCHEDULE_DUE, SCHEDULE_ID
from skidway.records.record import Record, build_batch, read_records
from skidway.replica.leader import ACKS_ALL
from skidway.runtime.replicated import Operation
from skidway.schedules.machine import ScheduleCoordinator
from skidway.schedules.operations import Deliver, Delivered, NotTaken
from skidway.schedules.records import Defined, ScheduleRecord, decode_record
from skidway.schedules.schedule import Definition
from skidway.wire.message import Message
from skidway.wire.schema.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData

OneCoordinator = Coordinator[ScheduleCoordinator, ScheduleRecord]
Answer = Callable[[ProtocolError | None], None]
AskNode = Callable[[int, str, Message, int, int, Callable[[Message | None], None]], None]
"""(node, channel, request, now_ms, timeout_ms, respond): also of this node."""

CHANNEL = "schedules"
APPEND_MS = 3_000
"""So long the leader of the queue may take."""
ANSWER_MS = 4_000
RETRY_MS_MIN, RETRY_MS_MAX = 50, 1_000
REFUSED_MS = 30_000
"""After so long a batch is sent again that may be there, and is refused."""
THERE = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
MISSING_BEFORE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)
FOR_GOOD = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INVALID_TIMESTAMP,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.POLICY_VIOLATION,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
)
"""Refused before anything was appended."""


class Sending:
    """One plan, on its way."""

    __slots__ = ("coordinator", "effect", "in_doubt", "pause_ms")

    def __init__(self, coordinator: OneCoordinator, effect: Deliver) -> None:
        self.coordinator = coordinator
        self.effect = effect
        # Who made it before this coordinator was loaded may have sent it.
        self.in_doubt = effect.plan.producer_id not in coordinator.host.machine.names
        self.pause_ms = RETRY_MS_MIN

    @property
    def key(self) -> tuple[OneCoordinator, bytes]:
        return self.coordinator, self.effect.topic_id


class ScheduleSender:
    __slots__ = ("_ask", "_image", "_is_current", "_later", "_sendings", "_tell", "_world")

    def __init__(
        self,
        world: World,
        image: Image,
        ask: AskNode,
        later: Callable[[Callable[[], None]], None],
        is_current: Callable[[OneCoordinator], bool],
        tell: Callable[[OneCoordinator, Operation[None], Answer], None],
    ) -> None:
        """`later` has something done in another turn. `tell` tells a coordinator what became of a plan, and answers
        when that is stored, or why it is not."""
        self._world = world
        self._image = image
        self._ask = ask
        self._later = later
        self._is_current = is_current
        self._tell = tell
        self._sendings: dict[tuple[OneCoordinator, bytes], Sending] = {}

    def send(self, coordinator: OneCoordinator, effect: Deliver) -> None:
        sending = Sending(coordinator, effect)
        self._sendings[sending.key] = sending
        self._later(partial(self._try, sending))

    def _is_wanted(self, sending: Sending) -> bool:
        """Whether nobody else has taken over, and the plan is not over."""
        if self._sendings.get(sending.key) is not sending:
            return False
        if self._is_current(sending.coordinator):
            line = sending.coordinator.host.machine.lines.get(sending.effect.topic_id)
            if line is not None and line.plan == sending.effect.plan:
                return True
        del self._sendings[sending.key]
        return False

    def _try(self, sending: Sending) -> None:
        if not self._is_wanted(sending) or self._world.failure is not None:
            return
        effect = sending.effect
        topic = self._image.topics_by_id.get(effect.topic_id)
        if topic is None or effect.plan.partition >= len(topic.partitions):
            self._again(sending)  # until the coordinator hears of it
            return
        leader = topic.partitions[effect.plan.partition].leader
        if leader == NO_LEADER:
            self._again(sending)
            return
        try:
            batch = self._batch(sending)
        except StorageError as error:
            self._report(sending, str(error))
            self._again(sending, REFUSED_MS)
            return
        data = PartitionProduceData(effect.plan.partition, memoryview(batch))
        request = ProduceRequest(None, ACKS_ALL, APPEND_MS, [TopicProduceData(topic.name, topic.id, [data])])
        now_ms = self._world.clock.monotonic_ms()
        self._ask(leader, CHANNEL, request, now_ms, ANSWER_MS, partial(self._on_response, sending))

    def _batch(self, sending: Sending) -> bytearray:
        effect, wall_ms = sending.effect, self._world.clock.wall_ms()
        log = sending.coordinator.partition.log
        schedules = sending.coordinator.host.machine.lines[effect.topic_id].schedules
        records = []
        for each in effect.plan.messages:
            message = definition_at(log, schedules[each.id].offset).message
            told = ((SCHEDULE_ID, each.id.encode()), (SCHEDULE_DUE, b"%d" % each.due_ms))
            records.append(Record(0, wall_ms, message.key, message.value, (*message.headers, *told)))
        plan = effect.plan
        return build_batch(records, producer_id=plan.producer_id, producer_epoch=0, base_sequence=plan.sequence)

    # --- what became of it ---

    def _on_response(self, sending: Sending, response: Message | None) -> None:
        if not self._is_wanted(sending):
            return
        code, text = _outcome(response)
        effect = sending.effect
        if code in THERE:
            self._end(sending, Delivered(effect.topic_id, effect.plan))
        elif code in MISSING_BEFORE:
            self._end(sending, NotTaken(effect.topic_id, effect.plan, refused=False))
        elif code in FOR_GOOD:
            self._report(sending, f"{code.name} {text}".strip())
            if sending.in_doubt:
                self._again(sending, REFUSED_MS)
            else:
                self._end(sending, NotTaken(effect.topic_id, effect.plan, refused=True))
        else:
            sending.in_doubt = True
            self._again(sending)

    def _end(self, sending: Sending, operation: Operation[None]) -> None:
        def told(failed: ProtocolError | None) -> None:
            if failed is not None and self._is_wanted(sending):
                self._in(RETRY_MS_MAX, lambda: self._end_again(sending, operation))
            elif failed is None and self._sendings.get(sending.key) is sending:
                del self._sendings[sending.key]

        self._tell(sending.coordinator, operation, told)

    def _end_again(self, sending: Sending, operation: Operation[None]) -> None:
        if self._is_wanted(sending):
            self._end(sending, operation)

    def _again(self, sending: Sending, pause_ms: int = 0) -> None:
        self._in(pause_ms or sending.pause_ms, partial(self._try, sending))
        sending.pause_ms = min(2 * sending.pause_ms, RETRY_MS_MAX)

    def _in(self, pause_ms: int, act: Callable[[], None]) -> None:
        self._world.timers.at(self._world.clock.monotonic_ms() + pause_ms, act)

    def _report(self, sending: Sending, why: str) -> None:
        topic: Topic | None = self._image.topics_by_id.get(sending.effect.topic_id)
        planned = sending.effect.plan.messages
        queue = "" if topic is None else topic.name
        self._world.report(ScheduleRefused(queue, planned[0].id, len(planned) - 1, why))


def definition_at(log: Log, offset: int) -> Definition:
    """Raises StorageError: it is not there, or damaged."""
    found = log.read(offset, 1)
    data = b"" if found is None else found.read()
    for position, header in iter_headers(data):
        batch = memoryview(data)[position : position + header.size]
        if not crc_matches(batch):
            raise DamagedLog(f"the definition of a schedule at offset {offset} fails its checksum")
        for record in read_records(batch, decompressed_bytes_max=log.limits.decompressed_bytes_max):
            if record.offset == offset:
                known = decode_record(record)
                if isinstance(known, Defined) and known.definition is not None:
                    return known.definition
        break
    raise StorageError(f"the log of schedules has no definition at offset {offset}")


def _outcome(response: Message | None) -> tuple[ErrorCode, str]:
    if not isinstance(response, ProduceResponse):
        return ErrorCode.REQUEST_TIMED_OUT, "the leader does not answer"
    result = response.responses[0].partition_responses[0]
    return ErrorCode(result.error_code), result.error_message or ""
