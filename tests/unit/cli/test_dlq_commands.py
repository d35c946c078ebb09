"""`skidway dlq` against a real broker: what it shows, what it sends back, and what it leaves alone."""

import json
import secrets
import time
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.consumer import Consumed, Consumer
from skidway.blocking_client.partitioners import partition_of_key
from skidway.blocking_client.producer import Producer
from skidway.cli.commands.dlq import app
from skidway.client.dead_letter_headers import DeathReport
from skidway.client.replay import Replay, Rules

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
    shown = run("replay", f"{source}-dlq").stdout
    assert f"would send 3 letters from {source}-dlq to {source}" in shown
    assert "dry run: nothing was sent" in shown
    assert sent_back(cluster, source) == []
    assert f"sent 3 letters from {source}-dlq to {source}" in run("replay", f"{source}-dlq", "--execute").stdout
    first, second, third = sent_back(cluster, source)
    assert (first.value, first.key, first.partition) == (b"a", b"alice", partition_of_key(b"alice", 4))
    assert (second.key, second.partition) == (b"bob", partition_of_key(b"bob", 4))
    assert (third.key, third.partition) == (None, 3)
    assert list(first.headers) == [("trace", b"a"), ("dlq.replays", b"1")]


def test_back_into_the_partition_it_came_from(cluster: Cluster, source: str) -> None:
    strange = next(number for number in range(4) if number != partition_of_key(b"alice", 4))
    bury(cluster, source, ("a", "alice", strange, "ValueError", 0))
    ended = run("replay", f"{source}-dlq")
    assert "1 letter with a key, not to the partition where it was before" in ended.stderr
    report = read_json("replay", f"{source}-dlq", "--partition-by", "source", "--execute")
    assert report["other_partition"] == 0
    assert [record.partition for record in sent_back(cluster, source)] == [strange]


def test_a_letter_does_not_go_round_for_ever(cluster: Cluster, source: str) -> None:
    bury(cluster, source, ("fresh", None, 0, "E", 0), ("twice", None, 0, "E", 2), ("enough", None, 0, "E", 3))
    report = read_json("replay", f"{source}-dlq", "--execute")
    assert (report["sent"], report["kept"]) == (2, {"replayed 3 times already": 1})
    counts = {record.value: dict(record.headers)["dlq.replays"] for record in sent_back(cluster, source)}
    assert counts == {b"fresh": b"1", b"twice": b"3"}
    again = read_json("replay", f"{source}-dlq", "--max-replays", "1", "--from", "beginning")
    assert (again["sent"], sum(again["kept"].values())) == (1, 2)


def test_choosing_letters(cluster: Cluster, source: str) -> None:
    Admin(cluster).create_topic(f"{source}-repair", partitions=1)
    bury(
        cluster, source, ("a", None, 0, "app.Timeout", 0), ("b", None, 0, "ValueError", 0), ("c", None, 0, "Timeout", 0)
    )
    words = ("replay", f"{source}-dlq", "--error-type", "Timeout", "--to", f"{source}-repair", "--execute")
    assert "was not saved, because only some letters were chosen" in run(*words).stderr
    assert [record.value for record in sent_back(cluster, f"{source}-repair")] == [b"a", b"c"]
    assert sent_back(cluster, source) == []
    assert read_json("replay", f"{source}-dlq", "--count", "1")["sent"] == 1
    assert read_json("replay", f"{source}-dlq", "--from", "1", "--until", "2")["sent"] == 1


def test_what_cannot_go_back_stays(cluster: Cluster, source: str) -> None:
    with Producer(cluster) as producer:
        producer.send(f"{source}-dlq", b"somebody wrote this by hand")
    bury(cluster, f"{source}", ("a", None, 0, "E", 0))
    Admin(cluster).delete_topic(source)
    kept = read_json("replay", f"{source}-dlq", "--execute")["kept"]
    assert kept == {
        "not a dead letter (no headers that name its source topic, partition and offset)": 1,
        f"its topic {source} does not exist": 1,
    }
    assert "not a dead letter" in run("show", f"{source}-dlq", "-n", "1").stdout


def test_a_missing_topic(cluster: Cluster) -> None:
    assert "no such topic" in run("replay", "nothing-dlq", fails=True).stderr
    assert "no such topic" in run("show", "nothing-dlq", fails=True).stderr


def test_no_faster_than_the_rate(cluster: Cluster, source: str) -> None:
    bury(cluster, source, *[(f"{number}", None, 0, "E", 0) for number in range(10)])
    now_s = 0.0
    moments: list[float] = []

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    replay = Replay(cluster, f"{source}-dlq", Rules(rate_per_s=4), whole=False, now_s=lambda: now_s, sleep=sleep)
    for _ in replay.run(Consumer(cluster, f"{source}-dlq", {0: 0}).read()):
        moments.append(now_s)
    assert moments == pytest.approx([number / 4 for number in range(10)])


def test_a_slow_replay_really_is_slow(cluster: Cluster, source: str) -> None:
    bury(cluster, source, *[(f"{number}", None, 0, "E", 0) for number in range(5)])
    began = time.monotonic()
    run("replay", f"{source}-dlq", "--rate", "10", "--execute")
    assert time.monotonic() - began >= 0.4


def test_the_next_replay_begins_where_the_last_one_ended(cluster: Cluster, source: str, group_bootstrap: str) -> None:
    bury(cluster, source, ("a", None, 0, "E", 0), ("b", None, 0, "E", 0), ("c", None, 0, "E", 0))
    assert read_json("replay", f"{source}-dlq", "--count", "2", "--execute")["sent"] == 2
    assert read_json("replay", f"{source}-dlq")["sent"] == 1
    listed = next(entry for entry in read_json("list") if entry["topic"] == f"{source}-dlq")
    assert (listed["letters"], listed["not_replayed"]) == (3, 1)
    assert read_json("replay", f"{source}-dlq", "--execute")["sent"] == 1
    assert "nothing to replay" in run("replay", f"{source}-dlq", "--execute").stdout
    bury(cluster, source, ("d", None, 0, "E", 1))
    assert read_json("replay", f"{source}-dlq", "--execute")["sent"] == 1
    assert [record.value for record in sent_back(cluster, source)] == [b"a", b"b", b"c", b"d"]
