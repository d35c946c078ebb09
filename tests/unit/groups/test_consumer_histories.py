"""Random lives of groups with members of both protocols: lost answers, lost coordinators, silent and static members,
topics that come and go. After every step what is remembered is what the log says, and

- C1 no partition is in two hands: neither by the coordinator's books nor as the clients themselves believe;
- C2 a target gives every partition of the group's topics to one member that subscribes to it;
- C3 no member is ahead of its group;
- C4 a stable group is one in which everyone has what the target says;
- C5 no member's epoch ever goes back.
"""

from dataclasses import dataclass, field
from typing import Any

import pytest
from consumer_stories import Cluster, World, named, numbered, read, written
from weighing import check_weights

from skidway.errors import ErrorCode, MemberIdRequired, NotCoordinator, ProtocolError
from skidway.groups.classic.group import ClassicGroup
from skidway.groups.classic.states import Completing
from skidway.groups.consumer.group import ConsumerGroup, TopicSizes
from skidway.groups.consumer.metadata_hash import metadata_hash
from skidway.groups.consumer.operations import ConsumerHeartbeat, ConsumerHeartbeatReply
from skidway.groups.consumer.reconciliation import NO_PARTITIONS, by_topic
from skidway.groups.operations import (
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaving,
    SyncGroup,
    SyncReply,
    Tick,
)
from skidway.groups.settings import GroupSettings
from skidway.runtime.replicated import Operation

STEPS = 250


@dataclass
class Modern:
    """A consumer of the new protocol. What it is told to give up, it gives up some time later."""

    name: str
    instance_id: str | None = None
    lives: int = 0
    epoch: int = 0
    has: set[str] = field(default_factory=set)
    told: set[str] = field(default_factory=set)
    subscription: tuple[list[str] | None, str | None] = (["t"], None)
    waiting: bool = False
    unsure: bool = False
    """An answer was lost: the next heartbeat says everything."""

    @property
    def member_id(self) -> str:
        return f"{self.name}-{self.lives}"

    def forget(self, *, new_life: bool = False) -> None:
        self.epoch, self.has, self.told, self.unsure = 0, set(), set(), False
        self.lives += new_life

    @property
    def is_away(self) -> bool:
        return self.epoch == 0

    def heartbeat(self) -> ConsumerHeartbeat:
        call = ConsumerHeartbeat("g", self.member_id, self.epoch, self.instance_id)
        if self.epoch == 0 or self.unsure:
            call.rebalance_timeout_ms = 20_000
            call.topics, call.regex = self.subscription
            call.owned = numbered(sorted(self.has))
        elif self.has != self.told:
            self.has = set(self.told)
            call.owned = numbered(sorted(self.has))
        return call

    def hear(self, reply: ConsumerHeartbeatReply | ProtocolError) -> None:
        if isinstance(reply, ConsumerHeartbeatReply):
            assert reply.member_epoch >= self.epoch
            self.epoch, self.unsure = reply.member_epoch, False
            if reply.assignment is not None:
                self.told = set(named(reply.assignment))
                self.has |= self.told
        elif reply.code == ErrorCode.NOT_COORDINATOR:
            self.unsure = True
        elif reply.code != ErrorCode.UNRELEASED_INSTANCE_ID:
            self.forget()


@dataclass
class Classic:
    """A consumer of the classic protocol that gives everything up before it joins."""

    name: str
    instance_id: str | None = None
    member_id: str = ""
    generation: int = -1
    leads: list[str] = field(default_factory=list)
    has: set[str] = field(default_factory=set)
    synced: bool = False
    waiting: bool = False

    @property
    def is_away(self) -> bool:
        return not self.member_id

    def forget(self, *, new_life: bool = False) -> None:
        self.generation, self.has, self.synced = -1, set(), False
        if new_life:
            self.member_id = ""


