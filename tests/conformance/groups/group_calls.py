"""Group calls over raw connections: a classic member step by step, a KIP-848 member, commits and committed offsets."""

import struct
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from raw import Body, Connection

from waiting import eventually

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
REBALANCE_IN_PROGRESS = 27
INVALID_REQUEST = 42
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
FENCED_INSTANCE_ID = 82
GROUP_SUBSCRIBED_TO_TOPIC = 86
UNKNOWN_TOPIC_ID = 100
FENCED_MEMBER_EPOCH = 110
UNRELEASED_INSTANCE_ID = 111
UNSUPPORTED_ASSIGNOR = 112
STALE_MEMBER_EPOCH = 113
INVALID_REGULAR_EXPRESSION = 128

JOIN_VERSION = 9
SESSION_MS = 30_000
LEAVE_EPOCH = -1
STATIC_LEAVE_EPOCH = -2

Protocols = Iterable[tuple[str, bytes]]


def subscription(topics: Iterable[str], version: int = 0, user_data: bytes | None = None) -> bytes:
    """What clients send as the metadata of the protocol type "consumer"."""
    names = [name.encode() for name in topics]
    listed = b"".join(struct.pack(">h", len(name)) + name for name in names)
    tail = struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data
    return struct.pack(">hi", version, len(names)) + listed + tail


def assignment(partitions: Mapping[str, Iterable[int]], version: int = 0, user_data: bytes | None = None) -> bytes:
    out = struct.pack(">hi", version, len(partitions))
    for name, numbers in partitions.items():
        listed = list(numbers)
        out += struct.pack(">h", len(name)) + name.encode()
        out += struct.pack(f">i{len(listed)}i", len(listed), *listed)
    return out + (struct.pack(">i", -1) if user_data is None else struct.pack(">i", len(user_data)) + user_data)


METADATA = subscription(["t"])
OTHER_METADATA = subscription(["t", "u"])


def join_body(group: str, member_id: str = "", *, instance: str | None = None, **more: Any) -> Body:
    protocols: Protocols = more.pop("protocols", [("range", METADATA)])
    body = {
        "group_id": group,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": name, "metadata": metadata} for name, metadata in protocols],
        **more,
    }
    return body if instance is None else {**body, "group_instance_id": instance}


class ClassicMember:
    """One member on a connection of its own, because a join waits for the others and holds up what comes behind it."""

    def __init__(self, bootstrap: str, group: str, *, version: int = JOIN_VERSION, **options: Any) -> None:
        self.wire = Connection(bootstrap)
        self.bootstrap = bootstrap
        self.group = group
        self.version = version
        self.options = options
        self.instance: str | None = options.get("instance")
        self.id = ""
        self.generation = -1
        self.leads = False
        self.protocol = ("", "")
        self.members: list[Body] = []

    def __enter__(self) -> "ClassicMember":
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.socket.close()

    def ask_to_join(self) -> None:
        """Sends the join. A new dynamic member is first given its id, which takes a round trip of its own from v4."""
        if self.version >= 4 and not self.id and self.instance is None:
            answer = self.wire.call("JoinGroup", self.version, join_body(self.group, **self.options))
            assert answer["error_code"] == MEMBER_ID_REQUIRED, answer
            self.id = answer["member_id"]
        self.wire.send("JoinGroup", self.version, join_body(self.group, self.id, **self.options))

    def joined(self) -> Body:
        _, answer = self.wire.receive("JoinGroup", self.version)
        if answer["error_code"] == NONE:
            self.id = answer["member_id"]
            self.generation = answer["generation_id"]
            self.leads = answer["leader"] == self.id
            self.members = answer["members"]
            self.protocol = (self.options.get("protocol_type", "consumer"), answer["protocol_name"])
        return answer

    def join(self) -> Body:
        self.ask_to_join()
        return self.joined()

    def _me(self) -> Body:
        me: Body = {"group_id": self.group, "generation_id": self.generation, "member_id": self.id}
        return me if self.instance is None else {**me, "group_instance_id": self.instance}

    def ask_to_sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5, **more: Any) -> None:
        made = [{"member_id": id_, "assignment": data} for id_, data in (assignments or {}).items()]
        protocol = {"protocol_type": self.protocol[0], "protocol_name": self.protocol[1]} if version >= 5 else {}
        self.wire.send("SyncGroup", version, {**self._me(), "assignments": made, **protocol, **more})

    def synced(self, version: int = 5) -> Body:
        return self.wire.receive("SyncGroup", version)[1]

    def sync(self, assignments: Mapping[str, bytes] | None = None, version: int = 5, **more: Any) -> Body:
        self.ask_to_sync(assignments, version, **more)
        return self.synced(version)

    def heartbeat(self, version: int = 4, **more: Any) -> int:
        return int(self.wire.call("Heartbeat", version, {**self._me(), **more})["error_code"])

    def leave(self, version: int = 5) -> Body:
        if version < 3:
            return self.wire.call("LeaveGroup", version, {"group_id": self.group, "member_id": self.id})
        me = {"member_id": self.id, "group_instance_id": self.instance}
        return self.wire.call("LeaveGroup", version, {"group_id": self.group, "members": [me]})

    def commit(self, topic: str, offsets: Mapping[int, int], version: int = 9, **more: Any) -> dict[int, int]:
        me = {"generation_id_or_member_epoch": self.generation, "member_id": self.id}
        return commit(self.wire, self.group, topic, offsets, version=version, **{**me, **more})


