"""Dead letters: a message that cannot be processed is tried again, then set aside; the others go on, in order.

Afterwards the cause is repaired and the letters are sent back to where they came from, as `skidway dlq replay` does.

    python examples/dead_letters.py [BOOTSTRAP]
"""

import time

from confluent_kafka import Message
from setting import BOOTSTRAP, COUNT, fill, new_topic

from skidway.cli.main import main as skidway
from skidway.client import Backoff, DeadLetters

POISON = {b"order 3", b"order 7"}
PATIENCE_S = 60


def consume(topic: str, broken: bool, wanted: int) -> list[bytes]:
    """Until so many messages have ended, one way or the other."""
    done: list[bytes] = []

    def process(message: Message) -> None:
        if broken and message.value() in POISON:
            raise ValueError(f"cannot read {message.value()!r}")
        done.append(message.value())

    config = {"bootstrap.servers": BOOTSTRAP, "group.id": topic, "session.timeout.ms": 6000}
    deadline = time.monotonic() + PATIENCE_S
    with DeadLetters(config, [topic], process, attempts=3, backoff=Backoff(first_ms=50)) as letters:
        letters.run(until=lambda: letters.processed + letters.dead >= wanted or time.monotonic() > deadline)
        print(f"{letters.processed} processed, {letters.dead} set aside")
    return done


def main() -> None:
    topic = new_topic()
    letters = new_topic(f"{topic}-dlq")
    fill(topic)
    done = consume(topic, broken=True, wanted=COUNT)
    assert done == [value for number in range(COUNT) if (value := b"order %d" % number) not in POISON]
    # At a terminal: skidway dlq show …-dlq; skidway dlq replay …-dlq --execute
    assert skidway(["dlq", "show", letters, "-b", BOOTSTRAP]) == 0
    assert skidway(["dlq", "replay", letters, "--execute", "-b", BOOTSTRAP]) == 0
    assert set(consume(topic, broken=False, wanted=len(POISON))) == POISON


main()
