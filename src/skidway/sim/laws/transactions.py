"""What clients were told of transactions, and whether it can all be true.

Every value is written once. A transaction is committed, surely not committed, or nobody knows.

| law | meaning |
|---|---|
| aborted-read | a reader of what is committed got a value of a transaction that failed, or is open |
| early-read | the same, of one whose commit its coordinator has not decided |
| cycle | transactions have each read what the other wrote, or in another order than they ran (see `cycles`) |
| torn | at the end some values of a transaction can be read, and others cannot |
| unseen-commit | a commit was acknowledged, and at the end its values cannot be read |
| stable-reads | two readers got different records from the same offsets, or more than was called stable |
| stable-offset | a leader took back its last stable offset |
| fenced-producers | a producer was acknowledged something for which it asked after another one had taken its id |
| false-fencing | a commit was refused and is committed, or as if nothing had been written |
| copied-once | what a job has copied is not what its committed offset says |
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto

from skidway.sim.clients.readers import Partition
from skidway.sim.laws.cycles import Step, find_cycle
from skidway.sim.laws.history import History
from skidway.sim.plan import COMPACTED, key_of
from skidway.sim.world.events import Violation, World
from skidway.transactions.transaction import LAST_EPOCH, Ended, Ending, Transaction

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
    began_us: int = 0
    ended_us: int | None = None
    """When its commit was acknowledged."""
    sources: list[Written] = field(default_factory=list)
    """Of what it has read."""

    def __str__(self) -> str:
        return f"the transaction of {self.id} by {self.place} as {self.producer}"


@dataclass(slots=True)
class Stable:
    """What readers of committed records have got of one partition."""

    values: dict[int, bytes] = field(default_factory=dict)
    passed: int = 0
    """Below this everything was read by somebody."""

    def replaces(self, keys: Mapping[bytes, bytes], offset: int, value: bytes) -> bool:
        """Whether a later value of the same key was read: compaction may have removed this one, or not yet."""
        key = keys.get(value)
        return key is not None and any(keys.get(later) == key for at, later in self.values.items() if at > offset)


def _who_ended(known: Transaction) -> ProducerEpoch:
    """Whose transaction is ending or was the last to end. An end that bumps has the next epoch; after another end that
    epoch belongs to whoever took the id since."""
    if not known.bumps:
        return known.producer_id, known.epoch
    if known.epoch == 0:
        return known.previous_producer_id, LAST_EPOCH
    return known.producer_id, known.epoch - 1


class TransactionLaws:
    def __init__(self, world: World, history: History, deleted: Container[str] = ()) -> None:
        """`deleted`: topics that come and go; what is in them may go too."""
        self.world = world
        self.history = history
        self._deleted = deleted
        self.all: list[Written] = []
        self._of: dict[bytes, Written] = {}
        self._where: dict[bytes, Partition] = {}
        self._newest: dict[str, tuple[ProducerEpoch, int]] = {}
        """Of each id: who has it, and since when that was told."""
        self._former: set[ProducerEpoch] = set()
        self._owners: dict[ProducerEpoch, str] = {}
        self.decided: Callable[[str], Transaction | None] = lambda transactional_id: None
        """What a coordinator has committed of an id, as an all-knowing observer knows it."""
        self.on_asked: Callable[[str], None] = lambda transactional_id: None
        """Called when a commit is asked for."""
        self.given: Callable[[int], int] = lambda producer_id: producer_id
        """The order in which producer ids were given."""
        self.committed_us: Callable[[str], int] = lambda transactional_id: 0
        """When such an observer last saw a commit of the id decided."""
        self.stable: dict[tuple[bytes, int], Stable] = {}
        self._keys: dict[bytes, bytes] = {}
        """Of values in compacted topics: a later one of the same key replaces them."""
        self._offsets: dict[bytes, int] = {}
        """Where these are, as far as that was told."""
        self._last_stable: dict[tuple[str, bytes, int, int], int] = {}

    # --- producers ---

    def took(self, transactional_id: str, place: str, producer_id: int, epoch: int) -> None:
        self.world.say(place, f"has {transactional_id} as {producer_id} in epoch {epoch}")
        taken = (producer_id, epoch)
        owner = self._owners.setdefault(taken, place)
        if owner != place:
            raise Violation("fenced-producers", f"{owner} and {place} both have {transactional_id} as {taken}")
        newest, _ = self._newest.get(transactional_id, ((-1, -1), 0))
        if taken in self._former or (self.given(newest[0]), newest[1]) > (self.given(producer_id), epoch):
            self._former.add(taken)  # The answer was under way for longer than that of a later one.
        elif taken != newest:
            self._former.add(newest)
            self._newest[transactional_id] = (taken, self.world.now_us)

    def begin(self, transactional_id: str, place: str, producer: ProducerEpoch) -> Written:
        written = Written(transactional_id, place, producer, began_us=self.world.now_us)
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
        if place[0] in self._deleted:
            return
        written.acked.update(values)
        if place[0] == COMPACTED:
            self._keys.update({value: key_of(value) for value in values})
            self._offsets.update({value: offset + delta for delta, value in enumerate(values) if offset >= 0})
            return
        self.history.stored(written.place, place, topic_id, offset, values)

    def ending(self, written: Written, *, commit: bool) -> None:
        if commit:
            written.fate = Fate.COMMITTING
            self.on_asked(written.id)
        else:
            self._fail(written)

    def end_unheard(self, written: Written) -> None:
        written.is_unheard = True

    def ended(self, written: Written, *, commit: bool, sent_us: int) -> None:
        if commit:
            self._check_fenced(written, sent_us, "a commit")
            written.fate = Fate.COMMITTED
            written.ended_us = self.world.now_us
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
        if known.state.commit and _who_ended(known) == written.producer:
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
        odd = sorted(set(known.items()) ^ set(got.items()))
        if not all(stable.replaces(self._keys, *each) for each in odd):
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
        if written.fate is Fate.COMMITTING and self.committed_us(written.id) < written.began_us:
            raise Violation("early-read", f"{reader} read {value!r} at {offset}; {written} is not decided")
        written.read = value
        self.history.reads += 1

    def used(self, reader: Written, values: Iterable[bytes]) -> None:
        """A transaction has read these, as committed."""
        for value in values:
            written = self._of.get(value)
            if written is not None and written not in reader.sources:
                self._check_read(reader.place, -1, value)
                reader.sources.append(written)

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
            seen = written.acked & present
            missing = sorted(value for value in written.acked - seen if not self._is_replaced(value))
            if missing and written.fate is Fate.COMMITTED:
                raise Violation(
                    "torn" if seen else "unseen-commit", f"{written} is committed; {missing} cannot be read"
                )
            if missing and seen:
                raise Violation(
                    "torn", f"{written} is {written.fate.name.lower()}; of it only {missing} cannot be read"
                )

    def _is_replaced(self, value: bytes) -> bool:
        key, later = self._keys.get(value), self._offsets.get(value, -1)
        if key is None:
            return False
        return any(
            self._keys.get(other) == key and at > later
            for stable in self.stable.values()
            for at, other in stable.values.items()
        )

    def check_order(self) -> None:
        """Of everything that was committed, and that somebody has read."""
        steps = {
            written: Step(f"{written} from {written.began_us}", written.place, written.began_us, written.ended_us)
            for written in self.all
            if written.ended_us is not None or written.read
        }
        for written, step in steps.items():
            step.read = [steps[source] for source in written.sources if source in steps]
        if cycle := find_cycle(list(steps.values())):
            raise Violation("cycle", f"{cycle} come before each other")

    def check_copied(self, ids: Sequence[str], expected: list[bytes]) -> None:
        """Of a job that copies, with these transactional ids: the values below its committed offsets."""
        copied = sorted(
            value.split(b"=", 1)[1]
            for stable in self.stable.values()
            for value in stable.values.values()
            if (written := self._of.get(value)) is not None and written.id in ids
        )
        if copied != sorted(expected):
            lost = sorted(set(expected) - set(copied))
            twice = sorted({value for value in copied if copied.count(value) > 1})
            odd = sorted(set(copied) - set(expected))
            raise Violation("copied-once", f"{ids} copied {len(copied)} of {len(expected)}: {lost=} {twice=} {odd=}")
