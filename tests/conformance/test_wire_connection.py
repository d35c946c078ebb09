"""What holds for every connection: version negotiation, framing, order of answers, and when the broker hangs up."""

import struct

import pytest
from raw import MESSAGES, Connection, decode_response, encode_request
from raw_batches import build
from wire_calls import end_offset, eventually_end_offset, fetch_body, produce_body

INVALID_REQUEST = 42
UNSUPPORTED_VERSION = 35
# What Kafka 4.3 serves; a broker that serves less of a range must start where Kafka starts.
SERVED = {
    "Produce": (0, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "ApiVersions": (0, 4),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "DescribeConfigs": (1, 4),
    "AlterConfigs": (0, 2),
    "DescribeLogDirs": (1, 5),
    "CreatePartitions": (0, 3),
    "IncrementalAlterConfigs": (0, 1),
    "DescribeCluster": (0, 2),
    "DescribeProducers": (0, 0),
    "ListConfigResources": (0, 1),
    "DescribeTopicPartitions": (0, 0),
}
SOFTWARE = {"client_software_name": "raw", "client_software_version": "1.0"}


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_served(wire: Connection, version: int) -> None:
    """The header of the answer is never the tagged one: `decode_response` would misread it if it were."""
    answer = wire.call("ApiVersions", version, SOFTWARE if version >= 3 else {})
    assert answer["error_code"] == 0
    listed = {key["api_key"]: (key["min_version"], key["max_version"]) for key in answer["api_keys"]}
    assert {api: listed.get(MESSAGES[api + "Request"].key) for api in SERVED} == SERVED
    assert not {4, 5, 6, 7} & set(listed), "keys that left the protocol with ZooKeeper"


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_an_api_versions_request_from_the_future_is_answered_in_version_zero(wire: Connection, version: int) -> None:
    """Its header is the tagged one, as in version 3; its body is not looked at."""
    wire.send_frame(struct.pack(">hhih", 18, version, 77, 3) + b"raw\x00" + b"\xde\xad\xbe\xef unreadable")
    correlation_id, answer = decode_response("ApiVersions", 0, wire.receive_frame())
    assert correlation_id == 77
    assert answer["error_code"] == UNSUPPORTED_VERSION
    assert {"api_key": 18, "min_version": 0, "max_version": 4} in answer["api_keys"]
    assert wire.call("ApiVersions", 4, SOFTWARE)["error_code"] == 0, "the connection goes on"


@pytest.mark.parametrize("software", ["", "white space", "-dash", "dot."])
def test_odd_software_names_are_refused(wire: Connection, software: str) -> None:
    answer = wire.call("ApiVersions", 3, {"client_software_name": software, "client_software_version": "1"})
    assert answer["error_code"] == INVALID_REQUEST


def test_features_carry_an_epoch(wire: Connection) -> None:
    answer = wire.call("ApiVersions", 4, SOFTWARE)
    finalized = {feature["name"]: feature["max_version_level"] for feature in answer["finalized_features"]}
    assert answer["finalized_features_epoch"] >= 0
    assert finalized["metadata.version"] >= 1


def test_pipelined_requests_are_answered_in_order(wire: Connection, topic: str) -> None:
    """All in one write, a slow one first: no answer overtakes another."""
    frames = [
        encode_request("Fetch", 12, fetch_body(topic, max_wait_ms=400), 1),
        encode_request("Metadata", 1, {"topics": []}, 2),
        encode_request("Produce", 9, produce_body(topic, build([b"a"])), 3),
        encode_request("ListOffsets", 7, {"replica_id": -1, "topics": []}, 4),
        encode_request("Produce", 9, produce_body(topic, build([b"b"])), 5),
        encode_request("ApiVersions", 0, {}, 6),
    ]
    wire.socket.sendall(b"".join(struct.pack(">i", len(frame)) + frame for frame in frames))
    assert wire.receive("Fetch", 12)[0] == 1
    assert wire.receive("Metadata", 1)[0] == 2
    correlation_id, answer = wire.receive("Produce", 9)
    assert (correlation_id, answer["responses"][0]["partition_responses"][0]["base_offset"]) == (3, 0)
    assert wire.receive("ListOffsets", 7)[0] == 4
    correlation_id, answer = wire.receive("Produce", 9)
    assert (correlation_id, answer["responses"][0]["partition_responses"][0]["base_offset"]) == (5, 1)
    assert wire.receive("ApiVersions", 0)[0] == 6


def test_hundreds_of_requests_before_the_first_answer_is_read(wire: Connection, topic: str) -> None:
    for index in range(500):
        wire.send("Produce", 9, produce_body(topic, build([b"%d" % index])))
    offsets = []
    for expected in range(1, 501):
        correlation_id, answer = wire.receive("Produce", 9)
        assert correlation_id == expected
        offsets.append(answer["responses"][0]["partition_responses"][0]["base_offset"])
    assert offsets == list(range(500))


def test_a_request_that_trickles_in_byte_by_byte(wire: Connection) -> None:
    frame = encode_request("Metadata", 1, {"topics": []}, 9)
    for byte in struct.pack(">i", len(frame)) + frame:
        wire.socket.sendall(bytes([byte]))
    assert wire.receive("Metadata", 1)[0] == 9


def test_a_client_without_a_name(wire: Connection) -> None:
    assert wire.call("Metadata", 12, {"topics": []}, client_id=None)["topics"] == []
    assert wire.call("Metadata", 12, {"topics": []}, client_id="")["topics"] == []


def test_unknown_tagged_fields_are_skipped(wire: Connection) -> None:
    frame = encode_request("Metadata", 12, {"topics": []}, 5)
    assert frame.endswith(b"\x00")
    wire.send_frame(frame[:-1] + b"\x02\x05\x03abc\xc8\x01\x00")
    assert wire.receive("Metadata", 12)[0] == 5


def test_acks_0_gets_no_answer(wire: Connection, bootstrap: str, topic: str) -> None:
    wire.send("Produce", 9, produce_body(topic, build([b"a"]), acks=0))
    wire.send("Produce", 9, produce_body(topic, build([b"b"]), acks=0))
    sent = wire.send("Metadata", 1, {"topics": []})
    assert wire.receive("Metadata", 1)[0] == sent
    eventually_end_offset(wire, topic, 2)


def test_an_error_under_acks_0_closes_the_connection(wire: Connection, name: str) -> None:
    """Nothing else could tell the producer."""
    wire.send("Produce", 9, produce_body(name, build([b"a"]), acks=0))
    assert wire.closed_by_peer()


@pytest.mark.parametrize("key", [4, 7, 93, 1000, -1])
def test_unknown_apis_close_the_connection(wire: Connection, key: int) -> None:
    wire.send_frame(struct.pack(">hhih", key, 0, 1, -1))
    assert wire.closed_by_peer()


@pytest.mark.parametrize(
    ("api", "version"),
    [("Metadata", 99), ("Metadata", -1), ("Fetch", 3), ("ListOffsets", 0), ("CreateTopics", 1), ("Produce", 14)],
)
def test_unserved_versions_close_the_connection(wire: Connection, api: str, version: int) -> None:
    wire.send_frame(struct.pack(">hhih", MESSAGES[api + "Request"].key, version, 1, -1) + bytes(20))
    assert wire.closed_by_peer()


def test_the_old_produce_versions_are_listed_but_closed(wire: Connection) -> None:
    wire.send_frame(struct.pack(">hhih", 0, 2, 1, -1) + struct.pack(">hii", 1, 1000, 0))
    assert wire.closed_by_peer()


@pytest.mark.parametrize(
    "garbage",
    [
        b"\xff\xff\xff\xff",
        struct.pack(">i", 2_000_000_000),
        struct.pack(">i", 0),
        struct.pack(">i", 4) + b"\x00\x03\x00\x01",
        struct.pack(">i", 14) + struct.pack(">hhih", 3, 1, 1, -1) + struct.pack(">i", 2_000_000_000),
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["negative", "huge", "empty", "cut header", "huge array", "http"],
)
def test_garbage_closes_the_connection_and_nothing_else(
    wire: Connection, bootstrap: str, topic: str, garbage: bytes
) -> None:
    with Connection(bootstrap) as bystander:
        wire.socket.sendall(garbage)
        assert wire.closed_by_peer()
        assert end_offset(bystander, topic) == 0
