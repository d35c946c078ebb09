"""A coordinator that is full: what it refuses, and what goes on all the same."""

import pytest
from consumer_stories import Checked, Cluster, World
from weighing import check_weights

from skidway.errors import GroupMaxSizeReached, InvalidGroupId, InvalidRegularExpression, PolicyViolation
from skidway.groups import bounds
from skidway.groups.bounds import GROUP_BYTES, MEMBER_BYTES, OFFSET_BYTES
from skidway.groups.consumer.operations import ConsumerHeartbeat
from skidway.groups.consumer.patterns import PER_GROUP_MAX
from skidway.groups.consumer.protocol import ConsumerProtocol
from skidway.groups.coordinator import FORGOTTEN_RECORDS_PER_TICK_MAX
from skidway.groups.operations import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteGroup,
    EndOffsetsTransaction,
    FetchOffsets,
    JoinGroup,
    JoinReply,
    MetadataChanged,
    OffsetToCommit,
    SyncGroup,
    Tick,
)
from skidway.limits import Limits
from skidway.records.control import EndTransaction
from skidway.runtime.log_store import Marker, Producer


class Bounded(World):
    def __init__(self, **limits: int) -> None:
        self.limits = Limits(**limits)
        super().__init__(Cluster(t=5_000, u=2))

    def new_machine(self) -> Checked:
        return Checked(self.settings, self.cluster, self.random, ConsumerProtocol, self.limits)

    def commit(self, group: str, *partitions: int, metadata: str = "") -> None:
        self.ask(CommitOffsets(group, [OffsetToCommit("t", number, 1, -1, metadata) for number in partitions]))
        check_weights(self.host.machine)

    def join(self, group: str, metadata: bytes = b"", member: str = "") -> JoinReply:
        call = JoinGroup(group, member, None, "c", "/h", 10_000, 10_000, "consumer", [("range", metadata)], False)
        reply = self.ask(call)
        check_weights(self.host.machine)
        assert isinstance(reply, JoinReply)
        return reply


def test_only_so_many_groups_however_they_begin() -> None:
    world = Bounded(groups_max=2)
    world.commit("a", 0)
    world.join("b")
    with pytest.raises(PolicyViolation):
        world.commit("c", 0)
    with pytest.raises(PolicyViolation):
        world.join("c")
    with pytest.raises(PolicyViolation):
        world.ask(ConsumerHeartbeat("c", "m", 0, rebalance_timeout_ms=1, topics=["t"], owned=[]))
    world.commit("a", 0, 1)
    world.ask(DeleteGroup("a"))
    world.commit("c", 0)


def test_a_group_with_a_name_too_long_never_begins() -> None:
    world = Bounded(group_name_length_max=10)
    with pytest.raises(InvalidGroupId):
        world.join("x" * 11)
    with pytest.raises(InvalidGroupId):
        world.commit("x" * 11, 0)
    world.join("x" * 10)


def test_what_is_pending_counts_and_is_bounded_by_group() -> None:
    world = Bounded(group_bytes_max=2 * OFFSET_BYTES + 5, groups_bytes_max=2 * GROUP_BYTES + 4 * OFFSET_BYTES + 20)
    world.ask(within(1, "a", 0))
    world.ask(within(1, "a", 0, metadata="xxxxx"))
    world.ask(within(2, "a", 0))
    check_weights(world.host.machine)
    assert world.host.machine.offsets.bytes == 2 * OFFSET_BYTES + 5
    with pytest.raises(PolicyViolation, match=r"bytes of offsets pending for group a; limits\.group_bytes_max"):
        world.ask(within(3, "a", 0))
    world.ask(within(1, "b", 0, 1))
    with pytest.raises(PolicyViolation, match=r"limits\.groups_bytes_max"):
        world.ask(within(1, "c", 0))
    world.ask(EndOffsetsTransaction(Marker(Producer(1, 0), EndTransaction(True, 0))))
    check_weights(world.host.machine)
    assert world.host.machine.offsets.bytes == 4 * OFFSET_BYTES + 5
    world.ask(EndOffsetsTransaction(Marker(Producer(2, 0), EndTransaction(True, 0))))
    check_weights(world.host.machine)
    assert world.host.machine.offsets.bytes == 3 * OFFSET_BYTES
    world.ask(within(2, "a", 0))


