"""Groups that change their protocol while they run, in both directions.

A join by the consumer protocol makes a consumer group of a classic one; its members keep what they have and go on with
the classic requests (`consumer.classic_members`). When the last member of the consumer protocol is gone, the group is a
classic one again.
"""

from collections.abc import Collection
from typing import Any

from msgspec.structs import replace

from skidway.errors import (
    InconsistentGroupProtocol,
    InvalidRequest,
    RebalanceInProgress,
)
from skidway.groups.classic.generation import CONSUMER_PROTOCOL_TYPE, Generation, Member
from skidway.groups.classic.group import ClassicGroup, ClassicLive
from skidway.groups.classic.offers import Offers, Protocols
from skidway.groups.classic.rebalance import Rebalance
from skidway.groups.classic.states import Completing, Preparing, Stable
from skidway.groups.consumer.change import Change
from skidway.groups.consumer.embedded import assigned_data, read_assignment, read_subscription, write_assignment
from skidway.groups.consumer.group import (
    current_record,
    epoch_record,
    member_record,
    target_epoch_record,
    target_record,
)
from skidway.groups.consumer.reconciliation import (
    ClassicSide,
    ConsumerMember,
    Partition,
)
from skidway.groups.kinds import Context, GroupDecision
from skidway.runtime.replicated import Decision

# From the classic protocol.


def can_upgrade(group: ClassicGroup, context: Context) -> bool:
    settings = context.settings
    if settings.consumer_migration_policy not in ("upgrade", "bidirectional"):
        return False
    current = group.live.current
    if current.protocol_type != CONSUMER_PROTOCOL_TYPE or len(current.members) > settings.consumer_size_max:
        return False
    # What an assignor told its members beside their partitions would be lost.
    return not any(assigned_data(member.assignment) for member in current.members.values())


def upgrade(classic: ClassicGroup, change: Change) -> None:
    """Make the members of `classic` those of the new group. Whoever waits is told to join again, and that reaches
    the new group; those who never were answered need not be known before."""
    newcomers: Collection[str] = ()
    match classic.live.state:
        case Preparing(joins=joins, newcomers=newcomers):
            change.answers += [(call, RebalanceInProgress()) for call in joins.values()]
        case Completing(syncs=syncs):
            change.answers += [(call, RebalanceInProgress()) for call in syncs.values()]
    group_id, context, current = classic.group_id, change.context, classic.live.current
    members: list[ConsumerMember] = []
    taken: set[Partition] = set()
    for each in current.members.values():
        if each.member_id in newcomers:
            continue
        try:
            upgraded = _upgraded(each, classic.live, context)
        except InvalidRequest:
            raise InconsistentGroupProtocol("The group's members do not speak the consumer protocol.") from None
        # What two believe to own goes to one of them.
        members.append(replace(upgraded, assigned=upgraded.assigned - taken))
        taken |= upgraded.assigned
    change.emit(*(member_record(group_id, member) for member in members))
    change.emit(epoch_record(group_id, current.number))
    change.emit(*(target_record(group_id, member.member_id, member.assigned) for member in members))
    change.emit(target_epoch_record(group_id, current.number))
    change.emit(*(current_record(group_id, member) for member in members))
    for member in members:
        change.renew(member.member_id)


def _upgraded(member: Member, live: ClassicLive, context: Context) -> ConsumerMember:
    protocols, generation = live.offers.by_member[member.member_id], live.current.number
    chosen = next((metadata for name, metadata in protocols if name == live.current.protocol_name), protocols[0][1])
    subscription = read_subscription(chosen)
    return ConsumerMember(
        member.member_id,
        member.instance_id,
        subscription.rack_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        frozenset(subscription.topics),
        classic=classic_side(member.session_timeout_ms, protocols),
        epoch=generation,
        previous_epoch=generation,
        assigned=read_assignment(member.assignment, context),
    )


def classic_side(session_timeout_ms: int, protocols: Protocols) -> ClassicSide:
    return ClassicSide(session_timeout_ms, tuple((name, bytes(metadata)) for name, metadata in protocols))


# Back to the classic protocol.


def is_last_of_the_protocol(change: Change, member_id: str) -> bool:
    """Whether a group without this member would be a classic one."""
    settings = change.context.settings
    members = change.group.members
    return (
        members[member_id].classic is None
        and 0 < len(members) - 1 <= settings.size_max
        and all(each.classic is not None for each in members.values() if each.member_id != member_id)
        and settings.consumer_migration_policy in ("downgrade", "bidirectional")
    )


def became_classic(change: Change) -> bool:
    """The last member of the consumer protocol was a static one, and came back with the classic protocol."""
    settings = change.context.settings
    members = change.group.members.values()
    return (
        all(member.classic is not None for member in members)
        and len(members) <= settings.size_max
        and settings.consumer_migration_policy in ("downgrade", "bidirectional")
    )


def downgrade(change: Change, leaving: str | None, reply: Any) -> GroupDecision:
    """The others go on as a classic group, which begins with a rebalance: the leader is to assign what is left."""
    group, context = change.group, change.context
    # Without a leader: a coordinator that finds this record, and none of the rebalance after it, begins that anew.
    generation = Generation(group.epoch, CONSUMER_PROTOCOL_TYPE, since_ms=change.now.wall_ms)
    offers = Offers()
    for member in group.members.values():
        if member.member_id != leaving:
            assert member.classic is not None
            generation.put(_downgraded(member, member.classic))
            offers.put(member.member_id, list(member.classic.protocols))
    protocol_name = offers.elected()
    subscriptions = offers.subscriptions(protocol_name)
    generation.choose(protocol_name, subscriptions)
    # What each may still have, not what it was to get: a consumer join may come before the rebalance is over.
    held = {member_id: group.members[member_id].held for member_id in subscriptions}
    generation.assign({each: write_assignment(held[each], said, context) for each, said in subscriptions.items()})
    rebalance = Rebalance(context, group.group_id, ClassicLive(generation, Stable(), offers), change.now)
    for member_id in generation.members:
        rebalance.renew(member_id)
    rebalance.prepare()
    moved = rebalance.decision(reply)
    records = [*change.records, *group.tombstones(), generation.record(group.group_id), *moved.records]
    return Decision(records, reply, [*change.news, *moved.notes], [*change.answers, *moved.answers])


def _downgraded(member: ConsumerMember, classic: ClassicSide) -> Member:
    return Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
    )
