"""Messages among nodes from somebody who is no node, and orders to the controller that make no sense.

Who may connect may say that it is a node: nothing here is about who says something, only about what. Whatever it is,
it is refused with an error code or has no effect, costs little, and the node still has a controller afterwards.
"""

import socket
import struct

import pytest
from attack import (
    API_VERSIONS,
    CREATE_TOPICS,
    FETCH,
    GOOD_TOPIC,
    METADATA,
    PRODUCE,
    UNEXPECTED,
    Address,
    Peer,
    answer,
    batch_of,
    body_of,
    create_topic,
    good_client,
    message,
    part_of,
    produce_frame,
    raw_request,
    request,
)
from cluster_attack import (
    ADD_VOTER,
    ALTER_PARTITION,
    BEGIN_EPOCH,
    DESCRIBE_QUORUM,
    ELECT_LEADERS,
    END_EPOCH,
    ENVELOPE,
    FETCH_SNAPSHOT,
    HEARTBEAT,
    INT32_MAX,
    INT64_MAX,
    LIST_REASSIGNMENTS,
    NEWEST_FETCH,
    OF_THE_CLUSTER,
    PRODUCER_IDS,
    REASSIGN,
    REGISTRATION,
    REMOVE_VOTER,
    STRANGER,
    UNREGISTER,
    VOTE,
    create,
    forged_begin,
    forged_end,
    forged_vote,
    in_envelope,
    metadata,
    metadata_fetch,
    of_quorum,
    registration,
    replica_fetch,
    topic_id,
)
from confluent_kafka import Producer

from skidway.errors import ErrorCode
from skidway.testing import Broker, Cluster
from skidway.wire.registry import api
from waiting import comes_true

pytestmark = pytest.mark.xdist_group("hostile-cluster")
LIMITS = {"fetch_sessions_max": 200, "fetch_session_partitions_max": 2_000}
RESIDENT_MIB_MAX = 250
ME = 1
"""The node under attack, as its id goes."""


def has_controller(broker: Broker | Address, name: str) -> bool:
    return comes_true(lambda: create(broker, name) in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS))


def quorum_epoch(peer: Peer) -> int:
    asked = of_quorum(DESCRIBE_QUORUM, partition_index=0)
    return int(peer.call(DESCRIBE_QUORUM, 2, topics=asked).topics[0].partitions[0].leader_epoch)


def test_nothing_said_and_half_of_it(broker: Broker) -> None:
    """Every API of the cluster in every version: without content, and cut off at every byte."""
    with good_client(broker, "cluster APIs, empty and cut off", RESIDENT_MIB_MAX):
        for key in OF_THE_CLUSTER:
            first, last = api(key).versions
            for version in range(first, last + 1):
                with Peer(broker) as peer:
                    peer.call(key, version)
            whole = body_of(key, last, message(key))
            for length in range(len(whole)):
                with Peer(broker) as peer:
                    assert peer.send(raw_request(key, last, whole[:length])).hung_up(), (api(key).name, length)
        assert has_controller(broker, "after-nothing")


def test_epochs_of_the_quorum_that_cannot_be(broker: Broker) -> None:
    """An epoch is never taken back. One that leaves no room for others would be the last."""
    with good_client(broker, "quorum epochs", RESIDENT_MIB_MAX), Peer(broker) as peer:
        before = quorum_epoch(peer)
        for epoch in (INT32_MAX, INT32_MAX - 1, before + (1 << 20) + 1):
            refused = [
                peer.call(VOTE, 2, **forged_vote(ME, epoch)),
                peer.call(VOTE, 2, **forged_vote(ME, epoch, pre_vote=True)),
                peer.call(BEGIN_EPOCH, 1, **forged_begin(ME, epoch)),
                peer.call(END_EPOCH, 1, **forged_end(epoch)),
                peer.call(FETCH, NEWEST_FETCH, **metadata_fetch(epoch=epoch)),
            ]
            assert {reply.error_code for reply in refused} == {ErrorCode.INVALID_REQUEST}
        for epoch in (-1, -(2**31)):
            assert peer.call(VOTE, 2, **forged_vote(ME, epoch)).error_code == ErrorCode.INVALID_REQUEST
            assert peer.call(BEGIN_EPOCH, 1, **forged_begin(ME, epoch)).error_code == ErrorCode.INVALID_REQUEST
            assert peer.call(END_EPOCH, 1, **forged_end(epoch)).error_code == ErrorCode.INVALID_REQUEST
        assert quorum_epoch(peer) == before


