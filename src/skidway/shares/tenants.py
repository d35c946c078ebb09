"""Fair queues: if one tenant has many messages, those of others go first.

A message may say whose it is. A tenant is *noisy* if it has `LEAST` messages and more than one in `SHARE`, either of
those in flight or of the last `RECENT` that were delivered. Its messages are passed over while a message of others is
available within `WINDOW` offsets of the first available one. Messages without a tenant are of others. Those of noisy
tenants that lie among what was read for others fill what these leave of an acquisition. After `TURNS` - 1 acquisitions
that passed over somebody one takes the oldest messages, whoever has them: nobody starves. Nothing is blocked, and no
order is promised.

A tenant is known by a number, 0 is nobody. There is one number for each offset, in chunks, from the first message that
has a tenant on; where none has, nothing is kept and nobody follows what becomes of offsets. Which tenants are noisy is
found out anew before every acquisition. Another leader begins with what it reads in the log, and nobody is noisy.
"""

from array import array
from collections import deque
from collections.abc import Sequence
from typing import Protocol

from skidway.shares import cells
from skidway.shares.acquiring import Offered, Taking
from skidway.shares.cells import Cells
from skidway.shares.states import AVAILABLE, LEASED, SETTLING

LEAST = 30
SHARE = 10
RECENT = 300
TURNS = 8
WINDOW = 100_000
BUSY = (LEASED, SETTLING)


class Window(Protocol):
    """What is needed of `window.Window`."""

    live: Cells

    @property
    def start_offset(self) -> int: ...

    @property
    def ceiling(self) -> int: ...

    @property
    def held_offsets(self) -> int: ...

    @property
    def looked_to(self) -> int: ...


