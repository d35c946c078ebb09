"""Crash and check: a process that moves money is killed again and again, and the sum stays what it was.

Every transfer takes from one account and gives to another, in one transaction over two partitions. The process is
killed without warning (SIGKILL) a few times, wherever it is. Whatever it was at is aborted when the next one takes its
id. The accounts add up to nothing, and every transfer is whole.

    python examples/crash_and_check.py [BOOTSTRAP]
"""

import random
import subprocess
import sys
from collections import Counter

from confluent_kafka import Producer
from setting import BOOTSTRAP, new_topic, read_all

ACCOUNTS = 4
KILLS = 4
TRANSFERS_BEFORE_KILL = 10


def move_money(topic: str) -> None:
    """Until it is killed. Each line that it prints is a transfer that is committed."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": topic, "linger.ms": 0})
    producer.init_transactions(30)
    while True:
        source, target = random.sample(range(ACCOUNTS), 2)
        amount, name = random.randrange(1, 100), random.randbytes(8).hex()
        producer.begin_transaction()
        producer.produce(topic, f"{name} {-amount}", partition=source)
        producer.produce(topic, f"{name} {amount}", partition=target)
        producer.commit_transaction(30)
        print(name, flush=True)


def run_and_kill(topic: str) -> list[str]:
    """The transfers of which it said that they are committed."""
    with subprocess.Popen([sys.executable, __file__, BOOTSTRAP, topic], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        done = [child.stdout.readline().strip() for _ in range(TRANSFERS_BEFORE_KILL)]
        child.kill()
        return done + child.stdout.read().split()


def main() -> None:
    topic = new_topic(partitions=ACCOUNTS)
    acknowledged: set[str] = set()
    for _ in range(KILLS):
        acknowledged |= {name for name in run_and_kill(topic) if len(name) == 16}
    # The next one with the id ends what the last one left open.
    Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": topic}).init_transactions(30)
    rows = [row.split() for row in read_all(topic, "read_committed")]
    halves = Counter(name for name, _ in rows)
    total = sum(int(amount) for _, amount in rows)
    print(f"{KILLS} kills, {len(acknowledged)} transfers acknowledged, {len(halves)} committed, sum {total}")
    assert total == 0
    assert set(halves.values()) == {2}, "a transfer is torn"
    assert acknowledged <= set(halves), "a transfer is lost"
    assert len(halves) <= len(acknowledged) + KILLS, "a transfer that nobody made"


if len(sys.argv) > 2:
    move_money(sys.argv[2])
else:
    main()