NewMember = Callable[..., ClassicMember]
"""Makes a member of a test's group; options are those of ClassicMember."""


def stable_group(members: list[ClassicMember]) -> None:
    """Joins and syncs them all: afterwards they share a generation, and the n-th has b"n" for its assignment."""
    first, *others = members
    assert first.join()["error_code"] == NONE
    if others:
        first.sync()
        for member in others:
            member.ask_to_join()
        await_members(first, len(members))
        rejoin(members, asked=others)
    (leader,) = [member for member in members if member.leads]
    made = {member.id: b"%d" % index for index, member in enumerate(members)}
    leader.ask_to_sync(made)
    for member in members:
        if member is not leader:
            member.ask_to_sync()
    for member in members:
        answer = member.synced()
        assert (answer["error_code"], answer["assignment"]) == (NONE, made[member.id]), answer


def next_generation(members: list[ClassicMember]) -> None:
    """The leader asks, the others see it in a heartbeat and follow."""
    (leader,) = [member for member in members if member.leads]
    leader.ask_to_join()
    for member in members:
        if member is not leader:
            eventually(lambda: member.heartbeat() == REBALANCE_IN_PROGRESS)  # noqa: B023
    rejoin(members, asked=[leader])


def await_members(looking: ClassicMember, count: int) -> None:
    """Connections overtake each other: the last to join must not until all the others are seen waiting."""
    with Connection(looking.bootstrap) as wire:
        eventually(lambda: len(describe(wire, looking.group)["members"]) == count)


def rejoin(members: list[ClassicMember], asked: list[ClassicMember]) -> None:
    """Those who have not asked do, and all get the same new generation."""
    for member in members:
        if member not in asked:
            member.ask_to_join()
    for member in members:
        assert member.joined()["error_code"] == NONE
    assert len({member.generation for member in members}) == 1


# ------------------------------------------------------------------------------------------------------ offsets


def commit(
    wire: Connection,
    group: str,
    topic: str | bytes,
    offsets: Mapping[int, int],
    *,
    version: int = 9,
    metadata: str | None = "",
    leader_epoch: int = -1,
    **more: Any,
) -> dict[int, int]:
    """Partition to error code. Without member and generation: as an admin tool, or a consumer without a group, does."""
    partitions = [
        {
            "partition_index": partition,
            "committed_offset": offset,
            "committed_metadata": metadata,
            **({"committed_leader_epoch": leader_epoch} if version >= 6 else {}),
        }
        for partition, offset in offsets.items()
    ]
    named = {"topic_id": topic} if isinstance(topic, bytes) else {"name": topic}
    body = {"group_id": group, "topics": [{**named, "partitions": partitions}], **more}
    ((answered,),) = [wire.call("OffsetCommit", version, body)["topics"]]
    return {one["partition_index"]: one["error_code"] for one in answered["partitions"]}


def committed(wire: Connection, group: str, topic: str, partitions: Iterable[int], version: int = 8) -> dict[int, int]:
    """Partition to offset, -1 where nothing is committed."""
    asked = {"group_id": group, "topics": [{"name": topic, "partition_indexes": list(partitions)}]}
    (answer,) = wire.call("OffsetFetch", version, {"groups": [asked]})["groups"]
    assert answer["error_code"] == NONE, answer
    (found,) = answer["topics"]
    assert all(one["error_code"] == NONE for one in found["partitions"]), found
    return {one["partition_index"]: one["committed_offset"] for one in found["partitions"]}


# ------------------------------------------------------------------------------------------------------ looking


def describe(wire: Connection, group: str, version: int = 6) -> Body:
    (found,) = wire.call("DescribeGroups", version, {"groups": [group]})["groups"]
    return dict(found)


