"""Transactions while nodes are killed, cut off and come back: however one ends, it ends the same way everywhere.

Clients of the newer kind, whose epoch grows at every end: so a marker names its transaction. Each step is drawn from a
seed; the laws are looked at when everything has healed.
"""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from nodes_together import Cluster, create, made
from transactions_world import codes, markers_in, transaction

from skidway.errors import ErrorCode
from skidway.groups.placement import partition_of
from skidway.transactions.settings import TransactionSettings
from skidway.transactions.transaction import Empty, Ended

STATE, STATE_PARTITIONS = "__transaction_state", 3
PARTITIONS = 5
IDS = ["copier", "mover", "shop", "till"]
STEPS = 150
DISTURBED = 0.01
"""So often something befalls a node while an answer is waited for."""
E = ErrorCode


@dataclass(slots=True)
class Client:
    """One at a time asks: what it has asked for is answered, or given up when its node is gone."""

    key: str
    producer: tuple[int, int] | None = None
    places: set[tuple[str, int]] = field(default_factory=set)
    committed: list[tuple[tuple[int, int], set[tuple[str, int]]]] = field(default_factory=list)
    """What was answered as ended, with the producer of its markers."""
    aborted: list[tuple[tuple[int, int], set[tuple[str, int]]]] = field(default_factory=list)


