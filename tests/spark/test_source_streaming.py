"""The stream reader as Spark calls it, in this process: offsets, admission, new partitions, losses, progress."""

import json
import logging
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from source_topics import make_topic, numbered, send, values

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import ClientError
from skidway.blocking_client.groups import Groups
from skidway.spark.source.offsets import NothingToRead
from skidway.spark.source.options import SourceOptions
from skidway.spark.source.planning import DataLoss
from skidway.spark.source.readers import StreamReader
from skidway.spark.source.streaming import Mark, StreamPlanner
from skidway.testing import Broker

Offset = dict[str, Any]
KEEP = {"retention.ms": "-1"}
MakeReader = Callable[..., "Stream"]


class Stream:
    """What Spark does with a reader: every offset and every partition goes through text."""

    def __init__(self, reader: StreamReader) -> None:
        self.reader = reader
        self.tasks = pickle.loads(pickle.dumps(StreamReader(reader.options, reader.columns)))

    def initial(self) -> Offset:
        return _text(self.reader.initialOffset())

    def latest(self, start: Offset) -> Offset:
        return _text(self.reader.latestOffset(start, self.reader.getDefaultReadLimit()))

    def read(self, start: Offset, end: Offset) -> list[dict[str, Any]]:
        partitions = pickle.loads(pickle.dumps(self.reader.partitions(start, end)))
        return [row for part in partitions for table in self.tasks.read(part) for row in table.to_pylist()]

    def run(self, start: Offset) -> tuple[Offset, list[bytes]]:
        """One micro-batch."""
        end = self.latest(start)
        return end, values(self.read(start, end))


def _text(offset: Offset) -> Offset:
    copied: Offset = json.loads(json.dumps(offset))
    return copied


@pytest.fixture
def cluster(bootstrap: str) -> Iterator[Cluster]:
    with Cluster(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def stream(bootstrap: str) -> Iterator[MakeReader]:
    made: list[Stream] = []

    def make(topic: str, **more: str) -> Stream:
        options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest", **more}
        options = {name.replace("__", "."): value for name, value in options.items() if value}
        # A start before the end is asked for again; here that is no leader's doubt, so no need to wait.
        parsed = SourceOptions.parse({"fetchOffset.numRetries": "0", **options}, streaming=True)
        made.append(Stream(StreamReader(parsed, ("value", "partition", "offset"))))
        return made[-1]

    yield make
    for one in made:
        one.reader.stop()


def texts(numbers: range) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def test_a_stream_reads_what_comes_batch_by_batch(cluster: Cluster, stream: MakeReader) -> None:
    topic = make_topic(cluster, 2)
    send(cluster, topic, numbered(10, 2))
    reader = stream(topic)
    first, rows = reader.run(reader.initial())
    assert rows == texts(range(10))
    assert first[topic] == {"0": 5, "1": 5}
    # Nothing new: the very same offset, so that Spark runs no batch.
    assert reader.latest(first) == first
    assert reader.read(first, first) == []
    send(cluster, topic, numbered(4, 2, first=10))
    second, rows = reader.run(first)
    assert rows == texts(range(10, 14))
    latest = reader.reader.reportLatestOffset()
    assert latest is not None
    assert latest[topic] == second[topic] == {"0": 7, "1": 7}


def test_latest_is_when_the_query_began_however_often_it_is_asked(cluster: Cluster, stream: MakeReader) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(5))
    reader = stream(topic, startingOffsets="")
    initial = reader.initial()
    send(cluster, topic, numbered(3, first=5))
    assert reader.initial() == initial
    assert reader.run(initial)[1] == texts(range(5, 8))


def test_a_first_batch_that_was_planned_and_not_finished_is_read_again_after_a_restart(
    cluster: Cluster, stream: MakeReader
) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(5))
    before = stream(topic, startingOffsets="latest")
    start = before.initial()
    send(cluster, topic, numbered(3, first=5))
    planned = before.latest(start)
    # Spark wrote `planned` into its log and crashed. It knows no start for it, and asks again where "latest" is.
    send(cluster, topic, numbered(2, first=8))
    after = stream(topic, startingOffsets="latest")
    assert values(after.read(after.initial(), planned)) == texts(range(5, 8))
    end, rows = after.run(planned)
    assert rows == texts(range(8, 10))
    assert after.latest(end) == end, "no batch without rows comes after it"


