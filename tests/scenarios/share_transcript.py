"""One share-partition driven by lines of text, for transcripts.

    log SIZE ...                        batches are appended; `control:SIZE`: not for readers
    keyed KEY[@MS] ...                  a batch of records with these keys, due at a time; `-`: no key
    whose COUNTxTENANT ...              a batch of so many records of a tenant for each; 0: of nobody
    compact FIRST                       the batch that begins there is gone
    acquire NAME RECORDS [strict] [lock=MS]     strict: never more than RECORDS
    settle NAME FIRST-LAST=VERB ...     accept, release, reject, gap, renew; one offset without `-LAST`
    receipt OFFSET#COUNT VERB [DELAY]   accept, release, reject; for so long nobody gets it
    change NAME OFFSET#COUNT MS         the lease of that delivery ends so long from now
    untake FIRST-LAST#COUNT             the reply with these records was never written
    leave NAME                          its session is over
    wait MS
    start OFFSET                        the log begins there now
    store, lose                         the next write arrives, or does not
    restart                             another leader loads what is stored
    plan PRODUCER                       letters for the first dead records, under a new producer's id or the last one's
    letters                             what is to be produced; `written`: it is there

`letters=1` among the settings: dead records have letters.

What happens is told as `NAME: answer`; then `+ update` for what goes to the store; `state` tells the state as it is.
"""

from typing import Any

from share_world import World

from skidway.errors import ProtocolError
from skidway.shares.acquiring import Acquired, Wanted
from skidway.shares.letter_notes import LetterNotes, Plan
from skidway.shares.records import StateBatch
from skidway.shares.settling import Said
from skidway.shares.states import AVAILABLE, AcquireMode, ArchiveAtOnce, DeliveryRules, LetterFirst, Order, Verb
from skidway.shares.terms import Term
from values import replace

STATES = ["available", "leased", "acknowledged", "archiving", "archived", "settling", "delayed", "blocked"]


