"""What may be appended to partitions in transactions: a naive coordinator, clients of both generations, a network that
delays and repeats, leaders that change; and laws that know nothing of guards.

A record belongs to the transaction that its client wrote it in (its value says which). When it is appended, its
coordinator must have that very transaction, with this partition in it, and the transaction's marker must not be there:
otherwise it is in no transaction that anybody ends, or in another one.
"""

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any

from broker_world import marker_of
from played_coordinator import BUMPING, STEADY, Asked, ProducerPeer, TransactionalWorld

from skidway.errors import ErrorCode, InvalidProducerEpoch, ProtocolError
from skidway.log.bounds import Bound
from skidway.records.batch import read_header
from skidway.records.control import EndTransaction
from skidway.records.record import read_records
from skidway.replica.role import PartitionRole

PARTITIONS = 3
SENT_AGAIN = {ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_LEADER_OR_FOLLOWER}


class Unlawful(AssertionError):
    """A law was broken; the text begins with its letter."""


@dataclass
class Transaction:
    """As its coordinator has it."""

    epoch: int = 0
    number: int = 0
    state: str = "none"
    commit: bool = False
    bumped: bool = False
    places: set[int] = field(default_factory=set)
    unmarked: set[int] = field(default_factory=set)

    def end(self, commit: bool, bumps: bool) -> None:
        assert self.state == "open"
        self.state, self.commit, self.bumped = "ending", commit, bumps
        self.epoch += bumps
        self.unmarked = set(self.places)
        if not self.unmarked:
            self.state = "none"

    def begin(self, number: int, place: int) -> None:
        if self.state != "open":
            self.state, self.number, self.places = "open", number, set()
        self.places.add(place)


@dataclass
class Sent:
    number: int
    epoch: int
    place: int
    sequence: int
    value: bytes
    data: bytes
    acknowledged: bool = False


