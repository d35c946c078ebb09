"""`skidway transaction` and `skidway consume --isolation` against a real broker with real producers."""

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka import Producer as KafkaProducer
from typer.testing import CliRunner, Result

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.transaction_admin import OpenTransaction, TransactionAdmin
from skidway.cli.commands import consume
from skidway.cli.commands.transaction import app
from skidway.cli.places import parse_age_ms
from skidway.testing import Broker
from waiting import eventually


@pytest.fixture(scope="module")
def transacting() -> Iterator[str]:
    given = os.environ.get("SKIDWAY_TEST_BOOTSTRAP")
    if given:
        yield given
        return
    with Broker(transactions={"state_partitions": 5}) as broker:
        yield broker.bootstrap


@pytest.fixture
def cluster(transacting: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", transacting)
    with Cluster(transacting) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, name: str) -> str:
    Admin(cluster).create_topic(name, partitions=2)
    return name


def producer_of(cluster: Cluster, transactional_id: str) -> KafkaProducer:
    bootstrap = ",".join(map(str, cluster.bootstrap))
    producer = KafkaProducer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0})
    producer.init_transactions(30)
    return producer


@pytest.fixture
def producer(cluster: Cluster, topic: str) -> KafkaProducer:
    """It has a transaction open in both partitions."""
    producer = producer_of(cluster, topic)
    producer.begin_transaction()
    for partition in range(2):
        producer.produce(topic, f"open-{partition}".encode(), partition=partition)
    assert producer.flush(30) == 0
    return producer


def run(*words: str, code: int = 0, stdin: str = "") -> Result:
    result = CliRunner().invoke(app, list(words), input=stdin)
    assert result.exit_code == code, result.output
    return result


def read_json(*words: str, code: int = 0) -> Any:
    return json.loads(run(*words, "--json", code=code).stdout)


def await_state(transactional_id: str, state: str) -> None:
    eventually(lambda: read_json("describe", transactional_id)[0]["state"] == state)


def test_list(producer: KafkaProducer, topic: str) -> None:
    assert topic in run("list", "--names").stdout.splitlines()
    (one,) = read_json("list", "--match", f"{topic}|nobody")
    assert (one["transactional_id"], one["state"]) == (topic, "Ongoing")
    assert one["producer_id"] >= 0
    assert topic in run("list", "--state", "ongoing", "-q").stdout.splitlines()
    assert topic not in run("list", "--state", "Empty", "-q").stdout.splitlines()
    eventually(lambda: topic in run("list", "--longer", "10ms", "-q").stdout.splitlines())
    assert topic not in run("list", "--longer", "1h", "-q").stdout.splitlines()
    header, row = run("list", "--match", topic).stdout.splitlines()
    assert header.split() == ["ID", "STATE", "PRODUCER", "ID", "COORDINATOR"]
    assert row.split()[:3] == [topic, "Ongoing", str(one["producer_id"])]
    producer.commit_transaction(30)
    await_state(topic, "CompleteCommit")
    # What is not open any more is not old, however long ago it began.
    assert topic not in run("list", "--longer", "0s", "-q").stdout.splitlines()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("list", "--state", "Asleep"), "'Asleep' is not a state of a transaction"),
        (("list", "--longer", "soon"), "'soon' is not an age"),
        (("list", "--match", "a(b"), "a(b"),
        (("describe", ""), "a transactional id has at least one character"),
        (("abort", "", "--yes"), "a transactional id has at least one character"),
        (("abort",), "give either ids, or --topic and --partition"),
        (("abort", "x", "--topic", "t", "--partition", "0"), "give either ids, or --topic and --partition"),
        (("abort", "--topic", "t"), "give either ids, or --topic and --partition"),
    ],
)
def test_words_that_make_no_sense(words: tuple[str, ...], said: str) -> None:
    assert said in run(*words, code=2).stderr