def describe_consumer(wire: Connection, group: str, version: int = 1) -> Body:
    (found,) = wire.call("ConsumerGroupDescribe", version, {"group_ids": [group]})["groups"]
    return dict(found)


def listed(wire: Connection, group: str, version: int = 5, **filters: Any) -> Any:
    """None for a group that is not listed."""
    answer = wire.call("ListGroups", version, filters)
    assert answer["error_code"] == NONE, answer
    return next((found for found in answer["groups"] if found["group_id"] == group), None)


def delete_group(wire: Connection, group: str, version: int = 2) -> int:
    (result,) = wire.call("DeleteGroups", version, {"groups_names": [group]})["results"]
    assert result["group_id"] == group
    return int(result["error_code"])


def broker_config(wire: Connection, name: str, default: int) -> int:
    node = wire.call("Metadata", 12)["brokers"][0]["node_id"]
    resource = {"resource_type": 4, "resource_name": str(node), "configuration_keys": [name]}
    (found,) = wire.call("DescribeConfigs", 4, {"resources": [resource]})["results"]
    return next((int(config["value"]) for config in found["configs"] if config["name"] == name), default)


def shortest_session_ms(wire: Connection) -> int:
    return max(broker_config(wire, "group.min.session.timeout.ms", 6_000), 1_000)


# ------------------------------------------------------------------------------------------------------ KIP-848


class ConsumerMember:
    """A member of the newer protocol: heartbeats by hand, and what the coordinator answered last."""

    def __init__(self, wire: Connection, group: str, topics: Iterable[str] | None = None, **options: Any) -> None:
        self.wire = wire
        self.group = group
        self.id = str(uuid.uuid4())
        self.epoch = 0
        self.version = options.pop("version", 1)
        self.topics = None if topics is None else list(topics)
        self.options = options
        """What a full heartbeat says beside the topics: instance, assignor, regex."""
        self.owned: dict[bytes, set[int]] = {}
        self.answer: Body = {}

    def beat(self, **more: Any) -> Body:
        body = {"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch, **more}
        self.answer = self.wire.call("ConsumerGroupHeartbeat", self.version, body)
        if self.answer["error_code"] == NONE:
            self.epoch = self.answer["member_epoch"]
            if self.answer["member_id"] is not None:
                self.id = self.answer["member_id"]
        return self.answer

    def join(self, **more: Any) -> Body:
        self.epoch = 0
        full = {"rebalance_timeout_ms": SESSION_MS, "subscribed_topic_names": self.topics, "topic_partitions": []}
        answer = self.beat(**{**full, **self.options, **more})
        self.take_over(answer)
        return answer

    def take_over(self, answer: Body) -> None:
        if answer["error_code"] == NONE and answer["assignment"] is not None:
            given = answer["assignment"]["topic_partitions"]
            self.owned = {one["topic_id"]: set(one["partitions"]) for one in given}

    def reconcile(self, rounds: int = 20) -> dict[bytes, set[int]]:
        """Beats, giving up and taking over at once what it is told to, until two answers bring nothing new."""
        quiet = 0
        for _ in range(rounds):
            holds = [{"topic_id": id_, "partitions": sorted(p)} for id_, p in self.owned.items()]
            before = (self.epoch, dict(self.owned))
            answer = self.beat(topic_partitions=holds)
            assert answer["error_code"] == NONE, answer
            self.take_over(answer)
            quiet = quiet + 1 if before == (self.epoch, self.owned) else 0
            if quiet == 2:
                break
        return self.owned

    def leave(self, epoch: int = LEAVE_EPOCH, **more: Any) -> Body:
        body = {"group_id": self.group, "member_id": self.id, "member_epoch": epoch, **more}
        return self.wire.call("ConsumerGroupHeartbeat", self.version, body)


# ------------------------------------------------------------------------------------------------------ starting


def await_coordinators(wire: Connection) -> None:
    """The first question makes the internal topic; until its partitions are loaded, coordinators say so and clients
    try again, which these tests do not."""
    names = [f"warm-{number}" for number in range(300)]

    def all_answer() -> bool:
        answer = wire.call("FindCoordinator", 4, {"key_type": 0, "coordinator_keys": names})
        if any(found["error_code"] != NONE for found in answer["coordinators"]):
            return False
        asked = [{"group_id": name, "topics": None} for name in names]
        answer = wire.call("OffsetFetch", 8, {"groups": asked})
        return all(found["error_code"] == NONE for found in answer["groups"])

    eventually(all_answer, seconds=30)
