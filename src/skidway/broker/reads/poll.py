"""One fetch, whoever sends it: look at some partitions; answer if there is enough, otherwise wait and look once more.

A kind of fetch is a class on top of `Poll`. It says which targets to look at, what is found in one of them and what the
reply is; looking, refusals, waiting, deadlines and steps are here. `FetchPoll` is what Fetch has in common for all who
send it: what is news, and the reply. Consumers (`reads.consumers`) and followers (`replication.follower_fetches`) go on
from there.

A fetch that has to look at many partitions does so in steps (`skidway.steps`), and so does one that was woken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import msgspec

from skidway.broker.api.call import answer_later
from skidway.broker.reads.sessions import FULL_EPOCHS, TARGETS_PER_STEP, FetchTarget, Session, TopicKey
from skidway.errors import DamagedLog, ProtocolError
from skidway.limits import Limits
from skidway.runtime.parking import BytesParking, ParkedBytes
from skidway.runtime.slices import Slices
from skidway.steps import Steps, Wanted, at_once
from skidway.wire.schema.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData

if TYPE_CHECKING:
    from skidway.broker.api.call import Call
    from skidway.broker.partitions.catalog import Partitions
    from skidway.broker.partitions.partition import Partition

NO_RECORDS = b""
NO_REPLICA = -1
TARGETS_AT_ONCE = 500
"""So many partitions are looked at in one go; of more, `TARGETS_PER_STEP` in a step."""

T = TypeVar("T")
"""A partition that is looked at."""
Found = TypeVar("Found")
"""What is said about one of them."""
Reply = TypeVar("Reply")
Position = TypeVar("Position", bound=FetchTarget)


class Reads(msgspec.Struct):
    """What all fetches of a node share."""

    partitions: Partitions
    parking: BytesParking[Partition]
    stable_parking: BytesParking[Partition]
    """For those who wait for the last stable offset instead of the high watermark."""
    slices: Slices
    limits: Limits
    on_damaged: Callable[[Partition, str], None]


class Poll(Generic[T, Found, Reply]):
    __slots__ = ("bytes_found", "call", "found", "min_bytes", "parked", "parking", "reads", "urgent", "wait_ms")

    def __init__(self, reads: Reads, call: Call, min_bytes: int, wait_ms: int) -> None:
        self.reads = reads
        self.call = call
        self.min_bytes = min_bytes
        self.wait_ms = wait_ms
        self.found: list[tuple[T, Found]] = []
        self.bytes_found = 0
        self.urgent = False
        """Whether there is something to say that should not wait."""
        self.parked: ParkedBytes[Partition] | None = None
        self.parking = reads.parking

    # --- what kinds of fetches differ in ---

    def targets(self) -> list[T]:
        raise NotImplementedError

    def look_at(self, target: T) -> Found | None:
        """None: nothing to say. Counts `bytes_found`, sets `urgent`, raises what the partition is refused with."""
        raise NotImplementedError

    def partition_of(self, target: T) -> Partition:
        raise NotImplementedError

    def refusal(self, target: T, error: ProtocolError) -> Found:
        raise NotImplementedError

    def reply(self) -> Steps[Reply]:
        raise NotImplementedError

    def error_reply(self, error: ProtocolError) -> Reply:
        raise NotImplementedError

    def must_wait(self) -> bool:
        return not self.urgent and self.bytes_found < self.min_bytes and self.wait_ms > 0

    def awaited(self) -> Sequence[Partition]:
        """Partitions whose bytes it waits for; none when its kind counts them itself. Raises what one is refused with
        that is not here any more."""
        raise NotImplementedError

    def on_parked(self) -> None:
        """It waits from now on."""

    def on_resumed(self) -> None:
        """Its wait is over; it looks once more."""

    def on_abandoned(self) -> None:
        """Its caller hung up before it was answered."""

    # --- what they have in common ---

    def answer(self, prepared: Iterable[Wanted], size: int) -> Reply | Steps[Reply | None] | None:
        """The reply, or None: then it comes when there is enough, or at the deadline. In steps, if `size` partitions
        are many. What is `prepared` comes before the first look."""
        steps = self._run(prepared)
        return at_once(steps) if size <= TARGETS_AT_ONCE else steps

    def _run(self, prepared: Iterable[Wanted]) -> Steps[Reply | None]:
        try:
            yield from prepared
            targets = self.targets()
            if targets:
                yield from self._look(targets)
            while self.must_wait():
                try:
                    awaited = self.awaited()
                except ProtocolError:
                    # One is gone since it was looked at: that is news.
                    yield from self._look(targets)
                else:
                    break
            else:
                return (yield from self.reply())
        except ProtocolError as error:
            return self.error_reply(error)
        except GeneratorExit:
            self.on_abandoned()
            raise
        self._park(awaited)
        return None

    def _look(self, targets: list[T]) -> Iterable[Wanted]:
        """In steps, if they are many."""
        self.found = []
        self.bytes_found = 0
        self.urgent = False
        if len(targets) > TARGETS_PER_STEP:
            return self._look_in_steps(targets)
        self._look_at_each(targets)
        return ()

    def _look_in_steps(self, targets: list[T]) -> Steps[None]:
        for start in range(0, len(targets), TARGETS_PER_STEP):
            self._look_at_each(targets[start : start + TARGETS_PER_STEP])
            yield None

    def _look_at_each(self, targets: list[T]) -> None:
        for target in targets:
            try:
                found = self.look_at(target)
            except ProtocolError as error:
                if isinstance(error, DamagedLog):
                    self.reads.on_damaged(self.partition_of(target), str(error))
                found = self.refusal(target, error)
                self.urgent = True
            if found is not None:
                self.found.append((target, found))

    def _park(self, awaited: Sequence[Partition]) -> None:
        call = self.call
        missing_bytes = self.min_bytes - self.bytes_found
        # Looked for again; thousands of long polls wait at a time.
        self.found = []
        self.parked = self.parking.park(awaited, missing_bytes, call.now_ms + self.wait_ms, self._resume)
        self.on_parked()
        call.on_gone = self._give_up

    def _give_up(self) -> None:
        if self.parked is not None:
            self.parking.cancel(self.parked)
        self.on_abandoned()

    def _resume(self) -> None:
        self.on_resumed()
        targets = self.targets()
        steps = self._run_again(targets)
        if len(targets) > TARGETS_AT_ONCE:
            answer_later(self.reads.slices, self.call, steps)
            return
        try:
            reply = at_once(steps)
        except Exception as bug:
            self.call.fail(bug)
            return
        self.call.reply(reply)

    def _run_again(self, targets: list[T]) -> Steps[Reply]:
        try:
            yield from self._look(targets)
            return (yield from self.reply())
        except GeneratorExit:
            self.on_abandoned()
            raise


class Fetches(Protocol):
    """One kind of those that send Fetch."""

    reads: Reads


class FetchPoll(Poll[Position, PartitionData, FetchResponse]):
    """A Fetch."""

    __slots__ = ("fetches", "find", "incremental", "max_bytes", "session")

    def __init__(self, fetches: Fetches, call: Call, request: FetchRequest, session: Session[Position]) -> None:
        reads = fetches.reads
        limits = reads.limits
        self.fetches = fetches
        super().__init__(reads, call, request.min_bytes, min(request.max_wait_ms, limits.fetch_wait_ms_max))
        self.max_bytes = min(request.max_bytes, limits.fetch_bytes_max)
        self.session = session
        self.incremental = request.session_epoch not in FULL_EPOCHS
        partitions = reads.partitions
        self.find: Callable[[Any, int], Partition] = partitions.find_by_id if session.by_id else partitions.find

    def partition_of(self, target: Position) -> Partition:
        return self.find(target.topic, target.index)

    def on_refusal(self, target: Position, data: PartitionData, response: FetchResponse) -> None:
        """An error that is about to be told."""

    def error_reply(self, error: ProtocolError) -> FetchResponse:
        return FetchResponse(error_code=error.code)

    def reply(self) -> Steps[FetchResponse]:
        session, incremental = self.session, self.incremental
        row = session.row
        topics: list[FetchableTopicResponse] = []
        response = FetchResponse(error_code=0, session_id=session.id, responses=topics)
        topic: TopicKey | None = None
        for number, (target, data) in enumerate(self.found, 1):
            if not number % TARGETS_PER_STEP:
                yield None
            if incremental and not is_news(target, data):
                continue
            if data.error_code or data.diverging_epoch.epoch >= 0:
                # The reader may take no notice of the rest, so the next answer is news whatever it says.
                target.told_high_watermark = target.told_start_offset = -1
            else:
                target.told_high_watermark = data.high_watermark
                target.told_start_offset = data.log_start_offset
                key = target.key
                # Unless a later request has taken it out while this one waited.
                if data.records is not NO_RECORDS and key in row and row[key] is target:
                    del row[key]
                    row[key] = target
            if target.topic != topic:
                topic = target.topic
                told = FetchableTopicResponse(partitions=[])
                if isinstance(topic, bytes):
                    told.topic_id = topic
                else:
                    told.topic = topic
                topics.append(told)
            if data.error_code:
                self.on_refusal(target, data, response)
            topics[-1].partitions.append(data)
        return response


def is_news(target: FetchTarget, data: PartitionData) -> bool:
    """Whether an incremental reply must mention the partition."""
    return (
        data.records is not NO_RECORDS
        or data.error_code != 0
        or data.high_watermark != target.told_high_watermark
        or data.log_start_offset != target.told_start_offset
        or data.diverging_epoch.epoch >= 0
        or data.preferred_read_replica != NO_REPLICA
    )
