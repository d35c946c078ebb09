"""Rounds of faults drawn from a seed, for as long as wanted; afterwards everything acknowledged is looked for.

`SKIDWAY_CHAOS_MINUTES` (5) is for each number of nodes, `SKIDWAY_CHAOS_SEED` (1) for the dice. A short run of a few
rounds is part of the ordinary tests.
"""

import os
import threading
import time
from collections import defaultdict
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest
from cluster_calls import create_topic
from cluster_faults import Faults
from cluster_history import QUICK, Follower, History, Writer, close
from confluent_kafka import Consumer, KafkaException, TopicPartition
from loaded import Load
from replica_files import assert_replicas_equal, await_in_sync

from disk_faults import small_file_system
from faked_clocks import Clock, library
from skidway.testing import Cluster

MINUTES = float(os.environ.get("SKIDWAY_CHAOS_MINUTES", "5"))
SEED = int(os.environ.get("SKIDWAY_CHAOS_SEED", "1"))
PARTITIONS = 4
VOLUME_MEGABYTES = 400
CHECK_EVERY = 10
SHORT_ROUNDS, SHORT_SEED = 3, 4


class Committer(threading.Thread):
    """Commits 1, 2, 3, … for one partition of a group; what is read back is the last one acknowledged, or the next."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        super().__init__(daemon=True)
        self.place = TopicPartition(topic, 0)
        self.consumer = Consumer({**QUICK, "bootstrap.servers": bootstrap, "group.id": f"commits-{topic}"})
        self.acknowledged = self.sent = 0
        self._stop_now = threading.Event()

    def run(self) -> None:
        while not self._stop_now.wait(0.02):
            self.sent = self.acknowledged + 1
            place = TopicPartition(self.place.topic, 0, self.sent)
            try:
                (answer,) = self.consumer.commit(offsets=[place], asynchronous=False)
            except KafkaException:
                continue
            if answer.error is None:
                self.acknowledged = self.sent

    def finish(self) -> None:
        self._stop_now.set()
        self.join()
        (found,) = self.consumer.committed([self.place], 30)
        assert found.error is None, found.error
        assert self.acknowledged <= found.offset <= self.sent, (self.acknowledged, found.offset, self.sent)
        close(self.consumer)


class Rounds:
    def __init__(self, cluster: Cluster, faults: Faults) -> None:
        self.cluster = cluster
        self.faults = faults
        self.history = History()
        self.gaps: dict[str, list[float]] = defaultdict(list)
        topics = {faults.topic: "os", f"{faults.topic}-synced": "sync"}
        self.loads = []
        for topic, flush in topics.items():
            places = create_topic(cluster, topic, faults.partitions, flush=flush)
            writer = Writer(cluster.bootstrap, self.history, topic, topic, faults.partitions, rate=100)
            self.loads.append(Load(cluster, topic, places, writer, self.history))
        self.places = [place for load in self.loads for place in load.places]

    def run(self, rounds: int, seconds: float) -> None:
        ends = time.monotonic() + seconds
        committer = Committer(self.cluster.bootstrap, self.faults.topic)
        committer.start()
        with ExitStack() as stack:
            for load in self.loads:
                stack.enter_context(load.writer)
                stack.enter_context(Follower(self.cluster.bootstrap, self.history, load.topic, self.faults.partitions))
                load.goes_on(20)
            while self.faults.number < rounds and time.monotonic() < ends:
                self._round()
        for load in self.loads:
            load.writer.finish()
        committer.finish()
        assert not self.history.failures, self.history.failures[:5]
        self._check(compare=True)
        sent = sum(load.writer.sent for load in self.loads)
        assert self.history.count == sent, "each message is acknowledged once"
        self._tell(committer)

    def _round(self) -> None:
        began = time.monotonic()
        fault = self.faults.round()
        for load in self.loads:
            load.goes_on(20)
        await_in_sync(self.cluster, self.places)
        gap_s = self.history.longest_gap_s(began)
        self.gaps[fault].append(gap_s)
        print(
            f"round {self.faults.number}: {fault} for {self.faults.lasted_s:.1f} s, longest gap {gap_s:.1f} s,"
            f" {self.history.count:,} acknowledged"
        )
        if self.faults.number % CHECK_EVERY == 0:
            self._check(compare=False)

    def _check(self, *, compare: bool) -> None:
        self.history.check(self.cluster.bootstrap)
        if compare:
            assert_replicas_equal(self.cluster, self.places)

    def _tell(self, committer: Committer) -> None:
        worst = max(self.gaps, key=lambda fault: max(self.gaps[fault]))
        print(
            f"\n{len(self.cluster.brokers)} nodes, {self.faults.number} rounds: {self.history.count:,} messages and"
            f" {committer.acknowledged:,} commits acknowledged, 0 lost, logs equal on all replicas;"
            f" longest gap {max(self.gaps[worst]):.1f} s ({worst})"
        )
        for fault, taken in sorted(self.gaps.items()):
            print(f"  {fault:20} {len(taken):3} times, gaps up to {max(taken):.1f} s")
        for change, times in sorted(self.faults.changed.items()):
            print(f"  {change:20} {times:3} times")


def run_rounds(folder: Path, nodes: int, seed: int, rounds: int, seconds: float, *, membership: bool = False) -> None:
    """`membership`: voters leave and return meanwhile, and brokers that are down are forgotten."""
    with ExitStack() as stack:
        home = folder / "nodes"
        home.mkdir()
        volume = None
        if os.geteuid() == 0:
            volume = stack.enter_context(small_file_system(home / f"node-{nodes}", VOLUME_MEGABYTES))
        numbers = range(1, nodes + 1)
        clocks = {node: Clock(folder / f"clock-{node}") for node in numbers} if library() else {}
        settings = {node: {"environment": clock.environment} for node, clock in clocks.items()}
        cluster = stack.enter_context(Cluster(nodes, data_dir=home, node_settings=settings))
        faults = Faults(cluster, Random(seed), f"rounds-{seed}", PARTITIONS, volume, clocks)
        if membership:
            faults.further = Random(f"{seed}/membership")
        Rounds(cluster, faults).run(rounds, seconds)


def test_a_few_rounds_of_faults_lose_nothing(tmp_path: Path) -> None:
    run_rounds(tmp_path, 3, seed=SHORT_SEED, rounds=SHORT_ROUNDS, seconds=60)


@pytest.mark.chaos
@pytest.mark.timeout(MINUTES * 60 + 900)
@pytest.mark.parametrize("nodes", [3, 5])
def test_many_rounds_of_faults_lose_nothing(tmp_path: Path, nodes: int) -> None:
    run_rounds(tmp_path, nodes, seed=SEED, rounds=10_000, seconds=MINUTES * 60, membership=True)
