"""The consumer protocol (KIP-848): ConsumerGroupHeartbeat and ConsumerGroupDescribe.

The coordinator assigns. A member says with each heartbeat what has changed on its side; the coordinator makes a new
target when the group has changed, and leads each member to it on its own: first to give up, then to get. A heartbeat
that changes nothing costs no record and no copy.
"""

from typing import Any

from msgspec.structs import replace

from skidway.errors import (
    GroupIdNotFound,
    GroupMaxSizeReached,
    InvalidRequest,
    UnreleasedInstanceId,
    UnsupportedAssignor,
)
from skidway.groups import migration
from skidway.groups.classic.group import ClassicGroup
from skidway.groups.consumer import classic_members
from skidway.groups.consumer.assignors import ASSIGNORS
from skidway.groups.consumer.change import Change, preferred_assignor, reconciled
from skidway.groups.consumer.group import ConsumerGroup
from skidway.groups.consumer.operations import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    ConsumerDescribe,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumer,
    DescribedConsumerGroup,
)
from skidway.groups.consumer.patterns import Patterns
from skidway.groups.consumer.reconciliation import ConsumerMember, MemberState, Partitions, by_topic, partitions_of
from skidway.groups.kinds import Context, Group, GroupDecision, SessionRenewed, nothing
from skidway.groups.news import MembersExpired
from skidway.groups.operations import Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from skidway.groups.records import GroupRecord
from skidway.ports import Random
from skidway.runtime.replicated import Decision, Now, Operation
from skidway.wire.schema.group_records import ConsumerGroupMetadataKey

_BASE64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"


