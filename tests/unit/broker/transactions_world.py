"""A node with transactions on, and what clients and nodes ask its coordinators."""

from typing import Any

from broker_world import Peer, World, part

from skidway.records.batch import iter_headers
from skidway.records.control import EndTransaction, read_end_transaction
from skidway.records.record import read_records
from skidway.sim.world.disk import SimDisk
from skidway.transactions.settings import TransactionSettings

ID = "copier"
TIMEOUT_MS = 60_000


class Transactions:
    """One client of one node, whose topic `t` has three partitions."""

    def __init__(self, disk: SimDisk | None = None, **settings: Any) -> None:
        chosen = {"transactions": TransactionSettings(state_partitions=4), **settings}
        self.world = World(disk, **chosen)
        self.peer: Peer = self.world.peer()
        if disk is None:
            self.peer.create("t", 3)
            self.find()

    def find(self, key: str = ID) -> Any:
        (found,) = self.peer.call("FindCoordinator", key_type=1, coordinator_keys=[key], version=4).coordinators
        return found

    def init(self, key: str = ID, version: int = 5, **fields: Any) -> Any:
        fields = {"transaction_timeout_ms": TIMEOUT_MS, **fields}
        return self.peer.call("InitProducerId", version=version, transactional_id=key, **fields)

    def add(self, producer: Any, *places: tuple[str, int], version: int = 3, key: str = ID) -> dict[Any, int]:
        """Codes by place."""
        self.begin_adding(producer, *places, version=version, key=key)
        self.world.settle()
        return self.added()

    def begin_adding(self, producer: Any, *places: tuple[str, int], version: int = 3, key: str = ID) -> None:
        topics = topics_of("AddPartitionsToTxn", "AddPartitionsToTxnTopic", places)
        fields = {
            "v3_and_below_transactional_id": key,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": topics,
        }
        self.peer.send("AddPartitionsToTxn", version=version, **fields)

    def added(self) -> dict[Any, int]:
        return codes(self.peer.reply().results_by_topic_v3_and_below)

    def add_many(self, *asked: Any, version: int = 5) -> list[dict[Any, int]]:
        reply = self.peer.call("AddPartitionsToTxn", version=version, transactions=list(asked))
        assert reply.error_code == 0
        return [codes(result.topic_results) for result in reply.results_by_transaction]

    def end(self, producer: Any, commit: bool = True, version: int = 3, key: str = ID) -> Any:
        fields = {"transactional_id": key, "producer_id": producer[0], "producer_epoch": producer[1]}
        return self.peer.call("EndTxn", version=version, committed=commit, **fields)

    def write_markers(
        self, *markers: Any, version: int = 2, sender: tuple[int, int, int] = (-1, -1, -1)
    ) -> list[dict[Any, int]]:
        """Codes by place, of each marker. The sender: node, broker epoch, number of the request."""
        names = ("sender_id", "sender_epoch", "sender_number")
        said = dict(zip(names, sender, strict=True))
        reply = self.peer.call("WriteTxnMarkers", version=version, markers=list(markers), **said)
        return [
            {
                (topic.name, partition.partition_index): partition.error_code
                for topic in marker.topics
                for partition in topic.partitions
            }
            for marker in reply.markers
        ]

    def markers(self, topic: str = "t", index: int = 0) -> list[tuple[int, int, bool]]:
        """(producer id, epoch, committed) of those in a partition, in order."""
        return markers_in(self.world.partition(topic, index))

    def turns(self) -> Any:
        """The answer to what was sent last, however many turns it takes."""
        for _ in range(100):
            self.world.settle()
            if self.peer.connection.outbox:
                return self.peer.reply()
        raise AssertionError("it is never answered")

    def state(self, key: str = ID) -> Any:
        """What the coordinator knows of an id."""
        machines = [each.host.machine for each in self.world.node.rooms.services.transactions.loaded.values()]
        return next((machine.transactions[key] for machine in machines if key in machine.transactions), None)


def markers_in(partition: Any) -> list[tuple[int, int, bool]]:
    """(producer id, epoch, committed) of those in a partition, in order."""
    return [(producer_id, epoch, end.committed) for producer_id, epoch, end in ends_in(partition)]


def ends_in(partition: Any) -> list[tuple[int, int, EndTransaction]]:
    found: list[tuple[int, int, EndTransaction]] = []
    for segment in partition.log.segments:
        data = segment.file.read_at(0, segment.size)
        for position, header in iter_headers(data):
            if header.is_control:
                batch = data[position : position + header.size]
                (record,) = read_records(batch, decompressed_bytes_max=1_000)
                found.append((header.producer_id, header.producer_epoch, read_end_transaction(record)))
    return found


def marker(
    producer: Any,
    *places: tuple[str, int],
    commit: bool = True,
    coordinator_epoch: int = 0,
    transaction_version: int = 0,
) -> Any:
    topics = topics_of("WriteTxnMarkers", "WritableTxnMarkerTopic", places)
    fields = *producer, commit, topics, coordinator_epoch, transaction_version
    return part("WriteTxnMarkers", "WritableTxnMarker", *fields)


def topics_of(api_name: str, struct: str, places: tuple[tuple[str, int], ...]) -> list[Any]:
    topics: dict[str, list[int]] = {}
    for topic, index in places:
        topics.setdefault(topic, []).append(index)
    return [part(api_name, struct, topic, indexes) for topic, indexes in topics.items()]


def transaction(producer: Any, *places: tuple[str, int], key: str = ID, verify_only: bool = False) -> Any:
    """One of those that a node asks about."""
    topics = topics_of("AddPartitionsToTxn", "AddPartitionsToTxnTopic", places)
    return part("AddPartitionsToTxn", "AddPartitionsToTxnTransaction", key, *producer, verify_only, topics)


def codes(topics: Any) -> dict[Any, int]:
    return {
        (topic.name, result.partition_index): result.partition_error_code
        for topic in topics
        for result in topic.results_by_partition
    }


def places_of(topics: Any) -> set[tuple[str, int]]:
    return {(topic.topic, index) for topic in topics for index in topic.partitions}
