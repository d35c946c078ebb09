"""Attacks on the coordinators of groups, beside two groups of good members that go on polling and committing."""

from random import Random

import pytest
from attack import MIB, Peer, create_topic, framed, part_of, provoke, request, uvarint
from group_attack import (
    CONSUMER_HEARTBEAT,
    DELETE,
    FENCED_MEMBER_EPOCH,
    GROUP_ID_NOT_FOUND,
    GROUP_MAX_SIZE_REACHED,
    HEARTBEAT,
    ILLEGAL_GENERATION,
    INCONSISTENT_GROUP_PROTOCOL,
    INVALID_GROUP_ID,
    INVALID_REGULAR_EXPRESSION,
    INVALID_REQUEST,
    INVALID_SESSION_TIMEOUT,
    JOIN,
    MEMBER_ID_REQUIRED,
    NONE,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    OFFSET_METADATA_TOO_LARGE,
    POLICY_VIOLATION,
    SYNC,
    UNKNOWN_MEMBER_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_ASSIGNOR,
    await_members,
    commit,
    commit_frame,
    described,
    disperse,
    each_answer,
    find,
    good_members,
    heartbeat,
    heartbeat_frame,
    join,
    join_frame,
    remove,
    sync,
    valid_frames,
)

from skidway.testing import Broker

pytestmark = pytest.mark.xdist_group("hostile-groups")
KIB = 1024
MEMBERS_MAX = 200
LIMITS = {
    "groups_max": 3_000,
    "groups_bytes_max": 16 * MIB,
    "group_bytes_max": 2 * MIB,
    "group_member_bytes_max": 256 * KIB,
    "group_members_max": MEMBERS_MAX,
    "group_reply_bytes_max": 8 * MIB,
}
RESIDENT_MIB_MAX = 300
TOPIC = "attacked"
PARTITIONS = 100
ODD_NAMES = [
    "\0",
    "a\0b",
    "\n",
    " ",
    "../../etc/passwd",
    "%s%n",
    "__consumer_offsets",
    "\u202e\ufeff",
    "\U0001f4a5" * 200,
]


@pytest.fixture
def peer(broker: Broker) -> Peer:
    create_topic(broker, TOPIC, PARTITIONS, flush="os")
    peer = Peer(broker)
    find(peer)
    return peer


def test_names_no_group_should_have(broker: Broker, peer: Peer) -> None:
    long = "x" * 32_767
    with good_members(broker, "ids of 32 KB, empty and odd ones", RESIDENT_MIB_MAX):
        for group in ("", long):
            assert join(peer, group).error_code == INVALID_GROUP_ID
        assert commit(peer, long, TOPIC, [0]) == {INVALID_GROUP_ID}
        assert heartbeat(peer, long).error_code == INVALID_GROUP_ID
        assert heartbeat(peer, " ").error_code == INVALID_REQUEST
        assert join(peer, "named", version=5, group_instance_id=long).error_code == INVALID_REQUEST
        assert heartbeat(peer, "named", member_id=long, version=1).error_code == INVALID_REQUEST
        assert heartbeat(peer, "named", instance_id=long).error_code == INVALID_REQUEST
        assert join(peer, "named", member_id=long).error_code == UNKNOWN_MEMBER_ID
        # The name of a client becomes part of the member's id, which has to fit into every reply and record.
        joined = join(peer, "named", client_id=long)
        assert joined.error_code == NONE
        assert sync(peer, "named", joined.member_id, joined.generation_id, {joined.member_id: b"all"}) == NONE
        remove(peer, "named", [joined.member_id])
        for group in ODD_NAMES:
            joined = join(peer, group)
            assert joined.error_code == NONE
            assert commit(peer, group + "-offsets", TOPIC, [0]) == {NONE}
            assert described(peer, group).group_state == "CompletingRebalance"
            remove(peer, group, [joined.member_id])
            remove(peer, group + "-offsets", [])


def test_members_that_say_too_much(broker: Broker, peer: Peer) -> None:
    """Megabytes from one member, protocols without end, and many members that each stay just below the limit."""
    waiting = [Peer(broker) for _ in range(8)]
    with good_members(broker, "JoinGroup with 60 MB, 100,000 protocols", RESIDENT_MIB_MAX):
        assert join(peer, "large", bytes(60 * MIB)).error_code == POLICY_VIOLATION
        assert join(peer, "large", bytes(3 * KIB), protocols=100).error_code == POLICY_VIOLATION
        assert join(peer, "large", protocols=100_000).error_code == INCONSISTENT_GROUP_PROTOCOL
        assert join(peer, "large", protocols=0).error_code == INCONSISTENT_GROUP_PROTOCOL
        assert join(peer, "large", protocol_type="").error_code == INCONSISTENT_GROUP_PROTOCOL
        for timeout_ms in (-1, 0, 2**31 - 1):
            assert join(peer, "large", session_timeout_ms=timeout_ms).error_code == INVALID_SESSION_TIMEOUT
        assert described(peer, "large").group_state == "Dead"
        for each in waiting:
            each.send(join_frame("large", bytes(250 * KIB)))
        members = await_members(peer, "large", len(waiting))
        assert join(peer, "large", bytes(250 * KIB)).error_code == GROUP_MAX_SIZE_REACHED
        remove(peer, "large", members)
    for each in waiting:
        each.socket.close()


