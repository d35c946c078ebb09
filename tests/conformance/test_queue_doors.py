"""Queues over HTTP on real brokers: crossed with Kafka clients, by curl, through kill -9, and by any node of three."""

import http.client
import json
import socket
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from skidway.testing import Broker, Cluster


def ask(broker: Broker, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(urlsplit(broker.http).netloc, timeout=60)
    headers = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    data = json.loads(answer.read())
    connection.close()
    return answer.status, data


def receive(broker: Broker, queue: str, count: int = 100, wait_ms: int = 0, visibility_ms: int = 30_000) -> list[Any]:
    status, answer = ask(
        broker, "GET", f"/messages?queue={queue}&max={count}&wait={wait_ms}&visibility={visibility_ms}"
    )
    assert status == 200, answer
    found: list[Any] = answer["messages"]
    return found


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http="127.0.0.1:0", flush="os") as started:
        yield started


def test_curl_sends_receives_and_acknowledges(broker: Broker) -> None:
    def curl(*words: str) -> Any:
        done = subprocess.run(["curl", "-sS", *words], capture_output=True, check=True, timeout=60)
        return json.loads(done.stdout)

    sent = curl("--json", '{"queue": "by-curl", "body": "hello", "key": "ann"}', f"{broker.http}/messages")
    (message,) = curl(f"{broker.http}/messages?queue=by-curl")["messages"]
    assert (message["messageId"], message["body"], message["key"]) == (sent["messageId"], "hello", "ann")
    acknowledged = json.dumps({"messageId": message["messageId"]})
    assert curl("--json", acknowledged, f"{broker.http}/ack") == {"done": True}
    assert curl(f"{broker.http}/v1/queues/by-curl/stats") == {"visible": 0, "inFlight": 0, "delayed": 0}


def test_what_a_queue_was_sent_a_kafka_client_reads(broker: Broker) -> None:
    messages = [{"body": {"n": n}, "key": f"k{n}", "attributes": {"trace": str(n)}} for n in range(20)]
    status, _ = ask(broker, "POST", "/messages", {"queue": "out", "messages": messages})
    assert status == 200
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "audit", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe(["out"])
    found: dict[bytes | str | None, confluent_kafka.Message] = {}
    while len(found) < 20:
        message = consumer.poll(30)
        assert message is not None, "nothing for half a minute"
        assert message.error() is None, message.error()
        found[message.key()] = message
    consumer.close()
    for number, sent in enumerate(messages):
        message = found[f"k{number}".encode()]
        assert json.loads(message.value() or b"") == sent["body"]
        assert ("trace", str(number).encode()) in (message.headers() or [])


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_what_a_kafka_client_sent_a_queue_gives(broker: Broker, codec: str) -> None:
    topic = f"in-{codec}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    made = admin.create_topics([NewTopic(topic, 2, 1, config={"queue.type": "standard"})])
    made[topic].result(30)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "compression.type": codec})
    for number in range(100):
        producer.produce(topic, f"value {number}".encode(), f"key {number}", headers=[("h", b"\xfe"), ("t", b"x")])
    assert producer.flush(60) == 0
    found: dict[str, Any] = {}
    while batch := receive(broker, topic, 7):
        for message in batch:
            assert message["key"] not in found
            found[message["key"]] = message
        acks = [{"receipt": each["receipt"]} for each in batch]
        assert ask(broker, "POST", "/ack", {"acks": acks})[1] == {"acks": [{"done": True}] * len(batch)}
    assert {key: message["body"] for key, message in found.items()} == {f"key {n}": f"value {n}" for n in range(100)}
    assert found["key 3"]["attributes"] == {"t": "x"}
    assert found["key 3"]["attributesBase64"] == {"h": "/g=="}


def test_a_long_poll_over_a_socket_wakes_and_one_that_hung_up_takes_nothing(broker: Broker) -> None:
    assert ask(broker, "PUT", "/v1/queues/polled")[0] == 201
    gone = http.client.HTTPConnection(urlsplit(broker.http).netloc, timeout=60)
    gone.request("GET", "/messages?queue=polled&wait=20000")
    gone.close()
    waiting = http.client.HTTPConnection(urlsplit(broker.http).netloc, timeout=60)
    waiting.request("GET", "/messages?queue=polled&wait=20000")
    assert ask(broker, "POST", "/messages", {"queue": "polled", "body": "one"})[0] == 201
    (message,) = json.loads(waiting.getresponse().read())["messages"]
    waiting.close()
    assert message["deliveryCount"] == 1
    assert ask(broker, "GET", "/v1/queues/polled/stats")[1] == {"visible": 0, "inFlight": 1, "delayed": 0}


