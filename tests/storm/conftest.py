"""Storms run against a broker of their own, or the one at SKIDWAY_CONFORMANCE_BOOTSTRAP, with the raw client of the
conformance tests."""

import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

CONFORMANCE = Path(__file__).parents[1] / "conformance"
for folder in (CONFORMANCE, CONFORMANCE / "groups"):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

from group_settings import group_settings  # noqa: E402
from raw import Connection, MakeTopic  # noqa: E402
from serving import serving_groups  # noqa: E402

from waiting import eventually  # noqa: E402

GIVEN = os.environ.get("SKIDWAY_CONFORMANCE_BOOTSTRAP")


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    if GIVEN:
        yield serving_groups(GIVEN)
        return
    from skidway.testing import Broker

    with Broker(**group_settings()) as broker:
        yield serving_groups(broker.bootstrap)


@pytest.fixture
def wire(bootstrap: str) -> Iterator[Connection]:
    with Connection(bootstrap) as connection:
        yield connection


@pytest.fixture
def group() -> str:
    return f"g-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def make_topic(wire: Connection) -> MakeTopic:
    def make(partitions: int) -> str:
        topic = f"t-{uuid.uuid4().hex[:12]}"
        wanted = {"name": topic, "num_partitions": partitions, "replication_factor": 1}
        (made,) = wire.call("CreateTopics", 7, {"topics": [wanted], "timeout_ms": 8000})["topics"]
        assert made["error_code"] == 0, made
        asked = {"name": topic, "partitions": [{"partition_index": p, "timestamp": -1} for p in range(partitions)]}

        def answers() -> bool:
            (found,) = wire.call("ListOffsets", 7, {"replica_id": -1, "topics": [asked]})["topics"]
            return all(one["error_code"] == 0 for one in found["partitions"])

        eventually(answers)
        return topic

    return make
