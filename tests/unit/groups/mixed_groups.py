"""Groups that change their protocol while they run, with members of both, held against what must be true.

No model says which answer comes when; but which protocol a group follows is worked out from its members alone, and
after every step C1 to C6 hold: on the coordinator's books, in the clients' hands, and in the log. When the faults are
over, the group settles: with members of both protocols, then of each alone.
"""

from typing import Any

import hypothesis.strategies as st
from consumer_stories import _embedded, read, written
from consumers_against_model import Consuming, flat, shown
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from model_world import ModelWorld, Topics, ask

from skidway.errors import ErrorCode, MemberIdRequired, ProtocolError
from skidway.groups.consumer.operations import ConsumerDescribe, ConsumerHeartbeat, DescribedConsumerGroup
from skidway.groups.operations import (
    CommitOffsets,
    DescribedGroup,
    DescribeGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaving,
    ListGroups,
    OffsetToCommit,
    SyncGroup,
    SyncReply,
)
from skidway.groups.settings import GroupSettings
from skidway.runtime.replicated import Operation
from skidway.wire.registry import codec
from skidway.wire.schema.consumer_protocol import ConsumerProtocolSubscription
from skidway.wire.schema.consumer_protocol import ConsumerProtocolSubscriptionTopicPartition as Owned

TOPIC, SIZE = "t", 4
MODERN = [None, None, "i"]
CLASSIC = [None, None, "i"]
ROUNDS_TO_SETTLE = 40


class Old:
    """A consumer of the classic protocol. A cooperative one keeps its partitions while it joins."""

    def __init__(self, name: str, instance: str | None, cooperative: bool) -> None:
        self.name, self.instance, self.cooperative = name, instance, cooperative
        self.waiting: int | None = None
        self.forget()

    def forget(self, *, new_life: bool = True) -> None:
        self.generation, self.synced = -1, False
        self.leads: dict[str, set[int]] = {}
        """Who is there, and what each owns."""
        if new_life:
            self.member_id, self.has = "", set[int]()
        if not self.cooperative:
            self.has = set()

    def join(self) -> JoinGroup:
        owned = [Owned(TOPIC, sorted(self.has))] if self.has else []
        metadata = _embedded(ConsumerProtocolSubscription([TOPIC], None, owned, self.generation), 2)
        call = JoinGroup("g", self.member_id, self.instance, self.name, "h", 10_000, 15_000, "consumer", [])
        call.protocols = [("cooperative-sticky" if self.cooperative else "range", metadata)]
        return call

    def sync(self) -> SyncGroup:
        shares: list[tuple[str, Any]] = []
        for place, member_id in enumerate(sorted(self.leads)):
            share = {number for number in range(SIZE) if number % len(self.leads) == place}
            for other, owned in self.leads.items():
                if other != member_id:
                    # Nobody gets what another has not given up yet.
                    share -= owned
            shares.append((member_id, written([f"{TOPIC}-{number}" for number in sorted(share)])))
        return SyncGroup("g", self.member_id, self.instance, self.generation, assignments=shares)

    def hear(self, reply: Any) -> None:
        self.waiting = None
        match reply:
            case MemberIdRequired():
                self.member_id = reply.member_id
            case JoinReply():
                self.member_id, self.generation, self.synced = reply.member_id, reply.generation, False
                self.leads = {}
                if not reply.skip_assignment:
                    self.leads = {each.member_id: owned_by(each.metadata) for each in reply.members}
            case SyncReply():
                share = {int(each.rpartition("-")[2]) for each in read(reply.assignment)}
                gave_up, self.has, self.synced = self.has - share, share, True
                if gave_up and self.cooperative:
                    self.forget(new_life=False)
            case ProtocolError(code=ErrorCode.REBALANCE_IN_PROGRESS):
                self.forget(new_life=False)
            case ProtocolError(code=ErrorCode.NOT_COORDINATOR):
                pass
            case ProtocolError(code=ErrorCode.ILLEGAL_GENERATION):
                self.has = set()
                self.forget(new_life=False)
            case ProtocolError():
                self.forget()


def owned_by(metadata: Any) -> set[int]:
    subscription, _ = codec(ConsumerProtocolSubscription).decoder(2)(metadata, 2)
    return {number for each in subscription.owned_partitions for number in each.partitions}


