"""Transactions of a query that are open and that nobody will commit: readers would wait for their time-outs.

A task that dies leaves one, and so does an attempt that lost against another. Most end when the next batch takes the
same id. What is left is found here: by a driver whose batch is committed, so every attempt that is still there is late.
To list transactions costs the broker a look at all of its ids, so it is done when an attempt was not the first of its
task, when the one behind it is writing, and, for what has batches, now and then.
"""

import logging
from collections.abc import Sequence

from skidway.blocking_client.errors import ClientError
from skidway.blocking_client.transactions import Producer, Transactions
from skidway.spark.sink.delivery import Prepared
from skidway.spark.sink.ledger import Mark

SWEEP_EVERY_MS = 10_000

logger = logging.getLogger(__name__)


def sweep_is_due(mark: Mark | None, prepared: Sequence[Prepared], now_ms: int) -> bool:
    if mark is None or was_repeated(prepared):
        return True
    return not 0 <= now_ms - mark.swept_ms < SWEEP_EVERY_MS


def was_repeated(prepared: Sequence[Prepared]) -> bool:
    """Whether a task that counts was not the first attempt at its part."""
    return any(each.attempt.attempt > 0 for each in prepared)


def sweep(transactions: Transactions, name: str, timeout_ms: int) -> None:
    """Whoever has one of the ids is fenced. Nothing depends on it: without it readers wait longer."""
    try:
        for transactional_id in transactions.open_beside(name):
            if transactional_id.startswith(f"{name}/"):
                logger.info("the transaction of %s was left open; it is aborted", transactional_id)
                transactions.begin(transactional_id, timeout_ms)
    except ClientError as error:
        logger.info("what tasks of %s left open ends when it times out: %s", name, error)


def abort(transactions: Transactions, producers: Sequence[Producer]) -> None:
    """What cannot be aborted is fenced, or ended already: nobody will commit it."""
    for producer in producers:
        try:
            transactions.end(producer, commit=False)
        except ClientError as error:
            logger.info("the transaction of %s was not aborted: %s", producer.transactional_id, error)
