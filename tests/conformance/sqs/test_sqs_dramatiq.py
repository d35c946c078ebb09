"""dramatiq with its broker for SQS, unchanged but for the address: tasks, retries, delays, dead letters and a stop."""

import threading
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

import dramatiq
import pytest
from dramatiq.middleware import Retries
from dramatiq_sqs import SQSBroker
from sqs_clients import CONFIG

from skidway.testing import Broker
from waiting import eventually

TIMEOUT_S = 60
NewTasks = Callable[..., Any]


@pytest.fixture
def new_tasks(broker: Broker) -> NewTasks:
    """A broker as dramatiq has them, with queues of its own."""

    def make(**settings: Any) -> Any:
        return SQSBroker(
            namespace=f"dramatiq-{uuid4().hex}",
            middleware=[Retries(max_retries=3, min_backoff=1, max_backoff=2)],
            endpoint_url=broker.http,
            region_name="us-east-1",
            aws_access_key_id="any",
            aws_secret_access_key="any",
            config=CONFIG,
            **settings,
        )

    return make


@contextmanager
def worker(tasks: Any) -> Iterator[None]:
    """Works until the queue is empty, what is in flight or delayed included."""
    started = dramatiq.Worker(tasks, worker_threads=2, worker_timeout=1_000)
    started.start()
    try:
        yield
        tasks.join("default", timeout=TIMEOUT_S)
    finally:
        started.stop()


def test_tasks_are_worked_on_retried_and_delayed(new_tasks: NewTasks) -> None:
    tasks = new_tasks(tags={"team": "a"})
    done: list[str] = []
    tries: list[str] = []

    def work(text: str) -> None:
        done.append(text)

    def stumble(text: str) -> None:
        tries.append(text)
        if len(tries) < 3:
            raise RuntimeError("not yet")

    working, stumbling = (dramatiq.actor(broker=tasks)(task) for task in (work, stumble))
    texts = [f"{number} 😀 & \r\n" for number in range(20)]
    for text in texts:
        working.send(text)
    stumbling.send("again")
    working.send_with_options(args=("later",), delay=1_000)
    with worker(tasks):
        pass
    assert sorted(done) == sorted([*texts, "later"])
    assert tries == ["again"] * 3
    assert tasks.sqs.meta.client.list_queue_tags(QueueUrl=tasks.queues["default"].url)["Tags"] == {"team": "a"}


def test_a_task_that_always_fails_becomes_a_dead_letter(new_tasks: NewTasks) -> None:
    tasks = new_tasks(dead_letter=True)

    def fail() -> None:
        raise RuntimeError("never")

    sent = dramatiq.actor(broker=tasks, max_retries=0)(fail).send()
    with worker(tasks):
        pass
    (letter,) = tasks.dead_letter_queues["default"].receive_messages(WaitTimeSeconds=10)
    assert dramatiq.Message.decode(b64decode(letter.body)).message_id == sent.message_id


def test_a_worker_that_stops_gives_back_what_it_has_not_begun(new_tasks: NewTasks) -> None:
    """The rest would be hidden for 12 hours."""
    tasks = new_tasks()
    begun, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def work(number: int) -> None:
        begun.set()
        assert go_on.wait(TIMEOUT_S)
        done.append(number)

    working = dramatiq.actor(broker=tasks)(work)
    for number in range(10):
        working.send(number)
    first = dramatiq.Worker(tasks, worker_threads=1, worker_timeout=1_000)
    first.start()
    assert begun.wait(TIMEOUT_S)
    stopping = threading.Thread(target=first.stop)
    stopping.start()
    eventually(lambda: not any(each.running for each in first.workers))
    go_on.set()
    stopping.join(TIMEOUT_S)
    assert len(done) == 1
    with worker(tasks):
        pass
    assert sorted(done) == list(range(10))
