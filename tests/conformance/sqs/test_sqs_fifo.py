"""FIFO queues by boto3, in both protocols. Numbers are those of bugs that other servers had."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from sqs_clients import boto_client
from test_sqs_delivery import code_of, counts, receive

from skidway.testing import Broker

NewQueue = Callable[..., str]


def fifo(client: Any, new_queue: NewQueue, **attributes: str) -> str:
    return new_queue(client, ".fifo", FifoQueue="true", **attributes)


def send(client: Any, url: str, body: str, group: str = "g", **more: Any) -> Any:
    return client.send_message(
        QueueUrl=url, MessageBody=body, MessageGroupId=group, **{"MessageDeduplicationId": f"{group}-{body}", **more}
    )


def bodies(client: Any, url: str, count: int = 10, **more: Any) -> list[str]:
    return [each["Body"] for each in receive(client, url, MaxNumberOfMessages=count, **more)]


def delete(client: Any, url: str, message: dict[str, Any]) -> None:
    client.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])


def test_a_fifo_queue_has_the_attributes_of_one(client: Any, new_queue: NewQueue) -> None:
    url = fifo(client, new_queue)
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert (found["FifoQueue"], found["ContentBasedDeduplication"]) == ("true", "false")
    assert (found["DeduplicationScope"], found["FifoThroughputLimit"]) == ("queue", "perQueue")
    client.set_queue_attributes(QueueUrl=url, Attributes={"ContentBasedDeduplication": "true"})
    names = ["ContentBasedDeduplication"]
    assert client.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"][names[0]] == "true"


def test_a_group_comes_in_order(client: Any, new_queue: NewQueue) -> None:
    """1, 2: the next come when those before are deleted, and not because something is sent."""
    url = fifo(client, new_queue)
    sent = [send(client, url, body) for body in "12345"]
    numbers = [each["SequenceNumber"] for each in sent]
    assert numbers == sorted(set(numbers))
    first = receive(client, url, MaxNumberOfMessages=2, MessageSystemAttributeNames=["All"])
    assert [each["Body"] for each in first] == ["1", "2"]
    known = first[0]["Attributes"]
    assert (known["MessageGroupId"], known["MessageDeduplicationId"]) == ("g", "g-1")
    assert known["SequenceNumber"] == numbers[0]
    send(client, url, "other", "h")
    send(client, url, "6")
    assert bodies(client, url) == ["other"]
    assert bodies(client, url, WaitTimeSeconds=0) == []
    assert counts(client, url) == (4, 3, 0)
    delete(client, url, first[0])
    assert bodies(client, url, WaitTimeSeconds=0) == [], "the second is in flight still"
    found: list[str] = []
    poll = threading.Thread(target=lambda: found.extend(bodies(client, url, WaitTimeSeconds=20)))
    poll.start()
    delete(client, url, first[1])
    poll.join(30)
    assert found == ["3", "4", "5", "6"]


def test_after_a_time_out_the_order_is_as_before(client: Any, new_queue: NewQueue) -> None:
    """3, 4: a receipt has expired, and what comes after an extended message waits for it."""
    url = fifo(client, new_queue)
    for body in "123":
        send(client, url, body)
    first = receive(client, url, MaxNumberOfMessages=3, VisibilityTimeout=30)
    for number, seconds in ((0, 1), (1, 60), (2, 1)):
        receipt = first[number]["ReceiptHandle"]
        client.change_message_visibility(QueueUrl=url, ReceiptHandle=receipt, VisibilityTimeout=seconds)
    again = receive(client, url, MaxNumberOfMessages=10, WaitTimeSeconds=10)
    assert [each["Body"] for each in again] == ["1"]
    with pytest.raises(ClientError) as refused:
        delete(client, url, first[0])
    assert refused.value.response["Error"]["Code"] == "InvalidParameterValue"
    assert "The receipt handle has expired" in refused.value.response["Error"]["Message"]
    delete(client, url, again[0])
    delete(client, url, again[0])
    assert bodies(client, url, WaitTimeSeconds=0) == []
    delete(client, url, first[1])
    assert bodies(client, url) == ["3"]


def test_dead_letters_free_their_group(client: Any, new_queue: NewQueue) -> None:
    """5, 6."""
    target = fifo(client, new_queue)
    arn = client.get_queue_attributes(QueueUrl=target, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    policy = f'{{"deadLetterTargetArn": "{arn}", "maxReceiveCount": 1}}'
    url = fifo(client, new_queue, RedrivePolicy=policy)
    send(client, url, "1")
    send(client, url, "2")
    assert bodies(client, url, 1, VisibilityTimeout=1) == ["1"]
    assert bodies(client, url, WaitTimeSeconds=10) == ["2"]
    (dead,) = receive(client, target, WaitTimeSeconds=10, MessageSystemAttributeNames=["All"])
    assert (dead["Body"], dead["Attributes"]["MessageGroupId"]) == ("1", "g")


def test_an_id_is_sent_once(client: Any, new_queue: NewQueue) -> None:
    """7, 8, 11: also after a delete; by the content if the queue says so; the answer is that of the first."""
    url = fifo(client, new_queue, ContentBasedDeduplication="true")
    first = client.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g", DelaySeconds=0)
    (message,) = receive(client, url)
    delete(client, url, message)
    entries = [
        {"Id": "same", "MessageBody": "x", "MessageGroupId": "h"},
        {"Id": "other", "MessageBody": "y", "MessageGroupId": "h"},
        {"Id": "own", "MessageBody": "x", "MessageGroupId": "h", "MessageDeduplicationId": "own"},
    ]
    sent = client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]
    found = {each["Id"]: (each["MessageId"], each["SequenceNumber"]) for each in sent}
    assert found["same"] == (first["MessageId"], first["SequenceNumber"])
    assert len(set(found.values())) == 3
    assert bodies(client, url) == ["y", "x"]


def test_ids_of_groups(client: Any, new_queue: NewQueue) -> None:
    """9."""
    url = fifo(client, new_queue, DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    sent = [send(client, url, "m", group, MessageDeduplicationId="1")["MessageId"] for group in "abcdab"]
    assert len(set(sent)) == 4
    assert counts(client, url) == (4, 0, 0)


def test_what_a_fifo_queue_does_not_take(client: Any, new_queue: NewQueue) -> None:
    url = fifo(client, new_queue)
    body = {"QueueUrl": url, "MessageBody": "m"}
    assert code_of(client.send_message, **body) == "MissingParameter"
    assert code_of(client.send_message, **body, MessageGroupId="g") == "InvalidParameterValue"
    ids = {"MessageGroupId": "g", "MessageDeduplicationId": "d"}
    assert code_of(client.send_message, **body, **ids, DelaySeconds=1) == "InvalidParameterValue"
    assert counts(client, url) == (0, 0, 0)


def test_a_receive_that_is_made_again_gets_the_same(client: Any, new_queue: NewQueue) -> None:
    """10: an answer without messages is not kept."""
    url = fifo(client, new_queue)
    attempt = {"ReceiveRequestAttemptId": "once", "MaxNumberOfMessages": 10}
    assert receive(client, url, **attempt, WaitTimeSeconds=0) == []
    send(client, url, "1")
    send(client, url, "2")
    first = receive(client, url, **attempt)
    assert [each["Body"] for each in first] == ["1", "2"]
    assert receive(client, url, **attempt) == first
    assert receive(client, url, **{**attempt, "ReceiveRequestAttemptId": "other"}, WaitTimeSeconds=0) == []
    delete(client, url, first[0])
    assert receive(client, url, **attempt, WaitTimeSeconds=0) == [], "one of them is deleted"
    delete(client, url, first[1])
    assert counts(client, url) == (0, 0, 0)


def test_ids_and_order_survive_a_crash() -> None:
    with Broker(http="127.0.0.1:0") as broker:
        client = boto_client(broker.http)
        client.create_queue(QueueName="a.fifo", Attributes={"FifoQueue": "true"})
        first = [send(client, "a.fifo", body)["MessageId"] for body in "123"]
        (message,) = receive(client, "a.fifo")
        delete(client, "a.fifo", message)
        broker.restart(kill=True)
        client = boto_client(broker.http)
        again = [send(client, "a.fifo", body)["MessageId"] for body in "1234"]
        assert again[:3] == first
        assert bodies(client, "a.fifo") == ["2", "3", "4"]
