"""Committed offsets against a naive model: groups with members and without, a log that commits late, coordinators
that are lost with the uncommitted end of it, topics that go and come again, and time.

Every answer is the model's, and given only when it is committed; after every step every group's offsets are the
model's, and so are those of a coordinator built from the log, compacted or not. What was acknowledged is never lost.
"""

from collections.abc import Iterable
from typing import Any

import hypothesis.strategies as st
from classic_against_model import shown
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from model_world import ModelWorld, Topics, ask
from naive_classic_group import error
from naive_offsets import NaiveOffsets

from skidway.errors import ErrorCode
from skidway.groups.consumer.operations import ConsumerHeartbeat, ConsumerHeartbeatReply
from skidway.groups.operations import (
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    FetchedOffset,
    FetchOffsets,
    JoinGroup,
    LeaveGroup,
    Leaving,
    ListGroups,
    MetadataChanged,
    OffsetToCommit,
    SyncGroup,
)
from skidway.groups.settings import GroupSettings

GROUPS = ["simple", "live", "modern"]
TOPICS = ["t", "u"]
PARTITIONS = [(topic, number) for topic in TOPICS for number in range(2)]
SUBSCRIPTIONS = {topic: b"\0\1\0\0\0\1\0\1" + topic.encode() + b"\xff\xff\xff\xff\0\0\0\0" for topic in TOPICS}
# Multiples of ten for what clients do, others for what runs out by itself: the two never meet in a millisecond.
SETTINGS = GroupSettings(
    initial_rebalance_delay_ms=0,
    retention_ms=60_000,
    retention_check_ms=10_000,
    offset_metadata_bytes_max=10,
    consumer_session_timeout_ms=45_003,
)


def fetched(reply: Any) -> Any:
    """An answer as the model puts it."""
    if isinstance(reply, ConsumerHeartbeatReply):
        return ("epoch", reply.member_epoch)
    if not isinstance(reply, list) or any(isinstance(each, ErrorCode) for each in reply):
        return shown(reply)
    return [_fetched_offset(each) for each in reply]


def _fetched_offset(each: FetchedOffset) -> Any:
    if each.error:
        assert (each.offset, each.leader_epoch, each.metadata) == (-1, -1, "")
        return (each.topic, each.partition, each.error.name)
    return (each.topic, each.partition, each.offset, each.leader_epoch, each.metadata)