class Client:
    def __init__(self, model: "Model", bumps: bool) -> None:
        self.model = model
        self.producer_id = model.new_producer(self)
        self.bumps = bumps
        self.version = BUMPING if bumps else STEADY
        self.id = f"id-{self.producer_id}"
        self.epoch = 0
        self.number = 1
        self.sequences: dict[int, int] = {}
        self.sent: list[Sent] = []
        """Of this transaction."""
        self.broken = False
        """It has to abort."""
        self.avoided: set[int] = set()
        """Partitions that it does not know the end of, in this epoch."""
        self.cut = False
        self.peer = model.connect()
        self.asked: dict[int, list[Sent]] = {}

    def write(self, random: Random) -> None:
        coordinator = self.model.coordinators[self.producer_id]
        places = [place for place in range(PARTITIONS) if place not in self.avoided]
        if self.broken or not places or coordinator.epoch != self.epoch:
            return
        if self.cut:
            self.send_again()
        batches = []
        for place in random.sample(places, min(len(places), random.choice((1, 1, 2)))):
            if not self.bumps:
                if coordinator.state == "ending":
                    return
                coordinator.begin(self.number, place)
            sequence = self.sequences.get(place, 0)
            self.sequences[place] = sequence + 1
            value = b"%d %d %d %d" % (self.producer_id, self.number, self.epoch, sequence)
            data = self.peer.data(sequence, self.epoch, producer_id=self.producer_id, value=value)
            batches.append(Sent(self.number, self.epoch, place, sequence, value, data))
        self.sent += batches
        self.send(self.peer, batches)

    def send(self, peer: ProducerPeer, batches: list[Sent]) -> None:
        pairs = [(each.place, each.data) for each in batches]
        sent = peer.write_all(pairs, version=self.version, transactional_id=self.id)
        if peer is self.peer:
            self.asked[sent] = batches

    def hear(self) -> None:
        again: list[Sent] = []
        for correlation_id, response in self.peer.replies():
            if (batches := self.asked.pop(correlation_id, None)) is None:
                continue
            for each, entry in zip(batches, response.responses[0].partition_responses, strict=True):
                if each.number != self.number:
                    continue
                if entry.error_code == 0:
                    each.acknowledged = True
                elif entry.error_code in SENT_AGAIN:
                    again.append(each)
                else:
                    self.broken = True
        if not self.broken:
            for each in again:
                self.send(self.peer, [each])

    def reconnect(self) -> None:
        self.peer.connection.closed()
        self.peer = self.model.connect()
        self.asked.clear()
        self.cut = True

    def send_again(self) -> None:
        """What it does first after its connection was cut."""
        self.cut = False
        if not self.broken:
            for each in self.sent:
                if not each.acknowledged:
                    self.send(self.peer, [each])

    def end(self, random: Random) -> None:
        coordinator = self.model.coordinators[self.producer_id]
        unknown = [each for each in self.sent if not each.acknowledged]
        if coordinator.state == "ending" or (not self.sent and not self.broken):
            return
        if coordinator.epoch != self.epoch:
            self.take_again()
            return
        commit = not unknown and not self.broken and random.random() < 0.7
        if unknown and not self.broken and random.random() < 0.8:
            return
        if coordinator.state == "open" and coordinator.number == self.number:
            self.model.end(self.producer_id, commit=commit, bumps=self.bumps)
        elif self.bumps:
            coordinator.epoch += 1  # an abort of nothing
        self.number += 1
        self.sent, self.broken = [], False
        self.asked.clear()
        if self.bumps:
            self.epoch, self.sequences = coordinator.epoch, {}
        elif unknown:
            # Older clients go on in the same epoch. They know nothing of what is stored there: they stay away.
            self.avoided |= {each.place for each in unknown}
            if len(self.avoided) == PARTITIONS or random.random() < 0.5:
                self.model.renew.add(self)

    def take_again(self) -> None:
        """InitProducerId: it gets an epoch or a producer id of its own, and what it had open is over."""
        coordinator = self.model.coordinators[self.producer_id]
        if coordinator.state == "open":
            self.model.end(self.producer_id, commit=False, bumps=True)
        if coordinator.state == "ending":
            return
        if self.model.random.random() < 0.5:
            self.producer_id = self.model.new_producer(self)
        else:
            coordinator.epoch += 1
        self.epoch = self.model.coordinators[self.producer_id].epoch
        self.number += 1
        self.sent, self.broken, self.sequences, self.avoided = [], False, {}, set()
        self.asked.clear()
        self.model.renew.discard(self)


