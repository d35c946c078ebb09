"""Idempotent processing: at least once, and a database that knows what it has seen. Every message counts once.

The order and the mark that it is done are one transaction, so neither can be there without the other: not after a
crash in between, not when a producer sent an order twice.

    python examples/idempotent_processing.py [BOOTSTRAP]
"""

import sqlite3
import tempfile
from pathlib import Path

from setting import COUNT, fill, join, messages, new_topic

from skidway.client import Deduplicator, SqliteMarks, message_id

CRASH_AT = 4


class Crash(Exception):
    pass


def consume(topic: str, database: str, crash_at: int | None) -> int:
    """Answers how many duplicates were passed over."""
    marks = SqliteMarks(database)
    marks.connection.execute("CREATE TABLE IF NOT EXISTS orders (id TEXT, text TEXT)")
    deduplicator = Deduplicator(marks, scope="orders")
    consumer = join(topic, group=topic)
    try:
        for message in messages(consumer):
            order = (message_id(message), message.value().decode())
            deduplicator.once(order[0], lambda db, order=order: db.execute("INSERT INTO orders VALUES (?, ?)", order))
            if message.offset() == crash_at:
                raise Crash
            consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()
        marks.close()
    return deduplicator.duplicates


def main() -> None:
    topic = new_topic()
    fill(topic)
    fill(topic)  # A producer without a memory sends everything again: new offsets, the same ids.
    with tempfile.TemporaryDirectory() as folder:
        database = str(Path(folder) / "orders.db")
        try:
            consume(topic, database, CRASH_AT)
        except Crash:
            print(f"crashed after message {CRASH_AT} was processed, before its commit")
        duplicates = consume(topic, database, None)
        with sqlite3.connect(database) as connection:
            orders = connection.execute("SELECT id, count(*) FROM orders GROUP BY id").fetchall()
    print(f"{len(orders)} orders, each once; {duplicates} duplicates passed over")
    assert sorted(orders) == sorted((f"order-{number}", 1) for number in range(COUNT))
    assert duplicates == COUNT + 1


main()
