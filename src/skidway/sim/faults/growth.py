"""An administrator who lets brokers join and drains others while everybody suffers.

A new machine joins with an empty disk, and partitions are moved onto it. A broker that is drained has everything moved
off it; then, as often as not, it leaves the metadata quorum, is stopped, forgotten and never seen again. Where too few
would be left, another one joins first. All of it by requests that may be refused or not answered; what does not come
about in time is left at that, and the laws hold either way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from skidway.errors import ErrorCode
from skidway.sim.clients.base import Client
from skidway.sim.faults.voting import VoterChanges
from skidway.sim.world.cluster import Cluster
from skidway.sim.world.events import MS
from skidway.sim.world.host import Host
from skidway.wire.schema.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from skidway.wire.schema.metadata import MetadataRequest, MetadataResponse
from skidway.wire.schema.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse

REPLICAS = 3
"""Of every topic, where there are as many machines."""
JOINED_MAX = 2
"""So many machines more than a run begins with, or it becomes slow."""
ASK_AGAIN_MS = 250
TRIES = 60
PLAN_AGAIN = 10
"""Moves may be refused, taken back by somebody else, or new topics be made on a broker that is drained."""
STOPPED_US = 100 * MS
GOES_FOR_GOOD = 0.6


@dataclass(slots=True)
class Layout:
    brokers: list[int]
    """That are alive, by the word of one of them."""
    replicas: dict[tuple[str, int], list[int]]
    """Of every partition; also those that are about to come or to go."""

    def of(self, broker: int) -> list[tuple[str, int]]:
        return [key for key, replicas in self.replicas.items() if broker in replicas]


class Growth:
    def __init__(self, admin: Client, cluster: Cluster, voting: VoterChanges) -> None:
        self.admin = admin
        self.cluster = cluster
        self.voting = voting
        self.joined = 0
        self._draining = False

    def join(self, random: Random) -> None:
        """One more machine, which gets about half of the partitions."""
        self._join(random, lambda: None)

    def drain(self, random: Random) -> None:
        """One at a time."""
        if self._draining:
            return
        self._draining = True

        def begin(layout: Layout) -> None:
            if len(layout.brokers) > REPLICAS:
                self._move_off(random.choice(layout.brokers), random, TRIES)
            elif not self._join(random, lambda: self._look(begin, self._give_up)):
                self._give_up()

        self._look(begin, self._give_up)

    # --- a new machine ---

    def _join(self, random: Random, then: Callable[[], None]) -> bool:
        if self.joined >= JOINED_MAX:
            return False
        self.joined += 1
        host = self.cluster.add()
        node_id = host.settings.node_id
        self.voting.addresses[node_id] = host.address
        host.start()

        def look(tries: int) -> None:
            self._look(lambda layout: fill(layout, tries), then)

        def fill(layout: Layout, tries: int) -> None:
            if node_id in layout.brokers:
                self.admin.world.mark("broker joined")
                self._move({key: at for key in layout.replicas if (at := _with(layout, key, node_id, random))})
                then()
            elif tries > 1:
                self.admin.after(ASK_AGAIN_MS, lambda: look(tries - 1))
            else:
                then()

        look(TRIES)
        return True

    # --- a drained one ---

    def _move_off(self, broker: int, random: Random, tries: int) -> None:
        """Looked at again and again until nothing is there any more."""

        def follow(layout: Layout) -> None:
            held = layout.of(broker)
            if not held:
                self.admin.say(f"broker {broker} is empty")
                self.admin.world.mark("broker drained")
                self._go(broker) if random.random() < GOES_FOR_GOOD else self._give_up()
                return
            if tries <= 1:
                self._give_up()
                return
            if tries % PLAN_AGAIN == 0:
                self._move({key: at for key in held if (at := _without(layout, key, broker, random))})
            self.admin.after(ASK_AGAIN_MS, lambda: self._move_off(broker, random, tries - 1))

        self._look(follow, self._give_up)

    def _give_up(self) -> None:
        self._draining = False

    def _go(self, broker: int) -> None:
        """For good: who is down for ever must not vote, and nobody shall ask it to again."""
        host = self.cluster.hosts.get(broker)
        address = self.voting.addresses.pop(broker, None)
        if host is None or address is None:
            self._give_up()
            return

        def dismissed(gone: bool) -> None:
            if gone:
                self._stop(host)
            else:
                self.voting.addresses[broker] = address
                self._give_up()

        self.voting.dismiss(broker, dismissed)

    def _stop(self, host: Host) -> None:
        if host.node is not None:
            host.stop()
            self.admin.world.after(STOPPED_US, lambda: self._stop(host))
        elif self._is_needed(host.settings.node_id):
            # Somebody has moved something onto it meanwhile.
            self.voting.addresses[host.settings.node_id] = host.address
            host.start()
            self._give_up()
        else:
            self.cluster.retire(host)
            self._forget(host.settings.node_id, TRIES)

    def _is_needed(self, broker: int) -> bool:
        """What the operator of a real one looks at twice; here everything is known."""
        nodes = [node for _, node in self.cluster.running]
        newest = max(nodes, key=lambda node: node.quorum.published_offset, default=None)
        if newest is None:
            return True
        votes = any(voter.member.node_id == broker for voter in newest.quorum.quorum.voters)
        partitions = [each for topic in newest.image.topics.values() for each in topic.partitions]
        return votes or any(broker in partition.replicas for partition in partitions)

    def _forget(self, broker: int, tries: int) -> None:
        def answered(reply: UnregisterBrokerResponse | None) -> None:
            code = ErrorCode.REQUEST_TIMED_OUT if reply is None else ErrorCode(reply.error_code)
            if code in (ErrorCode.NONE, ErrorCode.BROKER_ID_NOT_REGISTERED):
                self.admin.say(f"broker {broker} is forgotten")
                self.admin.world.mark("broker forgotten")
                self._give_up()
            elif tries > 1:
                self.admin.after(ASK_AGAIN_MS, lambda: self._forget(broker, tries - 1))
            else:
                self._give_up()

        self.admin.ask(-1, UnregisterBrokerRequest(broker_id=broker), answered)

    # --- asking ---

    def _look(self, found: Callable[[Layout], None], failed: Callable[[], None], tries: int = TRIES) -> None:
        def answered(reply: MetadataResponse | None) -> None:
            if reply is not None and reply.brokers:
                replicas = {
                    (topic.name or "", partition.partition_index): list(partition.replica_nodes)
                    for topic in reply.topics
                    if not topic.error_code
                    for partition in topic.partitions
                }
                found(Layout(sorted(broker.node_id for broker in reply.brokers), replicas))
            elif tries > 1:
                self.admin.after(ASK_AGAIN_MS, lambda: self._look(found, failed, tries - 1))
            else:
                failed()

        self.admin.ask(-1, MetadataRequest(topics=None, allow_auto_topic_creation=False), answered, 2_000)

    def _move(self, plan: dict[tuple[str, int], list[int]]) -> None:
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, index), replicas in plan.items():
            topics.setdefault(topic, []).append(ReassignablePartition(index, replicas))
        if not topics:
            return
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=3_000, topics=[ReassignableTopic(name, partitions) for name, partitions in topics.items()]
        )

        def answered(reply: AlterPartitionReassignmentsResponse | None) -> None:
            self.admin.say(f"moves to {plan}: {'no answer' if reply is None else ErrorCode(reply.error_code).name}")

        self.admin.ask(-1, request, answered)


def _with(layout: Layout, key: tuple[str, int], broker: int, random: Random) -> list[int] | None:
    """The broker in the place of another, perhaps the first: that one will lead."""
    others = [each for each in layout.replicas[key] if each != broker and each in layout.brokers]
    if broker in layout.replicas[key] or len(others) < REPLICAS - 1 or random.random() < 0.5:
        return None
    return random.sample([*random.sample(others, REPLICAS - 1), broker], REPLICAS)


def _without(layout: Layout, key: tuple[str, int], broker: int, random: Random) -> list[int] | None:
    """Who stays, stays; asked again in the middle of the move, it is the same one."""
    staying = [each for each in layout.replicas[key] if each != broker and each in layout.brokers]
    others = [each for each in layout.brokers if each != broker and each not in staying]
    wanted = [*staying, *random.sample(others, len(others))][:REPLICAS]
    return wanted if len(wanted) == REPLICAS else None