def test_nothing_is_listed(cluster: Cluster) -> None:
    assert run("list", "--match", "nobody").stderr == "no transaction matches\n"
    assert read_json("list", "--match", "nobody") == []


def test_describe(producer: KafkaProducer, topic: str) -> None:
    (one,) = read_json("describe", topic)
    assert {"transactional_id": topic, "state": "Ongoing", "timeout_ms": 60_000}.items() <= one.items()
    assert one["partitions"] == [{"topic": topic, "partition": partition} for partition in range(2)]
    assert 0 <= one["open_s"] < 60
    shown = run("describe", topic).stdout.splitlines()
    assert shown[0].startswith(f"{topic}  Ongoing  producer id {one['producer_id']}  epoch {one['producer_epoch']}")
    assert shown[1].startswith("open for ")
    assert ", time-out 1m, coordinator " in shown[1]
    assert [line.split() for line in shown[2:]] == [["TOPIC", "PARTITION"], [topic, "0"], [topic, "1"]]
    producer.abort_transaction(30)
    await_state(topic, "CompleteAbort")
    (one,) = read_json("describe", topic)
    assert (one["partitions"], one["open_s"], one["started_ms"]) == ([], None, None)
    assert len(run("describe", topic).stdout.splitlines()) == 2


def test_a_misspelt_id(producer: KafkaProducer, topic: str) -> None:
    for words in (("describe", f"{topic}x"), ("abort", f"{topic}x", "--yes")):
        said = run(*words, code=1).stderr
        assert f"transactional id {topic}x: there is no such transactional id" in said
        assert f"did you mean {topic}?" in said
    shown = run("describe", topic, f"{topic}x", code=1)
    assert shown.stdout.startswith(topic)


def test_abort_an_id(cluster: Cluster, producer: KafkaProducer, topic: str) -> None:
    assert "aborted" in run("abort", topic, code=1, stdin="n\n").output.lower()
    assert read_json("describe", topic)[0]["state"] == "Ongoing"
    said = run("abort", topic, "--yes").stdout
    assert said == f"{topic}: aborted in 2 partitions, its producer is fenced\n"
    with pytest.raises(KafkaException):
        producer.commit_transaction(30)
    assert values(topic, "--isolation", "read_committed") == []
    assert run("abort", topic, "--yes").stdout == f"{topic}: nothing was open, its producer is fenced\n"


