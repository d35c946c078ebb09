"""Share groups (KIP-932): ShareGroupHeartbeat, ShareGroupDescribe, and what is done about their share-partitions.

The coordinator assigns, and one heartbeat takes a member there: several members may have the same partition. Only
share-partitions that have a state are assigned. The states are kept by share coordinators: a group notes which it
wants, has them initialised (an effect), notes when that is done, and assigns. Until then members are asked to come back
soon.

Where Kafka 4.4 decides otherwise, on purpose:
- Where delivery starts is found when a share-partition is initialised, and stored before anybody is assigned it. Kafka
  finds it with the first fetch, and again after a fail-over: records in between are lost.
- A share-partition is initialised in the same state epoch however often that is tried, so only the first try counts.
- A group gets its next assignment as soon as its share-partitions are initialised, without waiting for an interval.
"""

from collections.abc import Callable, Iterator
from typing import Any

from msgspec.structs import replace

from skidway.errors import (
    CoordinatorNotAvailable,
    ErrorCode,
    GroupIdNotFound,
    GroupMaxSizeReached,
    InconsistentGroupProtocol,
    InvalidGroupId,
    InvalidRequest,
    NonEmptyGroup,
    UnknownMemberId,
)
from skidway.groups.consumer.reconciliation import NO_PARTITIONS, by_topic
from skidway.groups.kinds import Context, Group, GroupDecision, SessionRenewed, nothing
from skidway.groups.news import MembersExpired
from skidway.groups.operations import DeleteGroup, Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from skidway.groups.records import GroupRecord
from skidway.groups.share.change import ShareChange
from skidway.groups.share.group import ShareGroup, ShareMember, Work, epoch_record, target_epoch_record
from skidway.groups.share.operations import (
    JOINING,
    LEAVING,
    AlterShareOffsets,
    DeleteShareOffsets,
    DeleteStates,
    DescribedShareGroup,
    DescribedShareMember,
    InitializeStates,
    KnownShares,
    ShareDescribe,
    ShareHeartbeat,
    ShareHeartbeatReply,
    StateEffect,
    StatesChanged,
)
from skidway.runtime.replicated import PARKED, Decision, Now, Operation
from skidway.wire.schema.share_records import ShareGroupMetadataKey

MEMBER_ID_LENGTH_MAX = 36
"""Clients make a UUID."""
SOON_MS = 200
"""When a member is asked to come back while there is something for it any moment."""


