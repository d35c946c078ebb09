"""Exactly-once delivery against a real broker, without Spark: what is visible, when, and how often.

Rows are read by librdkafka, which shows committed rows only.
"""

import secrets
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest
from exactly_once_query import SCHEMA, Killed, Query, kill_at
from joint_commit import without_joint_commit
from topic_contents import new_topic, read_topic

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.errors import BrokerError
from skidway.blocking_client.features import Feature
from skidway.blocking_client.groups import Groups
from skidway.blocking_client.transactions import Producer, Transactions
from skidway.spark.client_settings import BadOption
from skidway.spark.sink import exactly_once, ledger, leftovers
from skidway.spark.sink.delivery import Attempt, Prepared
from skidway.spark.sink.exactly_once import BatchNotCommitted, ExactlyOnce, InTransaction, Job, NotPossible
from skidway.spark.sink.ledger import Ledger, Mark
from skidway.spark.sink.options import SinkOptions
from skidway.spark.sink.transactional_ids import TransactionalIds
from skidway.spark.sink.writers import batch_writer, stream_writer
from skidway.testing import Broker
from waiting import eventually


@pytest.fixture(scope="module")
def transactional() -> Iterator[str]:
    with Broker(flush="os") as broker:
        yield broker.bootstrap


@pytest.fixture
def topic(transactional: str) -> str:
    return new_topic(transactional, partitions=2)


def visible(bootstrap: str, topic: str) -> list[bytes]:
    return sorted(seen.value or b"" for seen in read_topic(bootstrap, topic))


def comes_to(bootstrap: str, topic: str, rows: list[bytes]) -> None:
    """A commit is answered before the partitions have their markers."""
    eventually(lambda: visible(bootstrap, topic) == sorted(rows))


def test_rows_are_visible_once_the_batch_is_committed(transactional: str, topic: str) -> None:
    query = Query(transactional, topic)
    prepared = [query.task(0, 0, [b"a", b"b"]), query.task(0, 1, [b"c"]), query.task(0, 2, [])]
    assert [each.rows for each in prepared] == [2, 1, 0]
    assert prepared[2].transaction is None
    assert visible(transactional, topic) == []
    query.commit(0, prepared)
    comes_to(transactional, topic, [b"a", b"b", b"c"])
    query.run(1, {0: [b"d"], 1: [b"e"]})
    comes_to(transactional, topic, [b"a", b"b", b"c", b"d", b"e"])


def test_a_batch_that_is_committed_is_not_written_again(transactional: str, topic: str) -> None:
    query = Query(transactional, topic)
    query.run(0, {0: [b"a"], 1: [b"b"]})
    # The driver died before Spark noted that the batch is done; it may be split otherwise.
    again = [query.task(0, 0, [b"a", b"b"]), query.task(0, 5, [b"b"])]
    assert [each.transaction for each in again] == [None, None]
    query.commit(0, again)
    query.run(1, {0: [b"c"]})
    comes_to(transactional, topic, [b"a", b"b", b"c"])


def test_rows_of_attempts_that_do_not_count_are_never_visible(transactional: str, topic: str) -> None:
    query = Query(transactional, topic)
    query.task(0, 0, [b"of a failed task"])
    counts = query.task(0, 0, [b"a"], attempt=1)
    query.commit(0, [counts])
    # The failed task's transaction is open until another takes its id.
    query.run(1, {0: [b"b"]})
    comes_to(transactional, topic, [b"a", b"b"])


def test_attempts_side_by_side_do_not_disturb_each_other(transactional: str, topic: str) -> None:
    """Speculation: the one that Spark counts may have been prepared before the other began."""
    query = Query(transactional, topic)
    counts = query.task(0, 0, [b"a"])
    query.task(0, 0, [b"a"], attempt=1)
    query.commit(0, [counts])
    query.run(1, {0: [b"b"]}, attempt=1)
    comes_to(transactional, topic, [b"a", b"b"])


def test_an_attempt_whose_id_was_taken_spoils_the_batch(transactional: str, topic: str) -> None:
    query = Query(transactional, topic)
    first = [query.task(0, 0, [b"a"]), query.task(0, 1, [b"b"])]
    second = query.task(0, 1, [b"b"])
    with pytest.raises(BatchNotCommitted, match=r"nothing of batch 0 .* kafka\.transaction\.timeout\.ms"):
        query.commit(0, first)
    query.abort(0, [second])
    assert visible(transactional, topic) == []
    query.run(0, {0: [b"a", b"b"]})
    comes_to(transactional, topic, [b"a", b"b"])


