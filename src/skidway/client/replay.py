"""Sending dead letters back to the topics they came from.

A letter is sent with its own key, value and headers, and a header that counts how often that happened: one that comes
back too often is left where it is, so that no message goes round for ever. How far a dead-letter topic has been
replayed is kept as committed offsets of the group `skidway-dlq-replay`, so that the next replay begins there.
Replay is at least once: if it dies, what was sent after the last saved position is sent again.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.consumer import Consumed
from skidway.blocking_client.errors import BrokerError, ClientError, Unsupported
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.partitioners import partition_of_key
from skidway.blocking_client.producer import Producer
from skidway.blocking_client.reader import Place
from skidway.client.dead_letter_headers import DeathReport, read_report, replayed_headers

GROUP = "skidway-dlq-replay"
MAX_REPLAYS = 3
RATE_PER_S = 100.0
# Letters are sent and the position is saved about this often.
SAVE_INTERVAL_S = 0.5
SAVE_LETTERS_MAX = 1000


@dataclass(slots=True)
class Rules:
    to: str | None = None
    """Another topic than the source."""
    to_source_partition: bool = False
    """Into the partition it came from, instead of where its key belongs by Java's partitioner."""
    max_replays: int = MAX_REPLAYS
    error_type: str | None = None
    """Only letters with this error, in full or its last part."""
    rate_per_s: float = RATE_PER_S


@dataclass(slots=True)
class Verdict:
    """What is to become of a letter: it goes to `topic` and `partition`, or stays for the reason in `kept`."""

    letter: Consumed
    report: DeathReport | None
    topic: str = ""
    partition: int = -1
    kept: str = ""

    @property
    def moved(self) -> bool:
        """A keyed message that would not go to the partition it came from."""
        report = self.report
        return report is not None and self.letter.key is not None and self.partition not in (-1, report.partition)


@dataclass(slots=True)
class Summary:
    sent: int = 0
    moved: int = 0
    kept: Counter[str] = field(default_factory=Counter)
    targets: Counter[str] = field(default_factory=Counter)

    def count(self, verdict: Verdict) -> None:
        if verdict.kept:
            self.kept[verdict.kept] += 1
            return
        self.sent += 1
        self.moved += verdict.moved
        self.targets[verdict.topic] += 1


class Replay:
    """Of one dead-letter topic. `now_s` and `sleep` are for tests.

    `whole`: all letters from the saved position on are given. A replay of chosen ones leaves others behind it, so it
    saves no position.
    """

    def __init__(
        self,
        cluster: Cluster,
        dead_letter_topic: str,
        rules: Rules,
        *,
        whole: bool = True,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if rules.to == dead_letter_topic:
            raise ClientError(f"{dead_letter_topic} cannot be replayed into itself: that would never end")
        self.cluster = cluster
        self.topic = dead_letter_topic
        self.rules = rules
        self.whole = whole
        self.saves_position = whole
        self._now_s = now_s
        self._sleep = sleep
        self._partitions: dict[str, int] = {}
        self._positions: dict[Place, int] = {}

    def saved_positions(self) -> dict[int, int]:
        """Where the last replay of the topic ended; nothing if there was none, or the broker knows no groups."""
        partitions = [(self.topic, partition) for partition in self.cluster.topic(self.topic).partitions]
        try:
            found = Groups(self.cluster).committed_of(GROUP, partitions)
        except Unsupported:
            self.saves_position = False
            return {}
        return {partition: committed.offset for (_, partition), committed in found.items()}

    def judge(self, letter: Consumed) -> Verdict:
        report = read_report(letter.headers)
        verdict = Verdict(letter, report)
        if report is None and self.rules.to is None:
            verdict.kept = "not a dead letter (no headers that name its source topic, partition and offset)"
            return verdict
        wanted = self.rules.error_type
        if wanted and (report is None or wanted not in (report.error_type, report.error_type.rpartition(".")[2])):
            verdict.kept = f"its error is not {wanted}"
            return verdict
        replays = report.replays if report else 0
        if replays >= self.rules.max_replays:
            verdict.kept = f"replayed {replays} time{'s' * (replays != 1)} already"
            return verdict
        verdict.topic = self.rules.to or (report.topic if report else "")
        if verdict.topic == self.topic:
            verdict.kept = "its source is this dead-letter topic"
            return verdict
        count = self._partition_count(verdict.topic)
        if not count:
            verdict.kept = f"its topic {verdict.topic} does not exist"
            return verdict
        verdict.partition = self._partition(letter, report, count)
        return verdict

    def preview(self, letters: Iterable[Consumed]) -> Iterator[Verdict]:
        for letter in letters:
            yield self.judge(letter)

    def run(self, letters: Iterable[Consumed]) -> Iterator[Verdict]:
        """Send what the rules let pass, no faster than they say; each verdict when its letter is on its way."""
        began = saved = self._now_s()
        sent = unsaved = 0
        with Producer(self.cluster) as producer:
            for verdict in self.preview(letters):
                if not verdict.kept:
                    due = began + sent / self.rules.rate_per_s
                    if due - self._now_s() > SAVE_INTERVAL_S:
                        self._save(producer)
                        saved, unsaved = self._now_s(), 0
                    self._sleep(max(0.0, due - self._now_s()))
                    self._send(producer, verdict)
                    sent += 1
                unsaved += 1
                self._positions[self.topic, verdict.letter.partition] = verdict.letter.offset + 1
                yield verdict
                if unsaved >= SAVE_LETTERS_MAX or self._now_s() - saved >= SAVE_INTERVAL_S:
                    self._save(producer)
                    saved, unsaved = self._now_s(), 0
            self._save(producer)

    def _send(self, producer: Producer, verdict: Verdict) -> None:
        letter, report = verdict.letter, verdict.report
        headers = replayed_headers(list(letter.headers), (report.replays if report else 0) + 1)
        producer.send(verdict.topic, letter.value, key=letter.key, headers=headers, partition=verdict.partition)

    def _save(self, producer: Producer) -> None:
        """The letters first, then the position: the other way round a crash would lose letters."""
        producer.flush()
        if self.saves_position and self._positions:
            Groups(self.cluster).commit(GROUP, self._positions)
        self._positions.clear()

    def _partition(self, letter: Consumed, report: DeathReport | None, count: int) -> int:
        came_from = report.partition if report and report.partition < count else letter.partition % count
        if letter.key is None or self.rules.to_source_partition:
            return came_from
        return partition_of_key(letter.key, count)

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partitions:
            try:
                self._partitions[topic] = len(self.cluster.look_up(topic).partitions)
            except BrokerError:
                self._partitions[topic] = 0
        return self._partitions[topic]
