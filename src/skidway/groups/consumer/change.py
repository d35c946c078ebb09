"""A consumer group on its way to another state: the moves, on a draft.

Every decision of the consumer protocol that changes a group makes a `Change` of it, moves it, and turns it into a
decision. Each move is a record, applied to the draft at once, so the next move sees it.
"""

from typing import Any

from msgspec.structs import replace

from skidway.errors import InvalidRegularExpression
from skidway.groups.consumer.assignors import ASSIGNORS, Candidate
from skidway.groups.consumer.group import (
    ConsumerGroup,
    TopicSizes,
    current_record,
    epoch_record,
    member_record,
    member_tombstones,
    pattern_record,
    pattern_tombstone,
    target_epoch_record,
    target_record,
    topics_tombstone,
)
from skidway.groups.consumer.metadata_hash import metadata_hash
from skidway.groups.consumer.patterns import PER_GROUP_MAX, Patterns
from skidway.groups.consumer.reconciliation import NO_PARTITIONS, ConsumerMember, MemberState, Partitions, reconcile
from skidway.groups.kinds import Context, GroupDecision, LiveIs
from skidway.groups.news import GroupNews, GroupRebalanced
from skidway.groups.records import GroupRecord
from skidway.runtime.replicated import Decision, Now, Operation

Subscription = tuple[frozenset[str], str | None]
"""Topics by name, and a regular expression."""


