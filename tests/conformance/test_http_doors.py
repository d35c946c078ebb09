"""Two doors to one log: what comes in by HTTP goes out by a Kafka client, with key and headers, and the reverse."""

import http.client
import json
import subprocess
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import confluent_kafka
import pytest

from skidway.testing import Broker


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http="127.0.0.1:0", flush="os", default_partitions=3) as started:
        yield started


def ask(broker: Broker, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection(urlsplit(broker.http).netloc, timeout=60)
    headers = {} if body is None else {"Content-Type": "application/json"}
    connection.request(method, path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    data = json.loads(answer.read())
    connection.close()
    assert answer.status == 200, data
    return data


def consume(broker: Broker, topic: str, count: int) -> list[confluent_kafka.Message]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    found: list[confluent_kafka.Message] = []
    while len(found) < count:
        messages = consumer.consume(count - len(found), 30)
        assert messages, "nothing for half a minute"
        assert all(message.error() is None for message in messages)
        found += messages
    consumer.close()
    return found


def test_what_http_wrote_a_kafka_client_reads(broker: Broker) -> None:
    records = [{"key": f"k{n}", "value": {"n": n}, "headers": [{"name": "h", "value": str(n)}]} for n in range(30)]
    answer = ask(broker, "POST", "/v1/topics/out/produce", {"records": records})
    placed = {
        (each["partition"], each["offset"]): record for each, record in zip(answer["offsets"], records, strict=True)
    }
    found = consume(broker, "out", 30)
    assert {(message.partition(), message.offset()) for message in found} == set(placed)
    for message in found:
        record: Any = placed[message.partition(), message.offset()]
        assert message.key() == record["key"].encode()
        assert json.loads(message.value() or b"") == record["value"]
        assert message.headers() == [("h", record["headers"][0]["value"].encode())]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_a_kafka_client_wrote_http_reads(broker: Broker, codec: str) -> None:
    topic = f"in-{codec}"
    settings = {"bootstrap.servers": broker.bootstrap, "compression.type": codec, "partitioner": "murmur2_random"}
    producer = confluent_kafka.Producer(settings)
    for number in range(50):
        value = b"\xff" if number == 7 else f"value {number}".encode() * 10
        producer.produce(topic, value, f"key {number}", headers=[("h", b"\xfe"), ("h", None)], timestamp=1_000 + number)
    assert producer.flush(60) == 0
    found: dict[str, Any] = {}
    for index in range(3):
        answer = ask(broker, "GET", f"/v1/topics/{topic}/records?partition={index}")
        assert answer["nextOffset"] == answer["highWatermark"] == len(answer["records"])
        found |= {record["key"]: record for record in answer["records"]}
    assert len(found) == 50
    assert found["key 8"]["value"] == "value 8" * 10
    assert found["key 8"]["timestamp"] == 1_008
    assert found["key 8"]["headers"] == [{"name": "h", "valueBase64": "/g=="}, {"name": "h", "value": None}]
    assert found["key 7"]["valueBase64"] == "/w=="


def test_one_key_has_one_partition_by_both_doors(broker: Broker) -> None:
    keys = [f"key-{number}" for number in range(20)]
    answer = ask(broker, "POST", "/v1/topics/keys/produce", {"records": [{"key": key, "value": ""} for key in keys]})
    places: list[int | None] = []
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "partitioner": "murmur2_random"})
    for key in keys:
        producer.produce("keys", b"", key, on_delivery=lambda error, message: places.append(message.partition()))
        assert producer.flush(60) == 0
    assert places == [each["partition"] for each in answer["offsets"]]


def test_committed_transactions_alone_are_read(broker: Broker) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "http-doors"})
    producer.init_transactions(60)
    for value, commits in ((b"aborted", False), (b"committed", True), (b"aborted too", False)):
        producer.begin_transaction()
        producer.produce("transacted", value, partition=0)
        assert producer.flush(60) == 0
        producer.commit_transaction(60) if commits else producer.abort_transaction(60)
    producer.begin_transaction()
    producer.produce("transacted", b"open", partition=0)
    assert producer.flush(60) == 0
    answer = ask(broker, "GET", "/v1/topics/transacted/records?offset=earliest")
    assert [record["value"] for record in answer["records"]] == ["committed"]
    producer.abort_transaction(60)


