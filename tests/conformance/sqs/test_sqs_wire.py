"""SQS as bytes on the wire: forms, paths, signatures, and requests of nobody's good will."""

import hashlib
import http.client
import json
import re
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import confluent_kafka
import pytest
from botocore.exceptions import ClientError
from sqs_clients import boto_client

from skidway.testing import Broker

NewQueue = Callable[..., str]
FORM = "application/x-www-form-urlencoded"
JSON = "application/x-amz-json-1.0"


class Answer:
    def __init__(self, found: http.client.HTTPResponse) -> None:
        self.status = found.status
        self.headers = {name.lower(): value for name, value in found.getheaders()}
        self.text = found.read().decode()

    def element(self, name: str) -> str:
        found = re.search(f"<{name}>(.*?)</{name}>", self.text, re.DOTALL)
        assert found is not None, self.text
        return found[1]


def ask(broker: Broker, method: str, path: str, body: str | bytes | None = None, **headers: str) -> Answer:
    connection = http.client.HTTPConnection(urlsplit(broker.http).netloc, timeout=60)
    connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = Answer(connection.getresponse())
    connection.close()
    return answer


def md5_of_texts(attributes: dict[str, dict[str, str]]) -> str:
    """Of attributes of the type String, as the SDK for Java computes it."""
    raw = b""
    for name, value in sorted(attributes.items()):
        parts = [part.encode() for part in (name, value["DataType"], value["StringValue"])]
        first, kind, text = (len(part).to_bytes(4, "big") + part for part in parts)
        raw += first + kind + b"\x01" + text
    return hashlib.md5(raw).hexdigest()


def form(broker: Broker, path: str, **parameters: str) -> Answer:
    return ask(broker, "POST", path, urlencode(parameters), Content_Type=FORM)


def call(broker: Broker, action: str, body: object, path: str = "/") -> Answer:
    raw = body if isinstance(body, bytes) else json.dumps(body)
    return ask(broker, "POST", path, raw, Content_Type=JSON, X_Amz_Target=f"AmazonSQS.{action}")


def test_a_form_may_go_to_the_root_or_to_the_queue(broker: Broker, json_client: Any, new_queue: NewQueue) -> None:
    url = new_queue(json_client)
    path = urlsplit(url).path
    sent = form(broker, path, Action="SendMessage", MessageBody="a\r&", Version="2012-11-05")
    assert sent.status == 200
    assert sent.headers["content-type"] == "text/xml"
    assert sent.element("RequestId") == sent.headers["x-amzn-requestid"]
    received = ask(broker, "GET", f"{path}?Action=ReceiveMessage&WaitTimeSeconds=5&AttributeName.1=All")
    assert received.element("Body") == "a&#xD;&amp;"
    receipt = received.element("ReceiptHandle")
    gone = form(broker, "/", Action="DeleteMessage", QueueUrl=url, ReceiptHandle=receipt)
    assert gone.status == 200
    assert "DeleteMessageResult" not in gone.text
    other = form(broker, path, Action="GetQueueUrl", QueueName="nowhere")
    assert (other.status, other.element("Type")) == (400, "Sender")
    assert other.element("Code") == "AWS.SimpleQueueService.NonExistentQueue"
    for action in ("CreateQueue", "ListQueues"):
        assert form(broker, path, Action=action, QueueName="x").element("Code") == "InvalidAction"
    assert form(broker, "/", NoAction="x").status == 404
    assert ask(broker, "GET", "/?Action=ListQueues").status == 200


def test_the_path_of_a_queue_may_have_a_dot(broker: Broker, json_client: Any, new_queue: NewQueue) -> None:
    """35: `.fifo` was taken for something else than a part of the name."""
    url = new_queue(json_client, ".fifo", FifoQueue="true")
    path = urlsplit(url).path
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    sent = form(broker, path, Action="SendMessage", MessageBody="m", **ids)
    assert sent.element("SequenceNumber")
    received = call(broker, "ReceiveMessage", {"QueueUrl": url, "WaitTimeSeconds": 5}, path)
    (message,) = json.loads(received.text)["Messages"]
    assert message["MessageId"] == sent.element("MessageId")
    gone = form(broker, path, Action="DeleteMessage", ReceiptHandle=message["ReceiptHandle"])
    assert gone.status == 200
    assert form(broker, path, Action="DeleteQueue").status == 200
    assert call(broker, "GetQueueUrl", {"QueueName": url.rpartition("/")[2]}).status == 400


