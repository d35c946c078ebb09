"""A topic under load while something happens to the cluster, and all the checks when it is over."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from cluster_calls import create_topic
from cluster_history import Follower, History, Writer
from replica_files import assert_replicas_equal
from standstill import describe

from skidway.testing import Cluster
from waiting import comes_true

PATIENCE_S = 60.0
MESSAGES_MORE = 150


@dataclass
class Load:
    cluster: Cluster
    topic: str
    places: list[tuple[str, int]]
    writer: Writer
    history: History = field(default_factory=History)

    def goes_on(self, messages: int = MESSAGES_MORE) -> None:
        """So many more messages are acknowledged, now that what happened has happened; on every partition some."""
        before = self._counts()

        def enough() -> bool:
            now = self._counts()
            grown = [now[place] - before[place] for place in self.places]
            return sum(grown) >= messages and min(grown) > 0

        assert comes_true(enough, PATIENCE_S), (
            f"{messages} more acknowledgements did not come: {before} became {self._counts()};"
            f" failures {self.history.failures[:3]}, writer {'alive' if self.writer.alive else 'ended'},"
            f" {len(self.writer.producer)} unanswered\n"
            + describe(self.cluster, self.topic, self.writer.partitions, self.writer.words)
        )

    def _counts(self) -> dict[tuple[str, int], int]:
        with self.history.lock:
            return {place: len(self.history.acknowledged[place]) for place in self.places}

    def check(self) -> int:
        self.writer.finish()
        assert not self.history.failures, self.history.failures[:5]
        told = self.history.check(self.cluster.bootstrap)
        assert told == self.writer.sent, "each message is acknowledged once"
        assert assert_replicas_equal(self.cluster, self.places) > 0
        return told


@contextmanager
def loaded(cluster: Cluster, topic: str, partitions: int = 3, rate: float = 200.0, **configs: str) -> Iterator[Load]:
    """In the end every node must be up again; then everything is checked."""
    places = create_topic(cluster, topic, partitions, **configs)
    history = History()
    writer = Writer(cluster.bootstrap, history, topic, topic, partitions, rate)
    load = Load(cluster, topic, places, writer, history)
    with writer, Follower(cluster.bootstrap, history, topic, partitions):
        load.goes_on()
        yield load
        load.goes_on()
    load.check()
