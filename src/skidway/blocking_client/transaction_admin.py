"""Transactions as an operator sees them: which there are, what each has written to, which hang; and ending them.

A transaction hangs if a partition has it open and its coordinator does not know: nobody will end it, and readers of
what is committed stop in front of it. Every method raises `BrokerError` with the broker's own words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from skidway.blocking_client.addresses import Address
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.coordinators import Coordinators, CoordinatorType
from skidway.blocking_client.errors import BrokerError, Unsupported, check
from skidway.blocking_client.reader import Place, by_topic
from skidway.blocking_client.transactions import Transactions
from skidway.errors import ErrorCode
from skidway.wire.schema.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from skidway.wire.schema.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from skidway.wire.schema.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from skidway.wire.schema.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

PLACES_AT_ONCE = 500
"""Partitions that one request asks about."""
DURATION_VERSION = 1
PATTERN_VERSION = 2
OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")


@dataclass(slots=True, frozen=True)
class ListedTransaction:
    id: str
    state: str
    """In Kafka's words: Empty, Ongoing, PrepareCommit, …"""
    producer_id: int
    coordinator: Address


@dataclass(slots=True, frozen=True)
class Transaction:
    id: str
    state: str
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int
    """-1: none is open."""
    places: tuple[Place, ...]
    """While it ends: those that still lack the marker."""
    coordinator: Address

    @property
    def open(self) -> bool:
        return self.state in OPEN_STATES


@dataclass(slots=True, frozen=True)
class OpenTransaction:
    """As the leader of one partition has it."""

    place: Place
    producer_id: int
    epoch: int
    first_offset: int
    last_ms: int
    """The time of its last batch."""
    coordinator_epoch: int
    """Of the producer's last marker here, -1: there was none."""

    @property
    def key(self) -> tuple[Place, int, int]:
        return self.place, self.producer_id, self.first_offset


class NoSuchTransaction(BrokerError):
    def __init__(self, transactional_id: str) -> None:
        text = "there is no such transactional id"
        super().__init__(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"transactional id {transactional_id}", text)
        self.transactional_id = transactional_id


