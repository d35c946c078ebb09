"""Host for decide/apply machines: the controller now, the coordinators later.

A machine decides without changing anything, and changes only by applying records:

    decide(operation, now_ms) -> Decision(records, reply)
    apply(record) -> None

Records of one decision are appended as one unit and applied at once, so the next decision sees them. The reply waits
until the store has committed them; a decision without records may have seen uncommitted state and waits as well.
Just before a reply, its records are handed to `publish`: what the rest of the node may act on. When an append fails
the state is thrown away and rebuilt from the store: slower than undoing, but there is no undo to get wrong.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from skidway.errors import ProtocolError, StorageError

Record = TypeVar("Record")
StoredRecord = TypeVar("StoredRecord")
Reply = TypeVar("Reply")


class Operation(Generic[Reply]):
    """What a machine is asked to do; the parameter is the type of the answer."""

    __slots__ = ()


@dataclass(slots=True)
class Decision(Generic[Record, Reply]):
    records: list[Record]
    reply: Reply


class Machine(Protocol[Record]):
    def decide(self, operation: Operation[Any], now_ms: int) -> Decision[Record, Any]:
        """Changes nothing. Raises ProtocolError when the operation is refused as a whole."""
        ...

    def apply(self, record: Record) -> None:
        """The only mutator. Never fails, never looks at the time."""
        ...


class Store(Protocol[StoredRecord]):
    """The log the records live in."""

    def append(self, records: Sequence[StoredRecord], now_ms: int) -> int:
        """All or nothing; returns the new end offset. Raises StorageError."""
        ...

    def read_all(self) -> Iterable[StoredRecord]: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def committed_offset(self) -> int: ...


@dataclass(slots=True)
class _Parked(Generic[Record]):
    end_offset: int
    records: Sequence[Record]
    reply: Any
    respond: Callable[[Any], None] = field(repr=False)


AnyMachine = TypeVar("AnyMachine", bound=Machine[Any])


class Replicated(Generic[AnyMachine, Record]):
    def __init__(
        self,
        new_machine: Callable[[], AnyMachine],
        store: Store[Record],
        publish: Callable[[Sequence[Record]], None] = lambda records: None,
    ) -> None:
        self._new_machine = new_machine
        self._store = store
        self._publish = publish
        self._parked: deque[_Parked[Record]] = deque()
        self._unreadable: StorageError | None = None
        loaded = self._load()
        self._parked.append(_Parked(self._end_offset, loaded, None, lambda reply: None))
        self.on_committed(store.committed_offset)

    @property
    def machine(self) -> AnyMachine:
        """With everything appended, committed or not: for decisions, not for answering clients."""
        return self._machine

    @property
    def parked_count(self) -> int:
        return len(self._parked)

    def submit(
        self, operation: Operation[Reply], now_ms: int, respond: Callable[[Reply | ProtocolError], None]
    ) -> None:
        """`respond` is called exactly once: with the reply when it is committed, or with the error."""
        if self._unreadable is not None:
            respond(self._unreadable)
            return
        try:
            decision = self._machine.decide(operation, now_ms)
        except ProtocolError as refusal:
            decision = Decision([], refusal)
        if decision.records:
            try:
                self._end_offset = self._store.append(decision.records, now_ms)
            except StorageError as error:
                respond(error)
                self._reload()
                return
            for record in decision.records:
                self._machine.apply(record)
        self._parked.append(_Parked(self._end_offset, decision.records, decision.reply, respond))
        self.on_committed(self._store.committed_offset)

    def on_committed(self, offset: int) -> None:
        """The store has committed everything below `offset`."""
        parked = self._parked
        while parked and parked[0].end_offset <= offset:
            entry = parked.popleft()
            if entry.records:
                self._publish(entry.records)
            entry.respond(entry.reply)

    def on_lost(self, error: ProtocolError) -> None:
        """Leadership or the disk is gone: what waits will not be committed by us. The fate of its records is
        unknown until the store is read again, so whoever follows `publish` has to start over as well."""
        parked, self._parked = self._parked, deque()
        self._reload()
        for entry in parked:
            entry.respond(error)

    def _load(self) -> list[Record]:
        self._machine = self._new_machine()
        records: list[Record] = []
        for record in self._store.read_all():
            self._machine.apply(record)
            records.append(record)
        self._end_offset = self._store.end_offset
        return records

    def _reload(self) -> None:
        try:
            self._load()
        except StorageError as error:
            self._unreadable = error
            lost: Iterable[_Parked[Record]] = list(self._parked)
            self._parked.clear()
        else:
            # What was appended before the failure is still in the log: its replies go on waiting.
            lost = [entry for entry in self._parked if entry.end_offset > self._end_offset]
            self._parked = deque(entry for entry in self._parked if entry.end_offset <= self._end_offset)
        for entry in lost:
            entry.respond(self._unreadable or StorageError("The records of this change were lost."))
