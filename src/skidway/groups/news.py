"""What a group coordinator tells its host about groups, as notes of its decisions: for the operators' log."""

from msgspec import Struct


class GroupRebalanced(Struct, frozen=True):
    """The group began a new generation (classic protocol) or epoch (consumer protocol)."""

    group: str
    generation: int
    members: int


class MembersExpired(Struct, frozen=True):
    """The coordinator removed members that did not answer in time."""

    group: str
    members: tuple[str, ...]


GroupNews = GroupRebalanced | MembersExpired
