"""The coordinator of the groups in one partition of `__consumer_offsets`: a decide/apply machine.

It finds the group, asks the protocol the group follows, and decides itself what is the same for all protocols:
offsets, listing, deleting, what is over by time. Sessions and joins use the monotonic time given to `decide`;
timestamps that go into records, and retention, use the wall clock.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable
from typing import Any

from skidway.errors import (
    ErrorCode,
    GroupIdNotFound,
    IllegalGeneration,
    InvalidGroupId,
    StaleMemberEpoch,
    UnsupportedVersion,
)
from skidway.groups import expiry
from skidway.groups import offsets as offset_records
from skidway.groups.bounds import Bounds, Usage
from skidway.groups.classic.generation import Generation
from skidway.groups.classic.group import ClassicGroup
from skidway.groups.classic.protocol import ClassicProtocol
from skidway.groups.consumer.operations import JOINING, ConsumerHeartbeat
from skidway.groups.kinds import Context, Group, GroupDecision, GroupKind, LiveIs, SessionRenewed, Topics, nothing
from skidway.groups.news import GroupNews, GroupRebalanced, MembersExpired
from skidway.groups.offsets import CopyOffsets, Doomed, Offsets
from skidway.groups.operations import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    EndOffsetsTransaction,
    FetchOffsets,
    GroupType,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListedGroup,
    ListGroups,
    MetadataChanged,
    PreparedCommit,
    SyncGroup,
    Tick,
)
from skidway.groups.records import SHARE_KEYS, GroupRecord
from skidway.groups.settings import GroupSettings
from skidway.groups.share.operations import (
    AlterShareOffsets,
    DeleteShareOffsets,
    KnownShares,
    ShareDescribe,
    ShareHeartbeat,
    StatesChanged,
)
from skidway.groups.share.protocol import ShareProtocol
from skidway.limits import DEFAULT_LIMITS, Limits
from skidway.ports import Random
from skidway.runtime.log_store import Marker
from skidway.runtime.replicated import Decision, Now, Operation, TimedMachine
from skidway.steps import at_once
from skidway.wire.schema.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)

VERSION_WITH_GROUP_ERRORS = 6
"""Of TxnOffsetCommit: before it a producer knows only that its generation is over (KIP-1319)."""
FORGOTTEN_RECORDS_PER_TICK_MAX = 200
"""Of offsets of deleted topics, of which all coordinators hear at once. What more there is waits for the next tick,
which is at once."""


class GroupCoordinator(TimedMachine[GroupRecord]):
    def __init__(
        self,
        settings: GroupSettings,
        topics: Topics,
        random: Random,
        consumer: Callable[[Context], GroupKind] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        usage: Usage | None = None,
        *,
        timeouts: Callable[[str], tuple[int, int]] | None = None,
        share: Callable[[Context], ShareProtocol] | None = None,
        on_news: Callable[[GroupNews], None] = lambda news: None,
    ) -> None:
        """`usage` is what the groups of all coordinators take together; without it this one is alone. `timeouts`: see
        Context; without it no group has any of its own. `on_news` hears what operators want to know."""
        self._on_news = on_news
        self.groups: dict[str, Group] = {}
        self.group_bytes = 0
        self.offsets = Offsets()
        self._bounds = Bounds(limits, usage or _Alone(self))
        self._settings = settings
        self._topics = topics
        common = (settings.consumer_session_timeout_ms, settings.consumer_heartbeat_interval_ms)
        timeouts = timeouts or (lambda group_id: common)
        context = Context(settings, topics, random, self.groups, self.offsets, timeouts)
        self._classic = ClassicProtocol(context)
        self._consumer = consumer(context) if consumer is not None else None
        self._share = share(context) if share is not None else None
        self._wakeups = Wakeups()
        self._retention_check_ms: int | None = None
        """None until the first tick after loading, which is due at once."""
        self._doomed: list[Doomed] = []
        """Offsets of deleted topics that there was no time for yet."""

    @property
    def deadline_ms(self) -> int:
        """When the next Tick is due; it never harms earlier."""
        if self._retention_check_ms is None or self._doomed:
            return 0
        first = self._wakeups.first_ms
        return self._retention_check_ms if first is None else min(first, self._retention_check_ms)

    # Deciding.

    def decide(self, operation: Operation[Any], now: Now) -> GroupDecision:
        match operation:
            case PreparedCommit():  # the most frequent first: a case that does not match costs as much as a call
                return self._commit(operation, now)
            case Heartbeat() | JoinGroup() | SyncGroup() | LeaveGroup() | DescribeGroup():
                if not operation.group_id and not isinstance(operation, DescribeGroup):
                    raise InvalidGroupId()
                if isinstance(operation, JoinGroup | SyncGroup):
                    return self._decide_within_bounds(operation, self._protocol_of(operation), now)
                return self._protocol_of(operation).decide(operation, now)
            case ConsumerHeartbeat():
                return self._decide_within_bounds(operation, self._consumer_protocol(), now)
            case ShareHeartbeat() | AlterShareOffsets():
                return self._decide_within_bounds(operation, self._share_protocol(), now)
            case ShareDescribe() | KnownShares() | StatesChanged() | DeleteShareOffsets():
                return self._share_protocol().decide(operation, now)
            case CommitOffsets() | CommitOffsetsInTransaction():
                return self._commit(self._prepared(operation, now), now)
            case EndOffsetsTransaction():
                return Decision([GroupRecord(operation.marker, None)], None)
            case FetchOffsets():
                self._check_fetch(operation)
                return Decision([], self.offsets.fetch(operation, self._topics.id_of))
            case CopyOffsets():
                self._check_fetch(operation.asked)
                return Decision([], self.offsets.copy_of(operation.asked.group_id))
            case DeleteOffsets():
                return self._delete_offsets(operation)
            case ListGroups():
                return Decision([], _listed(self.groups.values(), operation))
            case DeleteGroup():
                return self._delete_group(operation, now)
            case MetadataChanged():
                return self._metadata_changed(operation, now)
            case Tick():
                return self._tick(operation, now)
        return self._consumer_protocol().decide(operation, now)

    def _decide_within_bounds(
        self,
        operation: JoinGroup | SyncGroup | ConsumerHeartbeat | ShareHeartbeat | AlterShareOffsets,
        kind: GroupKind,
        now: Now,
    ) -> GroupDecision:
        before = self.groups.get(operation.group_id)
        if before is None and _may_create(operation):
            self._bounds.check_new_group(operation.group_id)
        decision = kind.decide(operation, now)
        for note in decision.notes:
            if isinstance(note, LiveIs):
                self._bounds.check_group(0 if before is None else before.bytes, note.group_bytes)
        return decision

    def _protocol_of(self, operation: JoinGroup | SyncGroup | Heartbeat | LeaveGroup | DescribeGroup) -> GroupKind:
        """The classic requests of a group that follows the consumer protocol are answered by that protocol: its
        members may be of either. An empty group follows whoever comes next."""
        group = self.groups.get(operation.group_id)
        if group is None or group.type == GroupType.CLASSIC:
            return self._classic
        is_free = group.is_empty and group.type == GroupType.CONSUMER
        if isinstance(operation, DescribeGroup) or (isinstance(operation, JoinGroup) and is_free):
            return self._classic
        return self._kind(group)

    def _consumer_protocol(self) -> GroupKind:
        if self._consumer is None:
            raise UnsupportedVersion("groups of the consumer protocol are not served here")
        return self._consumer

    def _share_protocol(self) -> ShareProtocol:
        if self._share is None:
            raise UnsupportedVersion("share groups are not served here")
        return self._share

    def _kind(self, group: Group) -> GroupKind:
        if group.type == GroupType.SHARE:
            return self._share_protocol()
        return self._classic if group.type == GroupType.CLASSIC else self._consumer_protocol()

    def _group(self, group_id: str) -> Group:
        group = self.groups.get(group_id)
        if group is None:
            raise GroupIdNotFound(f"Group {group_id} not found.")
        return group

    def _prepared(self, operation: CommitOffsets | CommitOffsetsInTransaction, now: Now) -> PreparedCommit:
        metadata_bytes_max = self._settings.offset_metadata_bytes_max
        return at_once(offset_records.prepare(operation, metadata_bytes_max, now.wall_ms, self._topics.id_of))

    def _commit(self, prepared: PreparedCommit, now: Now) -> GroupDecision:
        asked = prepared.asked
        if isinstance(asked, CommitOffsetsInTransaction):
            return self._commit_in_transaction(prepared, asked)
        group = self.groups.get(asked.group_id)
        if group is not None:
            group.check_commit(asked.member_id, asked.instance_id, asked.generation, asked.version)
        elif asked.generation >= 0:
            raise GroupIdNotFound() if asked.version >= 9 else IllegalGeneration()
        else:
            self._bounds.check_new_group(asked.group_id)
        self._bounds.check_growth(self.offsets.growth(asked.group_id, prepared.commits))
        notes = self._classic.renewed_by_commit(group, asked.member_id, now)
        return Decision(prepared.records, prepared.codes, notes)

    def _commit_in_transaction(self, prepared: PreparedCommit, asked: CommitOffsetsInTransaction) -> GroupDecision:
        """Checked here, however often before: while the transaction was asked about the member may have been fenced."""
        if not asked.group_id:
            raise InvalidGroupId()
        group = self.groups.get(asked.group_id)
        if group is not None:
            try:
                group.check_commit_in_transaction(asked.member_id, asked.instance_id, asked.generation)
            except StaleMemberEpoch:
                if asked.version >= VERSION_WITH_GROUP_ERRORS:
                    raise
                raise IllegalGeneration() from None
        elif asked.generation >= 0:
            raise GroupIdNotFound() if asked.version >= VERSION_WITH_GROUP_ERRORS else IllegalGeneration()
        else:
            self._bounds.check_new_group(asked.group_id)
        pending = self.offsets.pending
        more, growth = self.offsets.pending_growth(asked, prepared.commits)
        count = pending.counts.get(asked.producer.id, 0) + more
        self._bounds.check_pending(asked.group_id, pending.bytes_of(asked.group_id), growth, count if more else 0)
        return Decision(prepared.records, prepared.codes)

    def _check_fetch(self, operation: FetchOffsets) -> None:
        group = self.groups.get(operation.group_id)
        if group is not None:
            group.check_fetch(operation.member_id, operation.member_epoch)

    def _delete_offsets(self, operation: DeleteOffsets) -> GroupDecision:
        if not operation.group_id:
            raise InvalidGroupId()
        group = self._group(operation.group_id)
        group.check_offset_deletion()
        subscribed = {topic: group.is_subscribed(topic) for topic, _ in operation.partitions}
        free = [each for each in operation.partitions if not subscribed[each[0]]]
        codes = [
            ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed[topic] else ErrorCode.NONE
            for topic, _ in operation.partitions
        ]
        return Decision(self.offsets.tombstones(operation.group_id, free), codes)

    def _delete_group(self, operation: DeleteGroup, now: Now) -> GroupDecision:
        group = self._group(operation.group_id)
        if group.type == GroupType.SHARE:
            return self._share_protocol().decide(operation, now)
        group.check_deletion()
        return Decision([*self.offsets.tombstones(operation.group_id), *group.tombstones()], None)

    def _metadata_changed(self, operation: MetadataChanged, now: Now) -> GroupDecision:
        decision = nothing()
        if operation.deleted_topics:
            self._forget_some([*self._doomed, *self.offsets.of_topics(operation.deleted_topics)], decision)
        if self._consumer is not None:
            _extend(decision, self._consumer.decide_metadata_changed(now))
        return decision

    def _forget_some(self, doomed: list[Doomed], decision: GroupDecision) -> None:
        decision.records += self.offsets.tombstones_of(doomed[:FORGOTTEN_RECORDS_PER_TICK_MAX])
        decision.notes.append(_Doomed(doomed[FORGOTTEN_RECORDS_PER_TICK_MAX:]))

    # Time.

    def _tick(self, operation: Tick, now: Now) -> GroupDecision:
        decision = nothing()
        if self._retention_check_ms is None:
            for kind in (self._classic, self._consumer, self._share):
                if kind is not None:
                    _extend(decision, kind.decide_start(now))
            decision.notes.append(_RetentionChecked(now.monotonic_ms + self._settings.retention_check_ms))
            return decision
        due = self._wakeups.due(now.monotonic_ms)
        for group_id in due:
            group = self.groups.get(group_id)
            if group is not None:
                _extend(decision, self._kind(group).decide_tick(group, now))
        if now.monotonic_ms >= self._retention_check_ms:
            wall_ms = now.wall_ms if operation.age_ms is None else operation.age_ms
            expired, more = expiry.expired(self.groups, self.offsets, self._settings.retention_ms, wall_ms)
            # A group that just changed is left alone until the next time: its draft knows nothing of this.
            changed = set(due)
            decision.records += [record for record in expired if _group_id(record) not in changed]
            wait_ms = 0 if more else self._settings.retention_check_ms
            decision.notes.append(_RetentionChecked(now.monotonic_ms + wait_ms))
        if self._doomed:
            self._forget_some(self._doomed, decision)
        decision.notes.append(_Ticked(due))
        return decision

    # Changing.

    def apply(self, record: GroupRecord) -> None:
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self.offsets.apply(key, value, record.producer)
            if value is not None and key.group not in self.groups:
                # A consumer that only keeps its offsets here: a group without members.
                group = ClassicGroup(key.group, Generation(since_ms=value.commit_timestamp))
                self.groups[key.group] = group
                self.group_bytes += group.bytes
            return
        if isinstance(key, Marker):
            self.offsets.end_transaction(key.producer.id, committed=key.end.committed)
            return
        group_id = _group_id(record)
        self.group_bytes -= self._bytes_of(group_id)
        match key:
            case GroupMetadataKey():
                assert value is None or isinstance(value, GroupMetadataValue)
                if value is None:
                    self.groups.pop(key.group, None)
                else:
                    self.groups[key.group] = ClassicGroup.from_record(key.group, value)
            case _ if isinstance(key, SHARE_KEYS):
                if self._share is not None:
                    self._share.apply(record)
            case _:
                if self._consumer is not None:
                    self._consumer.apply(record)
        self.group_bytes += self._bytes_of(group_id)

    def _bytes_of(self, group_id: str) -> int:
        group = self.groups.get(group_id)
        return 0 if group is None else group.bytes

    def unfinished(self) -> list[Any]:
        return [] if self._share is None else list(self._share.unfinished())

    def note(self, note: Any) -> None:
        match note:
            case SessionRenewed(group_id, member_id, deadline_ms):
                self.groups[group_id].renew_session(member_id, deadline_ms)
                self._wakeups.at(group_id, deadline_ms)
            case LiveIs(group_id, live):
                group = self.groups[group_id]
                self.group_bytes -= group.bytes
                first_ms = group.move(live)
                self.group_bytes += group.bytes
                self._wakeups.at(group_id, first_ms)
            case GroupRebalanced() | MembersExpired():
                self._on_news(note)
            case _RetentionChecked():
                self._retention_check_ms = note.next_ms
            case _Doomed():
                self._doomed = note.offsets
            case _Ticked():
                for group_id in note.group_ids:
                    self._wakeups.forget(group_id)
                    if group_id in self.groups:
                        self._wakeups.at(group_id, self.groups[group_id].deadline_ms)
            case _:
                self._consumer_protocol().note(note)


class _Alone:
    """The usage of one coordinator."""

    def __init__(self, coordinator: GroupCoordinator) -> None:
        self._coordinator = coordinator

    @property
    def group_count(self) -> int:
        return len(self._coordinator.groups)

    @property
    def bytes(self) -> int:
        return self._coordinator.group_bytes + self._coordinator.offsets.bytes


class _RetentionChecked:
    __slots__ = ("next_ms",)

    def __init__(self, next_ms: int) -> None:
        self.next_ms = next_ms


class _Doomed:
    __slots__ = ("offsets",)

    def __init__(self, offsets: list[Doomed]) -> None:
        self.offsets = offsets


class _Ticked:
    __slots__ = ("group_ids",)

    def __init__(self, group_ids: list[str]) -> None:
        self.group_ids = group_ids


class Wakeups:
    """When each group wants a tick, at the latest: a group whose deadlines moved away is woken for nothing, once."""

    def __init__(self) -> None:
        self._at: dict[str, int] = {}
        self._sorted: list[tuple[int, str]] = []

    @property
    def first_ms(self) -> int | None:
        return self._sorted[0][0] if self._sorted else None

    def at(self, group_id: str, deadline_ms: int | None) -> None:
        """At the deadline or earlier."""
        armed = self._at.get(group_id)
        if deadline_ms is None or (armed is not None and armed <= deadline_ms):
            return
        self.forget(group_id)
        self._at[group_id] = deadline_ms
        insort(self._sorted, (deadline_ms, group_id))

    def forget(self, group_id: str) -> None:
        armed = self._at.pop(group_id, None)
        if armed is not None:
            del self._sorted[bisect_left(self._sorted, (armed, group_id))]

    def due(self, now_ms: int) -> list[str]:
        end = bisect_right(self._sorted, now_ms, key=lambda entry: entry[0])
        return [group_id for _, group_id in self._sorted[:end]]


def _may_create(operation: JoinGroup | SyncGroup | ConsumerHeartbeat | ShareHeartbeat | AlterShareOffsets) -> bool:
    if isinstance(operation, ConsumerHeartbeat | ShareHeartbeat):
        return operation.member_epoch == JOINING
    return isinstance(operation, JoinGroup | AlterShareOffsets)


def _listed(groups: Iterable[Group], operation: ListGroups) -> list[ListedGroup]:
    states = {state.strip().lower() for state in operation.states}
    types = {kind.strip().lower() for kind in operation.types}
    return [
        ListedGroup(group.group_id, group.protocol_type, group.state_name, group.type)
        for group in groups
        if (not states or group.state_name.lower() in states) and (not types or group.type.value in types)
    ]


def _group_id(record: GroupRecord) -> str:
    key: Any = record.key
    return key.group if isinstance(key, OffsetCommitKey | GroupMetadataKey) else key.group_id


def _extend(decision: GroupDecision, more: GroupDecision) -> None:
    decision.records += more.records
    decision.notes += more.notes
    decision.answers += more.answers
    decision.effects += more.effects