def test_the_end_of_a_transaction_moves_so_many_offsets_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "PENDING_OFFSETS_MAX", 4)
    world = Bounded()
    world.ask(within(1, "a", 0, 1))
    world.ask(within(1, "b", 0, 1))
    with pytest.raises(PolicyViolation, match="One transaction would have 5 offsets pending; 4 is the most"):
        world.ask(within(1, "c", 0))
    world.ask(within(1, "a", 0, 1))
    world.ask(within(2, "c", 0))
    world.ask(EndOffsetsTransaction(Marker(Producer(1, 0), EndTransaction(True, 0))))
    check_weights(world.host.machine)
    assert len(world.host.machine.offsets.of("b")) == 2
    world.ask(within(1, "c", 0))


def within(producer_id: int, group: str, *places: int, metadata: str = "") -> CommitOffsetsInTransaction:
    offsets = [OffsetToCommit("t", place, 1, metadata=metadata) for place in places]
    return CommitOffsetsInTransaction(group, offsets, Producer(producer_id, 0))


def test_offsets_move_on_where_there_is_no_room_for_more() -> None:
    world = Bounded(groups_bytes_max=GROUP_BYTES + 3 * OFFSET_BYTES + 1 + 100)
    world.commit("a", 0, 1)
    world.commit("a", 0, metadata="x" * 100)
    with pytest.raises(PolicyViolation):
        world.commit("a", 2, 3)
    with pytest.raises(PolicyViolation):
        world.commit("a", 0, 1, 2, metadata="x" * 100)
    world.commit("a", 0, 1, 0, 1, 0, 1)
    world.commit("a", 1, metadata="x" * 90)


def test_a_member_may_join_again_in_a_group_that_is_full() -> None:
    world = Bounded(group_bytes_max=GROUP_BYTES + MEMBER_BYTES + 1_000)
    joined = world.join("g", b"x" * 900)
    with pytest.raises(GroupMaxSizeReached):
        world.join("g", b"x" * 900)
    again = world.join("g", b"y" * 900, joined.member_id)
    with pytest.raises(GroupMaxSizeReached):
        world.ask(SyncGroup("g", again.member_id, None, again.generation, assignments=[(again.member_id, b"z" * 900)]))
    world.ask(SyncGroup("g", again.member_id, None, again.generation, assignments=[(again.member_id, b"z")]))


def test_members_of_a_group_have_few_patterns() -> None:
    world = Bounded()
    for number in range(PER_GROUP_MAX):
        world.ask(_with_pattern(f"m{number}", f"t{number}.*"))
    with pytest.raises(InvalidRegularExpression):
        world.ask(_with_pattern("new", "u.*"))
    world.ask(_with_pattern("new", "t0.*"))
    check_weights(world.host.machine)


def _with_pattern(member_id: str, regex: str) -> ConsumerHeartbeat:
    return ConsumerHeartbeat("g", member_id, 0, rebalance_timeout_ms=1_000, regex=regex, owned=[])


def test_offsets_of_a_deleted_topic_go_a_little_at_a_time() -> None:
    """What is committed meanwhile for a topic of the same name is not among them."""
    count = 3 * FORGOTTEN_RECORDS_PER_TICK_MAX
    world = Bounded()
    world.commit("a", *range(count))
    world.ask(MetadataChanged(["t"]))
    assert world.host.machine.deadline_ms == 0
    world.commit("a", count - 1)
    while world.host.machine.deadline_ms == 0:
        world.ask(Tick())
        check_weights(world.host.machine)
    assert [each.partition for each in world.ask(FetchOffsets("a"))] == [count - 1]
