"""An order in three steps, each a topic and a share group: charge, then ship, then write the receipt.

A step accepts its message after the next one is stored, so a crash between the two sends the next message twice: every
step knows by the order's number what it has done already. If an order cannot be shipped, it is refunded instead, and a
worker that is killed with orders in its hands loses none of them.

    python examples/order_saga.py [BOOTSTRAP]
"""

import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from setting import BOOTSTRAP, new_topic

ORDERS = 20
SOLD_OUT = "order-13"
PATIENCE_S = 120
STEPS = {"charge": "ship", "ship": "receipt", "receipt": None, "refund": None}
"""What each step hands an order on to."""


def do_once(ledger: Path, step: str, order: str) -> None:
    """The effect and the mark that it is done are one row, so doing it again changes nothing."""
    with sqlite3.connect(ledger, timeout=60) as database:
        database.execute("INSERT OR IGNORE INTO done VALUES (?, ?)", (step, order))


def work(step: str, prefix: str, ledger: Path, crashes: bool) -> None:
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "enable.idempotence": True})
    consumer = ShareConsumer(
        {
            "bootstrap.servers": BOOTSTRAP,
            "group.id": f"{prefix}-{step}",
            "share.acknowledgement.mode": "explicit",
            "max.poll.records": 5,
        }
    )
    consumer.subscribe([f"{prefix}-{step}"])
    while not ledger.with_name("done").exists():
        messages = [message for message in consumer.poll(0.5) if not message.error()]
        for message in messages:
            order = (message.value() or b"").decode()
            following = STEPS[step]
            if step == "ship" and order == SOLD_OUT:
                following = "refund"
            else:
                do_once(ledger, step, order)
            if following is not None:
                producer.produce(f"{prefix}-{following}", order)
        assert producer.flush(30) == 0
        if crashes and messages:
            os._exit(9)  # the next step has them, and nobody has accepted them here
        for message in messages:
            consumer.acknowledge(message, AcknowledgeType.ACCEPT)
        consumer.commit_sync(30.0)
    consumer.close()


def prepare(prefix: str) -> None:
    """A share group would begin with what comes after its first member: these begin with what is there."""
    admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
    change = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    for step in STEPS:
        new_topic(f"{prefix}-{step}")
        settings = ConfigResource(ResourceType.GROUP, f"{prefix}-{step}", incremental_configs=[change])
        admin.incremental_alter_configs([settings])[settings].result(30)


def hire(step: str, prefix: str, ledger: Path, *, crashes: bool = False) -> "subprocess.Popen[bytes]":
    task = "crash" if crashes else "work"
    return subprocess.Popen([sys.executable, __file__, BOOTSTRAP, task, step, prefix, str(ledger)])


def counts(ledger: Path) -> dict[str, int]:
    with sqlite3.connect(ledger, timeout=60) as database:
        return dict(database.execute("SELECT step, count(*) FROM done GROUP BY step"))


def main() -> None:
    prefix = new_topic()
    prepare(prefix)
    producer = Producer({"bootstrap.servers": BOOTSTRAP})
    for number in range(ORDERS):
        producer.produce(f"{prefix}-charge", f"order-{number}")
    assert producer.flush(30) == 0
    with tempfile.TemporaryDirectory() as folder:
        ledger = Path(folder, "ledger.db")
        with sqlite3.connect(ledger) as database:
            database.execute("CREATE TABLE done (step TEXT, number TEXT, PRIMARY KEY (step, number))")
        assert hire("charge", prefix, ledger, crashes=True).wait(PATIENCE_S) == 9
        workers = [hire(step, prefix, ledger) for step in STEPS]
        expected = {"charge": ORDERS, "ship": ORDERS - 1, "receipt": ORDERS - 1, "refund": 1}
        ends = time.monotonic() + PATIENCE_S
        while (found := counts(ledger)) != expected:
            assert time.monotonic() < ends, found
            time.sleep(0.1)
        ledger.with_name("done").touch()
        assert [worker.wait(PATIENCE_S) for worker in workers] == [0] * len(workers)
        assert counts(ledger) == expected
    print(f"{ORDERS} charged, {ORDERS - 1} shipped with a receipt, 1 refunded; each once, although a worker was killed")


if len(sys.argv) > 2:
    work(sys.argv[3], sys.argv[4], Path(sys.argv[5]), sys.argv[2] == "crash")
else:
    main()
