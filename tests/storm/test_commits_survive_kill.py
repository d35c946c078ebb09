"""kill -9 of the broker between a commit and its answer, again and again.

Each committer counts up, one commit at a time, and says in the metadata which one it is. After a restart the offset
that is read back is the last acknowledged one or the one that was on its way, with its own metadata: never an older
one, never a mixture.
"""

import os
import threading
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from group_calls import NONE, commit
from group_settings import group_settings
from raw import Connection
from serving import serving_groups

from skidway.testing import Broker
from waiting import eventually

pytestmark = [
    pytest.mark.xdist_group("group-storm"),
    pytest.mark.skipif("SKIDWAY_CONFORMANCE_BOOTSTRAP" in os.environ, reason="only for a broker that we may kill"),
]

ROUNDS = 5
CHAOS_ROUNDS = int(os.environ.get("SKIDWAY_CHAOS_ROUNDS", "60"))
COMMITTERS = 6
TOPIC = "read"


def metadata_of(group: str, offset: int) -> str:
    return f"{group}:{offset}:" + "abcdefghij" * (offset % 40)


@dataclass
class Committer:
    group: str
    partition: int
    acknowledged: int = -1
    sent: int = -1
    errors: list[int] = field(default_factory=list)

    def run(self, bootstrap: str) -> None:
        """Until the broker is gone."""
        try:
            with Connection(bootstrap) as wire:
                while True:
                    self.sent += 1
                    found = commit(
                        wire,
                        self.group,
                        TOPIC,
                        {self.partition: self.sent},
                        metadata=metadata_of(self.group, self.sent),
                    )
                    if found[self.partition] == NONE:
                        self.acknowledged = self.sent
                    else:
                        self.errors.append(found[self.partition])
                        self.sent = self.acknowledged
        except OSError:
            return

    def check(self, wire: Connection) -> None:
        asked = {"group_id": self.group, "topics": [{"name": TOPIC, "partition_indexes": [self.partition]}]}

        def answered() -> dict[str, Any]:
            (answer,) = wire.call("OffsetFetch", 8, {"groups": [asked], "require_stable": True})["groups"]
            return answer if answer["error_code"] == NONE else {}

        (found,) = eventually(answered)["topics"][0]["partitions"]
        offset = found["committed_offset"]
        assert self.acknowledged <= offset <= self.sent, f"{self}: {offset} was read back"
        assert found["metadata"] == ("" if offset == -1 else metadata_of(self.group, offset))
        self.acknowledged = self.sent = offset


def kill_again_and_again(rounds: int, seed: int) -> None:
    dice = Random(seed)
    committers = [Committer(f"g-{number // 2}-{seed}", number % 2) for number in range(COMMITTERS)]
    with Broker(**group_settings()) as broker:
        serving_groups(broker.bootstrap)
        with Connection(broker.bootstrap) as wire:
            wanted = {"name": TOPIC, "num_partitions": 2, "replication_factor": 1}
            (made,) = wire.call("CreateTopics", 7, {"topics": [wanted], "timeout_ms": 8000})["topics"]
            assert made["error_code"] == NONE, made
        for _ in range(rounds):
            before = sum(one.acknowledged for one in committers)
            threads = [threading.Thread(target=one.run, args=(broker.bootstrap,)) for one in committers]
            for thread in threads:
                thread.start()
            enough = dice.randrange(20, 400)
            eventually(lambda: sum(o.acknowledged for o in committers) - before > enough, 90)  # noqa: B023
            broker.kill()
            for thread in threads:
                thread.join()
            broker.start()
            with Connection(broker.bootstrap) as wire:
                for one in committers:
                    one.check(wire)
        assert not [code for one in committers for code in one.errors if code not in (14, 15, 16)]


def test_acknowledged_commits_survive() -> None:
    kill_again_and_again(ROUNDS, seed=1)


@pytest.mark.chaos
def test_acknowledged_commits_survive_for_long() -> None:
    kill_again_and_again(CHAOS_ROUNDS, seed=2)
