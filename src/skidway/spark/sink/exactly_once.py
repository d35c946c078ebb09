"""Exactly once: what a batch wrote becomes visible as a whole, once, with a mark that says so.

Every task attempt writes a transaction of its own. The driver commits those of the attempts that Spark counts, all of
them or none, in one decision of their coordinator (CommitTransactions, Skidway's own). A streaming query also commits
the number of its batch, the mark, in that decision (`ledger`). A batch that Spark runs again finds its number there and
writes nothing.

    task    mark >= n: nothing to do. Otherwise take the attempt's id, write, have all acknowledged, report the id.
    commit  take the driver's id, which fences an older driver; read the mark; commit mark and reports together.
    abort   abort what was reported; what was not ends when the next batch takes its id, or sweeps, or by time.

What crashes in between leaves transactions that nobody commits. Whose write it is (`Write`) says where name and number
come from: a stream has those of its query, a batch write in `foreachBatch` those that its program gives, and any other
batch job is run once: its ids come from a random name, and there is no mark.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass

import pyarrow as pa

from skidway.blocking_client.errors import BrokerError, ClientError, Unsupported
from skidway.blocking_client.features import describe_features
from skidway.blocking_client.transactions import Producer, Transactions
from skidway.spark.sink import leftovers
from skidway.spark.sink.delivery import Acknowledged, Attempt, Prepared, Writing
from skidway.spark.sink.ledger import Ledger, Mark, ids_of
from skidway.spark.sink.options import FIRST_BATCH, TRANSACTION_TIMEOUT, SinkOptions
from skidway.spark.sink.producing import BatchProducer
from skidway.wire.schema.commit_transactions import CommitTransactionsRequest

FEATURE, FEATURE_LEVEL = "transaction.version", 2
"""At which brokers add partitions to transactions by themselves."""
VISIBLE_PAUSE_S = 0.01
VISIBLE_WAIT_S = 10.0
WRITING, COMMITTING = "Ongoing", "PrepareCommit"

logger = logging.getLogger(__name__)


class NotPossible(ClientError):
    """The brokers cannot commit the transactions of several tasks together."""


class BatchNotCommitted(ClientError):
    """Nothing of the batch is visible, or what is visible must not be written again."""


@dataclass(frozen=True, slots=True)
class Stream:
    """Spark names the query and numbers its batches."""


@dataclass(frozen=True, slots=True)
class Numbered:
    """A batch write that its program names and numbers, because it may run it again."""

    name: str
    number: int


@dataclass(frozen=True, slots=True)
class Job:
    name: str


Write = Stream | Numbered | Job


@dataclass(frozen=True, slots=True)
class ExactlyOnce:
    options: SinkOptions
    what: Write

    def check(self) -> None:
        """On the driver, before a job starts: whether these brokers can do it."""
        with closing(self.options.client.cluster()) as cluster:
            try:
                cluster.any_broker().version(CommitTransactionsRequest.__key__ or 0)
            except Unsupported:
                raise NotPossible(
                    "delivery=exactly_once needs a broker that commits the transactions of several tasks together: "
                    "Skidway does, Apache Kafka cannot; use delivery=at_least_once and let readers drop duplicates by "
                    "an id of their own"
                ) from None
            level = {each.name: each.level for each in describe_features(cluster)}.get(FEATURE, 0)
        if level < FEATURE_LEVEL:
            raise NotPossible(
                f"delivery=exactly_once needs {FEATURE} {FEATURE_LEVEL}, and this cluster has {level}: "
                f"raise it (skidway cluster features --upgrade {FEATURE}={FEATURE_LEVEL}) or use delivery=at_least_once"
            )

    def begin(self, attempt: Attempt) -> Writing:
        name, number = self._identify(attempt, attempt.batch_id)
        if number is not None:
            with closing(self.options.client.cluster()) as cluster:
                mark = Ledger(cluster, name).mark_so_far()
            if mark is not None and mark.number >= number:
                return Committed(attempt)
        return InTransaction(self.options, attempt, name)

    def commit(self, prepared: Sequence[Prepared], batch_id: int | None) -> None:
        if not prepared:
            return
        name, number = self._identify(prepared[0].attempt, batch_id)
        if number is not None:
            self._commit_batch(name, number, prepared)
        elif reported := _reported(prepared):
            with closing(self.options.client.cluster()) as cluster:
                transactions = Transactions(cluster)
                self._commit_together(transactions, reported, "the job")
                if _await_visible(transactions, reported, prepared) or leftovers.was_repeated(prepared):
                    leftovers.sweep(transactions, name, self.options.transaction_timeout_ms)

    def abort(self, prepared: Sequence[Prepared], batch_id: int | None) -> None:
        with closing(self.options.client.cluster()) as cluster:
            leftovers.abort(Transactions(cluster), _reported(prepared))

    def _identify(self, attempt: Attempt, batch_id: int | None) -> tuple[str, int | None]:
        """What the ids begin with, and the number of the batch if it has one."""
        match self.what:
            case Numbered(name, number):
                return f"{self.options.id_prefix}/{name}", number
            case Job(name):
                return f"{self.options.id_prefix}/{name}", None
            case Stream():
                if attempt.query_id is None or batch_id is None:
                    raise NotPossible(
                        "Spark does not say which query a task belongs to, so its batches cannot be told apart"
                    )
                return f"{self.options.id_prefix}/{attempt.query_id}", batch_id

    def _commit_batch(self, name: str, number: int, prepared: Sequence[Prepared]) -> None:
        reported = _reported(prepared)
        with closing(self.options.client.cluster()) as cluster:
            transactions, ledger = Transactions(cluster), Ledger(cluster, name)
            driver = transactions.begin(name, self.options.transaction_timeout_ms)
            mark = ledger.mark()
            if self._is_committed(mark, number, name):
                logger.info("batch %d of %s is committed already; it is not written again", number, name)
                leftovers.abort(transactions, reported)
                return
            now_ms = time.time_ns() // 1_000_000
            sweeps = leftovers.sweep_is_due(mark, prepared, now_ms)
            swept_ms = now_ms if mark is None or sweeps else mark.swept_ms
            ledger.move(transactions, driver, Mark(number, swept_ms))
            self._commit_together(transactions, [driver, *reported], f"batch {number} of {name}")
            if _await_visible(transactions, [driver, *reported], prepared) or sweeps:
                leftovers.sweep(transactions, name, self.options.transaction_timeout_ms)

    def _is_committed(self, mark: Mark | None, number: int, name: str) -> bool:
        if mark is None and number != self.options.first_batch:
            raise BatchNotCommitted(
                f"batch {number} of {name} has no mark of the batch before it, so nobody can tell whether it is "
                "written already: the query wrote with another delivery or to another cluster so far, or its group "
                f"was deleted. Look at the topics; if the batch is not there, set {FIRST_BATCH}={number}"
            )
        if mark is not None and mark.number > number:
            raise BatchNotCommitted(
                f"batch {mark.number} of {name} is committed already, and this is batch {number}: the checkpoint is "
                "older than what it wrote. Use the newer checkpoint, or a new query with a new checkpoint"
            )
        return mark is not None and mark.number == number

    def _commit_together(self, transactions: Transactions, producers: list[Producer], what: str) -> None:
        try:
            transactions.commit_together(producers)
        except BrokerError as error:
            leftovers.abort(transactions, producers)
            raise BatchNotCommitted(
                f"nothing of {what} is committed: {error}. A task took longer than {TRANSACTION_TIMEOUT} "
                f"({self.options.transaction_timeout_ms} ms), or another driver or attempt has taken its place"
            ) from error


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
        self._next_id: str | None = None
        self._reported = False
        super().__init__(options, attempt, BatchProducer(options, self._take))

    def _take(self) -> Producer:
        if self._taken is None:
            cluster = self.producer.cluster
            ids, partition, attempt = ids_of(cluster, self._name), self.attempt.partition, self.attempt.attempt
            self._next_id = ids.attempt(partition, attempt + 1)
            transactional_id = ids.attempt(partition, attempt)
            self._taken = Transactions(cluster).begin(transactional_id, self.options.transaction_timeout_ms)
        return self._taken

    def prepare(self) -> Prepared:
        prepared = super().prepare()
        prepared.transaction, prepared.next_id = self._taken, self._next_id
        self._reported = True
        return prepared

    def close(self) -> None:
        if self._taken is not None and not self._reported:
            # The task has failed. Readers of its topics would wait until the transaction times out.
            leftovers.abort(Transactions(self.producer.cluster), [self._taken])
        super().close()


def _reported(prepared: Sequence[Prepared]) -> list[Producer]:
    return [each.transaction for each in prepared if each.transaction is not None]


def _await_visible(transactions: Transactions, producers: Sequence[Producer], prepared: Sequence[Prepared]) -> bool:
    """The commit is certain, so nothing here may fail; readers see it when every partition has its marker. Who reads
    what a batch has just written expects to find it.

    Whether the next attempt of a task that counts is writing too: Spark speculates, and will end it without a word.
    """
    deadline = time.monotonic() + VISIBLE_WAIT_S
    committed = [each.transactional_id for each in producers]
    rivals = [each.next_id for each in prepared if each.next_id is not None]
    rivals_write = False
    with suppress(ClientError):
        states = transactions.states([*committed, *rivals])
        rivals_write = any(states.get(each) == WRITING for each in rivals)
        while COMMITTING in states.values() and time.monotonic() < deadline:
            time.sleep(VISIBLE_PAUSE_S)
            states = transactions.states(committed)
    return rivals_write
