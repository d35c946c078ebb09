"""Bugs planted in the coordinator, each found by holding it against a naive model: the tests can fail.

Most are planted around the coordinator, in what it is asked and what it decides, so they outlive its inside. A mutant
is found within a bounded number of random histories, always the same ones.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import model_world
import pytest
from classic_against_model import ClassicAgainstModel
from consumers_against_model import ConsumersAgainstModel
from hypothesis import Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from mixed_groups import MixedGroups
from model_world import ModelWorld
from offsets_against_model import OffsetsAgainstModel
from transactions_of_offsets_against_model import TransactionsOfOffsetsAgainstModel

from skidway.errors import ErrorCode, FencedInstanceId, FencedMemberEpoch, IllegalGeneration, NonEmptyGroup
from skidway.groups import expiry, records
from skidway.groups.classic.group import ClassicGroup
from skidway.groups.consumer import change as consumer_change
from skidway.groups.consumer.group import ConsumerGroup
from skidway.groups.consumer.operations import ConsumerHeartbeat
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.kinds import LiveIs
from skidway.groups.offsets import Offsets
from skidway.groups.operations import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteGroup,
    DeleteOffsets,
    EndOffsetsTransaction,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    MetadataChanged,
    SyncGroup,
    SyncReply,
    Tick,
)
from skidway.groups.pending import PendingOffsets
from skidway.groups.records import GroupRecord
from skidway.records.control import EndTransaction
from skidway.runtime.log_store import Marker
from skidway.runtime.replicated import Decision, Now, Operation
from values import replace

HISTORIES_MAX = 400
NOTHING = PendingOffsets()
COMPARING = (
    "classic_against_model.py",
    "consumers_against_model.py",
    "durable.py",
    "mixed_groups.py",
    "naive_consumer_group.py",
    "offsets_against_model.py",
    "transactions_of_offsets_against_model.py",
)
"""Where the coordinator is held against a model or its own log, and the model's own check of an assignment."""


class Mutant(GroupCoordinator):
    """Decides as it should; what follows is wrong in one way each."""

    def right(self, operation: Operation[Any], now: Now) -> Any:
        return GroupCoordinator.decide(self, operation, now)


class HeartbeatsDoNotExtendSessions(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, Heartbeat | ConsumerHeartbeat) and not decision.records:
            decision.notes = []
        return decision


