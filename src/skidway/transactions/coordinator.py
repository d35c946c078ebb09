"""One partition's transaction coordinator: a decide/apply machine over the records of `__transaction_state`.

What it decides about a transaction's end is committed before anything leaves for the transaction's partitions: markers
are effects. Which partitions have their marker is not recorded; after a load all get one again, and a second one does
no harm. What the producer was before its last change of epoch (KIP-360) is not recorded either: a producer that asks
again after a load is fenced, as in Kafka.

Where Kafka 4.4 decides otherwise, on purpose:
- A producer that comes back (KIP-360) is fenced by its epoch before its successor's open transaction is touched. Kafka
  looks at the producer id alone, so a zombie can abort it.
- After a newcomer has aborted a transaction, nobody gets the abort's epoch by InitProducerId.
- A producer that has not heard its new epoch gets it again, however often, until somebody begins a transaction in it.
  In Kafka a new producer id is told again once, and a new epoch also after a transaction in it.
- AddPartitions without partitions begins nothing.
- An abort of nothing is complete in the same decision.
- Transactions are committed together (CommitTogether): Kafka has no such thing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from skidway.errors import (
    ConcurrentTransactions,
    CoordinatorNotAvailable,
    ErrorCode,
    InvalidProducerIdMapping,
    InvalidRequest,
    InvalidTransactionTimeout,
    ProducerFenced,
    TransactionalIdNotFound,
)
from skidway.runtime.replicated import Decision, Now, Operation, TimedMachine
from skidway.transactions.bounds import Bounds, Footprint, Usage
from skidway.transactions.ending import AnswerAgain, judge
from skidway.transactions.operations import (
    AddPartitions,
    CommitTogether,
    DescribeTransaction,
    Description,
    EndTransaction,
    InitProducer,
    ListIds,
    ListTransactions,
    MarkersWritten,
    Producer,
    Tick,
    TopicsDeleted,
    VerifyPartitions,
    WriteMarkers,
)
from skidway.transactions.records import BUMPING_VERSION, NAMES, TransactionRecord, status_of
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.together import judge_together
from skidway.transactions.transaction import (
    NO_EPOCH,
    NO_PRODUCER,
    Empty,
    Ended,
    Ending,
    Ongoing,
    Place,
    Transaction,
)

NEVER_MS = 1 << 60
NOT_ASKED = -1
AT_ONCE_MAX = 500
"""Records of one tick: transactions that timed out, ids that expired. The rest follows in the next one."""
PLACES_AT_ONCE_MAX = 20_000
"""Partitions in the records of one tick, so that they fit into one batch; one transaction may have more by itself."""

Decided = Decision[TransactionRecord, Any]


class Before(msgspec.Struct, frozen=True):
    """A note: what the producer of today was before. None: that was another producer, or it knows what it is now."""

    transactional_id: str
    producer: Producer | None


class MarkersAsked(msgspec.Struct, frozen=True):
    """A note: the effect with this number asks for the markers of a transaction that is ending."""

    transactional_id: str
    number: int


class Marked(msgspec.Struct, frozen=True):
    """A note: these partitions need no marker any more."""

    transactional_id: str
    places: frozenset[Place]


class Checked(msgspec.Struct, frozen=True):
    """A note: when time-outs, and when ages are to be looked at next."""

    timeouts_ms: int
    ages_ms: int


class Unmarked(msgspec.Struct):
    """Partitions that lack the marker of a transaction that is ending."""

    places: frozenset[Place]
    """Never none of them."""
    number: int = NOT_ASKED


class TransactionCoordinator(TimedMachine[TransactionRecord]):
    def __init__(
        self,
        settings: TransactionSettings,
        new_producer_id: Callable[[], int | None],
        numbers: Iterator[int],
        version: Callable[[], int] = lambda: BUMPING_VERSION,
        usage: Usage | None = None,
    ) -> None:
        """`new_producer_id` gives one that nobody has had, or None: there is none right now, but there will be.
        `numbers` of effects are never the same, also for the machine that takes this one's place. `version` is that
        of the cluster at the moment; what a client asks for goes by its own. `usage` is that of all coordinators of
        the node; None: there is no other."""
        self.settings = settings
        self.transactions: dict[str, Transaction] = {}
        self.footprint = Footprint()
        self._bounds = Bounds(settings, usage or self.footprint)
        self._new_producer_id = new_producer_id
        self._time_out_ms: dict[str, int] = {}
        """Of those under way: after which moment of the wall clock they are aborted."""
        self._numbers = numbers
        self._version = version
        self._unmarked: dict[str, Unmarked] = {}
        self._before: dict[str, Producer] = {}
        self._timeouts_due_ms = self._ages_due_ms = 0

    @property
    def deadline_ms(self) -> int:
        return min(self._timeouts_due_ms, self._ages_due_ms) if self.transactions else NEVER_MS

    # --- what records and notes change ---

    def apply(self, record: TransactionRecord) -> None:
        key, transaction = record.id, record.transaction
        self.footprint.replace(self.transactions.get(key), transaction)
        self._time_out_ms.pop(key, None)
        self._unmarked.pop(key, None)
        if transaction is None:
            self.transactions.pop(key, None)
            self._before.pop(key, None)
            return
        self.transactions[key] = transaction
        if isinstance(transaction.state, Ongoing):
            self._time_out_ms[key] = transaction.state.started_ms + transaction.timeout_ms
        elif isinstance(transaction.state, Ending):
            self._unmarked[key] = Unmarked(transaction.state.places)

    def note(self, note: Any) -> None:
        match note:
            case Before(key, None):
                self._before.pop(key, None)
            case Before(key, Producer() as producer):
                self._before[key] = producer
            case Marked(key, places):
                self._unmarked[key].places -= places
            case MarkersAsked(key, number):
                self._unmarked[key].number = number
            case Checked(timeouts_ms, ages_ms):
                self._timeouts_due_ms, self._ages_due_ms = timeouts_ms, ages_ms
            case _:
                raise AssertionError(f"unknown note {note}")

    def unfinished(self) -> list[Any]:
        for unmarked in self._unmarked.values():
            unmarked.number = next(self._numbers)
        return [
            _markers(self.transactions[key], unmarked.places, unmarked.number)
            for key, unmarked in self._unmarked.items()
        ]

    # --- decisions ---

    def decide(self, operation: Operation[Any], now: Now) -> Decided:
        match operation:
            case InitProducer():
                return self._init(operation, now)
            case AddPartitions():
                return self._add(operation, now)
            case VerifyPartitions():
                return self._verify(operation)
            case EndTransaction():
                return self._end(operation, now)
            case CommitTogether():
                return self._commit_together(operation, now)
            case MarkersWritten():
                return self._marked(operation, now)
            case TopicsDeleted():
                return self._topics_deleted(operation, now)
            case Tick():
                return self._tick(operation, now)
            case DescribeTransaction():
                return Decision([], self._describe(operation))
            case ListIds():
                return Decision([], list(self.transactions))
            case ListTransactions():
                return Decision([], _listed(self.transactions, operation, now.wall_ms))
            case _:
                raise AssertionError(f"unknown operation {operation}")

    def _init(self, asked: InitProducer, now: Now) -> Decided:
        if (asked.producer_id == NO_PRODUCER) != (asked.epoch == NO_EPOCH):
            raise InvalidRequest("a producer id without an epoch, or an epoch without a producer id")
        if not 0 < asked.timeout_ms <= self.settings.timeout_ms_max:
            raise InvalidTransactionTimeout(
                f"a time-out of {asked.timeout_ms} ms: it must be from 1 to {self.settings.timeout_ms_max} ms "
                "(transaction.max.timeout.ms)"
            )
        known = self.transactions.get(asked.transactional_id)
        if known is None:
            return self._init_first(asked, now)
        if isinstance(known.state, Ending):
            raise _still_ending(known)
        comes_back = asked.producer_id != NO_PRODUCER
        if comes_back and self._has_missed_answer(known, asked):
            again = known.taken_again(asked.timeout_ms, now.wall_ms)
            return Decision([_record(again)], Producer(again.producer_id, again.epoch))
        before = Before(known.id, Producer(known.producer_id, known.epoch) if comes_back else None)
        if isinstance(known.state, Ongoing):
            ending = self._begin_abort(known, now.wall_ms)
            busy = ConcurrentTransactions(f"the open transaction of {known.id} is aborted first: retry")
            return replace(ending, reply=busy, notes=[*ending.notes, before])
        producer_id = self._draw() if known.is_last_epoch else known.producer_id
        taken = known.taken(producer_id, asked.timeout_ms, now.wall_ms)
        return Decision([_record(taken)], Producer(taken.producer_id, taken.epoch), [before])

    def _init_first(self, asked: InitProducer, now: Now) -> Decided:
        self._bounds.check_new_id(asked.transactional_id, len(self.transactions))
        producer_id, epoch = self._draw(), self.settings.first_epoch
        first = Transaction(
            asked.transactional_id, producer_id, epoch, asked.timeout_ms, Empty(), now.wall_ms, producer_id
        )
        return Decision([_record(first)], Producer(producer_id, epoch))

    def _has_missed_answer(self, known: Transaction, asked: InitProducer) -> bool:
        """Of a producer that says who it was: whether it has not heard that it has another epoch; else it is up to
        date. Everybody else is fenced, before any transaction is touched."""
        said = Producer(asked.producer_id, asked.epoch)
        if said == Producer(known.producer_id, known.epoch):
            return False
        if said == self._before.get(known.id):
            return True
        raise ProducerFenced(f"another producer uses {known.id} now, with epoch {known.epoch}")

    def _add(self, asked: AddPartitions, now: Now) -> Decided:
        if (ending := self.transactions.get(asked.transactional_id)) and isinstance(ending.state, Ending):
            # Before all else: the producer id may be about to change, and the producer may know the new one already.
            raise _still_ending(ending)
        known = self._held_by(asked)
        places = frozenset(asked.places)
        if isinstance(known.state, Ongoing) and places <= known.state.places:
            return Decision([], None)
        before = known.state.places
        self._bounds.check_places(len(before), len(before | places))
        if not places:
            return Decision([], None)
        # Who begins a transaction knows its epoch. A call of before that, delivered late, is nobody's.
        return Decision([_record(known.with_places(places, asked.bumps, now.wall_ms))], None, [Before(known.id, None)])

    def _verify(self, asked: VerifyPartitions) -> Decided:
        known = self._held_by(asked)
        if isinstance(known.state, Ending):
            raise _still_ending(known)
        fine, unknown = ErrorCode.NONE, ErrorCode.TRANSACTION_ABORTABLE
        places = known.places
        return Decision([], [fine if place in places else unknown for place in asked.places])

    def _held_by(self, asked: AddPartitions | VerifyPartitions) -> Transaction:
        known = self.transactions.get(asked.transactional_id)
        if known is None or known.producer_id != asked.producer_id:
            raise InvalidProducerIdMapping(
                f"{asked.transactional_id} does not belong to producer id {asked.producer_id}: initialise it again"
            )
        if known.epoch != asked.epoch:
            raise ProducerFenced(f"{known.id} has epoch {known.epoch} now, not {asked.epoch}")
        return known

    def _end(self, asked: EndTransaction, now: Now) -> Decided:
        known = self.transactions.get(asked.transactional_id)
        if known is None:
            raise InvalidProducerIdMapping(f"{asked.transactional_id} is not known here: initialise it again")
        if isinstance(judge(known, asked), AnswerAgain):
            return Decision([], Producer(known.producer_id, known.epoch))
        return self._begin_end(known, commit=asked.commit, bumps=asked.bumps, wall_ms=now.wall_ms)

    def _commit_together(self, asked: CommitTogether, now: Now) -> Decided:
        verdict = judge_together(self.transactions, asked.participants, self._version())
        known = [self.transactions[each.transactional_id] for each in asked.participants]
        if isinstance(verdict, AnswerAgain):
            return Decision([], [Producer(*each.successor) for each in known])
        self._bounds.check_together(known)
        decision: Decided = Decision([], [])
        for each in known:
            one = self._begin_end(each, commit=True, bumps=True, wall_ms=now.wall_ms)
            decision.records += one.records
            decision.effects += one.effects
            decision.notes += one.notes
            decision.reply.append(one.reply)
        return decision

    def _begin_abort(self, known: Transaction, wall_ms: int) -> Decided:
        """Which its producer did not ask for, and hears of by being fenced: the epoch grows whatever the version."""
        if self._version() >= BUMPING_VERSION:
            return self._begin_end(known, commit=False, bumps=True, wall_ms=wall_ms)
        return self._begin_end(known.fenced(), commit=False, bumps=False, wall_ms=wall_ms)

    def _begin_end(self, known: Transaction, *, commit: bool, bumps: bool, wall_ms: int) -> Decided:
        next_producer_id = self._draw() if bumps and known.is_last_epoch else NO_PRODUCER
        ending = known.ending(commit=commit, bumps=bumps, next_producer_id=next_producer_id, wall_ms=wall_ms)
        decision: Decided = Decision([_record(ending)], Producer(*ending.successor))
        if bumps:
            # Whether it has heard of its new epoch or not, the producer may ask for it.
            decision.notes.append(Before(known.id, Producer(known.producer_id, known.epoch)))
        if places := ending.state.places:
            number = next(self._numbers)
            decision.effects.append(_markers(ending, places, number))
            decision.notes.append(MarkersAsked(known.id, number))
        else:
            decision.records.append(_record(ending.ended(wall_ms)))
        return decision

    def _marked(self, asked: MarkersWritten, now: Now) -> Decided:
        unmarked = self._unmarked.get(asked.transactional_id)
        if unmarked is None or unmarked.number != asked.number:  # an answer about an earlier transaction
            return Decision([], None)
        return self._without(asked.transactional_id, frozenset(asked.places), now)

    def _without(self, key: str, places: frozenset[Place], now: Now) -> Decided:
        if self._unmarked[key].places <= places:
            return Decision([_record(self.transactions[key].ended(now.wall_ms))], None)
        return Decision([], None, [Marked(key, places)])

    def _topics_deleted(self, asked: TopicsDeleted, now: Now) -> Decided:
        gone = frozenset(asked.topics)
        decision: Decided = Decision([], None)
        if not gone:
            return decision  # topics came or changed
        for key, unmarked in self._unmarked.items():
            if len(decision.records) >= AT_ONCE_MAX:
                break  # whoever sends markers finds out by itself, a little later
            places = frozenset(place for place in unmarked.places if place[0] in gone)
            if places:
                one = self._without(key, places, now)
                decision.records += one.records
                decision.notes += one.notes
        return decision

    # --- time ---

    def _tick(self, tick: Tick, now: Now) -> Decided:
        decision: Decided = Decision([], None)
        timeouts_ms = ages_ms = now.monotonic_ms
        if not self._abort_late(decision, now):
            timeouts_ms += self.settings.timeout_check_ms
        if now.monotonic_ms < self._ages_due_ms:
            ages_ms = self._ages_due_ms
        elif not self._forget_old(decision, tick.age_wall_ms):
            ages_ms += self.settings.id_expiration_check_ms
        decision.notes.append(Checked(timeouts_ms, ages_ms))
        return decision

    def _abort_late(self, decision: Decided, now: Now) -> bool:
        """Whether some are left for the next tick."""
        places_count = 0
        for known in (self.transactions[key] for key, at_ms in self._time_out_ms.items() if at_ms < now.wall_ms):
            places_count += len(known.places)
            if len(decision.records) >= AT_ONCE_MAX or (decision.records and places_count > PLACES_AT_ONCE_MAX):
                return True
            try:
                one = self._begin_abort(known, now.wall_ms)
            except CoordinatorNotAvailable:
                continue  # no producer id right now: looked at again
            decision.records += one.records
            decision.effects += one.effects
            decision.notes += one.notes
        return False

    def _forget_old(self, decision: Decided, age_wall_ms: int) -> bool:
        """Whether some are left for the next tick."""
        last_ms = age_wall_ms - self.settings.id_expiration_ms
        for key, known in self.transactions.items():
            if known.updated_ms <= last_ms and isinstance(known.state, Empty | Ended):
                if len(decision.records) >= AT_ONCE_MAX:
                    return True
                decision.records.append(TransactionRecord(key, None))
        return False

    # --- what admins ask ---

    def _describe(self, asked: DescribeTransaction) -> Description:
        if (known := self.transactions.get(asked.transactional_id)) is None:
            raise TransactionalIdNotFound(f"{asked.transactional_id} is not known")
        unmarked = self._unmarked.get(known.id)
        return _description(known, sorted(known.places if unmarked is None else unmarked.places))

    def _draw(self) -> int:
        producer_id = self._new_producer_id()
        if producer_id is None:
            raise CoordinatorNotAvailable("this node has no producer ids left and asks the controller for more: retry")
        return producer_id


def _still_ending(known: Transaction) -> ConcurrentTransactions:
    return ConcurrentTransactions(f"the last transaction of {known.id} is still ending: retry")


def _record(transaction: Transaction) -> TransactionRecord:
    return TransactionRecord(transaction.id, transaction)


def _markers(ending: Transaction, places: frozenset[Place], number: int) -> WriteMarkers:
    state = ending.state
    assert isinstance(state, Ending), "only what is ending gets markers"
    return WriteMarkers(ending.id, number, ending.producer_id, ending.epoch, state.commit, ending.bumps, places)


def _description(known: Transaction, places: Sequence[Place] = ()) -> Description:
    state = NAMES[status_of(known.state)]
    return Description(known.id, known.producer_id, known.epoch, state, known.timeout_ms, known.started_ms, [*places])


def _listed(transactions: Mapping[str, Transaction], asked: ListTransactions, wall_ms: int) -> list[Description]:
    ids = transactions if asked.ids is None else asked.ids
    some = filter(None, map(transactions.get, ids))
    return [_description(known) for known in some if _passes(known, asked, wall_ms)]


def _passes(known: Transaction, asked: ListTransactions, wall_ms: int) -> bool:
    if asked.states and NAMES[status_of(known.state)] not in asked.states:
        return False
    if asked.producer_ids and known.producer_id not in asked.producer_ids:
        return False
    if 0 <= asked.running_longer_than_ms >= wall_ms - known.started_ms:
        return False
    return asked.matches is None or asked.matches(known.id)
