"""Confluent's REST Proxy as its clients see it: bodies, media types and errors as they are documented."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

import pytest
from broker_world import WALL_MS
from http_world import Answer, HttpPeer, HttpWorld, request
from hypothesis import given
from hypothesis import strategies as st

from skidway.gateways.http.dates import from_rfc3339, rfc3339

JSON_V2, BINARY_V2 = "application/vnd.kafka.json.v2+json", "application/vnd.kafka.binary.v2+json"


@pytest.fixture
def world() -> HttpWorld:
    world = HttpWorld()
    world.peer().create("t", 2)
    return world


@pytest.fixture
def peer(world: HttpWorld) -> HttpPeer:
    return world.http()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def v2(peer: HttpPeer, records: Any, kind: str = JSON_V2, topic: str = "t") -> Answer:
    answer = peer.ask("POST", f"/topics/{topic}", {"records": records}, content_type=kind)
    assert answer.headers["content-type"] == "application/vnd.kafka.v2+json"
    return answer


def v3(peer: HttpPeer, *records: Any, topic: str = "t", chunked: bool = False, **headers: str) -> list[Any]:
    """The status, then the reports."""
    cluster = peer.connection.site.node.cluster_id
    body = b"\n".join(json.dumps(record).encode() for record in records)
    target = f"/v3/clusters/{cluster}/topics/{topic}/records"
    if chunked:
        framed = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in (body[:7], body[7:]))
        head = f"POST {target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        (answer,) = peer.send(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n" + framed + b"0\r\n\r\n")
    else:
        (answer,) = peer.send(request("POST", target, body, **headers))
    assert answer.headers["content-type"] == "application/json"
    return [answer.status, *(json.loads(line) for line in answer.body.split(b"\r\n"))]


def stored(peer: HttpPeer, partition: int = 0) -> list[Any]:
    return list(peer.ask("GET", f"/v1/topics/t/records?partition={partition}").json()["records"])


def test_v2_writes_json(peer: HttpPeer) -> None:
    records = [{"key": "k", "value": {"a": [1, 2]}, "partition": 0}, {"value": "text", "partition": 0}]
    answer = v2(peer, [*records, {"key": {"id": 1}, "value": None, "partition": 1, "timestamp": 5}])
    assert answer.status == 200
    assert answer.json() == {
        "offsets": [
            {"partition": 0, "offset": 0, "error_code": None, "error": None},
            {"partition": 0, "offset": 1, "error_code": None, "error": None},
            {"partition": 1, "offset": 0, "error_code": None, "error": None},
        ],
        "key_schema_id": None,
        "value_schema_id": None,
    }
    found = stored(peer)
    assert [(each["key"], each["value"]) for each in found] == [('"k"', '{"a":[1,2]}'), (None, '"text"')]
    (other,) = stored(peer, 1)
    assert (other["key"], other["value"], other["timestamp"]) == ('{"id":1}', None, 5)


def test_v2_writes_bytes(peer: HttpPeer) -> None:
    answer = v2(peer, [{"key": b64(b"k"), "value": b64(b"\xff\0"), "partition": 1}, {"value": None}], BINARY_V2)
    assert answer.status == 200
    assert stored(peer, 1)[0]["valueBase64"] == b64(b"\xff\0")
    assert stored(peer, 1)[0]["key"] == "k"


@pytest.mark.parametrize(
    ("records", "kind", "status", "code"),
    [
        ([{"value": "not base64!"}], BINARY_V2, 422, 422),
        ([{"value": 5}], BINARY_V2, 422, 422),
        ([{"value": 1, "partition": 2}], JSON_V2, 404, 40402),
        ([{"value": 1, "partition": "x"}], JSON_V2, 422, 422),
        ("no list", JSON_V2, 422, 422),
        ([{"value": 1}], "application/vnd.kafka.avro.v2+json", 415, 415),
        ([{"value": 1}], "text/plain", 415, 415),
        ([{"value": "x" * 1_100_000}], JSON_V2, 413, 50002),
    ],
)
def test_v2_errors(peer: HttpPeer, records: Any, kind: str, status: int, code: int) -> None:
    answer = v2(peer, records, kind)
    assert (answer.status, answer.json()["error_code"]) == (status, code)
    assert set(answer.json()) == {"error_code", "message"}
    assert stored(peer) == stored(peer, 1) == []


def test_v2_topics(peer: HttpPeer) -> None:
    assert peer.ask("GET", "/topics").json() == ["t"]
    assert peer.ask("GET", "/topics/t").json() == {
        "name": "t",
        "configs": {},
        "partitions": [
            {"partition": index, "leader": 1, "replicas": [{"broker": 1, "leader": True, "in_sync": True}]}
            for index in range(2)
        ],
    }
    answer = peer.ask("GET", "/topics/nowhere")
    assert (answer.status, answer.json()["error_code"]) == (404, 40401)
    assert v2(peer, [{"value": 1}], topic="new").status == 200


def test_v3_writes_one_record(peer: HttpPeer) -> None:
    record = {
        "partition_id": 1,
        "headers": [{"name": "h", "value": b64(b"1")}, {"name": "n"}],
        "key": {"type": "STRING", "data": "k"},
        "value": {"type": "JSON", "data": {"a": 1}},
        "timestamp": "2020-11-18T07:30:00+01:00",
    }
    status, report = v3(peer, record)
    assert status == 200
    assert report == {
        "error_code": 200,
        "cluster_id": peer.connection.site.node.cluster_id,
        "topic_name": "t",
        "partition_id": 1,
        "offset": 0,
        "timestamp": "2020-11-18T06:30:00.000Z",
        "key": {"type": "STRING", "size": 1},
        "value": {"type": "JSON", "size": 7},
    }
    (found,) = stored(peer, 1)
    assert (found["key"], found["value"]) == ("k", '{"a":1}')
    assert found["headers"] == [{"name": "h", "value": "1"}, {"name": "n", "value": None}]


@pytest.mark.parametrize("chunked", [True, False])
def test_v3_writes_records_one_behind_the_other(peer: HttpPeer, chunked: bool) -> None:
    records = [{"partition_id": 0, "value": {"type": "STRING", "data": '}{"[ ' + str(number)}} for number in range(300)]
    status, *reports = v3(peer, *records, chunked=chunked)
    assert status == 200
    assert [report["offset"] for report in reports] == list(range(300))
    assert [each["value"] for each in stored(peer)] == ['}{"[ ' + str(number) for number in range(300)]
    assert stored(peer)[0]["timestamp"] == WALL_MS


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        (b"", 400, 400),
        (b"[]", 400, 400),
        (b'{"value":{"type":"JSON","data":1}} x', 400, 400),
        (b'x {"value":{"type":"JSON","data":1}}', 400, 400),
        (b'{"value":{"type":"JSON","data":1}', 400, 400),
        (b'{"value":{"type":"AVRO","data":1}}', 422, 422),
        (b'{"value":{"type":"BINARY","data":"?"}}', 422, 422),
        (b'{"value":{"type":"STRING","data":5}}', 422, 422),
        (b'{"timestamp":"yesterday"}', 422, 422),
        (b'{"timestamp":"1969-12-31T23:59:59Z"}', 422, 422),
        (b'{"partition_id":2}', 404, 40402),
        (b'{"value":{"type":"JSON","data":' + b"[" * 65 + b"]" * 65 + b"}}", 400, 400),
    ],
)
def test_v3_errors(peer: HttpPeer, body: bytes, status: int, code: int) -> None:
    cluster = peer.connection.site.node.cluster_id
    (answer,) = peer.send(request("POST", f"/v3/clusters/{cluster}/topics/t/records", body))
    assert (answer.status, answer.json()["error_code"]) == (status, code)
    assert stored(peer) == stored(peer, 1) == []


def test_v3_of_another_cluster_or_topic(peer: HttpPeer) -> None:
    answer = peer.ask("POST", "/v3/clusters/other/topics/t/records", {})
    assert (answer.status, answer.json()["error_code"]) == (404, 404)
    status, report = v3(peer, {}, topic="%2F")
    assert (status, report["error_code"]) == (404, 40403)


def test_v3_clusters(peer: HttpPeer) -> None:
    cluster = peer.connection.site.node.cluster_id
    found = peer.ask("GET", "/v3/clusters").json()
    assert (found["kind"], [each["cluster_id"] for each in found["data"]]) == ("KafkaClusterList", [cluster])
    assert found["data"][0]["metadata"]["self"] == f"http://localhost/v3/clusters/{cluster}"


def test_a_key_makes_them_safe_to_send_again(peer: HttpPeer) -> None:
    record = {"value": {"type": "STRING", "data": "once"}}
    assert v3(peer, record, idempotency_key="a")[1:] == v3(peer, record, idempotency_key="a")[1:]
    assert v3(peer, {}, idempotency_key="a")[0] == 422
    assert len(stored(peer) + stored(peer, 1)) == 1


@given(st.datetimes(min_value=datetime(1, 1, 1), max_value=datetime(9999, 12, 31), timezones=st.just(UTC)))
def test_times_as_text(moment: datetime) -> None:
    wall_ms = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // (datetime.resolution * 1_000)
    assert from_rfc3339(moment.isoformat()) == wall_ms
    assert from_rfc3339(rfc3339(wall_ms)) == wall_ms


@pytest.mark.parametrize(
    "text", ["2026-02-30T00:00:00Z", "2026-13-01T00:00:00Z", "2026-01-01T24:00:00Z", "2026-01-01", ""]
)
def test_times_that_are_none(text: str) -> None:
    with pytest.raises(ValueError):
        from_rfc3339(text)