def test_a_driver_that_was_replaced_commits_nothing(transactional: str, topic: str) -> None:
    query = Query(transactional, topic)
    old = [query.task(0, 0, [b"a"])]
    query.run(0, {1: [b"a"]})
    query.commit(0, old)  # finds the mark, and drops what it has
    query.run(1, {0: [b"b"]})
    comes_to(transactional, topic, [b"a", b"b"])


def test_an_aborted_batch_leaves_nothing(transactional: str, topic: str) -> None:
    query = Query(transactional, topic)
    query.abort(0, [query.task(0, 0, [b"a"]), query.task(0, 1, [b"a"])])
    query.run(0, {0: [b"a"]})
    comes_to(transactional, topic, [b"a"])


def test_marks_that_do_not_fit_stop_the_query(transactional: str, topic: str) -> None:
    query = Query(transactional, topic)
    for batch in range(3):
        query.run(batch, {0: [b"%d" % batch]})
    with pytest.raises(BatchNotCommitted, match=r"batch 2 .* is committed already, and this is batch 1"):
        query.commit(1, [query.task(1, 0, [b"x"])])
    stranger = Query(transactional, topic)
    with pytest.raises(BatchNotCommitted, match="firstBatch=7"):
        stranger.run(7, {0: [b"x"]})
    told = Query(transactional, topic, stranger.id, firstBatch="7")
    with pytest.raises(BatchNotCommitted, match="firstBatch=8"):
        told.run(8, {0: [b"x"]})
    told.run(7, {0: [b"7"]})
    comes_to(transactional, topic, [b"0", b"1", b"2", b"7"])


def test_a_batch_job_is_visible_when_it_returns(transactional: str, topic: str) -> None:
    options = {"kafka.bootstrap.servers": transactional, "topic": topic, "delivery": "exactly_once"}
    writer = batch_writer(SCHEMA, options, False)
    messages = [writer.write(iter([pa.record_batch({"value": pa.array([value])})])) for value in (b"a", b"b")]
    # Outside of Spark both are attempt 0 of partition 0: the second has the id, so the first cannot be committed.
    with pytest.raises(BatchNotCommitted):
        writer.commit(list(messages))
    again = batch_writer(SCHEMA, options, False)
    again.commit([again.write(iter([pa.record_batch({"value": pa.array([b"a"])})]))])
    assert visible(transactional, topic) == [b"a"]


def test_a_batch_write_that_is_numbered_is_written_once(transactional: str, topic: str) -> None:
    """As in foreachBatch, which Spark may call again with the same batch."""
    told = {"kafka.bootstrap.servers": transactional, "topic": topic, "delivery": "exactly_once"}
    application = f"sums-{secrets.token_hex(4)}"

    def write(number: int, value: bytes) -> None:
        writer = batch_writer(SCHEMA, told | {"txnAppId": application, "txnVersion": str(number)}, False)
        writer.commit([writer.write(iter([pa.record_batch({"value": pa.array([value])})]))])

    for number, value in [(0, b"a"), (0, b"a again"), (1, b"b"), (1, b"b again")]:
        write(number, value)
    assert visible(transactional, topic) == [b"a", b"b"]
    with pytest.raises(BatchNotCommitted, match=r"batch 1 .* is committed already, and this is batch 0"):
        write(0, b"x")


def test_a_stream_is_numbered_by_spark_alone(transactional: str) -> None:
    told = {"kafka.bootstrap.servers": transactional, "delivery": "exactly_once", "topic": "t"}
    with pytest.raises(BadOption, match="option txnAppId: Spark itself names and numbers"):
        stream_writer(SCHEMA, told | {"txnAppId": "a", "txnVersion": "1"}, False)


