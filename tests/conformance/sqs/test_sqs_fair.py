"""Fair queues over boto3: a tenant with thousands of messages does not keep the others waiting."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

NewQueue = Callable[..., str]
QUIET_MAX = 400


def send(client: Any, url: str, group: str, count: int) -> None:
    def send_ten(number: int) -> None:
        entries = [{"Id": str(n), "MessageBody": f"{group} {number + n}", "MessageGroupId": group} for n in range(10)]
        assert len(client.send_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == 10

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(send_ten, range(0, count, 10)))


def receive(client: Any, url: str, *, delete: bool = True) -> list[str]:
    """The groups of what it gets."""
    answer = client.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["MessageGroupId"], VisibilityTimeout=600
    )
    messages = answer.get("Messages", [])
    if messages and delete:
        entries = [{"Id": str(n), "ReceiptHandle": each["ReceiptHandle"]} for n, each in enumerate(messages)]
        assert len(client.delete_message_batch(QueueUrl=url, Entries=entries)["Successful"]) == len(messages)
    return [each["Attributes"]["MessageGroupId"] for each in messages]


def test_a_quiet_tenant_passes_the_backlog_of_a_noisy_one(client: Any, new_queue: NewQueue) -> None:
    url = new_queue(client)
    send(client, url, "noisy", 3_000)
    send(client, url, "quiet", 20)
    received: list[str] = []
    while received.count("quiet") < 20:
        received += receive(client, url)
    assert len(received) <= QUIET_MAX
    # What comes now is known to be of somebody else as soon as it is there.
    send(client, url, "quiet", 10)
    assert "quiet" in receive(client, url) + receive(client, url) + receive(client, url)


def test_a_noisy_tenant_alone_is_served_at_full_speed(client: Any, new_queue: NewQueue) -> None:
    url = new_queue(client)
    send(client, url, "noisy", 400)
    received = [receive(client, url, delete=number % 2 == 0) for number in range(40)]
    assert sum(map(len, received)) >= 380
    assert {group for groups in received for group in groups} == {"noisy"}


def test_a_noisy_tenant_gets_its_turn_under_traffic_of_others(client: Any, new_queue: NewQueue) -> None:
    url = new_queue(client)
    send(client, url, "noisy", 500)
    for _ in range(10):
        receive(client, url)
    served = 0
    for number in range(60):
        send(client, url, f"quiet-{number}", 10)
        groups = receive(client, url)
        served += groups.count("noisy")
    assert served >= 10


def test_tenants_are_told_apart_in_flight_too(client: Any, new_queue: NewQueue) -> None:
    """Workers of a noisy tenant that never finish do not stop the others."""
    url = new_queue(client)
    send(client, url, "noisy", 600)
    for _ in range(20):
        receive(client, url, delete=False)
    send(client, url, "quiet", 10)
    received: list[str] = []
    for _ in range(12):
        received += receive(client, url)
    assert received.count("quiet") == 10
