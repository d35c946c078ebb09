"""Workers of a share group that are killed, over three nodes that are killed too.

Every record is settled in the end, none is given out after its acceptance was answered, and within a leader epoch
nobody holds what another one holds. `SKIDWAY_CHAOS_SHARED` (1,000,000) is how many records `make chaos` works off.
"""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from cluster_calls import create_topic
from cluster_history import QUICK
from confluent_kafka import Producer
from share_groups import configure, initialise, lag
from share_history import History, Journal, read_journals
from share_worker import Worker

from skidway.blocking_client.cluster import Cluster as Client
from skidway.errors import ErrorCode
from skidway.testing import Cluster
from skidway.wire.schema.share_fetch import ShareFetchResponse
from waiting import eventually

RECORDS = int(os.environ.get("SKIDWAY_CHAOS_SHARED", "1_000_000"))
SEED = os.environ.get("SKIDWAY_CHAOS_SEED", "1")
HERE = Path(__file__).parent
GROUP = "workers"
LOCK_MS = 2_000
LIMIT = 10
PATIENCE_S = 180.0
SETTINGS: dict[str, Any] = {
    "groups": {"share_lock_ms_min": 1_000, "share_lock_ms": LOCK_MS},
    "flush": "os",
}
"""Nobody loses power here: what the operating system has is there after a kill."""


class Crew:
    """So many workers at any time: whoever is killed is followed by another one."""

    def __init__(self, bootstrap: str, topic: str, folder: Path, size: int) -> None:
        self.command = [sys.executable, str(HERE / "share_worker.py"), bootstrap, GROUP, topic]
        self.folder = folder
        self.hired = 0
        self.at_work = [self.hire() for _ in range(size)]

    def hire(self) -> "subprocess.Popen[bytes]":
        self.hired += 1
        journal = self.folder / f"{self.hired}.journal"
        journal.touch()
        paths = os.pathsep.join([str(HERE), str(HERE.parent)])
        return subprocess.Popen(
            [*self.command, str(journal), f"{SEED}-{self.hired}"], env={**os.environ, "PYTHONPATH": paths}
        )

    def kill_one(self, dice: Random) -> None:
        victim = dice.randrange(len(self.at_work))
        self.end(self.at_work[victim])
        self.at_work[victim] = self.hire()

    def end(self, worker: "subprocess.Popen[bytes]") -> None:
        worker.kill()
        worker.wait()

    def all_alive(self) -> bool:
        return all(worker.poll() is None for worker in self.at_work)


@contextmanager
def crew(bootstrap: str, topic: str, folder: Path, size: int) -> Iterator[Crew]:
    made = Crew(bootstrap, topic, folder, size)
    try:
        yield made
    finally:
        for worker in made.at_work:
            made.end(worker)


def write(bootstrap: str, topic: str, partitions: int, count: int) -> dict[int, int]:
    """So many records; returns the end of each partition."""
    producer = Producer({**QUICK, "bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    for number in range(count):
        producer.produce(topic, b"%d" % number, partition=number % partitions)
        if number % 1_000 == 0:
            producer.poll(0)
    assert producer.flush(PATIENCE_S) == 0
    return {partition: len(range(partition, count, partitions)) for partition in range(partitions)}


def left_at_most(bootstrap: str, topic: str, count: int) -> bool:
    """Not known while a coordinator moves: then it is not so."""
    time.sleep(0.2)
    found = lag(bootstrap, GROUP, topic).values()
    return min(found) >= 0 and sum(found) <= count


def strike(cluster: Cluster, topic: str, what: str, dice: Random) -> None:
    """Kills, and starts again."""
    if what == "leader":
        nodes = [cluster.leader_of(topic, dice.randrange(3))]
    elif what == "controller":
        nodes = [cluster.controller()]
    else:
        nodes = list(cluster.brokers)
    cluster.kill(*nodes)
    time.sleep(dice.random())
    cluster.start(*nodes, wait=False)
    for node in nodes:
        cluster[node].await_ready(60)
    cluster.await_members()


def run(cluster: Cluster, folder: Path, *, records: int, workers: int, strikes: list[str]) -> None:
    dice, topic, patience_s = Random(SEED), "jobs", PATIENCE_S + records / 200
    create_topic(cluster, topic, 3)
    configure(
        cluster.bootstrap, GROUP, {"share.auto.offset.reset": "earliest", "share.delivery.count.limit": str(LIMIT)}
    )
    initialise(cluster.bootstrap, GROUP, topic, 3)
    ends = write(cluster.bootstrap, topic, 3, records)
    with crew(cluster.bootstrap, topic, folder, workers) as made:
        for number, what in enumerate(strikes, 1):
            share = records * (len(strikes) + 2 - number) // (len(strikes) + 2)
            eventually(lambda: left_at_most(cluster.bootstrap, topic, share), patience_s)  # noqa: B023
            made.kill_one(dice)
            strike(cluster, topic, what, dice)
            made.kill_one(dice)
        eventually(lambda: left_at_most(cluster.bootstrap, topic, 0), patience_s)
        assert made.all_alive(), "a worker ended by itself"
        history = History(read_journals(folder), LOCK_MS / 1000)
    problems = list(history.problems(LIMIT))
    assert not problems, f"{len(problems)} wrong: {problems[:10]}"
    missing = history.missing(ends, LIMIT)
    assert not missing, f"{len(missing)} records were never settled: {missing[:10]}"
    deliveries = sum(len(gots) for gots in history.gots.values())
    print(f"{records} records, {len(history.settled)} known ends, {deliveries} deliveries", end=", ")
    print(f"{made.hired} workers, {len(strikes)} strikes")
    assert deliveries > records, "nothing came twice: no kill met a worker that held something"


def test_a_follower_says_who_leads(tmp_path: Path) -> None:
    with Cluster(3, **SETTINGS) as cluster:
        (place, *_) = create_topic(cluster, "jobs", 1)
        initialise(cluster.bootstrap, GROUP, "jobs", 1)
        leader = cluster.leader_of(*place)
        (follower, *_) = cluster.followers_of(*place)
        with Client(cluster[follower].bootstrap) as client:
            topic = client.look_up("jobs")
            worker = Worker(client, GROUP, "jobs", Journal(tmp_path / "journal"), Random(SEED))
            connection = client.connect(client.picture.brokers[follower])
            answer = connection.call(worker.fetch(follower, topic.id, [0]), ShareFetchResponse)
        ((one,),) = [found.partitions for found in answer.responses]
        assert (answer.error_code, one.error_code) == (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert one.current_leader.leader_id == leader
        (endpoint,) = answer.node_endpoints
        assert (endpoint.node_id, f"{endpoint.host}:{endpoint.port}") == (leader, cluster[leader].bootstrap)


def test_workers_and_nodes_are_killed(tmp_path: Path) -> None:
    with Cluster(3, **SETTINGS) as cluster:
        run(cluster, tmp_path, records=3_000, workers=4, strikes=["leader", "all"])


@pytest.mark.chaos
def test_workers_and_nodes_are_killed_for_long(tmp_path: Path) -> None:
    strikes = ["leader", "controller", "leader", "all", "leader", "controller", "leader", "all", "leader", "all"]
    with Cluster(3, **SETTINGS) as cluster:
        run(cluster, tmp_path, records=RECORDS, workers=8, strikes=strikes)
