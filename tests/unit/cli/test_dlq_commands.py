"""`skidway dlq` against a real broker: what it shows, what it sends back, and what it leaves alone."""

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skidway.blocking_client.admin import Admin, ConfigChange
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.consumer import Consumed, Consumer
from skidway.blocking_client.partitioners import partition_of_key
from skidway.blocking_client.producer import Producer
from skidway.blocking_client.queues.managing import Queues
from skidway.blocking_client.queues.messages import QueueMessages
from skidway.cli.commands.dlq import app
from skidway.cli.output import EXIT_INCOMPLETE
from skidway.client import open_letters
from skidway.client.replay import Replay, Rules
from skidway.client.replay_position import Position, read_position
from skidway.records.dead_letter_headers import DeathReport

Letter = tuple[str, str | None, int, str, int]
"""Value, key, source partition, error, replays."""


@pytest.fixture
def cluster(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bootstrap)
    with Cluster(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def source(cluster: Cluster) -> str:
    name = f"source-{secrets.token_hex(6)}"
    Admin(cluster).create_topic(name, partitions=4)
    Admin(cluster).create_topic(f"{name}-dlq", partitions=1)
    return name


def bury(cluster: Cluster, source: str, *letters: Letter) -> None:
    with Producer(cluster) as producer:
        for offset, (value, key, partition, error, replays) in enumerate(letters):
            report = DeathReport(
                source, partition, offset, 1000, "billing", error, "what\nhappened", 5, 2000, 3000, replays
            )
            headers = report.headers([("trace", value.encode())])
            raw = None if key is None else key.encode()
            producer.send(f"{source}-dlq", value.encode(), key=raw, headers=headers)


def bury_one(cluster: Cluster, letters: str, topic: str, value: bytes) -> None:
    report = DeathReport(topic, 0, 0, 1000, "billing", "E", "", 5, 2000, 3000)
    with Producer(cluster) as producer:
        producer.send(letters, value, headers=report.headers([]))


def sent_back(cluster: Cluster, topic: str) -> list[Consumed]:
    found = list(Consumer(cluster, topic, dict.fromkeys(cluster.topic(topic).partitions, 0)).read())
    return sorted(found, key=lambda record: record.value or b"")


def run(*words: str, fails: bool = False) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert (result.exit_code != 0) == fails, result.output
    return result


def read_json(*words: str) -> Any:
    return json.loads(run(*words, "--json").stdout)


def test_list_and_show(cluster: Cluster, source: str) -> None:
    bury(cluster, source, ("a", "alice", 2, "app.TooBad", 1), ("b", None, 0, "ValueError", 0))
    listed = next(entry for entry in read_json("list") if entry["topic"] == f"{source}-dlq")
    assert (listed["letters"], listed["not_replayed"]) == (2, 2)
    assert f"{source}-dlq" in run("list").stdout
    chosen = run("show", f"{source}-dlq", "--error-type", "ValueError", "--json").stdout.splitlines()
    shown = [json.loads(line) for line in chosen]
    assert [one["value"] for one in shown] == ["b"]
    assert run("show", f"{source}-dlq", "--error-type", "ValueError", "-n", "1").stdout.startswith("0/1 ")
    assert run("show", f"{source}-dlq", "--error-type", "Other").stdout == ""
    first, second = [json.loads(line) for line in run("show", f"{source}-dlq", "--json").stdout.splitlines()]
    assert (first["value"], first["key"], first["headers"]) == ("a", "alice", [{"name": "trace", "value": "a"}])
    assert {"topic": source, "partition": 2, "attempts": 5, "replays": 1, "error_type": "app.TooBad"}.items() <= first[
        "death"
    ].items()
    assert second["death"]["replays"] == 0
    shown = run("show", f"{source}-dlq", "-n", "1").stdout.splitlines()
    assert len(shown) == 2
    assert f"from {source} 2/0" in shown[0]
    assert "app.TooBad: what\\nhappened" in shown[0]


def test_replay_is_dry_until_told_otherwise(cluster: Cluster, source: str) -> None:
    bury(cluster, source, ("a", "alice", 1, "ValueError", 0), ("b", "bob", 1, "ValueError", 0), ("c", None, 3, "E", 0))
    shown = run("redrive", f"{source}-dlq").stdout
    assert f"would send 3 letters from {source}-dlq to {source}" in shown
    assert "dry run: nothing was sent" in shown
    assert sent_back(cluster, source) == []
    assert f"sent 3 letters from {source}-dlq to {source}" in run("redrive", f"{source}-dlq", "--execute").stdout
    first, second, third = sent_back(cluster, source)
    assert (first.value, first.key, first.partition) == (b"a", b"alice", partition_of_key(b"alice", 4))
    assert (second.key, second.partition) == (b"bob", partition_of_key(b"bob", 4))
    assert (third.key, third.partition) == (None, 3)
    assert list(first.headers) == [("trace", b"a"), ("dlq.replays", b"1")]


def test_back_into_the_partition_it_came_from(cluster: Cluster, source: str) -> None:
    strange = next(number for number in range(4) if number != partition_of_key(b"alice", 4))
    bury(cluster, source, ("a", "alice", strange, "ValueError", 0))
    ended = run("redrive", f"{source}-dlq")
    assert "1 letter with a key, not to the partition where it was before" in ended.stderr
    report = read_json("redrive", f"{source}-dlq", "--partition-by", "source", "--execute")
    assert report["other_partition"] == 0
    assert [record.partition for record in sent_back(cluster, source)] == [strange]


def test_a_letter_does_not_go_round_for_ever(cluster: Cluster, source: str) -> None:
    bury(cluster, source, ("fresh", None, 0, "E", 0), ("twice", None, 0, "E", 2), ("enough", None, 0, "E", 3))
    report = read_json("redrive", f"{source}-dlq", "--execute")
    assert (report["sent"], report["kept"]) == (2, {"replayed 3 times already": 1})
    counts = {record.value: dict(record.headers)["dlq.replays"] for record in sent_back(cluster, source)}
    assert counts == {b"fresh": b"1", b"twice": b"3"}
    again = read_json("redrive", f"{source}-dlq", "--max-replays", "1", "--from", "beginning")
    assert (again["sent"], sum(again["kept"].values())) == (1, 2)


def test_choosing_letters(cluster: Cluster, source: str) -> None:
    Admin(cluster).create_topic(f"{source}-repair", partitions=1)
    bury(
        cluster, source, ("a", None, 0, "app.Timeout", 0), ("b", None, 0, "ValueError", 0), ("c", None, 0, "Timeout", 0)
    )
    words = ("redrive", f"{source}-dlq", "--error-type", "Timeout", "--to", f"{source}-repair", "--execute")
    assert "was not saved, because only some letters were chosen" in run(*words).stderr
    assert [record.value for record in sent_back(cluster, f"{source}-repair")] == [b"a", b"c"]
    assert sent_back(cluster, source) == []
    assert read_json("redrive", f"{source}-dlq", "--count", "1")["sent"] == 1
    assert read_json("redrive", f"{source}-dlq", "--from", "1", "--until", "2")["sent"] == 1


def test_letters_of_a_share_group(cluster: Cluster, source: str) -> None:
    reports = [
        DeathReport(
            source, 1, offset, 1000, "g", "CLIENT_REJECTED", "Offset rejected by client.", 1, 2000, 3000, 0, copied
        )
        for offset, copied in ((0, True), (1, True), (2, False))
    ]
    Admin(cluster).create_topic(f"dlq.{source}", partitions=1)
    with Producer(cluster) as producer:
        for report in reports:
            headers = report.broker_headers([("trace", b"a")] if report.copied else [])
            value = b"%d" % report.offset if report.copied else None
            producer.send(f"dlq.{source}", value, headers=headers)
    assert f"dlq.{source}" in {entry["topic"] for entry in read_json("list")}
    shown = json.loads(run("show", f"dlq.{source}", "--json").stdout.splitlines()[0])
    assert shown["death"].items() >= {"error_type": "CLIENT_REJECTED", "attempts": 1, "failed_first_ms": 2000}.items()
    one = read_json("redrive", f"dlq.{source}", "--id", f"{source}-1-1")
    assert (one["sent"], one["kept"]) == (1, {"its id is not among those that were asked for": 2})
    assert "expected TOPIC-PARTITION-OFFSET" in run("redrive", f"dlq.{source}", "--id", "x", fails=True).stderr
    dry = run("redrive", f"dlq.{source}").stdout.splitlines()
    assert dry[2].split() == [source, "CLIENT_REJECTED", "2"]
    report = read_json("redrive", f"dlq.{source}", "--error-type", "CLIENT_REJECTED", "--execute")
    assert report["causes"] == [{"source": source, "error": "CLIENT_REJECTED", "letters": 2}]
    assert report["kept"] == {"it has no copy of its message, only its place": 1}
    found = [(record.value, record.partition, list(record.headers)) for record in sent_back(cluster, source)]
    assert found == [(b"%d" % number, 1, [("trace", b"a"), ("dlq.replays", b"1")]) for number in range(2)]


def test_what_is_no_letter_stays(cluster: Cluster, source: str) -> None:
    with Producer(cluster) as producer:
        producer.send(f"{source}-dlq", b"somebody wrote this by hand")
    kept = {"not a dead letter (no headers that name its source topic, partition and offset)": 1}
    assert read_json("redrive", f"{source}-dlq")["kept"] == kept
    told = run("redrive", f"{source}-dlq", "--execute").stderr
    assert "the next replay starts behind the letters that stayed; --from earliest begins with all" in told
    assert read_json("redrive", f"{source}-dlq")["kept"] == {}
    assert read_json("redrive", f"{source}-dlq", "--from", "earliest")["kept"] == kept
    assert "not a dead letter" in run("show", f"{source}-dlq", "-n", "1").stdout


def test_letters_wait_until_their_topic_is_there(cluster: Cluster, source: str, group_bootstrap: str) -> None:
    gone, letters = f"{source}-gone", f"{source}-dlq"
    for number, topic in enumerate((gone, source, gone, gone, source)):
        bury_one(cluster, letters, topic, b"%d" % number)
    failed = {f"its topic {gone} does not exist": 3}
    assert read_json("redrive", letters)["failed"] == failed
    ended = run("redrive", letters, "--execute", fails=True)
    assert ended.exit_code == EXIT_INCOMPLETE
    assert f"could not send 3 letters: its topic {gone} does not exist" in ended.stdout
    assert "the next replay tries 3 letters again: create or alter the topics, or use --to" in ended.stderr
    assert [record.value for record in sent_back(cluster, source)] == [b"1", b"4"]
    listed = next(entry for entry in read_json("list") if entry["topic"] == letters)
    assert (listed["letters"], listed["not_replayed"]) == (5, 3)
    bury_one(cluster, letters, source, b"5")
    again = json.loads(run("redrive", letters, "--execute", "--json", fails=True).stdout)
    assert (again["sent"], again["failed"]) == (1, failed)
    Admin(cluster).create_topic(gone, partitions=1)
    assert read_json("redrive", letters, "--count", "1", "--execute")["sent"] == 1
    assert read_json("redrive", letters, "--execute")["sent"] == 2
    assert "nothing to replay" in run("redrive", letters, "--execute").stdout
    assert [record.value for record in sent_back(cluster, gone)] == [b"0", b"2", b"3"]
    assert [record.value for record in sent_back(cluster, source)] == [b"1", b"4", b"5"]


def test_letters_that_their_topic_does_not_take_do_not_hold_up_others(cluster: Cluster) -> None:
    source = f"strict-{secrets.token_hex(6)}"
    admin = Admin(cluster)
    admin.create_topic(source, partitions=1, configs={"cleanup.policy": "compact", "max.message.bytes": "2000"})
    admin.create_topic(f"{source}-dlq", partitions=1)
    letters: list[Letter] = [(f"{number}", "k", 0, "E", 0) for number in range(30)]
    letters[3] = ("no key", None, 0, "E", 0)
    letters[7], letters[29] = ("x" * 3000, "k", 0, "E", 0), ("y" * 3000, "k", 0, "E", 0)
    bury(cluster, source, *letters)
    ended = run("redrive", f"{source}-dlq", "--rate", "10000", "--execute", fails=True)
    assert ended.exit_code == EXIT_INCOMPLETE
    assert f"sent 27 letters from {source}-dlq to {source}\n" in ended.stdout
    too_large = "it is larger than max.message.bytes"
    assert f"could not send 2 letters: {source} does not take it: {too_large}\n" in ended.stdout
    assert f"could not send 1 letter: {source} does not take it: " in ended.stdout
    assert "the next replay tries 3 letters again" in ended.stderr
    fine = {letter[0].encode() for number, letter in enumerate(letters) if number not in (3, 7, 29)}
    back = sorted(sent_back(cluster, source), key=lambda record: record.offset)
    assert {record.value for record in back} == fine
    assert [record.value for record in back] == [b"%d" % number for number in range(29) if number not in (3, 7)]
    admin.alter_topic(source, [ConfigChange("max.message.bytes", 0, "100000")])
    again = run("redrive", f"{source}-dlq", "--rate", "10000", "--execute", fails=True)
    assert f"sent 2 letters from {source}-dlq to {source}\n" in again.stdout
    assert len(sent_back(cluster, source)) == 29


@pytest.mark.parametrize("internal", ["__consumer_offsets", "__transaction_state", "__cluster_metadata"])
def test_a_letter_of_an_internal_topic_does_not_hold_up_others(
    cluster: Cluster, source: str, group_bootstrap: str, internal: str
) -> None:
    letters = f"{source}-dlq"
    for topic, value in ((source, b"before"), (internal, b"forged"), (source, b"behind")):
        bury_one(cluster, letters, topic, value)
    ended = run("redrive", letters, "--execute", fails=True)
    assert ended.exit_code == EXIT_INCOMPLETE
    assert f"refused to send 1 letter: {internal} is an internal topic, which brokers alone write" in ended.stdout
    assert [record.value for record in sent_back(cluster, source)] == [b"before", b"behind"]
    assert "nothing to replay" in run("redrive", letters, "--execute").stdout


def test_a_queue_names_its_topic_for_dead_letters(cluster: Cluster, name: str) -> None:
    queues, morgue = Queues(cluster), f"{name}-morgue"
    queues.create(morgue, {})
    assert morgue not in {entry["topic"] for entry in read_json("list")}
    queues.create(name, {"queue.dead.letter.topic": morgue})
    assert morgue in {entry["topic"] for entry in read_json("list")}


def test_letters_that_left_their_queue_are_not_sent_back(
    cluster: Cluster, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those that a move task has moved: it deletes them from the queue."""
    monkeypatch.setattr(open_letters, "PLACES_AT_ONCE", 4)
    queues, letters = Queues(cluster), f"{name}-dlq"
    queues.create(letters, {})
    Admin(cluster).create_topic(name, partitions=1)
    for number in range(14):
        bury_one(cluster, letters, name, b"%d" % number)
    queue, box = queues.find(letters), QueueMessages(cluster)
    received = box.receive(queue, 14, wait_ms=0, visibility_ms=600_000)
    gone = [message for message in received if message.record.offset in (0, 1, 3, 8, 13)]
    assert box.delete(queue, gone) == []
    ended = run("redrive", letters, "--rate", "10000", "--execute")
    assert f"did not send 5 letters: deleted from the queue {letters}, or moved by a move task\n" in ended.stdout
    left = sorted(b"%d" % number for number in range(14) if number not in (0, 1, 3, 8, 13))
    assert [record.value for record in sent_back(cluster, name)] == left


def test_places_of_letters_that_wait() -> None:
    position = Position()
    for offset, stays in ((3, True), (4, True), (5, False), (9, True), (12, False)):
        position.note(offset, stays=stays)
    assert (position.offset, position.text, position.forgotten) == (13, "left 3-4,9", 0)
    again = read_position(13, position.text)
    assert again.start == 3
    assert [offset for offset in range(15) if again.wants(offset)] == [3, 4, 9, 13, 14]
    again.note(4, stays=True)  # 3 was deleted meanwhile
    assert (again.text, again.count_again(0)) == ("left 4,9", 1)
    for strange in ("left 4-3", "left 13", "left 9,3", "left ", "mine", "left " + "1" * 30):
        assert read_position(13, strange) == Position(13)
    for offset in range(0, 4000, 2):
        position.note(20 + offset, stays=True)
    assert len(position.text) <= 4000
    assert position.forgotten == 2003 - len(read_position(position.offset, position.text).again) - 1


def test_a_missing_topic(cluster: Cluster) -> None:
    assert "no such topic" in run("redrive", "nothing-dlq", fails=True).stderr
    assert "no such topic" in run("show", "nothing-dlq", fails=True).stderr


def test_no_faster_than_the_rate(cluster: Cluster, source: str) -> None:
    bury(cluster, source, *[(f"{number}", None, 0, "E", 0) for number in range(10)])
    now_s = 0.0
    moments: list[float] = []

    def sleep(seconds: float) -> None:
        """Before each letter."""
        nonlocal now_s
        now_s += seconds
        moments.append(now_s)

    replay = Replay(cluster, f"{source}-dlq", Rules(rate_per_s=4), whole=False, now_s=lambda: now_s, sleep=sleep)
    verdicts = list(replay.run(Consumer(cluster, f"{source}-dlq", {0: 0}).read()))
    assert [verdict.letter.offset for verdict in verdicts] == list(range(10))
    assert moments == pytest.approx([number / 4 for number in range(10)])


def test_a_slow_replay_really_is_slow(cluster: Cluster, source: str) -> None:
    bury(cluster, source, *[(f"{number}", None, 0, "E", 0) for number in range(5)])
    began = time.monotonic()
    run("redrive", f"{source}-dlq", "--rate", "10", "--execute")
    assert time.monotonic() - began >= 0.4


def test_the_next_replay_begins_where_the_last_one_ended(cluster: Cluster, source: str, group_bootstrap: str) -> None:
    bury(cluster, source, ("a", None, 0, "E", 0), ("b", None, 0, "E", 0), ("c", None, 0, "E", 0))
    assert read_json("redrive", f"{source}-dlq", "--count", "2", "--execute")["sent"] == 2
    assert read_json("redrive", f"{source}-dlq")["sent"] == 1
    listed = next(entry for entry in read_json("list") if entry["topic"] == f"{source}-dlq")
    assert (listed["letters"], listed["not_replayed"]) == (3, 1)
    assert read_json("redrive", f"{source}-dlq", "--execute")["sent"] == 1
    assert "nothing to replay" in run("redrive", f"{source}-dlq", "--execute").stdout
    bury(cluster, source, ("d", None, 0, "E", 1))
    assert read_json("redrive", f"{source}-dlq", "--execute")["sent"] == 1
    assert [record.value for record in sent_back(cluster, source)] == [b"a", b"b", b"c", b"d"]
