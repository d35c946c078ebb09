"""Message move tasks of SQS by boto3, in both protocols, against a real broker."""

import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError
from sqs_clients import boto_client
from test_sqs_dead_letters import arn, policy
from test_sqs_delivery import counts

from skidway.testing import Broker
from waiting import eventually

NewQueue = Callable[..., str]
OLD = "AWS.SimpleQueueService."


def pair(client: Any, new_queue: NewQueue, suffix: str = "", **attributes: str) -> tuple[str, str]:
    """A queue, and the one for its dead letters."""
    dead = new_queue(client, suffix, **attributes)
    return new_queue(client, suffix, RedrivePolicy=policy(arn(client, dead), 1), **attributes), dead


def send(client: Any, url: str, bodies: list[str], **more: Any) -> None:
    for first in range(0, len(bodies), 10):
        entries = [{"Id": str(number), "MessageBody": body, **more} for number, body in enumerate(bodies[first:][:10])]
        if url.endswith(".fifo"):
            entries = [{**entry, "MessageDeduplicationId": entry["MessageBody"]} for entry in entries]
        assert len(client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == len(entries)


def bury(client: Any, url: str, dead: str, count: int) -> None:
    """Have as many as there are delivered once too often."""

    def look() -> bool:
        client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, VisibilityTimeout=0)
        return counts(client, dead)[0] == count

    eventually(look)


def take_all(client: Any, url: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while messages := client.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, AttributeNames=["All"], MessageAttributeNames=["All"]
    ).get("Messages"):
        found += messages
        entries = [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(messages)]
        client.delete_message_batch(QueueUrl=url, Entries=entries)
    return found


def refusal(act: Callable[..., Any], **asked: Any) -> dict[str, str]:
    with pytest.raises(ClientError) as found:
        act(**asked)
    response = found.value.response
    assert response["ResponseMetadata"]["HTTPStatusCode"] == (404 if "NotFound" in response["Error"]["Code"] else 400)
    return dict(response["Error"])


def newest(client: Any, dead: str) -> dict[str, Any]:
    (task,) = client.list_message_move_tasks(SourceArn=arn(client, dead))["Results"]
    return dict(task)


def ended(client: Any, dead: str) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        task = newest(client, dead)
        return None if task["Status"] in ("RUNNING", "CANCELLING") else task

    return eventually(look)


def test_dead_letters_go_back_to_the_queues_they_came_from(client: Any, new_queue: NewQueue) -> None:
    first, dead = pair(client, new_queue)
    second = new_queue(client, RedrivePolicy=policy(arn(client, dead), 1))
    values = {"a": {"DataType": "Number.n", "StringValue": "1"}}
    send(client, first, ["1", "2"], MessageAttributes=values)
    bury(client, first, dead, 2)
    send(client, second, ["3"])
    bury(client, second, dead, 3)
    before_ms = int(time.time() * 1000)
    assert client.start_message_move_task(SourceArn=arn(client, dead))["TaskHandle"]
    task = ended(client, dead)
    assert (task["Status"], task["SourceArn"]) == ("COMPLETED", arn(client, dead))
    assert (task["ApproximateNumberOfMessagesMoved"], task["ApproximateNumberOfMessagesToMove"]) == (3, 3)
    assert abs(task["StartedTimestamp"] - before_ms) < 600_000
    assert not {"TaskHandle", "DestinationArn", "MaxNumberOfMessagesPerSecond", "FailureReason"} & task.keys()
    assert counts(client, dead) == (0, 0, 0)
    found = take_all(client, first)
    assert sorted(each["Body"] for each in found) == ["1", "2"]
    for each in found:
        assert each["MessageAttributes"] == values
        assert each["Attributes"]["ApproximateReceiveCount"] == "1"
        assert "DeadLetterQueueSourceArn" not in each["Attributes"]
    assert [each["Body"] for each in take_all(client, second)] == ["3"]


