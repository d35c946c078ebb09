"""A share-partition as plainly as can be said: one row for each offset, and a loop over all of them.

It predicts what an acquisition takes, whether a settlement is accepted, and what the store gets.
"""

from dataclasses import dataclass, field
from typing import Any

from skidway.shares import cells, tenants
from skidway.shares.acquiring import Acquired, Span, Wanted
from skidway.shares.contents import Content
from skidway.shares.settling import Said
from skidway.shares.states import DELAYED, LEASED, NEVER_MS, AcquireMode, DeliveryRules, Order, Verb
from skidway.shares.terms import Term

DONE = ("acknowledged", "archived")
OUTCOMES = {Verb.ACCEPT: "acknowledged", Verb.REJECT: "archived", Verb.GAP: "archived"}


@dataclass
class Row:
    state: str = "available"
    count: int = 0
    owner: str = ""
    deadline_ms: int = 0
    becomes: str = ""
    """What the store hears of it, while it is `settling`."""
    delay_ms: int = 0
    until_ms: int = 0
    lasts_ms: int = 0
    """How long it lasts when its holder has heard of it, if nobody has yet."""
    keep: int = 0
    """The number of the acquisition that waits to be stored."""
    counted: set[int] = field(default_factory=set)
    """Deliveries that the store should hear of with the next write, whoever causes it, if they are the last then."""


Stored = dict[int, tuple[str, int]]