class History(World):
    def __init__(self, seed: int) -> None:
        self.committed = self.checks = 0
        self.epochs: dict[str, int] = {}
        self.topics_by_hash: dict[int, TopicSizes] = {}
        self.awake: tuple[type[Modern | Classic], ...] = (Modern, Classic)
        """Whoever is not, leaves: so the group changes its protocol."""
        settings = GroupSettings(
            initial_rebalance_delay_ms=0, consumer_migration_policy=["bidirectional", "upgrade"][seed % 2]
        )
        super().__init__(Cluster(t=5, u=2), settings, seed)
        self.commit()
        self.modern = [Modern("a"), Modern("b"), Modern("c"), Modern("d", "i"), Modern("e", "i")]
        self.classic = [Classic("x"), Classic("y"), Classic("z", "i")] if seed % 3 else []

    @property
    def clients(self) -> list[Modern | Classic]:
        return [*self.modern, *self.classic]

    # Commits that take their time.

    @property
    def committed_offset(self) -> int:
        return self.committed

    def commit(self) -> None:
        self.committed = self.end_offset
        self.host.on_committed(self.committed)

    def submit(self, operation: Operation[Any], respond: Any) -> None:
        self.host.submit(operation, self.now, respond)
        if self.random.random() < 0.7:
            self.commit()

    def lose(self) -> None:
        cut = self.random.choice([self.committed, self.end_offset])
        self.batches = [(end, batch) for end, batch in self.batches if end <= cut]
        self.epochs.clear()
        self.host.on_lost(NotCoordinator())
        self.submit(Tick(), lambda reply: None)

    def pass_time(self, wait_ms: int) -> None:
        end_ms = self.now_ms + wait_ms
        while self.host.machine.deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.host.machine.deadline_ms)
            self.submit(Tick(), lambda reply: None)
            self.check()
        self.now_ms = end_ms

    # What happens.

    def step(self) -> None:
        client = self.random.choice(self.clients)
        roll = self.random.random()
        if self.classic and self.random.random() < 0.03:
            self.awake = self.random.choice([(Modern,), (Classic,), (Modern, Classic)])
        if roll < 0.15:
            self.pass_time(self.random.choice([1, 500, 2_000, 9_000]))
        elif roll < 0.16:
            self.lose()
        elif roll < 0.20:
            self.commit()
        elif roll < 0.22:
            self.change_topics()
        elif client.waiting:
            pass
        elif not isinstance(client, self.awake) and not client.is_away:
            self.leave(client)
        elif not isinstance(client, self.awake):
            pass
        elif roll < 0.24:
            client.forget(new_life=True)
        elif roll < (0.27 if client.instance_id is None else 0.35):
            self.leave(client)
        elif roll < 0.38 and isinstance(client, Modern):
            client.subscription = self.random.choice([(["t"], None), (["t", "u"], ""), ([], "t|v.*"), (["u"], "")])
            client.unsure = True
        else:
            self.go_on(client)

    def change_topics(self) -> None:
        name = self.random.choice(["t", "u", "v1", "v2"])
        size = self.cluster.sizes.get(name, 0)
        self.cluster.grow(name, None if size > 6 else size + 1)

    def leave(self, client: Modern | Classic) -> None:
        if isinstance(client, Classic):
            self.submit(LeaveGroup("g", [Leaving(client.member_id, client.instance_id)]), lambda reply: None)
            client.forget(new_life=True)
            return
        epoch = -1 if client.instance_id is None else self.random.choice([-1, -2])
        self.submit(ConsumerHeartbeat("g", client.member_id, epoch, client.instance_id), lambda reply: None)
        client.forget(new_life=True)

    def go_on(self, client: Modern | Classic) -> None:
        if isinstance(client, Modern):
            self.beat(client)
        elif client.generation < 0:
            self.join(client)
        elif not client.synced:
            self.sync(client)
        else:
            call = Heartbeat("g", client.member_id, client.instance_id, client.generation)
            self.ask_for(client, call, lambda reply: self.refused(client, reply))

    def ask_for(self, client: Modern | Classic, call: Operation[Any], hear: Any) -> None:
        client.waiting = True

        def respond(reply: Any) -> None:
            client.waiting = False
            hear(reply)

        self.submit(call, respond)

    def beat(self, client: Modern) -> None:
        def hear(reply: Any) -> None:
            if self.random.random() < 0.1:
                client.unsure = True
            else:
                client.hear(reply)

        self.ask_for(client, client.heartbeat(), hear)

    def refused(self, client: Classic, error: ProtocolError | None) -> None:
        if error is None or error.code == ErrorCode.NOT_COORDINATOR:
            return
        same_member = error.code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)
        client.forget(new_life=not same_member)

    def join(self, client: Classic) -> None:
        def hear(reply: Any) -> None:
            if isinstance(reply, JoinReply):
                client.member_id, client.generation = reply.member_id, reply.generation
                client.leads = [member.member_id for member in reply.members]
            elif isinstance(reply, MemberIdRequired):
                client.member_id = reply.member_id
            else:
                self.refused(client, reply)

        call = JoinGroup("g", client.member_id, client.instance_id, client.name, "host", 10_000, 15_000, "consumer", [])
        call.protocols = [("range", b"\0\1\0\0\0\1\0\1t\xff\xff\xff\xff\0\0\0\0")]
        self.ask_for(client, call, hear)

    def sync(self, client: Classic) -> None:
        def hear(reply: Any) -> None:
            if isinstance(reply, SyncReply):
                client.has = set(read(reply.assignment))
                client.synced = True
            else:
                self.refused(client, reply)

        shares: list[tuple[str, Any]] = [
            (member_id, written([f"t-{each}" for each in range(5) if each % len(client.leads) == number]))
            for number, member_id in enumerate(client.leads)
        ]
        call = SyncGroup("g", client.member_id, client.instance_id, client.generation, assignments=shares)
        self.ask_for(client, call, hear)

    # What must be true.

    def check(self) -> None:
        self.checks += 1
        check_weights(self.host.machine)
        if self.checks % 10 == 0:
            self.check_rebuilt()
        group = self.host.machine.groups.get("g")
        if isinstance(group, ConsumerGroup):
            self.check_consumer(group)
        else:
            self.epochs.clear()
        if isinstance(group, ClassicGroup):
            self.check_hands(
                client
                for client in self.classic
                if client.member_id in group.live.current.members
                and client.generation == group.live.current.number
                and not isinstance(group.live.state, Completing)
            )

    def check_hands(self, clients: Any) -> None:
        hands: dict[str, str] = {}
        for client in clients:
            for partition in client.has:
                assert hands.setdefault(partition, client.name) == client.name

    def check_consumer(self, group: ConsumerGroup) -> None:
        members = group.members
        held = [partition for member in members.values() for partition in member.held]
        assert len(held) == len(set(held))
        assert dict(group.holders) == dict.fromkeys(held, 1)
        self.check_hands(client for client in self.clients if client.member_id in members)
        self.check_target(group)
        for member in members.values():
            assert member.epoch <= group.epoch
            assert not member.assigned & member.revoking
            before = self.epochs.get(member.member_id, 0)
            assert member.epoch >= before or member.epoch == -2
            self.epochs[member.member_id] = max(before, member.epoch)
        if group.state_name == "Stable":
            for member in members.values():
                assert member.assigned == group.target.get(member.member_id, NO_PARTITIONS)
                assert member.epoch == group.target_epoch == group.epoch
        assert set(group.instances.values()) == {each.member_id for each in members.values() if each.instance_id}
        assert set(group.live.sessions) == set(members)
        for timer in (group.live.revocations, group.live.joins, group.live.syncs):
            assert set(timer) <= set(members)

    def check_target(self, group: ConsumerGroup) -> None:
        assert group.target_epoch <= group.epoch
        assert set(group.target) <= set(group.members)
        targets = [partition for target in group.target.values() for partition in target]
        assert len(targets) == len(set(targets))
        if group.target_epoch == group.epoch and group.members:
            if group.live.topics_epoch is not None:
                assert metadata_hash(group.live.topics) == group.metadata_hash
                self.topics_by_hash[group.metadata_hash] = group.live.topics
            # A loaded group knows its topics by their hash alone until a member is heard of.
            topics = self.topics_by_hash[group.metadata_hash]
            names = {topic_id: name for name, (topic_id, _) in topics.items()}
            assert set(targets) == {(topic_id, number) for topic_id, size in topics.values() for number in range(size)}
            for member_id, target in group.target.items():
                member = group.members[member_id]
                for topic_id, _ in target:
                    name = names[topic_id]
                    assert name in member.topics or (member.regex and group.matches(member.regex, name))


@pytest.mark.parametrize("seed", range(24))
def test_whatever_happens_no_partition_is_in_two_hands(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
        history.check()
    settle(history)
    history.pass_time(600_000)
    history.commit()
    assert history.host.held_count == 0
    assert all(group.is_empty for group in history.host.machine.groups.values())


def settle(history: History) -> None:
    """Everyone behaves for a while, and each of the new protocol gets what the target says."""
    for _ in range(60):
        history.pass_time(1_000)
        for client in history.clients:
            if not client.waiting and client.instance_id is None:
                history.go_on(client)
        history.check()
        history.commit()
    group = history.host.machine.groups["g"]
    assert isinstance(group, ConsumerGroup)
    assert group.state_name == "Stable"
    for client in history.modern:
        if client.instance_id is None and not client.unsure:
            assert client.has == set(named(by_topic(group.members[client.member_id].assigned)))
