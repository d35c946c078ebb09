"""One election as its candidate counts it."""

from collections.abc import Iterable

from skidway.quorum.voters import Voters


class Ballot:
    __slots__ = ("granted", "rejected", "voters")

    def __init__(self, voters: Voters, me: int) -> None:
        self.voters = voters
        self.granted = {me} if voters.find(me) is not None else set()
        self.rejected: set[int] = set()

    def count(self, voter: int, granted: bool) -> None:
        """A voter says one thing only: a grant that comes after a rejection in the same epoch is an old one."""
        if self.voters.find(voter) is None or voter in self.rejected or voter in self.granted:
            return
        (self.granted if granted else self.rejected).add(voter)

    @property
    def won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    @property
    def lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < self.voters.majority

    def silent(self) -> Iterable[int]:
        """Who has not said anything yet."""
        known = self.granted | self.rejected
        return [voter.member.node_id for voter in self.voters if voter.member.node_id not in known]