class NaiveShares:
    def __init__(self, rules: DeliveryRules, start: int) -> None:
        self.rules = rules
        self.rows: dict[int, Row] = {}
        self.start = self.end = start
        self.stored: Stored = {}
        self.unwritten = False
        """Whether something should be written though nobody waits for it."""
        self.writing: tuple[int, Stored, list[int], int] | None = None
        """The start, what the store gets, the offsets that were settling, and the end of the log's lost part."""
        self.floor = 0
        self.now_blocked: set[int] = set()
        self.keys: dict[int, bytes | None] = {}
        self.looked_to = 0
        self.again: list[tuple[Any, ...]] = []
        """Words of receipts about what is settling: to be heard when the store has answered."""
        self.renewed = False
        """Somebody waits for a longer lease to be stored."""
        self.keeps = 0
        """Acquisitions of which somebody waits to hear."""
        self.tenants: dict[int, int] = {}
        self.recent: list[int] = []
        """Whose the last records were that were delivered."""
        self.passed = 0
        """Acquisitions that passed over somebody, since one did not."""
        self.keeps_asked = 0
        """How many of them the store has heard of."""

    def row(self, at: int) -> Row:
        return self.rows.setdefault(at, Row())

    def held(self) -> int:
        return sum(row.state == "leased" or (row.state == "settling" and row.owner != "") for row in self.live())

    def live(self) -> list[Row]:
        return [row for at, row in self.rows.items()]

    def next_offset(self, upto: int | None = None) -> int | None:
        at = self._first_available()
        if at is None or upto is None or not self.passes():
            return at
        noisy, looked_to = self.noisy(), max(self.looked_to, self.start)
        window_end = min(at + tenants.WINDOW, self.start + self.rules.span_max)
        for other in range(at, min(looked_to, window_end)):
            if self.row(other).state == "available" and self.tenants.get(other) not in noisy:
                return other
        return looked_to if at < looked_to < min(upto, window_end) else at

    def noisy(self) -> set[int]:
        """Who has many, of what is in flight or was delivered lately."""
        if not self._follows():
            return set()
        busy = [at for at, row in self.rows.items() if row.state in ("leased", "settling") and at >= self.start]
        in_flight = [self.tenants[at] for at in busy if at in self.tenants]
        found = set()
        for of, total in ((in_flight, self.held()), (self.recent, len(self.recent))):
            for tenant in set(of) - {0}:
                if of.count(tenant) >= tenants.LEAST and of.count(tenant) * tenants.SHARE > total:
                    found.add(tenant)
        return found

    def _follows(self) -> bool:
        """Whether a chunk that is not settled as a whole has a tenant."""
        return any((at // cells.CHUNK + 1) * cells.CHUNK > self.start for at in self.tenants)

    def passes(self) -> bool:
        return bool(self.noisy()) and self.passed < tenants.TURNS - 1

    def _left_over(self, offset: int, spans: list[Span], enough: int, noisy: set[int]) -> int | None:
        ceiling = self.start + self.rules.span_max
        readable = [at for span in spans if span.deliverable for at in range(span.first, span.end)]
        readable = [at for at in readable if max(offset, self.start) <= at < ceiling]
        others = [at for at in readable if self.row(at).state == "available" and self.tenants.get(at) not in noisy]
        if others:
            return max(0, enough - len(others))
        is_first = not any(self.row(at).state == "available" for at in range(self.start, offset))
        return None if is_first else 0

    def _first_available(self) -> int | None:
        if self.held() >= self.rules.leases_max:
            return None
        at = self.start
        blocked = self.blocked()
        while at < self.end and (self.row(at).state != "available" or at in blocked):
            at += 1
        if at >= self.start + self.rules.span_max:
            return None
        return min(at, max(self.looked_to, self.start)) if self.ordered else at

    @property
    def ordered(self) -> bool:
        return self.rules.order is not Order.NONE

    def examine(self, contents: dict[int, Content], spans: list[Span], now_ms: int) -> None:
        """What the records say of themselves, when their batch is first offered."""
        if not self.rules.opens_batches:
            return
        for span in spans:
            end = min(span.end, self.start + self.rules.span_max)
            for at in range(max(span.first, self.looked_to, self.start), end):
                row = self.row(at)
                if not span.deliverable or at not in contents or row.state in DONE:
                    continue
                self.keys[at] = contents[at].key
                if contents[at].tenant:
                    self.tenants[at] = contents[at].tenant
                if contents[at].due_ms > now_ms and row.state == "available":
                    row.state, row.until_ms = "delayed", contents[at].due_ms
            self.looked_to, self.end = max(self.looked_to, end), max(self.end, end)

    def blocked(self) -> set[int]:
        """By the order of keys, as things are now."""
        found = set()
        busy = ("leased", "settling")
        for at, key in self.keys.items():
            if key is None or self.rules.order is Order.NONE or at < self.start:
                continue
            alike = [
                other for other, its in self.keys.items() if its == key and other >= self.start and other in self.rows
            ]
            earlier = any(other < at and self.rows[other].state in (*busy, "delayed") for other in alike)
            any_busy = any(self.rows[other].state in busy for other in alike)
            if earlier or (self.rules.order is Order.KEY and any_busy):
                found.add(at)
        return found

    def acquire(
        self, owner: str, offset: int, spans: list[Span], wanted: Wanted, now_ms: int, lock_ms: int
    ) -> list[Acquired]:
        taken: list[tuple[int, int, int]] = []
        room = self.rules.leases_max - self.held()
        if wanted.mode is AcquireMode.RECORD_LIMIT:
            room = min(room, wanted.records)
        ceiling = self.start + self.rules.span_max
        records = {at: (number, span) for number, span in enumerate(spans) for at in range(span.first, span.end)}
        at = max(offset, self.start)
        self.now_blocked = self.blocked()
        noisy = self.noisy()
        left_over = self._left_over(at, spans, min(room, wanted.records), noisy) if self.passes() else None
        while records and at < min(ceiling, max(records) + 1):
            if len(taken) >= min(room, wanted.records) and not (
                taken and at in records and records[at][0] == taken[-1][2] and len(taken) < room
            ):
                break
            row = self.row(at)
            if row.state == "available" and at not in self.now_blocked:
                if at not in records or not records[at][1].deliverable or row.count >= self.rules.count_limit:
                    self._chore(at)
                else:
                    alone = self._isolated(at, records[at][1].end)
                    if alone is not None:
                        if not taken:
                            taken = [(each, self.row(each).count + 1, 0) for each in range(at, at + min(alone, room))]
                        break
                    if len(taken) >= room:
                        break
                    if left_over is not None and self.tenants.get(at) in noisy:
                        if not left_over:
                            at += 1
                            continue
                        left_over -= 1
                    taken.append((at, row.count + 1, records[at][0]))
            at += 1
        if taken and noisy:
            self.passed = self.passed + 1 if left_over is not None else self.passed % (tenants.TURNS - 1)
        if self._follows():
            self.recent = (self.recent + [self.tenants.get(each, 0) for each, _, _ in taken])[-tenants.RECENT :]
        deadline_ms = NEVER_MS if self.ordered else now_ms + lock_ms
        for leased, _, _ in taken:
            self.row(leased).lasts_ms = lock_ms
            if self.ordered:
                self.row(leased).keep = self.keeps + 1
        self.keeps += self.ordered and bool(taken)
        return self._lease(owner, taken, wanted, deadline_ms, spans)

    def _isolated(self, at: int, end: int) -> int | None:
        limit, count, size = self.rules.count_limit, self.row(at).count, 0
        while at + size < min(end, self.start + self.rules.span_max):
            row = self.row(at + size)
            if row.state != "available" or row.count != count or at + size in self.now_blocked:
                break
            size += 1
        if not self.rules.isolates:
            return None
        if limit > 2 and count == limit - 1:
            return 1
        half = max(2, (limit + 1) // 2)
        return max(1, size // 2 ** (count - half + 1)) if count >= half else None

    def _lease(
        self, owner: str, taken: list[tuple[int, int, int]], wanted: Wanted, deadline_ms: int, spans: list[Span]
    ) -> list[Acquired]:
        ranges: list[Acquired] = []
        for at, count, _number in taken:
            row = self.row(at)
            row.state, row.owner, row.count, row.deadline_ms = "leased", owner, count, deadline_ms
            row.counted.add(count)
            self.end = max(self.end, at + 1)
            last = ranges[-1] if ranges else None
            begins_batch = any(span.first == at for span in spans)
            cut = (
                wanted.mode is AcquireMode.BATCH_OPTIMIZED
                and begins_batch
                and last is not None
                and last.end - last.first >= wanted.range_size
            )
            if last is not None and last.end == at and last.count == count and not cut:
                last.end = at + 1
            else:
                ranges.append(Acquired(at, at + 1, count))
        return ranges

    def _chore(self, at: int) -> None:
        row = self.row(at)
        row.state, row.becomes, row.owner = "settling", "archived", ""
        self.end = max(self.end, at + 1)
        self.unwritten = True

    def settle(self, owner: str, said: list[Said], now_ms: int) -> str:
        """ "ok", "waits", "state" or "request"."""
        end = 0
        for word in said:
            if word.first < end or word.end <= word.first:
                return "request"
            end = word.end
        offsets = [(at, word.verb, word.delay_ms) for word in said for at in range(word.first, word.end)]
        for word in said:
            if word.end > self.start and word.end > self.end:
                return "request"
            for at in range(max(word.first, self.start), word.end):
                if self.row(at).state != "leased" or self.row(at).owner != owner:
                    return "state"
        waits = False
        for at, verb, delay_ms in offsets:
            if at < self.start:
                continue
            row = self.row(at)
            if verb is Verb.RENEW:
                row.deadline_ms = now_ms + self.rules.lock_ms
                if self.ordered:
                    waits = self.renewed = True
                continue
            waits = True
            self._decide(row, verb, delay_ms)
        return "waits" if waits else "ok"

    def _decide(self, row: Row, verb: Verb, delay_ms: int) -> None:
        row.state, row.delay_ms = "settling", delay_ms
        row.becomes = OUTCOMES.get(verb) or ("available" if row.count < self.rules.count_limit else "archived")

    # --- by receipt ---

    def settle_receipt(self, at: int, count: int, verb: Verb, delay_ms: int, now_ms: int) -> str:
        """ "ok", "waits", "state" or "request"."""
        if not 0 <= at < self.start + self.rules.span_max:
            return "request"
        row = self.row(at) if at >= self.start else Row("acknowledged")
        if row.state == "settling":
            self.again.append(("settle_receipt", at, count, verb, delay_ms))
            return "waits"
        if row.state in DONE:
            return "state" if verb is Verb.RELEASE else "ok"
        held = row.state == "leased" and row.count == count
        if not held and self.rules.receipts_expire:
            return "state"
        if not held and verb is not Verb.ACCEPT and (row.state == "leased" or row.count > count):
            return "state"
        if row.state != "leased":
            # A delivery that is over, or that this leader does not know of.
            row.owner, row.deadline_ms = "nobody", now_ms
            row.count = max(row.count, count)
        self.end = max(self.end, at + 1)
        self._decide(row, verb, delay_ms)
        return "waits"

    def change(self, owner: str, at: int, count: int, lock_ms: int, now_ms: int) -> str:
        if not 0 <= at < self.start + self.rules.span_max:
            return "request"
        row = self.row(at) if at >= self.start else Row("acknowledged")
        if row.state == "settling":
            self.again.append(("change", owner, at, count, lock_ms))
            return "waits"
        if row.state == "leased" and row.count == count:
            row.deadline_ms = now_ms + lock_ms
            if not lock_ms:
                self._give_back(at)
            elif self.ordered:
                self.renewed = True
                return "waits"
            return "ok"
        if row.state != "available" or row.count > count or self.rules.receipts_expire or at in self.blocked():
            return "state"
        if lock_ms:
            if self.held() >= self.rules.leases_max:
                return "state"
            row.state, row.owner, row.count, row.deadline_ms = "leased", owner, count, now_ms + lock_ms
            row.counted.add(count)
            self.end = max(self.end, at + 1)
        return "ok"

    def untake(self, acquired: list[Acquired]) -> None:
        for each in acquired:
            for at in range(max(each.first, self.start), each.end):
                row = self.row(at)
                if row.state == "leased" and row.count == each.count:
                    row.state, row.owner, row.count = "available", "", row.count - 1
                    self.unwritten |= self.rules.keeps_leases

    def _hear_again(self, now_ms: int) -> None:
        again, self.again = self.again, []
        for name, *arguments in again:
            self.on_time(now_ms)
            getattr(self, name)(*arguments, now_ms)

    # --- time ---

    def on_time(self, now_ms: int) -> None:
        for at, row in self.rows.items():
            if row.state == "leased" and row.deadline_ms <= now_ms:
                self._give_back(at)
            elif row.state == "delayed" and row.until_ms <= now_ms:
                row.state = "available"

    def release_owner(self, owner: str) -> None:
        for at, row in self.rows.items():
            if row.state == "leased" and row.owner == owner:
                self._give_back(at)
            elif row.owner == owner:
                row.deadline_ms = -1

    def _give_back(self, at: int) -> None:
        row = self.row(at)
        self.unwritten = True
        row.owner = ""
        if row.count >= self.rules.count_limit:
            row.state, row.becomes = "settling", "archived"
        else:
            row.state = "available"
            row.counted.add(row.count)

    def on_log_start(self, offset: int) -> None:
        if offset <= self.start:
            return
        self.floor = self.start = offset
        self.end = max(self.end, offset)
        self._forget_below()
        self.unwritten = True

    def _forget_below(self) -> None:
        # What was spoken of keeps its place in the count until the store has answered.
        for at in [at for at, row in self.rows.items() if at < self.start]:
            if self.rows[at].state != "settling" or not self.rows[at].owner:
                del self.rows[at]

    def next_write(self) -> tuple[int, int, Stored] | None:
        """Start, complete count, and the offsets that the store hears of, without those below the start."""
        settling = [at for at, row in self.rows.items() if row.state == "settling"]
        if self.writing is not None or not (
            self.unwritten or settling or self.renewed or self.keeps > self.keeps_asked
        ):
            return None
        self.keeps_asked, self.renewed = self.keeps, False
        change: Stored = {}
        for at, row in self.rows.items():
            if row.state == "settling" and at >= self.start:
                # Of two words the one with the higher count wins, also if that was a delivery that did not count.
                change[at] = (row.becomes, max(row.count, self.stored.get(at, ("", 0))[1]))
            elif row.count in row.counted and at >= self.start:
                change[at] = ("available", row.count)
            row.counted.clear()
        after = self._merged(change)
        start = max(self.start, self.floor)
        while after.get(start, ("", 0))[0] in DONE:
            start += 1
        change = {at: word for at, word in change.items() if at >= start}
        complete = sum(state in DONE for at, (state, _) in after.items() if at >= start)
        self.unwritten = False
        self.writing = (start, change, settling, self.floor)
        return start, complete, change

    def _merged(self, change: Stored) -> Stored:
        """Of two words the one with the higher count counts, then the later one."""
        return {**self.stored, **{at: word for at, word in change.items() if word[1] >= self.stored.get(at, word)[1]}}

    def on_written(self, now_ms: int) -> None:
        assert self.writing is not None
        start, change, settling, _ = self.writing
        self.writing = None
        self.stored = {at: word for at, word in self._merged(change).items() if at >= start}
        self.start = max(self.start, start)
        self.end = max(self.end, self.start)
        for at in settling:
            if at in self.rows:
                row = self.rows[at]
                row.state, row.owner, row.becomes = row.becomes, "", ""
                if row.state == "available" and row.delay_ms:
                    row.state, row.until_ms = "delayed", now_ms + row.delay_ms
        for row in self._kept():
            if row.deadline_ms >= NEVER_MS:
                row.deadline_ms = now_ms + row.lasts_ms
        self._forget_below()
        self._hear_again(now_ms)

    def _kept(self) -> list[Row]:
        """What is still leased of that whose leases were with the store."""
        asked = [row for row in self.rows.values() if 0 < row.keep <= self.keeps_asked]
        for row in asked:
            row.keep = 0
        return [row for row in asked if row.state == "leased"]

    def check_terms(self, terms: dict[int, Term], start: int, now_ms: int) -> None:
        """What the store will have of leases and delays, if it gets this write."""
        for at in range(start, self.end):
            row, term = self.row(at), terms.get(at)
            if row.state == "leased":
                assert term is not None, f"the lease at {at} is not stored"
                assert (term.kind, term.count, term.owner) == (LEASED, row.count, row.owner), f"{at}: {term}"
                if row.deadline_ms < NEVER_MS:
                    assert now_ms + term.lasts_ms >= row.deadline_ms, f"{at}: {term} is shorter than {row}"
            elif row.state == "settling" and row.becomes == "available" and row.delay_ms:
                assert term is not None, f"the delay at {at} is not stored"
                assert (term.kind, term.lasts_ms) == (DELAYED, row.delay_ms), f"{at}: {term}"
            elif row.state != "delayed":
                assert term is None, f"{at} is {row.state}, and the store says {term}"

    def restore(self, term: Term, now_ms: int, wall_ms: int) -> None:
        """What another leader has stored."""
        tolerance_ms = 60_000 if term.kind == LEASED else 0
        left_ms = min(term.lasts_ms, max(0, term.until_ms - wall_ms) + tolerance_ms)
        for at in range(term.first, term.end):
            row = self.row(at)
            if left_ms and row.state == "available" and row.count == term.count:
                if term.kind == LEASED:
                    row.state, row.owner, row.deadline_ms = "leased", term.owner, now_ms + left_ms
                else:
                    row.state, row.until_ms = "delayed", now_ms + left_ms

    def on_failed(self, now_ms: int) -> None:
        assert self.writing is not None
        _, change, settling, _ = self.writing
        self.writing = None
        self.unwritten = True
        for at, (state, count) in change.items():
            if state == "available" and at in self.rows and at not in settling:
                self.rows[at].counted.add(count)
        for at in settling:
            row = self.row(at)
            if at < self.start:
                del self.rows[at]
            elif row.owner:
                row.state, row.becomes = "leased", ""
                row.counted.add(row.count)
                if row.deadline_ms >= NEVER_MS:
                    row.deadline_ms = now_ms + row.lasts_ms
                if row.deadline_ms <= now_ms:
                    self._give_back(at)
        for row in self._kept():
            row.state, row.owner, row.count = "available", "", row.count - 1
        self._hear_again(now_ms)
