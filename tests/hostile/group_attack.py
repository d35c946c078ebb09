"""What attacks on groups need: frames of the group APIs, the codes they are answered with, and the good members."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from attack import Peer, answer, body_of, framed, good_client, message, part_of, raw_request, request

from skidway.testing import Broker
from skidway.wire.headers import write_request_header
from skidway.wire.registry import api
from waiting import comes_true

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN, HEARTBEAT, LEAVE, SYNC = 8, 9, 10, 11, 12, 13, 14
DESCRIBE, LIST, DELETE, OFFSET_DELETE, CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE = 15, 16, 42, 47, 68, 69
GROUP_APIS = (*range(OFFSET_COMMIT, LIST + 1), DELETE, OFFSET_DELETE, CONSUMER_HEARTBEAT, CONSUMER_DESCRIBE)

NONE = 0
UNKNOWN_TOPIC_OR_PARTITION = 3
OFFSET_METADATA_TOO_LARGE = 12
ILLEGAL_GENERATION = 22
INCONSISTENT_GROUP_PROTOCOL = 23
INVALID_GROUP_ID = 24
UNKNOWN_MEMBER_ID = 25
INVALID_SESSION_TIMEOUT = 26
INVALID_REQUEST = 42
POLICY_VIOLATION = 44
GROUP_ID_NOT_FOUND = 69
MEMBER_ID_REQUIRED = 79
GROUP_MAX_SIZE_REACHED = 81
FENCED_MEMBER_EPOCH = 110
UNSUPPORTED_ASSIGNOR = 112
INVALID_REGULAR_EXPRESSION = 128

GOOD_GROUP = Path(__file__).parent / "good_group.py"
WINDOW = 200
"""Requests on their way at once: a peer that never reads would be left alone before it does any harm."""


@contextmanager
def good_members(broker: Broker, attack: str, resident_mib_max: int) -> Iterator[None]:
    """Both kinds of groups are at work meanwhile; and the coordinator is known to the attackers as well."""
    with good_client(broker, attack, resident_mib_max, GOOD_GROUP):
        yield


def join_frame(
    group: str,
    metadata: bytes = b"",
    *,
    version: int = 3,
    client_id: str = "attacker",
    protocols: int = 1,
    **fields: Any,
) -> bytes:
    """Up to version 3 a new member joins at once, later it is sent away with an id."""
    offered = [part_of(JOIN, "JoinGroupRequestProtocol")(f"protocol-{n}", metadata) for n in range(protocols)]
    defaults = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000, "protocol_type": "consumer"}
    body = body_of(JOIN, version, message(JOIN, group_id=group, protocols=offered, **{**defaults, **fields}))
    return framed(write_request_header(JOIN, version, 1, client_id) + body)


def join(peer: Peer, group: str, metadata: bytes = b"", *, version: int = 3, **options: Any) -> Any:
    return peer.ask(JOIN, version, join_frame(group, metadata, version=version, **options))


def sync(peer: Peer, group: str, member: str, generation: int, assigned: dict[str, bytes], version: int = 3) -> int:
    assignments = [part_of(SYNC, "SyncGroupRequestAssignment")(*each) for each in assigned.items()]
    fields = {"group_id": group, "member_id": member, "generation_id": generation, "assignments": assignments}
    code: int = peer.call(SYNC, version, **fields).error_code
    return code


def commit_frame(
    group: str, topic: str, partitions: dict[int, str] | list[int], version: int = 6, **more: Any
) -> bytes:
    metadata = partitions if isinstance(partitions, dict) else {}
    each = part_of(OFFSET_COMMIT, "OffsetCommitRequestPartition")
    offsets = [each(number, 1, committed_metadata=metadata.get(number, "")) for number in partitions]
    topics = [part_of(OFFSET_COMMIT, "OffsetCommitRequestTopic")(topic, partitions=offsets)]
    return request(OFFSET_COMMIT, version, group_id=group, generation_id_or_member_epoch=-1, topics=topics, **more)


def commit(peer: Peer, group: str, topic: str, partitions: dict[int, str] | list[int], **more: Any) -> set[int]:
    version = more.get("version", 6)
    (found,) = peer.ask(OFFSET_COMMIT, version, commit_frame(group, topic, partitions, **more)).topics
    return {partition.error_code for partition in found.partitions}


def heartbeat_frame(group: str, version: int = 0, **fields: Any) -> bytes:
    """Of the consumer protocol: a first one, unless `fields` say otherwise."""
    first = {
        "member_id": "",
        "member_epoch": 0,
        "rebalance_timeout_ms": 10_000,
        "subscribed_topic_names": ["none"],
        "topic_partitions": [],
    }
    return request(CONSUMER_HEARTBEAT, version, group_id=group, **{**first, **fields})


def heartbeat(peer: Peer, group: str, version: int = 0, **fields: Any) -> Any:
    return peer.ask(CONSUMER_HEARTBEAT, version, heartbeat_frame(group, version, **fields))


def each_answer(peer: Peer, key: int, version: int, frames: list[bytes]) -> Iterator[Any]:
    for first in range(0, len(frames), WINDOW):
        peer.send(b"".join(frames[first : first + WINDOW]))
        for _ in frames[first : first + WINDOW]:
            yield answer(key, version, peer.reply())


def described(peer: Peer, group: str) -> Any:
    (found,) = peer.call(DESCRIBE, 5, groups=[group]).groups
    return found


def await_members(peer: Peer, group: str, count: int) -> list[str]:
    """Joins are not answered while others are missing: how many arrived is seen from outside."""
    assert comes_true(lambda: len(described(peer, group).members) >= count), described(peer, group)
    return [member.member_id for member in described(peer, group).members]


def remove(peer: Peer, group: str, members: list[str]) -> None:
    """Have all members leave, and forget the group."""
    leaving = [part_of(LEAVE, "MemberIdentity")(member, None) for member in members]
    assert {each.error_code for each in peer.call(LEAVE, 3, group_id=group, members=leaving).members} <= {NONE}
    assert [each.error_code for each in peer.call(DELETE, 2, groups_names=[group]).results] == [NONE]


def disperse(peer: Peer, group: str, crowd: list[Peer]) -> None:
    """The same for a crowd that still has joins on their way: whoever gets in after all has to go as well."""
    for each in crowd:
        each.reset()

    def gone() -> bool:
        members = [each.member_id for each in described(peer, group).members]
        leaving = [part_of(LEAVE, "MemberIdentity")(member, None) for member in members]
        peer.call(LEAVE, 3, group_id=group, members=leaving)
        code: int = peer.call(DELETE, 2, groups_names=[group]).results[0].error_code
        return code in (NONE, GROUP_ID_NOT_FOUND)

    assert comes_true(gone), described(peer, group)


def find(peer: Peer) -> None:
    """As every client does first: that makes the topic that groups are kept in."""
    (found,) = peer.call(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["any"]).coordinators
    assert found.error_code == NONE, found


def valid_frames(group: str, member: str, topic: str) -> Iterator[bytes]:
    """One of every group API in every version, about a group and a member that exist."""
    for key in GROUP_APIS:
        fields = _honest_fields(key, group, member, topic)
        kind = api(key).request.message
        first, last = api(key).versions
        for version in range(first, last + 1):
            there = {each.name for each in kind.__fields__ if version in each.versions}
            honest = kind(**{name: value for name, value in fields.items() if name in there})
            yield raw_request(key, version, body_of(key, version, honest))


def _honest_fields(key: int, group: str, member: str, topic: str) -> dict[str, Any]:
    def part(name: str, *values: Any, **more: Any) -> Any:
        return part_of(key, name)(*values, **more)

    known = {"group_id": group, "member_id": member, "generation_id": 1}
    match key:
        case 8:
            offsets = [part("OffsetCommitRequestPartition", 0, 5, committed_metadata="said")]
            return {**known, "topics": [part("OffsetCommitRequestTopic", topic, partitions=offsets)]}
        case 9:
            asked = [part("OffsetFetchRequestTopics", topic, partition_indexes=[0, 1])]
            old = [part("OffsetFetchRequestTopic", topic, partition_indexes=[0, 1])]
            return {"group_id": group, "topics": old, "groups": [part("OffsetFetchRequestGroup", group, topics=asked)]}
        case 10:
            return {"key": group, "key_type": 0, "coordinator_keys": [group, "other"]}
        case 11:
            offered = [part("JoinGroupRequestProtocol", "protocol-0", bytes(20))]
            times = {"session_timeout_ms": 6_000, "rebalance_timeout_ms": 200}
            return {**known, **times, "protocol_type": "consumer", "protocols": offered}
        case 13:
            return {**known, "members": [part("MemberIdentity", "nobody", None)]}
        case 14:
            assigned = [part("SyncGroupRequestAssignment", member, bytes(20))]
            return {**known, "protocol_type": "consumer", "protocol_name": "protocol-0", "assignments": assigned}
        case 15:
            return {"groups": [group]}
        case 16:
            return {"states_filter": ["Stable"], "types_filter": ["classic"]}
        case 42:
            return {"groups_names": ["no-such-group"]}
        case 47:
            wanted = [part("OffsetDeleteRequestPartition", 0)]
            return {**known, "topics": [part("OffsetDeleteRequestTopic", topic, wanted)]}
        case 68:
            first = {"member_epoch": 0, "rebalance_timeout_ms": 1_000, "topic_partitions": []}
            return {"group_id": "fuzzed-consumers", "member_id": "m", **first, "subscribed_topic_names": [topic]}
        case 69:
            return {"group_ids": ["fuzzed-consumers"]}
    return known