def test_brokers_that_cannot_are_named_before_the_job_starts(
    transactional: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_joint_commit(monkeypatch)
    options = {"kafka.bootstrap.servers": transactional, "topic": "t", "delivery": "exactly_once"}
    for make in (stream_writer, batch_writer):
        with pytest.raises(NotPossible, match="Apache Kafka cannot"):
            make(SCHEMA, options, False)


def test_a_cluster_at_an_older_level_is_told_how_to_raise_it(
    transactional: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exactly_once, "describe_features", lambda cluster: [Feature("transaction.version", 1, 0, 2)])
    options = {"kafka.bootstrap.servers": transactional, "topic": "t", "delivery": "exactly_once"}
    with pytest.raises(NotPossible, match=r"has 1: raise it \(skidway cluster features --upgrade transaction"):
        stream_writer(SCHEMA, options, False)


def test_all_ids_of_a_write_have_one_coordinator() -> None:
    ids = TransactionalIds("skidway-spark/query", 50)
    names = [ids.attempt(partition, attempt) for partition in range(40) for attempt in range(3)]
    assert len(set(names)) == len(names)
    assert {TransactionalIds(name, 50).state_partition for name in names} == {ids.state_partition}
    assert TransactionalIds("skidway-spark/query", 50).attempt(3, 1) == ids.attempt(3, 1)


# Two drivers at once.


def just_before(patch: pytest.MonkeyPatch, kind: type, method: str, do: Callable[[], None]) -> None:
    """Something happens at the last moment before the next call of a method."""
    right = getattr(kind, method)

    def call(*arguments: Any, **more: Any) -> Any:
        patch.setattr(kind, method, right)
        do()
        return right(*arguments, **more)

    patch.setattr(kind, method, call)


def test_an_older_driver_that_wakes_up_commits_nothing(transactional: str, topic: str) -> None:
    """It stood still after it had found no mark of the batch; meanwhile another ran it, split otherwise."""
    query = Query(transactional, topic)
    old = [query.task(0, 0, [b"a"]), query.task(0, 1, [b"b"])]
    with pytest.MonkeyPatch.context() as patch:
        just_before(patch, Ledger, "move", lambda: query.run(0, {2: [b"a", b"b"]}))
        with pytest.raises(BrokerError):
            query.commit(0, old)
    query.abort(0, old)
    query.run(1, {partition: [b"end"] for partition in range(3)})
    comes_to(transactional, topic, [b"a", b"b", *[b"end"] * 3])


def test_a_mark_that_is_committed_at_the_last_moment_counts(transactional: str, topic: str) -> None:
    """The older driver commits before the newer one fences it."""
    query = Query(transactional, topic)
    old, new = [query.task(0, 0, [b"a"])], [query.task(0, 1, [b"a"])]
    with pytest.MonkeyPatch.context() as patch:
        just_before(patch, Transactions, "begin", lambda: query.commit(0, old))
        query.commit(0, new)
    query.run(1, {partition: [b"end"] for partition in range(2)})
    comes_to(transactional, topic, [b"a", b"end", b"end"])


# What nobody will commit.


def open_ids(bootstrap: str, query: Query) -> list[str]:
    with Cluster(bootstrap) as cluster:
        name = f"skidway-spark/{query.id}"
        ids = Transactions(cluster).open_beside(name)
        return sorted(each.removeprefix(f"{name}/").rpartition("/")[0] for each in ids if each.startswith(name))


def test_what_lost_against_another_attempt_ends_with_the_batch(transactional: str, topic: str) -> None:
    query = Query(transactional, topic)
    query.run(0, {0: [b"a"]})
    for attempt in (0, 1):
        query.task(1, 7, [b"x"], attempt)
    assert open_ids(transactional, query) == ["7/0", "7/1"]
    query.commit(1, [query.task(1, 7, [b"b"], attempt=2)])
    assert open_ids(transactional, query) == []
    comes_to(transactional, topic, [b"a", b"b"])


def test_what_lost_against_the_attempt_before_ends_with_the_batch(transactional: str, topic: str) -> None:
    """Spark started a second attempt, and the first was done after all. It looks again when 10 seconds are over."""
    query = Query(transactional, topic)
    query.run(0, {0: [b"a"]})
    counts = query.task(1, 7, [b"b"])
    query.task(1, 7, [b"b"], attempt=1)
    query.commit(1, [counts])
    assert open_ids(transactional, query) == []
    comes_to(transactional, topic, [b"a", b"b"])


@pytest.mark.parametrize("counts", [0, 1])
def test_what_lost_in_a_batch_job_ends_with_it(transactional: str, topic: str, counts: int) -> None:
    told = {"kafka.bootstrap.servers": transactional, "topic": topic, "delivery": "exactly_once"}
    job = Job(secrets.token_hex(6))
    delivery, prepared = ExactlyOnce(SinkOptions.parse(told), job), []
    for attempt in (0, 1):
        writing = delivery.begin(Attempt(None, None, 3, attempt))
        writing.write([pa.record_batch({"value": pa.array([b"a"])})])
        prepared.append(writing.prepare())
        writing.close()
    delivery.commit([prepared[counts]], None)
    with Cluster(transactional) as cluster:
        assert not [one for one in Transactions(cluster).open_beside("anybody") if job.name in one]
    assert visible(transactional, topic) == [b"a"]


def test_what_others_left_ends_now_and_then(transactional: str, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    query, stranger = Query(transactional, topic), Query(transactional, topic)
    query.run(0, {0: [b"a"]})
    query.task(1, 7, [b"x"], attempt=3)
    busy = stranger.task(0, 0, [b"s"])
    query.run(1, {0: [b"b"]})
    assert open_ids(transactional, query) == ["7/3"], "so soon after batch 0 nobody looks"
    monkeypatch.setattr(leftovers, "SWEEP_EVERY_MS", 0)
    query.run(2, {0: [b"c"]})
    assert open_ids(transactional, query) == []
    stranger.commit(0, [busy])
    comes_to(transactional, topic, [b"a", b"b", b"c", b"s"])


def test_when_to_look_for_leftovers() -> None:
    first, second = (Prepared(Attempt("q", 1, 0, attempt)) for attempt in (0, 1))
    assert leftovers.sweep_is_due(None, [first], 50_000)
    assert leftovers.sweep_is_due(Mark(0, 49_000), [first, second], 50_000)
    assert not leftovers.sweep_is_due(Mark(0, 49_000), [first], 50_000)
    assert leftovers.sweep_is_due(Mark(0, 40_000), [first], 50_000)
    assert leftovers.sweep_is_due(Mark(0, 60_000), [first], 50_000), "the clock went back"


def test_a_task_that_fails_leaves_nothing_open(transactional: str, topic: str) -> None:
    query = Query(transactional, topic)
    writing = query.delivery().begin(Attempt(query.id, 0, 0, 0))
    writing.write([pa.record_batch({"value": pa.array([b"x"])})])
    assert open_ids(transactional, query) == ["0/0"]
    writing.close()
    assert open_ids(transactional, query) == []
    query.run(0, {0: [b"a"]})
    comes_to(transactional, topic, [b"a"])


# Killed anywhere.

NEVER = 1 << 30
FIRST = {0: [b"a", b"b"], 1: [b"c"]}
SPLIT_OTHERWISE = {0: [b"a"], 1: [b"b"], 2: [b"c"]}
THEN = {0: [b"d"], 1: [b"e"], 2: [b"f"]}


def story(bootstrap: str, step: int) -> tuple[Counter[bytes], list[str]]:
    """A batch whose driver and tasks die after so many steps, once more as a whole, and the next batch: what is
    visible in the end, and what was asked before the end."""
    topic = new_topic(bootstrap, partitions=2)
    query = Query(bootstrap, topic)
    with kill_at(step) as requests:
        try:
            query.run(0, FIRST)
        except Killed:
            killed = True
        else:
            killed = False
    query.run(0, SPLIT_OTHERWISE)
    query.run(1, THEN)
    query.run(2, {partition: [b"end"] for partition in range(3)})
    rows: list[bytes] = []

    def all_is_decided() -> bool:
        """All of the last batch is there, which took every id again."""
        rows[:] = visible(bootstrap, topic)
        return rows.count(b"end") == 3

    eventually(all_is_decided)
    return Counter(row for row in rows if row != b"end"), requests.names if killed or step == NEVER else []


EXPECTED = Counter([b"a", b"b", b"c", b"d", b"e", b"f"])


def stories(bootstrap: str) -> Iterator[tuple[int, Counter[bytes]]]:
    step = 0
    while True:
        seen, names = story(bootstrap, step)
        yield step, seen
        if not names:
            return
        step += 1


def test_killed_at_any_request_every_row_is_there_once(transactional: str) -> None:
    told = dict(stories(transactional))
    assert len(told) == 15
    assert {step: seen for step, seen in told.items() if seen != EXPECTED} == {}


# Mistakes, planted: the tests above can fail.


def mark_is_outside(patch: pytest.MonkeyPatch) -> None:
    def at_once(transactions: Transactions, producer: Producer, group: str, offsets: Any, metadata: str) -> None:
        Groups(transactions.cluster).commit(group, offsets)

    patch.setattr(Transactions, "commit_offsets", at_once)


def commits_one_by_one(patch: pytest.MonkeyPatch) -> None:
    def one_by_one(transactions: Transactions, producers: list[Producer]) -> None:
        for producer in producers[::-1]:
            transactions.end(producer, commit=True)

    patch.setattr(Transactions, "commit_together", one_by_one)


def refused_is_done(patch: pytest.MonkeyPatch) -> None:
    right = Transactions.commit_together

    def careless(transactions: Transactions, producers: list[Producer]) -> None:
        with suppress(BrokerError):
            right(transactions, producers)

    patch.setattr(Transactions, "commit_together", careless)


def attempts_share_an_id(patch: pytest.MonkeyPatch) -> None:
    right = TransactionalIds.attempt
    patch.setattr(TransactionalIds, "attempt", lambda ids, partition, attempt: right(ids, partition, 0))


def there_is_no_mark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Ledger, "mark_so_far", lambda ledger: None)
    patch.setattr(ExactlyOnce, "_is_committed", lambda *_: False)


def drivers_do_not_fence(patch: pytest.MonkeyPatch) -> None:
    """Every driver has an id of its own, and the mark stays where it is."""
    right = Transactions.begin

    def begin(transactions: Transactions, transactional_id: str, timeout_ms: int) -> Producer:
        if transactional_id.count("/") == 1:
            ids = ledger.ids_of(transactions.cluster, transactional_id)
            transactional_id = ids.attempt(secrets.randbelow(1_000_000), 0)
        return right(transactions, transactional_id, timeout_ms)

    patch.setattr(Transactions, "begin", begin)


def mark_is_read_too_early(patch: pytest.MonkeyPatch) -> None:
    """Before the id is taken, and whether or not a transaction is about to change it."""
    right = Ledger.__init__

    def read_at_once(of: Ledger, cluster: Cluster, name: str) -> None:
        right(of, cluster, name)
        early = of.mark_so_far()
        of.mark = lambda: early  # type: ignore[method-assign]

    patch.setattr(Ledger, "__init__", read_at_once)


def losers_are_committed(patch: pytest.MonkeyPatch) -> None:
    every: list[Producer] = []
    right = InTransaction.prepare

    def prepare(writing: InTransaction) -> Prepared:
        prepared = right(writing)
        if prepared.transaction is not None:
            every.append(prepared.transaction)
        return prepared

    patch.setattr(InTransaction, "prepare", prepare)
    patch.setattr(exactly_once, "_reported", lambda prepared: list(every))


AROUND = 7
"""Steps: the mark, and the commit of three transactions one by one."""


def killed_around_the_commit(transactional: str) -> None:
    _, names = story(transactional, NEVER)
    for step in range(len(names) - AROUND, len(names)):
        seen, _ = story(transactional, step)
        assert seen == EXPECTED


@pytest.mark.parametrize(
    ("mistake", "found_by"),
    [
        (mark_is_outside, killed_around_the_commit),
        (commits_one_by_one, killed_around_the_commit),
        (there_is_no_mark, killed_around_the_commit),
        (refused_is_done, test_an_attempt_whose_id_was_taken_spoils_the_batch),
        (attempts_share_an_id, test_attempts_side_by_side_do_not_disturb_each_other),
        (losers_are_committed, test_attempts_side_by_side_do_not_disturb_each_other),
        (drivers_do_not_fence, test_an_older_driver_that_wakes_up_commits_nothing),
        (mark_is_read_too_early, test_a_mark_that_is_committed_at_the_last_moment_counts),
    ],
    ids=lambda each: each.__name__,
)
def test_a_planted_mistake_is_found(
    mistake: Callable[[pytest.MonkeyPatch], None],
    found_by: Callable[..., None],
    transactional: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mistake(monkeypatch)
    told = (transactional,) if found_by is killed_around_the_commit else (transactional, topic)
    with pytest.raises((AssertionError, BatchNotCommitted, pytest.fail.Exception)):
        found_by(*told)