def test_json_may_go_to_any_path(broker: Broker, json_client: Any, new_queue: NewQueue) -> None:
    url = new_queue(json_client)
    for path in ("/", urlsplit(url).path, "/some/where?x=1"):
        sent = call(broker, "SendMessage", {"QueueUrl": url, "MessageBody": "m", "Unknown": {"a": []}}, path)
        assert sent.status == 200
    name = url.rpartition("/")[2]
    assert call(broker, "SendMessage", {"QueueUrl": name, "MessageBody": "m"}).status == 200  # a bare name
    assert json.loads(call(broker, "DeleteQueue", {"QueueUrl": url}).text) == {}


def test_errors_have_what_clients_look_for(broker: Broker) -> None:
    """28, 29."""
    missing = call(broker, "GetQueueUrl", {"QueueName": "nowhere"})
    assert missing.status == 400
    assert json.loads(missing.text)["__type"] == "com.amazonaws.sqs#QueueDoesNotExist"
    assert missing.headers["x-amzn-query-error"] == "AWS.SimpleQueueService.NonExistentQueue;Sender"
    for action, body, shape in (
        ("Nonsense", {}, "UnknownOperationException"),
        ("SendMessage", b"{", "SerializationException"),
        ("SendMessage", {"QueueUrl": 5}, "SerializationException"),
        ("SendMessage", {}, "MissingRequiredParameterException"),
    ):
        refused = call(broker, action, body)
        assert refused.status == 400
        assert json.loads(refused.text)["__type"] == f"com.amazon.coral.service#{shape}"
        assert refused.headers["x-amzn-query-error"].endswith(";Sender")


def test_the_http_api_keeps_its_paths(broker: Broker) -> None:
    answer = ask(broker, "POST", "/v1/topics/t/produce", "records=1", Content_Type=FORM)
    assert (answer.status, json.loads(answer.text)["code"]) == (415, "not_json")
    assert ask(broker, "GET", "/livez?Action=ListQueues").text == "ok\n"


def test_a_web_page_cannot_use_a_browser_to_come_in(broker: Broker) -> None:
    for headers in ({"Origin": "https://evil.example"}, {"Sec_Fetch_Site": "cross-site"}):
        refused = ask(broker, "POST", "/", "Action=ListQueues", Content_Type=FORM, **headers)
        assert (refused.status, refused.element("Code")) == (403, "AccessDenied")


def test_bombs_are_refused_and_others_are_served(broker: Broker) -> None:
    many = "&".join(f"Attribute.{n}.Name=a" for n in range(100_000))
    assert ask(broker, "POST", "/", f"Action=SetQueueAttributes&{many}", Content_Type=FORM).status == 400
    assert call(broker, "SendMessageBatch", b'{"Entries":' + b"[" * 1_000_000).status == 400
    assert call(broker, "SendMessageBatch", b'{"Entries":[' + b"{}," * 500_000 + b"{}]}").status == 400
    assert call(broker, "CreateQueue", {"QueueName": "x" * 100_000}).status == 400
    assert call(broker, "ListQueues", b"{}" + b" " * (8 << 20)).status == 413
    assert call(broker, "ListQueues", {}).status == 200


def test_a_poll_whose_client_is_gone_takes_nothing(broker: Broker, json_client: Any, new_queue: NewQueue) -> None:
    url = new_queue(json_client)
    host = urlsplit(broker.http)
    assert host.hostname is not None
    body = json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20, "VisibilityTimeout": 3600})
    head = f"POST / HTTP/1.1\r\nHost: localhost\r\nX-Amz-Target: AmazonSQS.ReceiveMessage\r\nContent-Type: {JSON}\r\n"
    for _ in range(5):
        with socket.create_connection((host.hostname, host.port or 0)) as gone:
            gone.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
    for _ in range(3):
        json_client.list_queue_tags(QueueUrl=url)  # the broker has seen by then that they are gone
    json_client.send_message(QueueUrl=url, MessageBody="m")
    found = json_client.receive_message(QueueUrl=url, WaitTimeSeconds=20, AttributeNames=["All"])["Messages"]
    assert found[0]["Attributes"]["ApproximateReceiveCount"] == "1"


def test_a_kafka_consumer_reads_what_sqs_sent(broker: Broker, json_client: Any, new_queue: NewQueue) -> None:
    url = new_queue(json_client)
    values = {
        "colour": {"DataType": "String", "StringValue": "red"},
        "raw": {"DataType": "Binary", "BinaryValue": b"\0"},
    }
    json_client.send_message(QueueUrl=url, MessageBody="body", MessageAttributes=values, MessageGroupId="g")
    topic = url.rpartition("/")[2]
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    message = consumer.poll(60)
    assert message is not None
    assert message.error() is None
    assert (message.key(), message.value()) == (b"g", b"body")
    headers = dict(message.headers() or [])
    assert (headers["colour"], headers["raw"]) == (b"red", b"\0")
    consumer.close()