def test_messages_of_the_quorum_that_make_no_sense(broker: Broker) -> None:
    with good_client(broker, "quorum messages", RESIDENT_MIB_MAX), Peer(broker) as peer:
        epoch = quorum_epoch(peer)
        for key, vote in ((VOTE, forged_vote(ME, epoch + 1)), (BEGIN_EPOCH, forged_begin(ME, epoch + 1))):
            wrong = peer.call(key, api(key).versions[1], cluster_id="another", **vote)
            assert wrong.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
            twice = peer.call(key, api(key).versions[1], **{**vote, "topics": vote["topics"] * 200})
            assert twice.error_code == ErrorCode.INVALID_REQUEST
            with Peer(broker) as other:
                many = request(key, api(key).versions[1], **{**vote, "topics": vote["topics"] * 2_000})
                assert other.send(many).hung_up(), api(key).name
        (topic,) = peer.call(VOTE, 2, **forged_vote(STRANGER, epoch + 1)).topics
        assert topic.partitions[0].error_code == ErrorCode.INVALID_VOTER_KEY
        # What comes with a later epoch is believed, by Kafka as well; the only voter leads again soon.
        peer.call(VOTE, 2, **forged_vote(ME, epoch + 1))
        assert has_controller(broker, "after-a-vote")
        peer.call(BEGIN_EPOCH, 1, **forged_begin(ME, epoch + 10, leader=INT32_MAX))
        assert has_controller(broker, "after-a-begin")
        peer.call(END_EPOCH, 1, **forged_end(epoch + 20, candidates=900))
        assert has_controller(broker, "after-an-end")


def test_positions_in_the_metadata_that_cannot_be(broker: Broker) -> None:
    with good_client(broker, "metadata positions", RESIDENT_MIB_MAX), Peer(broker) as peer:
        epoch = quorum_epoch(peer)
        for offset, last_epoch in ((INT64_MAX, 0), (INT64_MAX, epoch), (1, INT32_MAX), (2**40, 1)):
            fetch = metadata_fetch(epoch=epoch, offset=offset, last_epoch=last_epoch)
            (partition,) = peer.call(FETCH, NEWEST_FETCH, **fetch).responses[0].partitions
            assert partition.diverging_epoch.epoch >= 0
            assert not partition.records
        for odd in ({"offset": -1}, {"last_epoch": -1}, {"replica": STRANGER, "offset": -INT64_MAX}):
            reply = peer.call(FETCH, NEWEST_FETCH, **metadata_fetch(**{"epoch": epoch, **odd}))
            assert reply.error_code == ErrorCode.INVALID_REQUEST
        snapshot = part_of(FETCH_SNAPSHOT, "SnapshotId")
        for end, position in ((0, INT64_MAX), (INT64_MAX, 0), (1, 2**40)):
            asked = of_quorum(
                FETCH_SNAPSHOT, current_leader_epoch=epoch, snapshot_id=snapshot(end, 0), position=position
            )
            (topic,) = peer.call(FETCH_SNAPSHOT, 1, replica_id=STRANGER, topics=asked).topics
            assert topic.partitions[0].error_code == ErrorCode.SNAPSHOT_NOT_FOUND
        asked = of_quorum(FETCH_SNAPSHOT, current_leader_epoch=epoch, position=-1)
        reply = peer.call(FETCH_SNAPSHOT, 1, replica_id=STRANGER, topics=asked)
        assert reply.error_code == ErrorCode.INVALID_REQUEST