class Change:
    def __init__(self, context: Context, patterns: Patterns, group: ConsumerGroup, now: Now) -> None:
        self.context = context
        self.group = group.draft()
        self.records: list[GroupRecord] = []
        self.answers: list[tuple[Operation[Any], Any]] = []
        self.news: list[GroupNews] = []
        self.now = now
        self.now_ms = now.monotonic_ms
        self._patterns = patterns

    def decision(self, reply: Any) -> GroupDecision:
        moved = LiveIs(self.group.group_id, self.group.live, self.group.bytes)
        return Decision(self.records, reply, [*self.news, moved], self.answers)

    def emit(self, *records: GroupRecord) -> None:
        for record in records:
            self.records.append(record)
            self.group.apply(record)

    # Members.

    def subscribe(self, before: ConsumerMember | None, member: ConsumerMember) -> bool:
        """Write down what the member said of itself. True when the group has to be assigned anew."""
        if member == before:
            return False
        if member.regex is not None and (before is None or before.regex != member.regex):
            self._check_patterns(member.regex)
        self.emit(member_record(self.group.group_id, member))
        return before is None or (before.topics, before.regex) != (member.topics, member.regex)

    def _check_patterns(self, regex: str) -> None:
        patterns = {member.regex for member in self.group.members.values()} - {None}
        if regex not in patterns and len(patterns) >= PER_GROUP_MAX:
            raise InvalidRegularExpression(
                f"The members of this group have {PER_GROUP_MAX} different regular expressions already."
            )

    def replace_static(self, old: ConsumerMember, new_id: str) -> ConsumerMember:
        """The instance came back under a new id and takes the old place."""
        new = replace(old, member_id=new_id, epoch=0, previous_epoch=0)
        group_id, target = self.group.group_id, self.group.target.get(old.member_id, NO_PARTITIONS)
        self.emit(
            *member_tombstones(group_id, old.member_id),
            member_record(group_id, new),
            target_record(group_id, new_id, target),
            current_record(group_id, new),
        )
        self.group.live.forget(old.member_id)
        return new

    def leave_for_a_while(self, member: ConsumerMember) -> None:
        self.group.live.revocations.pop(member.member_id, None)
        self.emit(current_record(self.group.group_id, replace(member, epoch=-2, revoking=NO_PARTITIONS)))

    def remove(self, member_id: str) -> None:
        self.emit(*member_tombstones(self.group.group_id, member_id))
        self.group.live.forget(member_id)

    def bump_without_removed(self) -> None:
        self.refresh(bump=True)

    def renew(self, member_id: str) -> None:
        classic = self.group.members[member_id].classic
        timeout_ms, _ = self.context.timeouts(self.group.group_id)
        if classic is not None:
            timeout_ms = classic.session_timeout_ms
        self.group.live.sessions[member_id] = self.now_ms + timeout_ms

    # The group.

    def refresh(self, *, bump: bool) -> None:
        """A new epoch, if the topics of the group are not what they were, or anyway."""
        group = self.group
        self._resolve_patterns()
        group.live.topics_epoch = self.context.topics.epoch
        group.live.topics = self._topics()
        hashed = metadata_hash(group.live.topics)
        if not bump and hashed == group.metadata_hash:
            return
        if group.has_topics_record:
            self.emit(topics_tombstone(group.group_id))
        self.emit(epoch_record(group.group_id, group.epoch + 1, hashed))
        self.news.append(GroupRebalanced(group.group_id, group.epoch, len(group.members)))

    def _resolve_patterns(self) -> None:
        """Write down what each regular expression takes, and forget those of no member any more."""
        group, cluster = self.group, self.context.topics
        used = {member.regex for member in group.members.values() if member.regex is not None}
        for regex in sorted(group.patterns.keys() - used):
            self.emit(pattern_tombstone(group.group_id, regex))
        for regex in sorted(used):
            taken = self._patterns.taken(regex, cluster.names(), cluster.epoch)
            if group.patterns.get(regex) != taken:
                self.emit(pattern_record(group.group_id, regex, taken, cluster.epoch, self.now.wall_ms))

    def _topics(self) -> TopicSizes:
        cluster = self.context.topics
        names: set[str] = set()
        for topics in self._subscriptions().values():
            names |= topics
        sizes: TopicSizes = {}
        for name in sorted(names):
            topic_id, count = cluster.id_of(name), cluster.partition_count(name)
            if topic_id is not None and count is not None:
                sizes[name] = (topic_id, count)
        return sizes

    def _subscriptions(self) -> dict[Subscription, frozenset[str]]:
        """What the members ask for, and the topics that are meant; most ask for the same."""
        cluster = self.context.topics
        asked = {(member.topics, member.regex) for member in self.group.members.values()}
        return {
            (topics, regex): topics
            if regex is None
            else topics | self._patterns.taken(regex, cluster.names(), cluster.epoch)
            for topics, regex in asked
        }

    def assign(self) -> None:
        """A new target, when the group's epoch has moved on."""
        group = self.group
        if group.epoch <= group.target_epoch:
            return
        topics, before = group.live.topics, dict(group.target.items())
        ids = {
            subscription: frozenset(topics[name][0] for name in names if name in topics)
            for subscription, names in self._subscriptions().items()
        }
        candidates = {
            member.member_id: Candidate(
                member.instance_id,
                ids[member.topics, member.regex],
                before.get(member.member_id, NO_PARTITIONS),
            )
            for member in group.members.values()
        }
        assigned = ASSIGNORS[preferred_assignor(group, self.context)](candidates, dict(topics.values()))
        for member_id, target in assigned.items():
            known = before.get(member_id)
            if known is not target and known != target:
                self.emit(target_record(group.group_id, member_id, target))
        self.emit(target_epoch_record(group.group_id, group.epoch))

    def reconcile(self, member_id: str, owned: Partitions | None) -> None:
        group = self.group
        before = group.members[member_id]
        after = reconciled(group, before, owned)
        if after is before:
            return
        self.emit(current_record(group.group_id, after))
        if after.classic is None and after.state == MemberState.UNREVOKED:
            group.live.revocations[member_id] = self.now_ms + after.rebalance_timeout_ms
        else:
            group.live.revocations.pop(member_id, None)


def reconciled(group: ConsumerGroup, member: ConsumerMember, owned: Partitions | None) -> ConsumerMember:
    target = group.target.get(member.member_id, NO_PARTITIONS)
    return reconcile(member, group.target_epoch, target, owned, lambda wanted: group.held_by_others(member, wanted))


def preferred_assignor(group: ConsumerGroup, context: Context) -> str:
    """The one that most members ask for; the coordinator's order decides between equals."""
    available = [name for name in context.settings.consumer_assignors if name in ASSIGNORS]
    votes = dict.fromkeys(available, 0)
    for member in group.members.values():
        if member.assignor in votes:
            votes[member.assignor] += 1
    return max(votes, key=lambda name: votes[name])
