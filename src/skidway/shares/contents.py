"""What records say about their own delivery: not before a time, in the order of their keys, and whose they are.

Only where a group asks for it: then its leader opens every batch once, when it is first offered, and tells the machine
(`examine`). Nothing of it is stored: it is in the log, and another leader finds it there again.

Key order: a record is blocked while an earlier one of its key is with somebody, on its way to the store, or delayed.
Under `KEY` it is also blocked while a later one is. Several records of a key may go out together, in their order.
Of each key the first `OPEN_MAX` are looked at, the others are blocked: what a change costs does not grow with a key.
"""

from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Protocol

from msgspec import Struct

from skidway.shares.cells import Cells
from skidway.shares.delays import Delays
from skidway.shares.states import ARCHIVING, AVAILABLE, BLOCKED, DELAYED, LEASED, SETTLING, TERMINAL, Order
from skidway.shares.tenants import Tenants

OPEN_MAX = 100
DONE = bytes((*TERMINAL, ARCHIVING))
BUSY_STATES = frozenset((LEASED, SETTLING))
HOLDING = bytes((LEASED, SETTLING, DELAYED))
"""Later ones of its key wait for such a record."""


class Window(Protocol):
    """What is needed of `window.Window`."""

    live: Cells
    delays: Delays
    tenants: Tenants
    end_offset: int

    @property
    def start_offset(self) -> int: ...

    @property
    def ceiling(self) -> int: ...

    def free_each(self, offsets: list[int]) -> None: ...


class Content(Struct):
    """What matters of one record."""

    offset: int
    due_ms: int = 0
    """Nobody gets it earlier; 0: it says nothing."""
    key: bytes | None = None
    tenant: int = 0
    """Whose it is; 0: it does not say."""


class Contents:
    """Of one share-partition."""

    __slots__ = ("_changed", "_key_of", "_members", "looked_to", "order")

    def __init__(self, order: Order) -> None:
        self.order = order
        self.looked_to = 0
        """What lies below was examined."""
        self._members: dict[bytes, deque[int]] = {}
        """By key: its offsets that are not settled, in order; perhaps some that are."""
        self._key_of: dict[int, bytes] = {}
        self._changed: set[bytes] = set()

    @property
    def keys(self) -> int:
        return len(self._members)

    def examine(self, window: Window, contents: Iterable[Content], upto: int, now_ms: int) -> None:
        """All records from `looked_to` up to an offset, those that are gone left out."""
        upto = min(upto, window.ceiling)
        start, live = max(window.start_offset, self.looked_to), window.live
        for content in contents:
            at = content.offset
            if at < start or at >= upto or live.state_at(at) in DONE:
                continue
            if content.due_ms > now_ms and live.state_at(at) == AVAILABLE:
                live.set_state(at, at + 1, DELAYED)
                window.delays.add(content.due_ms, at, at + 1)
            if content.tenant:
                window.tenants.note(live, at, content.tenant)
            if content.key is not None and self.order is not Order.NONE:
                self._key_of[at] = content.key
                self._changed.add(content.key)
                members = self._members.get(content.key)
                if members is None:
                    self._members[content.key] = deque((at,))
                    continue
                members.append(at)
                if len(members) > OPEN_MAX and live.state_at(at) == AVAILABLE:
                    live.set_state(at, at + 1, BLOCKED)
        self.looked_to = max(self.looked_to, upto)
        window.end_offset = max(window.end_offset, upto)

    def refresh(self, window: Window) -> None:
        """Block and free what has to be, after whatever has changed. Before anything is acquired."""
        live = window.live
        if live.changed is None or self.order is Order.NONE:
            return
        changes, live.changed = live.changed, []
        for first, end in changes:
            for at in range(first, end):
                if (key := self._key_of.get(at)) is not None:
                    self._changed.add(key)
                    if live.state_at(at) == AVAILABLE:
                        # It may lie behind those that are looked at.
                        live.set_state(at, at + 1, BLOCKED)
        changed, self._changed = self._changed, set()
        for key in changed:
            self._refresh_key(window, key)
        live.changed.clear()

    def on_log_start(self, offset: int) -> None:
        self._changed |= {key for at, key in self._key_of.items() if at < offset}

    def _refresh_key(self, window: Window, key: bytes) -> None:
        members, live, start = self._members.get(key), window.live, window.start_offset
        if members is None:
            return
        while members and (members[0] < start or live.state_at(members[0]) in DONE):
            del self._key_of[members.popleft()]
        if not members:
            del self._members[key]
            return
        if len(members) == 1:
            if live.state_at(members[0]) == BLOCKED:
                window.free_each([members[0]])
            return
        first = list(islice(members, OPEN_MAX))
        states = live.states_at(first)
        busy = self.order is Order.KEY and not BUSY_STATES.isdisjoint(states)
        blocked: list[int] = []
        freed: list[int] = []
        for at, state in zip(first, states, strict=True):
            if state == BLOCKED:
                if not busy:
                    freed.append(at)
            elif state == AVAILABLE:
                if busy:
                    blocked.append(at)
            elif state in HOLDING:
                busy = True
        live.put_state(blocked, BLOCKED)
        if freed:
            window.free_each(freed)