def test_a_crowd_that_joins_and_never_syncs(broker: Broker, peer: Peer) -> None:
    """600 joins for 200 places, and thousands of requests of members that are none."""
    crowd = [Peer(broker) for _ in range(6)]
    with good_members(broker, "600 members into one group, 3,000 lies", RESIDENT_MIB_MAX):
        for each in crowd:
            each.send(join_frame("crowd", b"x" * 100) * 100)
        # The first was answered before the second came; 200 wait, and it may still come back as the last of them.
        members = await_members(peer, "crowd", 201)
        assert len(members) == 201
        assert join(peer, "crowd").error_code == GROUP_MAX_SIZE_REACHED
        wrong = join(peer, "crowd", protocol_type="connect", member_id=members[1])
        assert wrong.error_code == INCONSISTENT_GROUP_PROTOCOL
        lies = [
            request(HEARTBEAT, 3, group_id="crowd", member_id=member, generation_id=generation)
            for member, generation in [(members[0], 77), (members[0], -1), ("nobody", 1)] * 500
        ]
        assert {each.error_code for each in each_answer(peer, HEARTBEAT, 3, lies)} == {
            ILLEGAL_GENERATION,
            UNKNOWN_MEMBER_ID,
        }
        lies = [
            request(SYNC, 3, group_id="crowd", member_id=member, generation_id=77)
            for member in [members[0], "no"] * 700
        ]
        assert {each.error_code for each in each_answer(peer, SYNC, 3, lies)} == {ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID}
        disperse(peer, "crowd", crowd)


def test_joins_that_wait_do_not_keep_their_frames(broker: Broker, peer: Peer) -> None:
    """A small join in a frame of 25 MB: whoever waits for the others keeps what it said, not how it was sent."""
    crowd = [Peer(broker) for _ in range(14)]
    with good_members(broker, "14 joins waiting, 25 MB of padding each", RESIDENT_MIB_MAX):
        for number, each in enumerate(crowd):
            small = join_frame("padded", b"x" * 100, version=9, group_instance_id=f"instance-{number}")
            # An unknown tagged field at the end, in place of none.
            padding = bytes([1, 99]) + uvarint(25 * MIB) + bytes(25 * MIB)
            each.send(framed(small[4:-1] + padding))
            await_members(peer, "padded", number + 1)
        disperse(peer, "padded", crowd)


def test_ids_that_nobody_comes_back_with(broker: Broker, peer: Peer) -> None:
    frames = [join_frame("invited", version=4)] * 6_000
    with good_members(broker, "6,000 ids asked for, never used", RESIDENT_MIB_MAX):
        codes = [each.error_code for each in each_answer(peer, JOIN, 4, frames)]
        assert set(codes) == {MEMBER_ID_REQUIRED, GROUP_MAX_SIZE_REACHED}
        assert codes.count(MEMBER_ID_REQUIRED) < 4_500
        assert peer.call(DELETE, 2, groups_names=["invited"]).results[0].error_code == NONE


def test_assignments_for_nobody_and_of_megabytes(broker: Broker, peer: Peer) -> None:
    with good_members(broker, "SyncGroup with 40 MB, for 10,000 strangers", RESIDENT_MIB_MAX):
        joined = join(peer, "led")
        member, generation = joined.member_id, joined.generation_id
        assert sync(peer, "led", member, generation, {member: bytes(40 * MIB)}) == POLICY_VIOLATION
        assert sync(peer, "led", member, generation, {str(n): bytes(KIB) for n in range(5_000)}) == POLICY_VIOLATION
        names = {"protocol_type": "connect", "protocol_name": "protocol-0"}
        refused = peer.call(SYNC, 5, group_id="led", member_id=member, generation_id=generation, **names)
        assert refused.error_code == INCONSISTENT_GROUP_PROTOCOL
        assert sync(peer, "led", member, generation, {str(n): b"" for n in range(10_000)}) == POLICY_VIOLATION
        assert sync(peer, "led", member, generation, {str(n): b"" for n in range(MEMBERS_MAX)}) == NONE
        assert [each.member_assignment for each in described(peer, "led").members] == [b""]
        remove(peer, "led", [member])