def test_curl_writes_and_waits(broker: Broker) -> None:
    ask(broker, "POST", "/v1/topics/curled/produce", {"records": [{"value": "first", "partition": 0}]})
    waiting = subprocess.Popen(
        ["curl", "-sS", f"{broker.http}/v1/topics/curled/records?offset=1&wait=30000"], stdout=subprocess.PIPE
    )
    body = json.dumps({"records": [{"value": "x" * 100_000, "partition": 0}]})
    sent = subprocess.run(
        ["curl", "-sS", "--json", "@-", f"{broker.http}/v1/topics/curled/produce"],
        input=body.encode(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert json.loads(sent.stdout) == {"offsets": [{"partition": 0, "offset": 1}]}
    out, _ = waiting.communicate(timeout=60)
    assert [record["value"] for record in json.loads(out)["records"]] == ["x" * 100_000]


def test_curl_watches_all_partitions_and_resumes(broker: Broker) -> None:
    records = [{"key": str(number), "value": number} for number in range(60)]
    ask(broker, "POST", "/v1/topics/watched/produce", {"records": records[:30]})
    first = watch(broker, "/v1/topics/watched/stream?offset=earliest", 30)
    assert len({json.loads(data)["partition"] for _, data in first}) == 3
    ask(broker, "POST", "/v1/topics/watched/produce", {"records": records[30:]})
    resumed = first[9][0]
    second = watch(broker, "/v1/topics/watched/stream", 50, "-H", f"Last-Event-ID: {resumed}")
    seen = [json.loads(data)["value"] for _, data in first[:10] + second]
    assert sorted(map(int, seen)) == list(range(60))


def watch(broker: Broker, path: str, count: int, *more: str) -> list[tuple[str, str]]:
    """The id and the data of so many events."""
    command = ["curl", "-sSN", "--max-time", "60", *more, f"{broker.http}{path}"]
    found: list[tuple[str, str]] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as curl:
        assert curl.stdout is not None
        last = ""
        for line in curl.stdout:
            if line.startswith("id: "):
                last = line.removeprefix("id: ").strip()
            elif line.startswith("data: "):
                found.append((last, line.removeprefix("data: ")))
            if len(found) == count:
                break
        curl.terminate()
    assert len(found) == count
    return found


def test_clients_of_confluents_rest_proxy_write(broker: Broker) -> None:
    """As its quick start does, by curl."""
    base = ["curl", "-sS", "--fail-with-body", "--max-time", "60"]
    kind = "Content-Type: application/vnd.kafka.json.v2+json"
    sent = {"records": [{"key": "v2", "value": {"n": 1}}]}
    curl = [*base, "-H", kind, "-d", json.dumps(sent), f"{broker.http}/topics/proxied"]
    assert json.loads(subprocess.run(curl, capture_output=True, check=True).stdout)["offsets"][0]["error_code"] is None
    clusters = json.loads(subprocess.run([*base, f"{broker.http}/v3/clusters"], capture_output=True).stdout)
    cluster = clusters["data"][0]["cluster_id"]
    records = [{"key": {"type": "STRING", "data": f"v3-{n}"}, "value": {"type": "JSON", "data": n}} for n in range(2)]
    kind = "Content-Type: application/json"
    curl = [*base, "-H", kind, "-H", "Transfer-Encoding: chunked", "-d", "".join(map(json.dumps, records))]
    curl.append(f"{broker.http}/v3/clusters/{cluster}/topics/proxied/records")
    done = subprocess.run(curl, capture_output=True, check=True)
    assert [json.loads(each)["error_code"] for each in done.stdout.split(b"\r\n")] == [200, 200]
    found = {message.key(): message.value() for message in consume(broker, "proxied", 3)}
    assert found == {b'"v2"': b'{"n":1}', b"v3-0": b"0", b"v3-1": b"1"}
