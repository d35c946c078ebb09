"""Dead-letter queues of SQS by boto3, in both protocols."""

import json
from collections.abc import Callable
from typing import Any
from urllib.request import urlopen

import pytest
from botocore.exceptions import ClientError

from waiting import eventually

NewQueue = Callable[..., str]


def arn(client: Any, url: str) -> str:
    return str(client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"])


def policy(target: str, count: int | str) -> str:
    return json.dumps({"deadLetterTargetArn": target, "maxReceiveCount": count})


def letters_written(client: Any) -> int:
    """As the broker's metrics have it."""
    with urlopen(f"{client.meta.endpoint_url}/metrics") as page:
        lines = page.read().decode().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("skidway_dead_letters_written_total "))


def test_a_message_is_dead_after_as_many_deliveries_as_its_queue_allows(client: Any, new_queue: NewQueue) -> None:
    """17: not one more."""
    dead = new_queue(client)
    url = new_queue(client, RedrivePolicy=policy(arn(client, dead), "2"))
    values = {"a": {"DataType": "Number", "StringValue": "1"}}
    client.send_message(QueueUrl=url, MessageBody="poison", MessageAttributes=values)
    for number in ("1", "2"):
        asked = {"VisibilityTimeout": 0, "WaitTimeSeconds": 20, "AttributeNames": ["All"]}
        (found,) = client.receive_message(QueueUrl=url, **asked)["Messages"]
        assert found["Attributes"]["ApproximateReceiveCount"] == number
    asked = {"WaitTimeSeconds": 20, "AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    (letter,) = client.receive_message(QueueUrl=dead, **asked)["Messages"]
    assert (letter["Body"], letter["MessageAttributes"]) == ("poison", values)
    assert letter["MD5OfBody"] == found["MD5OfBody"]
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == arn(client, url)
    assert letter["Attributes"]["SenderId"] == "test"
    assert "Messages" not in client.receive_message(QueueUrl=url)


def test_a_chain_of_dead_letter_queues_counts_for_each_of_them(client: Any, new_queue: NewQueue) -> None:
    """18: deliveries of the queue before were added up, and the letter was dead too early."""
    written_before = letters_written(client)
    last = new_queue(client)
    middle = new_queue(client, RedrivePolicy=policy(arn(client, last), 2))
    first = new_queue(client, RedrivePolicy=policy(arn(client, middle), 2))
    client.send_message(QueueUrl=first, MessageBody="poison")
    for url in (first, first, middle, middle):
        (found,) = client.receive_message(QueueUrl=url, VisibilityTimeout=0, WaitTimeSeconds=20)["Messages"]
        assert found["Body"] == "poison"
    asked = {"WaitTimeSeconds": 20, "AttributeNames": ["DeadLetterQueueSourceArn"]}
    (letter,) = client.receive_message(QueueUrl=last, **asked)["Messages"]
    assert letter["Attributes"]["DeadLetterQueueSourceArn"] == arn(client, middle)
    for url in (first, middle):
        assert "Messages" not in client.receive_message(QueueUrl=url)
    eventually(lambda: letters_written(client) == written_before + 2)


def test_a_redrive_policy_is_shown_changed_and_taken_away(client: Any, new_queue: NewQueue) -> None:
    dead = new_queue(client)
    target = arn(client, dead)
    url = new_queue(client, RedrivePolicy=policy(target, 3))

    def shown() -> Any:
        found = client.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"]).get("Attributes") or {}
        return json.loads(found.get("RedrivePolicy", "null"))

    assert shown() == {"deadLetterTargetArn": target, "maxReceiveCount": 3}
    assert client.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"] == [url]
    name = url.rpartition("/")[2]
    assert client.create_queue(QueueName=name, Attributes={"RedrivePolicy": policy(target, "3")})["QueueUrl"] == url
    client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy(target, 1000)})
    assert shown()["maxReceiveCount"] == 1000
    client.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert shown() is None
    assert not client.list_dead_letter_source_queues(QueueUrl=dead).get("queueUrls")


def test_sources_are_listed_in_pages(client: Any, new_queue: NewQueue) -> None:
    dead = new_queue(client)
    redrive = policy(arn(client, dead), 1)
    urls = sorted(new_queue(client, RedrivePolicy=redrive) for _ in range(3))
    first = client.list_dead_letter_source_queues(QueueUrl=dead, MaxResults=2)
    rest = client.list_dead_letter_source_queues(QueueUrl=dead, MaxResults=2, NextToken=first["NextToken"])
    assert (first["queueUrls"], rest["queueUrls"]) == (urls[:2], urls[2:])
    assert "NextToken" not in rest


def test_a_target_must_be_there_and_allow_it(client: Any, new_queue: NewQueue) -> None:
    dead = new_queue(client, RedriveAllowPolicy='{"redrivePermission": "denyAll"}')
    for target, code in (
        (arn(client, dead), "InvalidParameterValue"),
        (arn(client, dead) + "-gone", "AWS.SimpleQueueService.NonExistentQueue"),
        ("nonsense", "InvalidParameterValue"),
    ):
        with pytest.raises(ClientError) as found:
            new_queue(client, RedrivePolicy=policy(target, 1))
        assert found.value.response["Error"]["Code"] == code
    client.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": ""})
    assert new_queue(client, RedrivePolicy=policy(arn(client, dead), 1))
