"""A share group on its way to another state: the moves, on a draft.

Every decision that changes a share group makes a `ShareChange` of it, moves it, and turns it into a decision. Each move
is a record, applied to the draft at once, so the next move sees it. What has to be done about the states of
share-partitions, which are kept elsewhere, are effects.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from skidway.groups.consumer.metadata_hash import metadata_hash
from skidway.groups.consumer.reconciliation import NO_PARTITIONS, Partitions
from skidway.groups.kinds import Context, GroupDecision, LiveIs
from skidway.groups.news import GroupNews, GroupRebalanced
from skidway.groups.records import GroupRecord
from skidway.groups.share.assignor import Subscriber, assign_simple
from skidway.groups.share.group import (
    ShareGroup,
    ShareMember,
    Work,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    states_record,
    target_epoch_record,
    target_record,
)
from skidway.groups.share.operations import (
    BY_RESET,
    FIRST_STATE_EPOCH,
    DeleteStates,
    InitializeStates,
    StateEffect,
    StateItem,
)
from skidway.runtime.replicated import Decision, Now, Operation

RETRY_MS = 1_000
"""After so long share-partitions are tried again that could not be initialised or deleted."""
RETRY = "states"


class ShareChange:
    def __init__(self, context: Context, group: ShareGroup, now: Now, numbers: Iterator[int]) -> None:
        self.context = context
        self.group = group.draft()
        self.now = now
        self.records: list[GroupRecord] = []
        self.effects: list[StateEffect] = []
        self.answers: list[tuple[Operation[Any], Any]] = []
        self.news: list[GroupNews] = []
        self._numbers = numbers

    def decision(self, reply: Any) -> GroupDecision:
        moved = LiveIs(self.group.group_id, self.group.live, self.group.bytes)
        return Decision(self.records, reply, [*self.news, moved], self.answers, list(self.effects))

    def emit(self, *records: GroupRecord) -> None:
        for record in records:
            self.records.append(record)
            self.group.apply(record)

    # Members.

    def put(self, before: ShareMember | None, member: ShareMember) -> bool:
        """Write down what the member said of itself. True when the group has to be assigned again."""
        if member == before:
            return False
        self.emit(member_record(self.group.group_id, member))
        return before is None or before.topics != member.topics

    def remove(self, member_id: str) -> None:
        group = self.group
        self.emit(*member_tombstones(group.group_id, member_id))
        group.live.sessions.pop(member_id, None)

    def after_removal(self) -> None:
        self.refresh(bump=True)
        if self.group.is_empty:
            self.emit(target_epoch_record(self.group.group_id, self.group.epoch, self.now.wall_ms))

    # The group.

    def refresh(self, *, bump: bool) -> None:
        """A new epoch, if the topics of the group or what can be assigned of them are not what they were, or anyway."""
        group, cluster = self.group, self.context.topics
        names = {name for member in group.members.values() for name in member.topics}
        topics: dict[str, tuple[bytes, int]] = {}
        for name in sorted(names):
            topic_id, count = cluster.id_of(name), cluster.partition_count(name)
            if topic_id is not None and count is not None:
                topics[name] = (topic_id, count)
        group.live.topics_epoch, group.live.topics = cluster.epoch, topics
        self._forget_deleted_topics()
        hashed = metadata_hash(topics)
        if bump or hashed != group.metadata_hash or self.assignable() != self._assigned():
            self.emit(epoch_record(group.group_id, group.epoch + 1, hashed))
            self.news.append(GroupRebalanced(group.group_id, group.epoch, len(group.members)))
        self._initialize_missing()

    def assignable(self) -> Partitions:
        subscribed = {topic_id for topic_id, _ in self.group.live.topics.values()}
        return frozenset(each for each in self.group.initialized if each[0] in subscribed)

    def _assigned(self) -> Partitions:
        return NO_PARTITIONS.union(*self.group.target.values())

    def assign(self) -> None:
        """A new target, when the group's epoch has moved on."""
        group = self.group
        if group.epoch <= group.target_epoch:
            return
        topics, before = group.live.topics, dict(group.target.items())
        members = {
            member.member_id: Subscriber(
                frozenset(topics[name][0] for name in member.topics if name in topics),
                before.get(member.member_id, NO_PARTITIONS),
            )
            for member in group.members.values()
        }
        for member_id, target in assign_simple(members, self.assignable()).items():
            if before.get(member_id) != target:
                self.emit(target_record(group.group_id, member_id, target))
        self.emit(target_epoch_record(group.group_id, group.epoch, self.now.wall_ms))

    def reconcile(self, member_id: str) -> None:
        """At once: nobody has to give anything up before another may have it."""
        group = self.group
        member, target = group.members[member_id], group.target.get(member_id, NO_PARTITIONS)
        if member.epoch != group.target_epoch or member.assigned != target:
            after = replace(member, epoch=group.target_epoch, previous_epoch=member.epoch, assigned=target)
            self.emit(current_record(group.group_id, after))

    # States of share-partitions.

    def _forget_deleted_topics(self) -> None:
        """Share coordinators forget what they keep of those by themselves."""
        group, name_of = self.group, self.context.topics.name_of
        if any(name_of(topic_id) is None for topic_id in group.names):
            gone = frozenset(topic_id for topic_id in group.names if name_of(topic_id) is None)
            self.set_states(
                _without(group.initializing, gone), _without(group.initialized, gone), group.deleting - gone
            )

    def _initialize_missing(self) -> None:
        group = self.group
        wanted = frozenset(
            (topic_id, partition)
            for topic_id, count in group.live.topics.values()
            if topic_id not in group.deleting
            for partition in range(count)
        )
        missing = wanted - group.initialized - group.initializing
        if missing:
            self.set_states(group.initializing | missing, group.initialized, group.deleting)
            self.work_on_states()

    def set_states(self, initializing: Partitions, initialized: Partitions, deleting: frozenset[bytes]) -> None:
        group, name_of = self.group, self.context.topics.name_of
        topic_ids = {topic_id for topic_id, _ in (*initializing, *initialized)} | deleting
        names = {topic_id: name_of(topic_id) or group.names.get(topic_id, "") for topic_id in topic_ids}
        self.emit(states_record(group.group_id, initializing, initialized, deleting, names))

    def work_on_states(self) -> None:
        """Have everything done that is not under way."""
        group = self.group
        group.live.retries.pop(RETRY, None)
        busy = {(item.topic_id, item.partition) for work in group.live.works.values() for item in work.effect.items}
        known = {topic_id for topic_id, _ in group.initialized}
        waiting: dict[bytes, list[int]] = {}
        for topic_id, partition in sorted(group.initializing):
            if (topic_id, partition) not in busy:
                waiting.setdefault(topic_id, []).append(partition)
        for topic_id, partitions in waiting.items():
            # A partition that comes later has to be delivered from its beginning: nobody has seen any of it.
            start_offset = 0 if topic_id in known else BY_RESET
            items = tuple(StateItem(topic_id, partition, start_offset) for partition in partitions)
            self.initialize(FIRST_STATE_EPOCH, items, None)
        for topic_id in sorted(group.deleting):
            if not any(each == topic_id for each, _ in busy):
                self.delete([topic_id], None)

    def initialize(self, state_epoch: int, items: Iterable[StateItem], asked: Operation[Any] | None) -> None:
        number = next(self._numbers)
        self._do(InitializeStates(self.group.group_id, number, state_epoch, tuple(items)), asked)

    def delete(self, topic_ids: Iterable[bytes], asked: Operation[Any] | None) -> None:
        """Everything that may be stored of topics that are there."""
        items = [item for topic_id in topic_ids for item in self._all_of(topic_id)]
        self._do(DeleteStates(self.group.group_id, next(self._numbers), tuple(items)), asked)

    def _all_of(self, topic_id: bytes) -> list[StateItem]:
        name = self.context.topics.name_of(topic_id)
        count = 0 if name is None else self.context.topics.partition_count(name) or 0
        return [StateItem(topic_id, partition) for partition in range(count)]

    def _do(self, effect: StateEffect, asked: Operation[Any] | None) -> None:
        self.group.live.works[effect.number] = Work(effect, asked)
        self.effects.append(effect)

    def try_later(self) -> None:
        self.group.live.retries[RETRY] = self.now.monotonic_ms + RETRY_MS


def _without(partitions: Partitions, topic_ids: frozenset[bytes]) -> Partitions:
    return frozenset(each for each in partitions if each[0] not in topic_ids)
