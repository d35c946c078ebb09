"""Host for decide/apply machines: the controller and the coordinators.

A machine decides without changing anything, and changes only by applying records:

    decide(operation, now) -> Decision(records, reply, notes, answers, effects)
    apply(record) -> None
    note(note) -> None
    unfinished() -> effects

Records of one decision are appended as one unit and applied at once, so the next decision sees them. The reply waits
until the store has committed them; a decision without records may have seen uncommitted state and waits as well.
Just before a reply, its records are handed to `publish`: what the rest of the node may act on. Nothing is applied
before it is appended, so an append that fails and leaves the store as it was changes nothing. If the store is another
one by then, the state is thrown away and rebuilt: slower than undoing, but there is no undo to get wrong.

Some machines also know things that are not worth a record: who waits, who was heard of when. Notes are how a
decision changes those; they are noted after the records are applied and are gone after a reload. A decision may leave
its call unanswered for now (the reply is PARKED); a later decision answers it by naming the operation. A reload
forgets what the machine knew of parked calls, so all of them are answered with the error.

Effects are what a decision has done elsewhere (a marker written to another partition): the host's `perform` gets them
after the decision's records are committed, never before, and what comes of an effect is submitted as another operation.
When a machine is loaded, its `unfinished` effects are performed after everything it loaded is committed. So an effect
happens at least once, whatever fails in between: performing one twice must do no harm.
"""

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec import Struct

from skidway.errors import ProtocolError, StorageError

Record = TypeVar("Record")
StoredRecord = TypeVar("StoredRecord")
Reply = TypeVar("Reply")


LOAD_RECORDS = 1000
"""So many are applied in one go where a host is loaded bit by bit: some ten milliseconds' worth."""


class Now(NamedTuple):
    """When something is decided, by both clocks. Machines have none of their own."""

    monotonic_ms: int
    """For what lasts: sessions, deadlines."""
    wall_ms: int
    """For what is written down and read by people, or survives a restart."""


class Operation(Struct, Generic[Reply]):
    """What a machine is asked to do; the parameter is the type of the answer."""


class Parking(Enum):
    PARKED = "parked"


PARKED = Parking.PARKED
"""The reply of a decision whose caller has to wait for another decision."""


class Decision(msgspec.Struct, Generic[Record, Reply]):
    records: list[Record]
    reply: Reply
    notes: list[Any] = msgspec.field(default_factory=list)
    """Changes of what the machine knows beside its records, in order."""
    answers: list[tuple[Operation[Any], Any]] = msgspec.field(default_factory=list)
    """For calls parked by earlier decisions, or by this one: the operation as it was submitted, and the reply."""
    effects: list[Any] = msgspec.field(default_factory=list)
    """What is to be done elsewhere once the records are committed, in order."""


class Machine(ABC, Generic[Record]):
    @abstractmethod
    def decide(self, operation: Operation[Any], now: Now) -> Decision[Record, Any]:
        """Changes nothing. Raises ProtocolError when the operation is refused as a whole."""

    @abstractmethod
    def apply(self, record: Record) -> None:
        """The only mutator of what records say. Never fails, never looks at the time."""

    def note(self, note: Any) -> None:
        """Changes what no record says. Never fails, never looks at the time."""
        raise AssertionError(f"a machine that takes no notes decided on {note}")

    def unfinished(self) -> list[Any]:
        """Effects of records applied so far that may not have happened: asked once, after loading."""
        return []


class TimedMachine(Machine[Record]):
    @property
    @abstractmethod
    def deadline_ms(self) -> int:
        """When it wants to be ticked, on the monotonic clock. A tick before that does no harm."""


class Store(Protocol[StoredRecord]):
    """The log the records live in."""

    def append(self, records: Sequence[StoredRecord], now_ms: int) -> int:
        """All or nothing; returns the new end offset. Raises StorageError, or what is wrong with the records."""
        ...

    def read_all(self) -> Iterable[StoredRecord]: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...


class _Parked(Struct, Generic[Record]):
    end_offset: int
    records: Sequence[Record]
    replies: list[tuple[Callable[[Any], None], Any]]
    effects: Sequence[Any] = ()
    since_ms: int = 0
    """When it was submitted; only where there are replies."""


AnyMachine = TypeVar("AnyMachine", bound=Machine[Any])


