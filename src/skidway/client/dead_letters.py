"""A consumer loop in which a message that cannot be processed is set aside instead of stopping everything.

    with DeadLetters({"bootstrap.servers": "…", "group.id": "billing"}, ["orders"], process) as letters:
        letters.run()

`process(message)` returns: the message is done. It raises: it is called again after a pause, `attempts` times in all;
then the message goes to `<topic>-dlq` with the headers of `dead_letter_headers`, and only when that is acknowledged
does the group's position move past it.

- At least once: nothing is committed before it is processed or in the dead-letter topic. After a crash messages since
  the last commit come again, and a message may get a second dead letter; `dlq.topic/partition/offset` name it.
- Order: the next message of a partition waits until the one before it is done. Other partitions go on meanwhile.
- One message per partition is held at most. Pauses do not count against `max.poll.interval.ms`; `process` does.
- A dead letter that the brokers refuse for good (too large, no such topic) raises `DeadLetterRefused`; the position
  stays before it.

One object belongs to one thread.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from types import TracebackType
from typing import Any

from skidway.blocking_client.errors import ClientError
from skidway.client.extras import load
from skidway.records.dead_letter_headers import DeathReport, dead_letter_topic, read_replays

ATTEMPTS = 5
COMMIT_INTERVAL_MS = 1_000
# While messages are held the loop looks at them this often.
HOLDING_POLL_S = 0.02
CLOSE_TIMEOUT_S = 5.0
# The producer leaves it to the broker to say what is too large: a dead letter is larger than its message.
DEAD_LETTER_BYTES_MAX = 100_000_000

Message = Any
"""confluent_kafka.Message, which has no type of its own to speak of."""
Place = tuple[str, int]


class Ended(Enum):
    """How a message left the loop."""

    PROCESSED = "processed"
    DEAD = "dead"


class DeadLetterRefused(ClientError):
    """The dead-letter topic does not take the message. It is not committed and will come again."""


@dataclass(slots=True, frozen=True)
class Backoff:
    """The pause after the nth failure: first, twice that, and so on; a fifth of it at random."""

    first_ms: int = 100
    factor: float = 2.0
    max_ms: int = 30_000
    jitter: float = 0.2

    def pause_ms(self, failures: int, chance: float) -> int:
        assert failures > 0
        whole = min(float(self.max_ms), self.first_ms * self.factor ** min(failures - 1, 64))
        return int(whole * (1 - self.jitter * chance))


@dataclass(slots=True)
class _Held:
    """A message that failed. Its partition is paused until it is out of the way."""

    message: Message
    failures: int = 0
    first_failed_ms: int = 0
    due_ms: int = 0
    last_error: BaseException | None = None
    delivering: bool = False
    """On its way to the dead-letter topic."""


class DeadLetters:
    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        process: Callable[[Message], None],
        *,
        attempts: int = ATTEMPTS,
        backoff: Backoff | None = None,
        fatal: tuple[type[Exception], ...] = (),
        topic_of: Callable[[str], str] = dead_letter_topic,
        producer_config: Mapping[str, Any] | None = None,
        on_end: Callable[[Message, Ended], None] | None = None,
        commit_interval_ms: int = COMMIT_INTERVAL_MS,
        clock: Callable[[], int] | None = None,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """`config`: of the confluent-kafka Consumer; its connection settings are the producer's too.

        `fatal`: errors that no repetition will cure; such a message is a dead letter at once.
        `commit_interval_ms`: 0 commits after every message. `clock`: wall time in ms.
        """
        if attempts < 1:
            raise ValueError("attempts must be at least 1")
        self.attempts = attempts
        self.processed = 0
        self.dead = 0
        self._process = process
        self._backoff = backoff or Backoff()
        self._fatal = fatal
        self._topic_of = topic_of
        self._on_end = on_end
        self._commit_interval_ms = commit_interval_ms
        self._clock = clock or (lambda: time.time_ns() // 1_000_000)
        self._chance = chance
        self._group = str(config.get("group.id", ""))
        self._held: dict[Place, _Held] = {}
        self._done: dict[Place, int] = {}
        self._committed_ms = self._clock()
        self._refused: DeadLetterRefused | None = None
        self._stopping = False
        self._kafka = load("confluent_kafka", "DeadLetters")
        self.consumer = self._kafka.Consumer(_consumer_config(config))
        self.producer = self._kafka.Producer({**_producer_config(config), **(producer_config or {})})
        self.consumer.subscribe(list(topics), on_revoke=self._on_revoked, on_lost=self._on_lost)

    def __enter__(self) -> "DeadLetters":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def run(self, until: Callable[[], bool] | None = None) -> None:
        """Until `stop` is called (by `process`, a signal handler or another thread) or `until()` is true."""
        while not self._stopping and not (until is not None and until()):
            self.step(0.5)

    def stop(self) -> None:
        """Ask `run` to return after the message at hand."""
        self._stopping = True

    def step(self, timeout_s: float = 1.0) -> None:
        """At most one new message, what is due again, and what has to be committed."""
        self._look_after_held()
        message = self.consumer.poll(min(timeout_s, HOLDING_POLL_S) if self._held else timeout_s)
        if message is not None:
            self._take(message)
        if self._done and self._clock() - self._committed_ms >= self._commit_interval_ms:
            self.commit()

    def commit(self) -> None:
        """Tell the group how far all of it is done. What cannot be committed now is tried again later."""
        self._commit(list(self._done))

    def close(self) -> None:
        """Commit what is done and leave the group. Held messages come again, here or elsewhere."""
        if any(held.delivering for held in self._held.values()):
            self.producer.flush(CLOSE_TIMEOUT_S)
        self.commit()
        self._held.clear()
        self.consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if error.fatal() or not (error.retriable() or error.code() in self._passing()):
                raise self._kafka.KafkaException(error)
            return
        place = (message.topic(), message.partition())
        if place in self._held:
            # Read before the pause took hold: back to it when the held one is out of the way.
            self.consumer.seek(self._kafka.TopicPartition(*place, message.offset()))
            return
        self._attempt(place, _Held(message))

    def _passing(self) -> tuple[int, ...]:
        """Errors that the client gets over by itself."""
        codes = self._kafka.KafkaError
        return (
            codes._TRANSPORT,
            codes._ALL_BROKERS_DOWN,
            codes._RESOLVE,
            codes._TIMED_OUT,
            codes._PARTITION_EOF,
            codes._MAX_POLL_EXCEEDED,
            codes.UNKNOWN_TOPIC_OR_PART,
            codes._UNKNOWN_TOPIC,
        )

    def _attempt(self, place: Place, held: _Held) -> None:
        try:
            self._process(held.message)
        except Exception as error:
            self._failed(place, held, error)
        else:
            self._end(place, held.message, Ended.PROCESSED)

    def _failed(self, place: Place, held: _Held, error: Exception) -> None:
        now_ms = self._clock()
        held.failures += 1
        held.last_error = error
        held.first_failed_ms = held.first_failed_ms or now_ms
        if place not in self._held:
            self._held[place] = held
            self.consumer.pause([self._kafka.TopicPartition(*place)])
        if held.failures >= self.attempts or isinstance(error, self._fatal):
            self._bury(place, held, now_ms)
        else:
            held.due_ms = now_ms + self._backoff.pause_ms(held.failures, self._chance())

    def _look_after_held(self) -> None:
        if not self._held:
            return
        self.producer.poll(0)
        if self._refused is not None:
            refused, self._refused = self._refused, None
            raise refused
        now_ms = self._clock()
        for place, held in list(self._held.items()):
            if held.delivering or held.due_ms > now_ms or self._held.get(place) is not held:
                continue
            if held.failures >= self.attempts or isinstance(held.last_error, self._fatal):
                self._bury(place, held, now_ms)
            else:
                self._attempt(place, held)

    def _bury(self, place: Place, held: _Held, now_ms: int) -> None:
        """Off to the dead-letter topic; `_buried` hears how it went."""
        message, error = held.message, held.last_error
        original = list(message.headers() or [])
        report = DeathReport(
            topic=place[0],
            partition=place[1],
            offset=message.offset(),
            timestamp_ms=message.timestamp()[1],
            group=self._group,
            error_type=_type_name(error),
            error_message=str(error),
            attempts=held.failures,
            failed_first_ms=held.first_failed_ms,
            failed_last_ms=now_ms,
            replays=read_replays(original),
        )
        held.delivering = True
        try:
            self.producer.produce(
                self._topic_of(place[0]),
                value=message.value(),
                key=message.key(),
                headers=report.headers(original),
                on_delivery=lambda failure, _: self._buried(place, held, failure),
            )
        except BufferError:
            self._again(held)
        except self._kafka.KafkaException as failure:
            self._buried(place, held, failure.args[0])

    def _buried(self, place: Place, held: _Held, failure: Any) -> None:
        if self._held.get(place) is not held:
            return  # The partition went to another member, who has the message now.
        if failure is None:
            self._end(place, held.message, Ended.DEAD)
            self._commit([place])
        elif failure.fatal() or not (failure.retriable() or failure.code() == self._kafka.KafkaError._MSG_TIMED_OUT):
            text = f"{self._topic_of(place[0])} did not accept the dead letter of {place[0]} partition {place[1]}"
            self._refused = DeadLetterRefused(f"{text} offset {held.message.offset()}: {failure.str()}")
            self._again(held)
        else:
            self._again(held)

    def _again(self, held: _Held) -> None:
        held.delivering = False
        held.due_ms = self._clock() + self._backoff.pause_ms(held.failures, self._chance())

    def _end(self, place: Place, message: Message, ended: Ended) -> None:
        self._done[place] = message.offset() + 1
        if self._held.pop(place, None) is not None:
            self.consumer.resume([self._kafka.TopicPartition(*place)])
        if ended is Ended.DEAD:
            self.dead += 1
        else:
            self.processed += 1
        if self._on_end is not None:
            self._on_end(message, ended)

    def _commit(self, places: list[Place]) -> None:
        offsets = [self._kafka.TopicPartition(*place, self._done[place]) for place in places if place in self._done]
        if not offsets:
            return
        self._committed_ms = self._clock()
        try:
            self.consumer.commit(offsets=offsets, asynchronous=False)
        except self._kafka.KafkaException as error:
            # The offsets stay in `_done`. If the partitions went to another member, `_on_lost` or `_on_revoked`
            # forgets them, and that member does the messages again.
            if error.args[0].fatal():
                raise
            return
        for offset in offsets:
            if self._done.get((offset.topic, offset.partition)) == offset.offset:
                del self._done[offset.topic, offset.partition]

    def _on_revoked(self, _: Any, partitions: list[Any]) -> None:
        places = [(partition.topic, partition.partition) for partition in partitions]
        self._commit(places)
        self._forget(places)

    def _on_lost(self, _: Any, partitions: list[Any]) -> None:
        """They belong to somebody else already: a commit would be refused."""
        self._forget([(partition.topic, partition.partition) for partition in partitions])

    def _forget(self, places: list[Place]) -> None:
        for place in places:
            self._done.pop(place, None)
            if self._held.pop(place, None) is not None:
                # librdkafka keeps a partition paused while it is away: it would come back and stand still.
                self.consumer.resume([self._kafka.TopicPartition(*place)])


def _consumer_config(config: Mapping[str, Any]) -> dict[str, Any]:
    if str(config.get("enable.auto.commit", False)).lower() == "true":
        raise ValueError(
            "enable.auto.commit would commit messages before they are processed; DeadLetters commits itself"
        )
    return {"auto.offset.reset": "earliest", **config, "enable.auto.commit": False}


def _producer_config(config: Mapping[str, Any]) -> dict[str, Any]:
    """How to reach the brokers is the consumer's; how to deliver is fixed."""
    shared = ("bootstrap.servers", "security.", "sasl.", "ssl.", "client.", "socket.", "broker.address", "log_level")
    kept = {name: value for name, value in config.items() if name.startswith(shared)}
    kept |= {"enable.idempotence": True, "acks": "all", "message.max.bytes": DEAD_LETTER_BYTES_MAX, "linger.ms": 0}
    # One key, one partition, for this producer as for Java's and for `skidway produce`.
    return {**kept, "partitioner": "murmur2_random"}


def _type_name(error: BaseException | None) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
