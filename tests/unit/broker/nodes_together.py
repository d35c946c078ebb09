"""A few whole nodes in one process: bytes go from one to the other at once, and time passes when a test says so.

No faults but those a test orders: `kill` (with or without what was not synced), `restart`, `cut` and `heal`.
"""

from collections.abc import Callable
from logging import WARNING
from random import Random
from typing import Any

from broker_world import HandClock, Peer, World, batch, code, part, values

from skidway.broker.api.call import Hangup
from skidway.broker.api.connection import Connection
from skidway.broker.cluster.peers import Link
from skidway.broker.events import Event
from skidway.broker.listeners import DEFAULT_NAME, only_listener
from skidway.broker.node import Node
from skidway.broker.partitions.partition import Partition
from skidway.broker.settings import NodeSettings
from skidway.ports import FileSlice
from skidway.runtime.jobs import Job
from skidway.server.event_text import line_of
from skidway.server.events import level_of
from skidway.sim.world.disk import SimDisk

STEP_MS_MAX = 50


class Wire:
    """One connection from a node to another, with both of its ends."""

    def __init__(self, cluster: "Cluster", link: Link, caller: int, callee: int) -> None:
        self.cluster = cluster
        self.link = link
        self.ends = (caller, callee)
        self.connection: Connection = cluster.nodes[callee].connect(f"node-{caller}:1", DEFAULT_NAME)
        self.to_callee = b""
        self.to_caller = b""
        link.hangup = self.close

    def close(self) -> None:
        if self in self.cluster.wires:
            self.cluster.wires.remove(self)
            self.connection.closed()
            self.link.closed(self.cluster.clock.now_ms)

    def carry(self) -> bool:
        """Whatever is to be sent, one way and the other; false when there was nothing."""
        now_ms = self.cluster.clock.now_ms
        if not self.link.is_open and not self.link.ended:
            self.link.opened(now_ms)
        asked, self.link.outbox[:] = b"".join(map(bytes, self.link.outbox)), []
        if asked or self.connection.paused:
            self.to_callee += asked
            try:
                taken = self.connection.receive(memoryview(bytearray(self.to_callee)), now_ms)
            except Hangup:
                self.close()
                return True
            self.to_callee = self.to_callee[taken:]
        if self.connection.bug is not None:
            raise self.connection.bug
        outbox = self.connection.outbox
        said = b"".join([part.read() if isinstance(part, FileSlice) else bytes(part) for part in outbox])
        outbox.clear()
        if said:
            self.to_caller += said
            self.to_caller = self.to_caller[self.link.receive(memoryview(bytearray(self.to_caller)), now_ms) :]
        return bool(asked or said)