def test_offsets_of_masses_of_partitions(broker: Broker, peer: Peer) -> None:
    partitions = [n % PARTITIONS for n in range(100_000)]
    with good_members(broker, "OffsetCommit of 100,000 partitions, 32 KB metadata", RESIDENT_MIB_MAX):
        assert commit(peer, "offsets", TOPIC, {0: "m" * 32_767}) == {OFFSET_METADATA_TOO_LARGE}
        assert commit(peer, "offsets", TOPIC, partitions) == {NONE}
        assert commit(peer, "offsets", TOPIC, list(range(100_000))) == {NONE, UNKNOWN_TOPIC_OR_PARTITION}
        assert commit(peer, "offsets", "no-such-topic", list(range(100_000))) == {UNKNOWN_TOPIC_OR_PARTITION}
        for retention_ms in (2**63 - 1, -(2**63)):
            assert commit(peer, "offsets", TOPIC, [7], version=3, retention_time_ms=retention_ms) == {NONE}
        assert commit(peer, "offsets", TOPIC, dict.fromkeys(range(PARTITIONS), "m" * 4096)) == {NONE}
    group = "offsets"
    with good_members(broker, "OffsetFetch, 200 MB and more to be told", RESIDENT_MIB_MAX):
        asked = part_of(OFFSET_FETCH, "OffsetFetchRequestTopics")(TOPIC, partition_indexes=[0] * 100_000)
        one = part_of(OFFSET_FETCH, "OffsetFetchRequestGroup")(group, topics=[asked])
        (found,) = peer.call(OFFSET_FETCH, 8, groups=[one]).groups
        assert (found.error_code, found.topics) == (POLICY_VIOLATION, [])
        everything = part_of(OFFSET_FETCH, "OffsetFetchRequestGroup")(group, topics=None)
        codes = [each.error_code for each in peer.call(OFFSET_FETCH, 8, groups=[everything] * 5_000).groups]
        assert set(codes) == {NONE, POLICY_VIOLATION}
        assert codes.count(NONE) <= 20
        old = part_of(OFFSET_FETCH, "OffsetFetchRequestTopic")(TOPIC, partition_indexes=[0] * 100_000)
        assert peer.call(OFFSET_FETCH, 7, group_id=group, topics=[old]).error_code == POLICY_VIOLATION
        remove(peer, group, [])


def test_lies_of_the_consumer_protocol(broker: Broker, peer: Peer) -> None:
    owned = part_of(CONSUMER_HEARTBEAT, "TopicPartitions")(bytes(16), list(range(-90_000, 90_000)))
    with good_members(broker, "ConsumerGroupHeartbeat with 180,000 partitions", RESIDENT_MIB_MAX):
        for wrong in (
            {"rebalance_timeout_ms": -(2**31)},
            {"rebalance_timeout_ms": -1},
            {"member_epoch": -3, "member_id": "m"},
            {"topic_partitions": [owned]},
            {"topic_partitions": None},
            {"subscribed_topic_names": None},
        ):
            assert heartbeat(peer, "liars", **wrong).error_code == INVALID_REQUEST, wrong
        assert heartbeat(peer, "liars", server_assignor="x" * 32_767).error_code == UNSUPPORTED_ASSIGNOR
        names = [f"no-topic-{n}" for n in range(100_000)]
        assert heartbeat(peer, "liars", subscribed_topic_names=names).error_code == POLICY_VIOLATION
        assert heartbeat(peer, "liars", member_id="m", member_epoch=5).error_code == GROUP_ID_NOT_FOUND
        joined = heartbeat(peer, "liars", rebalance_timeout_ms=2**31 - 1, subscribed_topic_names=[TOPIC])
        assert joined.error_code == NONE
        again = {"member_id": joined.member_id, "subscribed_topic_names": None, "rebalance_timeout_ms": -1}
        for epoch, code in ((1, NONE), (0x7FFFFFFF, FENCED_MEMBER_EPOCH)):
            answered = heartbeat(peer, "liars", **again, member_epoch=epoch, topic_partitions=[owned])
            assert answered.error_code == code
        frames = [heartbeat_frame("liars", subscribed_topic_names=[TOPIC, f"no-{n}"]) for n in range(300)]
        codes = [each.error_code for each in each_answer(peer, CONSUMER_HEARTBEAT, 0, frames)]
        assert codes == [NONE] * 199 + [GROUP_MAX_SIZE_REACHED] * 101