def test_a_first_batch_without_rows_says_where_it_began_too(cluster: Cluster, stream: MakeReader) -> None:
    topic = make_topic(cluster)
    before = stream(topic, startingOffsets="latest")
    planned = before.latest(before.initial())
    send(cluster, topic, numbered(3))
    after = stream(topic, startingOffsets="latest")
    assert after.read(after.initial(), planned) == []
    assert after.run(planned)[1] == texts(range(3))


def test_offsets_and_times_to_start_from(cluster: Cluster, stream: MakeReader) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(10), batch_bytes=60)
    at_offset = stream(topic, startingOffsets=f'{{"{topic}":{{"0":7}}}}')
    assert at_offset.run(at_offset.initial())[1] == texts(range(7, 10))
    at_time = stream(topic, startingOffsets="", startingTimestamp="1700000000008")
    assert at_time.run(at_time.initial())[1] == texts(range(8, 10))


def test_new_partitions_and_topics_appear_without_a_restart(cluster: Cluster, stream: MakeReader) -> None:
    name = make_topic(cluster, 1, "growing")
    send(cluster, name, numbered(2))
    reader = stream("", subscribePattern=f"{name}.*", startingOffsets="latest")
    start = reader.initial()
    Admin(cluster).grow_topic(name, 3)
    cluster.forget(name)
    Admin(cluster).create_topic(f"{name}-more", partitions=1, configs=KEEP)
    send(cluster, name, [record._replace(partition=2) for record in numbered(3, first=10)])
    send(cluster, f"{name}-more", numbered(2, first=20))
    end, rows = reader.run(start)
    assert rows == [*texts(range(10, 13)), *texts(range(20, 22))]
    assert end[name] == {"0": 2, "1": 0, "2": 3}


# Admission.


def test_a_batch_has_no_more_than_it_may_and_the_rest_comes_later(cluster: Cluster, stream: MakeReader) -> None:
    topic = make_topic(cluster, 2)
    send(cluster, topic, numbered(90, 1))
    send(cluster, topic, [record._replace(partition=1) for record in numbered(10, first=90)])
    reader = stream(topic, maxOffsetsPerTrigger="20")
    assert reader.reader.getDefaultReadLimit() == ReadMaxRows(20)
    offset, sizes, rows = reader.initial(), [], []
    while (following := reader.latest(offset)) != offset:
        got = values(reader.read(offset, following))
        sizes.append(len(got))
        rows += got
        offset = following
    assert sizes == [20] * 5
    assert sorted(rows) == sorted(texts(range(100)))
    # A trigger that wants everything gets it, whatever the options say.
    start = reader.initial()
    assert len(reader.read(start, reader.reader.latestOffset(start, ReadAllAvailable()))) == 100


def test_a_batch_waits_for_enough_rows_or_for_the_longest_delay(cluster: Cluster, bootstrap: str) -> None:
    topic = make_topic(cluster)
    now = [0.0]
    options = SourceOptions.parse(
        {"bootstrap.servers": bootstrap, "subscribe": topic, "minOffsetsPerTrigger": "10", "maxTriggerDelay": "60s"},
        streaming=True,
    )
    assert StreamReader(options, ()).getDefaultReadLimit() == ReadMinRows(10)
    planner = StreamPlanner(options, clock=lambda: now[0])
    start = planner.initial()
    send(cluster, topic, numbered(3))
    first = planner.next(start, limit=None, least=10)
    # The first batch of a run never waits, as in the Kafka connector.
    assert first is not None
    assert first.offsets == {(topic, 0): 3}
    send(cluster, topic, numbered(9))
    assert planner.next(first, limit=None, least=10) is None
    send(cluster, topic, numbered(1))
    second = planner.next(first, limit=None, least=10)
    assert second is not None
    send(cluster, topic, numbered(1))
    now[0] = 59.0
    assert planner.next(second, limit=None, least=10) is None
    now[0] = 60.0
    third = planner.next(second, limit=None, least=10)
    assert third is not None
    assert third.offsets == {(topic, 0): 14}
    planner.close()


