"""Messages of SQS by boto3, in both protocols: sent, received, hidden, deleted. Numbers are those of bugs that other
servers had."""

import hashlib
import threading
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from botocore.exceptions import ClientError

NewQueue = Callable[..., str]
TEXT = "a\r\n\t&<>\"' é 😀 ]]> \ud7ff\ufffd"


def code_of(act: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(ClientError) as found:
        act(**parameters)
    return str(found.value.response["Error"]["Code"])


def receive(client: Any, url: str, **more: Any) -> list[dict[str, Any]]:
    found = client.receive_message(QueueUrl=url, **{"WaitTimeSeconds": 5, **more})
    return list(found.get("Messages", []))


def counts(client: Any, url: str) -> tuple[int, int, int]:
    names = [f"ApproximateNumberOfMessages{kind}" for kind in ("", "NotVisible", "Delayed")]
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
    visible, hidden, delayed = (int(found[name]) for name in names)
    return visible, hidden, delayed


def md5(text: str) -> str:
    return hashlib.md5(text.encode()).hexdigest()


def test_a_message_comes_as_it_was_sent(client: Any, new_queue: NewQueue) -> None:
    """19, 20, 26."""
    url = new_queue(client)
    values = {
        "text": {"DataType": "String", "StringValue": TEXT},
        "number": {"DataType": "Number.float", "StringValue": "-1.5e3"},
        "raw": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
    }
    system = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}
    more = {"MessageAttributes": values, "MessageSystemAttributes": system, "MessageGroupId": "tenant"}
    sent = client.send_message(QueueUrl=url, MessageBody=TEXT, **more)
    assert sent["MD5OfMessageBody"] == md5(TEXT)
    assert UUID(sent["MessageId"])
    assert "SequenceNumber" not in sent
    (found,) = receive(client, url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["All"])
    assert found["Body"] == TEXT
    assert found["MD5OfBody"] == md5(TEXT)
    assert found["MessageAttributes"] == values
    assert found["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert found["MessageId"] == sent["MessageId"]
    known = found["Attributes"]
    assert known["ApproximateReceiveCount"] == "1"
    assert known["SentTimestamp"].isdigit()
    assert known["ApproximateFirstReceiveTimestamp"].isdigit()
    assert (known["SenderId"], known["MessageGroupId"]) == ("test", "tenant")
    assert known["AWSTraceHeader"] == system["AWSTraceHeader"]["StringValue"]
    client.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
    client.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
    assert counts(client, url) == (0, 0, 0)


def test_only_attributes_that_are_asked_for_come(client: Any, new_queue: NewQueue) -> None:
    """22, 23: those that were left out once are there the next time, with a checksum of what is there."""
    url = new_queue(client)
    values = {name: {"DataType": "String", "StringValue": "v"} for name in ("a.x", "a.y", "b")}
    sent = client.send_message(QueueUrl=url, MessageBody="m", MessageAttributes=values)
    for names, expected in (
        ([], None),
        (["b"], {"b"}),
        (["a.*"], {"a.x", "a.y"}),
        (["nothing"], None),
        ([".*"], set(values)),
        (["All"], set(values)),
    ):
        (found,) = receive(client, url, VisibilityTimeout=0, MessageAttributeNames=names)
        assert set(found.get("MessageAttributes", {})) == (expected or set())
        assert ("MD5OfMessageAttributes" in found) == (expected is not None)
        assert "Attributes" not in found
    assert found["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]


def test_a_time_of_zero_is_not_no_time(client: Any, new_queue: NewQueue) -> None:
    """33: hidden for 0 s is not hidden at all; every delivery counts."""
    url = new_queue(client, VisibilityTimeout="3600")
    client.send_message(QueueUrl=url, MessageBody="m")
    receipts = set()
    for number in (1, 2, 3):
        (found,) = receive(client, url, VisibilityTimeout=0, AttributeNames=["ALL"])
        assert found["Attributes"]["ApproximateReceiveCount"] == str(number)
        receipts.add(found["ReceiptHandle"])
    assert len(receipts) == 3


def test_batches_are_answered_entry_by_entry(client: Any, new_queue: NewQueue) -> None:
    """24, 30: attributes have checksums in batches, too; no list of failures without a failure."""
    url = new_queue(client, MaximumMessageSize="1024")
    entries: list[dict[str, Any]] = [{"Id": f"{n}", "MessageBody": f"m{n}"} for n in range(10)]
    entries[4]["MessageAttributes"] = {"Foo": {"DataType": "String", "StringValue": "Bar"}}
    sent = client.send_message_batch(QueueUrl=url, Entries=entries)
    assert "Failed" not in sent
    assert [(each["Id"], each["MD5OfMessageBody"]) for each in sent["Successful"]] == [
        (each["Id"], md5(each["MessageBody"])) for each in entries
    ]
    checksums = [each.get("MD5OfMessageAttributes") for each in sent["Successful"]]
    assert checksums == [None] * 4 + ["ae7155c6026991b6d54b11589678bf9c"] + [None] * 5
    found: list[dict[str, Any]] = []
    while len(found) < 10:
        found += receive(client, url, MaxNumberOfMessages=10)
    assert sorted(each["Body"] for each in found) == sorted(each["MessageBody"] for each in entries)
    handles = [{"Id": f"{n}", "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(found)]
    hidden = client.change_message_visibility_batch(
        QueueUrl=url, Entries=[{**each, "VisibilityTimeout": 60} for each in handles]
    )
    assert len(hidden["Successful"]) == 10
    assert counts(client, url) == (0, 10, 0)
    handles[3]["ReceiptHandle"] = "fake"
    done = client.delete_message_batch(QueueUrl=url, Entries=handles)
    assert [each["Id"] for each in done["Failed"]] == ["3"]
    assert (done["Failed"][0]["Code"], done["Failed"][0]["SenderFault"]) == ("ReceiptHandleIsInvalid", True)
    assert len(done["Successful"]) == 9
    assert counts(client, url) == (0, 1, 0)


def test_an_entry_fails_alone_and_a_request_as_a_whole(client: Any, new_queue: NewQueue) -> None:
    url = new_queue(client, MaximumMessageSize="1024")
    mixed: list[dict[str, Any]] = [
        {"Id": "good", "MessageBody": "m"},
        {"Id": "large", "MessageBody": "x" * 1025},
        {"Id": "control", "MessageBody": "a\uffff"},
        {"Id": "late", "MessageBody": "m", "DelaySeconds": 901},
    ]
    if client.meta.service_model.metadata["protocol"] == "query":
        mixed[3]["DelaySeconds"] = -1
    sent = client.send_message_batch(QueueUrl=url, Entries=mixed)
    assert [each["Id"] for each in sent["Successful"]] == ["good"]
    assert {each["Id"]: each["Code"] for each in sent["Failed"]} == {
        "large": "InvalidParameterValue",
        "control": "InvalidMessageContents",
        "late": "InvalidParameterValue",
    }
    prefix = "AWS.SimpleQueueService."
    send = client.send_message_batch
    assert code_of(send, QueueUrl=url, Entries=[]) == prefix + "EmptyBatchRequest"
    many = [{"Id": f"{n}", "MessageBody": "m"} for n in range(11)]
    assert code_of(send, QueueUrl=url, Entries=many) == prefix + "TooManyEntriesInBatchRequest"
    assert code_of(send, QueueUrl=url, Entries=many[:1] * 2) == prefix + "BatchEntryIdsNotDistinct"
    assert code_of(send, QueueUrl=url, Entries=[{"Id": "a b", "MessageBody": "m"}]) == prefix + "InvalidBatchEntryId"
    huge = [{"Id": f"{n}", "MessageBody": "x" * 600_000} for n in range(2)]
    assert code_of(send, QueueUrl=url, Entries=huge) == prefix + "BatchRequestTooLong"
    assert counts(client, url) == (1, 0, 0)


def test_the_largest_message_fits_and_no_larger_one(client: Any, new_queue: NewQueue) -> None:
    """27: counted in bytes."""
    url = new_queue(client)
    values = {"a": {"DataType": "String", "StringValue": "é"}}
    body = "é" * ((1 << 19) - 5) + "x"  # with 1 + 6 + 2 bytes of the attribute it is one MiB
    client.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=values)
    (found,) = receive(client, url)
    assert found["Body"] == body
    refused = {"QueueUrl": url, "MessageBody": body + "x", "MessageAttributes": values}
    assert code_of(client.send_message, **refused) == "InvalidParameterValue"


def test_receipts_that_nobody_gave_are_refused(client: Any, new_queue: NewQueue) -> None:
    """31: a receipt that was made up deleted something."""
    url, other = new_queue(client), new_queue(client)
    client.send_message(QueueUrl=url, MessageBody="m")
    (found,) = receive(client, url)
    receipt = found["ReceiptHandle"]
    assert code_of(client.delete_message, QueueUrl=other, ReceiptHandle=receipt) == "ReceiptHandleIsInvalid"
    forged = receipt[:-4] + ("AAAA" if receipt[-4:] != "AAAA" else "BBBB")
    for wrong in ("fake", "", forged, "x" * 5_000):
        assert code_of(client.delete_message, QueueUrl=url, ReceiptHandle=wrong) == "ReceiptHandleIsInvalid"
        changed = {"QueueUrl": url, "ReceiptHandle": wrong, "VisibilityTimeout": 1}
        assert code_of(client.change_message_visibility, **changed) == "ReceiptHandleIsInvalid"
    assert counts(client, url) == (0, 1, 0)


def test_a_message_cannot_be_hidden_beyond_twelve_hours(client: Any, new_queue: NewQueue) -> None:
    """32."""
    url = new_queue(client)
    client.send_message(QueueUrl=url, MessageBody="m")
    (found,) = receive(client, url)
    change = {"QueueUrl": url, "ReceiptHandle": found["ReceiptHandle"]}
    for seconds in (43_200, 43_201, -1):
        code = code_of(client.change_message_visibility, **change, VisibilityTimeout=seconds)
        assert code == "InvalidParameterValue"
    client.change_message_visibility(**change, VisibilityTimeout=43_000)
    assert counts(client, url) == (0, 1, 0)
    client.delete_message(**change)
    with pytest.raises(ClientError, match="not available for visibility timeout change") as error:
        client.change_message_visibility(**change, VisibilityTimeout=1)
    assert error.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_a_purge_takes_everything_with_it_once_a_minute(client: Any, new_queue: NewQueue) -> None:
    """36: messages in flight as well."""
    url = new_queue(client)
    for number in range(5):
        client.send_message(QueueUrl=url, MessageBody=str(number))
    (found,) = receive(client, url)
    client.purge_queue(QueueUrl=url)
    assert counts(client, url) == (0, 0, 0)
    with pytest.raises(client.exceptions.PurgeQueueInProgress):
        client.purge_queue(QueueUrl=url)
    client.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
    assert receive(client, url, WaitTimeSeconds=0) == []
    client.send_message(QueueUrl=url, MessageBody="after")
    assert [each["Body"] for each in receive(client, url)] == ["after"]


class Poll(threading.Thread):
    """A long poll in the background."""

    def __init__(self, client: Any, url: str, **more: Any) -> None:
        super().__init__(daemon=True)
        self.asked = {"WaitTimeSeconds": 20, **more}
        self.client, self.url = client, url
        self.found: list[dict[str, Any]] | None = None
        self.start()

    def run(self) -> None:
        self.found = receive(self.client, self.url, **self.asked)

    def end(self) -> list[dict[str, Any]]:
        self.join(60)
        assert self.found is not None
        return self.found


def test_a_poll_wakes_for_the_first_message(client: Any, new_queue: NewQueue) -> None:
    """14: it does not wait for ten."""
    url = new_queue(client)
    poll = Poll(client, url, MaxNumberOfMessages=10)
    client.send_message(QueueUrl=url, MessageBody="first")
    assert [each["Body"] for each in poll.end()] == ["first"]


def test_a_poll_wakes_for_a_message_that_is_given_back(client: Any, new_queue: NewQueue) -> None:
    """13."""
    url = new_queue(client)
    client.send_message(QueueUrl=url, MessageBody="m")
    (found,) = receive(client, url, VisibilityTimeout=3600)
    poll = Poll(client, url)
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = poll.end()
    assert again["MessageId"] == found["MessageId"]


def test_a_poll_wakes_for_a_message_whose_time_is_over(client: Any, new_queue: NewQueue) -> None:
    url = new_queue(client)
    client.send_message(QueueUrl=url, MessageBody="m")
    (found,) = receive(client, url, VisibilityTimeout=1)
    (again,) = receive(client, url, WaitTimeSeconds=20)
    assert again["MessageId"] == found["MessageId"]
    client.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])  # a late one is good enough
    assert counts(client, url) == (0, 0, 0)


def test_a_poll_ends_with_its_queue(client: Any, new_queue: NewQueue) -> None:
    """16: it outlived its queue, and took a message of the next one."""
    url = new_queue(client)
    poll = Poll(client, url)
    client.delete_queue(QueueUrl=url)
    assert client.create_queue(QueueName=url.rpartition("/")[2])["QueueUrl"] == url
    client.send_message(QueueUrl=url, MessageBody="new")
    poll.join(60)
    assert poll.found in ([], None)  # None: the poll came to no queue at all
    (found,) = receive(client, url)
    assert found["Body"] == "new"


@pytest.mark.parametrize(
    ("name", "value"),
    [("MaxNumberOfMessages", 0), ("MaxNumberOfMessages", 11), ("WaitTimeSeconds", 21), ("VisibilityTimeout", 43_201)],
)
def test_a_receive_has_bounds(client: Any, new_queue: NewQueue, name: str, value: int) -> None:
    with pytest.raises(ClientError, match=f"Value {value} for parameter {name} is invalid. Reason: ") as found:
        client.receive_message(QueueUrl=new_queue(client), **{name: value})
    assert found.value.response["Error"]["Code"] == "InvalidParameterValue"


def test_what_a_message_cannot_be(client: Any, new_queue: NewQueue) -> None:
    url = new_queue(client)
    send = client.send_message
    assert code_of(send, QueueUrl=url, MessageBody="") == "MissingParameter"
    assert code_of(send, QueueUrl=url, MessageBody="\x00") == "InvalidMessageContents"
    assert code_of(send, QueueUrl=url, MessageBody="m", MessageDeduplicationId="d") == "InvalidParameterValue"
    assert code_of(send, QueueUrl=url, MessageBody="m", DelaySeconds=901) == "InvalidParameterValue"
    empty = {"a": {"DataType": "String", "StringValue": ""}}
    assert code_of(send, QueueUrl=url, MessageBody="m", MessageAttributes=empty) == "InvalidParameterValue"
    missing = {"QueueUrl": url + "-gone", "MessageBody": "m"}
    assert code_of(send, **missing) == "AWS.SimpleQueueService.NonExistentQueue"
    assert counts(client, url) == (0, 0, 0)


def test_a_message_comes_when_its_delay_is_over(client: Any, new_queue: NewQueue) -> None:
    """12, 21: polls and counters see it. The delay of a message beats the one of its queue."""
    url = new_queue(client, DelaySeconds="900")
    client.send_message(QueueUrl=url, MessageBody="much later")
    client.send_message(QueueUrl=url, MessageBody="soon", DelaySeconds=1)
    assert counts(client, url) == (0, 0, 2)
    assert receive(client, url, WaitTimeSeconds=0) == []
    (found,) = receive(client, url, MaxNumberOfMessages=10, MessageAttributeNames=["All"])
    assert found["Body"] == "soon"
    assert "MessageAttributes" not in found
    entries = [{"Id": "now", "MessageBody": "now", "DelaySeconds": 0}, {"Id": "later", "MessageBody": "later"}]
    assert len(client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 2
    assert [each["Body"] for each in receive(client, url, MaxNumberOfMessages=10)] == ["now"]
    assert counts(client, url) == (0, 2, 2)
    client.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "0"})
    values = {"delay": {"DataType": "Number", "StringValue": "60000"}}
    client.send_message(QueueUrl=url, MessageBody="no delay", MessageAttributes=values)
    (found,) = receive(client, url, MessageAttributeNames=["All"])
    assert found["MessageAttributes"] == values
