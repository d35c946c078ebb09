"""Share groups over raw connections: members that beat, readers that fetch and acknowledge, what admins ask.

A member (`ShareMember`) speaks with the group coordinator, a reader (`ShareReader`) with the partition's leader.
Leaders check no membership: most tests of delivery let one member join, which initialises the group's partitions, and
then read with as many readers as they like. Nothing is retried unless the name says so.
"""

import base64
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from raw import Body, Connection
from raw_batches import read, records_of
from wire_calls import topic_id

from waiting import eventually

UNKNOWN_SERVER_ERROR = -1
NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
NOT_LEADER_OR_FOLLOWER = 6
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_CONFIG = 40
INVALID_REQUEST = 42
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
GROUP_MAX_SIZE_REACHED = 81
UNKNOWN_TOPIC_ID = 100
FENCED_MEMBER_EPOCH = 110
INVALID_RECORD_STATE = 121
SHARE_SESSION_NOT_FOUND = 122
INVALID_SHARE_SESSION_EPOCH = 123
SHARE_SESSION_LIMIT_REACHED = 133

GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
BATCH_OPTIMIZED, RECORD_LIMIT = range(2)
NEW_SESSION, LAST_OF_SESSION, LEAVE_EPOCH = 0, -1, -1
GROUP = 32
SET, DELETE, APPEND = range(3)
SHARE_KEY = 2

Place = tuple[bytes, int]
"""A topic's id and a partition."""
Acks = Sequence[tuple[int, int, Sequence[int]]]
"""(first offset, last offset, types)."""
Value = TypeVar("Value")


def differs(*, kafka: Value, skidway: Value) -> Value:
    """Where Skidway answers otherwise on purpose: what this broker has to answer."""
    return kafka if "SKIDWAY_CONFORMANCE_BOOTSTRAP" in os.environ else skidway


# ------------------------------------------------------------------------------------------------------ members


class ShareMember:
    """Beats by hand, and knows what the coordinator answered last."""

    def __init__(self, wire: Connection, group: str, topics: Iterable[str]) -> None:
        self.wire = wire
        self.group = group
        self.topics = list(topics)
        self.id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: dict[bytes, set[int]] = {}
        self.answer: Body = {}

    def beat(self, **more: Any) -> Body:
        body = {"group_id": self.group, "member_id": self.id, "member_epoch": self.epoch, **more}
        self.answer = self.wire.call("ShareGroupHeartbeat", 1, body)
        if self.answer["error_code"] == NONE:
            self.epoch = self.answer["member_epoch"]
            if self.answer["assignment"] is not None:
                given = self.answer["assignment"]["topic_partitions"]
                self.owned = {one["topic_id"]: set(one["partitions"]) for one in given if one["partitions"]}
        return self.answer

    def join(self, **more: Any) -> Body:
        self.epoch = 0
        return self.beat(**{"subscribed_topic_names": self.topics, **more})

    def leave(self) -> Body:
        body = {"group_id": self.group, "member_id": self.id, "member_epoch": LEAVE_EPOCH}
        return self.wire.call("ShareGroupHeartbeat", 1, body)

    def await_share(self, wanted: Mapping[bytes, Iterable[int]]) -> None:
        """Beats until it has exactly these partitions."""
        expected = {id_: set(partitions) for id_, partitions in wanted.items()}

        def has_them() -> bool:
            assert self.beat()["error_code"] == NONE, self.answer
            return self.owned == expected

        if self.owned != expected:
            eventually(has_them)


def settle(*members: ShareMember, seconds: float = 30.0) -> None:
    """All beat until each has heard of the newest epoch, and of an assignment that belongs to it."""
    first = members[0]

    def settled() -> bool:
        for one in members:
            assert one.beat()["error_code"] == NONE, one.answer
        found = describe(first.wire, first.group)
        newest: int = found["group_epoch"]
        return found["assignment_epoch"] == newest and all(one.epoch == newest for one in members)

    eventually(settled, seconds)


# ------------------------------------------------------------------------------------------------------ readers


@dataclass(frozen=True)
class Got:
    """What a fetch brought of one partition."""

    error: int
    ack_error: int
    acquired: list[tuple[int, int, int]]
    """(first offset, last offset, delivery count)."""
    records: bytes
    leader: tuple[int, int]

    @property
    def offsets(self) -> list[int]:
        return [offset for first, last, _ in self.acquired for offset in range(first, last + 1)]

    @property
    def counts(self) -> dict[int, int]:
        return {offset: count for first, last, count in self.acquired for offset in range(first, last + 1)}

    @property
    def values(self) -> list[bytes | None]:
        """Of the acquired records only: the answer may hold more of their batches."""
        mine = set(self.offsets)
        found = [(offset, value) for batch in read(self.records) for offset, _, value in records_of(batch)]
        return [value for offset, value in found if offset in mine]


NOTHING = Got(NONE, NONE, [], b"", (0, 0))