def test_thousands_of_replicas_that_wait_for_metadata(broker: Broker) -> None:
    """Each of them is looked at with every change of the metadata. Those past a bound are answered early, those
    whose connection goes are forgotten."""
    with good_client(broker, "3,000 waiting metadata fetches", RESIDENT_MIB_MAX), Peer(broker) as asking:
        epoch = quorum_epoch(asking)
        partition = asking.call(FETCH, NEWEST_FETCH, **metadata_fetch(epoch=epoch)).responses[0].partitions[0]
        end, last_epoch = partition.high_watermark, epoch
        peers = [Peer(broker) for _ in range(30)]
        for number, peer in enumerate(peers):
            for each in range(100):
                waits = metadata_fetch(
                    number * 100 + each, epoch=epoch, offset=end, last_epoch=last_epoch, wait_ms=INT32_MAX, seen=end
                )
                peer.send(request(FETCH, NEWEST_FETCH, each, **waits))
        for peer in peers[::2]:
            peer.reset()
        assert has_controller(broker, "while-they-wait")
        for peer in peers[1::2]:
            for _ in range(100):
                (found,) = answer(FETCH, NEWEST_FETCH, peer.reply()).responses[0].partitions
                assert found.error_code == ErrorCode.NONE
            peer.reset()


def test_six_thousand_replicas_one_after_the_other(broker: Broker) -> None:
    """Whoever asks for metadata is remembered as an observer, but not all of them."""
    with good_client(broker, "6,000 replicas", RESIDENT_MIB_MAX), Peer(broker) as peer:
        epoch = quorum_epoch(peer)
        for replica in range(0, 6_000, 100):
            frames = [
                request(FETCH, NEWEST_FETCH, **metadata_fetch(1_000 + replica + each, epoch=epoch, offset=0))
                for each in range(100)
            ]
            peer.send(b"".join(frames))
            for _ in frames:
                peer.reply()
        asked = of_quorum(DESCRIBE_QUORUM, partition_index=0)
        (topic,) = peer.call(DESCRIBE_QUORUM, 2, topics=asked).topics
        assert len(topic.partitions[0].observers) <= 4_096


