"""Topics over HTTP on one node without sockets: what is written is read, by HTTP and by Kafka's protocol."""

import base64
from functools import cache
from typing import Any

import pytest
from broker_world import WALL_MS, batch, values
from http_world import Answer, HttpPeer, HttpWorld, request
from hypothesis import given
from hypothesis import strategies as st

from skidway.blocking_client.partitioners import partition_of_key
from skidway.errors import ErrorCode
from skidway.gateways.http.bounds import BATCH_BYTES_MAX
from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.head import Head
from skidway.gateways.http.topics import production as production_module
from skidway.gateways.http.topics.leaders import RETRY_MS
from skidway.gateways.http.topics.records import Read, decode
from skidway.records.control import EndTransaction, end_transaction_batch
from skidway.steps import at_once
from skidway.wire.schema.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse


@pytest.fixture
def world() -> HttpWorld:
    return HttpWorld()


@pytest.fixture
def peer(world: HttpWorld) -> HttpPeer:
    return world.http()


def produce(peer: HttpPeer, topic: str, *records: dict[str, Any]) -> Answer:
    return peer.ask("POST", f"/v1/topics/{topic}/produce", {"records": list(records)})


def read(peer: HttpPeer, topic: str, query: str = "") -> Any:
    answer = peer.ask("GET", f"/v1/topics/{topic}/records{query}")
    assert answer.status == 200, answer
    return answer.json()


def seen(peer: HttpPeer, topic: str, query: str = "") -> list[Any]:
    return [record.get("value") for record in read(peer, topic, query)["records"]]