class Transcript:
    def __init__(self, settings: dict[str, str]) -> None:
        rules = DeliveryRules(end_of_life=LetterFirst() if settings.pop("letters", "") else ArchiveAtOnce())
        read: dict[str, Any] = {name: int(value) for name, value in settings.items() if name != "order"}
        if "order" in settings:
            read |= {"order": Order(settings["order"]), "receipts_expire": True}
        self.world = World(replace(rules, **read))
        self.world.on_told = self._on_told
        self.lines: list[str] = []

    def run(self, line: str) -> str:
        self.lines = []
        verb, *words = line.split()
        getattr(self, f"_{verb}")(*words)
        self.world.check()
        return "\n".join(self.lines) or "nothing"

    def _log(self, *sizes: str) -> None:
        for size in sizes:
            kind, _, number = size.rpartition(":")
            self.world.append(int(number), deliverable=not kind)
        self.lines.append(f"the log ends at {self.world.log_end}")

    def _keyed(self, *words: str) -> None:
        contents: list[tuple[bytes | None, int]] = []
        for word in words:
            key, _, due_ms = word.partition("@")
            contents.append((None if key == "-" else key.encode(), int(due_ms or 0)))
        self.world.append(len(contents), contents=contents)
        self.lines.append(f"the log ends at {self.world.log_end}")

    def _whose(self, *words: str) -> None:
        for word in words:
            count, tenant = map(int, word.split("x"))
            self.world.append(count, contents=[(None, 0, tenant)] * count)
        self.lines.append(f"the log ends at {self.world.log_end}")

    def _compact(self, first: str) -> None:
        self.world.compact([span.first for span in self.world.log].index(int(first)))

    def _acquire(self, name: str, records: str, *words: str) -> None:
        wanted = Wanted(int(records), AcquireMode.RECORD_LIMIT if "strict" in words else AcquireMode.BATCH_OPTIMIZED)
        locks = [int(word.removeprefix("lock=")) for word in words if word.startswith("lock=")]
        acquired = self.world.acquire(name, wanted, locks[0] if locks else None)
        if acquired and self.world.rules.keeps_leases:
            ranges = [f"{_range(each.first, each.end)} #{each.count}" for each in acquired]
            self.lines.append(f"{name}: {', '.join(ranges)}, waits for the store")

    def _on_told(self, name: str, each: Acquired) -> None:
        self.lines.append(f"{name}: {_range(each.first, each.end)} #{each.count}")

    def _settle(self, name: str, *words: str) -> None:
        said = []
        for word in words:
            offsets, verb = word.split("=")
            first, _, last = offsets.partition("-")
            said.append(Said(int(first), int(last or first) + 1, Verb[verb.upper()]))
        answers = self.world.settle(name, said)
        self.lines += [f"{name}: {_answer(answer)}" for answer in answers] or [f"{name}: waits for the store"]

    def _receipt(self, receipt: str, verb: str, delay_ms: str = "0") -> None:
        offset, count = receipt.split("#")
        answers = self.world.settle_receipt(int(offset), int(count), Verb[verb.upper()], int(delay_ms))
        self.lines += [f"{receipt}: {_answer(answer)}" for answer in answers] or [f"{receipt}: waits for the store"]

    def _change(self, name: str, receipt: str, lock_ms: str) -> None:
        offset, count = receipt.split("#")
        answers = self.world.change(name, int(offset), int(count), int(lock_ms))
        self.lines += [f"{receipt}: {_answer(answer)}" for answer in answers] or [f"{receipt}: waits for the store"]

    def _untake(self, receipts: str) -> None:
        offsets, count = receipts.split("#")
        first, _, last = offsets.partition("-")
        self.world.untake([Acquired(int(first), int(last or first) + 1, int(count))])

    def _leave(self, name: str) -> None:
        self.world.leave(name)

    def _wait(self, ms: str) -> None:
        self.world.pass_time(int(ms))

    def _start(self, offset: str) -> None:
        self.world.move_log_start(int(offset))

    def _store(self) -> None:
        self._write(lost=False)

    def _lose(self) -> None:
        self._write(lost=True)

    def _write(self, *, lost: bool) -> None:
        self.world.begin_write()
        if self.world.in_flight:
            update = self.world.in_flight[0][2]
            self.lines.append(f"+ start {update.start_offset}, {update.complete_count} complete")
            self.lines += [f"+ {_batch(batch)}" for batch in update.batches]
            if update.terms is not None:
                self.lines += [f"+ {_term(term)}" for term in update.terms.terms]
            if update.letters is not None:
                self.lines += [f"+ {line}" for line in _notes(update.letters)]
        self.world.end_write(lost=lost)

    def _restart(self) -> None:
        self.world.fail_over()

    def _plan(self, producer: str) -> None:
        delivery = self.world.delivery
        due = delivery.letters.due(delivery.live, delivery.start_offset, delivery.end_offset)
        if due is not None and not delivery.letters.is_planning:
            last = delivery.letters.last_plan
            sequence = last.next_sequence if last is not None and last.producer_id == int(producer) else 0
            delivery.letters.propose(Plan(int(producer), sequence, *due, bytes(16), 0))

    def _letters(self) -> None:
        plan = self._open_plan()
        if plan is not None:
            told = [self.world.delivery.letters.deaths.at(at) for at in range(plan.first, plan.end)]
            causes = {"unknown" if death is None else death.cause.name.lower() for death in told}
            self.lines.append(f"produce {_planned(plan)}: {', '.join(sorted(causes))}")

    def _written(self) -> None:
        plan = self._open_plan()
        assert plan is not None
        self.world.named |= set(range(plan.first, plan.end))
        self.world.delivery.letter_written(plan.first, plan.end)

    def _open_plan(self) -> Plan | None:
        delivery = self.world.delivery
        return delivery.letters.open_plan(delivery.live, delivery.start_offset)

    def _state(self) -> None:
        delivery = self.world.delivery
        self.lines.append(f"start {delivery.start_offset}, end {delivery.end_offset}")
        self.lines += [_batch(run) for run in delivery.live.runs(delivery.start_offset, delivery.end_offset)]
        self.lines += [f"lease: {lease}" for lease in delivery.leases]


def _notes(notes: LetterNotes) -> list[str]:
    deaths = [f"died {_range(each.first, each.end)} {each.cause.name.lower()}" for each in notes.deaths]
    return deaths if notes.plan is None else [f"plan {_planned(notes.plan)}", *deaths]


def _planned(plan: Plan) -> str:
    return f"{_range(plan.first, plan.end)} as producer {plan.producer_id} sequence {plan.sequence}"


def _answer(answer: ProtocolError | None) -> str:
    return "done" if answer is None else answer.code.name


def _term(term: Term) -> str:
    offsets = _range(term.first, term.end)
    if term.kind == AVAILABLE:
        return f"{offsets} with nobody"
    return f"{offsets} {STATES[term.kind]} #{term.count} {term.owner or 'by nobody'} for {term.lasts_ms} ms"


def _range(first: int, end: int) -> str:
    return f"{first}-{end - 1}" if end - first > 1 else str(first)


def _batch(batch: StateBatch) -> str:
    return f"{_range(batch.first, batch.end)} {STATES[batch.state]} #{batch.count}"
