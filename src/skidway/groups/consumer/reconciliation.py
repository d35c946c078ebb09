"""One member of a consumer group, and its way from the partitions it has to those it should have.

    STABLE ---------> has what the target of its epoch says
    UNREVOKED ------> must give partitions up first, stays in its old epoch, and nobody else gets them
    UNRELEASED -----> is in the target's epoch, and waits for partitions that others have not given up yet

A partition is given up when the member names what it owns and the partition is not there. Only then it can go to
another member: so no partition is ever in two members' hands.
"""

from collections.abc import Callable, Iterable
from enum import IntEnum

import msgspec
from msgspec.structs import replace

from skidway.errors import FencedMemberEpoch
from skidway.groups.consumer.operations import TopicPartitions

Partition = tuple[bytes, int]
"""Topic id and partition."""
Partitions = frozenset[Partition]
NO_PARTITIONS: Partitions = frozenset()


class MemberState(IntEnum):
    """The numbers are those of the records."""

    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2
    UNKNOWN = 127
    """Written by a broker that knows more states."""

    @classmethod
    def _missing_(cls, value: object) -> "MemberState":
        return cls.UNKNOWN


class ClassicSide(msgspec.Struct, frozen=True):
    """What a member that speaks the classic protocol said when it joined."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class ConsumerMember(msgspec.Struct):
    """Never changed, only replaced; not frozen, as that would make it three times as dear."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topics: frozenset[str] = frozenset()
    regex: str | None = None
    assignor: str | None = None
    classic: ClassicSide | None = None

    epoch: int = 0
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    revoking: Partitions = NO_PARTITIONS

    @property
    def held(self) -> Partitions:
        """Nobody else may have these."""
        return self.assigned | self.revoking if self.revoking else self.assigned

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state == MemberState.STABLE and self.epoch == epoch

    def check_epoch(self, epoch: int, owned: Partitions | None) -> None:
        """The epoch before is good as well while the member cannot have acted on the new one: the answer with it may
        have been lost. Whoever joins gave up everything, so there is nothing to fence."""
        if epoch in (self.epoch, 0):
            return
        if epoch == self.previous_epoch and epoch < self.epoch and owned is not None and owned <= self.assigned:
            return
        comparison = "greater" if epoch > self.epoch else "smaller"
        raise FencedMemberEpoch(
            f"The member's epoch {epoch} is {comparison} than the coordinator's {self.epoch}: it must give up its "
            "partitions and join again."
        )


def reconcile(
    member: ConsumerMember,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    held_by_others: Callable[[Partitions], Partitions],
) -> ConsumerMember:
    """The member's next state; the same object when it cannot move."""
    match member.state:
        case MemberState.STABLE:
            if member.epoch == target_epoch:
                return member
            return _advance(member, member.epoch, target_epoch, target, owned, held_by_others)
        case MemberState.UNREVOKED:
            if _still_owns(owned, member.revoking):
                return member
            return _advance(member, member.epoch + 1, target_epoch, target, owned, held_by_others)
        case MemberState.UNRELEASED:
            return _advance(member, member.epoch, target_epoch, target, owned, held_by_others)
    if owned is None or owned:
        raise FencedMemberEpoch("The member is in an unknown state: it must give up its partitions and join again.")
    return _advance(member, target_epoch, target_epoch, target, owned, held_by_others)


def _still_owns(owned: Partitions | None, partitions: Partitions) -> bool:
    """A member that does not say what it owns may own everything."""
    return owned is None or not owned.isdisjoint(partitions)


def _advance(
    member: ConsumerMember,
    epoch: int,
    target_epoch: int,
    target: Partitions,
    owned: Partitions | None,
    held_by_others: Callable[[Partitions], Partitions],
) -> ConsumerMember:
    kept = member.assigned & target
    surplus = member.assigned - kept
    if surplus and _still_owns(owned, surplus):
        return _moved(member, MemberState.UNREVOKED, epoch, kept, surplus)
    missing = target - kept
    free = missing - held_by_others(missing) if missing else missing
    state = MemberState.STABLE if free == missing else MemberState.UNRELEASED
    return _moved(member, state, target_epoch, kept | free, NO_PARTITIONS)


def _moved(
    member: ConsumerMember, state: MemberState, epoch: int, assigned: Partitions, revoking: Partitions
) -> ConsumerMember:
    now = (member.state, member.epoch, member.assigned, member.revoking)
    if now == (state, epoch, assigned, revoking):
        # Nothing has come of it; the last epoch that was answered stays known.
        return member
    return replace(member, state=state, epoch=epoch, previous_epoch=member.epoch, assigned=assigned, revoking=revoking)


def partitions_of(topics: Iterable[tuple[bytes, list[int]]]) -> Partitions:
    return frozenset((topic_id, partition) for topic_id, numbers in topics for partition in numbers)


def by_topic(partitions: Partitions) -> TopicPartitions:
    topics: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):
        topics.setdefault(topic_id, []).append(partition)
    return list(topics.items())
