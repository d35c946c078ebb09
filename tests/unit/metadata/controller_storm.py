"""Storms for the controller: five brokers that crash, lose records, fall silent and come back, leaders that report what
they see late, operators that change everything; and what must hold after every decision.

The model knows what no controller knows: how many records of a partition were acknowledged, and how many each replica
has. So it can tell when somebody is trusted who should not be.
"""

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

from skidway.errors import ErrorCode, ProtocolError
from skidway.limits import Limits
from skidway.metadata import brokers
from skidway.metadata.controller import Controller, ControllerSettings
from skidway.metadata.image import LOST_DIRECTORY, NO_LEADER, Image, Partition
from skidway.metadata.operations import (
    AlterOp,
    AlterPartition,
    AlterReassignments,
    AssignDirectories,
    Bootstrap,
    BrokerHeartbeat,
    ConfigChange,
    ControllerStarted,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    ElectionType,
    ElectLeaders,
    IncrementalAlterConfigs,
    ListReassignments,
    MorePartitions,
    NewTopic,
    PartitionAlteration,
    RegisterBroker,
    SuspectBroker,
    UnregisterBroker,
)
from skidway.metadata.partition_index import PartitionIndex, PartitionKey
from skidway.metadata.records import from_batches, to_batch
from skidway.metadata.snapshot import records_of
from skidway.runtime.replicated import Now, Operation

DIFFERENT_INDEX = "the index differs from one made of the image"
BROKERS = (1, 2, 3, 4, 5)
SETTINGS = ControllerSettings(session_timeout_ms=1_000, leader_imbalance_check_ms=5_000, replication_factor=3)
LIMITS = Limits(partitions_per_topic_max=4, partitions_max=12)
STEPS = 250
EVERYTHING = 10_000
WIPED = -1
"""Held by a replica whose disk was replaced."""


@dataclass(slots=True)
class Host:
    """A broker's process and its disk."""

    up: bool = False
    paused: bool = False
    epoch: int = -1
    saved_epoch: int = -1
    """Left by a clean stop."""
    lost: int = 0
    """Records of each partition that its next run will not find."""
    disk: int = 1
    known_offset: int = -1
    old_epochs: list[int] = field(default_factory=list)

    @property
    def answers(self) -> bool:
        return self.up and not self.paused


@dataclass(slots=True)
class Stored:
    """A partition's records, as numbers."""

    acknowledged: int = 0
    held: dict[int, int] = field(default_factory=dict)
    asked: AlterPartition | None = None
    """The leader's request that is on its way; meanwhile it waits for everybody in it."""


