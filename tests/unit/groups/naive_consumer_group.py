"""What a group of the consumer protocol (KIP-848) should do, said as simply as possible.

The model does not assign: it takes the target the coordinator made and asks whether it is a legal one. Everything
else it works out itself, from plain sets: who is refused and why, when the epoch of the group moves on, what each
member is told to have, and who is over at what time.

Two differences from Kafka are meant: a static member that comes back finds its place in a group that is full, and
members that run out in the same millisecond move the group's epoch once.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from model_world import Topics
from naive_classic_group import error

from skidway.groups.consumer.operations import ConsumerHeartbeat
from skidway.groups.settings import GroupSettings

Partition = tuple[bytes, int]
STABLE, UNREVOKED, UNRELEASED = "stable", "unrevoked", "unreleased"


@dataclass
class NaiveConsumer:
    instance: str | None = None
    rebalance_ms: int = -1
    topics: frozenset[str] = frozenset()
    regex: str = ""
    assignor: str | None = None
    epoch: int = 0
    previous_epoch: int = -1
    state: str = STABLE
    assigned: frozenset[Partition] = frozenset()
    revoking: frozenset[Partition] = frozenset()
    expires_ms: int = 0
    revoke_by_ms: int | None = None


@dataclass
class NaiveConsumerGroup:
    settings: GroupSettings
    cluster: Topics
    new_target: Callable[[], dict[str, frozenset[Partition]]]
    """What the coordinator made of it."""
    exists: bool = False
    epoch: int = 0
    target_epoch: int = 0
    members: dict[str, NaiveConsumer] = field(default_factory=dict)
    target: dict[str, frozenset[Partition]] = field(default_factory=dict)
    sizes: dict[str, tuple[bytes, int]] = field(default_factory=dict)
    """The topics of the group when its epoch was set."""
    now_ms: int = 0

    # Small questions.

    def subscribed(self, member: NaiveConsumer) -> set[str]:
        return {
            name
            for name in self.cluster.sizes
            if name in member.topics or (member.regex and re.fullmatch(member.regex, name))
        }

    def sizes_now(self) -> dict[str, tuple[bytes, int]]:
        names = {name for member in self.members.values() for name in self.subscribed(member)}
        return {name: (self.cluster.id_of(name) or b"", self.cluster.sizes[name]) for name in names}

    def held_by_others(self, member_id: str) -> set[Partition]:
        return {p for each, m in self.members.items() if each != member_id for p in m.assigned | m.revoking}

    def owner(self, instance: str | None) -> str | None:
        return next((each for each, m in self.members.items() if instance and m.instance == instance), None)

    def state(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.target_epoch:
            return "Assigning"
        done = all(m.state == STABLE and m.epoch == self.target_epoch for m in self.members.values())
        return "Stable" if done else "Reconciling"

    # Heartbeats.

    def heartbeat(self, call: ConsumerHeartbeat) -> tuple[Any, ...]:
        refusal = self._refusal(call)
        if refusal is not None:
            return error(refusal)
        if call.member_epoch < 0:
            return self._leave(call)
        owned = None
        if call.owned is not None:
            owned = {(topic, number) for topic, numbers in call.owned for number in numbers}
        if call.member_epoch > 0:
            refusal = self._fenced(self.members[call.member_id], call.member_epoch, owned)
            if refusal is not None:
                return error(refusal)
        else:
            self._let_in(call)
        return self._move(call, owned)

    def _refusal(self, call: ConsumerHeartbeat) -> str | None:
        owner = self.owner(call.instance_id)
        if call.member_epoch == 0:
            if call.member_id in self.members and owner in (None, call.member_id):
                return None
            if owner is not None:
                return None if self.members[owner].epoch == -2 else "UNRELEASED_INSTANCE_ID"
            is_full = len(self.members) >= self.settings.consumer_size_max
            return "GROUP_MAX_SIZE_REACHED" if is_full else None
        if not self.exists:
            return "GROUP_ID_NOT_FOUND"
        if call.instance_id is not None:
            if owner is None:
                return "UNKNOWN_MEMBER_ID"
            if owner != call.member_id:
                return "FENCED_INSTANCE_ID"
        return None if call.member_id in self.members else "UNKNOWN_MEMBER_ID"

    def _fenced(self, member: NaiveConsumer, epoch: int, owned: set[Partition] | None) -> str | None:
        if epoch == member.epoch:
            return None
        if epoch < member.epoch and epoch == member.previous_epoch and owned is not None and owned <= member.assigned:
            # It was told of the new epoch, and that answer was lost.
            return None
        return "FENCED_MEMBER_EPOCH"

    def _let_in(self, call: ConsumerHeartbeat) -> None:
        self.exists = True
        owner = self.owner(call.instance_id)
        if owner is not None and owner != call.member_id:
            member = self.members.pop(owner)
            member.epoch = member.previous_epoch = 0
            member.revoke_by_ms = None
            self.members[call.member_id] = member
            self.target[call.member_id] = self.target.pop(owner, frozenset())

    def _move(self, call: ConsumerHeartbeat, owned: set[Partition] | None) -> tuple[Any, ...]:
        is_new = call.member_id not in self.members
        member = self.members.setdefault(call.member_id, NaiveConsumer())
        before = (member.topics, member.regex)
        if call.instance_id is not None:
            member.instance = call.instance_id
        if call.rebalance_timeout_ms != -1:
            member.rebalance_ms = call.rebalance_timeout_ms
        if call.topics is not None:
            member.topics = frozenset(call.topics)
        if call.regex is not None:
            member.regex = call.regex
        if call.assignor is not None:
            member.assignor = call.assignor
        self._look(bump=is_new or before != (member.topics, member.regex))
        if self.epoch > self.target_epoch:
            self.target_epoch = self.epoch
            self.target = self.new_target()
        had = member.assigned
        self._reconcile(call.member_id, owned)
        member.expires_ms = self.now_ms + self.settings.consumer_session_timeout_ms
        says_all = call.rebalance_timeout_ms != -1 and owned is not None
        says_all = says_all and (call.topics is not None or call.regex is not None)
        tell = call.member_epoch == 0 or says_all or had != member.assigned
        interval_ms = self.settings.consumer_heartbeat_interval_ms
        return ("beat", call.member_id, member.epoch, interval_ms, member.assigned if tell else None)

    def _look(self, *, bump: bool) -> None:
        """A new epoch when the topics of the group are not what they were, or anyway."""
        sizes = self.sizes_now()
        if bump or sizes != self.sizes:
            self.epoch += 1
        self.sizes = sizes

    def _reconcile(self, member_id: str, owned: set[Partition] | None) -> None:
        member = self.members[member_id]
        if member.state == STABLE and member.epoch == self.target_epoch:
            return
        if member.state == UNREVOKED and (owned is None or owned & member.revoking):
            return
        target = self.target.get(member_id, frozenset())
        kept, surplus, missing = member.assigned & target, member.assigned - target, target - member.assigned
        before = (member.state, member.epoch, member.assigned, member.revoking)
        if surplus and (owned is None or owned & surplus):
            # It stays where it is until it says that it has given these up.
            epoch = member.epoch + 1 if member.state == UNREVOKED else member.epoch
            after = (UNREVOKED, epoch, kept, surplus)
        else:
            free = missing - self.held_by_others(member_id)
            state = STABLE if free == missing else UNRELEASED
            after = (state, self.target_epoch, kept | free, frozenset())
        if after == before:
            return
        member.previous_epoch = member.epoch
        member.state, member.epoch, member.assigned, member.revoking = after
        member.revoke_by_ms = self.now_ms + member.rebalance_ms if member.state == UNREVOKED else None

    def _leave(self, call: ConsumerHeartbeat) -> tuple[Any, ...]:
        if call.member_epoch == -2:
            member = self.members[call.member_id]
            member.epoch, member.revoking, member.revoke_by_ms = -2, frozenset(), None
        else:
            self._remove([call.member_id])
        return ("beat", call.member_id, call.member_epoch, 0, None)

    def _remove(self, member_ids: list[str]) -> None:
        for member_id in member_ids:
            del self.members[member_id]
            self.target.pop(member_id, None)
        self._look(bump=True)

    # Time and restarts.

    def next_ms(self) -> int | None:
        moments = [m.expires_ms for m in self.members.values()]
        moments += [m.revoke_by_ms for m in self.members.values() if m.revoke_by_ms is not None]
        return min(moments, default=None)

    def pass_time(self, now_ms: int) -> None:
        self.now_ms = now_ms
        over = [each for each, m in self.members.items() if min(m.expires_ms, m.revoke_by_ms or 10**12) <= now_ms]
        if over:
            self._remove(over)

    def restart(self) -> None:
        for member in self.members.values():
            member.expires_ms = self.now_ms + self.settings.consumer_session_timeout_ms
            # Who is away for a while is not expected to give anything up.
            waits = member.state == UNREVOKED and member.epoch != -2
            member.revoke_by_ms = self.now_ms + member.rebalance_ms if waits else None

    # How it looks.

    def described(self) -> tuple[Any, ...]:
        if not self.exists:
            return error("GROUP_ID_NOT_FOUND")
        members = {
            each: (
                m.instance,
                m.epoch,
                tuple(sorted(m.topics)),
                m.regex,
                self._of_topics_that_exist(m.assigned),
                self._of_topics_that_exist(self.target.get(each, frozenset())),
            )
            for each, m in self.members.items()
        }
        return (self.state(), self.epoch, self.target_epoch, members)

    def _of_topics_that_exist(self, partitions: frozenset[Partition]) -> frozenset[Partition]:
        return frozenset(each for each in partitions if self.cluster.name_of(each[0]) is not None)

    # Whether an assignment is what the assignors promise.

    def wanted_assignors(self) -> set[str]:
        votes = [m.assignor for m in self.members.values() if m.assignor is not None]
        if not votes:
            return {self.settings.consumer_assignors[0]}
        most = max(votes.count(name) for name in votes)
        return {name for name in votes if votes.count(name) == most}

    def check_target(self, target: dict[str, frozenset[Partition]]) -> None:
        """Every partition of the group's topics has one member, which subscribes to it; and it is balanced."""
        given = [partition for share in target.values() for partition in share]
        everything = {(topic, number) for topic, size in self.sizes.values() for number in range(size)}
        assert sorted(given) == sorted(everything)
        for member_id, share in target.items():
            ids = {self.cluster.id_of(name) for name in self.subscribed(self.members[member_id])}
            assert {topic for topic, _ in share} <= ids
        assert any(
            self._is_uniform(target) if name == "uniform" else self._is_range(target)
            for name in self.wanted_assignors()
        ), f"not {self.wanted_assignors()}"

    def _is_uniform(self, target: dict[str, frozenset[Partition]]) -> bool:
        """No partition could move to a member that has two less."""
        for member in self.members.values():
            member_ids = {self.cluster.id_of(name) for name in self.subscribed(member)}
            share = next(target.get(each, frozenset()) for each, m in self.members.items() if m is member)
            for other in target.values():
                if len(other) - len(share) >= 2 and any(topic in member_ids for topic, _ in other):
                    return False
        return True

    def _is_range(self, target: dict[str, frozenset[Partition]]) -> bool:
        expected: dict[str, set[Partition]] = {each: set() for each in self.members}
        for name, (topic_id, size) in self.sizes.items():
            row = [each for each, m in self.members.items() if name in self.subscribed(m)]
            row.sort(key=lambda each: (self.members[each].instance is None, self.members[each].instance or each))
            numbers = list(range(size))
            for place, member_id in enumerate(row):
                count = size // len(row) + (1 if place < size % len(row) else 0)
                expected[member_id] |= {(topic_id, number) for number in numbers[:count]}
                numbers = numbers[count:]
        return all(target.get(each, frozenset()) == share for each, share in expected.items())
