"""How much groups may take: one member, one group, all groups of the node together.

What is counted are estimates of memory, so that few large things and many small ones meet the same bound. Only growth
is refused: a member that joins again, an offset that moves on, a group that shrinks pass however full the node is.
"""

from collections.abc import Iterable
from typing import Protocol

from msgspec import Struct

from skidway.errors import (
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    PolicyViolation,
)
from skidway.limits import PENDING_OFFSETS_MAX, Limits
from skidway.ports import Buffer

# What a thing takes in memory beside the bytes a client sent for it.
GROUP_BYTES = 1_500
MEMBER_BYTES = 1_500
INVITED_BYTES = 500
OFFSET_BYTES = 400
NAME_BYTES = 100
"""Of each topic that a member of a consumer group subscribes to."""

CLIENT_ID_LENGTH_MAX = 255
"""Of a client's name that much is kept with its member: it becomes part of the member's id."""


class Usage(Protocol):
    """What all groups of the node take now."""

    @property
    def group_count(self) -> int: ...

    @property
    def bytes(self) -> int: ...


class Bounds(Struct):
    limits: Limits
    usage: Usage

    def check_new_group(self, group_id: str) -> None:
        limits = self.limits
        if len(group_id) > limits.group_name_length_max:
            raise InvalidGroupId(
                f"A group id of {len(group_id)} characters; limits.group_name_length_max is "
                f"{limits.group_name_length_max}."
            )
        if self.usage.group_count >= limits.groups_max:
            raise PolicyViolation(
                f"This broker keeps as many groups as limits.groups_max lets it, {limits.groups_max}: delete groups "
                "that nobody needs, or raise the limit."
            )

    def check_group(self, before_bytes: int, after_bytes: int) -> None:
        limits = self.limits
        if before_bytes < after_bytes > limits.group_bytes_max:
            raise GroupMaxSizeReached(
                f"The group would take {after_bytes} bytes; limits.group_bytes_max is {limits.group_bytes_max}."
            )
        self.check_growth(after_bytes - before_bytes)

    def check_growth(self, growth_bytes: int) -> None:
        if growth_bytes > 0 and self.usage.bytes + growth_bytes > self.limits.groups_bytes_max:
            raise PolicyViolation(
                f"The groups of this broker take as much as limits.groups_bytes_max lets them, "
                f"{self.limits.groups_bytes_max} bytes: delete unused groups, or raise the limit."
            )

    def check_pending(self, group_id: str, before_bytes: int, growth_bytes: int, count: int) -> None:
        """Transactions that nobody ends must not fill the broker, and the end of one must not hold it up. `count`: of
        what the producer would have pending then."""
        if count > PENDING_OFFSETS_MAX:
            raise PolicyViolation(
                f"One transaction would have {count} offsets pending; {PENDING_OFFSETS_MAX} is the most: "
                "commit it first."
            )
        after_bytes, bytes_max = before_bytes + growth_bytes, self.limits.group_bytes_max
        if growth_bytes > 0 and after_bytes > bytes_max:
            raise PolicyViolation(
                f"Open transactions would have {after_bytes} bytes of offsets pending for group {group_id}; "
                f"limits.group_bytes_max is {bytes_max}. Commit or abort them first."
            )
        self.check_growth(growth_bytes)


# What is checked before anything of a request is copied.


def check_joining(limits: Limits, instance_id: str | None, protocols: list[tuple[str, Buffer]]) -> None:
    check_names(limits, instance_id)
    if len(protocols) > limits.group_protocols_max:
        raise InconsistentGroupProtocol(
            f"A member offers more than {limits.group_protocols_max} protocols (limits.group_protocols_max)."
        )
    _check_member(limits, sum(len(name) + len(metadata) for name, metadata in protocols))


def check_assignments(limits: Limits, assignments: list[tuple[str, Buffer]]) -> None:
    if len(assignments) > limits.group_members_max:
        raise PolicyViolation(
            f"A group was assigned more than {limits.group_members_max} members (limits.group_members_max)."
        )
    _check_member(limits, max((len(assignment) for _, assignment in assignments), default=0))
    total = sum(len(assignment) for _, assignment in assignments)
    if total > limits.group_bytes_max:
        raise PolicyViolation(f"An assignment of {total} bytes; limits.group_bytes_max is {limits.group_bytes_max}.")


def check_subscription(limits: Limits, topics: Iterable[str]) -> None:
    _check_member(limits, sum(map(len, topics)))


def check_names(limits: Limits, *names: str | None) -> None:
    for name in names:
        if name is not None and len(name) > limits.group_name_length_max:
            raise InvalidRequest(
                f"An id of {len(name)} characters; limits.group_name_length_max is {limits.group_name_length_max}."
            )


def _check_member(limits: Limits, size: int) -> None:
    if size > limits.group_member_bytes_max:
        raise PolicyViolation(
            f"{size} bytes for one member of a group; limits.group_member_bytes_max is {limits.group_member_bytes_max}."
        )


def client_name(client_id: str | None) -> str:
    return (client_id or "")[:CLIENT_ID_LENGTH_MAX]