def test_dead_letters_go_elsewhere_one_task_after_another(json_client: Any, new_queue: NewQueue) -> None:
    """A task moves what waited when it began, also what was sent to the dead-letter queue by hand."""
    client = json_client
    _, dead = pair(client, new_queue)
    other = new_queue(client)
    for number in range(12):
        send(client, dead, [f"{number}"])
        client.start_message_move_task(SourceArn=arn(client, dead), DestinationArn=arn(client, other))
        assert ended(client, dead)["DestinationArn"] == arn(client, other)
    assert sorted(int(each["Body"]) for each in take_all(client, other)) == list(range(12))
    tasks = client.list_message_move_tasks(SourceArn=arn(client, dead), MaxResults=10)["Results"]
    assert [task["Status"] for task in tasks] == ["COMPLETED"] * 10
    started = [task["StartedTimestamp"] for task in tasks]
    assert started == sorted(started, reverse=True)
    assert len(client.list_message_move_tasks(SourceArn=arn(client, dead), MaxResults=2)["Results"]) == 2


def test_a_task_is_cancelled(client: Any, new_queue: NewQueue) -> None:
    _, dead = pair(client, new_queue)
    other = new_queue(client)
    send(client, dead, [f"{number}" for number in range(20)])
    source = arn(client, dead)
    asked = {"SourceArn": source, "DestinationArn": arn(client, other), "MaxNumberOfMessagesPerSecond": 2}
    handle = client.start_message_move_task(**asked)["TaskHandle"]
    running = eventually(lambda: newest(client, dead).get("ApproximateNumberOfMessagesMoved") and newest(client, dead))
    assert (running["Status"], running["TaskHandle"]) == ("RUNNING", handle)
    assert running["MaxNumberOfMessagesPerSecond"] == 2
    error = refusal(client.start_message_move_task, SourceArn=source)
    assert (error["Code"], error["Message"][:31]) == ("InvalidParameterValue", "There is already a task running")
    moved = client.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    task = ended(client, dead)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("CANCELLED", moved)
    assert "TaskHandle" not in task
    assert 0 < moved < 20
    assert (counts(client, dead)[0], counts(client, other)[0]) == (20 - moved, moved)
    assert refusal(client.cancel_message_move_task, TaskHandle=handle)["Code"] == OLD + "UnsupportedOperation"
    client.start_message_move_task(SourceArn=source, DestinationArn=arn(client, other))
    assert ended(client, dead)["ApproximateNumberOfMessagesMoved"] == 20 - moved


def test_no_more_a_second_than_asked_for(json_client: Any, new_queue: NewQueue) -> None:
    client = json_client
    _, dead = pair(client, new_queue)
    other = new_queue(client)
    send(client, dead, [f"{number}" for number in range(9)])
    asked = {"SourceArn": arn(client, dead), "DestinationArn": arn(client, other)}
    began = time.monotonic()
    client.start_message_move_task(**asked, MaxNumberOfMessagesPerSecond=6)
    while (task := newest(client, dead))["Status"] == "RUNNING":
        # The first is sent at once, and the look takes time as well.
        assert task["ApproximateNumberOfMessagesMoved"] <= 1 + 6 * (time.monotonic() - began)
    assert (task["Status"], counts(client, other)[0]) == ("COMPLETED", 9)
    assert time.monotonic() - began >= 8 / 6


def test_a_letter_without_a_source_ends_the_task_and_stays(client: Any, new_queue: NewQueue) -> None:
    """Also one that names a queue whose dead letters go elsewhere: an attribute can say anything."""
    _, dead = pair(client, new_queue)
    stranger = new_queue(client)
    forged = {"DataType": "String", "StringValue": stranger.rpartition("/")[2]}
    for attributes in ({}, {"__dlq.errors.topic": forged}):
        client.send_message(QueueUrl=dead, MessageBody="by hand", MessageAttributes=attributes)
        client.start_message_move_task(SourceArn=arn(client, dead))
        task = ended(client, dead)
        assert (task["Status"], task["FailureReason"]) == ("FAILED", "CouldNotDetermineMessageSource")
        assert task["ApproximateNumberOfMessagesMoved"] == 0
        (letter,) = take_all(client, dead)  # at once, and as if nobody had had it
        assert letter["Attributes"]["ApproximateReceiveCount"] == "1"
    assert counts(client, stranger) == (0, 0, 0)


