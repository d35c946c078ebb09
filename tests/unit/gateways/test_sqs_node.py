"""SQS on one node, without sockets: what takes long, needs many queues, or another time of day. Numbers are those of
bugs that other servers had."""

from typing import Any

import msgspec
import pytest
from http_world import HttpPeer, HttpWorld, request

HOUR_MS = 3_600_000


class Client:
    def __init__(self) -> None:
        self.world = HttpWorld()
        self._peer = self.world.http()

    def __call__(self, action: str, **parameters: Any) -> Any:
        answer = self._peer.ask("POST", "/", parameters, x_amz_target=f"AmazonSQS.{action}")
        assert answer.status == 200, answer
        return answer.json()

    def receive(self, **parameters: Any) -> list[Any]:
        found: list[Any] = self("ReceiveMessage", **{"QueueUrl": "jobs", **parameters}).get("Messages", [])
        return found

    def parked(self, wait_s: int) -> HttpPeer:
        """A receive that waits for a message."""
        peer = self.world.http()
        asked = {"QueueUrl": "jobs", "WaitTimeSeconds": wait_s}
        peer.give(request("POST", "/", asked, x_amz_target="AmazonSQS.ReceiveMessage"))
        peer.settle()
        assert not peer.out
        return peer

    def pass_ms(self, ms: int) -> None:
        self.world.clock.now_ms += ms
        self.world.node.on_time(self.world.clock.now_ms)
        self.world.settle()


@pytest.fixture
def client() -> Client:
    made = Client()
    made("CreateQueue", QueueName="jobs")
    return made


def test_the_longest_poll_has_its_whole_time_and_an_answer(client: Client) -> None:
    """15: a server hung up when the poll was just about to end. Celery does so after 20 s."""
    peer = client.parked(20)
    client.pass_ms(19_400)
    peer.settle()
    assert not peer.out
    client.pass_ms(200)
    peer.settle()
    (answer,) = peer.answers()
    assert (answer.status, answer.json()) == (200, {})
    assert not peer.closed