def test_what_is_produced_is_read(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t")
    answer = produce(peer, "t", {"key": "k", "value": "v", "headers": {"a": "1", "b": None}}, {"value": None})
    assert answer.json() == {"offsets": [{"partition": 0, "offset": 0}, {"partition": 0, "offset": 1}]}
    assert read(peer, "t") == {
        "topic": "t",
        "partition": 0,
        "records": [
            {
                "offset": 0,
                "timestamp": WALL_MS,
                "key": "k",
                "value": "v",
                "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
            },
            {"offset": 1, "timestamp": WALL_MS, "key": None, "value": None},
        ],
        "nextOffset": 2,
        "highWatermark": 2,
    }


def test_it_answers_when_the_records_are_synced(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t")
    peer.give(request("POST", "/v1/topics/t/produce", {"records": [{"value": "v"}]}))
    world.end_turn()
    assert peer.answers() == []
    assert world.held, "a sync is under way"
    peer.settle()
    assert [answer.status for answer in peer.answers()] == [200]


def test_values_of_any_kind_come_back(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t")
    odd = base64.b64encode(b"\xff\0").decode()
    given_values: list[dict[str, Any]] = [
        {"value": 'text with "quotes", ünïcode, 𝄞 and \r\n\0'},
        {"value": {"deep": [1, 2.5, True, None], "text": "a  b"}},
        {"value": [1, 2]},
        {"value": 12345678901234567890},
        {"value": True},
        {"value": ""},
        {"valueBase64": odd, "keyBase64": odd, "headers": [{"name": "h", "valueBase64": odd}, {"name": "h"}]},
        {"value": "at a time", "timestamp": 5},
    ]
    assert produce(peer, "t", *given_values).status == 200
    found = read(peer, "t")["records"]
    assert [record.get("value") for record in found] == [
        given_values[0]["value"],
        '{"deep":[1,2.5,true,null],"text":"a  b"}',
        "[1,2]",
        "12345678901234567890",
        "true",
        "",
        None,
        "at a time",
    ]
    assert (found[6]["valueBase64"], found[6]["keyBase64"]) == (odd, odd)
    assert found[6]["headers"] == [{"name": "h", "valueBase64": odd}, {"name": "h", "value": None}]
    assert found[7]["timestamp"] == 5


def test_keys_decide_the_partition_as_in_kafkas_clients(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t", 8)
    keys = [f"key-{number}" for number in range(30)]
    answer = produce(peer, "t", *({"key": key, "value": key} for key in keys)).json()
    assert [each["partition"] for each in answer["offsets"]] == [partition_of_key(key.encode(), 8) for key in keys]
    assert produce(peer, "t", {"value": "v", "partition": 5}).json()["offsets"][0]["partition"] == 5


def test_records_without_a_key_stay_together_and_requests_take_turns(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t", 4)
    taken = []
    for _ in range(8):
        answer = produce(peer, "t", {"value": "a"}, {"value": "b"}).json()
        assert len({each["partition"] for each in answer["offsets"]}) == 1
        taken.append(answer["offsets"][0]["partition"])
    assert sorted(taken) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_a_topic_is_created_by_the_first_who_writes(peer: HttpPeer) -> None:
    assert produce(peer, "new", {"value": "v"}).json() == {"offsets": [{"partition": 0, "offset": 0}]}
    assert seen(peer, "new") == ["v"]
    assert peer.ask("GET", "/v1/topics/new").json()["partitions"] == [
        {"partition": 0, "leader": 1, "replicas": [1], "inSync": [1]}
    ]
    assert {"name": "new", "partitions": 1, "internal": False} in peer.ask("GET", "/v1/topics").json()["topics"]


def test_no_topic_is_created_where_the_operator_does_not_want_it() -> None:
    peer = HttpWorld(auto_create_topics=False).http()
    answer = produce(peer, "new", {"value": "v"})
    assert (answer.status, answer.code) == (404, "no_such_topic")


@pytest.mark.parametrize(
    ("records", "status", "code"),
    [
        ([{"value": "v", "partition": 1}], 404, "no_such_partition"),
        ([{"value": "v", "partition": -1}], 422, "bad_value"),
        ([{"value": "v", "timestamp": -1}], 422, "bad_value"),
        ([{"value": "v", "colour": "red"}], 422, "bad_value"),
        ([{"value": "v", "valueBase64": "AA=="}], 422, "bad_value"),
        ([{"valueBase64": "not base64"}], 422, "bad_value"),
        ([{"valueBase64": "ü"}], 422, "bad_value"),
        ([{"value": "v", "headers": 5}], 422, "bad_value"),
        ([{"value": "v", "headers": {str(number): "" for number in range(1_001)}}], 422, "bad_value"),
        ("text", 422, "bad_value"),
        (None, 422, "bad_value"),
        ([[]], 422, "bad_value"),
        ([{"value": "x" * 1_100_000}], 413, "message_too_large"),
    ],
)
def test_what_is_wrong_with_records_is_told(
    world: HttpWorld, peer: HttpPeer, records: Any, status: int, code: str
) -> None:
    world.peer().create("t")
    answer = peer.ask("POST", "/v1/topics/t/produce", {"records": records})
    assert (answer.status, answer.code) == (status, code)
    assert seen(peer, "t") == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"records":[{"value":"a"},]}',
        b'{"records":[{"value":"\xff"}]}',
        b'{"records":[{"value":"\\ud800"}]}',
        b'{"records":[{"value":' + b"[" * 65 + b"]" * 65 + b"}]}",
        b'{"records":[{"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}]}",
        b"[" * 1_000_000,
        b'{"a":' * 200_000,
    ],
)
def test_bad_json_costs_a_refusal(world: HttpWorld, peer: HttpPeer, body: bytes) -> None:
    world.peer().create("t")
    answer = peer.ask("POST", "/v1/topics/t/produce", body)
    assert (answer.status, answer.code) in ((400, "bad_json"), (422, "bad_value"))
    assert peer.ask("GET", "/livez").status == 200


def test_json_as_deep_as_allowed_is_taken(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t")
    deep = b"[" * 64 + b"]" * 64
    wide = b'{"records":[{"value":' + deep + b'},{"value":["' + b"[" * 500 + b'"]}]}'
    assert peer.ask("POST", "/v1/topics/t/produce", wide).status == 200
    assert seen(peer, "t") == [deep.decode(), '["' + "[" * 500 + '"]']


def test_a_body_that_a_web_page_could_send_is_refused(peer: HttpPeer) -> None:
    body = b'{"records":[]}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        answer = peer.ask("POST", "/v1/topics/t/produce", body, content_type=kind)
        assert (answer.status, answer.code) == (415, "not_json")
    assert peer.ask("POST", "/v1/topics/t/produce", body, content_encoding="gzip").code == "packed"


def test_internal_topics_are_not_written(peer: HttpPeer) -> None:
    answer = produce(peer, "__consumer_offsets", {"value": "v"})
    assert (answer.status, answer.code) == (403, "internal_topic")


def test_nothing_to_write_is_fine(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t")
    assert produce(peer, "t").json() == {"offsets": []}


@pytest.mark.parametrize("size", [1, 10_000])
def test_many_records_are_written_in_steps_and_in_order(world: HttpWorld, peer: HttpPeer, size: int) -> None:
    world.peer().create("t", 2)
    count = BATCH_BYTES_MAX // (size + 40) - 10 if size > 1 else 3_000
    records = [{"key": str(number % 7), "value": f"{number}-".ljust(size, "x")} for number in range(count)]
    answer = produce(peer, "t", *records)
    assert answer.status == 200
    offsets = answer.json()["offsets"]
    assert len(offsets) == count
    for index in (0, 1):
        mine = [each["offset"] for each in offsets if each["partition"] == index]
        assert mine == list(range(len(mine)))
    expected = [record["value"] for record, each in zip(records, offsets, strict=True) if each["partition"] == 0]
    found: list[str] = []
    while len(found) < len(expected):
        page = read(peer, "t", f"?offset={len(found)}&max=1000")
        assert page["nextOffset"] > len(found)
        found += [record["value"] for record in page["records"]]
    assert found == expected


def test_there_is_a_bound_for_records(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t")
    body = b'{"records":[' + b'{"value":""},' * production_module.RECORDS_MAX + b'{"value":""}]}'
    answer = peer.ask("POST", "/v1/topics/t/produce", body)
    assert (answer.status, answer.code) == (413, "too_many_records")


def test_kafka_and_http_read_what_the_other_wrote(world: HttpWorld, peer: HttpPeer) -> None:
    kafka = world.peer()
    kafka.create("t")
    produce(peer, "t", {"value": "by http"})
    kafka.produce("t", batch(b"by kafka", b"zipped", codec=4))
    world.settle()
    kafka.replies()
    kafka.fetch({("t", 0): 0})
    world.settle()
    assert values(kafka.reply()) == [b"by http", b"by kafka", b"zipped"]
    assert seen(peer, "t") == ["by http", "by kafka", "zipped"]
    assert seen(peer, "t", "?offset=2") == ["zipped"]


def test_a_page_ends_where_it_should_and_says_what_is_next(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t")
    produce(peer, "t", *({"value": str(number)} for number in range(10)))
    page = read(peer, "t", "?offset=3&max=4")
    assert [record["value"] for record in page["records"]] == ["3", "4", "5", "6"]
    assert page["nextOffset"] == 7
    assert read(peer, "t", "?offset=10")["nextOffset"] == 10
    assert read(peer, "t", "?offset=latest")["nextOffset"] == 10


def test_a_time_is_a_place_to_begin(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t")
    for number in range(5):
        produce(peer, "t", {"value": str(number), "timestamp": 1_000 * number})
    assert seen(peer, "t", "?timestamp=2500") == ["3", "4"]
    assert seen(peer, "t", "?timestamp=2000") == ["2", "3", "4"]
    assert read(peer, "t", "?timestamp=99999999")["nextOffset"] == 5


def test_who_waits_gets_what_comes(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t")
    assert peer.send(request("GET", "/v1/topics/t/records?wait=5000")) == []
    produce(world.http(), "t", {"value": "news"})
    peer.settle()
    (answer,) = peer.answers()
    assert [record["value"] for record in answer.json()["records"]] == ["news"]


def test_who_waits_in_vain_hears_that_there_is_nothing(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t")
    assert peer.send(request("GET", "/v1/topics/t/records?wait=5000")) == []
    for _ in range(12):
        world.pass_time(500)
        peer.settle()
    (answer,) = peer.answers()
    assert answer.json() == {"topic": "t", "partition": 0, "records": [], "nextOffset": 0, "highWatermark": 0}


def test_who_hangs_up_while_it_waits_leaves_nothing_behind(world: HttpWorld, peer: HttpPeer) -> None:
    world.peer().create("t")
    peer.send(request("GET", "/v1/topics/t/records?wait=5000"))
    waiting = world.node.waiting
    assert waiting.stable_polls.waits == 1
    peer.connection.closed()
    assert waiting.stable_polls.waits == 0


@pytest.mark.parametrize(
    ("query", "status", "code"),
    [
        ("?partition=1", 404, "no_such_partition"),
        ("?partition=x", 400, "bad_query"),
        ("?partition=-1", 422, "bad_value"),
        ("?offset=1", 422, "offset_out_of_range"),
        ("?offset=9223372036854775808", 422, "bad_value"),
        ("?offset=soon", 400, "bad_query"),
        ("?offset=1_0", 400, "bad_query"),
        ("?offset=%D9%A3", 400, "bad_query"),
        ("?offset=+1", 400, "bad_query"),
        (f"?offset={'9' * 5_000}", 400, "bad_query"),
        ("?offset=1&timestamp=1", 400, "bad_query"),
        ("?offset=1&offset=2", 400, "bad_query"),
        ("?max=0", 422, "bad_value"),
        ("?max=10001", 422, "bad_value"),
        ("?maxBytes=99999999", 422, "bad_value"),
        ("?wait=30001", 422, "bad_value"),
        ("?colour=red", 400, "bad_query"),
        ("?offset=%FF", 400, "bad_query"),
    ],
)
def test_what_is_wrong_with_a_question_is_told(
    world: HttpWorld, peer: HttpPeer, query: str, status: int, code: str
) -> None:
    world.peer().create("t")
    answer = peer.ask("GET", f"/v1/topics/t/records{query}")
    assert (answer.status, answer.code) == (status, code)


def test_an_unknown_topic_is_not_found(peer: HttpPeer) -> None:
    for target in ("/v1/topics/nowhere", "/v1/topics/nowhere/records", "/v1/topics/%2F/records", "/v1/topics/%00"):
        answer = peer.ask("GET", target)
        assert (answer.status, answer.code) == (404, "no_such_topic"), target
    assert peer.ask("POST", "/v1/topics/%2F/produce", {"records": []}).code == "no_such_topic"


def test_aborted_transactions_are_left_out(world: HttpWorld, peer: HttpPeer) -> None:
    """In the order in which the log has them: two transactions at once, a marker for each."""
    of_1 = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    of_2 = {**of_1, "producer_id": 2}
    log = [
        batch(b"plain"),
        batch(b"aborted", base_offset=1, **of_1),
        batch(b"committed", base_offset=2, **of_2),
        marker(3, 1, commits=False),
        marker(4, 2, commits=True),
        batch(b"by the same, committed", base_offset=5, **of_1),
        marker(6, 1, commits=True),
    ]
    call = HttpCall(peer.connection, Head("GET", b"/", 1, {}, 0, keep_alive=True), None, (), memoryview(b""), 0)
    found: list[bytes | None] = []
    steps = decode(call, Read(b"".join(log), 7, [(1, 1)]), 0, 100, lambda record: found.append(record.value))
    assert at_once(steps) == 7
    assert found == [b"plain", b"committed", b"by the same, committed"]


def marker(offset: int, producer: int, *, commits: bool) -> bytes:
    data = end_transaction_batch(EndTransaction(commits, 0), producer_id=producer, producer_epoch=0, timestamp=WALL_MS)
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


def test_a_leader_that_has_just_moved_is_asked_again(
    world: HttpWorld, peer: HttpPeer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What this node knows may be a moment old: the first answer is that somebody else leads now."""
    world.peer().create("t")
    really, asked = production_module.ask_node, []

    def ask_node(call: Any, node_id: int, request: Any, timeout_ms: int, respond: Any) -> Any:
        asked.append(node_id)
        if len(asked) > 1:
            return really(call, node_id, request, timeout_ms, respond)
        refused = PartitionProduceResponse(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
        respond(ProduceResponse([TopicProduceResponse("t", bytes(16), [refused])]))
        return None

    monkeypatch.setattr(production_module, "ask_node", ask_node)
    peer.give(request("POST", "/v1/topics/t/produce", {"records": [{"value": "v"}]}))
    peer.settle()
    assert peer.answers() == []
    world.pass_time(RETRY_MS)
    peer.settle()
    assert [answer.json() for answer in peer.answers()] == [{"offsets": [{"partition": 0, "offset": 0}]}]
    assert asked == [1, 1]


@cache
def one_world() -> HttpWorld:
    world = HttpWorld()
    world.peer().create("t")
    return world


@given(st.lists(st.dictionaries(st.sampled_from(["key", "value"]), st.one_of(st.text(), st.none())), max_size=8))
def test_any_text_survives(records: list[dict[str, Any]]) -> None:
    world = one_world()
    peer = world.http()
    begin = read(peer, "t", "?offset=latest")["nextOffset"]
    assert produce(peer, "t", *records).status == 200
    found = read(peer, "t", f"?offset={begin}")["records"]
    assert [(each.get("key"), each.get("value")) for each in found] == [
        (each.get("key"), each.get("value")) for each in records
    ]
