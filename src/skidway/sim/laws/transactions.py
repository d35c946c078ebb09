"""What clients were told of transactions, and whether it can all be true.

Every value is written once. A transaction is committed, surely not committed, or nobody knows.

| law | meaning |
|---|---|
| aborted-read | a reader of what is committed got a value of a transaction that failed, or is open |
| torn | at the end some values of a transaction can be read, and others cannot |
| unseen-commit | a commit was acknowledged, and at the end its values cannot be read |
| stable-reads | two readers got different records from the same offsets, or more than was called stable |
| stable-offset | a leader took back its last stable offset |
| fenced-producers | a producer was acknowledged something for which it asked after another one had taken its id |
| false-fencing | a commit was refused and is committed, or as if nothing had been written |
| copied-once | what a job has copied is not what its committed offset says |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, auto

from skidway.sim.clients.readers import Partition
from skidway.sim.laws.history import History
from skidway.sim.world.events import Violation, World
from skidway.transactions.transaction import Ended, Ending, Transaction

NOTHING_TO_END = "INVALID_TXN_STATE"
ProducerEpoch = tuple[int, int]
"""Producer id and epoch."""


class Fate(Enum):
    OPEN = auto()
    COMMITTING = auto()
    COMMITTED = auto()
    FAILED = auto()
    """Surely not committed."""
    UNKNOWN = auto()


@dataclass(slots=True, eq=False)
class Written:
    """One transaction of a client."""

    id: str
    place: str
    producer: ProducerEpoch
    fate: Fate = Fate.OPEN
    acked: set[bytes] = field(default_factory=set)
    read: bytes = b""
    """One of its values that a reader of what is committed has got."""
    is_unheard: bool = False
    """A request to end it went without an answer."""

    def __str__(self) -> str:
        return f"the transaction of {self.id} by {self.place} as {self.producer}"


@dataclass(slots=True)
class Stable:
    """What readers of committed records have got of one partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    passed: int = 0
    """Below this everything was read by somebody."""