def test_an_entry_without_a_time_fails_alone(client: Client) -> None:
    """SDKs for Go left a zero out, and Amazon says so for the entry."""
    for body in "abc":
        client("SendMessage", QueueUrl="jobs", MessageBody=body)
    receipts = [each["ReceiptHandle"] for each in client.receive(MaxNumberOfMessages=10)]
    entries: list[dict[str, Any]] = [{"Id": f"{n}", "ReceiptHandle": receipt} for n, receipt in enumerate(receipts)]
    entries[0]["VisibilityTimeout"] = entries[2]["VisibilityTimeout"] = 0
    changed = client("ChangeMessageVisibilityBatch", QueueUrl="jobs", Entries=entries)
    assert [each["Id"] for each in changed["Successful"]] == ["0", "2"]
    (failed,) = changed["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("1", "MissingParameter", True)
    assert failed["Message"].endswith(" ChangeMessageVisibilityBatchRequestEntry.2.VisibilityTimeout.")
    assert len(client.receive(MaxNumberOfMessages=10)) == 2
    nothing = client("ChangeMessageVisibilityBatch", QueueUrl="jobs", Entries=[entries[1]])
    assert [*nothing] == ["Failed"]


def test_a_thousand_queues_are_listed_at_once_and_the_rest_on_request(client: Client) -> None:
    """37: Celery lists the queues of its prefix, and creates those that it does not find."""
    names = [f"many-{number:04}" for number in range(1_001)]
    for name in names:
        client("CreateQueue", QueueName=name)
    listed = client("ListQueues", QueueNamePrefix="many-")
    assert [url.rpartition("/")[2] for url in listed["QueueUrls"]] == names[:1_000]
    assert "NextToken" not in listed
    first = client("ListQueues", QueueNamePrefix="many-", MaxResults=1_000)
    rest = client("ListQueues", QueueNamePrefix="many-", MaxResults=1_000, NextToken=first["NextToken"])
    assert [url.rpartition("/")[2] for url in rest["QueueUrls"]] == names[1_000:]
    assert "NextToken" not in rest


@pytest.mark.parametrize("leap_ms", [-3 * HOUR_MS, HOUR_MS])
def test_another_time_of_day_changes_no_visibility(client: Client, leap_ms: int) -> None:
    """39: what is in flight stays there as long as was said, and its receipt is good."""
    for body in "ab":
        client("SendMessage", QueueUrl="jobs", MessageBody=body)
    first, second = client.receive(MaxNumberOfMessages=10, VisibilityTimeout=60)
    poll = client.parked(20)
    client.world.clock.leapt_ms += leap_ms
    client.pass_ms(1_000)
    poll.settle()
    assert not poll.out, "nobody's time is over"
    client("DeleteMessage", QueueUrl="jobs", ReceiptHandle=first["ReceiptHandle"])
    changed = {"ReceiptHandle": second["ReceiptHandle"], "VisibilityTimeout": 10}
    client("ChangeMessageVisibility", QueueUrl="jobs", **changed)
    client.pass_ms(9_000)
    poll.settle()
    assert not poll.out
    client.pass_ms(1_001)
    poll.settle()
    (answer,) = poll.answers()
    (again,) = answer.json()["Messages"]
    assert again["MessageId"] == second["MessageId"]


@pytest.mark.parametrize("leap_ms", [-3 * HOUR_MS, HOUR_MS])
def test_another_time_of_day_loses_no_delayed_message(client: Client, leap_ms: int) -> None:
    """39: it comes by the new time of day, and nothing that is sent then waits for it."""
    client("SendMessage", QueueUrl="jobs", MessageBody="delayed", DelaySeconds=600)
    client.world.clock.leapt_ms += leap_ms
    client("SendMessage", QueueUrl="jobs", MessageBody="after")
    client.pass_ms(1_000)
    now = sorted(each["Body"] for each in client.receive(MaxNumberOfMessages=10))
    assert now == (["after", "delayed"] if leap_ms > 0 else ["after"])
    client.pass_ms(max(-leap_ms, 0) + 600_000)
    assert "delayed" in now or "delayed" in [each["Body"] for each in client.receive(MaxNumberOfMessages=10)]


def test_a_queue_that_is_made_again_has_nothing_to_do_with_the_tasks_of_the_deleted_one(client: Client) -> None:
    """A task of the deleted one was at work, and its end was written to whatever had the name by then."""
    arn = "arn:aws:sqs:us-east-1:000000000000:"
    policy = msgspec.json.encode({"deadLetterTargetArn": arn + "dead", "maxReceiveCount": 1}).decode()
    client("CreateQueue", QueueName="dead")
    client("SetQueueAttributes", QueueUrl="jobs", Attributes={"RedrivePolicy": policy})
    for number in range(5):
        client("SendMessage", QueueUrl="dead", MessageBody=f"{number}")
    task = {"SourceArn": arn + "dead", "DestinationArn": arn + "jobs"}
    client("StartMessageMoveTask", **task, MaxNumberOfMessagesPerSecond=1)
    assert client("ListMessageMoveTasks", SourceArn=arn + "dead")["Results"][0]["Status"] == "RUNNING"
    client("DeleteQueue", QueueUrl="dead")
    client("CreateQueue", QueueName="dead")
    for _ in range(20):
        client.pass_ms(1_000)
    assert client("ListMessageMoveTasks", SourceArn=arn + "dead") == {}
    client("SendMessage", QueueUrl="dead", MessageBody="new")
    client("StartMessageMoveTask", **task)
    for _ in range(5):
        client.pass_ms(1_000)
    (done,) = client("ListMessageMoveTasks", SourceArn=arn + "dead", MaxResults=10)["Results"]
    assert (done["Status"], done["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 1)