class Cluster:
    def __init__(self, size: int = 3, seed: int = 1, **settings: Any) -> None:
        self.clock = HandClock()
        self.random = Random(seed)
        self.settings = settings
        self.voters = [(number, f"host-{number}", 9000 + number) for number in range(1, size + 1)]
        self.disks = {number: SimDisk() for number, _, _ in self.voters}
        self.nodes: dict[int, Node] = {}
        self.wires: list[Wire] = []
        self.cuts: set[frozenset[int]] = set()
        self.told: dict[int, list[str]] = {number: [] for number in self.disks}
        """What each of them found worth a look."""
        self.events: dict[int, list[str]] = {number: [] for number in self.disks}
        """And what it said beside that."""
        self.reported: dict[int, list[Event]] = {number: [] for number in self.disks}
        self.slow_syncs: set[int] = set()
        self.held: list[tuple[int, Job]] = []
        for number in self.disks:
            self.restart(number)

    # --- nodes come and go ---

    def restart(self, number: int) -> None:
        assert number not in self.nodes
        _, host, port = self.voters[number - 1]
        fields = {"data_dir": "/data", "voters": self.voters, **self.settings}
        settings = NodeSettings(node_id=number, listeners=only_listener(host, port), **fields)
        random = Random(self.random.random())
        tell, mention = self.told[number].append, self.events[number].append

        def report(event: Event) -> None:
            self.reported[number].append(event)
            (tell if level_of(event) == WARNING else mention)(line_of(event))

        node = Node(settings, self.disks[number], self.clock, random, report=report)
        node.peers.dial = lambda link: self._dial(number, link)
        self.nodes[number] = node
        node.open(self.clock.now_ms, self.clock.wall_ms())

    def kill(self, number: int, *, power_lost: bool = False) -> None:
        del self.nodes[number]
        self.held = [held for held in self.held if held[0] != number]
        for wire in [wire for wire in self.wires if number in wire.ends]:
            wire.close()
        if power_lost:
            self.disks[number].crash(self.random)

    def stop(self, number: int) -> None:
        """In good order, but without asking the others first."""
        self.nodes[number].begin_stop(self.clock.now_ms)
        self.settle()
        self.nodes[number].close(clean=True)
        self.kill(number)

    def cut(self, number: int) -> None:
        """Nobody reaches this node any more, nor does it reach anybody."""
        self.cuts |= {frozenset({number, other}) for other in self.disks if other != number}
        for wire in [wire for wire in self.wires if frozenset(wire.ends) in self.cuts]:
            wire.close()

    def heal(self) -> None:
        self.cuts.clear()

    def _dial(self, caller: int, link: Link) -> None:
        callee = next((number for number, *address in self.voters if address == [link.host, link.port]), -1)
        if callee in self.nodes and frozenset({caller, callee}) not in self.cuts:
            self.wires.append(Wire(self, link, caller, callee))
        else:
            link.closed(self.clock.now_ms)

    # --- time ---

    def settle(self) -> None:
        """Everything that can happen without time passing."""
        busy = True
        while busy:
            busy = False
            for number, node in list(self.nodes.items()):
                node.on_time(self.clock.now_ms)
                for job in node.end_turn():
                    busy = True
                    if number in self.slow_syncs:
                        self.held.append((number, job))
                        continue
                    error = None
                    try:
                        job.run()
                    except OSError as failed:
                        error = failed
                    job.done(error, self.clock.now_ms)
            for wire in list(self.wires):
                busy = (wire in self.wires and wire.carry()) or busy

    def finish_syncs(self, number: int) -> None:
        """What was held back of a node with slow syncs, which has quick ones from now on."""
        self.slow_syncs.discard(number)
        held, self.held = self.held, []
        for holder, job in held:
            if holder == number:
                job.run()
                job.done(None, self.clock.now_ms)
            else:
                self.held.append((holder, job))

    def pass_time(self, milliseconds: int) -> None:
        until_ms = self.clock.now_ms + milliseconds
        self.settle()
        while self.clock.now_ms < until_ms:
            deadlines = [node.deadline_ms for node in self.nodes.values()]
            soonest = min([deadline for deadline in deadlines if deadline is not None], default=until_ms)
            self.clock.now_ms = min(max(soonest, self.clock.now_ms + 1), self.clock.now_ms + STEP_MS_MAX, until_ms)
            self.settle()

    def until(self, condition: Callable[[], Any], patience_ms: int = 30_000) -> Any:
        until_ms = self.clock.now_ms + patience_ms
        while not (found := condition()):
            assert self.clock.now_ms < until_ms, f"in vain; told: {self.told}"
            self.pass_time(10)
        return found

    # --- what there is to see ---

    def client(self, number: int) -> Peer:
        """A client of one node."""
        world = World.__new__(World)
        world.clock, world.node = self.clock, self.nodes[number]
        world.settle = self.settle  # type: ignore[method-assign]
        return Peer(world)

    def ready(self) -> bool:
        nodes = self.nodes.values()
        return all(node.serving and not node.rooms.registration.fenced for node in nodes)

    def controller(self) -> int | None:
        """The active one, as all living nodes know it."""
        told = {node.rooms.controller.node_id for node in self.nodes.values()}
        (controller,) = told if len(told) == 1 else (-1,)
        return controller if controller in self.nodes and self.nodes[controller].controls else None

    def leader(self, topic: str, index: int = 0) -> int | None:
        """As all living nodes agree on it; None while they do not, or it is not ready."""
        told = {node.image.topics[topic].partitions[index].leader for node in self.nodes.values()}
        (leader,) = told if len(told) == 1 else (-1,)
        if leader not in self.nodes or self.nodes[leader].rooms.hosting.whereabouts.is_offline(
            self._topic(leader, topic), index
        ):
            return None
        return leader if self.copy(leader, topic, index).leads else None

    def _topic(self, number: int, topic: str) -> Any:
        return self.nodes[number].image.topics[topic]

    def copy(self, number: int, topic: str, index: int = 0) -> Partition:
        return self.nodes[number].partitions.find(topic, index)

    def copies(self, topic: str, index: int = 0) -> dict[int, Partition]:
        return {number: self.copy(number, topic, index) for number in self.nodes}

    def agree(self, topic: str, index: int = 0) -> bool:
        """Whether all copies are there, the same to the byte, and committed to their end."""
        copies = list(self.copies(topic, index).values())
        logs = [copy.log for copy in copies]
        stored = {b"".join(segment.file.read_at(0, segment.size) for segment in log.segments) for log in logs}
        return len(stored) == 1 and all(log.high_watermark == log.end_offset == logs[0].end_offset for log in logs)


# Most stories begin like this.


def made(**settings: Any) -> Cluster:
    cluster = Cluster(default_replication_factor=3, **settings)
    cluster.until(cluster.ready)
    return cluster


def create(cluster: Cluster, topic: str, partitions: int = 1, *, replicas: int = 3, **configs: str) -> int:
    """Who leads its first partition."""
    entries = [
        part("CreateTopics", "CreatableTopicConfig", name.replace("_", "."), value) for name, value in configs.items()
    ]
    asked = part("CreateTopics", "CreatableTopic", topic, partitions, replicas, configs=entries)
    client = cluster.client(min(cluster.nodes))
    client.send("CreateTopics", topics=[asked], timeout_ms=5000)
    ((_, reply),) = cluster.until(client.replies)
    assert [made.error_code for made in reply.topics] == [0]
    cluster.until(lambda: all(topic in node.image.topics for node in cluster.nodes.values()))
    return int(cluster.until(lambda: cluster.leader(topic)))


def produce(cluster: Cluster, topic: str, *sent: bytes, acks: int = -1, by: int | None = None) -> int:
    """The answer of the leader, when it comes."""
    client = cluster.client(by or cluster.until(lambda: cluster.leader(topic)))
    client.produce(topic, batch(*sent), acks=acks)
    ((_, reply),) = cluster.until(client.replies)
    return code(reply)


def read(cluster: Cluster, number: int, topic: str) -> list[bytes | None]:
    client = cluster.client(number)
    client.fetch({(topic, 0): 0})
    cluster.settle()
    return values(client.reply())
