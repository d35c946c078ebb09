"""Random histories of classic groups: clients that join, sync, commit, fall silent and leave, a log that commits
late, and coordinators that are lost with the uncommitted end of it.

After every step: a decision changed nothing by itself; what is durable is what the log says; no partition belongs to
two members that could commit for it; and nobody is forgotten, neither a call nor a member.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from durable import check_durable
from weighing import check_weights

from skidway.errors import ErrorCode, MemberIdRequired, NotCoordinator, ProtocolError
from skidway.groups.classic.group import ClassicGroup
from skidway.groups.classic.states import Completing, Empty, Preparing, Stable
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.operations import (
    CommitOffsets,
    DeleteGroup,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaving,
    OffsetToCommit,
    SyncGroup,
    SyncReply,
    Tick,
)
from skidway.groups.records import GroupRecord, from_batches, to_batch
from skidway.groups.settings import GroupSettings
from skidway.runtime.replicated import Now, Operation, Replicated

GROUPS = ["g", "h"]
PARTITIONS = range(6)
STEPS = 250


class Checked(GroupCoordinator):
    """Deciding twice from the same state would do: it leaves everything as it was."""

    def decide(self, operation: Operation[Any], now: Now) -> Any:
        before = self.picture()
        try:
            return super().decide(operation, now)
        finally:
            assert self.picture() == before

    def picture(self) -> str:
        return repr((self.groups, self.offsets, self.deadline_ms))


class OneTopic:
    epoch = 0

    def partition_count(self, name: str) -> int | None:
        return len(PARTITIONS)

    def id_of(self, name: str) -> bytes | None:
        return b"topic".rjust(16)

    def name_of(self, topic_id: bytes) -> str | None:
        return "t"

    def names(self) -> list[str]:
        return ["t"]


@dataclass
class Client:
    name: str
    group_id: str
    instance_id: str | None
    member_id: str = ""
    generation: int = -1
    partitions: set[int] = field(default_factory=set)
    led: list[str] = field(default_factory=list)
    waiting: bool = False
    losses_seen: int = 0
    protocols: list[str] = field(default_factory=lambda: ["range", "sticky"])


class History:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now_ms = 0
        self.batches: list[tuple[int, bytes]] = []
        self.committed_offset = 0
        self.acknowledged: dict[tuple[str, int], int] = {}
        self.attempted: dict[tuple[str, int], set[int]] = {}
        self.calls = self.answers = self.losses = 0
        delay_ms = self.random.choice([0, 500])
        self.settings = GroupSettings(initial_rebalance_delay_ms=delay_ms, size_max=self.random.choice([3, 100]))
        self.host: Replicated[Checked, GroupRecord] = Replicated(self.new_machine, self)
        instances = [None, None, None, "i", "i", "j"]
        self.clients = [
            Client(f"c{number}", group_id, instance_id)
            for group_id in GROUPS
            for number, instance_id in enumerate(instances)
        ]
        self.tick()

    # What the host needs.

    def new_machine(self) -> Checked:
        return Checked(self.settings, OneTopic(), self.random)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.wall_ms())

    def wall_ms(self) -> int:
        return 10**12 + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    @property
    def end_offset(self) -> int:
        return self.batches[-1][0] if self.batches else 0

    def append(self, records: Sequence[GroupRecord], now_ms: int) -> int:
        self.batches.append((self.end_offset + len(records), bytes(to_batch(records, 0))))
        return self.end_offset

    def read_all(self) -> list[GroupRecord]:
        return [record for _, batch in self.batches for record in from_batches(batch)]

    # What happens.

    def submit(self, operation: Operation[Any], respond: Any) -> None:
        self.calls += 1

        def answered(reply: Any) -> None:
            self.answers += 1
            respond(reply)

        self.host.submit(operation, self.now, answered)
        if self.random.random() < 0.7:
            self.commit()

    def commit(self) -> None:
        self.committed_offset = self.end_offset
        self.host.on_committed(self.committed_offset)

    def tick(self) -> None:
        self.submit(Tick(), lambda reply: None)

    def lose(self) -> None:
        """Another coordinator, or the same after a crash: what was not committed may be gone."""
        self.losses += 1
        cut = self.random.choice([self.committed_offset, self.end_offset])
        self.batches = [(end, batch) for end, batch in self.batches if end <= cut]
        self.host.on_lost(NotCoordinator())
        self.tick()
        for (group_id, partition), offset in self.acknowledged.items():
            known = self.host.machine.offsets.of(group_id).get(("t", partition))
            assert known is not None
            assert known.offset == offset or known.offset in self.attempted[group_id, partition]

    def groups(self) -> list[ClassicGroup]:
        return [group for group in self.host.machine.groups.values() if isinstance(group, ClassicGroup)]

    def step(self) -> None:
        client = self.random.choice(self.clients)
        roll = self.random.random()
        if roll < 0.15:
            self.pass_time(self.random.choice([1, 200, 200, 3_000]))
        elif roll < 0.16:
            self.lose()
        elif roll < 0.18:
            self.commit()
        elif client.waiting:
            pass
        elif roll < 0.20 and client.member_id:
            self.leave(client)
        elif roll < 0.22:
            client.member_id, client.generation, client.partitions = "", -1, set()
        elif roll < 0.23:
            self.submit(DeleteGroup(client.group_id), lambda reply: self.deleted(client.group_id, reply))
        elif roll < 0.27:
            self.random.choice([self.join, self.sync, self.beat, self.commit_offset])(client)
        else:
            self.go_on(client)

    def go_on(self, client: Client) -> None:
        """What a good client does next."""
        if not client.member_id or client.generation < 0:
            self.join(client)
        elif not client.partitions:
            self.sync(client)
        else:
            self.beat(client)
            self.commit_offset(client)

    def pass_time(self, wait_ms: int) -> None:
        end_ms = self.now_ms + wait_ms
        while self.host.machine.deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.host.machine.deadline_ms)
            self.tick()
            self.check()
        self.now_ms = end_ms

    def join(self, client: Client) -> None:
        if self.random.random() < 0.2:
            client.protocols = self.random.choice([["range"], ["sticky", "range"], ["range", "sticky"]])
        client.waiting = True
        operation = JoinGroup(
            client.group_id,
            client.member_id,
            client.instance_id,
            client.name,
            "host",
            10_000,
            self.random.choice([1_000, 5_000]),
            "consumer",
            [(name, b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff") for name in client.protocols],
            self.random.random() < 0.8,
            self.random.random() < 0.8,
        )
        self.submit(operation, lambda reply: self.joined(client, reply))

    def joined(self, client: Client, reply: JoinReply | ProtocolError) -> None:
        client.waiting = False
        match reply:
            case JoinReply():
                if self.losses == client.losses_seen:
                    assert reply.generation >= client.generation
                # A generation that was only talked about is gone with its coordinator.
                client.losses_seen = self.losses
                if reply.generation != client.generation:
                    client.partitions = set()
                client.member_id, client.generation = reply.member_id, reply.generation
                client.led = [] if reply.skip_assignment else [each.member_id for each in reply.members]
            case MemberIdRequired():
                client.member_id, client.generation = reply.member_id, -1
            case _:
                self.failed(client, reply)

    def failed(self, client: Client, error: ProtocolError | None) -> None:
        if error is None or error.code == ErrorCode.NOT_COORDINATOR:
            return
        if error.code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION):
            client.generation, client.partitions = -1, set()
        else:
            client.member_id, client.generation, client.partitions = "", -1, set()

    def sync(self, client: Client) -> None:
        client.waiting = True
        members = client.led
        assignments: list[tuple[str, Any]] = [
            (member_id, bytes(each for each in PARTITIONS if each % len(members) == number))
            for number, member_id in enumerate(members)
        ]
        operation = SyncGroup(
            client.group_id, client.member_id, client.instance_id, client.generation, assignments=assignments
        )
        self.submit(operation, lambda reply: self.synced(client, reply))

    def synced(self, client: Client, reply: SyncReply | ProtocolError) -> None:
        client.waiting = False
        if isinstance(reply, SyncReply):
            client.partitions = set(bytes(reply.assignment))
        else:
            self.failed(client, reply)

    def beat(self, client: Client) -> None:
        operation = Heartbeat(client.group_id, client.member_id, client.instance_id, client.generation)
        if not client.waiting:
            self.submit(operation, lambda reply: self.failed(client, reply))

    def leave(self, client: Client) -> None:
        operation = LeaveGroup(client.group_id, [Leaving(client.member_id, client.instance_id)])
        self.submit(operation, lambda reply: None)
        client.member_id, client.generation, client.partitions = "", -1, set()

    def commit_offset(self, client: Client) -> None:
        if not client.partitions:
            return
        partition, offset = self.random.choice(sorted(client.partitions)), self.random.randrange(10**9)
        key = (client.group_id, partition)
        self.attempted.setdefault(key, set()).add(offset)

        def respond(reply: Any) -> None:
            if isinstance(reply, list):
                assert reply == [ErrorCode.NONE]
                # What was asked for before this answer is older, or not answered yet and then written later.
                self.attempted[key].discard(offset)
                self.acknowledged[key] = offset
            else:
                self.failed(client, reply)

        offsets = [OffsetToCommit("t", partition, offset)]
        self.submit(
            CommitOffsets(client.group_id, offsets, client.member_id, client.instance_id, client.generation), respond
        )

    def deleted(self, group_id: str, reply: Any) -> None:
        if reply is None:
            for key in [key for key in self.acknowledged if key[0] == group_id]:
                del self.acknowledged[key]

    # What must be true.

    def check(self) -> None:
        rebuilt = self.new_machine()
        for record in self.read_all():
            rebuilt.apply(record)
        check_weights(rebuilt)
        check_weights(self.host.machine)
        assert rebuilt.offsets == self.host.machine.offsets
        for group in self.groups():
            self.check_group(group)
        check_durable(self.host.machine, rebuilt)

    def check_group(self, group: ClassicGroup) -> None:
        live, current = group.live, group.live.current
        members = set(current.members)
        assert list(live.offers.by_member) == list(current.members)
        assert set(live.sessions) <= members
        assert set(current.instances.values()) == {
            each.member_id for each in current.members.values() if each.instance_id
        }
        assert not members & set(live.invited)
        assert current.leader in members or not members
        waiting: set[str] = set()
        match live.state:
            case Empty():
                assert not members
            case Preparing(joins=joins, newcomers=newcomers):
                waiting = set(joins)
                assert set(newcomers) <= members
            case Completing(syncs=syncs, unsynced=unsynced):
                waiting = set(syncs)
                assert set(unsynced) <= members
                assert live.state.deadline_ms is not None or current.leader in live.sessions
            case Stable(unsynced=unsynced):
                assert members
                assert set(unsynced) <= members
                self.check_assignment(group)
        # Nobody is forgotten: a member has a session, or waits for something that ends by time.
        assert waiting <= members
        assert members <= set(live.sessions) | waiting
        self.check_owners(group)

    def check_assignment(self, group: ClassicGroup) -> None:
        current, offers = group.live.current, group.live.offers
        given = [partition for member in current.members.values() for partition in bytes(member.assignment)]
        assert len(given) == len(set(given))
        for member in current.members.values():
            assert any(name == current.protocol_name for name, _ in offers.by_member[member.member_id])

    def check_owners(self, group: ClassicGroup) -> None:
        """Who could commit for a partition, as far as the clients know what they own."""
        owners: dict[int, str] = {}
        for client in self.clients:
            if client.group_id != group.group_id or client.generation != group.live.current.number:
                continue
            if client.member_id not in group.live.current.members or isinstance(group.live.state, Completing):
                continue
            for partition in client.partitions:
                assert owners.setdefault(partition, client.member_id) == client.member_id


@pytest.mark.parametrize("seed", range(25))
def test_whatever_happens_nobody_is_forgotten_and_nothing_is_owned_twice(seed: int) -> None:
    history = History(seed)
    for _ in range(STEPS):
        history.step()
        history.check()
    # Everyone falls silent.
    history.pass_time(600_000)
    history.commit()
    assert all(group.is_empty for group in history.groups())
    assert history.host.held_count == 0
    assert history.answers == history.calls
    for (group_id, partition), offset in history.acknowledged.items():
        operation = FetchOffsets(group_id, [("t", partition)])
        (found,) = history.host.machine.decide(operation, history.now).reply
        assert found.offset == offset or found.offset in history.attempted[group_id, partition]
