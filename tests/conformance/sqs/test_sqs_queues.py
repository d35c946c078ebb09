"""Queues of SQS by boto3, in both protocols: their life, attributes, tags, permissions, accounts."""

import json
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest
from botocore.exceptions import ClientError
from sqs_clients import boto_client, boto_resource

from skidway.testing import Broker

NewQueue = Callable[..., str]


def code_of(act: Callable[..., Any], **parameters: Any) -> str:
    with pytest.raises(ClientError) as found:
        act(**parameters)
    return str(found.value.response["Error"]["Code"])


def attributes(client: Any, url: str, *names: str) -> dict[str, str]:
    found = client.get_queue_attributes(QueueUrl=url, AttributeNames=list(names or ["All"]))
    return dict(found.get("Attributes") or {})


def make_topic(broker: Broker, name: str) -> None:
    import confluent_kafka.admin

    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([confluent_kafka.admin.NewTopic(name, 1)])[name].result(30)


def test_the_life_of_a_queue(client: Any, broker: Broker) -> None:
    name = f"life-{uuid4().hex}"
    with pytest.raises(client.exceptions.QueueDoesNotExist):
        client.get_queue_url(QueueName=name)
    url = client.create_queue(QueueName=name)["QueueUrl"]
    assert url == f"{broker.http}/000000000000/{name}"
    assert client.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert client.list_queues(QueueNamePrefix=name)["QueueUrls"] == [url]
    client.delete_queue(QueueUrl=url)
    assert code_of(client.get_queue_url, QueueName=name) == "AWS.SimpleQueueService.NonExistentQueue"
    assert code_of(client.delete_queue, QueueUrl=url) == "AWS.SimpleQueueService.NonExistentQueue"
    assert "QueueUrls" not in client.list_queues(QueueNamePrefix=name)
    assert client.create_queue(QueueName=name)["QueueUrl"] == url


def test_a_queue_is_created_again_only_with_what_it_has(client: Any, new_queue: NewQueue) -> None:
    """Bug 34 of others: after a send it was not."""
    url = new_queue(client, VisibilityTimeout="5", Policy='{"a":1}')
    name = url.rpartition("/")[2]
    client.send_message(QueueUrl=url, MessageBody="a")
    for given in ({}, {"VisibilityTimeout": "5"}, {"DelaySeconds": "0"}, {"VisibilityTimeout": "05"}):
        assert client.create_queue(QueueName=name, Attributes=given)["QueueUrl"] == url
    for given in ({"VisibilityTimeout": "6"}, {"MaximumMessageSize": "1024"}):
        with pytest.raises(ClientError, match="different value for attribute") as found:
            client.create_queue(QueueName=name, Attributes=given)
        assert found.value.response["Error"]["Code"] == "QueueAlreadyExists"


@pytest.mark.parametrize("name", ["", "a b", "a.b", "ä", "x" * 81, "a.fifo"])
def test_names_that_queues_cannot_have(client: Any, name: str) -> None:
    assert code_of(client.create_queue, QueueName=name) == "InvalidParameterValue"


def test_names_that_the_broker_refuses_are_refused_as_names(client: Any, broker: Broker) -> None:
    """Its own topics, and topics whose metrics would have one name."""
    name = f"dots-{uuid4().hex}"
    make_topic(broker, f"{name}.a")
    for refused in ("__consumer_offsets", f"{name}_a"):
        assert code_of(client.create_queue, QueueName=refused) == "InvalidParameterValue"


def test_a_queue_is_not_its_own_dead_letter_queue(client: Any, new_queue: NewQueue) -> None:
    url = new_queue(client)
    arn = attributes(client, url, "QueueArn")["QueueArn"]
    policy = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 3})}
    assert code_of(client.set_queue_attributes, QueueUrl=url, Attributes=policy) == "InvalidParameterValue"
    assert "RedrivePolicy" not in attributes(client, url)


def test_queues_are_listed_in_pages(client: Any) -> None:
    prefix = f"page-{uuid4().hex[:8]}-"
    urls = [client.create_queue(QueueName=f"{prefix}{number}")["QueueUrl"] for number in range(5)]
    assert client.list_queues(QueueNamePrefix=prefix)["QueueUrls"] == urls
    pages, token = [], None
    while True:
        more: dict[str, str] = {} if token is None else {"NextToken": token}
        found = client.list_queues(QueueNamePrefix=prefix, MaxResults=2, **more)
        pages.append(found["QueueUrls"])
        token = found.get("NextToken")
        if token is None:
            break
    assert pages == [urls[:2], urls[2:4], urls[4:]]
    assert code_of(client.list_queues, MaxResults=0) == "InvalidParameterValue"
    assert code_of(client.list_queues, MaxResults=1001) == "InvalidParameterValue"
    assert code_of(client.list_queues, NextToken="no!") == "InvalidParameterValue"