def test_both_limits_hold_together(cluster: Cluster, stream: MakeReader) -> None:
    topic = make_topic(cluster)
    reader = stream(topic, minOffsetsPerTrigger="5", maxOffsetsPerTrigger="6")
    send(cluster, topic, numbered(10))
    first, rows = reader.run(reader.initial())
    assert len(rows) == 6
    assert reader.latest(first) == first, "four are left, and five are wanted"
    send(cluster, topic, numbered(1))
    assert len(reader.run(first)[1]) == 5


def test_available_now_stops_at_what_there_was(cluster: Cluster, stream: MakeReader) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(10))
    reader = stream(topic, maxOffsetsPerTrigger="6", minOffsetsPerTrigger="5")
    reader.reader.prepareForTriggerAvailableNow()
    send(cluster, topic, numbered(10, first=10))
    Admin(cluster).grow_topic(topic, 2)
    first, rows = reader.run(reader.initial())
    second, more = reader.run(first)
    assert rows + more == texts(range(10))
    assert reader.latest(second) == second


# Losses.


def delete_some(cluster: Cluster, topic: str) -> None:
    Admin(cluster).delete_records(topic, {0: 8})


def delete_topic(cluster: Cluster, topic: str) -> None:
    Admin(cluster).delete_topic(topic)


def make_again_shorter(cluster: Cluster, topic: str) -> None:
    make_again(cluster, topic, 2)


def make_again_longer(cluster: Cluster, topic: str) -> None:
    make_again(cluster, topic, 20)


def make_again(cluster: Cluster, topic: str, count: int) -> None:
    Admin(cluster).delete_topic(topic)
    Admin(cluster).create_topic(topic, partitions=1, configs=KEEP)
    send(cluster, topic, numbered(count, first=100))


@pytest.mark.parametrize(
    ("happens", "words", "left"),
    [
        (delete_some, "offsets 5 to 8 were deleted", [8, 9]),
        (delete_topic, "partition 0 is gone", []),
        (make_again_shorter, "was deleted and made again", [100, 101]),
        (make_again_longer, "was deleted and made again", range(100, 120)),
    ],
)
def test_a_loss_fails_the_query_or_is_warned_of(
    cluster: Cluster,
    stream: MakeReader,
    caplog: pytest.LogCaptureFixture,
    happens: Callable[[Cluster, str], None],
    words: str,
    left: Any,
) -> None:
    topic, other = make_topic(cluster), make_topic(cluster)
    send(cluster, topic, numbered(5), batch_bytes=60)
    both = f"{topic},{other}"
    strict, lenient = stream(both), stream(both, failOnDataLoss="false")
    start, rows = strict.run(strict.initial())
    assert len(rows) == 5
    lenient.run(lenient.initial())
    send(cluster, topic, numbered(5, first=5), batch_bytes=60)
    happens(cluster, topic)
    with pytest.raises(DataLoss, match=words):
        strict.run(start)
    # So does a query that was restarted meanwhile.
    with pytest.raises(DataLoss, match=words):
        stream(both).run(start)
    with caplog.at_level(logging.WARNING):
        end, rows = lenient.run(start)
    assert rows == [b"%d" % number for number in left]
    assert words in caplog.text
    assert lenient.latest(end) == end, "and then it goes on"


def test_a_planned_batch_whose_topic_was_made_again_is_not_filled_with_the_new_ones_rows(
    cluster: Cluster, stream: MakeReader
) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(5))
    reader = stream(topic, failOnDataLoss="false")
    start = reader.initial()
    planned = reader.latest(start)
    make_again(cluster, topic, 9)
    restarted = stream(topic, failOnDataLoss="false")
    assert restarted.read(start, planned) == []
    assert restarted.run(planned)[1] == texts(range(100, 109))


def test_a_log_that_became_shorter_is_asked_twice_before_it_is_believed(
    cluster: Cluster, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(5))
    options = SourceOptions.parse(
        {"bootstrap.servers": bootstrap, "subscribe": topic, "fetchOffset.retryIntervalMs": "1"}, streaming=True
    )
    planner = StreamPlanner(options)
    start = Mark(planner.initial().offsets, {}, {})
    honest, answers = planner.reader.latest, [{(topic, 0): 3}]
    # A new leader that does not know the high watermark yet.
    monkeypatch.setattr(planner.reader, "latest", lambda places: answers.pop() if answers else honest(places))
    assert planner.next(start, limit=None, least=None) is None
    assert answers == []
    planner.close()