@pytest.mark.parametrize("door", ["http", "sqs"])
def test_receives_that_were_pipelined_before_the_client_hung_up_take_nothing(broker: Broker, door: str) -> None:
    """While the first one waits nobody reads the others, nor the end of the connection."""
    queue = f"pipelined-{door}"
    assert ask(broker, "PUT", f"/v1/queues/{queue}")[0] == 201
    if door == "http":
        poll = f"GET /messages?queue={queue}&wait=20000&visibility=600000 HTTP/1.1\r\nHost: localhost\r\n\r\n"
    else:
        body = json.dumps({"QueueUrl": queue, "WaitTimeSeconds": 20, "VisibilityTimeout": 600})
        poll = "POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\n"
        poll += f"Content-Type: application/x-amz-json-1.0\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    address = urlsplit(broker.http)
    with socket.create_connection((address.hostname, address.port)) as gone:
        gone.sendall(poll.encode() * 5)
    messages = [{"body": f"{number}"} for number in range(3)]
    assert ask(broker, "POST", "/messages", {"queue": queue, "messages": messages})[0] == 200
    found = receive(broker, queue, 3, wait_ms=10_000)
    while len(found) < 3:
        more = receive(broker, queue, 3, wait_ms=10_000)
        assert more, "a receive of the client that is gone has a message"
        found += more
    assert [each["deliveryCount"] for each in found] == [1, 1, 1]


def test_kill_9_loses_nothing_and_brings_back_nothing_that_was_acknowledged() -> None:
    with Broker(http="127.0.0.1:0") as broker:
        messages = [{"body": str(number)} for number in range(60)]
        status, answer = ask(broker, "POST", "/messages", {"queue": "q", "messages": messages})
        assert status == 200, answer
        first = receive(broker, "q", 30, visibility_ms=43_200_000)
        acks = [{"receipt": each["receipt"]} for each in first[:20]]
        assert ask(broker, "POST", "/ack", {"acks": acks})[1] == {"acks": [{"done": True}] * 20}
        broker.restart(kill=True)
        # The receipts of before are good: of ten in flight, five are acknowledged with them.
        late = [{"receipt": each["receipt"]} for each in first[20:25]]
        assert ask(broker, "POST", "/ack", {"acks": late})[1] == {"acks": [{"done": True}] * 5}
        left = {each["body"] for each in receive(broker, "q", 100, wait_ms=10_000)}
        assert left == {str(number) for number in range(60)} - {each["body"] for each in first[:25]}
        assert ask(broker, "GET", "/v1/queues/q/stats")[1] == {"visible": 0, "inFlight": 35, "delayed": 0}


def test_any_node_of_three_serves_while_leaders_are_killed() -> None:
    with Cluster(3, http="127.0.0.1:0") as cluster:
        status, made = ask(cluster[1], "PUT", "/v1/queues/q", {"partitions": 3})
        assert status == 201, made
        sent: set[str] = set()
        done: list[str] = []
        for turn in range(6):
            if turn in (2, 4):
                cluster.restart(cluster.leader_of("q"), kill=True)
            node = cluster[1 + turn % 3]
            sent |= send(node, turn)
            work(node, done)
        while ask(cluster[1], "GET", "/v1/queues/q/stats")[1] != {"visible": 0, "inFlight": 0, "delayed": 0}:
            work(cluster[1 + len(done) % 3], done)
        assert sent <= set(done)
        assert len(done) == len(set(done)), "acknowledged twice"


def send(node: Broker, turn: int) -> set[str]:
    """Those that were answered."""
    bodies = [f"{turn}-{number}" for number in range(20)]
    body = {"queue": "q", "messages": [{"body": each, "key": each} for each in bodies]}
    status, answer = ask(node, "POST", "/messages", body)
    if status != 200:
        assert answer["retryable"], answer
        return set()
    return {each for each, result in zip(bodies, answer["messages"], strict=True) if "messageId" in result}


def work(node: Broker, done: list[str]) -> None:
    status, answer = ask(node, "GET", "/messages?queue=q&max=15&wait=1000&visibility=2000")
    if status != 200:
        assert answer["retryable"], answer
        return
    if not (messages := answer["messages"]):
        return
    acks = [{"receipt": each["receipt"]} for each in messages]
    status, answer = ask(node, "POST", "/ack", {"acks": acks})
    assert status == 200, answer
    done += [each["body"] for each, result in zip(messages, answer["acks"], strict=True) if result["done"]]
