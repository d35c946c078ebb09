"""A broker that answers SQS, and boto3 for it in both protocols."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

_MODELS = str(Path(__file__).parents[2] / "unit" / "gateways")
if _MODELS not in sys.path:
    sys.path.append(_MODELS)

from sqs_clients import boto_client  # noqa: E402

from skidway.testing import Broker  # noqa: E402


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(http="127.0.0.1:0", flush="os", default_partitions=2) as started:
        yield started


@pytest.fixture(params=["json", "query"])
def client(request: pytest.FixtureRequest, broker: Broker) -> Any:
    return boto_client(broker.http, query=request.param == "query")


@pytest.fixture
def json_client(broker: Broker) -> Any:
    return boto_client(broker.http)


@pytest.fixture
def new_queue() -> Callable[..., str]:
    """Creates a queue with a name of its own, and returns its URL."""

    def create(client: Any, suffix: str = "", **attributes: str) -> str:
        name = f"q-{uuid4().hex}{suffix}"
        return str(client.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    return create