class Replicated(Generic[AnyMachine, Record]):
    def __init__(
        self,
        new_machine: Callable[[], AnyMachine],
        store: Store[Record],
        publish: Callable[[Sequence[Record]], None] | None = None,
        *,
        whole: bool = True,
        perform: Callable[[Any], None] | None = None,
    ) -> None:
        """Not `whole`: `load_some` has to be called until all is loaded, and nothing is submitted before. `perform`
        starts an effect; it may submit operations at once or later."""
        self._new_machine = new_machine
        self._store = store
        self._publish = publish
        self._perform = perform or _refuse_effect
        self.parked: deque[_Parked[Record]] = deque()
        """What waits for a commit."""
        self._held: dict[int, tuple[Operation[Any], Callable[[Any], None]]] = {}
        self.unusable: ProtocolError | None = None
        """Why nothing is decided here any more: another host has taken over, or the store cannot be read."""
        self.is_late = False
        """Whether somebody was told that a commit takes too long, and nothing was committed since."""
        self._begin_load()
        while whole and not self.load_some():
            pass

    @property
    def held_count(self) -> int:
        """Calls that wait for another call, not for a commit."""
        return len(self._held)

    def load_some(self) -> bool:
        """Apply some of what is stored; true when that was the rest. StorageError when it cannot be read."""
        if not self._apply_some():
            return False
        self.parked.append(_Parked(self._end_offset, self._loaded, [], self.machine.unfinished()))
        self.on_committed(self._store.committed_offset)
        return True

    def submit(self, operation: Operation[Reply], now: Now, respond: Callable[[Reply | ProtocolError], None]) -> None:
        """`respond` is called exactly once: with the reply when it is committed, or with the error."""
        if self.unusable is not None:
            respond(self.unusable)
            return
        try:
            decision = self.machine.decide(operation, now)
        except ProtocolError as refusal:
            # Its traceback refers to this call, which refers to it: a ring that only the garbage collector would free.
            decision = Decision([], refusal.with_traceback(None))
        if decision.records:
            try:
                self._end_offset = self._store.append(decision.records, now.monotonic_ms)
            except StorageError as error:
                respond(error)
                if self._store.end_offset != self._end_offset:
                    self._reload(error)
                return
            except ProtocolError as refusal:
                # Nothing was written and nothing is wrong with the store: these records are too large for it.
                respond(refusal)
                return
            for record in decision.records:
                self.machine.apply(record)
        for note in decision.notes:
            self.machine.note(note)
        if decision.reply is PARKED and not (decision.records or decision.answers or decision.effects):
            self._held[id(operation)] = (operation, respond)
            return
        if decision.reply is PARKED or decision.answers:
            replies = self._replies(operation, decision, respond)
        else:
            replies = [(respond, decision.reply)]
        self.parked.append(_Parked(self._end_offset, decision.records, replies, decision.effects, now.monotonic_ms))
        self.on_committed(self._store.committed_offset)

    def _replies(
        self, operation: Operation[Any], decision: Decision[Record, Any], respond: Callable[[Any], None]
    ) -> list[tuple[Callable[[Any], None], Any]]:
        replies: list[tuple[Callable[[Any], None], Any]] = []
        if decision.reply is PARKED:
            self._held[id(operation)] = (operation, respond)
        else:
            replies.append((respond, decision.reply))
        for answered, reply in decision.answers:
            _, respond_then = self._held.pop(id(answered))
            replies.append((respond_then, reply))
        return replies

    def on_committed(self, offset: int) -> None:
        """The store has committed everything below `offset`."""
        parked = self.parked
        while parked and parked[0].end_offset <= offset:
            entry = parked.popleft()
            self.is_late = False
            if entry.records and self._publish is not None:
                self._publish(entry.records)
            for respond, reply in entry.replies:
                respond(reply)
            for effect in entry.effects:
                self._perform(effect)

    def give_up(self, since_ms: int, error: ProtocolError) -> int | None:
        """Answer those that have waited for a commit since then or longer with the error: what they asked for may
        still be committed, and its effects follow then. Returns since when the first of the others waits, if any."""
        told: list[Callable[[Any], None]] = []
        for entry in self.parked:
            if entry.since_ms <= since_ms:
                told += [respond for respond, _ in entry.replies]
                entry.replies = []
        self.is_late = self.is_late or bool(told)
        self.parked = deque(entry for entry in self.parked if entry.records or entry.effects or entry.replies)
        others = next((entry.since_ms for entry in self.parked if entry.replies), None)
        for respond in told:
            respond(error)
        return others

    def on_lost(self, error: ProtocolError) -> None:
        """Leadership or the disk is gone: what waits will not be committed by us. The fate of its records is
        unknown until the store is read again, so whoever follows `publish` has to start over as well."""
        parked, self.parked = self.parked, deque()
        self._reload(error)
        _tell(parked, error)

    def close(self, error: ProtocolError) -> None:
        """Another host has taken over: nothing that waits is answered as if it were committed, and nothing more is
        decided here."""
        self.unusable = error
        parked, self.parked = self.parked, deque()
        held, self._held = self._held, {}
        _tell(parked, error)
        for _, respond in held.values():
            respond(error)

    def _begin_load(self) -> None:
        self.machine = self._new_machine()
        """With everything appended, committed or not: for decisions, not for answering clients."""
        self._loaded: list[Record] = []
        self._unread: Iterator[Record] = iter(self._store.read_all())

    def _apply_some(self) -> bool:
        count = 0
        for record in islice(self._unread, LOAD_RECORDS):
            count += 1
            self.machine.apply(record)
            if self._publish is not None:
                self._loaded.append(record)
        self._end_offset = self._store.end_offset
        return count < LOAD_RECORDS

    def _reload(self, cause: ProtocolError) -> None:
        held, self._held = self._held, {}
        try:
            self._begin_load()
            while not self._apply_some():
                pass
        except StorageError as error:
            self.unusable = error
            lost: Iterable[_Parked[Record]] = list(self.parked)
            self.parked.clear()
        else:
            # What was appended before the failure is still in the log: its replies go on waiting. Effects that were to
            # follow are unfinished in the machine that has read it again.
            lost = [entry for entry in self.parked if entry.end_offset > self._end_offset]
            self.parked = deque(
                _Parked(entry.end_offset, entry.records, entry.replies, since_ms=entry.since_ms)
                for entry in self.parked
                if entry.end_offset <= self._end_offset
            )
            if unfinished := self.machine.unfinished():
                self.parked.append(_Parked(self._end_offset, [], [], unfinished))
        _tell(lost, self.unusable or StorageError("The records of this change were lost."))
        for _, respond in held.values():
            respond(cause)
        if self.unusable is None:
            self.on_committed(self._store.committed_offset)


def _refuse_effect(effect: Any) -> None:
    raise AssertionError(f"a host that performs no effects got {effect}")


def _tell(entries: Iterable[_Parked[Any]], error: ProtocolError) -> None:
    for entry in entries:
        for respond, _ in entry.replies:
            respond(error)
