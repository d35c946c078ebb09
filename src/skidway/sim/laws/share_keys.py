"""The order of keys in share groups that ask for it: a key is with one member at a time, whoever leads.

| law | meaning |
|---|---|
| key-holders | a member got a record of a key while another one had a record of that key |

A member has a record from the answer that brought it until it has spoken of it, until its lock is over by its own
reckoning, or until one of its sessions has ended. That a leader has gone, with all it had in memory, changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable

from skidway.broker.node import Node
from skidway.shares.coordinator.keys import ShareKey
from skidway.shares.sessions import SessionKey, ShareSession
from skidway.sim.clients.share_holds import Hold, key_of
from skidway.sim.world.events import Violation, World

HOLDS_KEPT = 20
"""Of a key: the others are over."""


class ShareKeyLaws:
    def __init__(self, world: World, log_start: Callable[[ShareKey], int]) -> None:
        self.world = world
        self._log_start = log_start
        self.keys: dict[str, int] = {}
        """How many there are, of groups with an order."""
        self._holds: dict[tuple[ShareKey, bytes], list[tuple[int, Hold]]] = {}
        """By key: offsets, and who has them."""
        self._sessions: dict[SessionKey, list[ShareSession]] = {}
        """All that a member ever had, with any leader."""

    def on_step(self, node: Node) -> None:
        """After everything that happens to a node, so it has to be quick."""
        for key, session in node.rooms.services.share_fetches.sessions.open.items() if self.keys else ():
            seen = self._sessions.setdefault(key, [])
            if key[0] in self.keys and not any(each is session for each in seen):
                seen.append(session)

    def delivered(self, key: ShareKey, hold: Hold, values: dict[int, bytes]) -> None:
        count = self.keys.get(hold.group)
        if count is None:
            return
        start = self._log_start(key)
        for offset in range(hold.first, hold.end):
            name = key_of(values[offset], count)
            holds = self._holds.setdefault((key, name), [])
            for theirs, other in holds:
                if other.member != hold.member and theirs >= start and self._has(other):
                    raise Violation(
                        "key-holders",
                        f"{hold.member} got {offset} of {hold.place}, and {other.member} has {theirs} until "
                        f"{other.until_us} us: both are of the key {name.decode()}",
                    )
            self._holds[key, name] = [*holds[-HOLDS_KEPT:], (offset, hold)]

    def _has(self, hold: Hold) -> bool:
        """Certainly, now."""
        if hold.over or self.world.now_us >= hold.until_us or hold.reign is None or hold.session is None:
            return False
        return not any(session.ended for session in self._sessions.get((hold.group, hold.member), []))
