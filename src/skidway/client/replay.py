"""Sending dead letters back to the topics they came from.

A letter is sent with its own key, value and headers, and a header that counts how often that happened: one that comes
back too often is left where it is, so that no message goes round for ever. How far a dead-letter topic has been
replayed is kept as committed offsets of the group `skidway-dlq-replay`, so that the next replay begins there. A letter
whose topic does not exist, or does not take it, has failed: it is noted beside the offset, and the next replay tries it
again.
Replay is at least once: if it dies, what was sent after the last saved position is sent again.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.consumer import Consumed
from skidway.blocking_client.errors import BrokerError, ClientError, RecordsRefused, Unsupported
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.partitioners import partition_of_key
from skidway.blocking_client.producer import Producer
from skidway.blocking_client.reader import Place
from skidway.client.open_letters import OpenLetters
from skidway.client.replay_position import Position, read_position
from skidway.errors import ErrorCode
from skidway.records.dead_letter_headers import DeathReport, read_report, replayed_headers
from skidway.records.record import Headers, Record

GROUP = "skidway-dlq-replay"
INTERNAL_TOPICS = frozenset(
    ("__consumer_offsets", "__transaction_state", "__share_group_state", "__queue_schedule", "__cluster_metadata")
)
"""Of every broker, also while they do not exist. A broker may have others, and says so."""
MAX_REPLAYS = 3
INTERNAL = -1
"""In the place of a number of partitions."""
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
    """Only letters with this error, in full or its last part; of share groups: with this disposition."""
    ids: frozenset[str] = frozenset()
    """Only letters of these messages: TOPIC-PARTITION-OFFSET. Empty: of all."""
    rate_per_s: float = RATE_PER_S

    @property
    def chooses(self) -> bool:
        """Some letters are passed over on purpose."""
        return self.error_type is not None or bool(self.ids)


class Fate(Enum):
    SENT = "sent"
    KEPT = "kept"
    """The rules say so. The next replay passes over it."""
    FAILED = "failed"
    """It should go, and cannot now. The next replay tries it again."""
    REFUSED = "refused"
    """Nobody may send it there. The next replay passes over it."""


@dataclass(slots=True)
class Verdict:
    """What is to become of a letter: it goes to `topic` and `partition`, or stays for a reason."""

    letter: Consumed
    report: DeathReport | None
    topic: str = ""
    partition: int = -1
    fate: Fate = Fate.SENT
    reason: str = ""

    def stays(self, fate: Fate, reason: str) -> "Verdict":
        self.fate, self.reason = fate, reason
        return self

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
    """Letters that stay, by reason; so are those below."""
    failed: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    targets: Counter[str] = field(default_factory=Counter)
    causes: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Letters that are sent, by source topic and error."""

    @property
    def incomplete(self) -> bool:
        return bool(self.failed or self.refused)

    def count(self, verdict: Verdict) -> None:
        match verdict.fate:
            case Fate.KEPT:
                self.kept[verdict.reason] += 1
            case Fate.FAILED:
                self.failed[verdict.reason] += 1
            case Fate.REFUSED:
                self.refused[verdict.reason] += 1
            case Fate.SENT:
                self._count_sent(verdict)

    def _count_sent(self, verdict: Verdict) -> None:
        self.sent += 1
        self.moved += verdict.moved
        self.targets[verdict.topic] += 1
        report = verdict.report
        self.causes["" if report is None else report.topic, "" if report is None else report.error_type] += 1


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
        self._positions: dict[int, Position] = {}
        self._open_letters: OpenLetters | None = None
        """Made with the first letter."""
        self._under_way: list[Verdict] = []
        """Of letters that were looked at since the position was saved, in order."""
        self._sent: dict[int, tuple[Headers, Verdict]] = {}
        """Those of them that were sent, by the identity of their headers."""

    @property
    def forgotten(self) -> int:
        """Letters that failed, and that the next replay passes over: there is no room to remember so many places."""
        return sum(position.forgotten for position in self._positions.values())

    def saved_positions(self) -> dict[int, Position]:
        """Where the last replay of the topic ended; nothing if there was none, or the broker knows no groups."""
        partitions = [(self.topic, partition) for partition in self.cluster.topic(self.topic).partitions]
        try:
            found = Groups(self.cluster).committed_of(GROUP, partitions)
        except Unsupported:
            self.saves_position = False
            return {}
        self._positions = {
            partition: read_position(committed.offset, committed.metadata)
            for (_, partition), committed in found.items()
        }
        return self._positions

    def judge(self, letter: Consumed) -> Verdict:
        report = read_report(letter.headers)
        verdict = Verdict(letter, report)
        if (reason := self._passes_over(report)) is not None:
            return verdict.stays(Fate.KEPT, reason)
        if self._open_letters is None:
            self._open_letters = OpenLetters(self.cluster, self.topic)
        if self._open_letters.is_done(letter.partition, letter.offset):
            return verdict.stays(Fate.KEPT, f"deleted from the queue {self.topic}, or moved by a move task")
        verdict.topic = self.rules.to or (report.topic if report else "")
        if verdict.topic == self.topic:
            return verdict.stays(Fate.KEPT, "its source is this dead-letter topic")
        count = self._partition_count(verdict.topic)
        if verdict.topic in INTERNAL_TOPICS or count == INTERNAL:
            return verdict.stays(Fate.REFUSED, f"{verdict.topic} is an internal topic, which brokers alone write")
        if not count:
            return verdict.stays(Fate.FAILED, f"its topic {verdict.topic} does not exist")
        verdict.partition = self._partition(letter, report, count)
        return verdict

    def _passes_over(self, report: DeathReport | None) -> str | None:
        """Why the rules let a letter stay."""
        if report is None and self.rules.to is None:
            return "not a dead letter (no headers that name its source topic, partition and offset)"
        wanted = self.rules.error_type
        if wanted and (report is None or wanted not in (report.error_type, report.error_type.rpartition(".")[2])):
            return f"its error is not {wanted}"
        if self.rules.ids and (report is None or report.id not in self.rules.ids):
            return "its id is not among those that were asked for"
        if report is not None and not report.copied:
            return "it has no copy of its message, only its place"
        replays = report.replays if report else 0
        if replays >= self.rules.max_replays:
            return f"replayed {replays} time{'s' * (replays != 1)} already"
        return None

    def preview(self, letters: Iterable[Consumed]) -> Iterator[Verdict]:
        for letter in letters:
            yield self.judge(letter)

    def run(self, letters: Iterable[Consumed]) -> Iterator[Verdict]:
        """Send what the rules let pass, no faster than they say; each verdict when it is known whether its topic has
        taken the letter."""
        began = saved = self._now_s()
        sent = 0
        with Producer(self.cluster, on_refused=self._on_refused) as producer:
            for verdict in self.preview(letters):
                if verdict.fate is Fate.SENT:
                    due = began + sent / self.rules.rate_per_s
                    if due - self._now_s() > SAVE_INTERVAL_S:
                        yield from self._save(producer)
                        saved = self._now_s()
                    self._sleep(max(0.0, due - self._now_s()))
                    self._send(producer, verdict)
                    sent += 1
                self._under_way.append(verdict)
                if len(self._under_way) >= SAVE_LETTERS_MAX or self._now_s() - saved >= SAVE_INTERVAL_S:
                    yield from self._save(producer)
                    saved = self._now_s()
            yield from self._save(producer)

    def _on_refused(self, record: Record, refusal: BrokerError) -> None:
        _, verdict = self._sent[id(record.headers)]
        why = refusal.records[0][1] if isinstance(refusal, RecordsRefused) else refusal.message
        if refusal.code == ErrorCode.MESSAGE_TOO_LARGE:
            why = "it is larger than max.message.bytes"  # the same for all: they are counted by reason
        verdict.stays(Fate.FAILED, f"{verdict.topic} does not take it: {why or refusal.name}")

    def _send(self, producer: Producer, verdict: Verdict) -> None:
        letter, report = verdict.letter, verdict.report
        headers = replayed_headers(list(letter.headers), (report.replays if report else 0) + 1)
        self._sent[id(headers)] = (headers, verdict)
        producer.send(verdict.topic, letter.value, key=letter.key, headers=headers, partition=verdict.partition)

    def _note(self, verdict: Verdict) -> None:
        position = self._positions.setdefault(verdict.letter.partition, Position())
        position.note(verdict.letter.offset, stays=verdict.fate is Fate.FAILED)

    def _save(self, producer: Producer) -> Iterator[Verdict]:
        """The letters first, then the position: the other way round a crash would lose letters."""
        producer.flush()
        verdicts, self._under_way = self._under_way, []
        self._sent.clear()
        for verdict in verdicts:
            self._note(verdict)
        by_text: dict[str, dict[Place, int]] = {}
        for partition in {verdict.letter.partition for verdict in verdicts} if self.saves_position else ():
            position = self._positions[partition]
            by_text.setdefault(position.text, {})[self.topic, partition] = position.offset
        for text, offsets in by_text.items():
            Groups(self.cluster).commit(GROUP, offsets, metadata=text)
        yield from verdicts

    def _partition(self, letter: Consumed, report: DeathReport | None, count: int) -> int:
        came_from = report.partition if report and report.partition < count else letter.partition % count
        if letter.key is None or self.rules.to_source_partition:
            return came_from
        return partition_of_key(letter.key, count)

    def _partition_count(self, topic: str) -> int:
        if topic not in self._partitions:
            try:
                found = self.cluster.look_up(topic)
                self._partitions[topic] = INTERNAL if found.internal else len(found.partitions)
            except BrokerError:
                self._partitions[topic] = 0
        return self._partitions[topic]
