"""A coordinator driven by lines of text, for transcripts; the world it runs in is also used by other tests.

    join NAME [fresh] [instance=I] [protocols=P,Q] [type=T] [topics=T,U] [session=MS] [rebalance=MS] [v3|v8]
    sync NAME [MEMBER=PART ...]          an assignment makes sense from the leader only
    beat NAME                            a heartbeat
    leave NAME ... [@INSTANCE ...]
    commit NAME|- TOPIC:PARTITION=OFFSET[/EPOCH][!METADATA] ... [keep=MS] [v8]
    within PID NAME|- TOPIC:PARTITION=OFFSET... [v5]    commit within the transaction of a producer
    end PID commit|abort                 its marker comes
    fetch [TOPIC:PARTITION ...] [stable=yes]
    forget TOPIC:PARTITION ...           delete offsets
    delete, describe, list [STATE ...] [type=T]
    gone TOPIC ...                       the topics were deleted
    renew TOPIC ...                      they were deleted and made again, and nobody said so
    wait MS [NAME ...]                   time passes, ticks included; the named send heartbeats meanwhile
    restart                              a new machine from the log; who waits is told
    refuse                               the next append fails

`group=G` and `generation=N` may follow any of them. Members remember the id and the generation they were told. What
happens is told as `NAME verb: answer`, whenever it is answered, then `+ record` for each record written.
"""

import re
from collections.abc import Sequence
from typing import Any

from durable import check_durable

from skidway.errors import MemberIdRequired, NotCoordinator, ProtocolError, StorageError
from skidway.groups.coordinator import GroupCoordinator
from skidway.groups.operations import (
    CommitOffsets,
    CommitOffsetsInTransaction,
    DeleteGroup,
    DeleteOffsets,
    DescribedGroup,
    DescribeGroup,
    EndOffsetsTransaction,
    FetchedOffset,
    FetchOffsets,
    Heartbeat,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    Leaving,
    ListGroups,
    MetadataChanged,
    OffsetToCommit,
    SyncGroup,
    SyncReply,
    Tick,
)
from skidway.groups.records import GroupRecord, from_batches, to_batch
from skidway.groups.settings import GroupSettings
from skidway.records.control import EndTransaction
from skidway.runtime.log_store import Marker, Producer
from skidway.runtime.replicated import Now, Operation, Replicated
from skidway.wire.registry import codec
from skidway.wire.schema.consumer_protocol import ConsumerProtocolSubscription
from skidway.wire.schema.group_records import GroupMetadataKey, OffsetCommitKey

WALL_AT_START_MS = 1_000_000
HEARTBEAT_EVERY_MS = 3_000


class Counting:
    """Ids are numbered."""

    def __init__(self) -> None:
        self.given = 0

    def randbytes(self, size: int) -> bytes:
        self.given += 1
        return self.given.to_bytes(size, "big")

    def randrange(self, stop: int) -> int:
        return 0


class World:
    """Time, the log, and nothing of the network. Every batch goes through bytes."""

    def __init__(self, settings: GroupSettings) -> None:
        self.now_ms = 0
        self.settings = settings
        self.random = Counting()
        self.topics = SomeTopics()
        self.log = bytearray()
        self.end_offset = self.committed_offset = 0
        self.held_back = False
        self.refusing = False
        self.written: list[GroupRecord] = []
        self.host: Replicated[GroupCoordinator, GroupRecord] = Replicated(self.new_machine, self)

    def new_machine(self) -> GroupCoordinator:
        return GroupCoordinator(self.settings, self.topics, self.random)

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.wall_ms())

    def wall_ms(self) -> int:
        return WALL_AT_START_MS + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms

    def append(self, records: Sequence[GroupRecord], now_ms: int) -> int:
        if self.refusing:
            self.refusing = False
            raise StorageError("disk full")
        self.log += to_batch(records, self.wall_ms())
        self.written += records
        self.end_offset += len(records)
        if not self.held_back:
            self.committed_offset = self.end_offset
        return self.end_offset

    def read_all(self) -> list[GroupRecord]:
        return list(from_batches(self.log))

    def commit(self) -> None:
        self.committed_offset = self.end_offset
        self.host.on_committed(self.end_offset)

    @property
    def machine(self) -> GroupCoordinator:
        return self.host.machine

    def pass_time(self, wait_ms: int) -> None:
        end_ms = self.now_ms + wait_ms
        while self.machine.deadline_ms <= end_ms:
            self.now_ms = max(self.now_ms, self.machine.deadline_ms)
            self.host.submit(Tick(), self.now, lambda reply: None)
        self.now_ms = end_ms


class SomeTopics:
    """Every topic exists; `renewed` ones were deleted and made again."""

    epoch = 0

    def __init__(self) -> None:
        self.renewed: set[str] = set()

    def partition_count(self, name: str) -> int | None:
        return 10

    def id_of(self, name: str) -> bytes | None:
        return (name + "2" if name in self.renewed else name).encode().rjust(16, b"-")

    def name_of(self, topic_id: bytes) -> str | None:
        return topic_id.lstrip(b"-").decode().rstrip("2")

    def names(self) -> list[str]:
        return []