def test_fetches_of_replicas_that_are_none(broker: Broker) -> None:
    create_topic(broker, GOOD_TOPIC, flush="os")
    good = topic_id(broker, GOOD_TOPIC)
    partition = part_of(FETCH, "FetchPartition")
    with good_client(broker, "fake followers", RESIDENT_MIB_MAX), Peer(broker) as peer:
        for replica in (0, ME, STRANGER, INT32_MAX):
            for epoch in (-INT64_MAX, -1, 0, INT64_MAX):
                for offset in (-INT64_MAX, -1, 0, INT64_MAX):
                    asked = replica_fetch(good, [partition(0, fetch_offset=offset)], replica, epoch=epoch)
                    (found,) = peer.call(FETCH, NEWEST_FETCH, **asked).responses[0].partitions
                    assert found.error_code in (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.UNKNOWN_LEADER_EPOCH)
                    assert not found.records
        for session, epoch, code in (
            (INT32_MAX, 1, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (-1, -7, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
            (0, INT32_MAX, ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ):
            asked = replica_fetch(good, [0], STRANGER, session_id=session, session_epoch=epoch)
            assert peer.call(FETCH, NEWEST_FETCH, **asked).error_code == code
        odd = [0, 0, -1, INT32_MAX, *range(5_000)]
        reply = peer.call(FETCH, NEWEST_FETCH, **replica_fetch(good, odd, STRANGER, max_wait_ms=INT32_MAX))
        assert all(found.error_code for topic in reply.responses for found in topic.partitions)
        unknown = replica_fetch(bytes(range(16)), [0], STRANGER, max_wait_ms=INT32_MAX)
        (found,) = peer.call(FETCH, NEWEST_FETCH, **unknown).responses[0].partitions
        assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_more_sessions_of_followers_than_there_may_be(broker: Broker) -> None:
    """Past the bound there are no sessions, and everything is answered all the same."""
    create_topic(broker, GOOD_TOPIC, flush="os")
    good = topic_id(broker, GOOD_TOPIC)
    with good_client(broker, "1,000 sessions of followers", RESIDENT_MIB_MAX), Peer(broker) as peer:
        sessions = set()
        for replica in range(1_000):
            reply = peer.call(FETCH, NEWEST_FETCH, **replica_fetch(good, [0], replica, session_epoch=0))
            assert reply.responses[0].partitions[0].error_code
            sessions.add(reply.session_id)
        assert 0 in sessions
        assert len(sessions - {0}) <= LIMITS["fetch_sessions_max"]


def test_a_broker_nobody_knows_that_follows_a_thousand_times(broker: Broker) -> None:
    """It is registered and given a replica, as any that asks. Of all its fetches that wait the last one counts, and
    when its connections are gone so are they."""
    create_topic(broker, "followed", flush="os")
    followed = topic_id(broker, "followed")
    topic, partition = part_of(REASSIGN, "ReassignableTopic"), part_of(REASSIGN, "ReassignablePartition")
    with good_client(broker, "a false follower", RESIDENT_MIB_MAX), Peer(broker) as peer:
        epoch = peer.call(REGISTRATION, 4, **registration(broker, STRANGER)).broker_epoch
        beat = {"broker_id": STRANGER, "broker_epoch": epoch, "current_metadata_offset": INT64_MAX}
        assert not peer.call(HEARTBEAT, 2, **beat).is_fenced
        reply = peer.call(REASSIGN, 1, topics=[topic("followed", [partition(0, [ME, STRANGER])])])
        assert reply.responses[0].partitions[0].error_code == ErrorCode.NONE
        peers = [Peer(broker) for _ in range(20)]
        for number, follower in enumerate(peers):
            for each in range(50):
                session = 0 if (number + each) % 2 else -1
                asked = replica_fetch(
                    followed, [0], STRANGER, epoch=epoch, max_wait_ms=INT32_MAX, session_epoch=session
                )
                follower.send(request(FETCH, NEWEST_FETCH, each, **{**asked, "min_bytes": INT32_MAX}))
        create_topic(broker, "while-it-follows")
        for follower in peers:
            follower.reset()
        peer.call(HEARTBEAT, 2, **beat, want_fence=True)
        assert peer.call(UNREGISTER, 0, broker_id=STRANGER).error_code == ErrorCode.NONE
        produced = peer.ask(PRODUCE, 8, produce_frame("followed", batch_of(b"mine"), acks=-1))
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE


def test_envelopes_with_something_else_in_them(broker: Broker) -> None:
    order = in_envelope(CREATE_TOPICS, 7, topics=[], timeout_ms=1)
    nested = order
    for _ in range(50):
        nested = in_envelope(ENVELOPE, 0, request_data=nested)
    topics = [part_of(CREATE_TOPICS, "CreatableTopic")("x" * 30_000, -5, -5)] * 1_000
    with good_client(broker, "envelopes", RESIDENT_MIB_MAX), Peer(broker) as peer:
        refused = [
            *(order[:length] for length in range(len(order))),
            nested,
            *(in_envelope(key, api(key).versions[1]) for key in (PRODUCE, FETCH, METADATA, API_VERSIONS)),
            *(in_envelope(key, api(key).versions[1]) for key in (REGISTRATION, HEARTBEAT, VOTE, ALTER_PARTITION)),
            struct.pack(">hhih", CREATE_TOPICS, 99, 1, -1),
            struct.pack(">hhih", API_VERSIONS, 99, 1, -1),
            struct.pack(">hhih", 9_999, 0, 1, -1),
            b"\xff" * 1_000,
            bytes(5_000_000),
        ]
        for data in refused:
            reply = peer.call(ENVELOPE, 0, request_data=data)
            assert (reply.error_code, reply.response_data) == (ErrorCode.INVALID_REQUEST, None), bytes(data[:20])
        for data in (order, order + bytes(1_000), in_envelope(CREATE_TOPICS, 7, topics=topics, timeout_ms=-1)):
            assert peer.call(ENVELOPE, 0, request_data=data, request_principal=None).error_code == ErrorCode.NONE
        for principal in (b"", b"\0", b"\0\1", b"\0\0", b"\0\0" + b"\xff" * 1_000, bytes(1_000_000)):
            reply = peer.call(ENVELOPE, 0, request_data=order, request_principal=principal)
            assert reply.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, principal[:20]
        for address in (b"1", bytes(5), bytes(1_000_000)):
            reply = peer.call(ENVELOPE, 0, request_data=order, request_principal=None, client_host_address=address)
            assert reply.error_code == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, address[:20]


def test_brokers_that_are_none(broker: Broker) -> None:
    listener = part_of(REGISTRATION, "Listener")
    feature = part_of(REGISTRATION, "Feature")
    with good_client(broker, "registrations and heartbeats", RESIDENT_MIB_MAX), Peer(broker) as peer:
        odd: list[dict[str, object]] = [
            {"listeners": []},
            {"listeners": [listener("L", "host", 1, 0)] * 900},
            {"listeners": [listener("L", "", 1, 0)]},
            {"listeners": [listener("L", "h" * 30_000, 1, 0)]},
            {"rack": "r" * 30_000},
            {"features": [feature(f"f{each}", 0, 1) for each in range(900)]},
            {"log_dirs": [struct.pack(">qq", 3, each) for each in range(900)]},
            {"broker_id": -1},
        ]
        thousands: list[dict[str, object]] = [
            {"listeners": [listener("L", "host", 1, 0)] * 10_000},
            {"features": [feature(f"f{each}", 0, 1) for each in range(10_000)]},
            {"log_dirs": [struct.pack(">qq", 3, each) for each in range(10_000)]},
        ]
        for fields in thousands:
            with Peer(broker) as other:
                frame = request(REGISTRATION, 4, **{**registration(broker, 10**9), **fields})
                assert other.send(frame).hung_up(), list(fields)
        for fields in odd:
            reply = peer.call(REGISTRATION, 4, **{**registration(broker, 10**9), **fields})
            assert (reply.error_code, reply.broker_epoch) == (ErrorCode.INVALID_REQUEST, -1), list(fields)
        elsewhere = registration(broker, 10**9, cluster_id="another")
        assert peer.call(REGISTRATION, 4, **elsewhere).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID
        mine = peer.call(REGISTRATION, 4, **registration(broker, ME))
        assert mine.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
        copied = registration(broker, 10**9, log_dirs=[bytes(16)])
        assert peer.call(REGISTRATION, 4, **copied).error_code == ErrorCode.INVALID_REGISTRATION
        for broker_id, epoch in ((STRANGER, 0), (ME, -1), (ME, INT64_MAX), (-1, -1), (INT32_MAX, 1)):
            for wish in ({}, {"want_fence": True}, {"want_shut_down": True}):
                # Each on a connection of its own: that it ends makes a broker suspect.
                with Peer(broker) as other:
                    beat = other.call(HEARTBEAT, 2, broker_id=broker_id, broker_epoch=epoch, **wish)
                assert beat.error_code == ErrorCode.STALE_BROKER_EPOCH
            ids = peer.call(PRODUCER_IDS, 0, broker_id=broker_id, broker_epoch=epoch)
            assert ids.error_code == ErrorCode.STALE_BROKER_EPOCH
        for broker_id in (-1, STRANGER, INT32_MAX):
            assert peer.call(UNREGISTER, 0, broker_id=broker_id).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert peer.call(UNREGISTER, 0, broker_id=ME).error_code == ErrorCode.INVALID_REQUEST, "it is up"
        assert [node.node_id for node in metadata(broker).brokers] == [ME]


def test_a_broker_at_an_address_that_is_none(broker: Broker) -> None:
    """It is registered, as nobody can know better; it is unregistered, and nothing is left."""
    listener = part_of(REGISTRATION, "Listener")
    with good_client(broker, "absurd addresses", RESIDENT_MIB_MAX), Peer(broker) as peer:
        for number, host in enumerate(("\0", "a..b", "é" * 200, "x" * 255, "256.256.256.256", " ")):
            odd = registration(broker, 100 + number, listeners=[listener("PLAINTEXT", host, 0, -1)])
            reply = peer.call(REGISTRATION, 4, **odd)
            assert reply.error_code == ErrorCode.NONE
            beat = {"broker_id": 100 + number, "broker_epoch": reply.broker_epoch}
            assert peer.call(HEARTBEAT, 2, current_metadata_offset=INT64_MAX, **beat).error_code == ErrorCode.NONE
            assert 100 + number in {node.node_id for node in metadata(broker).brokers}
            peer.call(HEARTBEAT, 2, current_metadata_offset=INT64_MAX, want_fence=True, **beat)
            assert peer.call(UNREGISTER, 0, broker_id=100 + number).error_code == ErrorCode.NONE
        assert [node.node_id for node in metadata(broker).brokers] == [ME]


def test_in_sync_sets_that_cannot_be(broker: Broker) -> None:
    create_topic(broker, GOOD_TOPIC, flush="os")
    good = topic_id(broker, GOOD_TOPIC)
    topic, partition = part_of(ALTER_PARTITION, "RequestTopicData"), part_of(ALTER_PARTITION, "RequestPartitionData")
    member = part_of(ALTER_PARTITION, "BrokerState")
    with good_client(broker, "in-sync sets", RESIDENT_MIB_MAX), Peer(broker) as peer:
        epoch = _own_epoch(peer)
        for broker_id, broker_epoch in ((STRANGER, 0), (ME, -1), (ME, epoch + 1), (-1, -1)):
            reply = peer.call(ALTER_PARTITION, 3, broker_id=broker_id, broker_epoch=broker_epoch)
            assert reply.error_code == ErrorCode.STALE_BROKER_EPOCH
        refused: dict[ErrorCode, list[tuple[list[int], int, int, int]]] = {
            ErrorCode.INVALID_REQUEST: [([ME, ME], 0, 0, 0), ([STRANGER], 0, 0, 0), ([ME], 0, 0, 5)],
            # It says that the copy here is damaged, and there is no other.
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: [([], 0, 0, 0)],
            ErrorCode.FENCED_LEADER_EPOCH: [([ME], -1, 0, 0), ([STRANGER], -(2**31), 0, 0)],
            ErrorCode.NOT_CONTROLLER: [([ME], INT32_MAX, 0, 0), ([ME], 0, INT32_MAX, 0)],
        }
        refused[ErrorCode.INVALID_REQUEST].append((list(range(5_000)), 0, 0, 0))
        for code, each in refused.items():
            for members, leader_epoch, partition_epoch, state in each:
                asked = partition(0, leader_epoch, [], [member(one, -1) for one in members], state, partition_epoch)
                reply = peer.call(
                    ALTER_PARTITION, 3, broker_id=ME, broker_epoch=epoch, topics=[topic(good, [asked] * 3)] * 2
                )
                assert {one.error_code for named in reply.topics for one in named.partitions} == {code}, members[:5]
        unknown = [topic(good, [partition(index) for index in (-1, 1, INT32_MAX)]), topic(bytes(16), [partition(0)])]
        reply = peer.call(ALTER_PARTITION, 3, broker_id=ME, broker_epoch=epoch, topics=unknown)
        assert [one.error_code for named in reply.topics for one in named.partitions] == [3, 3, 3, 100]


def _own_epoch(peer: Peer) -> int:
    """It is no secret: a small number, and a heartbeat says whether it is the one."""
    for epoch in range(10_000):
        if peer.call(HEARTBEAT, 2, broker_id=ME, broker_epoch=epoch).error_code == ErrorCode.NONE:
            return epoch
    raise AssertionError("the broker's epoch was not found")


def test_orders_to_the_controller_that_cannot_be_obeyed(broker: Broker) -> None:
    create_topic(broker, GOOD_TOPIC, flush="os")
    topic, partition = part_of(REASSIGN, "ReassignableTopic"), part_of(REASSIGN, "ReassignablePartition")
    with good_client(broker, "reassignments and elections", RESIDENT_MIB_MAX), Peer(broker) as peer:
        for replicas in ([ME] * 19_000, list(range(10_000)), [-1], [], [ME, ME], [INT32_MAX], [ME, STRANGER]):
            reply = peer.call(REASSIGN, 1, topics=[topic(GOOD_TOPIC, [partition(0, replicas)] * 10)])
            codes = {one.error_code for one in reply.responses[0].partitions}
            assert codes == {ErrorCode.INVALID_REPLICA_ASSIGNMENT}
        reply = peer.call(REASSIGN, 1, topics=[topic(GOOD_TOPIC, [partition(0, None)] * 5_000)])
        codes = {one.error_code for one in reply.responses[0].partitions}
        assert codes == {ErrorCode.NO_REASSIGNMENT_IN_PROGRESS}
        unknown = [topic("x" * 32_000, [partition(index, [ME]) for index in (-1, 0, INT32_MAX)])] * 100
        reply = peer.call(REASSIGN, 1, topics=unknown)
        assert {one.error_code for named in reply.responses for one in named.partitions} == {3}
        listed = part_of(LIST_REASSIGNMENTS, "ListPartitionReassignmentsTopics")
        asked = [listed(GOOD_TOPIC, [0, -1, INT32_MAX] * 10_000), listed("x" * 32_000, [0])]
        assert peer.call(LIST_REASSIGNMENTS, 0, topics=asked).topics == []
        for kind in (-128, -1, 2, 127):
            reply = peer.call(ELECT_LEADERS, 2, election_type=kind, topic_partitions=None)
            assert reply.error_code == ErrorCode.INVALID_REQUEST
        named = part_of(ELECT_LEADERS, "TopicPartitions")
        asked = [named(GOOD_TOPIC, [0] * 5_000), named(GOOD_TOPIC, [-1, INT32_MAX]), named("x" * 32_000, [0])]
        results = peer.call(ELECT_LEADERS, 2, topic_partitions=asked).replica_election_results
        elected = [{one.error_code for one in result.partition_result} for result in results]
        assert elected == [{ErrorCode.ELECTION_NOT_NEEDED, 3}, {3}], "a topic that is named twice is answered once"


def test_voters_that_are_none(broker: Broker) -> None:
    listener = part_of(ADD_VOTER, "Listener")
    someone = {"cluster_id": None, "voter_id": STRANGER, "voter_directory_id": b"d" * 16, "timeout_ms": INT32_MAX}
    here = [listener("CONTROLLER", "host", 1)]
    with good_client(broker, "voters", RESIDENT_MIB_MAX), Peer(broker) as peer:
        for fields, code in (
            ({"listeners": []}, ErrorCode.INVALID_REQUEST),
            ({"listeners": [listener("L", "h" * 30_000, 1)] * 1_000}, ErrorCode.INVALID_REQUEST),
            ({"listeners": [listener("L", "", 0)]}, ErrorCode.INVALID_REQUEST),
            ({"listeners": here, "voter_id": -1}, ErrorCode.INVALID_REQUEST),
            ({"listeners": here, "voter_directory_id": bytes(16)}, ErrorCode.INVALID_REQUEST),
            ({"listeners": here, "cluster_id": "another"}, ErrorCode.INCONSISTENT_CLUSTER_ID),
            ({"listeners": here, "voter_id": ME}, ErrorCode.DUPLICATE_VOTER),
            ({"listeners": [listener("L", "\0", 1)]}, ErrorCode.REQUEST_TIMED_OUT),
            ({"listeners": here, "timeout_ms": -INT32_MAX}, ErrorCode.REQUEST_TIMED_OUT),
        ):
            reply = peer.call(ADD_VOTER, 1, **{**someone, **fields})
            assert reply.error_code == code, list(fields)
        for voter, directory in ((ME, b"d" * 16), (STRANGER, b"d" * 16), (-1, bytes(16)), (ME, bytes(16))):
            reply = peer.call(REMOVE_VOTER, 0, cluster_id=None, voter_id=voter, voter_directory_id=directory)
            assert reply.error_code in (ErrorCode.INVALID_REQUEST, ErrorCode.VOTER_NOT_FOUND)
        assert has_controller(broker, "after-the-voters")


def nonsense_changes_nothing(cluster: Cluster) -> bool:
    """Whether each node refused it as what it is, and the controller stayed."""
    controller = cluster.controller()
    as_expected = True
    for node, broker in cluster.brokers.items():
        with Peer(broker) as peer:
            for epoch in (INT32_MAX, INT32_MAX - 1):
                assert peer.call(VOTE, 2, **forged_vote(node, epoch)).error_code == ErrorCode.INVALID_REQUEST
                assert peer.call(BEGIN_EPOCH, 1, **forged_begin(node, epoch)).error_code == 42
            order = in_envelope(CREATE_TOPICS, 7, topics=[], timeout_ms=1)
            code = peer.call(ENVELOPE, 0, request_data=order, request_principal=None).error_code
            as_expected &= code == (ErrorCode.NONE if node == controller else ErrorCode.NOT_CONTROLLER)
            for key in (HEARTBEAT, PRODUCER_IDS, ALTER_PARTITION):
                reply = peer.call(key, api(key).versions[1], broker_id=node, broker_epoch=INT64_MAX)
                refused = ErrorCode.STALE_BROKER_EPOCH if node == controller else ErrorCode.NOT_CONTROLLER
                as_expected &= reply.error_code == refused
            # Forwarded, from whichever node, and answered by the controller.
            reply = peer.call(ELECT_LEADERS, 2, election_type=77, topic_partitions=None)
            assert reply.error_code == ErrorCode.INVALID_REQUEST
            assert peer.call(UNREGISTER, 0, broker_id=-1).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    return as_expected and cluster.controller() == controller


def test_a_cluster_that_is_told_nonsense_on_every_node() -> None:
    """The voters agree on whom to believe; a node that is not the controller passes on only what may be passed on."""
    with Cluster(3, network=False, drain_ms=500) as cluster:
        # On a busy machine another node may become the controller meanwhile; not every time.
        assert any(nonsense_changes_nothing(cluster) for _ in range(4))
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        producer.produce("orders", b"still here")
        assert producer.flush(60) == 0
        for broker in cluster.brokers.values():
            assert broker.running
            assert UNEXPECTED.findall(broker.output) == [], broker.output[-4000:]


def test_a_stranger_that_says_it_leads_the_quorum_is_asked_nothing() -> None:
    """Its metadata would be believed. Neither the address in what it says counts, nor that of its broker."""
    listener, endpoint = part_of(REGISTRATION, "Listener"), part_of(BEGIN_EPOCH, "LeaderEndpoint")
    with Cluster(3, network=False, drain_ms=500) as cluster, socket.socket() as stranger:
        stranger.bind(("127.0.0.1", 0))
        stranger.listen()
        stranger.setblocking(False)
        port = stranger.getsockname()[1]
        controller = cluster[cluster.controller()]
        with Peer(controller) as peer:
            here = registration(controller, STRANGER, listeners=[listener("PLAINTEXT", "127.0.0.1", port, 0)])
            assert peer.call(REGISTRATION, 4, **here).error_code == ErrorCode.NONE
            epoch = quorum_epoch(peer) + 1
        assert has_controller(controller, "before")
        for node, broker in cluster.brokers.items():
            with Peer(broker) as peer:
                said = {**forged_begin(node, epoch), "leader_endpoints": [endpoint("CONTROLLER", "127.0.0.1", port)]}
                (topic,) = peer.call(BEGIN_EPOCH, 1, **said).topics
                assert topic.partitions[0].leader_id != STRANGER
                other = peer.call(BEGIN_EPOCH, 1, **forged_begin(node + 1, epoch + 100)).topics[0].partitions[0]
                assert other.error_code == ErrorCode.INVALID_VOTER_KEY
        assert all(has_controller(broker, "after") for broker in cluster.brokers.values())
        with pytest.raises(BlockingIOError):
            stranger.accept()
