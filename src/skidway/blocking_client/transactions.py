"""Transactional ids as a producer uses them: take one, add a group's offsets, commit or abort.

Records of a transaction travel by whatever sends batches; a broker that knows transactions of version 2 adds their
partitions by itself. Every method raises `BrokerError` with the broker's own words, and asks again while the broker
says that it may: a transaction that is still ending, a coordinator that moves.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.connection import Connection
from skidway.blocking_client.coordinators import Coordinators, CoordinatorType, Result
from skidway.blocking_client.errors import ReplyTimeout, check
from skidway.blocking_client.reader import Place, by_topic
from skidway.errors import ErrorCode
from skidway.wire.schema.commit_transactions import (
    CommitTransactionsRequest,
    CommitTransactionsResponse,
    TransactionToCommit,
)
from skidway.wire.schema.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from skidway.wire.schema.end_txn import EndTxnRequest, EndTxnResponse
from skidway.wire.schema.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from skidway.wire.schema.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from skidway.wire.schema.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)

INIT_VERSION_MAX = 5
"""The version behind it is not stable in Kafka, and not served."""
OFFSETS_BY_NAME_MAX = 5


@dataclass(frozen=True, slots=True)
class Producer:
    """Who writes: a transactional id, and the producer id and epoch that it has for one transaction."""

    transactional_id: str
    producer_id: int
    epoch: int


class Transactions:
    """Not for several threads at once."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._coordinators = Coordinators(cluster, CoordinatorType.TRANSACTION)
        self._group_coordinators = Coordinators(cluster, CoordinatorType.GROUP)

    def coordinator(self, transactional_id: str) -> Connection:
        """A connection to the broker that keeps the id."""
        return self._coordinators.ask(transactional_id, lambda connection: connection)

    def begin(self, transactional_id: str, timeout_ms: int) -> Producer:
        """Take the id: whoever had it is fenced, and a transaction that is open under it is aborted first."""
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)

        def ask(coordinator: Connection) -> Producer:
            version = min(INIT_VERSION_MAX, coordinator.version(InitProducerIdRequest.__key__ or 0))
            coordinator.send(request, version=version)
            reply = coordinator.receive(InitProducerIdResponse)
            check(reply.error_code, f"cannot take transactional id {transactional_id}")
            return Producer(transactional_id, reply.producer_id, reply.producer_epoch)

        return self._insist(transactional_id, ask)

    def commit_offsets(self, producer: Producer, group: str, offsets: Mapping[Place, int], metadata: str = "") -> None:
        """They count when the transaction is committed."""
        topics = [
            TxnOffsetCommitRequestTopic(
                topic,
                partitions=[
                    TxnOffsetCommitRequestPartition(each, offsets[topic, each], -1, metadata) for each in partitions
                ],
            )
            for topic, partitions in by_topic(offsets).items()
        ]
        request = TxnOffsetCommitRequest(
            producer.transactional_id, group, producer.producer_id, producer.epoch, topics=topics
        )

        def ask(coordinator: Connection) -> None:
            version = min(OFFSETS_BY_NAME_MAX, coordinator.version(TxnOffsetCommitRequest.__key__ or 0))
            coordinator.send(request, version=version)
            for topic in coordinator.receive(TxnOffsetCommitResponse).topics:
                for answer in topic.partitions:
                    about = f"cannot commit {topic.name} partition {answer.partition_index} for group {group}"
                    check(answer.error_code, f"{about} in a transaction of {producer.transactional_id}")

        _until(self.cluster, lambda: self._group_coordinators.ask(group, ask))

    def end(self, producer: Producer, *, commit: bool) -> None:
        request = EndTxnRequest(producer.transactional_id, producer.producer_id, producer.epoch, commit)
        verb = "commit" if commit else "abort"

        def ask(coordinator: Connection) -> None:
            reply = coordinator.call(request, EndTxnResponse)
            check(reply.error_code, f"cannot {verb} the transaction of {producer.transactional_id}")

        self._insist(producer.transactional_id, ask)

    def commit_together(self, producers: Sequence[Producer]) -> None:
        """All their transactions, or none. One coordinator has to keep all of the ids. `Unsupported` where the broker
        is not Skidway."""
        request = CommitTransactionsRequest(
            [TransactionToCommit(each.transactional_id, each.producer_id, each.epoch) for each in producers]
        )

        def ask(coordinator: Connection) -> None:
            reply = coordinator.call(request, CommitTransactionsResponse)
            check(reply.error_code, f"cannot commit {len(producers)} transactions together", reply.error_message)

        self._insist(producers[0].transactional_id, ask)

    def states(self, transactional_ids: Sequence[str]) -> dict[str, str]:
        """Of ids that one coordinator keeps, in Kafka's words: Empty, Ongoing, PrepareCommit, CompleteCommit, … Those
        that it does not know are left out."""
        request = DescribeTransactionsRequest(list(transactional_ids))

        def ask(coordinator: Connection) -> dict[str, str]:
            found = {}
            for one in coordinator.call(request, DescribeTransactionsResponse).transaction_states:
                if one.error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
                    check(one.error_code, f"transactional id {one.transactional_id}")
                    found[one.transactional_id] = one.transaction_state
            return found

        return self._insist(transactional_ids[0], ask)

    def open_beside(self, transactional_id: str) -> list[str]:
        """The ids with an open transaction that are kept by the same broker as this one."""
        request = ListTransactionsRequest(state_filters=["Ongoing"], producer_id_filters=[])

        def ask(coordinator: Connection) -> list[str]:
            reply = coordinator.call(request, ListTransactionsResponse)
            check(reply.error_code, f"asking {coordinator.address} for its transactions")
            return [one.transactional_id for one in reply.transaction_states]

        return self._insist(transactional_id, ask)

    def _insist(self, transactional_id: str, question: Callable[[Connection], Result]) -> Result:
        return _until(self.cluster, lambda: self._coordinators.ask(transactional_id, question))


def _until(cluster: Cluster, ask: Callable[[], Result]) -> Result:
    """Every question here may be asked again, with the same epoch, when no answer came."""
    deadline = time.monotonic() + cluster.timeout_ms / 1000
    while True:
        try:
            return ask()
        except ReplyTimeout:
            if time.monotonic() > deadline:
                raise