class Transcript:
    def __init__(self, settings: GroupSettings, world: World | None = None) -> None:
        self.world = world or World(settings)
        self.world.pass_time(0)
        self.member_ids: dict[str, str] = {}
        self.generations: dict[str, int] = {}
        self.instances: dict[str, str] = {}
        self.told: list[str] = []

    def run(self, line: str) -> str:
        command, *words = line.split()
        options = dict(word.split("=", 1) for word in words if re.match(r"[a-z]+=", word))
        plain = [word for word in words if word.partition("=")[0] not in options or command == "sync"]
        self.told, self.world.written = [], []
        getattr(self, f"do_{command}")(plain, options)
        lines = [*self.told, *map(self.show_record, self.world.written)]
        return "\n".join(map(readable, lines)) or "nothing"

    def submit(self, told: str, operation: Operation[Any], name: str | None = None) -> None:
        def respond(reply: Any) -> None:
            self.told.append(f"{told}: {self.show(reply, name)}")

        self.world.host.submit(operation, self.world.now, respond)

    def show(self, reply: Any, name: str | None) -> str:
        match reply:
            case MemberIdRequired():
                assert name is not None
                self.member_ids[name] = reply.member_id
                return f"MEMBER_ID_REQUIRED {reply.member_id}"
            case ProtocolError():
                return reply.code.name
            case JoinReply():
                assert name is not None
                self.member_ids[name], self.generations[name] = reply.member_id, reply.generation
                members = " ".join(each.member_id for each in reply.members)
                skip = " skip the assignment" if reply.skip_assignment else ""
                leader = f"leads {members}" if reply.members else f"follows {reply.leader or 'nobody'}"
                protocol = f"{reply.protocol_type}/{reply.protocol_name}"
                return f"{reply.member_id} generation {reply.generation} {protocol} {leader}{skip}"
            case SyncReply():
                return f"{reply.protocol_type}/{reply.protocol_name} {bytes(reply.assignment).decode() or 'nothing'}"
            case DescribedGroup():
                listed = [
                    f"{each.member_id} {each.client_host} {bytes(each.assignment).decode() or 'nothing'}"
                    for each in reply.members
                ]
                return " | ".join([f"{reply.state} {reply.protocol_type}/{reply.protocol_name}", *listed])
            case [FetchedOffset(), *_]:
                return " ".join(f"{each.topic}:{each.partition}={show_offset(each)}" for each in reply)
            case None | []:
                return "ok" if reply is None else "none"
            case list():
                return " ".join(getattr(each, "name", None) or f"{each.group_id}/{each.state}" for each in reply)
        raise ValueError(reply)

    def show_record(self, record: GroupRecord) -> str:
        return show_record(record)

    def encode_assignment(self, text: str) -> bytes:
        return text.encode()

    def generation(self, name: str, options: dict[str, str]) -> int:
        return int(options.get("generation", self.generations.get(name, -1)))

    def do_join(self, words: list[str], options: dict[str, str]) -> None:
        name, *flags = words
        if "fresh" in flags:
            self.member_ids.pop(name, None)
        if "instance" in options:
            self.instances[name] = options["instance"]
        protocols = options.get("protocols", "range").split(",")
        metadata = subscription(options.get("topics", "t").split(","))
        operation = JoinGroup(
            options.get("group", "g"),
            self.member_ids.get(name, ""),
            self.instances.get(name),
            name,
            "host",
            int(options.get("session", 10_000)),
            int(options.get("rebalance", 60_000)),
            options.get("type", "consumer"),
            [(protocol, metadata) for protocol in protocols if protocol],
            "v3" not in flags,
            "v8" not in flags,
        )
        self.submit(f"{name} join", operation, name)

    def do_sync(self, words: list[str], options: dict[str, str]) -> None:
        name, *parts = words
        assignments: list[tuple[str, Any]] = []
        for part in parts:
            who, _, what = part.partition("=")
            if who in self.member_ids:
                assignments.append((self.member_ids[who], self.encode_assignment(what)))
        operation = SyncGroup(
            options.get("group", "g"),
            self.member_ids.get(name, "nobody"),
            self.instances.get(name),
            self.generation(name, options),
            options.get("type"),
            options.get("protocol"),
            assignments,
        )
        self.submit(f"{name} sync", operation)

    def do_beat(self, words: list[str], options: dict[str, str]) -> None:
        (name,) = words
        member_id, generation = self.member_ids.get(name, "nobody"), self.generation(name, options)
        operation = Heartbeat(options.get("group", "g"), member_id, self.instances.get(name), generation)
        self.submit(f"{name} beat", operation)

    def do_leave(self, words: list[str], options: dict[str, str]) -> None:
        leaving = [
            Leaving("", name[1:]) if name[0] == "@" else Leaving(self.member_ids.get(name, "nobody")) for name in words
        ]
        self.submit("leave", LeaveGroup(options.get("group", "g"), leaving))

    def do_commit(self, words: list[str], options: dict[str, str]) -> None:
        name, *rest = words
        offsets = [offset_to_commit(word) for word in rest if ":" in word]
        operation = CommitOffsets(
            options.get("group", "g"),
            offsets,
            self.member_ids.get(name, ""),
            self.instances.get(name),
            self.generation(name, options),
            int(options.get("keep", -1)),
            8 if "v8" in rest else 9,
        )
        self.submit(f"{name} commit", operation)

    def do_within(self, words: list[str], options: dict[str, str]) -> None:
        producer_id, name, *rest = words
        operation = CommitOffsetsInTransaction(
            options.get("group", "g"),
            [offset_to_commit(word) for word in rest if ":" in word],
            Producer(int(producer_id), 0),
            self.member_ids.get(name, ""),
            self.instances.get(name),
            self.generation(name, options),
            5 if "v5" in rest else 6,
        )
        self.submit(f"{name} commit", operation)

    def do_end(self, words: list[str], options: dict[str, str]) -> None:
        producer_id, how = words
        marker = Marker(Producer(int(producer_id), 1), EndTransaction(how == "commit", 0))
        self.submit("end", EndOffsetsTransaction(marker))

    def do_fetch(self, words: list[str], options: dict[str, str]) -> None:
        asked = [partition(word) for word in words] or None
        self.submit("fetch", FetchOffsets(options.get("group", "g"), asked, require_stable="stable" in options))

    def do_forget(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("forget", DeleteOffsets(options.get("group", "g"), [partition(word) for word in words]))

    def do_delete(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("delete", DeleteGroup(options.get("group", "g")))

    def do_describe(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("describe", DescribeGroup(options.get("group", "g")))

    def do_list(self, words: list[str], options: dict[str, str]) -> None:
        types = [options["type"]] if "type" in options else []
        self.submit("list", ListGroups(words, types))

    def do_gone(self, words: list[str], options: dict[str, str]) -> None:
        self.submit("gone", MetadataChanged(words))

    def do_renew(self, words: list[str], options: dict[str, str]) -> None:
        self.world.topics.renewed.update(words)

    def do_wait(self, words: list[str], options: dict[str, str]) -> None:
        left_ms = int(words[0])
        while left_ms > 0:
            step_ms = min(left_ms, HEARTBEAT_EVERY_MS if words[1:] else left_ms)
            self.world.pass_time(step_ms)
            left_ms -= step_ms
            for name in words[1:]:
                told = self.told
                self.told = []
                self.do_beat([name], options)
                self.told = told

    def do_refuse(self, words: list[str], options: dict[str, str]) -> None:
        self.world.refusing = True

    def do_restart(self, words: list[str], options: dict[str, str]) -> None:
        lost = self.world.machine
        self.world.host.on_lost(NotCoordinator())
        check_durable(lost, self.world.machine)
        self.world.pass_time(0)


def subscription(topics: list[str]) -> bytes:
    parts: list[Any] = [b"\0\0"]
    codec(ConsumerProtocolSubscription).encoder(0)(ConsumerProtocolSubscription(topics=topics), parts)
    return b"".join(parts)


def partition(word: str) -> tuple[str, int]:
    topic, _, index = word.partition(":")
    return topic, int(index)


def offset_to_commit(word: str) -> OffsetToCommit:
    where, _, what = word.partition("=")
    offset, _, metadata = what.partition("!")
    position, _, epoch = offset.partition("/")
    return OffsetToCommit(*partition(where), int(position), int(epoch or -1), metadata)


def show_offset(offset: FetchedOffset) -> str:
    error = f" {offset.error.name}" if offset.error else ""
    epoch = f"/{offset.leader_epoch}" if offset.leader_epoch != -1 else ""
    return f"{offset.offset}{epoch}{'!' if offset.metadata else ''}{offset.metadata}{error}"


def show_record(record: GroupRecord) -> str:
    key, value = record.key, record.value
    if isinstance(key, Marker):
        return f"+ producer {key.producer.id}: {'commit' if key.end.committed else 'abort'}"
    if isinstance(key, OffsetCommitKey):
        what = f"offset {key.group} {key.topic}:{key.partition}"
        if record.producer is not None:
            what = f"producer {record.producer.id}: {what}"
        return f"+ {what} gone" if value is None else f"+ {what} = {getattr(value, 'offset')}"  # noqa: B009
    assert isinstance(key, GroupMetadataKey)
    if value is None:
        return f"+ group {key.group} gone"
    told: Any = value
    members = " ".join(f"{each.member_id}={bytes(each.assignment).decode() or 'nothing'}" for each in told.members)
    protocol = f"{told.protocol_type}/{told.protocol}" if told.protocol_type else "no protocol"
    return f"+ group {key.group} generation {told.generation} {protocol} leader {told.leader}: {members or 'empty'}"


def readable(text: str) -> str:
    return re.sub(r"-(?:00000000-0000-4000-8000-0*|0{24,})([0-9a-f]+)", r"#\1", text)
