"""Clients of the classic protocol that do what they should, and what they should not, against coordinator and model.

Every answer, its time, and the state after every step have to be the model's; and a coordinator built from the log
has to be the model's as well.
"""

import copy
from collections.abc import Iterable
from typing import Any

import hypothesis.strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from model_world import ModelWorld, Topics, ask
from naive_classic_group import NaiveClassicGroup

from skidway.errors import MemberIdRequired, ProtocolError
from skidway.groups.operations import (
    DeleteGroup,
    DescribedGroup,
    DescribeGroup,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaving,
    ListGroups,
    SyncGroup,
    SyncReply,
)
from skidway.groups.settings import GroupSettings
from skidway.runtime.replicated import Operation

PROTOCOLS = [
    [("range", b"r")],
    [("range", b"r"), ("sticky", b"s")],
    [("sticky", b"s"), ("range", b"r")],
    [("sticky", b"s2"), ("range", b"r")],
    [("roundrobin", b"x")],
]
INSTANCES = [None, None, None, "i", "i", "j"]
CLIENTS = st.integers(0, len(INSTANCES) - 1)


def shown(reply: Any) -> tuple[Any, ...]:
    """An answer of the coordinator as the model puts it."""
    match reply:
        case None:
            return ("done",)
        case MemberIdRequired():
            return ("id required", reply.member_id)
        case ProtocolError():
            return ("error", reply.code.name)
        case JoinReply():
            members = sorted((each.member_id, each.instance_id or "", bytes(each.metadata)) for each in reply.members)
            return (
                "joined",
                reply.member_id,
                reply.generation,
                reply.protocol_type,
                reply.protocol_name,
                reply.leader,
                tuple(members),
                reply.skip_assignment,
            )
        case SyncReply():
            return ("synced", reply.protocol_type, reply.protocol_name, bytes(reply.assignment))
        case list():
            return ("codes", *(code.name for code in reply))
        case DescribedGroup():
            return (
                reply.state,
                reply.protocol_type,
                reply.protocol_name,
                {
                    m.member_id: (m.instance_id, (m.client_id, m.client_host), bytes(m.metadata), bytes(m.assignment))
                    for m in reply.members
                },
            )
    raise AssertionError(reply)


class Remembered:
    """What a client was told."""

    def __init__(self, name: str, instance: str | None) -> None:
        self.name, self.instance = name, instance
        self.member_id, self.generation = "", -1
        self.leads: list[str] = []
        self.synced = False
        self.waiting: int | None = None

    def hear(self, reply: tuple[Any, ...]) -> None:
        self.waiting = None
        match reply:
            case ("id required", member_id):
                self.member_id, self.generation = member_id, -1
            case ("joined", member_id, generation, _, _, _, members, skip):
                self.member_id, self.generation, self.synced = member_id, generation, False
                self.leads = [] if skip else [each for each, _, _ in members]
            case ("synced", *_):
                self.synced = True
            case ("error", "REBALANCE_IN_PROGRESS" | "ILLEGAL_GENERATION"):
                self.generation, self.synced = -1, False
            case ("error", "UNKNOWN_MEMBER_ID" | "FENCED_INSTANCE_ID" | "GROUP_MAX_SIZE_REACHED"):
                self.member_id, self.generation, self.synced = "", -1, False


