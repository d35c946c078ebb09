"""Who may vote, and which set of voters holds from which offset of the log on.

A voter is a node id together with the id of its directory: a node that lost its disk comes back as somebody else and
cannot vote twice. A set holds from the moment it is appended, committed or not, and goes away with its record.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

NO_DIRECTORY = bytes(16)


class Member(Struct, frozen=True, order=True):
    node_id: int
    directory_id: bytes = NO_DIRECTORY


class Voter(Struct, frozen=True):
    member: Member
    host: str = ""
    port: int = 0


class Voters:
    """An immutable set, in the order of node ids."""

    __slots__ = ("_by_id",)

    def __init__(self, voters: Iterable[Voter]) -> None:
        self._by_id = {voter.member.node_id: voter for voter in sorted(voters, key=lambda voter: voter.member)}

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._by_id.values())

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Voters) and self._by_id == other._by_id)

    def __hash__(self) -> int:
        return hash(tuple(self._by_id.values()))

    def __repr__(self) -> str:
        return f"Voters({list(self._by_id)})"

    def __contains__(self, member: Member) -> bool:
        """A voter whose directory is not known yet (a static set) is known by its id alone."""
        voter = self._by_id.get(member.node_id)
        if voter is None:
            return False
        return NO_DIRECTORY in (voter.member.directory_id, member.directory_id) or voter.member == member

    def find(self, node_id: int) -> Voter | None:
        return self._by_id.get(node_id)

    @property
    def members(self) -> list[Member]:
        return [voter.member for voter in self]

    @property
    def ids(self) -> list[int]:
        return list(self._by_id)

    @property
    def majority(self) -> int:
        return len(self._by_id) // 2 + 1

    def is_next_to(self, other: "Voters") -> bool:
        """Whether every majority of one set has a voter in common with every majority of the other: one more, or one
        less. A voter with another directory is another voter, so that takes two steps; but learning the directories
        of voters that were known by their ids changes nobody."""
        both = [(voter, found) for voter in self if (found := other.find(voter.member.node_id)) is not None]
        different = len(self) + len(other) - 2 * len(both)
        return different <= 1 and all(known.member in Voters([voter]) for voter, known in both)

    def with_voter(self, voter: Voter) -> "Voters":
        return Voters([*(known for known in self if known.member.node_id != voter.member.node_id), voter])

    def without(self, node_id: int) -> "Voters":
        return Voters(voter for voter in self if voter.member.node_id != node_id)


class VoterHistory:
    """The sets by the offset of the record that brought them; the first is what the node was started with."""

    __slots__ = ("_sets",)

    def __init__(self, initial: Voters) -> None:
        self._sets: list[tuple[int, Voters]] = [(-1, initial)]

    @property
    def latest(self) -> Voters:
        return self._sets[-1][1]

    @property
    def latest_offset(self) -> int:
        """Of the record that brought the latest set; -1 when no record did."""
        return self._sets[-1][0]

    @property
    def sets(self) -> list[tuple[int, Voters]]:
        """All that are still known, each with the offset of its record."""
        return list(self._sets)

    def add(self, offset: int, voters: Voters) -> None:
        assert offset > self._sets[-1][0], "sets of voters come in the order of the log"
        self._sets.append((offset, voters))

    def begin_anew(self, offset: int, voters: Voters) -> None:
        """A snapshot has taken the place of the log up to `offset`."""
        self._sets = [(offset, voters)]

    def truncate_to(self, end_offset: int) -> None:
        while self._sets[-1][0] >= end_offset:
            self._sets.pop()

    def at(self, end_offset: int) -> Voters:
        """What held for a log that ended there: belongs into a snapshot of it."""
        return next(voters for offset, voters in reversed(self._sets) if offset < end_offset)

    def forget_before(self, end_offset: int) -> None:
        """Everything below is in a snapshot: only the set that held there is needed."""
        kept = [entry for entry in self._sets if entry[0] >= end_offset]
        before = [entry for entry in self._sets if entry[0] < end_offset]
        self._sets = [before[-1], *kept]