class ShareProtocol:
    def __init__(
        self, context: Context, timeouts: Callable[[str], tuple[int, int]], size_max: int, numbers: Iterator[int]
    ) -> None:
        """`timeouts` of a group: session timeout and heartbeat interval. `numbers` of effects are never the same, also
        for the machine that takes this one's place."""
        self._context = context
        self._timeouts = timeouts
        self._size_max = size_max
        self._numbers = numbers

    # What a coordinator asks of a protocol.

    def decide(self, operation: Operation[Any], now: Now) -> GroupDecision:
        match operation:
            case ShareHeartbeat():
                return self._heartbeat(operation, now)
            case ShareDescribe():
                return Decision([], self._described(self._known(operation.group_id)))
            case KnownShares():
                return Decision([], self._shares_of(operation.group_id))
            case StatesChanged():
                return self._states_changed(operation, now)
            case AlterShareOffsets():
                return self._alter(operation, now)
            case DeleteShareOffsets():
                return self._delete_offsets(operation, now)
            case DeleteGroup():
                return self._delete_group(operation, now)
            case JoinGroup():
                raise InconsistentGroupProtocol(f"Group {operation.group_id} is a share group.")
            case SyncGroup() | Heartbeat() | LeaveGroup():
                raise UnknownMemberId(f"Group {operation.group_id} is a share group.")
        raise AssertionError(operation)

    def decide_tick(self, group: Group, now: Now) -> GroupDecision:
        assert isinstance(group, ShareGroup)
        due = [each for each, deadline_ms in group.live.sessions.items() if deadline_ms <= now.monotonic_ms]
        retry = any(deadline_ms <= now.monotonic_ms for deadline_ms in group.live.retries.values())
        if not due and not retry:
            return nothing()
        change = ShareChange(self._context, group, now, self._numbers)
        for member_id in due:
            change.remove(member_id)
        if due:
            change.news.append(MembersExpired(group.group_id, tuple(due)))
            change.after_removal()
        if retry:
            change.work_on_states()
        return change.decision(None)

    def decide_metadata_changed(self, now: Now) -> GroupDecision:
        """Each group looks with its next heartbeat."""
        return nothing()

    def decide_start(self, now: Now) -> GroupDecision:
        decision = nothing()
        for group in self._context.groups.values():
            if isinstance(group, ShareGroup) and group.members:
                change = ShareChange(self._context, group, now, self._numbers)
                for member_id in list(group.members):
                    self._renew(change, member_id)
                decision.notes += change.decision(None).notes
        return decision

    def unfinished(self) -> list[StateEffect]:
        effects: list[StateEffect] = []
        for group in self._context.groups.values():
            if isinstance(group, ShareGroup) and (group.initializing or group.deleting):
                change = ShareChange(self._context, group, Now(0, 0), self._numbers)
                change.work_on_states()
                group.move(change.group.live)
                effects += change.effects
        return effects

    def apply(self, record: GroupRecord) -> None:
        key: Any = record.key
        groups = self._context.groups
        group = groups.get(key.group_id)
        if not isinstance(group, ShareGroup):
            if record.value is None:
                return
            group = groups[key.group_id] = ShareGroup(key.group_id)
        if isinstance(key, ShareGroupMetadataKey) and record.value is None:
            del groups[key.group_id]
        else:
            group.apply(record)

    def note(self, note: Any) -> None:
        raise AssertionError(note)

    # Finding the group.

    def _known(self, group_id: str) -> ShareGroup:
        _check_name(group_id)
        group = self._context.groups.get(group_id)
        if not isinstance(group, ShareGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a share group.")
        return group

    def _known_or_new(self, group_id: str) -> ShareGroup:
        return self._known(group_id) if group_id in self._context.groups else ShareGroup(group_id)

    # ShareGroupHeartbeat.

    def _heartbeat(self, call: ShareHeartbeat, now: Now) -> GroupDecision:
        _check(call)
        if call.member_epoch == LEAVING:
            return self._leave(call, now)
        if call.member_epoch == JOINING:
            group = self._known_or_new(call.group_id)
            before = group.members.get(call.member_id)
            if before is None and len(group.members) >= self._size_max:
                raise GroupMaxSizeReached(f"The group has reached its maximum of {self._size_max} members.")
            return self._moved(call, group, before, before or ShareMember(call.member_id), now)
        group = self._known(call.group_id)
        member = group.member(call.member_id)
        member.check_epoch(call.member_epoch)
        if self._changes_nothing(group, member, call):
            session_timeout_ms, _ = self._timeouts(group.group_id)
            renewed = SessionRenewed(group.group_id, member.member_id, now.monotonic_ms + session_timeout_ms)
            return Decision([], self._reply(call, group, member, member), [renewed])
        return self._moved(call, group, member, member, now)

    def _changes_nothing(self, group: ShareGroup, member: ShareMember, call: ShareHeartbeat) -> bool:
        return (
            group.live.topics_epoch == self._context.topics.epoch
            and group.epoch == group.target_epoch
            and member.epoch == group.target_epoch
            and member.assigned == group.target.get(member.member_id, NO_PARTITIONS)
            and _as_said(member, call) == member
        )

    def _moved(
        self, call: ShareHeartbeat, group: ShareGroup, before: ShareMember | None, member: ShareMember, now: Now
    ) -> GroupDecision:
        change = ShareChange(self._context, group, now, self._numbers)
        change.refresh(bump=change.put(before, _as_said(member, call)))
        change.assign()
        change.reconcile(member.member_id)
        self._renew(change, member.member_id)
        after = change.group.members[member.member_id]
        return change.decision(self._reply(call, change.group, member, after))

    def _renew(self, change: ShareChange, member_id: str) -> None:
        session_timeout_ms, _ = self._timeouts(change.group.group_id)
        change.group.live.sessions[member_id] = change.now.monotonic_ms + session_timeout_ms

    def _reply(
        self, call: ShareHeartbeat, group: ShareGroup, before: ShareMember, member: ShareMember
    ) -> ShareHeartbeatReply:
        tell = call.member_epoch == JOINING or call.topics is not None or before.assigned != member.assigned
        # Who did not hear of its last assignment comes with the epoch before.
        tell = tell or call.member_epoch != before.epoch
        _, heartbeat_interval_ms = self._timeouts(call.group_id)
        if group.is_pending:
            heartbeat_interval_ms = min(heartbeat_interval_ms, SOON_MS)
        assignment = by_topic(member.assigned) if tell else None
        return ShareHeartbeatReply(member.member_id, member.epoch, heartbeat_interval_ms, assignment)

    def _leave(self, call: ShareHeartbeat, now: Now) -> GroupDecision:
        group = self._known(call.group_id)
        member = group.member(call.member_id)
        change = ShareChange(self._context, group, now, self._numbers)
        change.remove(member.member_id)
        change.after_removal()
        return change.decision(ShareHeartbeatReply(member.member_id, LEAVING))

    # States of share-partitions.

    def _states_changed(self, done: StatesChanged, now: Now) -> GroupDecision:
        group = self._context.groups.get(done.group_id)
        if not isinstance(group, ShareGroup) or done.number not in group.live.works:
            return nothing()  # of an earlier coordinator, whose work another one has taken over
        change = ShareChange(self._context, group, now, self._numbers)
        work = change.group.live.works.pop(done.number)
        assert len(done.codes) == len(work.effect.items), "a code for each"
        if isinstance(work.effect, InitializeStates):
            self._initialized(change, work.effect, done.codes)
        elif not self._deleted(change, work.effect, done.codes):
            change.try_later()
        if work.asked is None:
            return change.decision(None)
        return self._answered(change, work, done.codes)

    def _initialized(self, change: ShareChange, effect: InitializeStates, codes: list[ErrorCode]) -> None:
        group = change.group
        # A state of a later epoch: an admin has said where to start.
        fine = (ErrorCode.NONE, ErrorCode.FENCED_STATE_EPOCH)
        all_of_it = all(code in fine for code in codes)
        is_wanted = bool(group.initializing & {(item.topic_id, item.partition) for item in effect.items})
        if not all_of_it and is_wanted:
            # A topic as a whole, or the rest would start at 0 as if it had come later.
            change.try_later()
            return
        done = frozenset(
            (item.topic_id, item.partition)
            for item, code in zip(effect.items, codes, strict=True)
            if code in fine and item.topic_id not in group.deleting
        )
        if done - group.initialized or done & group.initializing:
            change.set_states(group.initializing - done, group.initialized | done, group.deleting)
        if group.members:
            change.refresh(bump=False)
            change.assign()

    def _deleted(self, change: ShareChange, effect: DeleteStates, codes: list[ErrorCode]) -> bool:
        if any(code != ErrorCode.NONE for code in codes):
            return False
        group = change.group
        busy = {item.topic_id for work in group.live.works.values() for item in work.effect.items}
        named = {item.topic_id for item in effect.items}
        gone = {topic_id for topic_id in group.deleting if self._context.topics.name_of(topic_id) is None}
        change.set_states(
            group.initializing, group.initialized, group.deleting - (named | gone) | (group.deleting & busy)
        )
        return True

    def _answered(self, change: ShareChange, work: Work, codes: list[ErrorCode]) -> GroupDecision:
        """Of a call that waited for it."""
        asked, group = work.asked, change.group
        assert asked is not None
        failed = [code for code in codes if code != ErrorCode.NONE]
        if not isinstance(asked, DeleteGroup):
            reply: Any = codes if isinstance(asked, AlterShareOffsets) else [max(codes, default=ErrorCode.NONE)]
            if isinstance(asked, DeleteShareOffsets):
                reply = _by_topic(asked, work.effect, codes)
            change.answers.append((asked, reply))
            return change.decision(None)
        if failed:
            change.answers.append((asked, CoordinatorNotAvailable("its share-partitions could not be deleted: retry")))
        elif group.members:
            change.answers.append((asked, NonEmptyGroup()))
        else:
            return Decision([*change.records, *group.tombstones()], None, answers=[(asked, None)])
        return change.decision(None)

    # What admins ask.

    def _described(self, group: ShareGroup) -> DescribedShareGroup:
        members = [_described_member(each, self._named(by_topic(each.assigned))) for each in group.members.values()]
        return DescribedShareGroup(group.group_id, group.state_name, group.epoch, max(group.target_epoch, 0), members)

    def _shares_of(self, group_id: str) -> list[tuple[bytes, str, list[int]]]:
        """A group that is not there reads nothing, which is no error."""
        _check_name(group_id)
        group = self._context.groups.get(group_id)
        return self._named(by_topic(group.initialized)) if isinstance(group, ShareGroup) else []

    def _named(self, topics: list[tuple[bytes, list[int]]]) -> list[tuple[bytes, str, list[int]]]:
        named = [(topic_id, self._context.topics.name_of(topic_id), numbers) for topic_id, numbers in topics]
        return [(topic_id, name, numbers) for topic_id, name, numbers in named if name is not None]

    def _alter(self, asked: AlterShareOffsets, now: Now) -> GroupDecision:
        group = self._known_or_new(asked.group_id)
        group.check_deletion()
        change = ShareChange(self._context, group, now, self._numbers)
        # The epoch first: the state of every share-partition that is altered gets one that was never there.
        epoch = group.epoch + 1
        change.emit(epoch_record(group.group_id, epoch, group.metadata_hash))
        change.emit(target_epoch_record(group.group_id, epoch, now.wall_ms))
        change.initialize(epoch, asked.items, asked)
        return change.decision(PARKED)

    def _delete_offsets(self, asked: DeleteShareOffsets, now: Now) -> GroupDecision:
        group = self._known(asked.group_id)
        group.check_deletion()
        topic_ids = group.topic_ids & frozenset(asked.topic_ids)
        if not topic_ids:
            return Decision([], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for _ in asked.topic_ids])
        change = ShareChange(self._context, group, now, self._numbers)
        self._begin_deletion(change, topic_ids, asked)
        return change.decision(PARKED)

    def _delete_group(self, asked: DeleteGroup, now: Now) -> GroupDecision:
        group = self._known(asked.group_id)
        group.check_deletion()
        topic_ids = group.topic_ids
        if not topic_ids:
            return Decision(group.tombstones(), None)
        change = ShareChange(self._context, group, now, self._numbers)
        self._begin_deletion(change, topic_ids, asked)
        return change.decision(PARKED)

    def _begin_deletion(self, change: ShareChange, topic_ids: frozenset[bytes], asked: Operation[Any]) -> None:
        """That they are to be deleted is written down first, so it is done whoever coordinates then."""
        group = change.group
        change.set_states(
            frozenset(each for each in group.initializing if each[0] not in topic_ids),
            frozenset(each for each in group.initialized if each[0] not in topic_ids),
            group.deleting | topic_ids,
        )
        change.delete(sorted(topic_ids), asked)


