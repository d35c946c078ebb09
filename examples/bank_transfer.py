"""A transaction over several topics: both sides of a transfer count, or none.

Money moves between two accounts, each a topic of its own. Some transfers are aborted, and one is cut off by a crash
after half of it is written. Whoever reads what is committed sees the same sum always; whoever does not sees money that
never was.

    python examples/bank_transfer.py [BOOTSTRAP]
"""

from confluent_kafka import Producer
from setting import BOOTSTRAP, new_topic, read_all

TRANSFERS = 20
ABORTED = {3, 11}
CRASHED = 7


class Crash(Exception):
    pass


def teller(name: str) -> Producer:
    """Whoever takes the id next ends what this one leaves open, and fences it."""
    producer = Producer({"bootstrap.servers": BOOTSTRAP, "transactional.id": name})
    producer.init_transactions(30)
    return producer


def transfer(producer: Producer, source: str, target: str, number: int) -> None:
    producer.begin_transaction()
    producer.produce(source, f"{-number}")
    if number == CRASHED:
        producer.flush(30)
        raise Crash
    producer.produce(target, f"{number}")
    if number in ABORTED:
        producer.abort_transaction(30)
    else:
        producer.commit_transaction(30)


def main() -> None:
    source, target = new_topic(), new_topic()
    producer = teller(source)
    for number in range(TRANSFERS):
        try:
            transfer(producer, source, target, number)
        except Crash:
            print(f"crashed in transfer {number}, after half of it was written")
            producer = teller(source)
    kept = set(range(TRANSFERS)) - ABORTED - {CRASHED}
    given, received = (sum(map(int, read_all(topic, "read_committed"))) for topic in (source, target))
    print(f"committed: {given} and {received}, together {given + received}")
    assert (given, received) == (-sum(kept), sum(kept))
    everything = sum(int(value) for topic in (source, target) for value in read_all(topic, "read_uncommitted"))
    print(f"with what was never committed: together {everything}")
    assert everything == -CRASHED


main()
