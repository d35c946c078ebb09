"""The five paths that ARCHITECTURE.md tells are those that requests take: every file it names runs a function.

Three nodes in one process; what is around a node there (`server/`) is told and not traced.
"""

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from broker_world import batch, part
from nodes_together import Cluster, create, made, read

from skidway.groups.settings import GroupSettings

ROOT = Path(__file__).parents[3]
SOURCE = f"{ROOT}/src/skidway/"
LONGEST = {"Produce": 16, "Fetch": 12, "Following": 15, "JoinGroup": 12, "CreateTopics": 19}
"""These may only shrink."""
AROUND_A_NODE = ("server/",)


def told() -> dict[str, list[str]]:
    """The table of the paths: the first word of a row, and the files that it names."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text[text.index("## The five paths") :]
    rows = re.findall(r"^\| \*\*(\w+)\*\*.*? \| (\d+) \| (.+) \|$", section, re.MULTILINE)
    paths = {name: re.findall(r"`([\w/]+)`", files) for name, _, files in rows}
    assert {name: len(files) for name, files in paths.items()} == {name: int(number) for name, number, _ in rows}
    return paths


@contextmanager
def traced() -> Iterator[set[str]]:
    """The files whose functions run meanwhile, as the table names them."""
    found: set[str] = set()

    def note(running: FrameType, event: str, argument: Any) -> None:
        if event == "call" and running.f_code.co_filename.startswith(SOURCE):
            found.add(running.f_code.co_filename.removeprefix(SOURCE).removesuffix(".py"))

    sys.setprofile(note)
    try:
        yield found
    finally:
        sys.setprofile(None)


def produce(cluster: Cluster) -> None:
    leader = cluster.until(lambda: cluster.leader("t"))
    client = cluster.client(leader)
    client.produce("t", batch(b"x", producer_id=7, producer_epoch=0, base_sequence=0), acks=-1)
    cluster.until(client.replies)


def fetch(cluster: Cluster) -> None:
    assert read(cluster, cluster.until(lambda: cluster.leader("t")), "t") == [b"first"]


def follow(cluster: Cluster) -> None:
    """From the role that the metadata gives to the copy of what was appended."""
    create(cluster, "followed")
    client = cluster.client(cluster.until(lambda: cluster.leader("followed")))
    client.produce("followed", batch(b"x"), acks=-1)
    cluster.until(client.replies)
    cluster.until(lambda: cluster.agree("followed"))


def join(cluster: Cluster) -> None:
    number = cluster.until(lambda: cluster.leader("__consumer_offsets"))
    client = cluster.client(number)
    protocol = part("JoinGroup", "JoinGroupRequestProtocol", "range", b"")
    timeouts = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000}
    asked = {"group_id": "another", "protocol_type": "consumer", "protocols": [protocol], **timeouts}
    client.send("JoinGroup", version=1, member_id="", **asked)
    ((_, reply),) = cluster.until(client.replies)
    assert reply.error_code == 0


def create_topic(cluster: Cluster) -> None:
    """By a node that is not the controller."""
    client = cluster.client(next(number for number in cluster.nodes if number != cluster.controller()))
    asked = part("CreateTopics", "CreatableTopic", "made", 1, 3)
    client.send("CreateTopics", topics=[asked], timeout_ms=5000)
    ((_, reply),) = cluster.until(client.replies)
    assert [topic.error_code for topic in reply.topics] == [0]


WALKS: dict[str, Callable[[Cluster], None]] = {
    "Produce": produce,
    "Fetch": fetch,
    "Following": follow,
    "JoinGroup": join,
    "CreateTopics": create_topic,
}


@pytest.fixture(scope="module")
def cluster() -> Cluster:
    cluster = made(groups=GroupSettings(offsets_partitions=1))
    create(cluster, "t")
    client = cluster.client(cluster.until(lambda: cluster.leader("t")))
    client.produce("t", batch(b"first"), acks=-1)
    cluster.until(client.replies)
    client.send("FindCoordinator", version=4, key_type=0, coordinator_keys=["g"])
    cluster.until(lambda: all("__consumer_offsets" in node.image.topics for node in cluster.nodes.values()))
    return cluster


def test_five_paths_are_told_and_none_grows() -> None:
    paths = told()
    assert set(paths) == set(WALKS)
    for name, files in paths.items():
        assert len(set(files)) == len(files) <= LONGEST[name], name
        for file in files:
            assert Path(f"{SOURCE}{file}.py").exists(), file


@pytest.mark.parametrize("name", ["Fetch", "Produce", "Following", "JoinGroup", "CreateTopics"])
def test_every_file_that_a_path_names_takes_part_in_it(cluster: Cluster, name: str) -> None:
    with traced() as found:
        WALKS[name](cluster)
    missing = [file for file in told()[name] if file not in found and not file.startswith(AROUND_A_NODE)]
    assert missing == [], "told in ARCHITECTURE.md, and runs no function"