def test_what_cannot_be_is_refused(client: Any, new_queue: NewQueue) -> None:
    url, dead = pair(client, new_queue)
    fifo = new_queue(client, ".fifo", FifoQueue="true")
    source, gone = arn(client, dead), arn(client, dead) + "-gone"
    unknown = "eyJ0YXNrSWQiOiJ4Iiwic291cmNlQXJuIjoiJXMifQ=="  # {"taskId":"x","sourceArn":"%s"}
    for action, asked, code in (
        ("start", {"SourceArn": arn(client, url)}, "InvalidParameterValue"),
        ("start", {"SourceArn": gone}, "ResourceNotFoundException"),
        ("start", {"SourceArn": "nonsense"}, "InvalidParameterValue"),
        ("start", {"SourceArn": source, "DestinationArn": gone}, "ResourceNotFoundException"),
        ("start", {"SourceArn": source, "DestinationArn": source}, "InvalidParameterValue"),
        ("start", {"SourceArn": source, "DestinationArn": arn(client, fifo)}, "InvalidParameterValue"),
        ("start", {"SourceArn": source, "MaxNumberOfMessagesPerSecond": 0}, "InvalidParameterValue"),
        ("start", {"SourceArn": source, "MaxNumberOfMessagesPerSecond": 501}, "InvalidParameterValue"),
        ("list", {"SourceArn": gone}, "ResourceNotFoundException"),
        ("list", {"SourceArn": source, "MaxResults": 11}, "InvalidParameterValue"),
        ("cancel", {"TaskHandle": "x"}, "InvalidParameterValue"),
        ("cancel", {"TaskHandle": "e30="}, "InvalidParameterValue"),
        ("cancel", {"TaskHandle": unknown}, "InvalidParameterValue"),
    ):
        call = getattr(client, f"{action}_message_move_task" + "s" * (action == "list"))
        assert refusal(call, **asked)["Code"] == code, (action, asked)
    assert not client.list_message_move_tasks(SourceArn=source).get("Results")


def test_a_handle_of_no_task_is_not_found(json_client: Any, new_queue: NewQueue) -> None:
    client = json_client
    (_, one), (_, two) = pair(client, new_queue), pair(client, new_queue)
    handle = client.start_message_move_task(SourceArn=arn(client, one))["TaskHandle"]
    ended(client, one)
    client.delete_queue(QueueUrl=one)
    with pytest.raises(client.exceptions.ResourceNotFoundException):
        client.cancel_message_move_task(TaskHandle=handle)
    assert not client.list_message_move_tasks(SourceArn=arn(client, two)).get("Results")


def test_a_fifo_queue_gets_its_letters_back_in_order(client: Any, new_queue: NewQueue) -> None:
    """Although each was sent less than five minutes before with the same id."""
    url, dead = pair(client, new_queue, ".fifo", FifoQueue="true", VisibilityTimeout="1")
    bodies = [f"{number}" for number in range(5)]
    for group in ("g", "h"):
        send(client, url, [group + body for body in bodies], MessageGroupId=group)
    bury(client, url, dead, 10)
    client.start_message_move_task(SourceArn=arn(client, dead))
    task = ended(client, dead)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 10)
    found = take_all(client, url)
    for group in ("g", "h"):
        of_group = [each["Body"] for each in found if each["Attributes"]["MessageGroupId"] == group]
        assert of_group == [group + body for body in bodies]


def test_a_broker_killed_in_the_middle_of_a_task_loses_nothing(new_queue: NewQueue) -> None:
    with Broker(http="127.0.0.1:0", flush="os", default_partitions=2) as broker:
        client = boto_client(broker.http)
        _, dead = pair(client, new_queue)
        other = new_queue(client)
        names = [each.rpartition("/")[2] for each in (dead, other)]
        bodies = {f"{number}" for number in range(200)}
        send(client, dead, sorted(bodies))
        asked = {"SourceArn": arn(client, dead), "DestinationArn": arn(client, other)}
        client.start_message_move_task(**asked, MaxNumberOfMessagesPerSecond=100)
        eventually(lambda: newest(client, dead)["ApproximateNumberOfMessagesMoved"] >= 20)
        broker.restart(kill=True)
        client = boto_client(broker.http)
        dead, other = (str(client.get_queue_url(QueueName=name)["QueueUrl"]) for name in names)
        task = newest(client, dead)
        assert (task["Status"], task["FailureReason"][:31]) == ("FAILED", "the node that ran it was restar")
        rest = counts(client, dead)[0]
        assert 0 < rest <= 180

        def is_empty() -> bool:
            client.start_message_move_task(**asked)
            ended(client, dead)
            return counts(client, dead) == (0, 0, 0)

        eventually(is_empty, 120)
        found = [each["Body"] for each in take_all(client, other)]
        assert set(found) == bodies
        assert len(found) <= 200 + 10  # of the batch that was under way
