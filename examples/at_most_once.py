"""At most once: commit first, then process. A crash in between loses the message; none is processed twice.

For what is worth less than its repetition: samples of a sensor, cache refreshes.

    python examples/at_most_once.py [BOOTSTRAP]
"""

from setting import COUNT, fill, join, messages, new_topic

CRASH_AT = 4


class Crash(Exception):
    pass


def consume(topic: str, processed: list[int], crash_at: int | None) -> None:
    consumer = join(topic, group=topic)
    try:
        for message in messages(consumer):
            consumer.commit(message, asynchronous=False)
            if message.offset() == crash_at:
                raise Crash
            processed.append(message.offset())
    finally:
        consumer.close()


def main() -> None:
    topic = new_topic()
    fill(topic)
    processed: list[int] = []
    try:
        consume(topic, processed, CRASH_AT)
    except Crash:
        print(f"crashed after the commit of message {CRASH_AT}, before it was processed")
    consume(topic, processed, None)
    lost = set(range(COUNT)) - set(processed)
    print(f"processed {processed}; lost {sorted(lost)}")
    assert lost == {CRASH_AT}
    assert len(processed) == len(set(processed))


main()
