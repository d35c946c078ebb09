"""A coordinator of groups of the consumer protocol (KIP-848) driven by lines of text, for transcripts.

    topic NAME COUNT|gone            a topic with so many partitions; it may exist already
    consume NAME [topics=T,U] [regex=R] [instance=I] [assignor=A] [rebalance=MS]
                                     a consumer joins, or joins again, with its name as its member id
    beat NAME [owns=T-0,T-1|owns=-] [topics=T,U] [regex=R] [epoch=N]
                                     a heartbeat; `owns` says which partitions the member has, `epoch` which epoch it
                                     believes to be in, if not the one it was told
    ack NAME                         a heartbeat that says: I have what I was told, and nothing else
    leave NAME [for-a-while]         a static member may leave for a while, and keeps its partitions
    describe

The other commands are those of `group_transcript`: `join`, `sync`, `beat` and `leave` of a name that joined with `join`
are of the classic protocol (its assignments are written as `sync a a=t-0,t-1`); `commit`, `wait`, `restart`.

An answer without partitions leaves the member with those it was told before. Records: `group` has the group's epoch,
`target` what a member should have, `current` what it may have now: its epoch, and its state as in the reconciliation
(stable, unrevoked: has to give something up first; unreleased: waits for what others have not given up).
"""

from typing import Any

from consumer_stories import Cluster, named, numbered, read, written
from durable import durable
from group_transcript import Transcript as GroupTranscript
from group_transcript import World as GroupWorld
from group_transcript import show_record

from skidway.errors import NotCoordinator
from skidway.groups.consumer.group import ConsumerGroup
from skidway.groups.consumer.operations import (
    JOINING,
    LEAVING,
    LEAVING_FOR_A_WHILE,
    ConsumerDescribe,
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from skidway.groups.consumer.protocol import ConsumerProtocol
from skidway.groups.consumer.reconciliation import MemberState
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.operations import SyncReply
from skidway.groups.records import GroupRecord
from skidway.groups.settings import GroupSettings
from skidway.wire.schema.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMetadataKey,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
)

GROUP = "g"


class World(GroupWorld):
    """The same, with topics that come and go, and the consumer protocol."""

    def __init__(self, settings: GroupSettings) -> None:
        self.cluster = Cluster()
        super().__init__(settings)

    def new_machine(self) -> GroupCoordinator:
        return GroupCoordinator(self.settings, self.cluster, self.random, ConsumerProtocol)


