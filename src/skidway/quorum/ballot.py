"""One election as its candidate counts it."""

from collections.abc import Iterable

from skidway.quorum.voters import Voters


class Ballot:
    """A vote binds: it is given once in an epoch. What was said before a vote (`binding` is false) may change, so
    whoever said no is asked again."""

    __slots__ = ("_binding", "granted", "rejected", "unreachable", "voters")

    def __init__(self, voters: Voters, me: int, *, binding: bool) -> None:
        self.voters = voters
        self.granted = {me} if voters.find(me) is not None else set()
        self.rejected: set[int] = set()
        self.unreachable: set[int] = set()
        self._binding = binding

    def count(self, voter: int, granted: bool) -> None:
        """A voter says one thing only: a grant that comes after a rejection in the same epoch is an old one."""
        self.unreachable.discard(voter)
        if self.voters.find(voter) is None or voter in self.granted or (self._binding and voter in self.rejected):
            return
        self.rejected.discard(voter)
        (self.granted if granted else self.rejected).add(voter)

    def count_silent(self, voter: int) -> None:
        """It could not be asked, for now."""
        self.unreachable.add(voter)

    @property
    def won(self) -> bool:
        return len(self.granted) >= self.voters.majority

    @property
    def lost(self) -> bool:
        return len(self.voters) - len(self.rejected) < self.voters.majority

    @property
    def hopeless(self) -> bool:
        """Lost, unless somebody who cannot be reached comes back."""
        return len(self.voters) - len(self.rejected | self.unreachable) < self.voters.majority

    def undecided(self) -> Iterable[int]:
        """Whom to ask (again)."""
        known = self.granted | self.rejected if self._binding else self.granted
        return [voter.member.node_id for voter in self.voters if voter.member.node_id not in known]