class Tenants:
    """Of one share-partition."""

    __slots__ = (
        "_busy",
        "_loud",
        "_many",
        "_numbers",
        "_others_from",
        "_passed",
        "_recent",
        "_recently",
        "in_flight",
        "noisy",
    )

    def __init__(self) -> None:
        self.in_flight: dict[int, int] = {}
        """Messages of each tenant that somebody has, or that are on their way to the store."""
        self.noisy: frozenset[int] = frozenset()
        self._numbers: dict[int, array[int]] = {}
        """By chunk: whose each offset is."""
        self._busy: dict[int, bytearray] = {}
        """By chunk: 1 for what is counted in `in_flight`."""
        self._loud: dict[int, bytes] = {}
        """By chunk: 1 for what is of a noisy tenant; made when somebody looks for others there."""
        self._many: set[int] = set()
        """Who has `LEAST` in flight."""
        self._recent: deque[int] = deque()
        self._recently: dict[int, int] = {}
        """How many of `_recent` each tenant has."""
        self._others_from = 0
        """No message of others is available below, among those that were looked into."""
        self._passed = 0
        """Acquisitions in a row that passed over somebody."""

    @property
    def chunks(self) -> int:
        """For metrics: each takes 20 KiB, 24 where somebody noisy was passed over."""
        return len(self._numbers)

    # --- what is told ---

    def note(self, live: Cells, offset: int, tenant: int) -> None:
        """Whose it is."""
        number, place = divmod(offset, cells.CHUNK)
        chunk = self._numbers.get(number)
        if chunk is None:
            chunk = self._numbers[number] = array("I", bytes(4 * cells.CHUNK))
            self._busy[number] = bytearray(cells.CHUNK)
        chunk[place] = tenant
        self._loud.pop(number, None)
        if live.changed is None:
            live.changed = []
        if live.state_at(offset) != AVAILABLE:
            live.changed.append((offset, offset + 1))

    def refresh(self, window: Window) -> None:
        """Count what has become of offsets, and find out who is noisy. Before anything is acquired."""
        live = window.live
        if live.changed is None:
            return
        changes, live.changed = live.changed, []
        start = window.start_offset
        for first, end in changes:
            self._follow(live, first, end, start)
        for number in [number for number in self._numbers if number * cells.CHUNK < start]:
            self._forget(number, start)
        if self._numbers:
            self._judge(window.held_offsets)
        else:
            live.changed, self.noisy = None, frozenset()
            self._others_from = 0

    def _judge(self, held: int) -> None:
        noisy = [tenant for tenant in self._many if self.in_flight[tenant] * SHARE > held]
        noisy += [tenant for tenant, count in self._recently.items() if _is_many(count, len(self._recent))]
        if self.noisy != (now := frozenset(noisy)):
            self.noisy = now
            self._loud.clear()
            self._others_from = 0

    def _follow(self, live: Cells, first: int, end: int, start: int) -> None:
        for number, begin, stop in cells.pieces(first, end):
            tenants = self._numbers.get(number)
            if tenants is None:
                continue
            busy, base = self._busy[number], number * cells.CHUNK
            for place in range(begin, stop):
                at = base + place
                is_busy = at >= start and live.state_at(at) in BUSY
                if is_busy != busy[place] and (tenant := tenants[place]):
                    busy[place] = is_busy
                    self._count(tenant, 1 if is_busy else -1)
        freed = live.find(AVAILABLE, max(first, start), end)
        if freed < end:
            self._others_from = min(self._others_from, freed)

    def _forget(self, number: int, start: int) -> None:
        """What lies below is settled, or gone from the log."""
        busy, stop = self._busy[number], min(cells.CHUNK, start - number * cells.CHUNK)
        while (place := busy.find(1, 0, stop)) >= 0:
            busy[place] = 0
            self._count(self._numbers[number][place], -1)
        if stop == cells.CHUNK:
            del self._numbers[number], self._busy[number]
            self._loud.pop(number, None)

    def _count(self, tenant: int, change: int) -> None:
        count = self.in_flight.get(tenant, 0) + change
        if count:
            self.in_flight[tenant] = count
        else:
            del self.in_flight[tenant]
        if count >= LEAST:
            self._many.add(tenant)
        else:
            self._many.discard(tenant)

    # --- who goes first ---

    @property
    def passes(self) -> bool:
        """Whether the next acquisition passes over somebody, if others wait."""
        return bool(self.noisy) and self._passed < TURNS - 1

    def first_of_others(self, window: Window, available: int, upto: int) -> int:
        """From where to read if the first available message lies at `available` and the log ends at `upto`: where one
        of others is, or may be, or there."""
        if not self.passes:
            return available
        limit = min(available + WINDOW, window.ceiling)
        known_end = min(window.looked_to, limit)
        if available >= known_end:
            return available
        first = max(self._others_from, available)
        self._others_from = found = self._find(window.live, first, max(first, known_end))
        if found < known_end:
            return found
        return window.looked_to if window.looked_to < min(upto, limit) else available

    def left_over(self, window: Window, offered: Offered, taking: Taking) -> int | None:
        """How many messages of noisy tenants may be taken of what is offered; None: as many as there are."""
        if not self.passes:
            return None
        enough = min(taking.room, taking.wanted.records)
        others = 0
        for span in offered.spans:
            if others >= enough:
                break
            if span.deliverable:
                first, end = max(span.first, offered.from_offset), min(span.end, window.ceiling)
                others += self.count_others(window.live, first, end)
        return max(0, enough - others) if others else None

    def acquired(self, first: int, end: int) -> None:
        """These were delivered."""
        for number, begin, stop in cells.pieces(first, end):
            tenants: Sequence[int] = self._numbers.get(number) or bytes(cells.CHUNK)
            for tenant in tenants[begin:stop]:
                self._recent.append(tenant)
                if tenant:
                    self._recently[tenant] = self._recently.get(tenant, 0) + 1
        while len(self._recent) > RECENT:
            tenant = self._recent.popleft()
            if tenant:
                self._recently[tenant] -= 1
                if not self._recently[tenant]:
                    del self._recently[tenant]

    def took(self, *, passed: bool) -> None:
        """An acquisition has something. `passed`: others went first."""
        if passed:
            self._passed += 1
        elif self._passed >= TURNS - 1:
            self._passed = 0

    # --- whose is what ---

    def run_end(self, first: int, end: int) -> tuple[int, bool]:
        """Up to where offsets are of noisy tenants, or of others, as `first` is; and whether they are noisy."""
        is_loud: int | None = None
        for number, begin, stop in cells.pieces(first, end):
            loud = self._loud_in(number)
            here = loud[begin:stop] if loud is not None else bytes(stop - begin)
            if is_loud is None:
                is_loud = here[0]
            other = here.find(1 - is_loud)
            if other >= 0:
                return number * cells.CHUNK + begin + other, bool(is_loud)
        return end, bool(is_loud)

    def count_others(self, live: Cells, first: int, end: int) -> int:
        """How many offsets are available and of others."""
        return sum(
            self._taken_or_loud(live, number, begin, stop).count(0) for number, begin, stop in cells.pieces(first, end)
        )

    def _find(self, live: Cells, first: int, end: int) -> int:
        for number, begin, stop in cells.pieces(first, end):
            at = self._taken_or_loud(live, number, begin, stop).find(0)
            if at >= 0:
                return number * cells.CHUNK + begin + at
        return end

    def _taken_or_loud(self, live: Cells, number: int, begin: int, stop: int) -> bytes:
        """0 for each offset that is available and of others."""
        states = live.states_in(number, begin, stop)
        loud = self._loud_in(number)
        if loud is None:
            return states
        either = int.from_bytes(states, "big") | int.from_bytes(loud[begin:stop], "big")
        return either.to_bytes(stop - begin, "big")

    def _loud_in(self, number: int) -> bytes | None:
        loud = self._loud.get(number)
        if loud is None and number in self._numbers:
            loud = self._loud[number] = bytes(map(self.noisy.__contains__, self._numbers[number]))
        return loud


def _is_many(count: int, total: int) -> bool:
    return count >= LEAST and count * SHARE > total
