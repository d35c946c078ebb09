"""What the members of a classic group could follow: protocols, each with metadata of its own.

A record keeps what was said for the protocol chosen and no more, so the rest is known to this coordinator only.
"""

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field

from skidway.groups.overlay import Layered
from skidway.ports import Buffer

Protocols = list[tuple[str, Buffer]]
"""Names and metadata, the best first. A client may name one twice; the first counts."""


@dataclass(slots=True)
class Offers(Layered):
    by_member: MutableMapping[str, Protocols] = field(default_factory=dict)
    """Changed only by `put` and `remove`; in the order of the members."""
    supporters: MutableMapping[str, int] = field(default_factory=dict)
    """How many members support each protocol."""
    bytes: int = 0

    def put(self, member_id: str, protocols: Protocols) -> None:
        known = self.by_member.get(member_id)
        self.by_member[member_id] = protocols
        self.bytes += offered_bytes(protocols)
        names = {name for name, _ in protocols}
        if known is not None:
            self.bytes -= offered_bytes(known)
            if names == {name for name, _ in known}:
                return
            self._discount(known)
        for name in names:
            self.supporters[name] = self.supporters.get(name, 0) + 1

    def remove(self, member_id: str) -> None:
        known = self.by_member.pop(member_id, None)
        if known is not None:
            self.bytes -= offered_bytes(known)
            self._discount(known)

    def _discount(self, protocols: Protocols) -> None:
        for name in {name for name, _ in protocols}:
            left = self.supporters[name] - 1
            if left:
                self.supporters[name] = left
            else:
                del self.supporters[name]

    def includes_any(self, names: Iterable[str]) -> bool:
        """Whether all members support one of these."""
        everyone = len(self.by_member)
        return any(self.supporters.get(name, 0) == everyone for name in names)

    def elected(self) -> str:
        """Each member votes for the first it likes of those that all support."""
        everyone = len(self.by_member)
        shared = {name for name, count in self.supporters.items() if count == everyone}
        votes: dict[str, int] = {}
        for protocols in self.by_member.values():
            for name, _ in protocols:
                if name in shared:
                    votes[name] = votes.get(name, 0) + 1
                    break
        return max(votes, key=votes.__getitem__)

    def subscriptions(self, protocol_name: str) -> dict[str, Buffer]:
        """What each member said for a protocol that all support."""
        found: dict[str, Buffer] = {}
        for member_id, protocols in self.by_member.items():
            for name, metadata in protocols:
                if name == protocol_name:
                    found[member_id] = metadata
                    break
        return found


def offered_bytes(protocols: Protocols) -> int:
    return sum([len(name) + len(metadata) for name, metadata in protocols])