class Storm:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        settings = TransactionSettings(state_partitions=STATE_PARTITIONS, timeout_check_ms=1_000)
        self.cluster: Cluster = made(seed=seed, transactions=settings)
        create(self.cluster, "t", PARTITIONS)
        self.ask(1, "FindCoordinator", version=4, key_type=1, coordinator_keys=[IDS[0]])
        self.cluster.until(lambda: all(STATE in node.image.topics for node in self.cluster.nodes.values()))
        self.clients = [Client(key) for key in IDS]

    def ask(self, number: int, name: str, **fields: Any) -> Any:
        """None: no answer within a while."""
        if number not in self.cluster.nodes or not self.cluster.nodes[number].serving:
            return None
        client = self.cluster.client(number)
        client.send(name, **fields)
        for _ in range(40):
            # One pass over all nodes and wires, not until all is quiet: so things happen in between.
            self.pass_once()
            if found := client.replies():
                return found[0][1]
            if self.random.random() < DISTURBED:
                self.disturb()
            if number not in self.cluster.nodes:
                return None
        return None

    def pass_once(self) -> None:
        cluster = self.cluster
        cluster.clock.now_ms += self.random.choice([0, 1, 5, 60])
        for node in list(cluster.nodes.values()):
            node.on_time(cluster.clock.now_ms)
            for job in node.end_turn():
                job.run()
                job.done(None, cluster.clock.now_ms)
        for wire in list(cluster.wires):
            if wire in cluster.wires and self.random.random() < 0.7:
                wire.carry()

    def coordinator(self, client: Client) -> int:
        """As some node that lives knows it; -1 if that has just begun to follow the metadata."""
        node = self.cluster.nodes[self.random.choice(sorted(self.cluster.nodes))]
        if not node.serving or STATE not in node.image.topics:
            return -1
        return int(node.image.topics[STATE].partitions[partition_of(client.key, STATE_PARTITIONS)].leader)

    # --- what happens ---

    def step(self) -> None:
        client = self.random.choice(self.clients)
        dice = self.random.random()
        if dice < 0.05 or (dice < 0.2 and not self.is_whole):
            self.disturb()
        elif dice < 0.3:
            self.cluster.pass_time(self.random.choice([10, 100, 2_000]))
        elif client.producer is None or dice < 0.33:
            self.init(client)
        elif dice < 0.6 or not client.places:
            self.add(client)
        else:
            self.end(client, commit=self.random.random() < 0.6)

    @property
    def is_whole(self) -> bool:
        return len(self.cluster.nodes) == len(self.cluster.disks) and not self.cluster.cuts

    def disturb(self) -> None:
        """Something breaks, or what is broken is mended."""
        cluster, all_nodes = self.cluster, sorted(self.cluster.disks)
        down = [number for number in all_nodes if number not in cluster.nodes]
        if down:
            cluster.restart(down[0])
        elif cluster.cuts:
            cluster.heal()
        elif self.random.random() < 0.7:
            cluster.kill(self.random.choice(all_nodes), power_lost=self.random.random() < 0.5)
        else:
            cluster.cut(self.random.choice(all_nodes))

    def init(self, client: Client) -> None:
        fields = {"version": 4, "transactional_id": client.key, "transaction_timeout_ms": 60_000}
        reply = self.ask(self.coordinator(client), "InitProducerId", **fields)
        client.producer, client.places = None, set()
        if reply is not None and reply.error_code == 0:
            client.producer = reply.producer_id, reply.producer_epoch

    def add(self, client: Client) -> None:
        place = ("t", self.random.randrange(PARTITIONS))
        asked = transaction(client.producer, place, key=client.key)
        reply = self.ask(self.coordinator(client), "AddPartitionsToTxn", version=5, transactions=[asked])
        if reply is None:
            client.producer = None  # nobody knows whether it is in
            return
        (code,) = codes(reply.results_by_transaction[0].topic_results).values()
        if code == 0:
            client.places.add(place)
        elif code in (E.PRODUCER_FENCED, E.INVALID_PRODUCER_ID_MAPPING):
            client.producer = None

    def end(self, client: Client, commit: bool) -> None:
        assert client.producer is not None
        producer_id, epoch = client.producer
        fields = {"transactional_id": client.key, "producer_id": producer_id, "producer_epoch": epoch}
        reply = self.ask(self.coordinator(client), "EndTxn", version=5, committed=commit, **fields)
        if reply is None or reply.error_code not in (0, *RETRIED):
            client.producer = None
        elif reply.error_code == 0:
            ended = client.committed if commit else client.aborted
            client.producer = reply.producer_id, reply.producer_epoch
            ended.append((client.producer, client.places))
            client.places = set()

    # --- afterwards ---

    def heal(self) -> None:
        cluster = self.cluster
        cluster.heal()
        for number in cluster.disks:
            if number not in cluster.nodes:
                cluster.restart(number)
        cluster.until(cluster.ready)
        cluster.until(self.all_at_rest, 200_000)

    def all_at_rest(self) -> bool:
        """Whether no id is ending any more; those that are open time out."""
        known = self.states()
        return all(isinstance(state, Empty | Ended) for state in known.values()) and self.all_led()

    def all_led(self) -> bool:
        places = [("t", index) for index in range(PARTITIONS)]
        return all(self.cluster.leader(*place) for place in places)

    def states(self) -> dict[str, Any]:
        return {
            key: known.state
            for node in self.cluster.nodes.values()
            for each in node.rooms.services.transactions.loaded.values()
            for key, known in each.host.machine.transactions.items()
        }

    def markers(self) -> dict[tuple[str, int], dict[tuple[int, int], set[bool]]]:
        """By partition and producer: how its transaction ended there."""
        found: dict[tuple[str, int], dict[tuple[int, int], set[bool]]] = {}
        for index in range(PARTITIONS):
            leader = self.cluster.leader("t", index)
            assert leader is not None
            ends: dict[tuple[int, int], set[bool]] = {}
            for producer_id, epoch, committed in markers_in(self.cluster.copy(leader, "t", index)):
                ends.setdefault((producer_id, epoch), set()).add(committed)
            found["t", index] = ends
        return found


RETRIED = (
    E.COORDINATOR_LOAD_IN_PROGRESS,
    E.COORDINATOR_NOT_AVAILABLE,
    E.NOT_COORDINATOR,
    E.CONCURRENT_TRANSACTIONS,
)


@pytest.mark.parametrize("seed", [0, 4, 9])
def test_a_transaction_ends_the_same_way_everywhere(seed: int) -> None:
    storm = Storm(seed)
    for _ in range(STEPS):
        storm.step()
    storm.heal()
    markers = storm.markers()
    how: dict[tuple[int, int], set[bool]] = {}
    for ends in markers.values():
        for producer, committed in ends.items():
            how.setdefault(producer, set()).update(committed)
    assert {producer: ends for producer, ends in how.items() if len(ends) > 1} == {}, "committed here, aborted there"
    for client in storm.clients:
        for commit, ended in ((True, client.committed), (False, client.aborted)):
            for producer, places in ended:
                assert {place: markers[place].get(producer) for place in places} == {key: {commit} for key in places}
    assert sum(len(client.committed) for client in storm.clients) > 0
    for node in storm.cluster.nodes.values():
        assert node.rooms.services.transactions.sender.task_count == 0
