"""Exactly once: what a batch wrote becomes visible as a whole, once, with a mark that says so.

Every task attempt writes a transaction of its own. The driver commits those of the attempts that Spark counts, all of
them or none, in one decision of their coordinator (CommitTransactions, Skidway's own). A streaming query also commits
the number of its batch, the mark, in that decision: as the offset of the query's group in the topic of the
transactions. A batch that Spark runs again finds its number there and writes nothing.

    task    mark >= n: nothing to do. Otherwise take the attempt's id, write, have all acknowledged, report the id.
    commit  take the driver's id, which fences an older driver; read the mark; commit mark and reports together.
    abort   abort what was reported; what was not times out, or ends when the next batch takes its id.

What crashes in between leaves transactions that nobody commits. A batch job has no batch number and runs once: its ids
come from a random name, and there is no mark.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import BrokerError, ClientError, Unsupported
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.transactions import Producer, Transactions
from skidway.errors import ErrorCode
from skidway.spark.sink.delivery import Acknowledged, Attempt, Prepared, Writing
from skidway.spark.sink.options import START_WITHOUT_MARK, TRANSACTION_TIMEOUT, SinkOptions
from skidway.spark.sink.producing import BatchProducer
from skidway.spark.sink.transactional_ids import STATE_TOPIC, TransactionalIds
from skidway.wire.schema.commit_transactions import CommitTransactionsRequest

VISIBLE_PAUSE_S = 0.01
VISIBLE_WAIT_S = 10.0
COMMITTING = "PrepareCommit"

logger = logging.getLogger(__name__)


class NotPossible(ClientError):
    """The brokers cannot commit the transactions of several tasks together."""


class BatchNotCommitted(ClientError):
    """Nothing of the batch is visible, or what is visible must not be written again."""


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    options: SinkOptions
    job: str | None = None
    """The name of a batch job; a stream has none and goes by its query."""

    def check(self) -> None:
        """On the driver, before a job starts: whether these brokers can do it."""
        with closing(self.options.client.cluster()) as cluster:
            try:
                cluster.any_broker().version(CommitTransactionsRequest.__key__ or 0)
            except Unsupported:
                raise NotPossible(
                    "delivery=exactly_once needs a broker that commits the transactions of several tasks together: "
                    "Skidway does with experimental_transactions, Apache Kafka cannot; use delivery=at_least_once and "
                    "let readers drop duplicates by an id of their own"
                ) from None

    def begin(self, attempt: Attempt) -> Writing:
        name = self._name(attempt.query_id)
        if attempt.batch_id is not None and self.job is None:
            with closing(self.options.client.cluster()) as cluster:
                mark = Ledger(cluster, name).mark_so_far()
            if mark is not None and mark >= attempt.batch_id:
                return Committed(attempt)
        return InTransaction(self.options, attempt, name)

    def commit(self, prepared: Sequence[Prepared], batch_id: int | None) -> None:
        reported = _reported(prepared)
        if batch_id is None or self.job is not None:
            self._commit_job(reported)
        elif prepared:
            self._commit_batch(self._name(prepared[0].attempt.query_id), reported, batch_id)

    def abort(self, prepared: Sequence[Prepared], batch_id: int | None) -> None:
        with closing(self.options.client.cluster()) as cluster:
            _abort(Transactions(cluster), _reported(prepared))

    def _name(self, query_id: str | None) -> str:
        if self.job is None and query_id is None:
            raise NotPossible("Spark does not say which query a task belongs to, so its batches cannot be told apart")
        return f"{self.options.id_prefix}/{self.job or query_id}"

    def _commit_job(self, reported: list[Producer]) -> None:
        if not reported:
            return
        with closing(self.options.client.cluster()) as cluster:
            transactions = Transactions(cluster)
            self._commit_together(transactions, reported, "the job")
            _await_visible(transactions, reported)

    def _commit_batch(self, name: str, reported: list[Producer], batch_id: int) -> None:
        with closing(self.options.client.cluster()) as cluster:
            transactions, ledger = Transactions(cluster), Ledger(cluster, name)
            driver = transactions.begin(name, self.options.transaction_timeout_ms)
            if self._is_committed(ledger.mark(), batch_id, name):
                logger.info("batch %d of %s is committed already; it is not written again", batch_id, name)
                _abort(transactions, reported)
                return
            transactions.commit_offsets(driver, name, {ledger.place: batch_id})
            self._commit_together(transactions, [driver, *reported], f"batch {batch_id} of {name}")

    def _is_committed(self, mark: int | None, batch_id: int, name: str) -> bool:
        if mark is None and batch_id > 0 and not self.options.start_without_mark:
            raise BatchNotCommitted(
                f"batch {batch_id} of {name} has no mark of the batch before it, so nobody can tell whether it is "
                "written already: the query wrote with another delivery so far, or was stopped for so long that the "
                f"mark expired. Look at the topics; if the batch is not there, set {START_WITHOUT_MARK}=true once"
            )
        if mark is not None and mark > batch_id:
            raise BatchNotCommitted(
                f"batch {mark} of {name} is committed already, and this is batch {batch_id}: the checkpoint is older "
                "than what it wrote. Use the newer checkpoint, or a new query with a new checkpoint"
            )
        return mark == batch_id

    def _commit_together(self, transactions: Transactions, producers: list[Producer], what: str) -> None:
        try:
            transactions.commit_together(producers)
        except BrokerError as error:
            _abort(transactions, producers)
            raise BatchNotCommitted(
                f"nothing of {what} is committed: {error}. A task took longer than {TRANSACTION_TIMEOUT} "
                f"({self.options.transaction_timeout_ms} ms), or another driver or attempt has taken its place"
            ) from error


class Ledger:
    """Where the number of the last committed batch stands."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self._groups = Groups(cluster)
        self._name = name
        self.ids = ids_of(cluster, name)
        self.place = (STATE_TOPIC, self.ids.state_partition)

    def mark(self) -> int | None:
        """For a driver that has taken its id: whatever was about to change it has ended, or ends now."""
        return self._read(require_stable=True)

    def mark_so_far(self) -> int | None:
        """For tasks, which can spare work and decide nothing. A driver that died may have left the mark of this batch
        in an open transaction; waiting for it would be waiting for its time-out."""
        return self._read(require_stable=False)

    def _read(self, *, require_stable: bool) -> int | None:
        found = self._groups.committed_of(self._name, [self.place], require_stable=require_stable).get(self.place)
        return None if found is None else found.offset


