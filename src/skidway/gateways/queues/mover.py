"""One task that moves dead letters: a batch is received, sent, and deleted when the send is acknowledged.

At least once: a node that dies between the send and the delete leaves letters that were sent, and whoever moves them
again sends them again. In a FIFO queue the second send within five minutes is found by its de-duplication id, which is
the message id of the letter. What was received and not sent is put back, and does not count as a delivery.

Each batch is a piece of work of its own, so that a task of hours holds nothing between two of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from skidway.gateways.http.call import HttpCall
from skidway.gateways.http.errand import Errand
from skidway.gateways.http.topics.records import is_stopping
from skidway.gateways.queues.catalog import find
from skidway.gateways.queues.errors import NoSuchQueue, QueueError
from skidway.gateways.queues.moves import Move, Status, keep, moves_of
from skidway.gateways.queues.names import key_of
from skidway.gateways.queues.receiving import receive
from skidway.gateways.queues.sending import send
from skidway.gateways.queues.settling import put_back, settle
from skidway.gateways.queues.types import Accept, Ack, MessageToSend, Queue, Received, Sent
from skidway.records.dead_letter_headers import BROKER_NAMES, TOPIC, read_replays, replayed_headers
from skidway.records.queue_headers import DEDUP_ID, QUEUE_DELIVER_AT
from skidway.steps import Steps

BATCH_MAX = 100
BATCHES_PER_SECOND = 10
"""Of a task with a rate, so that it does not come in bursts."""
VISIBILITY_MS = 60_000
RETRY_MS = 500
GIVE_UP_MS = 60_000
"""So long nobody answers for a queue until the task has failed."""
SAVE_MS = 10_000
"""How often other nodes hear how far it is."""
NO_SOURCE = "CouldNotDetermineMessageSource"
NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"


class NoSource(QueueError):
    """A letter does not say where it came from, or names a queue whose dead letters do not come here."""


class Overtaken(QueueError):
    """There is another task already."""


class Mover:
    def __init__(self, errand: Errand, queue: Queue, move: Move, running: dict[str, Mover]) -> None:
        """It is in `running`, by the id of its task, until it has ended."""
        self._errand = errand
        self._queue = queue
        self.move = move
        self.is_cancelled = False
        self._running = running
        self._began_ms = self._saved_ms = self._now_ms
        self._failing_ms: int | None = None
        """Since when nothing works."""

    @property
    def _now_ms(self) -> int:
        return self._errand.site.node.clock.monotonic_ms()

    def moves_from(self, queue: Queue) -> bool:
        return self._queue.topic_id == queue.topic_id

    # --- from one batch to the next ---

    def start(self, respond: Callable[[QueueError | None], None]) -> None:
        """Have the task known and begin it, whether or not somebody still waits for the answer."""
        call = self._errand.call()

        def done(_: None) -> None:
            if all(each.id != self.move.id for each in moves_of(call, self._queue)):
                self._running.pop(self.move.id, None)
                respond(Overtaken("another node started a task for the same queue"))
                return
            respond(None)
            self.go_on()

        def failed(error: Exception) -> None:
            self.move.failure = _reason(error)
            self._end(Status.FAILED)
            respond(error if isinstance(error, QueueError) else QueueError(_reason(error)))

        self._errand.site.node.world.slices.begin(keep(call, self._queue, self.move), done, failed)

    def go_on(self) -> None:
        if self.move.status is not Status.RUNNING:
            return
        if is_stopping(self._errand.call()):
            self._running.pop(self.move.id, None)
        else:
            self._errand.site.node.world.slices.begin(self._batch(), self._on_batch, self.on_error)

    def _on_batch(self, ended: Status | None) -> None:
        if self.move.status is not Status.RUNNING:
            return
        self._failing_ms = None
        if ended is not None:
            self._end(ended)
            return
        due_ms = self._began_ms + self.move.moved * 1_000 // self.move.rate if self.move.rate else self._now_ms
        self._later(max(0, due_ms - self._now_ms))

    def on_error(self, error: Exception) -> None:
        if self.move.status is not Status.RUNNING:
            return
        if isinstance(error, QueueError) and error.retryable:
            if self._failing_ms is None:
                self._failing_ms = self._now_ms
            if self._now_ms - self._failing_ms < GIVE_UP_MS:
                self._later(RETRY_MS)
                return
        self.move.failure = _reason(error)
        self._end(Status.FAILED)

    def _later(self, wait_ms: int) -> None:
        self._errand.site.node.timers.at(self._now_ms + wait_ms, self.go_on)

    def _end(self, status: Status) -> None:
        self.move.status = status
        self._note_end()

    def _note_end(self) -> None:
        """Until it is kept: whoever looks takes the task for a running one."""
        call = self._errand.call()

        def done(_: None) -> None:
            self._running.pop(self.move.id, None)

        def failed(error: Exception) -> None:
            if isinstance(error, QueueError) and error.retryable and not is_stopping(call):
                self._errand.site.node.timers.at(self._now_ms + RETRY_MS, self._note_end)
            else:
                done(None)

        self._errand.site.node.world.slices.begin(keep(call, self._queue, self.move), done, failed)

    # --- one batch ---

    def _batch(self) -> Steps[Status | None]:
        """How the task has ended, if it has."""
        call, queue, move = self._errand.call(), self._queue, self.move
        known = next((each for each in moves_of(call, queue) if each.id == move.id), None)
        if queue.topic_id not in call.site.node.image.topics_by_id:
            raise NoSuchQueue(f"{queue.key.name!r} was deleted")
        if known is not None and known.status is Status.FAILED:
            move.failure = known.failure  # this node is fenced: others take the task for dead
            return Status.FAILED
        if known is None or known.status is not Status.RUNNING or self.is_cancelled:
            return Status.CANCELLED  # a task that nobody knows was overwritten by another one
        most = max(1, min(BATCH_MAX, move.rate // BATCHES_PER_SECOND)) if move.rate else BATCH_MAX
        count = min(most, move.to_move - move.moved)
        if count <= 0:
            return Status.COMPLETED
        letters = yield from receive(call, queue, count, 0, VISIBILITY_MS)
        if not letters:
            return Status.COMPLETED
        yield from self._pass_on(call, letters)
        if self._now_ms - self._saved_ms >= SAVE_MS:
            self._saved_ms = self._now_ms
            yield from keep(call, queue, move)
        return None

    def _pass_on(self, call: HttpCall, letters: list[Received]) -> Steps[None]:
        """Raises QueueError when all that could be sent is, and the rest is put back."""
        left = {(each.partition, each.offset): each for each in letters}
        failures: list[QueueError] = []
        try:
            for destination, chosen in self._by_destination(call, letters, failures):
                results = yield from send(call, destination, [_message(each) for each in chosen])
                sent = [each for each, result in zip(chosen, results, strict=True) if isinstance(result, Sent)]
                failures += [result for result in results if isinstance(result, QueueError)]
                for each in sent:
                    del left[each.partition, each.offset]
                acks = [Ack(action=Accept(), receipt=each.receipt) for each in sent]
                refused = yield from settle(call, self._queue, acks)
                self.move.moved += sum(each is None for each in refused)
        except QueueError as error:
            failures.append(error)
        yield from put_back(call, self._queue, list(left.values()))
        if failures:
            raise failures[0]

    def _by_destination(
        self, call: HttpCall, letters: list[Received], failures: list[QueueError]
    ) -> Iterator[tuple[Queue, list[Received]]]:
        """In their order, up to the first that has none."""
        found: dict[str, list[Received]] = {}
        queues: dict[str, Queue] = {}
        for letter in letters:
            try:
                topic = self.move.destination or _source(letter)
                if topic not in queues:
                    queues[topic] = self._destination(call, topic)
            except QueueError as error:
                failures.append(error)
                break
            found.setdefault(topic, []).append(letter)
        for topic, chosen in found.items():
            yield queues[topic], chosen

    def _destination(self, call: HttpCall, topic: str) -> Queue:
        """Raises QueueError."""
        if self.move.destination:
            return find(call, key_of(topic))
        try:
            source = find(call, key_of(topic))
        except QueueError:
            raise NoSource(f"there is no queue {topic!r}") from None
        if source.settings.dead_letters != self._queue.topic:
            # Anybody who can write a header could name any queue.
            raise NoSource(f"{topic} does not send its dead letters to {self._queue.topic}")
        return source


def _source(letter: Received) -> str:
    headers = dict(letter.headers)
    named = headers.get(BROKER_NAMES[TOPIC], headers.get(TOPIC))
    if not named:
        raise NoSource("a letter does not say where it came from")
    return named.decode("utf-8", "replace")


def _message(letter: Received) -> MessageToSend:
    headers = [(name, value) for name, value in letter.headers if name not in (DEDUP_ID, QUEUE_DELIVER_AT)]
    own = [(name, value) for name, value in headers if not name.startswith("skidway.")]
    return MessageToSend(
        body=letter.body,
        key=letter.key,
        headers=tuple(replayed_headers(headers, read_replays(headers) + 1)),
        deduplication_id=letter.message_id,
        size=len(letter.body or b"") + sum(len(name) + len(value or b"") for name, value in replayed_headers(own, 0)),
    )


def _reason(error: Exception) -> str:
    match error:
        case NoSource():
            return NO_SOURCE
        case NoSuchQueue():
            return NO_QUEUE
        case QueueError():
            return error.detail
    return f"a bug: {type(error).__name__}"
