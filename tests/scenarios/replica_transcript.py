"""A controller driven by lines of text, for transcripts about replicas: who leads, who is in sync, where they are.

    start N ... [clean] [disk=D]           brokers register, and send the heartbeat that unfences them
    register N [clean] [disk=D]            only that; a broker that is not `clean` lost what its stop left on the disk
    beat N [stop] [fence] [offset=O]       a heartbeat, as of a broker that follows the metadata to its end or to O
    silent N ...                           these are not heard of for a session timeout, the others are
    wait MS                                time passes, and what is due by itself is decided; nobody is heard of
    create TOPIC A.B.C [KEY=VALUE ...]     one partition with these replicas
    set TOPIC KEY=VALUE
    isr TOPIC A.B.C [by=N] [broker-epoch=E] [leader-epoch=E] [epoch=E] [run=N:E] [recovering]
                                           AlterPartition, with the present epochs where none are given
    elect preferred|unclean TOPIC
    balance                                what the controller does from time to time
    move TOPIC A.B.C [keep-size]           a reassignment
    cancel TOPIC
    moving [TOPIC]                         reassignments under way
    lost N TOPIC, whole N TOPIC            the broker says that it lost its copy, or that the copy is where it was
    show TOPIC
    elsewhere                              another controller, which has read the log and nothing else

Each command tells the reply, then `+ record` for each record written, with what the record names: a leader that is
named begins a leader epoch, even if it led before.
"""

from typing import Any

from controller_world import Cluster

from skidway.errors import ErrorCode, ProtocolError
from skidway.metadata.image import LOST_DIRECTORY, NO_CHANGE, NO_LEADER
from skidway.metadata.operations import (
    AlterOp,
    AlterPartition,
    AlterReassignments,
    AssignDirectories,
    BalanceLeaders,
    ConfigChange,
    CreateTopics,
    ElectionType,
    ElectLeaders,
    Heartbeat,
    IncrementalAlterConfigs,
    ListReassignments,
    NewTopic,
    PartitionAlteration,
    PartitionAltered,
)
from skidway.runtime.replicated import Operation
from skidway.wire.message import ZERO_UUID, Message
from skidway.wire.schema.metadata_records import (
    BrokerRegistrationChangeRecord,
    ConfigRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)

TOPIC_CONFIG = 2
RECOVERY = {0: "recovered", 1: "recovering"}


