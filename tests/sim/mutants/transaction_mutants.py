"""Mistakes about transactions that Kafka and its relatives have made: coordinators, markers, partitions, offsets."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from skidway.broker.coordinators.marker_sender import MarkerSender, Task
from skidway.broker.coordinators.markers import MarkerWriter
from skidway.broker.reads import consumers
from skidway.errors import ErrorCode, InvalidProducerEpoch
from skidway.groups.offsets import Offsets
from skidway.log import markers
from skidway.log.aborted import AbortedIndex, AbortedRange
from skidway.log.bounds import Bound
from skidway.log.open_transactions import OpenTransactions
from skidway.log.producers import Producers
from skidway.log.segment import Segment
from skidway.records.control import EndTransaction as Marker
from skidway.runtime.replicated import Now, Operation, Replicated
from skidway.transactions.coordinator import TransactionCoordinator
from skidway.transactions.operations import AddPartitions, EndTransaction, Tick
from skidway.transactions.transaction import Place, Transaction
from values import replace

Decide = Callable[[Operation[Any], Now], Any]


def _deciding(change: Callable[[Any, Operation[Any], Any], Any]) -> Any:
    """`submit` of a host whose machine decides otherwise. `change` gets the host, the operation and the decision."""
    original = Replicated.submit

    def submit(self: Any, operation: Operation[Any], now: Now, respond: Callable[[Any], None]) -> None:
        machine = self.machine
        if not isinstance(machine, TransactionCoordinator):
            original(self, operation, now, respond)
            return
        decide = type(machine).decide

        def otherwise(each: Operation[Any], at: Now) -> Any:
            return change(self, each, decide(machine, each, at))

        vars(machine)["decide"] = otherwise
        try:
            original(self, operation, now, respond)
        finally:
            vars(machine).pop("decide", None)

    return patch.object(Replicated, "submit", submit)


@contextmanager
def markers_before_commit() -> Iterator[None]:
    """Markers are sent when the decision is appended, not when it is committed."""

    def change(host: Any, operation: Operation[Any], decision: Any) -> Any:
        for effect in decision.effects:
            host._perform(effect)
        return replace(decision, effects=[])

    with _deciding(change):
        yield


@contextmanager
def ends_answered_before_commit() -> Iterator[None]:
    """EndTxn is answered when the decision is appended."""
    original = Replicated.submit

    def submit(self: Any, operation: Operation[Any], now: Now, respond: Callable[[Any], None]) -> None:
        if not isinstance(operation, EndTransaction):
            original(self, operation, now, respond)
            return
        told: list[Any] = []

        def once(reply: Any) -> None:
            if not told:
                told.append(reply)
                respond(reply)

        original(self, operation, now, once)
        if self.parked and not told:
            last = self.parked[-1]
            last.replies[0][0](last.replies[0][1])

    with patch.object(Replicated, "submit", submit):
        yield


@contextmanager
def ends_do_not_bump() -> Iterator[None]:
    """An EndTxn that comes late ends the next transaction (KAFKA-17754)."""
    original = TransactionCoordinator.decide

    def decide(self: TransactionCoordinator, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, EndTransaction):
            operation = replace(operation, bumps=False)
        return original(self, operation, now)

    with patch.object(TransactionCoordinator, "decide", decide):
        yield


def _markers_judged(judge: Callable[[Any, int, int, Marker, int], None]) -> Any:
    return patch.object(Producers, "check_marker", judge)


@contextmanager
def repeated_markers_refused() -> Iterator[None]:
    """A marker that is written again is refused, and its coordinator gives up (KAFKA-19999)."""
    original = Producers.check_marker

    def check(self: Producers, producer_id: int, epoch: int, marker: Marker, version: int) -> None:
        original(self, producer_id, epoch, marker, version)
        known = self.entries.get(producer_id)
        if known is not None and version >= 2 and epoch == known.epoch and known.transaction_start < 0:
            raise InvalidProducerEpoch("again")

    with _markers_judged(check):
        yield


@contextmanager
def loads_send_no_markers() -> Iterator[None]:
    """After a load nobody completes what was ending."""
    original = TransactionCoordinator.unfinished

    def unfinished(self: TransactionCoordinator) -> list[Any]:
        original(self)
        return []

    with patch.object(TransactionCoordinator, "unfinished", unfinished):
        yield


@contextmanager
def errors_taken_for_markers() -> Iterator[None]:
    """A partition that does not take its marker counts as done."""
    original = MarkerSender._on_code

    def on_code(self: MarkerSender, task: Task, places: Sequence[Place], code: int) -> None:
        original(self, task, places, ErrorCode.NONE)

    with patch.object(MarkerSender, "_on_code", on_code):
        yield


@contextmanager
def stable_before_marker_commits() -> Iterator[None]:
    """The last stable offset does not wait until the marker is committed."""

    def end(self: OpenTransactions, producer_id: int, marker_offset: int) -> int:
        del self._open[producer_id]
        self._place()
        return next(iter(self._open.values()), marker_offset + 1)

    with patch.object(OpenTransactions, "end", end):
        yield


@contextmanager
def aborted_lost_at_start() -> Iterator[None]:
    """Which transactions were aborted is not known after a start."""
    with patch.object(AbortedIndex, "from_bytes", lambda data, base_offset: AbortedIndex()):
        yield


@contextmanager
def aborted_of_first_segment() -> Iterator[None]:
    """Aborted transactions are looked for in the segment of their records alone."""
    original = markers.find_aborted

    def find(segments: Sequence[Segment], from_offset: int, upto_offset: int) -> list[AbortedRange]:
        first = [each for each in segments if each.base_offset <= from_offset][-1:]
        return original(first or segments[:1], from_offset, upto_offset)

    with patch.object(markers, "find_aborted", find):
        yield


@contextmanager
def offsets_count_at_once() -> Iterator[None]:
    """Offsets of a transaction count before it is committed."""
    original = Offsets.apply

    def apply(self: Offsets, key: Any, value: Any, producer: Any = None) -> None:
        original(self, key, value)

    with patch.object(Offsets, "apply", apply):
        yield


@contextmanager
def offsets_never_told() -> Iterator[None]:
    """A marker is answered, and offsets have not moved."""
    original = MarkerWriter.write

    def write(self: MarkerWriter, *given: Any) -> None:
        self.through.clear()
        original(self, *given)

    with patch.object(MarkerWriter, "write", write):
        yield


@contextmanager
def ends_bump_twice() -> Iterator[None]:
    """An abort by the coordinator takes two epochs (KAFKA-19367)."""
    original = Transaction.ending

    def end(self: Transaction, **given: Any) -> Transaction:
        ended = original(self, **given)
        return ended if given["commit"] else replace(ended, epoch=ended.epoch + 1)

    with patch.object(Transaction, "ending", end):
        yield


@contextmanager
def time_outs_do_not_bump() -> Iterator[None]:
    """After a time-out the producer goes on in the same epoch."""
    decide, begin_end = TransactionCoordinator.decide, TransactionCoordinator._begin_end
    ticking: list[bool] = []

    def decide_so(self: TransactionCoordinator, operation: Operation[Any], now: Now) -> Any:
        ticking.append(isinstance(operation, Tick))
        try:
            return decide(self, operation, now)
        finally:
            ticking.pop()

    def begin(self: TransactionCoordinator, known: Transaction, **given: Any) -> Any:
        if ticking and ticking[-1]:
            given["bumps"] = False
        return begin_end(self, known, **given)

    with (
        patch.object(TransactionCoordinator, "decide", decide_so),
        patch.object(TransactionCoordinator, "_begin_end", begin),
    ):
        yield


@contextmanager
def newcomers_do_not_bump() -> Iterator[None]:
    """A producer that takes an id gets the epoch of the one before."""
    original = Transaction.taken

    def taken(self: Transaction, producer_id: int, timeout_ms: int, wall_ms: int) -> Transaction:
        return replace(original(self, producer_id, timeout_ms, wall_ms), epoch=self.epoch)

    with patch.object(Transaction, "taken", taken):
        yield


@contextmanager
def transactions_begin_in_memory() -> Iterator[None]:
    """That a partition takes part is not stored (Redpanda #6019)."""

    def change(host: Any, operation: Operation[Any], decision: Any) -> Any:
        if not isinstance(operation, AddPartitions):
            return decision
        for record in decision.records:
            host.machine.apply(record)
        return replace(decision, records=[])

    with _deciding(change):
        yield


@contextmanager
def committed_readers_get_everything() -> Iterator[None]:
    """Who reads what is committed is served up to the high watermark."""
    with patch.object(consumers, "bound_of", lambda isolation_level: Bound.HIGH_WATERMARK):
        yield
