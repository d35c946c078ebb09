"""Message move tasks on three nodes: one runs a task, all show it and can cancel it, and its death loses nothing."""

from typing import Any

import msgspec
import pytest
from nodes_together import Cluster
from test_http_cluster import Asked, leaders

ARN = "arn:aws:sqs:us-east-1:000000000000:"


class Client:
    """JSON 1.0 to one node, by one connection."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._asked = Asked(cluster, number)

    def __call__(self, action: str, **parameters: Any) -> Any:
        answer = self._asked.ask("POST", "/", parameters, x_amz_target=f"AmazonSQS.{action}")
        assert answer.status == 200, answer
        return answer.json()

    def newest(self) -> dict[str, Any]:
        (task,) = self("ListMessageMoveTasks", SourceArn=ARN + "dead")["Results"]
        return dict(task)

    def waiting(self, name: str) -> int:
        found = self("GetQueueAttributes", QueueUrl=name, AttributeNames=["ApproximateNumberOfMessages"])
        return int(found["Attributes"]["ApproximateNumberOfMessages"])


@pytest.fixture
def cluster() -> Cluster:
    cluster = Cluster(3, default_replication_factor=3)
    cluster.until(lambda: all(node.serving for node in cluster.nodes.values()))
    cluster.until(lambda: all(len(node.image.brokers) == 3 for node in cluster.nodes.values()))
    client = Client(cluster, 1)
    policy = msgspec.json.encode({"deadLetterTargetArn": ARN + "dead", "maxReceiveCount": 1}).decode()
    for name, attributes in (("dead", {}), ("source", {"RedrivePolicy": policy}), ("other", {})):
        client("CreateQueue", QueueName=name, Attributes=attributes)
    names = ("dead", "source", "other")
    cluster.until(lambda: all(leaders(cluster, number, name) for number in cluster.nodes for name in names))
    for number in range(20):
        client("SendMessage", QueueUrl="dead", MessageBody=f"{number}")
    return cluster


def start(client: Client, **more: Any) -> str:
    asked = {"SourceArn": ARN + "dead", "DestinationArn": ARN + "other", **more}
    return str(client("StartMessageMoveTask", **asked)["TaskHandle"])


def test_a_task_is_shown_and_cancelled_by_any_node(cluster: Cluster) -> None:
    handle = start(Client(cluster, 2), MaxNumberOfMessagesPerSecond=1)
    cluster.pass_time(12_000)
    shown = [Client(cluster, number).newest() for number in cluster.nodes]
    assert {(task["Status"], task["TaskHandle"]) for task in shown} == {("RUNNING", handle)}
    # Every ten seconds the others hear how far it is.
    assert all(task["ApproximateNumberOfMessagesMoved"] >= 10 for task in shown)
    moved = Client(cluster, 3)("CancelMessageMoveTask", TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    assert 10 <= moved < 20
    for number in cluster.nodes:
        task = Client(cluster, number).newest()
        assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("CANCELLED", moved)
    cluster.pass_time(5_000)
    assert (Client(cluster, 1).waiting("dead"), Client(cluster, 1).waiting("other")) == (20 - moved, moved)


def test_a_task_whose_node_died_has_failed_and_is_started_again(cluster: Cluster) -> None:
    number = next(each for each in cluster.nodes if each not in leaders(cluster, 1, "dead"))
    start(Client(cluster, number), MaxNumberOfMessagesPerSecond=1)
    cluster.pass_time(3_000)
    cluster.kill(number)
    client = Client(cluster, next(iter(cluster.nodes)))
    cluster.until(lambda: client.newest()["Status"] == "FAILED", 60_000)
    assert client.newest()["FailureReason"].startswith("the node that ran it was restarted")
    start(client)
    cluster.until(lambda: client.newest()["Status"] == "COMPLETED", 60_000)
    cluster.pass_time(60_000)  # what the dead node held is visible again
    if client.waiting("dead"):
        start(client)
        cluster.until(lambda: client.newest()["Status"] == "COMPLETED", 60_000)
    assert client.waiting("dead") == 0
    assert 20 <= client.waiting("other") <= 21  # of the batch that was under way
