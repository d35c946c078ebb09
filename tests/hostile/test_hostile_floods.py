"""Requests that are each well-formed, in numbers and sizes no good client would send."""

import struct
import time
from typing import Any

import pytest
from attack import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_PRODUCERS,
    FETCH,
    INIT_PRODUCER_ID,
    METADATA,
    MIB,
    PRODUCE,
    Peer,
    answer,
    batch_of,
    create_topic,
    fetch_frame,
    framed,
    good_client,
    part_of,
    produce_frame,
    request,
    resident_bytes,
)

from skidway.records.record import Record, build_batch
from skidway.testing import Broker
from waiting import eventually

pytestmark = pytest.mark.xdist_group("hostile-floods")
LIMITS = {
    "connections_max": 400,
    "connections_per_ip_max": 300,
    "producers_per_partition_max": 1_000,
    "fetch_sessions_max": 100,
    "replies_bytes_max": 64 * MIB,
    "partitions_max": 3_000,
    "topics_auto_created_max": 50,
}
RESIDENT_MIB_MAX = 500
POLICY_VIOLATION = 44


def new_topic(name: str, partitions: int = 1) -> Any:
    return part_of(CREATE_TOPICS, "CreatableTopic")(name, partitions, 1)


def test_fetches_of_very_many_partitions(broker: Broker) -> None:
    create_topic(broker, "fetched", flush="os")
    with Peer(broker) as peer:
        peer.ask(PRODUCE, 8, produce_frame("fetched", batch_of(b"x" * 1000)))
        with good_client(broker, "Fetch of 50,000 partitions", RESIDENT_MIB_MAX):
            for _ in range(2):
                peer.send(fetch_frame("fetched", range(50_000), max_bytes=2**31 - 1)).reply()
            named_often = peer.ask(FETCH, 11, fetch_frame("fetched", [0] * 50_000, max_bytes=2**31 - 1))
            assert [len(topic.partitions) for topic in named_often.responses] == [1]
            # More than any broker has: no reply, however patient the peer.
            with pytest.raises(ConnectionError):
                peer.send(fetch_frame("fetched", range(100_000), max_bytes=2**31 - 1)).reply()


def test_a_fetch_that_claims_to_be_a_replica(broker: Broker) -> None:
    """It must neither read what is not committed nor move anything, whoever it says it is."""
    create_topic(broker, "replica", flush="os")
    with Peer(broker) as peer:
        for replica_id in (0, 1, 2, 2**31 - 1):
            fetched = peer.ask(FETCH, 11, fetch_frame("replica", [0], replica_id=replica_id))
            assert fetched.responses[0].partitions[0].error_code != 0


def settled_bytes(broker: Broker) -> int:
    """The memory it takes when it has not changed for a while: all that was sent is read by then."""
    sizes = [resident_bytes(broker.pid)]
    while len(sizes) < 6 or max(sizes[-6:]) - min(sizes[-6:]) > MIB:
        time.sleep(0.05)
        sizes.append(resident_bytes(broker.pid))
        assert len(sizes) < 1_000, "it grows and grows"
    return sizes[-1]


