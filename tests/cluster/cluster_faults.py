"""Everything that happens to a cluster in a round: one fault after another, drawn from a seed, and its end."""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from cluster_calls import create_topic, elect_preferred_leaders, reassign

from disk_faults import failing_syncs, fill
from faked_clocks import Clock
from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster as Client
from skidway.blocking_client.cluster_admin import ClusterAdmin
from skidway.blocking_client.errors import BrokerError, ClientError
from skidway.errors import ErrorCode
from skidway.testing import BrokerFailed, Cluster
from waiting import comes_true

HOLD_S = (0.3, 4.0)
ANSWER_MS = 5_000
FENCED_WITHIN_S = 5.0
PATIENCE_S = 60.0
VOTERS_MIN = 3
"""So many stay: of three the loss of one is borne."""
CLOCK_JUMP_S = 40 * 3600


@dataclass
class Faults:
    """`begin` names what it did; `end` makes everything whole again."""

    cluster: Cluster
    dice: Random
    topic: str
    partitions: int
    volume: Path | None = None
    """The file system of the last node, if it has one of its own that can be filled."""
    clocks: dict[int, Clock] = field(default_factory=dict)
    number: int = 0
    lasted_s: float = 0.0
    """The last fault, until it was ended."""
    spoiled: set[int] = field(default_factory=set)
    """Nodes that must be restarted: their disks failed."""
    over: ExitStack = field(default_factory=ExitStack)
    further: Random | None = None
    """Dice of their own for changes of the membership, so that a seed draws the same faults with them and without."""
    outside: set[int] = field(default_factory=set)
    """Nodes that were told to vote no more."""
    changed: Counter[str] = field(default_factory=Counter)
    """What was done to the membership, and how often."""

    def kinds(self) -> dict[str, Callable[[], None]]:
        found = {
            "kill leader": lambda: self.kill(self.leader()),
            "kill follower": lambda: self.kill(self.other_than(self.leader())),
            "kill controller": lambda: self.kill(self.cluster.controller()),
            "kill all": lambda: self.kill(*self.cluster.brokers),
            "kill two": lambda: self.kill(*self.dice.sample(sorted(self.cluster.brokers), 2)),
            "stop leader": lambda: self.cluster.stop(self.leader()),
            "pause leader": lambda: self.cluster.pause(self.leader()),
            "pause controller": lambda: self.cluster.pause(self.cluster.controller()),
            "pause and kill": self.pause_and_kill,
            "cut off leader": lambda: self.cluster.partition({self.leader()}),
            "cut off controller": lambda: self.cluster.partition({self.cluster.controller()}),
            "cut one way": self.cut_one_way,
            "cut a pair": self.cut_pair,
            "partition": self.partition,
            "failing syncs": self.failing_syncs,
        }
        if self.volume is not None:
            found["full disk"] = self.fill_disk
        if self.clocks:
            found["clock jump"] = self.jump
        return found

    def changes(self) -> dict[str, Callable[[], None]]:
        return {
            "new topic": self.new_topic,
            "reassignment": self.reassign,
            "preferred leaders": lambda: elect_preferred_leaders(self.cluster),
            "nothing": lambda: None,
        }

    def round(self) -> str:
        """One fault, what changes meanwhile, and the end of it; returns what it was."""
        self.number += 1
        fault = self.dice.choice(sorted(self.kinds()))
        change = self.dice.choice(sorted(self.changes()))
        hold_s = self.dice.uniform(*HOLD_S)
        began = time.monotonic()
        self.kinds()[fault]()
        # A cluster in trouble may refuse a change; that is an answer too.
        with contextlib.suppress(ClientError):
            self.changes()[change]()
        membership = threading.Thread(target=self.change_membership)
        membership.start()
        time.sleep(hold_s)
        # A change that nobody can decide is waited for, and the fault lasts as long.
        self.lasted_s = time.monotonic() - began
        self.end(membership)
        return fault

    def end(self, membership: threading.Thread) -> None:
        self.over.close()
        cluster = self.cluster
        cluster.heal()
        cluster.resume(*cluster.brokers)
        cluster.kill(*self.spoiled)
        self.spoiled.clear()
        down = [node for node, broker in cluster.brokers.items() if not broker.running]
        if down:
            cluster.start(*down, wait=False)
            for node in down:
                cluster[node].await_ready(60)
        # Who has no majority to decide it waits for its answer until there is one again.
        membership.join()
        cluster.await_members()
        if self.further is not None and self.outside and self.further.random() < 0.5:
            self.add_voters()

    # Who.

    def leader(self) -> int:
        return self.cluster.leader_of(self.topic, self.dice.randrange(self.partitions))

    def other_than(self, node: int) -> int:
        return self.dice.choice([other for other in self.cluster.brokers if other != node])

    # What.

    def kill(self, *nodes: int) -> None:
        self.cluster.kill(*nodes)

    def pause_and_kill(self) -> None:
        """One hangs; the next that leads dies; then the first wakes up."""
        self.cluster.pause(sleeper := self.leader())
        time.sleep(self.dice.uniform(0.1, 2.0))
        with contextlib.suppress(BrokerFailed):
            self.cluster.kill(self.leader())
        self.cluster.resume(sleeper)

    def cut_one_way(self) -> None:
        node = self.leader()
        inward = self.dice.random() < 0.5
        for other in self.cluster.brokers:
            if other != node:
                self.cluster.cut(*((other, node) if inward else (node, other)))

    def cut_pair(self) -> None:
        one, other = self.dice.sample(sorted(self.cluster.brokers), 2)
        self.cluster.cut(one, other)
        self.cluster.cut(other, one)

    def partition(self) -> None:
        nodes = sorted(self.cluster.brokers)
        self.dice.shuffle(nodes)
        self.cluster.partition(nodes[: len(nodes) // 2])

    def failing_syncs(self) -> None:
        victim = self.dice.choice(sorted(self.cluster.brokers))
        self.over.enter_context(failing_syncs(self.cluster[victim], first=self.dice.randrange(1, 20)))
        self.spoiled.add(victim)

    def fill_disk(self) -> None:
        assert self.volume is not None
        self.over.callback(fill(self.volume).unlink)

    def jump(self) -> None:
        clock = self.clocks[self.dice.choice(sorted(self.clocks))]
        clock.jump(self.dice.randrange(-CLOCK_JUMP_S, CLOCK_JUMP_S))

    # What changes meanwhile.

    def new_topic(self) -> None:
        create_topic(self.cluster, f"{self.topic}-new-{self.number}", partitions=2)
        if self.dice.random() < 0.5:
            with Client(self.cluster.bootstrap) as client:
                client.refresh([])
                Admin(client).delete_topic(f"{self.topic}-new-{self.number}")

    def reassign(self) -> None:
        partition = self.dice.randrange(self.partitions)
        reassign(self.cluster, self.topic, {partition: self.dice.sample(sorted(self.cluster.brokers), 3)}, wait=False)

    # Who belongs to it.

    def change_membership(self) -> None:
        """One voter less while there are enough, or the cluster forgets a broker that is down: it comes back anew."""
        if self.further is None:
            return
        # Refused, or not answered: that is an answer too.
        with contextlib.suppress(ClientError):
            self._change_membership(self.further)

    def _change_membership(self, dice: Random) -> None:
        down = [node for node, broker in self.cluster.brokers.items() if not broker.running]
        if len(down) == 1 and dice.random() < 0.5:
            # All its replicas were in sync before this round, so what was acknowledged is elsewhere too.
            with self.administrator() as admin:
                comes_true(lambda: self.is_fenced(admin, down[0]), FENCED_WITHIN_S)  # else the order is refused
                admin.unregister_broker(down[0])
            self.changed["unregistered"] += 1
        elif len(self.cluster.brokers) - len(self.outside) > VOTERS_MIN:
            self.remove_voter(dice)

    @staticmethod
    def is_fenced(admin: ClusterAdmin, node: int) -> bool:
        brokers = admin.describe_cluster().brokers
        return node not in brokers or brokers[node].fenced

    def remove_voter(self, dice: Random) -> None:
        with self.administrator() as admin:
            quorum = admin.describe_quorum()
            voters = sorted(voter.id for voter in quorum.voters)
            # The leader of the quorum as often as all others together.
            node = quorum.leader if dice.random() < 0.5 else dice.choice(voters)
            self.outside.add(node)
            admin.remove_voter(node)
        self.changed["voters removed"] += 1

    def add_voters(self) -> None:
        """Now that everything is whole, everybody votes again: also whose removal was not answered."""
        for node in sorted(self.outside):
            assert comes_true(lambda: self.votes_again(node), PATIENCE_S), f"node {node} cannot vote again"  # noqa: B023
        self.outside.clear()

    def votes_again(self, node: int) -> bool:
        try:
            with self.administrator() as admin:
                if any(voter.id == node for voter in admin.describe_quorum().voters):
                    return True
                admin.add_voter(node)
                self.changed["voters added"] += 1
        except BrokerError as refusal:
            return refusal.code == ErrorCode.DUPLICATE_VOTER
        except ClientError:
            return False
        return True

    @contextlib.contextmanager
    def administrator(self) -> Iterator[ClusterAdmin]:
        with Client(self.cluster.bootstrap, timeout_ms=ANSWER_MS) as client:
            client.refresh([])
            yield ClusterAdmin(client)
