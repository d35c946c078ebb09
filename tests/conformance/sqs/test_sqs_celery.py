"""A Celery worker with the settings of the guide: tasks, retries, a countdown, and a warm shutdown inside a poll."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from test_sqs_delivery import counts, receive

from skidway.testing import Broker
from waiting import eventually

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "sqs.md"
PATIENCE_S = 120
TASKS = """
app.conf.task_default_queue = "by-celery"


def said(*words):
    with open("said.txt", "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")


@app.task
def work(text):
    said(text)


@app.task(bind=True, max_retries=3)
def stumble(self):
    said("try", self.request.retries)
    if self.request.retries < 2:
        raise self.retry(countdown=0)


if __name__ == "__main__":
    for number in range(10):
        work.delay(f"{number} 😀 &")
    stumble.delay()
    work.apply_async(("later",), countdown=1)
"""


def write_module(folder: Path, broker: Broker) -> None:
    (block,) = re.findall(r"```python\n(from celery import Celery\n.*?)```", GUIDE.read_text(), re.DOTALL)
    (folder / "tasks.py").write_text(block.replace("127.0.0.1:8082", broker.http.partition("//")[2]) + TASKS)


@contextmanager
def worker(folder: Path) -> Iterator["subprocess.Popen[bytes]"]:
    command = [
        sys.executable,
        "-m",
        "celery",
        "--app",
        "tasks",
        "worker",
        "--concurrency",
        "2",
        "--loglevel",
        "WARNING",
    ]
    with (folder / "worker.txt").open("wb") as printed:
        process = subprocess.Popen(
            command, cwd=folder, stdout=printed, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        yield process
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def test_a_worker_does_its_tasks_and_leaves_nothing_hidden(broker: Broker, json_client: Any, tmp_path: Path) -> None:
    """37: whoever stops inside a poll takes no message with it."""
    write_module(tmp_path, broker)
    subprocess.run([sys.executable, "tasks.py"], cwd=tmp_path, check=True, timeout=PATIENCE_S)
    url = json_client.get_queue_url(QueueName="by-celery")["QueueUrl"]
    assert sum(counts(json_client, url)) == 12
    said = tmp_path / "said.txt"
    expected = sorted([*(f"{number} 😀 &" for number in range(10)), "later", "try 0", "try 1", "try 2"])
    with worker(tmp_path) as process:
        eventually(lambda: said.exists() and len(said.read_text().splitlines()) >= len(expected), PATIENCE_S)
        eventually(lambda: counts(json_client, url) == (0, 0, 0), PATIENCE_S)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) == 0, (tmp_path / "worker.txt").read_text()
    assert sorted(said.read_text().splitlines()) == expected
    json_client.send_message(QueueUrl=url, MessageBody="for the next")
    (found,) = receive(json_client, url, AttributeNames=["All"])
    assert (found["Body"], found["Attributes"]["ApproximateReceiveCount"]) == ("for the next", "1")