class MixedGroups(RuleBasedStateMachine):
    world_class = ModelWorld

    @initialize(
        policy=st.sampled_from(["bidirectional", "bidirectional", "upgrade", "downgrade", "disabled"]),
        cooperative=st.booleans(),
    )
    def begin(self, policy: str, cooperative: bool) -> None:
        settings = GroupSettings(
            initial_rebalance_delay_ms=0, consumer_migration_policy=policy, retention_check_ms=10**9
        )
        self.policy = policy
        self.world = self.world_class(settings, Topics(t=SIZE))
        self.modern = [Consuming(f"m{number}-", instance) for number, instance in enumerate(MODERN)]
        self.old = [Old(f"o{number}-", instance, cooperative) for number, instance in enumerate(CLASSIC)]
        self.committed: dict[int, int] = {}
        self.commits = 0
        self.number = 0
        """The epoch or generation, which is one row of numbers."""
        self.epochs: dict[str, int] = {}

    # What clients do.

    def submit(self, operation: Operation[Any], old: Old | None = None) -> Any:
        self.world.dice.step += 1
        number = self.world.submit(operation)
        if old is not None:
            old.waiting = number
        return self.deliver().get(number)

    def deliver(self) -> dict[int, Any]:
        answers = self.world.take_answers()
        for number, reply in answers.items():
            for old in self.old:
                if old.waiting == number:
                    old.hear(reply)
        return answers

    @rule(number=st.integers(0, 2))
    def modern_beats(self, number: int) -> None:
        client = self.modern[number]
        kind, joins = self.kind(), client.epoch == 0
        reply = self.submit(client.heartbeat())
        client.hear(shown(reply))
        if isinstance(reply, ProtocolError) and reply.code == ErrorCode.GROUP_ID_NOT_FOUND:
            assert kind != "consumer"
            assert not joins or self.policy in ("downgrade", "disabled"), "it should have become a consumer group"

    @rule(number=st.integers(0, 2))
    def old_goes_on(self, number: int) -> None:
        client = self.old[number]
        if client.waiting is not None:
            return
        if client.generation < 0:
            self.submit(client.join(), client)
        elif not client.synced:
            self.submit(client.sync(), client)
        else:
            self.submit(Heartbeat("g", client.member_id, client.instance, client.generation), client)

    @rule(who=st.sampled_from(["modern", "old", "both"]), rounds=st.integers(1, 4))
    def everyone_goes_on(self, who: str, rounds: int) -> None:
        for _ in range(rounds):
            for number in (0, 1):
                if who != "old":
                    self.modern_beats(number)
                if who != "modern":
                    self.old_goes_on(number)

    @rule(number=st.integers(0, 2), for_a_while=st.booleans())
    def modern_leaves(self, number: int, for_a_while: bool) -> None:
        client = self.modern[number]
        epoch = -2 if for_a_while and client.instance else -1
        self.submit(ConsumerHeartbeat("g", client.member_id, epoch, client.instance))
        client.forget(new_life=True)

    @rule(number=st.integers(0, 2))
    def old_leaves(self, number: int) -> None:
        client = self.old[number]
        self.submit(LeaveGroup("g", [Leaving(client.member_id, client.instance)]))
        client.forget()

    @rule(number=st.integers(0, 2), modern=st.booleans())
    def crash(self, number: int, modern: bool) -> None:
        if modern:
            self.modern[number].forget(new_life=True)
        else:
            self.old[number].waiting = None
            self.old[number].forget()

    @rule(number=st.integers(0, 2), partition=st.integers(0, SIZE - 1), modern=st.booleans())
    def commit(self, number: int, partition: int, modern: bool) -> None:
        self.commits += 1
        call = CommitOffsets("g", [OffsetToCommit(TOPIC, partition, self.commits)])
        if modern:
            call.member_id, call.generation = self.modern[number].member_id, self.modern[number].epoch
        else:
            call.member_id, call.generation = self.old[number].member_id, self.old[number].generation
        if self.submit(call) == [ErrorCode.NONE]:
            self.committed[partition] = self.commits

    @rule(wait_ms=st.sampled_from([1, 1_000, 9_000, 16_000, 50_000]))
    def wait(self, wait_ms: int) -> None:
        end_ms = self.world.now_ms + wait_ms
        while self.world.now_ms < end_ms:
            self.world.now_ms = max(self.world.now_ms, min(end_ms, self.world.host.machine.deadline_ms))
            self.world.tick_if_due()
            self.deliver()
            self.all_is_legal()

    @rule()
    def restart(self) -> None:
        """A classic group falls back to its last assignment, a consumer group to nothing less than it was."""
        self.number = 0
        self.epochs.clear()
        self.world.lose()
        self.deliver()

    # What must be true.

    def kind(self) -> str:
        listed = self.world.ask(ListGroups())
        return listed[0].type.value if listed else ""

    @invariant()
    def all_is_legal(self) -> None:
        if not hasattr(self, "world"):
            return
        kind = self.kind()
        rebuilt = self.world.rebuilt()
        assert [(each.group_id, each.type) for each in ask(rebuilt, ListGroups(), self.world.now)] == [
            (each.group_id, each.type) for each in self.world.ask(ListGroups())
        ]
        if kind == "consumer":
            described = self.world.ask(ConsumerDescribe("g"))
            assert shown(ask(rebuilt, ConsumerDescribe("g"), self.world.now)) == shown(described)
            self.consumer_group_is_legal(described)
        elif kind == "classic":
            self.classic_group_is_legal(self.world.ask(DescribeGroup("g")))
        for machine in (self.world.host.machine, rebuilt):
            found = ask(machine, FetchOffsets("g"), self.world.now)
            assert {each.partition: each.offset for each in found} == self.committed

    def consumer_group_is_legal(self, group: DescribedConsumerGroup) -> None:
        members = {each.member_id: each for each in group.members}
        if members and self.policy in ("bidirectional", "downgrade"):
            assert not all(each.is_classic for each in members.values()), "it should be a classic group by now"
        held = [partition for each in members.values() for partition in flat(each.assignment)]
        assert len(held) == len(set(held))
        self.hands_are_legal([*self.modern, *self.old], set(members))
        assert group.group_epoch >= self.number
        self.number = group.group_epoch if members else 0
        targets = [partition for each in members.values() for partition in flat(each.target_assignment)]
        assert len(targets) == len(set(targets))
        if members and group.state != "Assigning":
            assert set(targets) == {(self.world.topics.id_of(TOPIC), number) for number in range(SIZE)}
            loads = [len(flat(each.target_assignment)) for each in members.values()]
            assert max(loads) - min(loads) <= 1
        for each in members.values():
            assert each.member_epoch <= group.group_epoch
            assert each.member_epoch >= self.epochs.get(each.member_id, 0) or each.member_epoch == -2
            if group.state == "Stable":
                assert flat(each.assignment) == flat(each.target_assignment)
                assert each.member_epoch == group.assignment_epoch == group.group_epoch
        self.epochs = {each.member_id: each.member_epoch for each in members.values()}

    def classic_group_is_legal(self, group: DescribedGroup) -> None:
        self.epochs.clear()
        members = {each.member_id for each in group.members}
        assert not members & {each.member_id for each in self.modern}
        live = [each for each in self.old if each.member_id in members and each.synced]
        newest = max((each.generation for each in live), default=0)
        assert newest >= self.number or not live or group.state != "Stable"
        if group.state == "Empty":
            # Whoever comes next begins to count anew, if it speaks the other protocol.
            self.number = 0
        if group.state == "Stable":
            self.hands_are_legal([each for each in live if each.generation == newest], members)
            given = [each for member in group.members for each in read(member.assignment)]
            assert len(given) == len(set(given))

    def hands_are_legal(self, clients: list[Any], members: set[str]) -> None:
        hands: dict[Any, str] = {}
        for client in clients:
            if client.member_id in members:
                for partition in client.has:
                    number = partition if isinstance(partition, int) else partition[1]
                    assert hands.setdefault(number, client.name) == client.name, "a partition is in two hands"

    # When the faults are over.

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        for number in range(3):
            self.modern_leaves(number, False)
            self.old_leaves(number)
            self.old[number].waiting = None
        self.wait(50_000)
        self.settles("classic", self.old[:2])
        if self.policy in ("bidirectional", "upgrade"):
            self.settles("consumer", [*self.modern[:2], *self.old[:2]])
            self.old_leaves(0)
            self.old_leaves(1)
            self.settles("consumer", self.modern[:2])
            if self.policy == "bidirectional":
                self.settles("consumer", [*self.modern[:2], *self.old[:2]])
                self.modern_leaves(0, False)
                self.modern_leaves(1, False)
                self.settles("classic", self.old[:2])

    def settles(self, kind: str, clients: list[Any]) -> None:
        for _ in range(ROUNDS_TO_SETTLE):
            self.wait(1_000)
            for client in clients:
                if isinstance(client, Consuming):
                    self.modern_beats(self.modern.index(client))
                else:
                    self.old_goes_on(self.old.index(client))
            self.all_is_legal()
        assert self.kind() == kind
        (group,) = self.world.ask(ListGroups())
        assert group.state == "Stable"
        owned = [each if isinstance(each, int) else each[1] for client in clients for each in client.has]
        assert sorted(owned) == list(range(SIZE))