class ConsumerProtocol:
    def __init__(self, context: Context, patterns: Patterns | None = None) -> None:
        """Coordinators of the same topics may share their `patterns`."""
        self._context = context
        self._patterns = patterns or Patterns()

    # What a coordinator asks of a protocol.

    def decide(self, operation: Operation[Any], now: Now) -> GroupDecision:
        match operation:
            case ConsumerHeartbeat():
                return self._heartbeat(operation, now)
            case ConsumerDescribe():
                return Decision([], self._described(operation.group_id))
            case JoinGroup():
                return classic_members.join(operation, self._change(operation.group_id, now))
            case SyncGroup():
                return classic_members.sync(operation, self._known(operation.group_id), self._context, now)
            case Heartbeat():
                return classic_members.heartbeat(operation, self._known(operation.group_id), now)
            case LeaveGroup():
                return classic_members.leave(operation, self._change(operation.group_id, now))
        raise AssertionError(operation)

    def decide_tick(self, group: Group, now: Now) -> GroupDecision:
        assert isinstance(group, ConsumerGroup)
        due = _due(group, now)
        if not due:
            return nothing()
        change = Change(self._context, self._patterns, group, now)
        change.news.append(MembersExpired(group.group_id, tuple(due)))
        for member_id in due:
            if migration.is_last_of_the_protocol(change, member_id):
                return migration.downgrade(change, member_id, None)
            change.remove(member_id)
        change.bump_without_removed()
        return change.decision(None)

    def decide_metadata_changed(self, now: Now) -> GroupDecision:
        """Each group looks with its next heartbeat."""
        return nothing()

    def decide_start(self, now: Now) -> GroupDecision:
        decision = nothing()
        for group in self._context.groups.values():
            if not isinstance(group, ConsumerGroup) or not group.members:
                continue
            change = Change(self._context, self._patterns, group, now)
            for member in group.members.values():
                change.renew(member.member_id)
                is_here = member.classic is None and member.epoch != LEAVING_FOR_A_WHILE
                if is_here and member.state == MemberState.UNREVOKED:
                    change.group.live.revocations[member.member_id] = now.monotonic_ms + member.rebalance_timeout_ms
            decision.notes += change.decision(None).notes
        return decision

    def apply(self, record: GroupRecord) -> None:
        key: Any = record.key
        groups = self._context.groups
        group = groups.get(key.group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return
            group = groups[key.group_id] = ConsumerGroup(key.group_id, self._patterns.matches)
        if isinstance(key, ConsumerGroupMetadataKey) and record.value is None:
            del groups[key.group_id]
        else:
            group.apply(record)

    def note(self, note: Any) -> None:
        raise AssertionError(note)

    # Finding the group.

    def _known(self, group_id: str) -> ConsumerGroup:
        group = self._context.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return group

    def _change(self, group_id: str, now: Now) -> Change:
        return Change(self._context, self._patterns, self._known(group_id), now)

    def _change_to_join(self, group_id: str, now: Now) -> Change:
        """Of the group, which may have to be made, or made of a classic one."""
        found = self._context.groups.get(group_id)
        if isinstance(found, ConsumerGroup):
            return Change(self._context, self._patterns, found, now)
        change = Change(self._context, self._patterns, ConsumerGroup(group_id, self._patterns.matches), now)
        if found is None:
            return change
        if not isinstance(found, ClassicGroup) or not (found.is_empty or migration.can_upgrade(found, self._context)):
            raise GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        change.records += found.tombstones()
        if not found.is_empty:
            migration.upgrade(found, change)
        return change

    # ConsumerGroupHeartbeat.

    def _heartbeat(self, call: ConsumerHeartbeat, now: Now) -> GroupDecision:
        self._check(call)
        if call.member_epoch in (LEAVING, LEAVING_FOR_A_WHILE):
            return self._leave(call, now)
        owned = None if call.owned is None else partitions_of(call.owned)
        if call.member_epoch == JOINING:
            change = self._change_to_join(call.group_id, now)
            return self._joined(call, change, owned)
        group = self._known(call.group_id)
        member = group.member(call.member_id, call.instance_id)
        member.check_epoch(call.member_epoch, owned)
        if self._changes_nothing(group, member, call, owned):
            session_timeout_ms, _ = self._context.timeouts(group.group_id)
            renewed = SessionRenewed(group.group_id, member.member_id, now.monotonic_ms + session_timeout_ms)
            return Decision([], self._reply(call, member, member), [renewed])
        change = Change(self._context, self._patterns, group, now)
        return self._moved(call, change, member, member, owned)

    def _check(self, call: ConsumerHeartbeat) -> None:
        for text, name in ((call.group_id, "GroupId"), (call.instance_id, "InstanceId"), (call.rack_id, "RackId")):
            if text is not None and not text.strip():
                raise InvalidRequest(f"{name} can't be empty.")
        if call.member_epoch < LEAVING_FOR_A_WHILE:
            raise InvalidRequest("MemberEpoch is invalid.")
        if not call.member_id.strip() and (call.member_epoch != JOINING or call.version >= 1):
            raise InvalidRequest("MemberId can't be empty.")
        if call.member_epoch == LEAVING_FOR_A_WHILE and call.instance_id is None:
            raise InvalidRequest("InstanceId can't be null.")
        if call.rebalance_timeout_ms < -1:
            raise InvalidRequest("RebalanceTimeoutMs must not be negative.")
        if call.member_epoch == JOINING:
            _check_first(call)
        supported = self._context.settings.consumer_assignors
        if call.assignor is not None and (call.assignor not in supported or call.assignor not in ASSIGNORS):
            raise UnsupportedAssignor(
                f"ServerAssignor {call.assignor} is not supported. Supported assignors: {', '.join(supported)}."
            )
        if call.regex:
            self._patterns.check(call.regex, self._context.topics.names())

    def _changes_nothing(
        self, group: ConsumerGroup, member: ConsumerMember, call: ConsumerHeartbeat, owned: Partitions | None
    ) -> bool:
        return (
            group.live.topics_epoch == self._context.topics.epoch
            and group.epoch == group.target_epoch
            and _says_nothing_new(member, call)
            and reconciled(group, member, owned) is member
        )

    def _joined(self, call: ConsumerHeartbeat, change: Change, owned: Partitions | None) -> GroupDecision:
        group = change.group
        member_id = call.member_id or _member_id(self._context.random)
        known = None if call.instance_id is None else group.instances.get(call.instance_id)
        size_max = self._context.settings.consumer_size_max
        if member_id not in group.members and known is None and len(group.members) >= size_max:
            raise GroupMaxSizeReached(f"The group has reached its maximum of {size_max} members.")
        before = group.members.get(member_id if known is None else known)
        if before is not None and before.member_id != member_id:
            if before.classic is None and before.epoch != LEAVING_FOR_A_WHILE:
                raise UnreleasedInstanceId(
                    f"Instance id {call.instance_id} still belongs to member {before.member_id}."
                )
            before = change.replace_static(before, member_id)
        return self._moved(call, change, before, before or ConsumerMember(member_id), owned)

    def _moved(
        self,
        call: ConsumerHeartbeat,
        change: Change,
        before: ConsumerMember | None,
        member: ConsumerMember,
        owned: Partitions | None,
    ) -> GroupDecision:
        group = change.group
        bump = change.subscribe(before, _as_said(member, call))
        if bump or group.live.topics_epoch != self._context.topics.epoch:
            change.refresh(bump=bump)
        change.assign()
        change.reconcile(member.member_id, owned)
        change.renew(member.member_id)
        return change.decision(self._reply(call, member, group.members[member.member_id]))

    def _reply(self, call: ConsumerHeartbeat, before: ConsumerMember, member: ConsumerMember) -> ConsumerHeartbeatReply:
        says_everything = call.member_epoch == JOINING or (
            call.rebalance_timeout_ms != -1
            and (call.topics is not None or call.regex is not None)
            and call.owned is not None
        )
        tell = says_everything or before.assigned != member.assigned
        _, heartbeat_interval_ms = self._context.timeouts(call.group_id)
        return ConsumerHeartbeatReply(
            member.member_id,
            member.epoch,
            heartbeat_interval_ms,
            by_topic(member.assigned) if tell else None,
        )

    def _leave(self, call: ConsumerHeartbeat, now: Now) -> GroupDecision:
        change = self._change(call.group_id, now)
        member = change.group.member(call.member_id, call.instance_id)
        reply = ConsumerHeartbeatReply(member.member_id, call.member_epoch)
        if call.member_epoch == LEAVING_FOR_A_WHILE:
            change.leave_for_a_while(member)
            return change.decision(reply)
        if migration.is_last_of_the_protocol(change, member.member_id):
            return migration.downgrade(change, member.member_id, reply)
        change.remove(member.member_id)
        change.bump_without_removed()
        return change.decision(reply)

    # ConsumerGroupDescribe.

    def _described(self, group_id: str) -> DescribedConsumerGroup:
        group = self._known(group_id)
        members = [
            DescribedConsumer(
                member.member_id,
                member.instance_id,
                member.rack_id,
                member.epoch,
                member.client_id,
                member.client_host,
                sorted(member.topics),
                member.regex,
                self._named(member.assigned),
                self._named(group.target.get(member.member_id, frozenset())),
                member.classic is not None,
            )
            for member in group.members.values()
        ]
        assignor = preferred_assignor(group, self._context)
        return DescribedConsumerGroup(
            group_id, group.state_name, group.epoch, max(group.target_epoch, 0), assignor, members
        )

    def _named(self, partitions: Partitions) -> list[tuple[bytes, str, list[int]]]:
        named = [(each, self._context.topics.name_of(each), numbers) for each, numbers in by_topic(partitions)]
        return [(topic_id, name, numbers) for topic_id, name, numbers in named if name is not None]


def _check_first(call: ConsumerHeartbeat) -> None:
    if call.rebalance_timeout_ms == -1:
        raise InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
    if call.owned is None or call.owned:
        raise InvalidRequest("TopicPartitions must be empty when (re-)joining.")
    if call.topics is None and call.regex is None:
        raise InvalidRequest("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def _as_said(member: ConsumerMember, call: ConsumerHeartbeat) -> ConsumerMember:
    return replace(
        member,
        instance_id=member.instance_id if call.instance_id is None else call.instance_id,
        rack_id=member.rack_id if call.rack_id is None else call.rack_id,
        client_id=call.client_id,
        client_host=call.client_host,
        rebalance_timeout_ms=(
            member.rebalance_timeout_ms if call.rebalance_timeout_ms == -1 else call.rebalance_timeout_ms
        ),
        topics=member.topics if call.topics is None else frozenset(call.topics),
        regex=member.regex if call.regex is None else call.regex or None,
        assignor=member.assignor if call.assignor is None else call.assignor,
        classic=None,
    )


def _says_nothing_new(member: ConsumerMember, call: ConsumerHeartbeat) -> bool:
    """The same as `_as_said(member, call) == member`, for the heartbeat that comes most: the one without a word."""
    if call.client_id != member.client_id or call.client_host != member.client_host or member.classic is not None:
        return False
    if call.topics is None and call.regex is None and call.assignor is None and call.rack_id is None:
        # A static member is known by its instance already.
        return call.rebalance_timeout_ms in (-1, member.rebalance_timeout_ms)
    return _as_said(member, call) == member


def _due(group: ConsumerGroup, now: Now) -> list[str]:
    """Members whose time is over, those that were first over first."""
    ends = [(at_ms, member_id) for timer in group.live.timers for member_id, at_ms in timer.items()]
    over = sorted(end for end in ends if end[0] <= now.monotonic_ms)
    return list(dict.fromkeys(member_id for _, member_id in over))


def _member_id(random: Random) -> str:
    """22 characters of URL-safe base64, like Kafka's. The first has two bits only, so it is never a dash."""
    number = int.from_bytes(random.randbytes(16), "big")
    digits = [_BASE64[number >> shift & 63] for shift in range(126, -1, -6)]
    return "".join(digits)