def batches(acks: Acks) -> list[Body]:
    return [{"first_offset": first, "last_offset": last, "acknowledge_types": list(t)} for first, last, t in acks]


def by_topic(places: Mapping[Place, Acks]) -> list[Body]:
    topics: dict[bytes, list[Body]] = {}
    for (id_, partition), acks in places.items():
        listed = {"partition_index": partition, "acknowledgement_batches": batches(acks)}
        topics.setdefault(id_, []).append(listed)
    return [{"topic_id": id_, "partitions": partitions} for id_, partitions in topics.items()]


class ShareReader:
    """One share session. It counts its epoch as clients do, unless a test gives another."""

    def __init__(self, wire: Connection, group: str, *places: Place, version: int = 2) -> None:
        self.wire = wire
        self.group = group
        self.places = places
        self.version = version
        self.id = str(uuid.uuid4())
        self.epoch = NEW_SESSION
        self.answer: Body = {}

    def fetch_body(self, acks: Mapping[Place, Acks] | None = None, **more: Any) -> Body:
        """Names its partitions when the session is new, afterwards those with acknowledgements."""
        epoch = more.pop("epoch", self.epoch)
        named: dict[Place, Acks] = {place: [] for place in self.places} if epoch == NEW_SESSION else {}
        closes = epoch == LAST_OF_SESSION
        return {
            "group_id": self.group,
            "member_id": self.id,
            "share_session_epoch": epoch,
            "max_wait_ms": 0 if closes else 500,
            "min_bytes": 0 if closes else 1,
            "max_bytes": 0 if closes else 50_000_000,
            "max_records": 0 if closes else 500,
            "batch_size": 0 if closes else 500,
            "topics": by_topic({**named, **(acks or {})}),
            **more,
        }

    def send_fetch(self, acks: Mapping[Place, Acks] | None = None, **more: Any) -> None:
        body = self.fetch_body(acks, **more)
        self.wire.send("ShareFetch", self.version, body)
        self._step(body["share_session_epoch"])

    def fetched(self) -> dict[Place, Got]:
        _, self.answer = self.wire.receive("ShareFetch", self.version)
        return results(self.answer)

    def try_fetch(self, acks: Mapping[Place, Acks] | None = None, **more: Any) -> Body:
        """The whole answer, whatever it says."""
        self.send_fetch(acks, **more)
        self.fetched()
        return self.answer

    def fetch(self, acks: Mapping[Place, Acks] | None = None, **more: Any) -> dict[Place, Got]:
        self.send_fetch(acks, **more)
        got = self.fetched()
        assert self.answer["error_code"] == NONE, self.answer
        return got

    def take(self, acks: Acks = (), *, place: Place | None = None, **more: Any) -> Got:
        """Of its only partition, or of the one named."""
        where = place or self.places[0]
        return self.fetch({where: acks} if acks else None, **more).get(where, NOTHING)

    def until(self, good: Callable[[Got], object], acks: Acks = (), **more: Any) -> Got:
        """Polls until what one fetch brings is good; the acknowledgements go with the first."""
        waiting = [acks]

        def poll() -> Got | None:
            got = self.take(waiting.pop() if waiting else (), **more)
            return got if good(got) else None

        return eventually(poll)

    def some(self, acks: Acks = (), **more: Any) -> Got:
        """Polls until a fetch brings records."""
        return self.until(lambda got: got.acquired, acks, **more)

    def gather(self, enough: Callable[[dict[int, int]], object], **more: Any) -> dict[int, int]:
        """Polls until all that came is enough: offsets in their order, with the count of their last delivery."""
        seen: dict[int, int] = {}

        def poll() -> bool:
            seen.update(self.take(**more).counts)
            return bool(enough(seen))

        eventually(poll)
        return seen

    def acknowledge_body(self, acks: Mapping[Place, Acks], **more: Any) -> Body:
        return {
            "group_id": self.group,
            "member_id": self.id,
            "share_session_epoch": more.pop("epoch", self.epoch),
            "topics": by_topic(acks),
            **more,
        }

    def acknowledge(self, acks: Mapping[Place, Acks], **more: Any) -> Body:
        body = self.acknowledge_body(acks, **more)
        self.answer = self.wire.call("ShareAcknowledge", self.version, body)
        self._step(body["share_session_epoch"])
        return self.answer

    def ack(self, *acks: tuple[int, int, Sequence[int]], place: Place | None = None, **more: Any) -> int:
        """The error code of the one partition."""
        answer = self.acknowledge({place or self.places[0]: acks}, **more)
        assert answer["error_code"] == NONE, answer
        ((one,),) = [found["partitions"] for found in answer["responses"]]
        return int(one["error_code"])

    def close(self, acks: Mapping[Place, Acks] | None = None) -> Body:
        return self.acknowledge(acks or {}, epoch=LAST_OF_SESSION)

    def _step(self, used: int) -> None:
        if used == self.epoch:
            self.epoch += 1


NewReader = Callable[[], ShareReader]
"""The fixture that makes another reader of the same partition, on a connection of its own."""