class Committed:
    """A task of a batch that is committed already: its rows are not looked at."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt

    def write(self, rows: Iterable[pa.RecordBatch]) -> None:
        for _ in rows:
            pass  # Spark expects its rows to be taken

    def prepare(self) -> Prepared:
        return Prepared(self.attempt)

    def close(self) -> None:
        pass


class InTransaction(Acknowledged):
    """The id is taken when the first row comes: many tasks have none."""

    def __init__(self, options: SinkOptions, attempt: Attempt, name: str) -> None:
        self._name = name
        self._taken: Producer | None = None
        super().__init__(options, attempt, BatchProducer(options, self._take))

    def _take(self) -> Producer:
        if self._taken is None:
            cluster = self.producer.cluster
            transactional_id = ids_of(cluster, self._name).attempt(self.attempt.partition, self.attempt.attempt)
            self._taken = Transactions(cluster).begin(transactional_id, self.options.transaction_timeout_ms)
        return self._taken

    def prepare(self) -> Prepared:
        prepared = super().prepare()
        prepared.transaction = self._taken
        return prepared


def ids_of(cluster: Cluster, name: str) -> TransactionalIds:
    # The first question for a coordinator creates the topic.
    Transactions(cluster).coordinator(name)
    return TransactionalIds(name, len(cluster.topic(STATE_TOPIC).partitions))


def _reported(prepared: Sequence[Prepared]) -> list[Producer]:
    return [each.transaction for each in prepared if each.transaction is not None]


def _abort(transactions: Transactions, producers: Sequence[Producer]) -> None:
    """What cannot be aborted is fenced, or ended already: nobody will commit it."""
    for producer in producers:
        try:
            transactions.end(producer, commit=False)
        except ClientError as error:
            logger.info("the transaction of %s was not aborted: %s", producer.transactional_id, error)


def _await_visible(transactions: Transactions, producers: Sequence[Producer]) -> None:
    """The commit is certain; readers see it when every partition has its marker. Who reads what a job has just written
    expects to find it."""
    deadline = time.monotonic() + VISIBLE_WAIT_S
    for producer in producers:
        while _state(transactions, producer) == COMMITTING:
            if time.monotonic() > deadline:
                logger.warning("the job is committed; some partitions show it later, when their leaders are back")
                return
            time.sleep(VISIBLE_PAUSE_S)


def _state(transactions: Transactions, producer: Producer) -> str:
    try:
        return transactions.state(producer.transactional_id)
    except BrokerError as error:
        if error.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
            return ""
        raise
