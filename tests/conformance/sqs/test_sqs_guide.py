"""The Python of the guide does what the guide says."""

import os
import re
import subprocess
import sys
from pathlib import Path

from skidway.testing import Broker

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "sqs.md"
KEY = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "any"}
WORKER = """
tasks = dramatiq.get_broker()
worker = dramatiq.Worker(tasks, worker_timeout=1000)
worker.start()
tasks.join("default", timeout=60)
worker.stop()
"""


def test_the_program_for_boto3_runs(broker: Broker) -> None:
    """The first part, and those that go on from there with tenants and a move task."""
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    first, tenants, moves = [block for block in blocks if "sqs." in block]
    code = (first + tenants + moves).replace("http://127.0.0.1:8082", broker.http)
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout in ("resize 17.jpg 800\nRUNNING\n", "resize 17.jpg 800\nCOMPLETED\n")


def test_the_program_for_dramatiq_runs(broker: Broker) -> None:
    """With a worker, which `dramatiq` starts on the command line."""
    (block,) = re.findall(r"```python\n(import dramatiq\n.*?)```", GUIDE.read_text(), re.DOTALL)
    code = block.replace("http://127.0.0.1:8082", broker.http) + WORKER
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **KEY}
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "resized 17.jpg\n"


def test_the_environment_is_enough(broker: Broker) -> None:
    given = {"AWS_ENDPOINT_URL": broker.http, "AWS_DEFAULT_REGION": "us-east-1", **KEY}
    code = "import boto3; print(boto3.client('sqs').create_queue(QueueName='from-the-environment')['QueueUrl'])"
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, env={**os.environ, **given}
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == f"{broker.http}/000000000000/from-the-environment\n"
