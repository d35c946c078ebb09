"""Frames, headers and bodies that no client would send: only the connection they came on pays for them."""

import contextlib
import struct
import time

import pytest
from attack import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    FETCH,
    METADATA,
    MIB,
    PRODUCE,
    Peer,
    batch_of,
    create_topic,
    framed,
    good_client,
    part_of,
    produce_frame,
    raw_request,
    request,
    uvarint,
)

from skidway.testing import Broker
from skidway.wire.primitives import TAGS_MAX

pytestmark = pytest.mark.xdist_group("hostile-frames")
LIMITS = {"receive_bytes_max": 128 * MIB, "frame_complete_ms": 2_000}
RESIDENT_MIB_MAX = 400
FRAME_BYTES_MAX = 100 * MIB
BLOCKED_S = 0.3


def is_refused(broker: Broker, data: bytes) -> bool:
    with Peer(broker) as peer:
        return peer.send(data).hung_up()


def test_frame_lengths_that_cannot_be(broker: Broker) -> None:
    with good_client(broker, "frame lengths", RESIDENT_MIB_MAX):
        for length in (-1, -(2**31), 0, 1, 7, 2**31 - 1, FRAME_BYTES_MAX + 1):
            assert is_refused(broker, struct.pack(">i", length) + bytes(64)), length


@pytest.mark.parametrize(
    ("first", "named"),
    [
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "speaks TLS and this listener is plaintext"),
        (b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n", "speaks HTTP"),
        (b"POST /topics HTTP/1.1\r\n\r\n", "speaks HTTP"),
    ],
)
def test_a_client_of_another_protocol_is_named_once(fresh_broker: Broker, first: bytes, named: str) -> None:
    """Clients connect again and again, many times a second."""
    for _ in range(12):
        assert is_refused(fresh_broker, first)
    lines = [line for line in fresh_broker.output.splitlines() if "closed the connection" in line]
    assert len(lines) == 1
    assert "WARNING" in lines[0]
    assert named in lines[0]
    assert "127.0.0.1" in lines[0]


def test_a_hundred_frames_of_a_hundred_megabytes_that_never_come(broker: Broker) -> None:
    """Memory follows the bytes received, not the bytes announced; after two seconds the peers are dropped."""
    with good_client(broker, "slowloris: 200 × 100 MiB announced", RESIDENT_MIB_MAX):
        peers = [Peer(broker).send(struct.pack(">i", FRAME_BYTES_MAX) + bytes(100)) for _ in range(200)]
        for _ in range(10):
            time.sleep(0.1)
            for peer in peers:
                peer.send(b"\0")
        assert all(peer.hung_up() for peer in peers)
        for peer in peers:
            peer.socket.close()


def begin_long_frames(broker: Broker, count: int) -> list[Peer]:
    """Frames of 80 MiB that stop half-way, or where the broker takes no more of them."""
    peers = [Peer(broker, BLOCKED_S).send(struct.pack(">i", 80 * MIB)) for _ in range(count)]
    # Some of each first, then the rest: one of them goes on where there is no room for any other.
    for megabytes in (9, 31):
        for peer in peers:
            with contextlib.suppress(TimeoutError):
                for _ in range(megabytes):
                    peer.send(bytes(MIB))
    return peers


def test_more_bytes_of_unfinished_frames_than_there_is_memory(broker: Broker) -> None:
    """Long frames that stop half-way fill what there is for them, and in the end they go."""
    with good_client(broker, "8 frames of 80 MiB, half sent", RESIDENT_MIB_MAX):
        for peer in begin_long_frames(broker, 8):
            peer.socket.settimeout(20)
            assert peer.hung_up()
            peer.socket.close()


def test_short_frames_are_served_while_long_ones_fill_the_memory() -> None:
    """At once and on the first try: the long ones stay for a minute here, so nothing is waited for but the answer."""
    with Broker(limits={**LIMITS, "frame_complete_ms": 60_000}, drain_ms=500) as broker:
        topic = create_topic(broker, "short", flush="os")
        peers = begin_long_frames(broker, 8)
        for _ in range(20):
            with Peer(broker) as short:
                produced = short.ask(PRODUCE, 8, produce_frame(topic, batch_of(bytes(60_000))))
                assert produced.responses[0].partition_responses[0].error_code == 0
        for peer in peers:
            peer.socket.close()


