"""What a group coordinator tells its host about groups, as notes of its decisions: for the operators' log."""

from dataclasses import dataclass


@dataclass(slots=True, frozen=True)
class GroupRebalanced:
    """The group began a new generation (classic protocol) or epoch (consumer protocol)."""

    group: str
    generation: int
    members: int


@dataclass(slots=True, frozen=True)
class MembersExpired:
    """The coordinator removed members that did not answer in time."""

    group: str
    members: tuple[str, ...]


GroupNews = GroupRebalanced | MembersExpired