def _described_member(member: ShareMember, assigned: list[tuple[bytes, str, list[int]]]) -> DescribedShareMember:
    return DescribedShareMember(
        member.member_id,
        member.rack_id,
        member.epoch,
        member.client_id,
        member.client_host,
        sorted(member.topics),
        assigned,
    )


def _check_name(group_id: str) -> None:
    if not group_id:
        raise InvalidGroupId("The group id is empty.")


def _check(call: ShareHeartbeat) -> None:
    if not call.group_id.strip():
        raise InvalidRequest("The group id is empty.")
    if not call.member_id.strip():
        raise InvalidRequest("The member id is empty.")
    if len(call.member_id) > MEMBER_ID_LENGTH_MAX:
        raise InvalidRequest(f"MemberId can't be longer than {MEMBER_ID_LENGTH_MAX} characters.")
    if call.member_epoch < LEAVING:
        raise InvalidRequest("The member epoch is less than -1.")
    if call.rack_id is not None and not call.rack_id.strip():
        raise InvalidRequest("The rack id is empty: leave it out, or name the rack.")
    if call.member_epoch == JOINING and not call.topics:
        raise InvalidRequest("A member that joins has to name the topics it reads.")


def _as_said(member: ShareMember, call: ShareHeartbeat) -> ShareMember:
    return replace(
        member,
        rack_id=member.rack_id if call.rack_id is None else call.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        topics=member.topics if call.topics is None else frozenset(call.topics),
    )


def _by_topic(asked: DeleteShareOffsets, effect: StateEffect, codes: list[ErrorCode]) -> list[ErrorCode]:
    """A topic that the group does not read is as unknown as one that is not there."""
    results = dict.fromkeys(asked.topic_ids, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for item, code in zip(effect.items, codes, strict=True):
        if results[item.topic_id] in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE):
            results[item.topic_id] = code
    return [results[topic_id] for topic_id in asked.topic_ids]
