"""The leader's view of the others: how far each has the log, and when it was last heard of.

The position of a follower is where it fetches from: it asks for more only after what it has is durable, so everything
below is kept. The leader's own position is its synced offset.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile

from skidway.quorum.voters import Member, Voters

REPLICAS_MAX = 4_096
SILENT_MS = 300_000
"""An observer that was not heard of for this long may be forgotten."""


@dataclass(slots=True)
class Follower:
    member: Member
    end_offset: int
    fetched_ms: int
    caught_up_ms: int = -1
    """When it last had all that the leader had, as far as is known."""
    leader_end: int = -1
    """Where the leader's log ended at the last fetch."""


class Followers:
    """Voters and observers alike. `epoch_start` is the offset of the leader's first record in its epoch."""

    def __init__(self, me: Member, epoch_start: int, now_ms: int) -> None:
        self.me = me
        self.epoch_start = epoch_start
        self._since_ms = now_ms
        self._heard_ms: dict[Member, int] = {}
        """When a replica last asked for something, be it that it has nothing in common with this log yet; in the order
        of that, so that who makes room is found without a search."""
        self._by_id: dict[int, Follower] = {}

    def __iter__(self) -> Iterator[Follower]:
        return iter([self._by_id[node_id] for node_id in sorted(self._by_id)])

    def find(self, member: Member) -> Follower | None:
        found = self._by_id.get(member.node_id)
        return found if found is not None and found.member == member else None

    def on_heard(self, member: Member, now_ms: int) -> None:
        if self._heard_ms.pop(member, None) is None and len(self._heard_ms) >= REPLICAS_MAX:
            self._forget_silent(now_ms)
        self._heard_ms[member] = now_ms

    def _forget_silent(self, now_ms: int) -> None:
        """Observers come and go; the one heard of longest ago makes room in any case."""
        longest = next(iter(self._heard_ms))
        silent = list(takewhile(lambda member: now_ms - self._heard_ms[member] > SILENT_MS, self._heard_ms))
        for member in silent or [longest]:
            del self._heard_ms[member]
            if self.find(member) is not None:
                del self._by_id[member.node_id]

    def on_fetch(self, member: Member, offset: int, leader_end: int, now_ms: int) -> None:
        known = self.find(member)
        if known is None:
            # Also a node that comes back with another directory: what it had before is gone.
            known = self._by_id[member.node_id] = Follower(member, offset, now_ms)
        if offset >= leader_end:
            known.caught_up_ms = now_ms
        elif 0 <= known.leader_end <= offset:
            known.caught_up_ms = max(known.caught_up_ms, known.fetched_ms)
        known.end_offset = offset
        known.fetched_ms = now_ms
        known.leader_end = leader_end

    def high_watermark(self, voters: Voters, synced_offset: int) -> int:
        """What a majority holds; -1 as long as that does not include a record of this epoch."""
        positions = sorted((self._position(voter.member, voters, synced_offset) for voter in voters), reverse=True)
        held = positions[voters.majority - 1]
        # Records of earlier epochs count only through one of this epoch: another leader could replace them.
        return held if held > self.epoch_start else -1

    def _position(self, voter: Member, voters: Voters, synced_offset: int) -> int:
        if voter.node_id == self.me.node_id:
            return synced_offset
        follower = self._by_id.get(voter.node_id)
        return follower.end_offset if follower is not None and follower.member in voters else -1

    def heard_ms(self, voters: Voters, now_ms: int) -> int:
        """The moment from which on a majority, this node included if it votes, was heard of."""
        times = sorted((self._heard(voter.member, voters, now_ms) for voter in voters), reverse=True)
        return times[voters.majority - 1]

    def silent(self, voters: Voters, since_ms: int, now_ms: int) -> list[Member]:
        """The voters that asked for nothing since then."""
        return [member for member in voters.members if self._heard(member, voters, now_ms) <= since_ms]

    def keeping_up(self, voters: Voters, since_ms: int) -> list[Member]:
        """The voters that had all of the log at some time since then, this node among them if it votes."""
        others = [follower.member.node_id for follower in self._by_id.values()
                  if follower.member in voters and follower.caught_up_ms >= since_ms]  # fmt: skip
        present = {self.me.node_id, *others}
        return [voter for voter in voters.members if voter.node_id in present]

    def _heard(self, voter: Member, voters: Voters, now_ms: int) -> int:
        if voter.node_id == self.me.node_id:
            return now_ms
        heard = [
            when for member, when in self._heard_ms.items() if member.node_id == voter.node_id and member in voters
        ]
        return max([self._since_ms, *heard])

    def successors(self, voters: Voters) -> tuple[Member, ...]:
        """The other voters, whoever has most of the log first."""
        others = [member for member in voters.members if member.node_id != self.me.node_id]
        return tuple(sorted(others, key=lambda member: (-self._position(member, voters, -1), member)))
