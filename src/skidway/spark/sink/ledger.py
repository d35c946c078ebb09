"""The mark: the number of the last batch that a query has committed, kept where the commit itself moves it.

It is the offset that the group of the query's name has committed for a partition of `__transaction_state`, the one that
its transactions are kept in. Beside it stands when the query last looked for transactions that nobody will commit.
"""

from dataclasses import dataclass

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.transactions import Producer, Transactions
from skidway.spark.sink.transactional_ids import STATE_TOPIC, TransactionalIds

SWEPT = "swept="


@dataclass(frozen=True, slots=True)
class Mark:
    number: int
    swept_ms: int = 0
    """Wall time."""


class Ledger:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._groups = Groups(cluster)
        self._name = name
        self._place = (STATE_TOPIC, ids_of(cluster, name).state_partition)

    def mark(self) -> Mark | None:
        """For a driver that has taken its id: whatever was about to change it has ended, or ends now."""
        return self._read(require_stable=True)

    def mark_so_far(self) -> Mark | None:
        """For tasks, which can spare work and decide nothing. A driver that died may have left the mark of this batch
        in an open transaction; waiting for it would be waiting for its time-out."""
        return self._read(require_stable=False)

    def move(self, transactions: Transactions, driver: Producer, mark: Mark) -> None:
        """It counts when the driver's transaction is committed."""
        transactions.commit_offsets(driver, self._name, {self._place: mark.number}, f"{SWEPT}{mark.swept_ms}")

    def _read(self, *, require_stable: bool) -> Mark | None:
        found = self._groups.committed_of(self._name, [self._place], require_stable=require_stable).get(self._place)
        if found is None:
            return None
        swept = found.metadata.removeprefix(SWEPT)
        return Mark(found.offset, int(swept) if swept.isascii() and swept.isdigit() else 0)


def ids_of(cluster: Cluster, name: str) -> TransactionalIds:
    # The first question for a coordinator creates the topic.
    Transactions(cluster).coordinator(name)
    return TransactionalIds(name, len(cluster.topic(STATE_TOPIC).partitions))
