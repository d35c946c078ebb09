"""Marks of done ids in SQLite and PostgreSQL: one table, made on first use, in the transaction of the work itself.

    CREATE TABLE skidway_done (scope TEXT, id TEXT, expires_ms BIGINT, PRIMARY KEY (scope, id))

Marks past their window are deleted a few at a time on the way, so the table stays as large as a window needs.
"""

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from skidway.blocking_client.errors import ClientError
from skidway.client.extras import load

if TYPE_CHECKING:
    import psycopg

TABLE = "skidway_done"
BUSY_TIMEOUT_S = 30.0
# After each so many new marks, up to twice as many old ones go: deleting keeps ahead of marking.
SWEEP_EVERY = 500
SWEEP_ROWS = 2 * SWEEP_EVERY


class NotBetweenTransactions(ClientError):
    """The connection is inside a transaction: the mark would become part of it, and nobody knows when that ends."""


class SqliteMarks:
    """In a database file of your own, or through a connection you have; `work` gets the connection."""

    def __init__(self, database: str | sqlite3.Connection) -> None:
        if isinstance(database, str):
            self.connection = sqlite3.connect(database, timeout=BUSY_TIMEOUT_S, isolation_level=None)
            self.connection.execute("PRAGMA journal_mode=WAL")
        else:
            self.connection = database
        self._marked = 0
        self.connection.execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (scope TEXT NOT NULL, id TEXT NOT NULL, expires_ms INTEGER NOT NULL,"
            " PRIMARY KEY (scope, id)) WITHOUT ROWID"
        )
        self.connection.execute(f"CREATE INDEX IF NOT EXISTS {TABLE}_expires ON {TABLE} (expires_ms)")
        self.connection.commit()

    def once(
        self, scope: str, identity: str, window_ms: int, now_ms: int, work: Callable[[sqlite3.Connection], object]
    ) -> bool:
        connection = self.connection
        if connection.in_transaction:
            raise NotBetweenTransactions("the SQLite connection is inside a transaction: commit it first")
        # IMMEDIATE: whoever comes second waits here, and not in the middle, where SQLite would refuse to wait.
        connection.execute("BEGIN IMMEDIATE")
        try:
            marked = connection.execute(
                f"INSERT INTO {TABLE} (scope, id, expires_ms) VALUES (?, ?, ?) ON CONFLICT (scope, id) DO UPDATE"
                f" SET expires_ms = excluded.expires_ms WHERE {TABLE}.expires_ms <= ?",
                (scope, identity, now_ms + window_ms, now_ms),
            ).rowcount
            if marked:
                work(connection)
                if not connection.in_transaction:
                    raise ClientError("the work ended the transaction that its mark is in; leave commit to once()")
                self._sweep(now_ms)
        except BaseException:
            connection.rollback()
            raise
        connection.commit()
        return bool(marked)

    def _sweep(self, now_ms: int) -> None:
        self._marked += 1
        if self._marked % SWEEP_EVERY == 0:
            self.connection.execute(
                f"DELETE FROM {TABLE} WHERE (scope, id) IN"
                f" (SELECT scope, id FROM {TABLE} WHERE expires_ms <= ? ORDER BY expires_ms LIMIT {SWEEP_ROWS})",
                (now_ms,),
            )

    def close(self) -> None:
        self.connection.close()


class PostgresMarks:
    """Through a psycopg (3) connection, yours or one made of a connection string; `work` gets the connection."""

    def __init__(self, database: "str | psycopg.Connection[Any]") -> None:
        library = load("psycopg", "PostgresMarks")
        self._idle = library.pq.TransactionStatus.IDLE
        self.connection: psycopg.Connection[Any] = (
            library.connect(database, autocommit=True) if isinstance(database, str) else database
        )
        self._marked = 0
        self._check_idle()
        with self.connection.transaction():
            # Two that start at once would both try to make the table, and one of them would fail.
            self.connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (TABLE,))
            self.connection.execute(
                f"CREATE TABLE IF NOT EXISTS {TABLE} (scope TEXT NOT NULL, id TEXT NOT NULL,"
                " expires_ms BIGINT NOT NULL, PRIMARY KEY (scope, id))"
            )
            self.connection.execute(f"CREATE INDEX IF NOT EXISTS {TABLE}_expires ON {TABLE} (expires_ms)")

    def once(
        self,
        scope: str,
        identity: str,
        window_ms: int,
        now_ms: int,
        work: "Callable[[psycopg.Connection[Any]], object]",
    ) -> bool:
        self._check_idle()
        with self.connection.transaction():
            # A second one with this id waits here until the first commits (then it is a duplicate) or rolls back.
            marked = self.connection.execute(
                f"INSERT INTO {TABLE} (scope, id, expires_ms) VALUES (%s, %s, %s) ON CONFLICT (scope, id) DO UPDATE"
                f" SET expires_ms = excluded.expires_ms WHERE {TABLE}.expires_ms <= %s",
                (scope, identity, now_ms + window_ms, now_ms),
            ).rowcount
            if marked:
                work(self.connection)
                self._sweep(now_ms)
        return bool(marked)

    def _sweep(self, now_ms: int) -> None:
        self._marked += 1
        if self._marked % SWEEP_EVERY == 0:
            # SKIP LOCKED: sweeping must not wait for somebody who is just marking one of these again.
            self.connection.execute(
                f"DELETE FROM {TABLE} WHERE (scope, id) IN (SELECT scope, id FROM {TABLE} WHERE expires_ms <= %s"
                f" ORDER BY expires_ms LIMIT {SWEEP_ROWS} FOR UPDATE SKIP LOCKED)",
                (now_ms,),
            )

    def _check_idle(self) -> None:
        """In a transaction psycopg would make a savepoint of ours, which commits nothing."""
        if self.connection.info.transaction_status != self._idle:
            raise NotBetweenTransactions("the PostgreSQL connection is inside a transaction: commit it first")

    def close(self) -> None:
        self.connection.close()