ARRAY = {"fetch v11": (FETCH, 11, struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, 0)), "metadata v4": (METADATA, 4, b"")}


@pytest.mark.parametrize("where", ARRAY)
def test_array_lengths_that_cannot_be(broker: Broker, where: str) -> None:
    key, version, before = ARRAY[where]
    for count in (2**31 - 1, 1_000_000, 1000, *([-2, -(2**31)] if key == FETCH else [])):
        assert is_refused(broker, raw_request(key, version, before + struct.pack(">i", count) + bytes(100))), count
    for count in (2**32 - 1, 2**31, 1_000_000):
        assert is_refused(broker, raw_request(METADATA, 12, uvarint(count) + bytes(100))), count


def test_arrays_that_multiply_and_elements_without_width(broker: Broker) -> None:
    with good_client(broker, "array bombs", RESIDENT_MIB_MAX):
        # 65,536 topics that each announce 65,536 partitions: more than remains, at the very first of them.
        body = struct.pack(">iiiibii", -1, 0, 0, 0, 0, 0, 0) + struct.pack(">i", 65_536)
        assert is_refused(broker, raw_request(FETCH, 11, body + struct.pack(">hi", 0, 65_536) * 65_536))
        # Smallest elements there are: an empty topic name (2 bytes) and an empty array (4), a million times over.
        assert is_refused(broker, raw_request(FETCH, 11, body[:-4] + struct.pack(">i", MIB) + bytes(6 * MIB)))
        # Names of no bytes: each costs one byte on the wire.
        assert is_refused(broker, raw_request(DELETE_TOPICS, 4, uvarint(8 * MIB) + b"\1" * 8 * MIB + bytes(5)))
        nested = uvarint(1001) + (uvarint(1) + uvarint(1001) + bytes(1000)) * 1000
        assert is_refused(broker, raw_request(CREATE_TOPICS, 7, nested + bytes(100)))


def header_with(tags: bytes) -> bytes:
    return struct.pack(">hhih", METADATA, 12, 1, -1) + tags


def test_tagged_fields_that_explode(broker: Broker) -> None:
    body = bytes(4)  # no topics (null), two flags, no tags
    with good_client(broker, "tagged-field bombs", RESIDENT_MIB_MAX):
        assert is_refused(broker, framed(header_with(uvarint(20_000_000) + bytes(40_000_000)) + body))
        assert is_refused(broker, framed(header_with(uvarint(2**32 - 1)) + body))
        assert is_refused(broker, framed(header_with(uvarint(1) + uvarint(0) + uvarint(2**31)) + body))
        assert is_refused(broker, raw_request(METADATA, 12, body[:3] + uvarint(20_000_000) + bytes(40_000_000)))
        assert is_refused(broker, raw_request(METADATA, 12, body[:3] + uvarint(1) + uvarint(9) + uvarint(2**30)))
        many = uvarint(TAGS_MAX) + bytes(2 * TAGS_MAX)  # as many as are read, all of tag 0 and empty
        with Peer(broker) as peer:
            assert peer.send(framed(header_with(many) + body[:3] + many)).reply()
        too_many = uvarint(TAGS_MAX + 1) + bytes(2 * TAGS_MAX + 2)
        assert is_refused(broker, framed(header_with(too_many) + body))
        assert is_refused(broker, raw_request(METADATA, 12, body[:3] + too_many))


def test_tags_out_of_order_or_twice_are_no_danger(broker: Broker) -> None:
    for tags in ((3, 3), (9, 1), (2**32 - 1, 0)):
        fields = b"".join(uvarint(tag) + b"\1x" for tag in tags)
        with Peer(broker) as peer:
            assert peer.send(framed(header_with(uvarint(2) + fields) + bytes(4))).reply()