class Storm:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.suspects = random.Random(f"{seed}/suspects")
        self.losses = random.Random(f"{seed}/losses")
        self.now_ms = 0
        self.log = bytearray()
        self.end_offset = 0
        self.mirror = Image()
        self.hosts = {broker_id: Host() for broker_id in BROKERS}
        self.stored: dict[PartitionKey, Stored] = {}
        self.leaders: dict[tuple[PartitionKey, int], int] = {}
        """By leader epoch."""
        self.gave_up_at: dict[int, int] = {}
        """Where the log ended when a broker that wants to stop had given up what it led."""
        self.late: list[AlterPartition] = []
        self.lost: set[tuple[int, PartitionKey]] = set()
        """Copies that cannot be read at all, and whose brokers have said so."""
        self.refusals: dict[str, int] = {}
        self.operation: Operation[Any] = Bootstrap()
        self.controller = self._new_controller()
        self.decide(Bootstrap())
        self.decide(ControllerStarted())

    def _new_controller(self) -> Controller:
        return Controller(self.random, LIMITS, SETTINGS)

    @property
    def image(self) -> Image:
        return self.controller.image

    # --- deciding ---

    def decide(self, operation: Operation[Any]) -> Any:
        """None when it was refused."""
        self.operation = operation
        before = deepcopy(self.image)
        try:
            decision = self.controller.decide(operation, Now(self.now_ms, self.now_ms))
        except ProtocolError as refusal:
            assert self.image == before, "a refusal changed the image"
            self.refusals[refusal.code.name] = self.refusals.get(refusal.code.name, 0) + 1
            return None
        assert self.image == before, "deciding changed the image"
        if decision.records:
            batch = to_batch(decision.records, 0)
            self.log += batch
            self.end_offset += len(decision.records)
            for record in from_batches(batch):
                self.mirror.apply(record)
        for record in decision.records:
            self.controller.apply(record)
        for note in decision.notes:
            self.controller.note(note)
        assert self.mirror == self.image, "the log tells another story"
        self.check_image()
        self.follow(before)
        return decision.reply

    def ordered(self, kind: type[Operation[Any]]) -> bool:
        return isinstance(self.operation, kind)

    def follow(self, before: Image) -> None:
        """Hold what changed against what brokers have."""
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                key = (topic.id, partition.index)
                old = before.topics_by_id.get(topic.id)
                if old is None or partition.index >= len(old.partitions):
                    self.stored[key] = Stored(held=dict.fromkeys(partition.replicas, 0))
                    drained = [each for each in partition.replicas if self.drained(before, each)]
                    assert not drained, f"{drained} got something new although drained"
                elif old.partitions[partition.index] != partition:
                    self._follow_partition(key, old.partitions[partition.index], partition)
                leader = self.leaders.setdefault((key, partition.leader_epoch), partition.leader)
                assert leader == partition.leader, "two leaders in one epoch"
                self._check_trusted(key, partition)
        for key in [key for key in self.stored if key[0] not in self.image.topics_by_id]:
            del self.stored[key]

    def _follow_partition(self, key: PartitionKey, old: Partition, new: Partition) -> None:
        assert new.partition_epoch > old.partition_epoch, "a change without an epoch"
        assert new.leader_epoch >= old.leader_epoch
        stored = self.stored[key]
        if new.leader != old.leader:
            assert new.leader_epoch > old.leader_epoch, "another leader in the same epoch"
            assert (new.leader, key) not in self.lost, "a copy that nobody can read leads"
            stored.asked = None
        complete = {*old.isr, *old.eligible_leader_replicas}
        if isinstance(self.operation, AlterPartition):
            complete.update(member for member, _ in self.operation.topics[0][1][0].new_isr)
        if new.leader not in (old.leader, NO_LEADER, *complete):
            self._check_lossy_election(key, old, new)
            stored.acknowledged = stored.held[new.leader]
        moving = {*old.adding_replicas, *old.removing_replicas}
        if not moving.isdisjoint(set(old.replicas) - set(new.replicas)) and not self.ordered(AlterReassignments):
            assert set(new.replicas) <= set(new.isr), "a reassignment ended before it was done"
        stored.held = {each: stored.held.get(each, 0) for each in new.replicas}
        joined = set(new.isr) - set(old.isr)
        self.lost = {(each, k) for each, k in self.lost if k != key or (each in new.replicas and each not in joined)}

    def _check_lossy_election(self, key: PartitionKey, old: Partition, new: Partition) -> None:
        name = self.image.topics_by_id[key[0]].name
        if not self.ordered(ElectLeaders) and not self.unclean_allowed(name):
            assert [new.leader] == old.last_known_elr, "an unclean election that nobody allowed"
            lost = {getattr(self.operation, "broker_id", NO_LEADER)}
            assert {*old.isr, *old.eligible_leader_replicas} <= lost, "an unclean election without need"
        assert self.stored[key].held[new.leader] != WIPED, "a broker with a new disk leads"

    def _check_trusted(self, key: PartitionKey, partition: Partition) -> None:
        stored = self.stored[key]
        for broker_id in (*partition.isr, *partition.eligible_leader_replicas):
            assert stored.held[broker_id] >= stored.acknowledged, f"{broker_id} is trusted and lacks records"

    def check_image(self) -> None:
        fenced = {broker.id for broker in self.image.brokers.values() if not broker.active}
        unfinished = brokers.has_unfinished(self.image, self.controller.index)
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                isr, eligible = partition.isr, partition.eligible_leader_replicas
                assert partition.leader in isr or (partition.leader == NO_LEADER and (not isr or unfinished))
                assert len({*isr, *eligible}) == len(isr) + len(eligible)
                named = {*isr, *eligible, *partition.adding_replicas, *partition.removing_replicas}
                assert named <= {*partition.replicas}, f"{named} are not all among the replicas"
                assert len(partition.directories) == len(partition.replicas) == len(set(partition.replicas))
                enough = min(self.min_in_sync(topic.name), len(partition.replicas))
                assert not eligible or len(isr) < enough, "eligible although enough are in sync"
                assert unfinished or fenced.isdisjoint(isr), "a fenced broker is in sync"
                able = {*isr, *eligible, *partition.last_known_elr} & {*partition.replicas}
                assert partition.leader != NO_LEADER or able, "lost for ever"
        self._check_index()

    def _check_index(self) -> None:
        kept, rebuilt = self.controller.index, PartitionIndex(self.image)
        for broker_id in (NO_LEADER, *BROKERS):
            assert set(kept.led_by(broker_id)) == set(rebuilt.led_by(broker_id)), DIFFERENT_INDEX
            assert set(kept.in_sync(broker_id)) == set(rebuilt.in_sync(broker_id)), DIFFERENT_INDEX
            assert set(kept.eligible(broker_id)) == set(rebuilt.eligible(broker_id)), DIFFERENT_INDEX
        assert set(kept.imbalanced) == set(rebuilt.imbalanced), DIFFERENT_INDEX
        assert set(kept.reassigning) == set(rebuilt.reassigning)

    def min_in_sync(self, topic_name: str) -> int:
        name = "min.insync.replicas"
        return int(self.image.topic_config(topic_name).get(name) or self.image.config(4, "").get(name) or 1)

    def drained(self, image: Image, broker_id: int) -> bool:
        return image.config(4, str(broker_id)).get("skidway.drained") == "true"

    def unclean_allowed(self, topic_name: str) -> bool:
        return self.image.topic_config(topic_name).get("unclean.leader.election.enable") == "true"

    # --- brokers ---

    def start_broker(self) -> None:
        broker_id = self.random.choice(BROKERS)
        host = self.hosts[broker_id]
        if not host.up:
            self.register(broker_id)

    def register(self, broker_id: int) -> None:
        host = self.hosts[broker_id]
        epoch, held = host.epoch, {key: stored.held.get(broker_id) for key, stored in self.stored.items()}
        self._lose(broker_id)
        operation = RegisterBroker(
            broker_id,
            self.random.randbytes(16),
            [],
            log_dirs=[bytes([broker_id, host.disk]) * 8],
            fenced=True,
            previous_broker_epoch=host.saved_epoch,
            log_end_offset=self.end_offset,
        )
        alive = broker_id in self.image.brokers and not self.image.brokers[broker_id].fenced
        reply = self.decide_or_undo(operation, held)
        if reply is None:
            assert alive, "a broker that is gone keeps another from coming"
            return
        assert reply.epoch > epoch
        self.gave_up_at.pop(broker_id, None)
        if epoch >= 0:
            host.old_epochs.append(epoch)
        host.up, host.paused, host.epoch, host.saved_epoch, host.lost = True, False, reply.epoch, -1, 0

    def decide_or_undo(self, operation: RegisterBroker, held: dict[PartitionKey, int | None]) -> Any:
        """A run that is refused has not told anybody yet what it lost."""
        reply = self.decide(operation)
        if reply is None:
            for key, stored in self.stored.items():
                value = held[key]
                if value is not None:
                    stored.held[operation.broker_id] = value
        return reply

    def _lose(self, broker_id: int) -> None:
        host = self.hosts[broker_id]
        for stored in self.stored.values():
            if stored.held.get(broker_id, WIPED) != WIPED:
                left = stored.held[broker_id] - host.lost
                stored.held[broker_id] = WIPED if host.lost == EVERYTHING else max(0, left)

    def crash(self) -> None:
        host = self.random.choice(list(self.hosts.values()))
        if host.up:
            host.up, host.saved_epoch = False, -1
            host.lost = self.random.choice([0, 1, 3])

    def replace_disk(self) -> None:
        host = self.random.choice(list(self.hosts.values()))
        if not host.up:
            host.disk, host.saved_epoch, host.lost = host.disk + 1, -1, EVERYTHING

    def pause(self) -> None:
        host = self.random.choice(list(self.hosts.values()))
        host.paused = host.up and not host.paused

    def heartbeat(self) -> None:
        for broker_id, host in self.hosts.items():
            if host.answers and self.random.random() < 0.9:
                self.send_heartbeat(broker_id)

    def send_heartbeat(self, broker_id: int, stop: bool = False) -> None:
        host = self.hosts[broker_id]
        if self.random.random() < 0.8:
            host.known_offset = self.end_offset - 1
        if broker_id in self.image.brokers and self.image.brokers[broker_id].fenced:
            # It was given up: nobody waits for it, and it need not wait for anybody.
            self.gave_up_at.pop(broker_id, None)
        reply = self.decide(
            BrokerHeartbeat(broker_id, host.epoch, host.known_offset, False, stop, log_end_offset=self.end_offset)
        )
        if reply is None:
            assert broker_id not in self.image.brokers, "a heartbeat of the present run is refused"
            host.up = False
            return
        broker = self.image.brokers[broker_id]
        assert reply.is_fenced == broker.fenced, "the answer and the image differ"
        if (
            (stop or broker.in_controlled_shutdown)
            and not broker.fenced
            and broker_id not in self.gave_up_at
            and not self.controller.index.led_by(broker_id)
        ):
            self.gave_up_at[broker_id] = self.end_offset - 1
        if reply.should_shut_down:
            self._check_stop(broker_id)
            host.up, host.saved_epoch = False, host.epoch
            self.gave_up_at.pop(broker_id, None)

    def _check_stop(self, broker_id: int) -> None:
        assert not self.controller.index.led_by(broker_id), "stops while it leads"
        assert not self.controller.index.in_sync(broker_id), "stops while others wait for it"
        for other, host in self.hosts.items():
            broker = self.image.brokers.get(other)
            if other != broker_id and broker is not None and broker.active and host.epoch == broker.epoch:
                assert host.known_offset >= self.gave_up_at.get(broker_id, -1), f"{other} believes that it leads"

    def stop(self) -> None:
        broker_id = self.random.choice(BROKERS)
        for _ in range(self.random.randrange(1, 6)):
            if not self.hosts[broker_id].answers:
                break
            self.send_heartbeat(broker_id, stop=True)
            self.heartbeat_of_others(broker_id)

    def heartbeat_of_others(self, broker_id: int) -> None:
        for other, host in self.hosts.items():
            if other != broker_id and host.answers and self.random.random() < 0.7:
                self.send_heartbeat(other)

    def suspect(self) -> None:
        broker_id = self.random.choice(BROKERS)
        self.decide(SuspectBroker(broker_id, self.hosts[broker_id].epoch))

    def stale_heartbeat(self) -> None:
        broker_id = self.random.choice(BROKERS)
        for epoch in self.hosts[broker_id].old_epochs[-1:]:
            assert self.decide(BrokerHeartbeat(broker_id, epoch, 10**9)) is None, "an old run is heard"

    def pass_time(self) -> None:
        self.now_ms += self.random.choice([50, 300, 600])
        self.do_what_is_due()

    def do_what_is_due(self) -> None:
        for _ in range(100):
            due = self.controller.due(self.now_ms)
            assert (self.controller.deadline_ms <= self.now_ms) == bool(due), "the deadline and what is due differ"
            if not due:
                return
            for operation in due:
                self.decide(operation)
        raise AssertionError("there is always something due")

    def move_controller(self) -> None:
        self.controller = self._new_controller()
        for record in from_batches(self.log):
            self.controller.apply(record)
        assert self.controller.image == self.mirror
        shortened = Image()
        for record in from_batches(to_batch(list(records_of(self.image)), 0)):
            shortened.apply(record)
        assert shortened == self.image, "the snapshot tells another story"
        self.gave_up_at.clear()
        self.decide(ControllerStarted(self.suspects.choice([-1, *BROKERS])))

    def unregister(self) -> None:
        broker_id = self.random.choice(BROKERS)
        if not self.hosts[broker_id].up and self.random.random() < 0.3:
            self.decide(UnregisterBroker(broker_id))
            if broker_id not in self.image.brokers:  # it is refused until the controller has noticed that it is down
                assert self.image.config(4, str(broker_id)) == {}, "settings of nobody"

    # --- partitions ---

    def some_partition(self) -> tuple[PartitionKey, Partition] | None:
        if not self.stored:
            return None
        key = self.random.choice(list(self.stored))
        return key, self.image.topics_by_id[key[0]].partitions[key[1]]

    def produce(self) -> None:
        for key, stored in self.stored.items():
            topic = self.image.topics_by_id[key[0]]
            partition = topic.partitions[key[1]]
            if partition.leader == NO_LEADER:
                continue
            needed = {*partition.isr}
            if stored.asked is not None:
                needed.update(member for member, _ in stored.asked.topics[0][1][0].new_isr)
            enough = min(self.min_in_sync(topic.name), len(partition.replicas))
            if len(partition.isr) >= enough and all(self.current(broker_id) for broker_id in needed):
                stored.acknowledged += 1
                stored.held.update(dict.fromkeys(needed, stored.acknowledged))

    def current(self, broker_id: int) -> bool:
        """Runs, and is the run that is registered."""
        host, broker = self.hosts[broker_id], self.image.brokers.get(broker_id)
        return host.answers and broker is not None and broker.epoch == host.epoch

    def propose(self) -> None:
        """A leader wants somebody in or out of the in-sync set."""
        chosen = self.some_partition()
        if chosen is None:
            return
        key, partition = chosen
        stored, leader = self.stored[key], partition.leader
        if leader == NO_LEADER or not self.current(leader) or stored.asked is not None:
            return
        members = {leader: self.hosts[leader].epoch}
        for broker_id in partition.replicas:
            host = self.hosts[broker_id]
            if broker_id == leader or not (self.current(broker_id) or self.random.random() < 0.3):
                continue
            if broker_id in partition.isr or self.random.random() < 0.7:
                if self.current(broker_id):
                    # Caught up.
                    stored.held[broker_id] = max(stored.held[broker_id], stored.held[leader])
                    members[broker_id] = host.epoch
                elif host.old_epochs:
                    # What the leader heard of an earlier run.
                    members[broker_id] = host.old_epochs[-1]
        alteration = PartitionAlteration(
            partition.index, partition.leader_epoch, partition.partition_epoch, list(members.items())
        )
        stored.asked = AlterPartition(leader, self.hosts[leader].epoch, [(key[0], [alteration])])

    def deliver(self) -> None:
        """A proposal arrives at last."""
        waiting = [stored for stored in self.stored.values() if stored.asked is not None]
        if not waiting:
            return
        stored = self.random.choice(waiting)
        asked, stored.asked = stored.asked, None
        assert asked is not None
        self.late.append(asked)
        self._alter(asked)

    def deliver_late(self) -> None:
        """Once more, long after."""
        if self.late:
            self._alter(self.random.choice(self.late[-4:]))

    def _alter(self, asked: AlterPartition) -> None:
        topic_id, [alteration] = asked.topics[0]
        topic = self.image.topics_by_id.get(topic_id)
        before = deepcopy(topic.partitions[alteration.index]) if topic is not None else None
        reply = self.decide(asked)
        if reply is None:
            return
        [(_, [altered])] = reply
        self.refusals[altered.error.name] = self.refusals.get(altered.error.name, 0) + 1
        if altered.error in (ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED):
            assert topic is not None
            assert before is not None
            told = (alteration.leader_epoch, alteration.partition_epoch)
            assert told == (before.leader_epoch, before.partition_epoch), "a stale order is obeyed"
            if asked.broker_id in [member for member, _ in alteration.new_isr]:
                assert asked.broker_id == before.leader
            else:
                self._began_anew(asked.broker_id, (topic_id, alteration.index))
        if altered.error == ErrorCode.NONE:
            assert topic is not None
            after = topic.partitions[alteration.index]
            assert (altered.leader, altered.leader_epoch) == (after.leader, after.leader_epoch)
            assert (altered.isr, altered.partition_epoch) == (after.isr, after.partition_epoch)

    def damage(self) -> None:
        """A broker finds that its copy is damaged. The leader may be about to take it in."""
        chosen = self.some_partition()
        if chosen is None:
            return
        key, partition = chosen
        broker_id = self.random.choice(partition.replicas)
        if not self.current(broker_id):
            return
        left = [(member, -1) for member in partition.isr if member != broker_id]
        alteration = PartitionAlteration(partition.index, partition.leader_epoch, partition.partition_epoch, left)
        asked = AlterPartition(broker_id, self.hosts[broker_id].epoch, [(key[0], [alteration])])
        self.late.append(asked)
        self._alter(asked)

    def lose_copy(self) -> None:
        """A broker cannot read its copy at all, or can again. Until then nobody may elect it."""
        chosen = self.some_partition()
        if chosen is None:
            return
        key, partition = chosen
        broker_id = self.losses.choice(partition.replicas)
        if not self.current(broker_id):
            return
        is_lost, had_all = (broker_id, key) in self.lost, [*partition.isr, *partition.eligible_leader_replicas]
        own = self.image.brokers[broker_id].log_dirs[0]
        directory = own if is_lost else LOST_DIRECTORY
        self.lost.discard((broker_id, key))
        order = AssignDirectories(broker_id, self.hosts[broker_id].epoch, [(directory, [(key[0], [key[1]])])])
        [(_, [(_, [assigned])])] = self.decide(order)
        if is_lost:
            assert assigned.error == ErrorCode.NONE
            return
        self.lost.add((broker_id, key))
        after = self.image.topics_by_id[key[0]].partitions[key[1]]
        assert after.leader != broker_id, "leads with a copy that nobody can read"
        if assigned.error == ErrorCode.NONE:
            self._began_anew(broker_id, key)
        else:
            assert assigned.error == ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
            assert [*after.isr, *after.eligible_leader_replicas] == had_all, "forgotten who had everything"

    def _began_anew(self, broker_id: int, key: PartitionKey) -> None:
        """Its copy was given up, so it is thrown away."""
        partition = self.image.topics_by_id[key[0]].partitions[key[1]]
        assert partition.leader != broker_id, "leads with a damaged copy"
        if broker_id in partition.replicas:
            self.stored[key].held[broker_id] = min(0, self.stored[key].held[broker_id])
            assert broker_id not in partition.eligible_leader_replicas, "a damaged copy is eligible"
            self._check_trusted(key, partition)

    # --- operators ---

    def create(self) -> None:
        name = self.random.choice("abc")
        configs: list[tuple[str, str | None]] = [("min.insync.replicas", str(self.random.randrange(1, 4)))]
        self.decide(CreateTopics([NewTopic(name, 2, self.random.randrange(1, 4), [], configs)]))

    def grow_or_delete(self) -> None:
        name = self.random.choice("abc")
        if self.random.random() < 0.7:
            self.decide(CreatePartitions([MorePartitions(name, self.random.randrange(2, 5))]))
        elif self.random.random() < 0.3:
            self.decide(DeleteTopics([(name, bytes(16))]))

    def configure(self) -> None:
        resource = self.random.choice([(2, "a"), (2, "b"), (2, "c"), (4, "")])
        change = self.random.choice(
            [
                ("min.insync.replicas", AlterOp.SET, str(self.random.randrange(1, 4))),
                ("min.insync.replicas", AlterOp.DELETE, None),
            ]
        )
        if resource[0] == 2 and self.random.random() < 0.2:
            change = ("unclean.leader.election.enable", AlterOp.SET, self.random.choice(["true", "false", "false"]))
        self.decide(IncrementalAlterConfigs([ConfigChange(*resource, [change])]))

    def drain(self) -> None:
        change = self.random.choice(
            [("skidway.drained", AlterOp.SET, "true"), ("skidway.drained", AlterOp.DELETE, None)]
        )
        self.decide(IncrementalAlterConfigs([ConfigChange(4, str(self.random.choice(BROKERS)), [change])]))

    def elect(self) -> None:
        kind = ElectionType.PREFERRED if self.random.random() < 0.9 else ElectionType.UNCLEAN
        everything = self.random.random() < 0.3
        if everything:
            topics = [(topic.name, [*range(len(topic.partitions))]) for topic in self.image.topics.values()]
        else:
            topics = [(self.random.choice("abc"), [0, 1, 0])]
        self.decide(ElectLeaders(kind, topics, everything))

    def reassign(self) -> None:
        name, index = self.random.choice("abc"), self.random.randrange(3)
        wanted: list[int] | None = self.random.sample(BROKERS, self.random.randrange(1, 4))
        under_way = list(self.controller.index.reassigning)
        if under_way and self.random.random() < 0.5:
            topic_id, index = self.random.choice(under_way)
            name = self.image.topics_by_id[topic_id].name
            wanted = self.random.choice([wanted, None])
        self.decide(AlterReassignments([(name, [(index, wanted)])]))
        told = {(name, each.index) for name, of in self.decide(ListReassignments()) for each in of}
        assert len(told) == len(self.controller.index.reassigning)

    # --- the storm ---

    STEPS: tuple[tuple[Callable[["Storm"], None], int], ...] = (
        (start_broker, 10), (crash, 3), (pause, 2), (stop, 2), (heartbeat, 14), (stale_heartbeat, 1), (suspect, 1),
        (pass_time, 8), (move_controller, 1), (replace_disk, 1), (unregister, 1), (produce, 14), (propose, 20),
        (deliver, 20), (deliver_late, 6), (create, 3), (grow_or_delete, 2), (configure, 3), (elect, 3), (reassign, 8),
    )  # fmt: skip

    DAMAGE: tuple[tuple[Callable[["Storm"], None], int], ...] = (*STEPS, (damage, 8))
    LOSSES: tuple[tuple[Callable[["Storm"], None], int], ...] = (*STEPS, (damage, 4), (lose_copy, 8))
    DRAINS: tuple[tuple[Callable[["Storm"], None], int], ...] = (*STEPS, (drain, 8), (create, 8), (unregister, 4))

    def run(self, steps_of: tuple[tuple[Callable[["Storm"], None], int], ...] = STEPS) -> None:
        steps, weights = zip(*steps_of, strict=True)
        for step in self.random.choices(steps, weights, k=STEPS):
            step(self)
        self.calm()

    def _repair_all(self) -> None:
        lost, self.lost = sorted(self.lost), set()
        for broker_id, key in lost:
            topic = self.image.topics_by_id.get(key[0])
            if topic is not None and broker_id in topic.partitions[key[1]].replicas:
                own = self.image.brokers[broker_id].log_dirs[0]
                order = AssignDirectories(broker_id, self.hosts[broker_id].epoch, [(own, [(key[0], [key[1]])])])
                assert self.decide(order) is not None

    def calm(self) -> None:
        """Everybody comes and stays: then everything has a leader, unless those who could lead lost their disk."""
        for _ in range(2):
            # Once may be spared.
            self.now_ms += SETTINGS.session_timeout_ms
            self.do_what_is_due()
        for broker_id, host in self.hosts.items():
            if not host.up or self.image.brokers[broker_id].in_controlled_shutdown:
                self.register(broker_id)
            host.paused = False
            self.hosts[broker_id].known_offset = self.end_offset - 1
        self._repair_all()
        for _ in range(4):
            for broker_id in BROKERS:
                self.send_heartbeat(broker_id)
        for topic in self.image.topics.values():
            for partition in topic.partitions:
                could = partition.isr or partition.eligible_leader_replicas or partition.last_known_elr
                if partition.leader == NO_LEADER:
                    held = self.stored[topic.id, partition.index].held
                    assert all(held.get(each, WIPED) == WIPED for each in could), "could lead, and does not"


def storm(seed: int, *, damage: bool = False, losses: bool = False, drains: bool = False) -> Storm:
    world = Storm(seed)
    world.run(Storm.DAMAGE if damage else Storm.LOSSES if losses else Storm.DRAINS if drains else Storm.STEPS)
    return world