def test_regular_expressions_meant_to_explode(broker: Broker, peer: Peer) -> None:
    for letter in "ab":
        create_topic(broker, letter * 240)
    explosive = ["(a*)*b", "(a+a+)+b", "(a|a)*b", "((a?){50}){10}a{500}", "(.*.*.*.*.*)x", "(a|aa|aaa|aaaa)+c"]
    refused = [
        "(" * 101 + ")" * 101,
        "a{1001}",
        "((a{100}){100}){100}",
        "(?=a)a",
        r"(a)\1",
        "x" * 9_000,
        "[a",
        "(.{0,900}b){9}c",
    ]
    with good_members(broker, "regular expressions that backtrack", RESIDENT_MIB_MAX):
        for regex in refused:
            answered = heartbeat(
                peer, "patterns", subscribed_topic_names=None, subscribed_topic_regex=regex, version=1, member_id="m"
            )
            assert answered.error_code == INVALID_REGULAR_EXPRESSION, regex
        for number, regex in enumerate(explosive):
            fields = {"subscribed_topic_names": None, "subscribed_topic_regex": regex, "member_id": f"m{number}"}
            assert heartbeat(peer, "patterns", version=1, **fields).error_code in (NONE, INVALID_REGULAR_EXPRESSION)
        frames = [
            heartbeat_frame(
                "patterns", 1, subscribed_topic_names=None, subscribed_topic_regex=f".*{n}", member_id=f"n{n}"
            )
            for n in range(40)
        ]
        codes = [each.error_code for each in each_answer(peer, CONSUMER_HEARTBEAT, 1, frames)]
        assert codes[0] == NONE
        assert codes[-1] == INVALID_REGULAR_EXPRESSION
        create_topic(broker, "patterns-have-to-look-again")
        assert heartbeat(peer, "patterns", version=1, member_id="m", subscribed_topic_names=["b"]).error_code == NONE


def test_more_groups_than_there_is_room_for(broker: Broker, peer: Peer) -> None:
    """Whoever has a group goes on, nobody gets a new one, and there is room again when groups are deleted."""
    names = [f"mass-{n}" for n in range(3_500)]
    with good_members(broker, "3,500 groups where 3,000 may be", RESIDENT_MIB_MAX):
        frames = [commit_frame(name, TOPIC, [0]) for name in names]
        replies = each_answer(peer, OFFSET_COMMIT, 6, frames)
        codes = [each.topics[0].partitions[0].error_code for each in replies]
        assert set(codes) == {NONE, POLICY_VIOLATION}
        assert 2_950 <= codes.count(NONE) < 3_000
        assert join(peer, "one-more").error_code == POLICY_VIOLATION
        assert heartbeat(peer, "one-more").error_code == POLICY_VIOLATION
        assert commit(peer, names[0], TOPIC, [0, 1]) == {NONE}
        deleted = peer.call(DELETE, 2, groups_names=names).results
        assert {each.error_code for each in deleted} == {NONE, GROUP_ID_NOT_FOUND}
        joined = join(peer, "one-more")
        assert joined.error_code == NONE
        remove(peer, "one-more", [joined.member_id])


def test_more_bytes_than_there_is_room_for(broker: Broker, peer: Peer) -> None:
    names = [f"bytes-{n}" for n in range(60)]
    with good_members(broker, "offsets of 27 MB where 16 may be", RESIDENT_MIB_MAX):
        taken = [commit(peer, name, TOPIC, dict.fromkeys(range(PARTITIONS), "m" * 4096)) for name in names]
        assert taken[0] == {NONE}
        assert taken[-1] == {POLICY_VIOLATION}
        assert join(peer, "one-more", bytes(200 * KIB)).error_code == POLICY_VIOLATION
        assert commit(peer, names[0], TOPIC, dict.fromkeys(range(PARTITIONS), "n" * 4096)) == {NONE}
        peer.call(DELETE, 2, groups_names=names)
        assert commit(peer, names[-1], TOPIC, [0]) == {NONE}
        remove(peer, names[-1], [])


def test_flipped_bytes_in_every_version_of_every_group_request(broker: Broker, peer: Peer) -> None:
    random = Random(20_261_116)
    with good_members(broker, "byte flips in all group APIs and versions", RESIDENT_MIB_MAX):
        member = join(peer, "fuzzed", rebalance_timeout_ms=200).member_id
        for frame in valid_frames("fuzzed", member, TOPIC):
            for _ in range(8):
                mutant = bytearray(frame)
                for _ in range(random.choice((1, 1, 2, 8))):
                    # Behind the length, the key and the version: it is the request that is to be wrong.
                    mutant[random.randrange(8, len(mutant))] ^= 1 << random.randrange(8)
                provoke(broker, bytes(mutant))