def test_topics_that_never_were_there_are_a_mistake(stream: MakeReader) -> None:
    with pytest.raises(NothingToRead, match="there is no topic nowhere"):
        stream("nowhere", failOnDataLoss="false").initial()


def test_a_broker_that_is_away_is_named(fresh_broker: Broker) -> None:
    with Cluster(fresh_broker.bootstrap) as cluster:
        topic = make_topic(cluster)
    options = SourceOptions.parse(
        {"bootstrap.servers": fresh_broker.bootstrap, "subscribe": topic, "kafka.request.timeout.ms": "3000"},
        streaming=True,
    )
    reader = StreamReader(options, ("value",))
    start = reader.initialOffset()
    fresh_broker.kill()
    with pytest.raises(ClientError, match=str(fresh_broker.port)):
        reader.latestOffset(start, ReadAllAvailable())
    fresh_broker.start()
    assert reader.latestOffset(start, ReadAllAvailable())[topic] == {"0": 0}, "when it is back, so is the stream"
    reader.stop()


# Progress.


def test_progress_is_committed_to_the_group_when_it_is_known_to_be_done(cluster: Cluster, stream: MakeReader) -> None:
    topic = make_topic(cluster)
    group = f"group-{topic}"
    send(cluster, topic, numbered(5))
    reader = stream(topic, groupId=group)
    start = reader.initial()
    first = reader.latest(start)
    assert Groups(cluster).committed(group)[topic, 0].offset == 0, "planned is not done"
    reader.latest(first)
    assert Groups(cluster).committed(group)[topic, 0].offset == 5


def test_a_group_that_takes_no_commits_does_not_stop_the_stream(
    cluster: Cluster, bootstrap: str, stream: MakeReader, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic(cluster)
    send(cluster, topic, numbered(1))
    group = f"members-{topic}"
    member = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        member.subscribe([topic])
        assert member.poll(30) is not None
        reader = stream(topic, groupId=group)
        with caplog.at_level(logging.WARNING):
            end, rows = reader.run(reader.initial())
            reader.latest(end)
        assert rows == [b"0"]
        assert caplog.text.count("cannot be committed") == 1, "said once, not in each batch"
    finally:
        member.close()


def test_available_now_after_a_topic_is_gone(
    cluster: Cluster, stream: MakeReader, caplog: pytest.LogCaptureFixture
) -> None:
    topic, other = make_topic(cluster), make_topic(cluster)
    send(cluster, topic, numbered(3))
    first = stream(f"{topic},{other}")
    start, _ = first.run(first.initial())
    Admin(cluster).delete_topic(topic)
    send(cluster, other, numbered(2, first=7))
    strict = stream(f"{topic},{other}")
    strict.reader.prepareForTriggerAvailableNow()
    with pytest.raises(DataLoss, match=f"{topic} partition 0 is gone"):
        strict.run(start)
    lenient = stream(f"{topic},{other}", failOnDataLoss="false")
    lenient.reader.prepareForTriggerAvailableNow()
    end, rows = lenient.run(start)
    assert rows == texts(range(7, 9))
    assert lenient.latest(end) == end
    # A name that was never read is a mistake, and said to be one.
    with pytest.raises(NothingToRead, match="there is no topic nowhere"):
        stream(f"{other},nowhere").run(end)


def test_a_topic_that_is_made_again_after_its_loss_was_accepted_is_read(cluster: Cluster, stream: MakeReader) -> None:
    topic, other = make_topic(cluster), make_topic(cluster)
    send(cluster, topic, numbered(3))
    reader = stream(f"{topic},{other}", failOnDataLoss="false")
    offset, _ = reader.run(reader.initial())
    Admin(cluster).delete_topic(topic)
    offset, rows = reader.run(offset)
    assert rows == []
    assert reader.latest(offset) == offset
    Admin(cluster).create_topic(topic, partitions=1, configs=KEEP)
    send(cluster, topic, numbered(2, first=50))
    assert reader.run(offset)[1] == texts(range(50, 52))


def test_marks_carry_topic_ids(cluster: Cluster, stream: MakeReader) -> None:
    topic = make_topic(cluster)
    described = cluster.look_up(topic)
    assert Mark.from_json(stream(topic).initial()).ids == {topic: described.id}