class ClassicAgainstModel(RuleBasedStateMachine):
    world_class = ModelWorld

    @initialize(delay_ms=st.sampled_from([0, 500, 3_000]), size_max=st.sampled_from([100, 3, 2]))
    def begin(self, delay_ms: int, size_max: int) -> None:
        settings = GroupSettings(initial_rebalance_delay_ms=delay_ms, size_max=size_max, retention_check_ms=10**9)
        self.world = self.world_class(settings, Topics(t=4))
        self.model = NaiveClassicGroup(settings, self.choose)
        self.clients = [Remembered(f"c{number}", instance) for number, instance in enumerate(INSTANCES)]
        self.ids: list[str] = ["", "ghost"]
        self.heard: dict[int, Any] = {}

    # What was left open, as the coordinator chose.

    def choose(self, what: str, legal: Iterable[str]) -> str:
        answers = [reply for reply in self.world.answers.values() if isinstance(reply, JoinReply)]
        if what == "stays":
            return "yes" if answers else "no"
        chosen = {(each.leader if what == "leader" else each.protocol_name) for each in answers}
        assert len(chosen) == 1, f"those who joined heard of different {what}s: {chosen}"
        (choice,) = chosen
        assert choice in legal, f"{what} {choice} is none of {legal}"
        return choice

    # One step on both sides.

    def submit(self, operation: Operation[Any], client: Remembered | None = None) -> None:
        self.world.dice.step += 1
        given, operation = operation, copy.copy(operation)
        number = self.world.submit(given)
        if client is not None:
            client.waiting = number
        match operation:
            case JoinGroup():
                self.model.join(number, operation, self.world.dice.uuid())
            case SyncGroup():
                self.model.sync(number, operation)
            case Heartbeat():
                self.model.heartbeat(number, operation)
            case LeaveGroup():
                self.model.leave(number, operation)
            case DeleteGroup():
                self.model.delete(number)
        self.compare()

    def compare(self) -> None:
        answers = {number: shown(reply) for number, reply in self.world.take_answers().items()}
        expected, self.model.answers = self.model.answers, {}
        assert answers == expected
        for number, reply in answers.items():
            for client in self.clients:
                if client.waiting == number:
                    client.hear(reply)
            if reply[0] in ("id required", "joined") and reply[1] not in self.ids:
                self.ids.append(reply[1])

    # Good clients.

    @rule(number=CLIENTS, protocols=st.sampled_from(PROTOCOLS[:3]))
    def go_on(self, number: int, protocols: list[tuple[str, Any]]) -> None:
        client = self.clients[number]
        if client.waiting is not None:
            return
        if client.generation < 0:
            self.join_by(client, protocols)
        elif not client.synced:
            assignments: list[tuple[str, Any]] = [(each, f"for {each}".encode()) for each in client.leads]
            call = SyncGroup("g", client.member_id, client.instance, client.generation, assignments=assignments)
            self.submit(call, client)
        else:
            self.submit(Heartbeat("g", client.member_id, client.instance, client.generation), client)

    def join_by(self, client: Remembered, protocols: list[tuple[str, Any]], **fields: Any) -> None:
        call = JoinGroup("g", client.member_id, client.instance, client.name, "h", 6_000, 5_000, "consumer", protocols)
        for name, value in fields.items():
            setattr(call, name, value)
        self.submit(call, client)

    @rule()
    def everyone_goes_on(self) -> None:
        for _ in range(3):
            for number in range(4):
                self.go_on(number, PROTOCOLS[1])

    @rule(times=st.integers(1, 4), numbers=st.sampled_from([(0, 1), (0, 1, 3), (0, 1, 2, 3)]))
    def live_on(self, times: int, numbers: tuple[int, ...]) -> None:
        """Longer than a session, with signs of life in it."""
        for _ in range(times):
            self.pass_time(2_500)
            for _ in range(2):
                for number in numbers:
                    self.go_on(number, PROTOCOLS[1])

    @rule(
        number=CLIENTS,
        protocols=st.sampled_from(PROTOCOLS),
        session_ms=st.sampled_from([6_000, 9_000]),
        rebalance_ms=st.sampled_from([1_000, 5_000, 20_000]),
        old=st.booleans(),
        very_old=st.booleans(),
    )
    def join(self, number: int, protocols: Any, session_ms: int, rebalance_ms: int, old: bool, very_old: bool) -> None:
        """Also again, while the first call waits, or with other protocols."""
        self.join_by(
            self.clients[number],
            protocols,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            can_skip_assignment=not old,
            member_id_required=not very_old,
        )

    @rule(number=CLIENTS)
    def forget(self, number: int) -> None:
        """The client starts anew; nobody hears of it."""
        client = self.clients[number]
        client.member_id, client.generation, client.synced, client.waiting = "", -1, False, None

    @rule(numbers=st.lists(CLIENTS, min_size=1, max_size=3), by_instance=st.booleans())
    def leave(self, numbers: list[int], by_instance: bool) -> None:
        leaving = [self.clients[number] for number in numbers]
        members = [Leaving("" if by_instance and each.instance else each.member_id, each.instance) for each in leaving]
        self.submit(LeaveGroup("g", members))

    # Clients that say what is not so.

    @rule(data=st.data(), kind=st.sampled_from(["sync", "beat", "leave", "join"]))
    def stray(self, data: st.DataObject, kind: str) -> None:
        member_id = data.draw(st.sampled_from([*self.model.members, *self.ids]))
        known = self.model.members.get(member_id)
        instance = data.draw(st.sampled_from([known.instance if known else None, None, "i", "j"]))
        generation = self.model.generation + data.draw(st.sampled_from([0, 0, 0, -1, 1]))
        match kind:
            case "sync":
                name = data.draw(st.sampled_from([None, "range", "sticky"]))
                shares: list[tuple[str, Any]] = [(member_id, b"stray")]
                self.submit(SyncGroup("g", member_id, instance, generation, None, name, shares))
            case "beat":
                self.submit(Heartbeat("g", member_id, instance, generation))
            case "leave":
                self.submit(LeaveGroup("g", [Leaving(member_id, instance), Leaving(member_id)]))
            case "join":
                protocol_type = data.draw(st.sampled_from(["consumer", "connect", ""]))
                session_ms = data.draw(st.sampled_from([6_000, 1, 10**8]))
                self.join_by(
                    Remembered("stray", instance),
                    data.draw(st.sampled_from([*PROTOCOLS, []])),
                    member_id=member_id,
                    session_timeout_ms=session_ms,
                    protocol_type=protocol_type,
                )

    @rule()
    def delete(self) -> None:
        self.submit(DeleteGroup("g"))

    # Time and restarts.

    @rule(wait_ms=st.sampled_from([1, 100, 499, 500, 1_000, 2_999, 3_000, 5_000, 6_000, 30_000]))
    def wait(self, wait_ms: int) -> None:
        self.pass_time(wait_ms)

    def pass_time(self, wait_ms: int) -> None:
        """To each moment at which either side has something to do."""
        end_ms = self.world.now_ms + wait_ms
        while self.world.now_ms < end_ms:
            wanted = [end_ms, self.world.host.machine.deadline_ms, self.model.next_ms() or end_ms]
            self.world.now_ms = max(self.world.now_ms, min(wanted))
            self.world.tick_if_due()
            self.model.pass_time(self.world.now_ms)
            self.compare()

    @precondition(lambda self: self.model.exists)
    @rule()
    def restart(self) -> None:
        self.world.lose()
        self.model.restart()
        self.compare()

    # After every step.

    @invariant()
    def state_is_the_models(self) -> None:
        if not hasattr(self, "model"):
            return
        described = self.model.described()
        assert shown(self.world.ask(DescribeGroup("g"))) == described
        listed = [(each.group_id, each.state, each.protocol_type) for each in self.world.ask(ListGroups())]
        assert listed == ([("g", described[0], described[1])] if self.model.exists else [])
        live = [each.group_id for each in self.world.ask(ListGroups(["stable", "preparingREBALANCE"]))]
        assert live == (["g"] if described[0] in ("Stable", "PreparingRebalance") else [])
        rebuilt = ask(self.world.rebuilt(), DescribeGroup("g"), self.world.now)
        assert shown(rebuilt) == self.model.described_from_log()

    def teardown(self) -> None:
        """Everyone falls silent: whoever waits is answered, and everyone is forgotten."""
        if hasattr(self, "model"):
            self.pass_time(600_000)
            assert self.world.host.held_count == 0
            assert not self.model.members