class TransactionLaws:
    def __init__(self, world: World, history: History) -> None:
        self.world = world
        self.history = history
        self.all: list[Written] = []
        self._of: dict[bytes, Written] = {}
        self._where: dict[bytes, Partition] = {}
        self._newest: dict[str, tuple[ProducerEpoch, int]] = {}
        """Of each id: who has it, and since when that was told."""
        self._former: set[ProducerEpoch] = set()
        self._owners: dict[ProducerEpoch, str] = {}
        self.decided: Callable[[str], Transaction | None] = lambda transactional_id: None
        """What a coordinator has committed of an id, as an all-knowing observer knows it."""
        self.stable: dict[tuple[bytes, int], Stable] = {}
        self._last_stable: dict[tuple[str, bytes, int, int], int] = {}

    # --- producers ---

    def took(self, transactional_id: str, place: str, producer_id: int, epoch: int) -> None:
        self.world.say(place, f"has {transactional_id} as {producer_id} in epoch {epoch}")
        taken = (producer_id, epoch)
        owner = self._owners.setdefault(taken, place)
        if owner != place:
            raise Violation("fenced-producers", f"{owner} and {place} both have {transactional_id} as {taken}")
        newest, _ = self._newest.get(transactional_id, ((-1, -1), 0))
        if taken in self._former or (newest[0] == producer_id and newest[1] > epoch):
            self._former.add(taken)  # The answer was under way for longer than that of a later one.
        elif taken != newest:
            self._former.add(newest)
            self._newest[transactional_id] = (taken, self.world.now_us)

    def begin(self, transactional_id: str, place: str, producer: ProducerEpoch) -> Written:
        written = Written(transactional_id, place, producer)
        self.all.append(written)
        return written

    def sending(self, written: Written, place: Partition, values: list[bytes]) -> None:
        for value in values:
            self._of[value] = written
            self._where[value] = place
            self.history.places[value] = (*place, False)

    def acked(
        self, written: Written, place: Partition, topic_id: bytes, offset: int, values: list[bytes], sent_us: int
    ) -> None:
        self._check_fenced(written, sent_us, f"a write at {offset} of {place}")
        written.acked.update(values)
        self.history.stored(written.place, place, topic_id, offset, values)

    def ending(self, written: Written, *, commit: bool) -> None:
        if commit:
            written.fate = Fate.COMMITTING
        else:
            self._fail(written)

    def end_unheard(self, written: Written) -> None:
        written.is_unheard = True

    def ended(self, written: Written, *, commit: bool, sent_us: int) -> None:
        if commit:
            self._check_fenced(written, sent_us, "a commit")
            written.fate = Fate.COMMITTED
        self.world.say(written.place, f"{written.id} {'committed' if commit else 'aborted'} by {written.producer}")
        self.world.mark("transaction committed" if commit else "transaction aborted")

    def end_refused(self, written: Written, why: str) -> None:
        if written.fate is Fate.COMMITTING and written.acked and why == NOTHING_TO_END:
            raise Violation("false-fencing", f"{written} has {len(written.acked)} records, and nothing to commit")
        self.world.say(written.place, f"{written.id}: {why} for {written.producer}")
        self.world.mark("end of a transaction refused")
        if written.fate is Fate.COMMITTING:
            self._check_reason(written, why)
            if written.is_unheard:
                written.fate = Fate.UNKNOWN
            else:
                self._fail(written)

    def left(self, written: Written) -> None:
        """Its producer is gone and has not asked for a commit."""
        self.world.mark("transaction left open")
        self._fail(written)

    def _fail(self, written: Written) -> None:
        if written.read:
            raise Violation("aborted-read", f"{written.read!r} was read; {written} has failed")
        written.fate = Fate.FAILED

    def _check_fenced(self, written: Written, sent_us: int, what: str) -> None:
        newest, taken_us = self._newest[written.id]
        if sent_us > taken_us and written.producer in self._former:
            raise Violation(
                "fenced-producers",
                f"{what} was acknowledged to {written.place} as {written.producer}; {newest} has {written.id}",
            )

    def _check_reason(self, written: Written, why: str) -> None:
        """It may have timed out, or have been fenced. It may not have been committed."""
        known = self.decided(written.id)
        if known is None or not written.acked or not isinstance(known.state, Ending | Ended):
            return
        producer_id, epoch = written.producer
        if known.state.commit and (known.producer_id, known.epoch) in ((producer_id, epoch), (producer_id, epoch + 1)):
            raise Violation("false-fencing", f"the commit of {written} was refused: {why}; it is committed")

    # --- readers of what is committed ---

    def read(self, reader: str, topic_id: bytes, index: int, start: int, end: int, got: dict[int, bytes]) -> None:
        """From `start` to `end` there are these values, by offset."""
        stable = self.stable.setdefault((topic_id, index), Stable())
        for offset, value in got.items():
            self._check_read(reader, offset, value)
            if offset >= stable.passed:
                stable.values[offset] = value
        known = {offset: value for offset, value in stable.values.items() if start <= offset < end}
        if known != got:
            odd = sorted(set(known.items()) ^ set(got.items()))
            raise Violation("stable-reads", f"{reader} read {start} to {end} of {index}; other readers differ: {odd}")
        stable.passed = max(stable.passed, end)

    def _check_read(self, reader: str, offset: int, value: bytes) -> None:
        written = self._of.get(value)
        if written is None:
            return  # Not of a transaction.
        if written.fate in (Fate.OPEN, Fate.FAILED):
            raise Violation(
                "aborted-read", f"{reader} read {value!r} at {offset}; {written} is {written.fate.name.lower()}"
            )
        written.read = value
        self.history.reads += 1

    def last_stable(self, reader: str, topic_id: bytes, index: int, leader_epoch: int, offset: int) -> None:
        key = (reader, topic_id, index, leader_epoch)
        before = self._last_stable.get(key, -1)
        if offset < before:
            raise Violation(
                "stable-offset",
                f"{reader} got last stable offset {before}, then {offset} for {index} in epoch {leader_epoch}",
            )
        self._last_stable[key] = offset

    # --- the end ---

    def check_complete(self, topic_ids: Iterable[bytes]) -> None:
        """Everything stable was read by somebody, of these topics."""
        present = {
            value
            for (topic_id, _), stable in self.stable.items()
            if topic_id in set(topic_ids)
            for value in stable.values.values()
        }
        for written in self.all:
            missing = sorted(written.acked - present)
            if not missing or not written.acked:
                continue
            if written.fate is Fate.COMMITTED:
                kind = "torn" if len(missing) < len(written.acked) else "unseen-commit"
                raise Violation(kind, f"{written} is committed; {missing} cannot be read")
            if len(missing) < len(written.acked):
                raise Violation(
                    "torn", f"{written} is {written.fate.name.lower()}; of it only {missing} cannot be read"
                )

    def check_copied(self, transactional_id: str, expected: list[bytes]) -> None:
        """Of a job that copies: these are the values below its committed offset."""
        copied = sorted(
            value.split(b"=", 1)[1]
            for stable in self.stable.values()
            for value in stable.values.values()
            if (written := self._of.get(value)) is not None and written.id == transactional_id
        )
        if copied != sorted(expected):
            lost = sorted(set(expected) - set(copied))
            twice = sorted({value for value in copied if copied.count(value) > 1})
            odd = sorted(set(copied) - set(expected))
            raise Violation(
                "copied-once", f"{transactional_id} copied {len(copied)} of {len(expected)}: {lost=} {twice=} {odd=}"
            )
