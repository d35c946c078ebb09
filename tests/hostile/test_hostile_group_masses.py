"""Masses of groups and members at the limits that are shipped: what every broker has to live with as it is."""

import pytest
from attack import DELETE_TOPICS, Peer, create_topic, part_of
from group_attack import (
    CONSUMER_DESCRIBE,
    CONSUMER_HEARTBEAT,
    DELETE,
    DESCRIBE,
    FIND_COORDINATOR,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    JOIN,
    LIST,
    MEMBER_ID_REQUIRED,
    NONE,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    await_members,
    commit,
    commit_frame,
    disperse,
    each_answer,
    find,
    good_members,
    heartbeat_frame,
    join,
    join_frame,
)

from skidway.limits import DEFAULT_LIMITS
from skidway.testing import Broker
from waiting import eventually

pytestmark = pytest.mark.xdist_group("hostile-group-masses")
RESIDENT_MIB_MAX = 500
TOPIC = "massive"
NAMES = [f"name-{n}" for n in range(40_000)]


@pytest.fixture
def peer(broker: Broker) -> Peer:
    create_topic(broker, TOPIC, 10, flush="os")
    peer = Peer(broker)
    find(peer)
    return peer


def test_forty_thousand_names(broker: Broker, peer: Peer) -> None:
    with good_members(broker, "DescribeGroups, DeleteGroups, … of 40,000 names", RESIDENT_MIB_MAX):
        assert {each.group_state for each in peer.call(DESCRIBE, 5, groups=NAMES).groups} == {"Dead"}
        told = peer.call(CONSUMER_DESCRIBE, 1, group_ids=NAMES).groups
        assert {each.error_code for each in told} == {GROUP_ID_NOT_FOUND}
        results = peer.call(DELETE, 2, groups_names=NAMES).results
        assert {each.error_code for each in results} == {GROUP_ID_NOT_FOUND}
        asked = [part_of(OFFSET_FETCH, "OffsetFetchRequestGroup")(name, topics=None) for name in NAMES]
        assert {each.error_code for each in peer.call(OFFSET_FETCH, 8, groups=asked).groups} == {NONE}
        found = peer.call(FIND_COORDINATOR, 4, key_type=0, coordinator_keys=NAMES).coordinators
        assert {each.error_code for each in found} == {NONE}
        assert len(found) == len(NAMES)


def test_twelve_thousand_ids_that_nobody_uses(broker: Broker, peer: Peer) -> None:
    frames = [join_frame("invited", version=4)] * 12_000
    with good_members(broker, "12,000 ids asked for, never used", RESIDENT_MIB_MAX):
        codes = [each.error_code for each in each_answer(peer, JOIN, 4, frames)]
        assert codes == [MEMBER_ID_REQUIRED] * 10_000 + [GROUP_MAX_SIZE_REACHED] * 2_000
        assert peer.call(DELETE, 2, groups_names=["invited"]).results[0].error_code == NONE


def test_more_members_than_a_group_may_have(broker: Broker, peer: Peer) -> None:
    most = DEFAULT_LIMITS.group_members_max
    crowd = [Peer(broker) for _ in range(12)]
    with good_members(broker, "3,000 members into one classic group", RESIDENT_MIB_MAX):
        for each in crowd:
            each.send(join_frame("crowd", b"x" * 1_000) * 250)
        members = await_members(peer, "crowd", most + 1)
        assert len(members) == most + 1
        assert join(peer, "crowd").error_code == GROUP_MAX_SIZE_REACHED
        disperse(peer, "crowd", crowd)


def test_a_crowd_of_the_consumer_protocol(broker: Broker, peer: Peer) -> None:
    """Members that all want something else are the dearest to assign to."""
    frames = [heartbeat_frame("crowded", subscribed_topic_names=[TOPIC, f"no-{n}"]) for n in range(600)]
    with good_members(broker, "600 members into one consumer group", RESIDENT_MIB_MAX):
        joined = list(each_answer(peer, CONSUMER_HEARTBEAT, 0, frames))
        assert {each.error_code for each in joined} == {NONE}


def test_masses_of_groups(broker: Broker, peer: Peer) -> None:
    """Made by commits, listed by many at once, told about, and deleted by one request."""
    names = NAMES[:6_000]
    with good_members(broker, "6,000 groups made, listed, deleted", RESIDENT_MIB_MAX):
        for reply in each_answer(peer, OFFSET_COMMIT, 6, [commit_frame(name, TOPIC, [0]) for name in names]):
            assert reply.topics[0].partitions[0].error_code == NONE
        readers = [Peer(broker) for _ in range(5)]
        for _ in range(3):
            for reader in readers:
                assert len(reader.call(LIST, 4).groups) >= len(names)
        assert {each.group_state for each in peer.call(DESCRIBE, 5, groups=names).groups} == {"Empty"}
        assert {each.error_code for each in peer.call(DELETE, 2, groups_names=names).results} == {NONE}
        for reader in readers:
            reader.socket.close()


def test_a_topic_that_many_groups_have_offsets_of(broker: Broker, peer: Peer) -> None:
    """All that was committed for it is forgotten when it goes, a little at a time."""
    wide, partitions = create_topic(broker, "wide", 500, flush="os"), list(range(500))
    names = [f"wide-{n}" for n in range(80)]
    with good_members(broker, "a topic with 40,000 offsets deleted", RESIDENT_MIB_MAX):
        for name in names:
            assert commit(peer, name, wide, partitions) == {NONE}
        gone = part_of(DELETE_TOPICS, "DeleteTopicState")(wide)
        assert peer.call(DELETE_TOPICS, 6, topics=[gone], timeout_ms=60_000).responses[0].error_code == NONE
        asked = [part_of(OFFSET_FETCH, "OffsetFetchRequestGroup")(name, topics=None) for name in names]
        eventually(lambda: not any(each.topics for each in peer.call(OFFSET_FETCH, 8, groups=asked).groups))