class Transcript:
    def __init__(self) -> None:
        self.cluster = Cluster()
        self.told: list[str] = []

    def run(self, line: str) -> str:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        flags = {word for word in words if word in ("clean", "stop", "fence", "recovering", "keep-size")}
        words = [word for word in words if "=" not in word and word not in flags]
        self.told, before = [], len(self.cluster.log)
        try:
            getattr(self, f"do_{command.replace('-', '_')}")(words, options, flags)
        except ProtocolError as refusal:
            self.told.append(f"refused: {refusal.code.name} {refusal}")
        return "\n".join([*self.told, *map(self.record, self.cluster.log[before:])]) or "nothing"

    def decide(self, operation: Operation[Any]) -> Any:
        return self.cluster.decide(operation)

    # --- brokers ---

    def do_start(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        for word in words:
            self.do_register([word], options, flags)
            assert not self.cluster.heartbeat(int(word)).is_fenced

    def do_register(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        broker_id = int(words[0])
        self.cluster.register(broker_id, clean="clean" in flags, disk=int(options.get("disk", 1)))
        self.told.append(f"broker {broker_id}: epoch {self.cluster.epochs[broker_id]}")

    def do_beat(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        broker_id, offset = int(words[0]), options.get("offset")
        reply = self.cluster.heartbeat(
            broker_id, None if offset is None else int(offset), fence="fence" in flags, stop="stop" in flags
        )
        self.told.append(f"broker {broker_id}: {heard(reply)}")

    def do_silent(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        self.cluster.silence(*map(int, words))

    def do_wait(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        self.cluster.now_ms += int(words[0])
        self.cluster.do_what_is_due()

    def do_elsewhere(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        before = self.cluster.controller.image
        self.cluster.elsewhere()
        assert self.cluster.controller.image == before
        self.told.append("same image")

    # --- partitions ---

    def do_create(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        name, replicas = words
        configs: list[tuple[str, str | None]] = list(options.items())
        [created] = self.decide(CreateTopics([NewTopic(name, assignments=[(0, numbers(replicas))], configs=configs)]))
        assert not created.error, created

    def do_set(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        changes: list[tuple[str, int, str | None]] = [(key, AlterOp.SET, value) for key, value in options.items()]
        [altered] = self.decide(IncrementalAlterConfigs([ConfigChange(TOPIC_CONFIG, words[0], changes)]))
        assert not altered.error, altered

    def do_isr(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        name, members = words[0], numbers(words[1]) if len(words) > 1 else []
        topic, partition = self.cluster.controller.image.topics[name], self.cluster.partition(name)
        by = int(options.get("by", partition.leader))
        runs = dict(self.cluster.epochs)
        if "run" in options:
            member, _, epoch = options["run"].partition(":")
            runs[int(member)] = int(epoch)
        alteration = PartitionAlteration(
            0,
            int(options.get("leader-epoch", partition.leader_epoch)),
            int(options.get("epoch", partition.partition_epoch)),
            [(member, runs.get(member, -1)) for member in members],
            int("recovering" in flags),
        )
        broker_epoch = int(options.get("broker-epoch", self.cluster.epochs.get(by, -1)))
        [(_, [reply])] = self.decide(AlterPartition(by, broker_epoch, [(topic.id, [alteration])]))
        self.told.append(f"{name}: {altered_to(reply)}")

    def do_elect(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        kind = ElectionType[words[0].upper()]
        [(name, [reply])] = self.decide(ElectLeaders(kind, [(words[1], [0])]))
        self.told.append(f"{name}: {outcome(reply)}")

    def do_balance(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        self.decide(BalanceLeaders())

    def do_move(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        self._reassign(words[0], numbers(words[1]) if len(words) > 1 else [], resize="keep-size" not in flags)

    def do_cancel(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        self._reassign(words[0], None)

    def _reassign(self, name: str, wanted: list[int] | None, *, resize: bool = True) -> None:
        [(_, [reply])] = self.decide(AlterReassignments([(name, [(0, wanted)])], resize))
        self.told.append(f"{name}: {outcome(reply)}")

    def do_moving(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        asked = [(name, [0]) for name in words] or None
        for name, partitions in self.decide(ListReassignments(asked)):
            for each in partitions:
                self.told.append(f"{name}: replicas {each.replicas} adding {each.adding} removing {each.removing}")

    def do_lost(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        self._assign(int(words[0]), words[1], LOST_DIRECTORY)

    def do_whole(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        broker = self.cluster.controller.image.brokers[int(words[0])]
        self._assign(broker.id, words[1], broker.log_dirs[0])

    def _assign(self, broker_id: int, name: str, directory: bytes) -> None:
        topic_id = self.cluster.controller.image.topics[name].id
        operation = AssignDirectories(broker_id, self.cluster.epochs[broker_id], [(directory, [(topic_id, [0])])])
        [(_, [(_, [reply])])] = self.decide(operation)
        self.told.append(f"{name}: {reply.error.name if reply.error else 'ok'}")

    def do_show(self, words: list[str], options: dict[str, str], flags: set[str]) -> None:
        partition = self.cluster.partition(words[0])
        parts = [leader_name(partition.leader), f"isr {partition.isr}", f"replicas {partition.replicas}"]
        parts += [f"eligible {partition.eligible_leader_replicas}"] if partition.eligible_leader_replicas else []
        parts += [f"last leader {partition.last_known_elr}"] if partition.last_known_elr else []
        parts += ["recovering"] if partition.leader_recovery_state else []
        lost = [
            broker_id
            for broker_id, directory in zip(partition.replicas, partition.directories, strict=True)
            if directory == LOST_DIRECTORY
        ]
        parts += [f"lost {lost}"] if lost else []
        epochs = f"leader epoch {partition.leader_epoch}, epoch {partition.partition_epoch}"
        self.told.append(f"{', '.join(parts)} ({epochs})")

    # --- records ---

    def record(self, record: Message) -> str:
        match record:
            case RegisterBrokerRecord():
                return f"+ broker {record.broker_id} epoch {record.broker_epoch}{' fenced' if record.fenced else ''}"
            case BrokerRegistrationChangeRecord():
                fenced = {1: " fenced", -1: " unfenced", 0: ""}[record.fenced]
                return f"+ broker {record.broker_id}{fenced}{' stopping' if record.in_controlled_shutdown else ''}"
            case TopicRecord():
                return f"+ topic {record.name}"
            case ConfigRecord():
                return f"+ config {record.resource_name} {record.name}={record.value}"
            case PartitionRecord():
                return f"+ partition {leader_name(record.leader)}, isr {record.isr}, replicas {record.replicas}"
            case PartitionChangeRecord():
                return self.change(record)
        raise AssertionError(record)

    def change(self, record: PartitionChangeRecord) -> str:
        name = self.cluster.controller.image.topics_by_id[record.topic_id].name
        parts = [] if record.leader == NO_CHANGE else [leader_name(record.leader)]
        named = {
            "isr": record.isr,
            "eligible": record.eligible_leader_replicas,
            "last leader": record.last_known_elr,
            "replicas": record.replicas,
            "adding": record.adding_replicas,
            "removing": record.removing_replicas,
        }
        parts += [f"{what} {ids}" for what, ids in named.items() if ids is not None]
        parts += [] if record.leader_recovery_state < 0 else [RECOVERY[record.leader_recovery_state]]
        if record.directories is not None:
            places = {ZERO_UUID: "anywhere", LOST_DIRECTORY: "lost"}
            parts.append(f"on {' '.join(places.get(each, f'{each[0]}/{each[1]}') for each in record.directories)}")
        return f"+ {name} {', '.join(parts) or 'touched'}"


def numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(".")]


def leader_name(leader: int) -> str:
    return "no leader" if leader == NO_LEADER else f"leader {leader}"


def heard(reply: Heartbeat) -> str:
    caught_up = "caught up" if reply.is_caught_up else "behind"
    stop = ", may stop" if reply.should_shut_down else ""
    return f"{caught_up}, {'fenced' if reply.is_fenced else 'unfenced'}{stop}"


def altered_to(reply: PartitionAltered) -> str:
    if reply.error:
        return reply.error.name
    epochs = f"leader epoch {reply.leader_epoch}, epoch {reply.partition_epoch}"
    return f"{leader_name(reply.leader)}, isr {reply.isr}, {RECOVERY[reply.recovery_state]} ({epochs})"


def outcome(reply: Any) -> str:
    error: ErrorCode = reply.error
    return f"{error.name} {reply.message}" if error else "ok"