class OffsetsAgainstModel(RuleBasedStateMachine):
    world_class = ModelWorld

    @initialize(prompt=st.booleans())
    def begin(self, prompt: bool) -> None:
        self.world = self.world_class(SETTINGS, Topics(t=2, u=2))
        self.world.prompt = prompt
        self.model = NaiveOffsets(SETTINGS, self.world.topics, GROUPS, self.choose)
        self.written = [(0, self.model.written())]
        """What the log holds up to each of its ends."""
        self.owed: list[tuple[int, int, Any]] = []
        """Answers, with what has to be committed before and the call's number."""
        self.member_id = ""
        self.offset = 0

    def choose(self, what: str, legal: Iterable[str]) -> str:
        """There is never a choice: one member, one protocol."""
        (choice,) = legal
        return choice

    # Both sides.

    def expect(self, number: int, answer: Any) -> None:
        self.owed.append((self.world.end_offset, number, answer))
        self.compare()

    def compare(self) -> None:
        for group in self.model.classic.values():
            self.owed += [(self.world.end_offset, number, reply) for number, reply in group.answers.items()]
            group.answers = {}
        committed = self.world.committed_offset
        due = {number: answer for end, number, answer in self.owed if end <= committed}
        self.owed = [each for each in self.owed if each[0] > committed]
        answers = {number: fetched(reply) for number, reply in self.world.take_answers().items()}
        assert answers == due
        self.written.append((self.world.end_offset, self.model.written()))

    # Offsets.

    @rule(
        group_id=st.sampled_from(GROUPS),
        partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3, unique=True),
        who=st.sampled_from(["right", "right", "right", "nobody", "nobody", "wrong", "early", "late", "nameless"]),
        metadata=st.sampled_from(["", "m", "x" * 11]),
        retention_ms=st.sampled_from([-1, -1, -1, 20_000]),
        version=st.sampled_from([9, 9, 8]),
    )
    def commit_offsets(
        self, group_id: str, partitions: Any, who: str, metadata: str, retention_ms: int, version: int
    ) -> None:
        member_id, generation = self.identity(group_id)
        match who:
            case "nobody":
                member_id, generation = "", -1
            case "wrong":
                member_id = "ghost"
            case "early":
                generation -= 1
            case "late":
                generation += 1
            case "nameless":
                member_id = ""
        self.offset += 1
        offsets = [OffsetToCommit(topic, index, self.offset, self.offset % 3, metadata) for topic, index in partitions]
        call = CommitOffsets(group_id, offsets, member_id, None, generation, retention_ms, version)
        number = self.world.submit(call)
        self.expect(number, self.model.commit(call))

    def identity(self, group_id: str) -> tuple[str, int]:
        if group_id in self.model.consumers:
            return "m", self.model.consumers[group_id].epoch
        return self.member_id, self.model.classic[group_id].generation

    @rule(
        group_id=st.sampled_from(GROUPS),
        partitions=st.none() | st.lists(st.sampled_from([*PARTITIONS, ("gone", 0)]), max_size=3),
        who=st.sampled_from(["anyone", "right", "wrong", "late"]),
    )
    def fetch(self, group_id: str, partitions: Any, who: str) -> None:
        call = FetchOffsets(group_id, partitions)
        if who != "anyone":
            call.member_id, call.member_epoch = self.identity(group_id)
        if who == "wrong":
            call.member_id = "ghost"
        if who == "late":
            call.member_epoch += 1
        number = self.world.submit(call)
        self.expect(number, self.model.fetch(call))

    @rule(group_id=st.sampled_from(GROUPS), partitions=st.lists(st.sampled_from(PARTITIONS), min_size=1, max_size=3))
    def delete_offsets(self, group_id: str, partitions: Any) -> None:
        call = DeleteOffsets(group_id, partitions)
        number = self.world.submit(call)
        self.expect(number, self.model.delete(call))

    @rule(group_id=st.sampled_from(GROUPS))
    def delete_group(self, group_id: str) -> None:
        number = self.world.submit(DeleteGroup(group_id))
        self.expect(number, self.model.delete_group(group_id))

    @rule(topic=st.sampled_from(TOPICS), told=st.booleans(), again=st.booleans())
    def delete_topic(self, topic: str, told: bool, again: bool) -> None:
        """A coordinator that was lost meanwhile may never hear of it."""
        if topic in self.world.topics.sizes:
            self.world.topics.resize(topic, None)
        if told:
            number = self.world.submit(MetadataChanged([topic]))
            self.model.delete_topic(topic)
            self.expect(number, ("done",))
        if again:
            self.world.topics.resize(topic, 2)

    # Members.

    @rule(
        topic=st.sampled_from(TOPICS),
        protocol_type=st.sampled_from(["consumer", "consumer", "connect"]),
        session_ms=st.sampled_from([300_003, 6_003]),
        partitions=st.lists(st.sampled_from(PARTITIONS), max_size=3, unique=True),
    )
    def join_and_sync(self, topic: str, protocol_type: str, session_ms: int, partitions: Any) -> None:
        self.commit_log()
        group = self.model.classic["live"]
        call = JoinGroup("live", self.member_id, None, "c", "h", session_ms, 5_003, protocol_type, [])
        call.protocols = [("range", SUBSCRIPTIONS[topic])]
        call.member_id_required = False
        self.world.dice.step += 1
        number = self.world.submit(call)
        group.join(number, call, self.world.dice.uuid())
        answer = group.answers.get(number)
        self.compare()
        if answer == error("UNKNOWN_MEMBER_ID"):
            self.member_id = ""
        if answer is not None and answer[0] == "joined":
            self.member_id = answer[1]
            shares: list[tuple[str, Any]] = [(self.member_id, b"all")]
            sync = SyncGroup("live", self.member_id, None, group.generation, assignments=shares)
            number = self.world.submit(sync)
            group.sync(number, sync)
            self.compare()
            self.commit_log()
            if partitions:
                self.commit_offsets("live", partitions, "right", "m", -1, 9)

    @rule()
    def leave(self) -> None:
        call = LeaveGroup("live", [Leaving(self.member_id)])
        number = self.world.submit(call)
        self.model.classic["live"].leave(number, call)
        self.compare()

    @rule(topic=st.sampled_from(TOPICS))
    def consumer_joins(self, topic: str) -> None:
        self.world.dice.step += 1
        call = ConsumerHeartbeat("modern", "m", 0, None, None, 30_003, topics=[topic], owned=[])
        number = self.world.submit(call)
        self.expect(number, ("epoch", self.model.consumer_joins("modern", "m", {topic})))

    @rule()
    def consumer_leaves(self) -> None:
        number = self.world.submit(ConsumerHeartbeat("modern", "m", -1))
        group = self.model.consumers.get("modern")
        if group is None:
            self.expect(number, error("GROUP_ID_NOT_FOUND"))
        elif group.member is None:
            self.expect(number, error("UNKNOWN_MEMBER_ID"))
        else:
            self.model.consumer_leaves("modern")
            self.expect(number, ("epoch", -1))

    # Time, the log, restarts.

    @rule(wait_ms=st.sampled_from([10, 1_000, 10_000, 50_000, 60_000]))
    def wait(self, wait_ms: int) -> None:
        end_ms = self.world.now_ms + wait_ms
        while self.world.now_ms < end_ms:
            wanted = [end_ms, self.world.host.machine.deadline_ms, self.model.next_ms()]
            self.world.now_ms = max(self.world.now_ms, min(wanted))
            self.world.tick_if_due()
            self.model.pass_time(self.world.now_ms)
            self.compare()

    @rule()
    def commit_log(self) -> None:
        self.world.commit()
        self.compare()

    @rule(keep_all=st.booleans())
    def restart(self, keep_all: bool) -> None:
        self.world.lose(keep_all=keep_all)
        end = self.world.end_offset
        self.written = [each for each in self.written if each[0] <= end]
        self.model.restart(self.written[-1][1])
        self.owed = [(0, number, error("NOT_COORDINATOR")) for _, number, _ in self.owed]
        self.compare()

    # After every step.

    @invariant()
    def offsets_are_the_models(self) -> None:
        if not hasattr(self, "model"):
            return
        listed = {each.group_id: each.type.value for each in self.world.ask(ListGroups())}
        wanted = {each: "consumer" if each in self.model.consumers else "classic" for each in GROUPS}
        assert listed == {each: kind for each, kind in wanted.items() if self.model.exists(each)}
        machines = [self.world.host.machine, self.world.rebuilt(), self.world.rebuilt(compacted=True)]
        for group_id in GROUPS:
            for call in (FetchOffsets(group_id), FetchOffsets(group_id, require_stable=True)):
                for machine in machines:
                    assert fetched(ask(machine, call, self.world.now)) == self.model.fetch(call)