class Transcript(GroupTranscript):
    def __init__(self, settings: GroupSettings) -> None:
        world = World(settings)
        super().__init__(settings, world)
        self.cluster = world.cluster
        self.epochs: dict[str, int] = {}
        """Of the consumers, by name, as they were told."""
        self.owned: dict[str, list[str]] = {}

    # --- commands ---

    def do_topic(self, words: list[str], options: dict[str, str]) -> None:
        name, size = words
        self.cluster.grow(name, None if size == "gone" else int(size))

    def do_consume(self, words: list[str], options: dict[str, str]) -> None:
        (name,) = words
        self.epochs[name] = JOINING
        if "instance" in options:
            self.instances[name] = options["instance"]
        self.heartbeat(name, "consume", {"topics": "", **options, "rebalance": options.get("rebalance", "60000")}, [])

    def do_beat(self, words: list[str], options: dict[str, str]) -> None:
        (name,) = words
        if name not in self.epochs:
            super().do_beat(words, options)
            return
        owns = options.get("owns")
        owned = None if owns is None else [] if owns == "-" else owns.split(",")
        self.heartbeat(name, "beat", options, owned)

    def do_ack(self, words: list[str], options: dict[str, str]) -> None:
        (name,) = words
        self.heartbeat(name, "ack", options, self.owned.get(name, []))

    def do_leave(self, words: list[str], options: dict[str, str]) -> None:
        name = words[0]
        if name not in self.epochs:
            super().do_leave(words, options)
            return
        epoch = LEAVING_FOR_A_WHILE if "for-a-while" in words else LEAVING
        self.heartbeat(name, "leave", {"epoch": str(epoch)}, None)

    def do_describe(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("describe", ConsumerDescribe(GROUP))

    def do_restart(self, words: list[str], options: dict[str, str]) -> None:
        before = self.groups()
        self.world.host.on_lost(NotCoordinator())
        assert self.groups() == before, "the log does not say what the coordinator knew"
        self.world.pass_time(0)

    def heartbeat(self, name: str, verb: str, options: dict[str, str], owned: list[str] | None) -> None:
        topics = options.get("topics")
        call = ConsumerHeartbeat(
            GROUP,
            name,
            int(options.get("epoch", self.epochs[name])),
            self.instances.get(name),
            None,
            int(options.get("rebalance", -1)),
            "client",
            "host",
            None if topics is None else [each for each in topics.split(",") if each],
            options.get("regex"),
            options.get("assignor"),
            None if owned is None else numbered(owned),
        )
        self.submit(f"{name} {verb}", call, name)

    def groups(self) -> dict[str, Any]:
        found = self.world.machine.groups.items()
        return {group_id: durable(group) for group_id, group in found if isinstance(group, ConsumerGroup)}

    # --- answers and records ---

    def encode_assignment(self, text: str) -> bytes:
        return written(text.split(","))

    def show(self, reply: Any, name: str | None) -> str:
        match reply:
            case ConsumerHeartbeatReply():
                assert name is not None
                self.epochs[name] = max(reply.member_epoch, JOINING)
                self.member_ids[name], self.generations[name] = reply.member_id, reply.member_epoch
                if reply.assignment is None:
                    return f"epoch {reply.member_epoch}"
                self.owned[name] = named(reply.assignment)
                return f"epoch {reply.member_epoch}, {' '.join(self.owned[name]) or 'no partitions'}"
            case SyncReply():
                return " ".join(read(reply.assignment)) or "no partitions"
            case DescribedConsumerGroup():
                members = [
                    f"{each.member_id} in epoch {each.member_epoch} has {show_named(each.assignment)}, target "
                    f"{show_named(each.target_assignment)}{' (classic)' if each.is_classic else ''}"
                    for each in reply.members
                ]
                return "\n  ".join([f"{reply.state}, epoch {reply.group_epoch}, {reply.assignor}", *members])
        return super().show(reply, name)

    def show_record(self, record: GroupRecord) -> str:
        return f"+ {show(record)}"


def show(record: GroupRecord) -> str:
    key: Any = record.key
    what = show_key(key)
    if what is None:
        return show_record(record).removeprefix("+ ")
    if record.value is None:
        return f"{what} gone"
    return f"{what} {show_value(key, record.value)}"


def show_key(key: Any) -> str | None:
    match key:
        case ConsumerGroupMetadataKey():
            return "group"
        case ConsumerGroupMemberMetadataKey():
            return f"member {key.member_id}"
        case ConsumerGroupTargetAssignmentMetadataKey():
            return "target"
        case ConsumerGroupTargetAssignmentMemberKey():
            return f"target {key.member_id}"
        case ConsumerGroupCurrentMemberAssignmentKey():
            return f"current {key.member_id}"
        case ConsumerGroupRegularExpressionKey():
            return f"regex {key.regular_expression}"
        case GroupMetadataKey():
            return "classic group"
    return None


def show_value(key: Any, value: Any) -> str:
    match key:
        case ConsumerGroupMetadataKey():
            return f"epoch {value.epoch}"
        case ConsumerGroupMemberMetadataKey():
            instance = f", instance {value.instance_id}" if value.instance_id is not None else ""
            regex = f", regex {value.subscribed_topic_regex}" if value.subscribed_topic_regex else ""
            classic = ", classic" if value.classic_member_metadata is not None else ""
            return f"wants {' '.join(value.subscribed_topic_names) or 'no topics'}{regex}{instance}{classic}"
        case ConsumerGroupTargetAssignmentMetadataKey():
            return f"epoch {value.assignment_epoch}"
        case ConsumerGroupTargetAssignmentMemberKey():
            return show_partitions(value.topic_partitions)
        case ConsumerGroupCurrentMemberAssignmentKey():
            revoking = value.partitions_pending_revocation
            gives = f", to give up {show_partitions(revoking)}" if revoking else ""
            state = MemberState(value.state).name.lower()
            return f"epoch {value.member_epoch}, {state}: {show_partitions(value.assigned_partitions)}{gives}"
        case ConsumerGroupRegularExpressionKey():
            return f"takes {' '.join(value.topics) or 'no topics'}"
    members = [f"{each.member_id}={','.join(read(each.assignment)) or 'nothing'}" for each in value.members]
    return f"generation {value.generation}: {' '.join(members) or 'empty'}"


def show_partitions(topics: Any) -> str:
    return " ".join(named([(each.topic_id, each.partitions) for each in topics])) or "no partitions"


def show_named(partitions: list[tuple[bytes, str, list[int]]]) -> str:
    return " ".join(named([(topic_id, numbers) for topic_id, _, numbers in partitions])) or "no partitions"


def begin(settings: dict[str, str]) -> Transcript:
    numbers: dict[str, Any] = {name: int(value) if value.isdigit() else value for name, value in settings.items()}
    return Transcript(GroupSettings(**numbers))
