"""Clients of the consumer protocol, honest and not, against coordinator and model.

Every answer and the state after every step have to be the model's, and those of a coordinator built from the log as
well. Of the invariants, C1 (no partition in two hands) is also held against what honest clients believe to have, and
C5 (epochs never go back) against what they were told. When the faults are over everyone gets what it should.
"""

import copy
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from model_world import ModelWorld, Topics, ask
from naive_consumer_group import NaiveConsumerGroup, Partition

from skidway.errors import ProtocolError
from skidway.groups.consumer.operations import (
    ConsumerDescribe,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from skidway.groups.consumer.reconciliation import by_topic
from skidway.groups.settings import GroupSettings

INSTANCES = [None, None, None, "i", "i", "j"]
CLIENTS = st.integers(0, len(INSTANCES) - 1)
SUBSCRIPTIONS = [(["t"], ""), (["t", "u"], ""), (["u"], ""), ([], "t|v.*"), (["u"], "v1"), (["t", "w"], "")]
ROUNDS_TO_SETTLE = 6
"""Learn of the target, give up, say so, get, and one more where a round's order is a bad one."""


def shown(reply: Any) -> tuple[Any, ...]:
    match reply:
        case ProtocolError():
            return ("error", reply.code.name)
        case ConsumerHeartbeatReply():
            told = None
            if reply.assignment is not None:
                told = frozenset((topic, number) for topic, numbers in reply.assignment for number in numbers)
            return ("beat", reply.member_id, reply.member_epoch, reply.heartbeat_interval_ms, told)
        case DescribedConsumerGroup():
            members = {
                each.member_id: (
                    each.instance_id,
                    each.member_epoch,
                    tuple(each.topics),
                    each.regex or "",
                    flat(each.assignment),
                    flat(each.target_assignment),
                )
                for each in reply.members
            }
            return (reply.state, reply.group_epoch, reply.assignment_epoch, members)
    raise AssertionError(reply)


def flat(topics: Any) -> frozenset[Partition]:
    return frozenset((topic, number) for topic, _, numbers in topics for number in numbers)


class Consuming:
    """A client. What it is told to give up it gives up some time later."""

    def __init__(self, name: str, instance: str | None) -> None:
        self.name, self.instance, self.lives = name, instance, 0
        self.subscription: tuple[list[str], str] = SUBSCRIPTIONS[0]
        self.forget()

    def forget(self, *, new_life: bool = False) -> None:
        self.lives += new_life
        self.epoch = 0
        self.has: set[Partition] = set()
        self.told: set[Partition] = set()
        self.unsure = self.lied = False

    @property
    def member_id(self) -> str:
        return f"{self.name}{self.lives}"

    def heartbeat(self) -> ConsumerHeartbeat:
        call = ConsumerHeartbeat("g", self.member_id, self.epoch, self.instance)
        if self.epoch == 0 or self.unsure:
            call.rebalance_timeout_ms = 20_000
            call.topics, call.regex = self.subscription
            call.owned = by_topic(frozenset(self.has))
        elif self.has != self.told:
            self.has = set(self.told)
            call.owned = by_topic(frozenset(self.has))
        return call

    def hear(self, reply: tuple[Any, ...]) -> None:
        match reply:
            case ("beat", _, epoch, _, told):
                assert epoch >= self.epoch, "a member's epoch went back"
                self.epoch, self.unsure = epoch, False
                if told is not None:
                    self.told = set(told)
                    self.has |= told
            case ("error", "UNRELEASED_INSTANCE_ID" | "GROUP_MAX_SIZE_REACHED"):
                pass
            case ("error", _):
                self.forget()


class ConsumersAgainstModel(RuleBasedStateMachine):
    world_class = ModelWorld

    @initialize(
        size_max=st.sampled_from([100, 100, 3]),
        assignors=st.sampled_from([("uniform", "range"), ("range", "uniform")]),
    )
    def begin(self, size_max: int, assignors: tuple[str, ...]) -> None:
        settings = GroupSettings(consumer_size_max=size_max, consumer_assignors=assignors, retention_check_ms=10**9)
        self.world = self.world_class(settings, Topics(t=5, u=2, v1=1))
        self.model = NaiveConsumerGroup(settings, self.world.topics, self.made_target)
        self.clients = [Consuming(f"c{number}-", instance) for number, instance in enumerate(INSTANCES)]
        self.epochs = (0, 0)

    def made_target(self) -> dict[str, frozenset[Partition]]:
        described = self.world.ask(ConsumerDescribe("g"))
        target = {each.member_id: flat(each.target_assignment) for each in described.members}
        self.model.check_target(target)
        return target

    def submit(self, call: ConsumerHeartbeat) -> tuple[Any, ...]:
        self.world.dice.step += 1
        self.world.submit(copy.copy(call))
        (reply,) = self.world.take_answers().values()
        answer = shown(reply)
        assert answer == self.model.heartbeat(call)
        return answer

    # Honest clients.

    @rule(number=CLIENTS, lost=st.sampled_from([False, False, False, True]))
    def beat(self, number: int, lost: bool) -> None:
        client = self.clients[number]
        answer = self.submit(client.heartbeat())
        if lost:
            client.unsure = True
        else:
            client.hear(answer)

    @rule(rounds=st.integers(1, 3))
    def everyone_beats(self, rounds: int) -> None:
        for _ in range(rounds):
            for number in (0, 1, 2, 3, 5):
                self.beat(number, False)

    @rule(times=st.integers(1, 3), number=CLIENTS)
    def live_on(self, times: int, number: int) -> None:
        """Longer than a session, with signs of life in it."""
        for _ in range(times):
            self.wait(19_000)
            self.beat(number, False)

    @rule(number=CLIENTS, subscription=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, number: int, subscription: tuple[list[str], str]) -> None:
        client = self.clients[number]
        client.subscription = subscription
        client.unsure = True
        client.hear(self.submit(client.heartbeat()))

    @rule(number=CLIENTS, assignor=st.sampled_from(["uniform", "range"]))
    def prefer(self, number: int, assignor: str) -> None:
        client = self.clients[number]
        call = client.heartbeat()
        call.assignor = assignor
        client.hear(self.submit(call))

    @rule(number=CLIENTS, for_a_while=st.booleans())
    def leave(self, number: int, for_a_while: bool) -> None:
        client = self.clients[number]
        epoch = -2 if for_a_while and client.instance else -1
        self.submit(ConsumerHeartbeat("g", client.member_id, epoch, client.instance))
        client.forget(new_life=True)

    @rule(number=CLIENTS, new_life=st.booleans())
    def crash(self, number: int, new_life: bool) -> None:
        """Nobody hears of it. A client that starts again may keep its id."""
        self.clients[number].forget(new_life=new_life)

    # Others.

    @rule(data=st.data(), number=CLIENTS)
    def stray(self, data: st.DataObject, number: int) -> None:
        """With another's instance, an epoch that is not the member's, or owning what it does not own."""
        client = self.clients[number]
        known = [*self.model.members, "ghost", client.member_id]
        member_id = data.draw(st.sampled_from(known))
        member = self.model.members.get(member_id)
        epoch = (member.epoch if member else 1) + data.draw(st.sampled_from([0, 0, -1, 1, -2]))
        instance = data.draw(st.sampled_from([member.instance if member else None, None, "i", "j"]))
        sizes = self.world.topics.sizes.items()
        everything = [(self.world.topics.id_of(name) or b"", each) for name, size in sizes for each in range(size)]
        owned = data.draw(st.none() | st.frozensets(st.sampled_from(everything), max_size=3)) if everything else None
        call = ConsumerHeartbeat("g", member_id, max(epoch, 1), instance)
        call.owned = None if owned is None else by_topic(owned)
        for each in self.clients:
            if each.member_id == member_id:
                each.lied = True
        self.submit(call)

    @rule(name=st.sampled_from(["t", "u", "v1", "v2", "w"]), size=st.sampled_from([None, 1, 2, 3, 6]))
    def change_topic(self, name: str, size: int | None) -> None:
        if size is None and name in self.world.topics.sizes:
            self.world.topics.resize(name, None)
        elif size is not None and size > self.world.topics.sizes.get(name, 0):
            self.world.topics.resize(name, size)

    @rule(wait_ms=st.sampled_from([1, 4_999, 19_999, 20_000, 25_000, 45_000]))
    def wait(self, wait_ms: int) -> None:
        end_ms = self.world.now_ms + wait_ms
        while self.world.now_ms < end_ms:
            wanted = [end_ms, self.world.host.machine.deadline_ms, self.model.next_ms() or end_ms]
            self.world.now_ms = max(self.world.now_ms, min(wanted))
            self.world.tick_if_due()
            self.model.pass_time(self.world.now_ms)
            self.state_is_the_models()

    @rule()
    def restart(self) -> None:
        compacted = self.world.rebuilt(compacted=True)
        assert shown(ask(compacted, ConsumerDescribe("g"), self.world.now)) == self.model.described()
        self.world.lose()
        self.model.restart()

    # After every step.

    @invariant()
    def state_is_the_models(self) -> None:
        if not hasattr(self, "model"):
            return
        described = self.model.described()
        question = ConsumerDescribe("g")
        assert shown(self.world.ask(question)) == described
        assert shown(ask(self.world.rebuilt(), question, self.world.now)) == described
        self.nothing_is_in_two_hands()
        epochs = (self.model.epoch, self.model.target_epoch)
        assert all(after >= before for before, after in zip(self.epochs, epochs, strict=True))
        self.epochs = epochs

    def nothing_is_in_two_hands(self) -> None:
        held = [partition for m in self.model.members.values() for partition in m.assigned | m.revoking]
        assert len(held) == len(set(held))
        hands: dict[Partition, str] = {}
        for client in self.clients:
            if client.member_id in self.model.members and not client.lied:
                for partition in client.has:
                    assert hands.setdefault(partition, client.name) == client.name

    def teardown(self) -> None:
        """The faults are over: everyone goes on, and soon has what it should."""
        if not hasattr(self, "model"):
            return
        for client in self.clients:
            if client.lied:
                self.leave(self.clients.index(client), False)
        self.wait(45_000)
        for _ in range(ROUNDS_TO_SETTLE):
            for number in (0, 1, 2, 3, 5):
                self.beat(number, False)
        self.state_is_the_models()
        assert self.model.state() == "Stable"
        members = {client.member_id: client for client in self.clients if client.member_id in self.model.members}
        assert members.keys() == self.model.members.keys()
        owned = [partition for client in members.values() for partition in client.has]
        assert sorted(owned) == sorted((topic, n) for topic, size in self.model.sizes.values() for n in range(size))