def test_attributes_are_shown_and_changed(client: Any, new_queue: NewQueue) -> None:
    url = new_queue(client)
    name = url.rpartition("/")[2]
    first = attributes(client, url)
    assert first["QueueArn"] == f"arn:aws:sqs:us-east-1:000000000000:{name}"
    assert first["CreatedTimestamp"].isdigit()
    assert first["VisibilityTimeout"] == "30"
    assert "FifoQueue" not in first
    client.set_queue_attributes(
        QueueUrl=url, Attributes={"VisibilityTimeout": "0", "Policy": '{"Version": "x"}', "MaximumMessageSize": "2048"}
    )
    changed = attributes(client, url, "VisibilityTimeout", "Policy", "MaximumMessageSize")
    assert changed == {"VisibilityTimeout": "0", "Policy": '{"Version": "x"}', "MaximumMessageSize": "2048"}
    client.set_queue_attributes(QueueUrl=url, Attributes={"Policy": ""})
    assert "Policy" not in attributes(client, url)
    assert "Attributes" not in client.get_queue_attributes(QueueUrl=url) or not attributes(client, url, "Policy")
    assert code_of(client.get_queue_attributes, QueueUrl=url, AttributeNames=["Nope"]) == "InvalidAttributeName"
    wrong = {"VisibilityTimeout": "43201"}
    assert code_of(client.set_queue_attributes, QueueUrl=url, Attributes=wrong) == "InvalidAttributeValue"


def test_tags_are_kept(client: Any, new_queue: NewQueue) -> None:
    name = f"tags-{uuid4().hex}"
    url = client.create_queue(QueueName=name, tags={"team": "a b", "empty": ""})["QueueUrl"]
    client.tag_queue(QueueUrl=url, Tags={"cost": "7", "team": "c"})
    assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "c", "empty": "", "cost": "7"}
    client.untag_queue(QueueUrl=url, TagKeys=["team", "unknown", "empty"])
    assert client.list_queue_tags(QueueUrl=url)["Tags"] == {"cost": "7"}
    client.untag_queue(QueueUrl=url, TagKeys=["cost"])
    assert "Tags" not in client.list_queue_tags(QueueUrl=url)
    assert code_of(client.tag_queue, QueueUrl=url, Tags={}) == "MissingParameter"
    assert code_of(client.tag_queue, QueueUrl=url, Tags={f"k{n}": "" for n in range(51)}) == "InvalidParameterValue"


def test_permissions_are_statements_of_the_policy(client: Any, new_queue: NewQueue) -> None:
    url = new_queue(client)
    client.add_permission(QueueUrl=url, Label="one", AWSAccountIds=["1" * 12], Actions=["SendMessage"])
    client.add_permission(QueueUrl=url, Label="two", AWSAccountIds=["1" * 12, "2" * 12], Actions=["*"])
    policy = json.loads(attributes(client, url, "Policy")["Policy"])
    given = [(each["Sid"], each["Action"]) for each in policy["Statement"]]
    assert given == [("one", "SQS:SendMessage"), ("two", "SQS:*")]
    again = {"QueueUrl": url, "Label": "one", "AWSAccountIds": ["1" * 12], "Actions": ["SendMessage"]}
    assert code_of(client.add_permission, **again) == "InvalidParameterValue"
    owners = {**again, "Label": "x", "Actions": ["DeleteQueue"]}
    assert code_of(client.add_permission, **owners) == "InvalidParameterValue"
    assert code_of(client.add_permission, **{**again, "Label": "x", "Actions": ["SendMessage"] * 8}) == "OverLimit"
    client.remove_permission(QueueUrl=url, Label="one")
    client.remove_permission(QueueUrl=url, Label="two")
    assert "Policy" not in attributes(client, url)
    assert code_of(client.remove_permission, QueueUrl=url, Label="two") == "InvalidParameterValue"


def test_accounts_and_regions_have_queues_of_their_own(broker: Broker) -> None:
    name = f"mine-{uuid4().hex}"
    elsewhere = [
        boto_client(broker.http),
        boto_client(broker.http, key="123456789012"),
        boto_client(broker.http, key="123456789012", region="eu-west-1"),
    ]
    for number, client in enumerate(elsewhere):
        url = client.create_queue(QueueName=name)["QueueUrl"]
        client.send_message(QueueUrl=url, MessageBody=str(number))
    arns = []
    for number, client in enumerate(elsewhere):
        url = client.get_queue_url(QueueName=name)["QueueUrl"]
        (message,) = client.receive_message(QueueUrl=url, WaitTimeSeconds=5)["Messages"]
        assert message["Body"] == str(number)
        arns.append(attributes(client, url, "QueueArn")["QueueArn"])
        assert client.list_queues(QueueNamePrefix=name)["QueueUrls"] == [url]
    assert len(set(arns)) == 3


def test_the_resource_of_boto3_works_as_well(broker: Broker) -> None:
    sqs = boto_resource(broker.http)
    queue = sqs.create_queue(QueueName=f"resource-{uuid4().hex}", Attributes={"VisibilityTimeout": "7"})
    assert queue.attributes["VisibilityTimeout"] == "7"
    queue.send_message(MessageBody="a", MessageAttributes={"n": {"DataType": "Number", "StringValue": "1"}})
    (message,) = queue.receive_messages(MessageAttributeNames=["All"], WaitTimeSeconds=5)
    assert message.message_attributes["n"]["StringValue"] == "1"
    message.delete()
    queue.reload()
    assert queue.attributes["ApproximateNumberOfMessagesNotVisible"] == "0"
    queue.delete()


def test_a_topic_is_not_a_queue(broker: Broker, json_client: Any) -> None:
    name = f"topic-{uuid4().hex}"
    make_topic(broker, name)
    assert code_of(json_client.get_queue_url, QueueName=name) == "AWS.SimpleQueueService.NonExistentQueue"
    assert code_of(json_client.create_queue, QueueName=name) == "QueueAlreadyExists"
    assert "QueueUrls" not in json_client.list_queues(QueueNamePrefix=name)
