"""At least once: process first, then commit. A crash in between repeats the message; none is lost.

The default to choose. What repeats must do no harm: see idempotent_processing.py.

    python examples/at_least_once.py [BOOTSTRAP]
"""

from setting import COUNT, fill, join, messages, new_topic

CRASH_AT = 4


class Crash(Exception):
    pass


def consume(topic: str, processed: list[int], crash_at: int | None) -> None:
    consumer = join(topic, group=topic)
    try:
        for message in messages(consumer):
            processed.append(message.offset())
            if message.offset() == crash_at:
                raise Crash
            consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


def main() -> None:
    topic = new_topic()
    fill(topic)
    processed: list[int] = []
    try:
        consume(topic, processed, CRASH_AT)
    except Crash:
        print(f"crashed after message {CRASH_AT} was processed, before its commit")
    consume(topic, processed, None)
    repeated = {number for number in processed if processed.count(number) > 1}
    print(f"processed {processed}; repeated {sorted(repeated)}")
    assert set(processed) == set(range(COUNT))
    assert repeated == {CRASH_AT}


main()