class Model:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = TransactionalWorld(PARTITIONS)
        self.peers: list[ProducerPeer] = []
        self.renew: set[Client] = set()
        self.coordinators: dict[int, Transaction] = {}
        self.clients: dict[int, Client] = {}
        """By the producer ids that they have, and had."""
        self.here = [Client(self, bumps=bumps) for bumps in (False, True)]
        self.decided: deque[tuple[Asked, list[ErrorCode]]] = deque()
        self.old_markers: list[tuple[int, int, int, bool]] = []
        self.copies: list[tuple[Client, Sent]] = []
        self.looked = [0] * PARTITIONS
        self.values: set[tuple[int, bytes]] = set()
        self.stored: dict[tuple[int, int, int], int] = {}
        """(producer, epoch, partition): the sequence that comes next."""
        self.marked: set[tuple[int, int, int]] = set()
        """(producer, number of the transaction, partition)."""
        self.held: set[tuple[int, int, int, int]] = set()
        """With the sequence: has waited for an answer. A leader that leads anew has forgotten it."""
        self.appended = self.committed = self.refused_markers = 0

    def new_producer(self, client: Client) -> int:
        producer_id = len(self.clients) + 1
        self.clients[producer_id] = client
        self.coordinators[producer_id] = Transaction()
        return producer_id

    def connect(self) -> ProducerPeer:
        peer = ProducerPeer(self.world)
        self.peers.append(peer)
        return peer

    # --- what happens ---

    def step(self) -> None:
        random = self.random
        client = random.choice(self.here)
        match random.choices(range(10), (30, 25, 35, 35, 25, 4, 2, 2, 15, 6))[0]:
            case 0:
                client.write(random)
                self.copies += [(client, each) for each in client.sent[-1:]]
            case 1:
                client.end(random)
                if client in self.renew and not client.sent:
                    client.take_again()
            case 2:
                self.decide()
            case 3:
                self.deliver()
            case 4:
                self.mark()
            case 5:
                client.reconnect()
            case 6:
                self.change_leader()
            case 7:
                coordinator = self.coordinators[client.producer_id]
                if coordinator.state == "open":  # it took too long
                    self.end(client.producer_id, commit=False, bumps=True)
            case 8:
                self.copy()
            case 9:
                self.mark_again()
        self.settle()

    def copy(self) -> None:
        """A batch comes again by another connection. Those of older clients after the one before it has come to its
        leader: of a producer that is not known the first to come is taken for the first."""
        if not self.copies:
            return
        client, sent = self.random.choice(self.copies[-4:])
        before = client.producer_id, sent.epoch, sent.place, sent.sequence - 1
        if client.bumps or sent.sequence == 0 or before in self.held or self.stored.get(before[:3], 0) >= sent.sequence:
            client.send(self.connect(), [sent])

    def settle(self) -> None:
        self.world.settle()
        for peer in self.peers:
            if peer.tail and not peer.connection.gone:
                peer.give(b"")
        self.world.settle()
        for client in self.here:
            client.hear()
        for place in range(PARTITIONS):
            for epochs in self.world.partition("orders", place).checks.guards._standing.values():
                for guard in epochs.values():
                    self.held |= {(guard.producer_id, guard.epoch, place, sequence) for sequence in guard.sequences}
        self.look()

    def end(self, producer_id: int, *, commit: bool, bumps: bool) -> None:
        self.coordinators[producer_id].end(commit, bumps)
        self.committed += commit

    def decide(self) -> None:
        """The coordinator answers; its answer is on its way."""
        if not (questions := self.world.questions.open):
            return
        asked = questions.pop(self.random.randrange(len(questions)))
        coordinator, client = self.coordinators[asked.producer_id], self.clients[asked.producer_id]
        if self.random.random() < 0.1:
            code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif client.producer_id != asked.producer_id:
            code = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        elif coordinator.state == "ending":
            code = ErrorCode.CONCURRENT_TRANSACTIONS
        elif coordinator.epoch != asked.epoch:
            code = ErrorCode.PRODUCER_FENCED
        else:
            code = ErrorCode.NONE
        codes = [code] * len(asked.places)
        if code == ErrorCode.NONE and asked.add:
            for _, place in asked.places:
                # The epoch names the transaction: what is added now belongs to the client's of this epoch.
                coordinator.begin(client.number, place)
        elif code == ErrorCode.NONE:
            inside = coordinator.places if coordinator.state == "open" else set()
            codes = [code if place in inside else ErrorCode.TRANSACTION_ABORTABLE for _, place in asked.places]
        self.decided.append((asked, codes))

    def deliver(self) -> None:
        if self.decided:
            self.decided.rotate(self.random.randrange(len(self.decided)))
            asked, codes = self.decided.popleft()
            asked.answer(*codes)

    def mark(self) -> None:
        for producer_id, coordinator in self.coordinators.items():
            if coordinator.state == "ending":
                place = self.random.choice(sorted(coordinator.unmarked))
                self.write_marker(producer_id, coordinator, place)
                if self.random.random() < 0.7:  # else the answer is lost
                    coordinator.unmarked.discard(place)
                if not coordinator.unmarked:
                    coordinator.state = "none"

    def write_marker(self, producer_id: int, coordinator: Transaction, place: int) -> None:
        partition, version = self.world.partition("orders", place), 2 * coordinator.bumped
        end, wall_ms = EndTransaction(coordinator.commit, 1), self.world.clock.wall_ms()
        try:
            partition.write_marker(marker_of(producer_id, coordinator.epoch, end, version, wall_ms))
        except ProtocolError as error:
            raise Unlawful(f"S: a marker that has to be written is refused: {error}") from error
        self.marked.add((producer_id, coordinator.number, place))
        if coordinator.bumped:
            self.old_markers.append((producer_id, coordinator.epoch, place, coordinator.commit))

    def mark_again(self) -> None:
        """A marker comes again, however late. Where every end has its own epoch that does no harm."""
        if not self.old_markers:
            return
        producer_id, epoch, place, commit = self.random.choice(self.old_markers[-5:])
        partition = self.world.partition("orders", place)
        before = partition.log.producers.open_transaction(producer_id)
        try:
            wall_ms = self.world.clock.wall_ms()
            partition.write_marker(marker_of(producer_id, epoch, EndTransaction(commit, 1), 2, wall_ms))
        except InvalidProducerEpoch:
            self.refused_markers += 1
            return
        if before >= 0:
            raise Unlawful("T: a marker of an earlier transaction ends this one")

    def change_leader(self) -> None:
        place = self.random.randrange(PARTITIONS)
        partition = self.world.partition("orders", place)
        epoch, now_ms = partition.role.leader_epoch, self.world.clock.now_ms
        if self.random.random() < 0.5:
            epoch += 1
            partition.follow(PartitionRole(2, epoch, 1, [1, 2], [1, 2], {}), now_ms)
            self.world.node.relay.on_role_changed(partition)
        self.held = {held for held in self.held if held[2] != place}
        partition.lead(PartitionRole(1, epoch + 1, 1, [1], [1], {}), now_ms)

    # --- what must be true ---

    def look(self) -> None:
        for place in range(PARTITIONS):
            log = self.world.partition("orders", place).log
            while self.looked[place] < log.end_offset:
                found = log.read(self.looked[place], 1, Bound.END)
                assert found is not None
                data = found.read()
                header = read_header(data)
                if not header.is_control:
                    self.check(place, header.producer_id, header.producer_epoch, header.base_sequence, data)
                self.looked[place] = header.base_offset + header.record_count

    def check(self, place: int, producer_id: int, epoch: int, sequence: int, data: Any) -> None:
        (record,) = read_records(data, decompressed_bytes_max=10_000)
        value = bytes(record.value or b"")
        number = int(value.split()[1])
        coordinator = self.coordinators[producer_id]
        what = f"partition {place} has {value.decode()}"
        if (place, value) in self.values:
            raise Unlawful(f"D: {what} twice")
        self.values.add((place, value))
        expected = self.stored.get((producer_id, epoch, place), 0)
        client = self.clients[producer_id]
        if sequence != expected and (client.bumps or (client.number == number and not client.broken)):
            raise Unlawful(f"D: {what}, and {expected} should come first")
        self.stored[producer_id, epoch, place] = sequence + 1
        if coordinator.number != number or coordinator.state == "none" or place not in coordinator.places:
            raise Unlawful(f"S: {what}, and its coordinator {coordinator}")
        if (producer_id, number, place) in self.marked:
            raise Unlawful(f"S: {what} behind its marker")
        self.appended += 1

    def finish(self) -> None:
        """Everything is answered, everybody goes: nothing is open, nothing waits."""
        for client in self.here:
            client.broken = True
        for _ in range(100):
            while self.world.questions.open:
                self.decide()
            while self.decided:
                self.deliver()
            self.settle()
            if not self.world.questions.open:
                break
        for peer in self.peers:
            if not peer.connection.gone:
                peer.connection.closed()
        for producer_id, coordinator in self.coordinators.items():
            if coordinator.state == "open":
                self.end(producer_id, commit=False, bumps=True)
        while any(coordinator.state == "ending" for coordinator in self.coordinators.values()):
            self.mark()
        self.settle()
        for place in range(PARTITIONS):
            partition = self.world.partition("orders", place)
            for producer_id in self.clients:
                if partition.log.producers.open_transaction(producer_id) >= 0:
                    raise Unlawful(f"S: a transaction of {producer_id} stays open in partition {place}")
            assert len(partition.checks.guards) == 0, "nobody waits"
        assert self.world.node.world.slices.under_way == 0


def run(seed: int, steps: int = 200) -> Model:
    model = Model(seed)
    for _ in range(steps):
        model.step()
    model.finish()
    return model