def test_sqs_receives_what_a_kafka_producer_wrote(broker: Broker, json_client: Any, new_queue: NewQueue) -> None:
    url = new_queue(json_client)
    topic = url.rpartition("/")[2]
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, "value", key="key", headers=[("colour", b"red"), ("raw", b"\xff")])
    producer.produce(topic, b"\xff\x01", key="key")
    assert producer.flush(30) == 0
    found: list[Any] = []
    while len(found) < 2:
        asked = {"MessageAttributeNames": ["All"], "MaxNumberOfMessages": 10, "WaitTimeSeconds": 20}
        found += json_client.receive_message(QueueUrl=url, **asked)["Messages"]
    text = next(each for each in found if each["Body"] == "value")
    assert text["MessageAttributes"]["colour"] == {"DataType": "String", "StringValue": "red"}
    assert text["MessageAttributes"]["raw"] == {"DataType": "Binary", "BinaryValue": b"\xff"}
    assert {each["Body"] for each in found} == {"value", "\ufffd\ufffd"}


def test_no_member_comes_twice(broker: Broker, json_client: Any, new_queue: NewQueue) -> None:
    """25: the SDK for Java stumbled over it. A record may have a header twice, a message an attribute only once."""
    url = new_queue(json_client)
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(url.rpartition("/")[2], "value", headers=[("a", b"1"), ("b", b"2"), ("a", b"3")])
    assert producer.flush(30) == 0
    asked = {"QueueUrl": url, "WaitTimeSeconds": 20, "MessageAttributeNames": ["All"], "AttributeNames": ["All"]}
    received = call(broker, "ReceiveMessage", {**asked, "VisibilityTimeout": 0})

    def once(members: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(members)
        assert len(found) == len(members), members
        return found

    (message,) = json.loads(received.text, object_pairs_hook=once)["Messages"]
    assert sorted(message["MessageAttributes"]) == ["a", "b"]
    assert message["MD5OfMessageAttributes"] == md5_of_texts(message["MessageAttributes"])
    path = urlsplit(url).path
    by_form = f"{path}?Action=ReceiveMessage&WaitTimeSeconds=20&MessageAttributeName.1=All"
    assert sorted(re.findall("<Name>(.*?)</Name>", ask(broker, "GET", by_form).text)) == ["a", "b"]


@pytest.fixture(scope="module")
def guarded() -> Iterator[Broker]:
    keys = "AKIAEXAMPLE:wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY, 123456789012:other"
    with Broker(http="127.0.0.1:0", flush="os", environment={"SKIDWAY_SQS_KEYS": keys}) as started:
        yield started


@pytest.mark.parametrize("query", [False, True], ids=["json", "query"])
def test_with_keys_only_who_knows_one_comes_in(guarded: Broker, query: bool) -> None:
    good = boto_client(guarded.http, query=query, key="AKIAEXAMPLE", secret="wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    url = good.create_queue(QueueName="guarded")["QueueUrl"]
    good.send_message(QueueUrl=url, MessageBody="é & more")
    presigned = good.generate_presigned_url(
        "receive_message", {"QueueUrl": url, "WaitTimeSeconds": 0}, HttpMethod="GET"
    )
    parts = urlsplit(presigned)
    if query:
        assert ask(guarded, "GET", f"{parts.path}?{parts.query}").status == 200
        assert ask(guarded, "GET", f"{parts.path}?{parts.query}0").status == 403
    other = boto_client(guarded.http, query=query, key="123456789012", secret="other", region="eu-west-1")
    assert other.create_queue(QueueName="guarded")["QueueUrl"].endswith("/123456789012/guarded")
    for key, secret, code in (
        ("AKIAEXAMPLE", "wrong", "SignatureDoesNotMatch"),
        ("nobody", "x", "InvalidClientTokenId"),
    ):
        with pytest.raises(ClientError) as found:
            boto_client(guarded.http, query=query, key=key, secret=secret).list_queues()
        assert found.value.response["Error"]["Code"] == code
        assert found.value.response["ResponseMetadata"]["HTTPStatusCode"] == 403
    unsigned = ask(guarded, "GET", f"/?Action=ListQueues&QueueNamePrefix={quote('g')}")
    assert (unsigned.status, unsigned.element("Code")) == (403, "MissingAuthenticationToken")
    assert "wJalr" not in guarded.output