def test_long_polls_that_are_left_behind(broker: Broker) -> None:
    """Every round parks ten thousand fetches and hangs up: what one round took is free for the next."""
    create_topic(broker, "polled", 20, flush="os")
    frames = fetch_frame("polled", range(20), max_wait_ms=2**31 - 1, min_bytes=2**31 - 1) * 200
    sizes = []
    with good_client(broker, "long polls of 20 partitions, 50 × 200, 8 rounds", RESIDENT_MIB_MAX):
        for _ in range(8):
            peers = [Peer(broker).send(frames) for _ in range(50)]
            sizes.append(settled_bytes(broker))
            for peer in peers:
                peer.reset()
    assert sizes[-1] < sizes[2] + 30 * MIB, [size // MIB for size in sizes]


def test_fetch_sessions_by_the_thousand(broker: Broker) -> None:
    create_topic(broker, "sessions", 50, flush="os")
    frame = fetch_frame("sessions", range(50), session_id=0, session_epoch=0)
    with good_client(broker, "300 fetch sessions", RESIDENT_MIB_MAX), Peer(broker) as peer:
        given = 0
        for _ in range(3):
            peer.send(frame * 100)
            given += sum(answer(FETCH, 11, peer.reply()).session_id != 0 for _ in range(100))
    assert given <= 100


def test_creating_more_than_there_can_be(broker: Broker) -> None:
    with good_client(broker, "CreateTopics: 10⁶ partitions, 100,000 topics", RESIDENT_MIB_MAX), Peer(broker) as peer:
        (million,) = peer.call(CREATE_TOPICS, 7, topics=[new_topic("million", 10**6)]).topics
        assert million.error_code == 37
        (largest,) = peer.call(CREATE_TOPICS, 7, topics=[new_topic("largest", 2**31 - 1)]).topics
        assert largest.error_code == 37
        many = peer.call(CREATE_TOPICS, 7, topics=[new_topic(f"many-{n}") for n in range(100_000)]).topics
        assert {topic.error_code for topic in many} == {POLICY_VIOLATION}
        wide = peer.call(CREATE_TOPICS, 7, validate_only=True, topics=[new_topic(f"w-{n}", 9_999) for n in range(300)])
        assert {topic.error_code for topic in wide.topics} == {POLICY_VIOLATION}
        names = ["", ".", "..", "a/b", "x" * 250, "é", "a\0b", "../../etc/passwd", " "]
        refused = peer.call(CREATE_TOPICS, 7, topics=[new_topic(name) for name in names]).topics
        assert {topic.error_code for topic in refused} == {17}


def test_metadata_of_everything_and_partitions_that_come_and_go(broker: Broker) -> None:
    """1,000 topics and a topic of 1,000 partitions: made, listed without reading the answers, and deleted again."""
    topics = [new_topic(f"listed-{n}") for n in range(1000)]
    with good_client(broker, "2,000 partitions created at once", RESIDENT_MIB_MAX), Peer(broker, 60) as peer:
        made = peer.call(CREATE_TOPICS, 7, topics=[*topics, new_topic("listed-wide", 1000)], timeout_ms=60_000)
        assert {topic.error_code for topic in made.topics} == {0}
    with good_client(broker, "Metadata of all, 1,000 at once, 20 unread", RESIDENT_MIB_MAX):
        unread = [Peer(broker, receive_bytes=4096).send(request(METADATA, 12, topics=None) * 50) for _ in range(20)]
        with Peer(broker) as peer:
            asked = part_of(METADATA, "MetadataRequestTopic")(bytes(16), "listed-wide")
            (once,) = peer.call(METADATA, 12, topics=[asked] * 10_000).topics
            assert len(once.partitions) == 1000
            described = part_of(DESCRIBE_CONFIGS, "DescribeConfigsResource")(2, "listed-wide", None)
            assert len(peer.call(DESCRIBE_CONFIGS, 4, resources=[described] * 10_000).results) == 1
        time.sleep(1)
        for slow in unread:
            slow.reset()
    with good_client(broker, "2,000 partitions deleted at once", RESIDENT_MIB_MAX), Peer(broker, 60) as peer:
        gone = [part_of(DELETE_TOPICS, "DeleteTopicState")(topic.name) for topic in (*topics, new_topic("listed-wide"))]
        deleted = peer.call(DELETE_TOPICS, 6, topics=gone, timeout_ms=60_000).responses
        assert {topic.error_code for topic in deleted} == {0}


def test_a_storm_of_names_to_be_created(broker: Broker) -> None:
    """Only so many topics come into being by one request, and never more partitions than there may be."""
    asked = [part_of(METADATA, "MetadataRequestTopic")(bytes(16), f"storm-{n}") for n in range(20_000)]
    with good_client(broker, "auto-create of 20,000 names", RESIDENT_MIB_MAX), Peer(broker, 60) as peer:
        for _ in range(2):
            found = peer.call(METADATA, 12, topics=asked, allow_auto_topic_creation=True).topics
        assert sum(topic.error_code == 0 for topic in found) == 100


def test_producers_without_end(broker: Broker) -> None:
    topic = create_topic(broker, "producers", flush="os")
    now_ms = time.time_ns() // 1_000_000
    frames = [
        produce_frame(
            topic, bytes(build_batch([Record(0, now_ms, None, b"x")], producer_id=n, producer_epoch=0, base_sequence=0))
        )
        for n in range(2500)
    ]
    with good_client(broker, "2,500 InitProducerId, 2,500 producers", RESIDENT_MIB_MAX), Peer(broker) as peer:
        peer.send(request(INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1000) * 2500)
        ids = {answer(INIT_PRODUCER_ID, 4, peer.reply()).producer_id for _ in range(2500)}
        assert len(ids) == 2500
        for first in range(0, 2500, 100):
            peer.send(b"".join(frames[first : first + 100]))
            for _ in range(100):
                peer.reply()
        asked = part_of(DESCRIBE_PRODUCERS, "TopicRequest")(topic, [0] * 1000)
        (partition,) = peer.call(DESCRIBE_PRODUCERS, 0, topics=[asked]).topics[0].partitions
        assert 500 < len(partition.active_producers) <= 1000


def is_let_in(broker: Broker) -> bool:
    try:
        with Peer(broker) as peer:
            return bool(peer.call(API_VERSIONS, 0).error_code == 0)
    except ConnectionError:
        return False


def test_connections_beyond_the_limit(broker: Broker) -> None:
    """The good client is one of the 300 this address may have; what is over is turned away, and room comes back."""
    with good_client(broker, "600 connections, 3,000 reconnects", RESIDENT_MIB_MAX):
        peers = [Peer(broker) for _ in range(600)]
        answered = 0
        for peer in peers:
            try:
                answered += peer.send(request(API_VERSIONS, 0)).call(API_VERSIONS, 0).error_code == 0
            except ConnectionError:
                pass
        # Fewer than there may be, where those of the attacks before are still being closed.
        assert 200 <= answered <= 300
        for peer in peers:
            peer.socket.close()
        for number in range(3000):
            peer = Peer(broker)
            if number % 2:
                peer.reset()
            peer.socket.close()
        eventually(lambda: is_let_in(broker))


def test_replies_that_nobody_reads(broker: Broker) -> None:
    """A connection that only sends is not read any more once its replies pile up."""
    topic = create_topic(broker, "unread", flush="os")
    frame = fetch_frame(topic, [0], max_bytes=MIB)
    with Peer(broker) as peer:
        peer.ask(PRODUCE, 8, produce_frame(topic, batch_of(b"x" * 900_000)))
    with good_client(broker, "40 connections that never read", RESIDENT_MIB_MAX):
        peers = [Peer(broker, receive_bytes=4096) for _ in range(40)]
        taken = 0
        for peer in peers:
            peer.socket.setblocking(False)
            lots = (frame + request(API_VERSIONS, 0)) * 20_000
            try:
                while taken < 2**32:
                    taken += peer.socket.send(lots)
            except (BlockingIOError, ConnectionError):
                pass
        assert taken < 40 * 32 * MIB, f"{taken // MIB} MiB of requests were taken in"
        for peer in peers:
            peer.reset()


def test_a_flood_of_every_small_request(broker: Broker) -> None:
    """Ten connections send as fast as they can; the others' turn comes all the same."""
    burst = (
        request(API_VERSIONS, 0)
        + request(METADATA, 12, topics=[])
        + request(INIT_PRODUCER_ID, 4, transactional_id="no", transaction_timeout_ms=1)
        + framed(struct.pack(">hhih", API_VERSIONS, 77, 1, -1) + b"\0")
    ) * 2000
    with good_client(broker, "8,000 small requests × 10", RESIDENT_MIB_MAX):
        peers = [Peer(broker) for _ in range(10)]
        for peer in peers:
            peer.socket.setblocking(False)
            try:
                peer.socket.send(burst)
            except BlockingIOError:
                pass
        time.sleep(1.5)
        for peer in peers:
            peer.reset()