def results(answer: Body) -> dict[Place, Got]:
    return {
        (found["topic_id"], one["partition_index"]): Got(
            one["error_code"],
            one["acknowledge_error_code"],
            [(r["first_offset"], r["last_offset"], r["delivery_count"]) for r in one["acquired_records"]],
            bytes(one["records"]),
            (one["current_leader"]["leader_id"], one["current_leader"]["leader_epoch"]),
        )
        for found in answer["responses"]
        for one in found["partitions"]
    }


# ------------------------------------------------------------------------------------------------------ groups


def configure(wire: Connection, group: str, **settings: str | int) -> None:
    """`share_record_lock_duration_ms=1000` and the like."""
    changes = {name.replace("_", "."): str(value) for name, value in settings.items()}
    answer = alter(wire, group, *((name, SET, value) for name, value in changes.items()))
    assert answer["error_code"] == NONE, answer
    eventually(lambda: all(described_configs(wire, group)[name]["value"] == value for name, value in changes.items()))


def alter(wire: Connection, group: str, *changes: tuple[str, int, str | None]) -> Body:
    configs = [{"name": name, "config_operation": operation, "value": value} for name, operation, value in changes]
    resource = {"resource_type": GROUP, "resource_name": group, "configs": configs}
    (answer,) = wire.call("IncrementalAlterConfigs", 1, {"resources": [resource]})["responses"]
    return dict(answer)


def described_configs(wire: Connection, group: str) -> dict[str, Body]:
    resource = {"resource_type": GROUP, "resource_name": group, "configuration_keys": None}
    (answer,) = wire.call("DescribeConfigs", 4, {"resources": [resource], "include_synonyms": True})["results"]
    assert answer["error_code"] == NONE, answer
    return {config["name"]: config for config in answer["configs"]}


def describe(wire: Connection, group: str) -> Body:
    (found,) = wire.call("ShareGroupDescribe", 1, {"group_ids": [group]})["groups"]
    return dict(found)


def open_group(wire: Connection, group: str, *topics: str, **settings: str | int) -> ShareMember:
    """A group that starts at the beginning of these topics and has one member, which has all their partitions."""
    configure(wire, group, **{"share_auto_offset_reset": "earliest", **settings})
    return joined(wire, group, *topics)


def joined(wire: Connection, group: str, *topics: str) -> ShareMember:
    member = ShareMember(wire, group, topics)
    assert member.join()["error_code"] == NONE, member.answer
    member.await_share({id_: range(count) for id_, count in partition_counts(wire, topics).items()})
    return member


def partition_counts(wire: Connection, topics: Iterable[str]) -> dict[bytes, int]:
    asked = {"topics": [{"name": topic} for topic in topics], "allow_auto_topic_creation": False}
    return {one["topic_id"]: len(one["partitions"]) for one in wire.call("Metadata", 12, asked)["topics"]}


def place_of(wire: Connection, topic: str, partition: int = 0) -> Place:
    return topic_id(wire, topic), partition


# ------------------------------------------------------------------------------------------------------ offsets


@dataclass(frozen=True)
class Start:
    offset: int
    lag: int
    error: int


def starts(wire: Connection, group: str, topics: Mapping[str, Iterable[int]] | None, version: int = 1) -> Body:
    """The answer for the group."""
    listed = None
    if topics is not None:
        listed = [{"topic_name": topic, "partitions": list(partitions)} for topic, partitions in topics.items()]
    body = {"groups": [{"group_id": group, "topics": listed}]}
    (found,) = wire.call("DescribeShareGroupOffsets", version, body)["groups"]
    return dict(found)


def start_of(wire: Connection, group: str, topic: str, partition: int = 0) -> Start:
    found = starts(wire, group, {topic: [partition]})
    assert found["error_code"] == NONE, found
    ((one,),) = [answered["partitions"] for answered in found["topics"]]
    return Start(one["start_offset"], one["lag"], one["error_code"])


def alter_starts(wire: Connection, group: str, topic: str, offsets: Mapping[int, int]) -> Body:
    partitions = [{"partition_index": partition, "start_offset": offset} for partition, offset in offsets.items()]
    body = {"group_id": group, "topics": [{"topic_name": topic, "partitions": partitions}]}
    return wire.call("AlterShareGroupOffsets", 0, body)


def altered(answer: Body) -> dict[int, int]:
    """Partition to error code."""
    assert answer["error_code"] == NONE, answer
    return {one["partition_index"]: one["error_code"] for found in answer["responses"] for one in found["partitions"]}


def delete_starts(wire: Connection, group: str, *topics: str) -> Body:
    body = {"group_id": group, "topics": [{"topic_name": topic} for topic in topics]}
    return wire.call("DeleteShareGroupOffsets", 0, body)


def share_key(group: str, place: Place) -> str:
    id_, partition = place
    return f"{group}:{base64.urlsafe_b64encode(id_).decode().rstrip('=')}:{partition}"