def test_what_is_committed_is_not_called_aborted(
    producer: KafkaProducer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command finds the transaction in the middle of its commit: the answer is made up, the rest is real."""
    real = TransactionAdmin.describe
    monkeypatch.setattr(
        TransactionAdmin, "describe", lambda self, name: replace(real(self, name), state="PrepareCommit")
    )
    producer.commit_transaction(30)
    said = run("abort", topic, "--yes").stdout
    assert said == f"{topic}: too late to abort, it is committed, its producer is fenced\n"


def test_nothing_hangs(producer: KafkaProducer, topic: str) -> None:
    """What is open there is known to its coordinator."""
    assert read_json("hanging", "--topic", topic) == []
    assert run("hanging", "--topic", topic).stderr == "nothing hangs in 2 partitions\n"
    said = run("abort", "--topic", topic, "--partition", "0", "--yes", code=1).stderr
    assert f"no transaction hangs in {topic} partition 0; the coordinator will end the 1 open transaction there" in said
    producer.commit_transaction(30)
    await_state(topic, "CompleteCommit")
    said = run("abort", "--topic", topic, "--partition", "0", "--yes", code=1).stderr
    assert said == f"error: no transaction hangs in {topic} partition 0\n"
    assert values(topic, "--isolation", "read_committed") == ["open-0", "open-1"]


def test_what_hangs_is_found_and_aborted(
    cluster: Cluster, producer: KafkaProducer, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The coordinators have forgotten everything; the rest is real."""
    monkeypatch.setattr(TransactionAdmin, "_known_to_coordinators", lambda self, producer_ids: set())
    first, second = read_json("hanging", "--topic", topic, code=1)
    assert (first["topic"], first["partition"], first["first_offset"]) == (topic, 0, 0)
    shown = run("hanging", "--topic", topic, code=1).stdout.splitlines()
    assert shown[1].split()[:5] == [topic, "0", str(first["producer_id"]), str(first["producer_epoch"]), "0"]
    hint = f"to end it: skidway transaction abort --topic {topic} --partition 0\n"
    assert run("hanging", "--topic", topic, code=1).stderr == hint
    said = run("abort", "--topic", topic, "--partition", "0", "--yes").stdout
    expected = f"producer id {first['producer_id']} had open in {topic} partition 0 from offset 0 on"
    assert said == f"aborted what {expected}\n"
    assert read_json("hanging", "--topic", topic, code=1) == [second]
    assert values(topic, "--isolation", "read_committed") == []
    assert sorted(values(topic)) == ["open-0", "open-1"]


def test_what_ends_meanwhile_does_not_hang(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other, known = (OpenTransaction(("t", 0), number, 0, number, 0, -1) for number in range(3))
    answers = [[one, other, known], [OpenTransaction(("t", 0), 1, 0, 9, 0, -1), one]]
    admin = TransactionAdmin(cluster)
    monkeypatch.setattr(admin, "open_in", lambda places: answers.pop(0))
    monkeypatch.setattr(admin, "_known_to_coordinators", lambda producer_ids: {(2, ("t", 0))})
    assert admin.hanging([("t", 0)]) == [one]


def test_a_partition_that_is_not_there(cluster: Cluster, topic: str) -> None:
    said = run("abort", "--topic", topic, "--partition", "7", "--yes", code=1).stderr
    assert "there is no such partition; the topic has 2" in said
    assert "there is no such topic" in run("hanging", "--topic", f"{uuid.uuid4()}", code=1).stderr


# ------------------------------------------------------------------------------------------------ consume --isolation


def values(topic: str, *words: str) -> list[str]:
    result = CliRunner().invoke(consume.app, [topic, *words])
    assert result.exit_code == 0, result.output
    return sorted(result.stdout.splitlines())


def warnings(topic: str, *words: str) -> str:
    return CliRunner().invoke(consume.app, [topic, *words]).stderr


def test_consume_by_isolation(cluster: Cluster, producer: KafkaProducer, topic: str) -> None:
    assert values(topic) == values(topic, "--isolation", "read_uncommitted") == ["open-0", "open-1"]
    assert values(topic, "--isolation", "read_committed") == []
    assert warnings(topic, "--isolation", "read_committed") == (
        f"warning: {topic} partition 0 and 1 other partition: a transaction is open from offset 0 on, and what follows "
        "is not shown; skidway transaction list --state Ongoing or skidway transaction hanging names it\n"
    )
    assert warnings(topic) == ""
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"kept", partition=0)
    producer.commit_transaction(30)
    await_state(topic, "CompleteCommit")
    assert values(topic, "--isolation", "read_committed") == ["kept"]
    assert warnings(topic, "--isolation", "read_committed") == ""
    assert values(topic) == ["kept", "open-0", "open-1"]


def test_consume_in_a_group_by_isolation(cluster: Cluster, producer: KafkaProducer, topic: str) -> None:
    producer.abort_transaction(30)
    producer.begin_transaction()
    producer.produce(topic, b"kept", partition=1)
    producer.commit_transaction(30)
    await_state(topic, "CompleteCommit")
    assert values(topic, "--group", topic, "--isolation", "read_committed") == ["kept"]


@pytest.mark.parametrize(("text", "expected"), [("10ms", 10), ("1.5s", 1500), ("2h", 7_200_000), ("0s", 0)])
def test_ages(text: str, expected: int) -> None:
    assert parse_age_ms(text) == expected