class TransactionAdmin:
    """Not for several threads at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._coordinators = Coordinators(cluster, CoordinatorType.TRANSACTION)

    def all(
        self,
        *,
        states: Iterable[str] = (),
        producer_ids: Iterable[int] = (),
        longer_than_ms: int = -1,
        pattern: str | None = None,
    ) -> list[ListedTransaction]:
        """Those of all brokers, by id. `pattern`: a regular expression (RE2) for whole ids."""
        request = ListTransactionsRequest(list(states), list(producer_ids), longer_than_ms, pattern)
        needed = PATTERN_VERSION if pattern is not None else DURATION_VERSION if longer_than_ms >= 0 else 0
        found: dict[str, ListedTransaction] = {}

        def ask() -> None:
            for address in self.cluster.refresh([]).brokers.values():
                broker = self.cluster.connect(address)
                if broker.version(ListTransactionsRequest.__key__ or 0) < needed:
                    raise Unsupported(f"{address} cannot choose transactions so: it needs Kafka 4.1 or newer")
                reply = broker.call(request, ListTransactionsResponse)
                check(reply.error_code, f"asking {address} for its transactions")
                for one in reply.transaction_states:
                    found[one.transactional_id] = ListedTransaction(
                        one.transactional_id, one.transaction_state, one.producer_id, address
                    )

        self.cluster.retrying(ask)
        return [found[name] for name in sorted(found)]

    def describe(self, transactional_id: str) -> Transaction:
        request = DescribeTransactionsRequest([transactional_id])

        def ask(coordinator: Connection) -> Transaction:
            (one,) = coordinator.call(request, DescribeTransactionsResponse).transaction_states
            if one.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                raise NoSuchTransaction(transactional_id)
            check(one.error_code, f"transactional id {transactional_id}")
            return Transaction(
                id=transactional_id,
                state=one.transaction_state,
                producer_id=one.producer_id,
                epoch=one.producer_epoch,
                timeout_ms=one.transaction_timeout_ms,
                started_ms=one.transaction_start_time_ms,
                places=tuple(sorted((topic.topic, each) for topic in one.topics for each in topic.partitions)),
                coordinator=coordinator.address,
            )

        return self._coordinators.ask(transactional_id, ask)

    def abort(self, transaction: Transaction) -> None:
        """Through its coordinator, in all partitions. Its producer is fenced: whatever it says next is refused."""
        Transactions(self.cluster).begin(transaction.id, transaction.timeout_ms)

    # --- as the partitions have them ---

    def open_in(self, places: Iterable[Place]) -> list[OpenTransaction]:
        """What the leaders of these partitions have open, by partition and first offset."""
        wanted = sorted(places)
        found: list[OpenTransaction] = []
        for begin in range(0, len(wanted), PLACES_AT_ONCE):
            some = wanted[begin : begin + PLACES_AT_ONCE]
            found += self.cluster.retrying(lambda some=some: self._ask_leaders(some), topics={t for t, _ in some})  # type: ignore[misc]
        return sorted(found, key=lambda one: (one.place, one.first_offset))

    def hanging(self, places: Sequence[Place]) -> list[OpenTransaction]:
        """Those that their coordinator does not know. What is begun or ended meanwhile does not count: a partition
        has a transaction that hangs before and after the coordinators are asked."""
        before = self.open_in(places)
        known = self._known_to_coordinators({one.producer_id for one in before})
        suspects = [one for one in before if (one.producer_id, one.place) not in known]
        if not suspects:
            return []
        after = {one.key for one in self.open_in({one.place for one in suspects})}
        return [one for one in suspects if one.key in after]

    def abort_in_partition(self, transaction: OpenTransaction) -> None:
        """In this partition alone, whatever its coordinator says. For transactions that hang."""
        topic, partition = transaction.place
        marker = WritableTxnMarker(
            producer_id=transaction.producer_id,
            producer_epoch=transaction.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(topic, [partition])],
            coordinator_epoch=max(0, transaction.coordinator_epoch),
        )
        about = (
            f"cannot abort the transaction of producer id {transaction.producer_id} in {topic} partition {partition}"
        )

        def ask() -> None:
            reply = self.cluster.leader(topic, partition).call(
                WriteTxnMarkersRequest([marker]), WriteTxnMarkersResponse
            )
            for answered in reply.markers:
                for one in answered.topics:
                    for result in one.partitions:
                        check(result.error_code, about)

        self.cluster.retrying(ask, topics=[topic])

    def _ask_leaders(self, places: Sequence[Place]) -> list[OpenTransaction]:
        leaders: dict[Address, tuple[Connection, list[Place]]] = {}
        for topic, partition in places:
            leader = self.cluster.leader(topic, partition)
            leaders.setdefault(leader.address, (leader, []))[1].append((topic, partition))
        found: list[OpenTransaction] = []
        for leader, led in leaders.values():
            request = DescribeProducersRequest([TopicRequest(name, numbers) for name, numbers in by_topic(led).items()])
            for topic_answer in leader.call(request, DescribeProducersResponse).topics:
                for answer in topic_answer.partitions:
                    found += _open_ones(topic_answer.name, answer)
        return found

    def _known_to_coordinators(self, producer_ids: set[int]) -> set[tuple[int, Place]]:
        """(producer id, partition) of the transactions that coordinators have open."""
        if not producer_ids:
            return set()
        known: set[tuple[int, Place]] = set()
        for listed in self.all(producer_ids=sorted(producer_ids)):
            try:
                described = self.describe(listed.id)
            except NoSuchTransaction:
                continue
            if described.open:
                known |= {(described.producer_id, place) for place in described.places}
        return known


def _open_ones(topic: str, answer: PartitionResponse) -> list[OpenTransaction]:
    check(answer.error_code, f"{topic} partition {answer.partition_index}", answer.error_message)
    return [
        OpenTransaction(
            place=(topic, answer.partition_index),
            producer_id=one.producer_id,
            epoch=one.producer_epoch,
            first_offset=one.current_txn_start_offset,
            last_ms=one.last_timestamp,
            coordinator_epoch=one.coordinator_epoch,
        )
        for one in answer.active_producers
        if one.current_txn_start_offset >= 0
    ]