def test_varints_that_do_not_end(broker: Broker) -> None:
    assert is_refused(broker, framed(header_with(b"\x80" * 6 + b"\x01") + bytes(4)))
    assert is_refused(broker, raw_request(METADATA, 12, b"\xff" * 200))
    # Overlong but no more than five bytes: allowed, as it is by Kafka.
    with Peer(broker) as peer:
        assert peer.send(framed(header_with(b"\x80\x80\x00") + bytes(4))).reply()


def test_strings_that_are_none(broker: Broker) -> None:
    for text in (b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"abc\xf5"):
        named = struct.pack(">ih", 1, len(text)) + text + b"\0"
        assert is_refused(broker, raw_request(METADATA, 4, named)), text
        header = struct.pack(">hhih", METADATA, 4, 1, len(text)) + text
        assert is_refused(broker, framed(header + struct.pack(">ib", 0, 0))), text
    assert is_refused(broker, raw_request(METADATA, 4, struct.pack(">ih", 1, -1) + b"\0"))
    assert is_refused(broker, raw_request(METADATA, 12, uvarint(2) + bytes(16) + uvarint(2**15 + 1) + b"a" * 2**15))


def test_the_longest_strings_are_answered(broker: Broker) -> None:
    """Names of 32,767 bytes come back in replies, and error messages quote them."""
    name = "x" * 32_767
    topic = part_of(CREATE_TOPICS, "CreatableTopic")
    data = part_of(PRODUCE, "TopicProduceData")(name, partition_data=[part_of(PRODUCE, "PartitionProduceData")(0)])
    with Peer(broker) as peer:
        for version in (0, 4, 9, 12):
            asked = [part_of(METADATA, "MetadataRequestTopic")(bytes(16), name)]
            (found,) = peer.call(METADATA, version, topics=asked, allow_auto_topic_creation=True).topics
            assert (found.error_code, found.name) == (17, name)
        for version in (2, 4, 7):
            (made,) = peer.call(CREATE_TOPICS, version, topics=[topic(name, 1, 1)]).topics
            assert made.error_code == 17
        for version in (8, 9):
            (refused,) = peer.call(PRODUCE, version, acks=1, topic_data=[data]).responses
            assert refused.partition_responses[0].error_code == 3


def test_apis_and_versions_that_are_not_served(broker: Broker) -> None:
    for key, version in (
        (-1, 0),
        (32767, 0),
        (4, 0),
        (58, 0),
        (METADATA, -1),
        (METADATA, 99),
        (FETCH, 3),
        (PRODUCE, 99),
    ):
        header = struct.pack(">hhih", key, version, 1, -1)
        assert is_refused(broker, framed(header + bytes(64))), (key, version)


def test_api_versions_at_any_time(broker: Broker) -> None:
    with Peer(broker) as peer:
        assert peer.call(API_VERSIONS, 0).error_code == 0
        unknown = framed(struct.pack(">hhih", API_VERSIONS, 99, 5, -1) + b"\0\xff\xff")
        assert peer.ask(API_VERSIONS, 0, unknown).error_code == 35
        peer.send(request(METADATA, 12, topics=[]) * 998)
        for _ in range(998):
            peer.reply()
        assert peer.call(API_VERSIONS, 3, client_software_name="x", client_software_version="1").error_code == 0
        assert peer.call(API_VERSIONS, 3, client_software_name="-", client_software_version="1").error_code == 42


def test_hanging_up_in_every_way(broker: Broker) -> None:
    whole = request(METADATA, 12, topics=None)
    with good_client(broker, "resets, half-closes, torn frames", RESIDENT_MIB_MAX):
        for cut in range(0, len(whole), 3):
            with Peer(broker) as peer:
                peer.send(whole + whole[:cut])
                peer.reset()
        for _ in range(50):  # replies that meet a reset
            Peer(broker, receive_bytes=4096).send(whole * 500).reset()
        for cut in (0, 2, len(whole) - 1):  # half a close still gets the answer to what was whole
            with Peer(broker) as peer:
                peer.send(whole * 3 + whole[:cut]).socket.shutdown(1)
                assert [len(peer.reply()) > 0 for _ in range(3)] == [True] * 3
                assert peer.hung_up()