class FencedInstancesGoOn(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        try:
            return self.right(operation, now)
        except FencedInstanceId:
            if isinstance(operation, Heartbeat):
                return Decision([], None)
            raise


class OldGenerationsHeartbeat(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        try:
            return self.right(operation, now)
        except IllegalGeneration:
            if isinstance(operation, Heartbeat):
                return Decision([], None)
            raise


class OldGenerationsCommit(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        try:
            return self.right(operation, now)
        except IllegalGeneration:
            group = self.groups.get(getattr(operation, "group_id", ""))
            if isinstance(operation, CommitOffsets) and isinstance(group, ClassicGroup):
                return self.right(replace(operation, generation=group.live.current.number), now)
            raise


class AnyoneCommitsToLiveGroups(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, CommitOffsets) and operation.generation < 0 and operation.group_id == "live":
            return self.right(replace(operation, group_id="simple", member_id=""), now)
        return self.right(operation, now)


class CommitsAreNotWritten(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, CommitOffsets):
            decision.records = decision.records[1:]
        return decision


class AssignmentsAreNotWritten(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, SyncGroup):
            decision.records = []
        return decision


class LeavingIsForgotten(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, LeaveGroup):
            return Decision([], [ErrorCode.NONE if code == ErrorCode.NONE else code for code in decision.reply])
        return decision


class LeadersHearOfThemselvesOnly(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        for _, reply in decision.answers:
            if isinstance(reply, JoinReply):
                reply.members = reply.members[:1]
        return decision


class FollowersGetNothing(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(decision.reply, SyncReply):
            decision.reply = replace(decision.reply, assignment=b"")
        return decision


class RestartedCoordinatorsForgetSessions(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        is_first = self.deadline_ms == 0
        decision = self.right(operation, now)
        if isinstance(operation, Tick) and is_first:
            decision.notes = decision.notes[-1:]
        return decision


class DelayIsSkipped(Mutant):
    def __init__(self, settings: Any, *rest: Any) -> None:
        super().__init__(replace(settings, initial_rebalance_delay_ms=0), *rest)


class GroupsGrowWithoutBound(Mutant):
    def __init__(self, settings: Any, *rest: Any) -> None:
        super().__init__(replace(settings, size_max=10**6), *rest)


class WakesLate(Mutant):
    @property
    def deadline_ms(self) -> int:
        return GroupCoordinator.deadline_ms.fget(self) + 7  # type: ignore[attr-defined, no-any-return]


class StaticIdsAreIgnored(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, JoinGroup):
            operation.instance_id = None
        return self.right(operation, now)


class OffsetsOfDeletedTopicsStay(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, MetadataChanged):
            return Decision([], None)
        return self.right(operation, now)


class SubscribedOffsetsAreDeleted(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        decision = self.right(operation, now)
        if isinstance(operation, DeleteOffsets):
            decision.records = self.offsets.tombstones(operation.group_id, operation.partitions)
        return decision


class GroupsNeverMigrate(Mutant):
    def __init__(self, settings: Any, *rest: Any) -> None:
        super().__init__(replace(settings, consumer_migration_policy="disabled"), *rest)


class OffsetsExpireEarly(Mutant):
    def __init__(self, settings: Any, *rest: Any) -> None:
        super().__init__(replace(settings, retention_ms=settings.retention_ms - 20_000), *rest)


class LiveGroupsAreDeleted(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        try:
            return self.right(operation, now)
        except NonEmptyGroup:
            if isinstance(operation, DeleteGroup):
                return Decision(self.offsets.tombstones(operation.group_id), None)
            raise


class FencedEpochsGoOn(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        try:
            return self.right(operation, now)
        except FencedMemberEpoch:
            assert isinstance(operation, ConsumerHeartbeat)
            group: Any = self.groups[operation.group_id]
            return self.right(replace(operation, member_epoch=group.members[operation.member_id].epoch), now)


class LeavingForAWhileIsLeaving(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, ConsumerHeartbeat) and operation.member_epoch == -2:
            decision = self.right(replace(operation, member_epoch=-1), now)
            decision.reply.member_epoch = -2
            return decision
        return self.right(operation, now)


class OwnedPartitionsAreNotBelieved(Mutant):
    """Who is to give partitions up never gets rid of them."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, ConsumerHeartbeat) and operation.member_epoch > 0:
            operation.owned = None
        return self.right(operation, now)


class SilenceIsGivingUp(Mutant):
    """A member that does not say what it owns is taken to own nothing."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, ConsumerHeartbeat) and operation.member_epoch > 0 and operation.owned is None:
            operation.owned = []
        return self.right(operation, now)


class TopicsAreNotLookedAtAgain(Mutant):
    def decide(self, operation: Operation[Any], now: Now) -> Any:
        group: Any = self.groups.get("g")
        if isinstance(group, ConsumerGroup):
            group.live.topics_epoch = self._topics.epoch
        return self.right(operation, now)


class NotesWriteGenerations(Mutant):
    """The generation in the making counts as recorded before its record is written."""

    def note(self, note: Any) -> None:
        super().note(note)
        group = self.groups.get(note.group_id) if isinstance(note, LiveIs) else None
        if isinstance(group, ClassicGroup):
            group.durable = group.live.current


class NotesWriteEpochs(Mutant):
    def note(self, note: Any) -> None:
        super().note(note)
        group = self.groups.get(note.group_id) if isinstance(note, LiveIs) else None
        if isinstance(group, ConsumerGroup):
            group.epoch += 1


class OffsetsMoveAtOnce(Mutant):
    """18: a transaction's offsets count when they are written."""

    def apply(self, record: GroupRecord) -> None:
        super().apply(replace(record, producer=None))


class MarkersAreAnsweredBeforeOffsetsMove(Mutant):
    """20: the marker is applied when there is time."""

    def __init__(self, *rest: Any) -> None:
        super().__init__(*rest)
        self.late: list[GroupRecord] = []

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, EndOffsetsTransaction):
            self.late.append(GroupRecord(operation.marker, None))
            return Decision([], None)
        if isinstance(operation, Tick) and self.late:
            return Decision([self.late.pop(0)], None)
        return self.right(operation, now)


class UnstableOffsetsAreShown(Mutant):
    """21: require_stable is ignored."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, FetchOffsets):
            operation = replace(operation, require_stable=False)
        return self.right(operation, now)


class MembersAreNotCheckedWhenOffsetsAreWritten(Mutant):
    """22: the member was checked before its transaction was asked about, and is not checked again."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, CommitOffsetsInTransaction):
            operation = replace(operation, member_id="", instance_id=None, generation=-1)
        return self.right(operation, now)


class AbortedOffsetsCount(Mutant):
    def apply(self, record: GroupRecord) -> None:
        if isinstance(record.key, Marker):
            record = replace(record, key=record.key._replace(end=EndTransaction(True, 0)))
        super().apply(record)


class MarkersEndOneGroupOnly(Mutant):
    def apply(self, record: GroupRecord) -> None:
        if isinstance(record.key, Marker):
            groups = self.offsets.pending.by_producer.get(record.key.producer.id, {})
            for group_id in sorted(groups)[1:]:
                for partition in list(groups[group_id]):
                    self.offsets.pending.forget(group_id, partition)
        super().apply(record)


class OldProducersHearOfStaleEpochs(Mutant):
    """Before version 6 nobody understands a stale epoch."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        if isinstance(operation, CommitOffsetsInTransaction):
            operation = replace(operation, version=6)
        return self.right(operation, now)


# Those that are planted inside.


def pending_offsets_overwrite_later_ones(patch: pytest.MonkeyPatch) -> None:
    """19: the order of the markers decides, not that of the offsets."""
    take = PendingOffsets.take

    def as_if_written_now(pending: PendingOffsets, producer_id: int) -> Any:
        taken = take(pending, producer_id)
        return {
            group_id: {partition: replace(each, order=10**9) for partition, each in offsets.items()}
            for group_id, offsets in taken.items()
        }

    patch.setattr(PendingOffsets, "take", as_if_written_now)


def deleted_offsets_stay_pending(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PendingOffsets, "forget", lambda pending, group_id, partition: None)


def groups_expire_under_transactions(patch: pytest.MonkeyPatch) -> None:
    may_expire = expiry._may_expire
    patch.setattr(expiry, "_may_expire", lambda group, offsets: may_expire(group, replace(offsets, pending=NOTHING)))


def offsets_expire_under_transactions(patch: pytest.MonkeyPatch) -> None:
    expired_offsets = expiry._expired_offsets
    patch.setattr(
        expiry,
        "_expired_offsets",
        lambda group, offsets, *rest: expired_offsets(group, replace(offsets, pending=NOTHING), *rest),
    )


def deleted_topics_leave_pending_offsets(patch: pytest.MonkeyPatch) -> None:
    of_topics = Offsets.of_topics
    patch.setattr(Offsets, "of_topics", lambda offsets, topics: of_topics(replace(offsets, pending=NOTHING), topics))


def markers_are_passed_over_in_loading(patch: pytest.MonkeyPatch) -> None:
    unaware = replace(records.FORMAT, transactional=None)
    patch.setattr(model_world, "from_batches", unaware.from_batches)


def given_before_given_up(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ConsumerGroup, "held_by_others", lambda group, member, wanted: frozenset())


def expired_though_subscribed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ClassicGroup, "is_subscribed", lambda group, topic: False)


def epoch_stays_when_subscriptions_change(patch: pytest.MonkeyPatch) -> None:
    subscribe = consumer_change.Change.subscribe

    def forgetful(change: Any, before: Any, member: Any) -> bool:
        return subscribe(change, before, member) and before is None

    patch.setattr(consumer_change.Change, "subscribe", forgetful)


def a_partition_is_left_out(patch: pytest.MonkeyPatch) -> None:
    plant_assignor(patch, lambda shares: {each: frozenset(sorted(share)[1:]) for each, share in shares.items()})


def everything_goes_to_one(patch: pytest.MonkeyPatch) -> None:
    def unfair(shares: dict[str, Any]) -> dict[str, Any]:
        first = min(shares)
        everything: frozenset[Any] = frozenset().union(*shares.values())
        return {each: everything if each == first else frozenset() for each in shares}

    plant_assignor(patch, unfair)


def plant_assignor(patch: pytest.MonkeyPatch, spoil: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    for name, assignor in list(consumer_change.ASSIGNORS.items()):
        spoilt: Any = lambda c, n, assignor=assignor: spoil(assignor(c, n))  # noqa: E731
        patch.setitem(consumer_change.ASSIGNORS, name, spoilt)


MUTANTS: list[tuple[type[RuleBasedStateMachine], list[Any]]] = [
    (
        ClassicAgainstModel,
        [
            HeartbeatsDoNotExtendSessions,
            FencedInstancesGoOn,
            OldGenerationsHeartbeat,
            AssignmentsAreNotWritten,
            LeavingIsForgotten,
            LeadersHearOfThemselvesOnly,
            FollowersGetNothing,
            RestartedCoordinatorsForgetSessions,
            DelayIsSkipped,
            GroupsGrowWithoutBound,
            WakesLate,
            StaticIdsAreIgnored,
            NotesWriteGenerations,
        ],
    ),
    (
        OffsetsAgainstModel,
        [
            OldGenerationsCommit,
            AnyoneCommitsToLiveGroups,
            CommitsAreNotWritten,
            OffsetsOfDeletedTopicsStay,
            SubscribedOffsetsAreDeleted,
            OffsetsExpireEarly,
            LiveGroupsAreDeleted,
            expired_though_subscribed,
        ],
    ),
    (
        TransactionsOfOffsetsAgainstModel,
        [
            OffsetsMoveAtOnce,
            pending_offsets_overwrite_later_ones,
            MarkersAreAnsweredBeforeOffsetsMove,
            UnstableOffsetsAreShown,
            MembersAreNotCheckedWhenOffsetsAreWritten,
            AbortedOffsetsCount,
            MarkersEndOneGroupOnly,
            OldProducersHearOfStaleEpochs,
            deleted_offsets_stay_pending,
            groups_expire_under_transactions,
            offsets_expire_under_transactions,
            deleted_topics_leave_pending_offsets,
            markers_are_passed_over_in_loading,
        ],
    ),
    (
        ConsumersAgainstModel,
        [
            HeartbeatsDoNotExtendSessions,
            FencedEpochsGoOn,
            LeavingForAWhileIsLeaving,
            OwnedPartitionsAreNotBelieved,
            SilenceIsGivingUp,
            TopicsAreNotLookedAtAgain,
            NotesWriteEpochs,
            RestartedCoordinatorsForgetSessions,
            given_before_given_up,
            epoch_stays_when_subscriptions_change,
            a_partition_is_left_out,
            everything_goes_to_one,
        ],
    ),
    (MixedGroups, [GroupsNeverMigrate, CommitsAreNotWritten, given_before_given_up]),
]


@pytest.mark.parametrize(
    ("tests", "mutant"),
    [pytest.param(tests, each, id=f"{tests.__name__}-{each.__name__}") for tests, found in MUTANTS for each in found],
)
def test_the_model_finds(tests: type[RuleBasedStateMachine], mutant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    machine_class: Any = GroupCoordinator
    if isinstance(mutant, type):
        machine_class = mutant
    else:
        mutant(monkeypatch)
    world_class = type("MutantWorld", (ModelWorld,), {"machine_class": machine_class})
    tested = type(tests.__name__, (tests,), {"world_class": world_class})
    tries = settings(
        max_examples=HISTORIES_MAX,
        stateful_step_count=40,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        report_multiple_bugs=False,
    )
    with pytest.raises(AssertionError) as broken:
        run_state_machine_as_test(tested, settings=tries)
    # By what the model says, not by an assertion of the product that the mistake trips on.
    assert Path(broken.traceback[-1].path).name in COMPARING, broken.getrepr()
