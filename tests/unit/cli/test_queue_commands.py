"""`skidway queue` against a real broker: each verb, on empty and full queues, and what it says of wrong names."""

import json
import secrets
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.producer import Producer
from skidway.blocking_client.queues.managing import DEFAULTS
from skidway.cli import queue_messages
from skidway.cli.commands.queue import app
from skidway.gateways.queues.ids import Ids
from skidway.metadata.topic_configs import TOPIC_KEYS
from skidway.testing import Broker
from skidway.wire.schema.receive_messages import ReceiveMessagesRequest
from waiting import eventually


@pytest.fixture
def cluster(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bootstrap)
    with Cluster(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def queue(cluster: Cluster, name: str) -> str:
    run("create", name)
    return name


@pytest.fixture
def fifo(cluster: Cluster) -> str:
    name = f"fifo-{secrets.token_hex(6)}"
    run("create", name, "--fifo")
    return name


def run(*words: str, code: int = 0, stdin: str = "") -> Result:
    result = CliRunner().invoke(app, list(words), input=stdin)
    assert result.exit_code == code, result.output
    return result


def lines(*words: str) -> list[Any]:
    return [json.loads(line) for line in run(*words, "--json").stdout.splitlines()]


def described(queue: str) -> Any:
    (document,) = json.loads(run("describe", queue, "--json").stdout)
    return document


def counts(queue: str) -> tuple[int, int, int]:
    document = described(queue)
    return document["visible"], document["in_flight"], document["delayed"]


def test_the_defaults_are_those_of_the_broker() -> None:
    assert {name: TOPIC_KEYS[name].default for name in DEFAULTS} == DEFAULTS


def test_an_empty_queue(queue: str) -> None:
    document = described(queue)
    assert counts(queue) == (0, 0, 0)
    assert (document["type"], document["oldest_ms"], document["oldest_age_s"]) == ("standard", None, None)
    assert (document["visibility_ms"], document["retention_ms"]) == (30_000, 4 * 86_400_000)
    assert (document["max_receives"], document["dead_letters"]) == (5, f"{queue}-dlq")
    assert run("peek", queue).stderr == f"{queue} is empty\n"
    assert lines("peek", queue) == []
    assert run("receive", queue).stderr == f"{queue} has no message to receive now\n"
    assert lines("receive", queue, "--wait", "0.1") == []
    assert run("purge", queue, "--yes").stdout == f"purged {queue}\n"


def test_settings_of_a_new_queue(cluster: Cluster, name: str) -> None:
    words = ("--visibility", "90", "--delay", "1.5", "--wait", "7ms", "--retention", "2h", "--max-receives", "3")
    run("create", name, *words, "--dead-letters", "morgue", "-p", "2")
    document = described(name)
    assert (document["visibility_ms"], document["delay_ms"], document["retention_ms"]) == (90_000, 1_500, 7_200_000)
    assert (document["max_receives"], document["dead_letters"]) == (3, "morgue")
    assert (document["partitions"], document["receive_wait_ms"]) == (2, 7)
    text = run("describe", name).stdout
    assert f"{name}  standard queue, 2 partitions\n0 visible, 0 in flight, 0 delayed\n" in text
    assert "visibility time-out  1.5m\n" in text
    assert "dead-letter queue    morgue\n" in text
    run("create", f"{name}-bare", "--max-receives", "0")
    assert "max receives         no limit\ndead-letter queue    none\n" in run("describe", f"{name}-bare").stdout


def test_what_cannot_be_created(cluster: Cluster, queue: str) -> None:
    assert f"there is a queue {queue} already; skidway queue describe" in run("create", queue, code=1).stderr
    assert run("create", queue, "--if-missing").stdout == f"{queue} exists already\n"
    assert "name another one" in run("create", "own", "--dead-letters", "own", code=2).stderr
    assert "add --fifo" in run("create", "content", "--content-dedup", code=2).stderr
    assert "queue.deduplication.scope=messageGroup" in run("create", "wide", "--fifo", "-p", "2", code=2).stderr
    assert "is not an age; expected e.g. 30s" in run("create", "old", "--retention", "soon", code=2).stderr
    assert "did you mean queue.delay.ms?" in run("create", "misspelt", "-c", "queue.dely.ms=1", code=1).stderr
    assert "INVALID_TOPIC" in run("create", "no/name", code=1).stderr
    fresh = f"{queue}-dry"
    assert run("create", fresh, "--dry-run").stdout == f"{fresh} could be created\n"
    assert "there is no queue" in run("describe", fresh, code=1).stderr


def test_times_are_those_of_the_other_commands(cluster: Cluster, queue: str, name: str) -> None:
    longer = f"{name}-longer"
    run("create", longer, "--visibility", "30s", "--delay", "10m", "--wait", "20s")
    document = described(longer)
    assert (document["visibility_ms"], document["delay_ms"], document["receive_wait_ms"]) == (30_000, 600_000, 20_000)
    wrong = {"13h": "--visibility 13h: at most 12h", "-1": "expected a time", "soon": "a number alone is seconds"}
    for text, told in wrong.items():
        assert told in run("create", "x", "--visibility", text, code=2).stderr
    assert "--delay 16m: at most 900s" in run("create", "x", "--delay", "16m", code=2).stderr
    assert "--wait 1m: at most 20s" in run("create", "x", "--wait", "1m", code=2).stderr
    run("send", queue, "late", "--delay", "1h")
    assert counts(queue) == (0, 0, 1)
    run("send", queue, "now")
    assert run("receive", queue, "--keep", "--visibility", "2m", "--wait", "5s").stdout == "now\n"


def test_settings_that_do_not_do_what_they_seem_to_are_refused(cluster: Cluster, name: str) -> None:
    batches = run("create", name, "-c", "max.message.bytes=2000000", code=2).stderr
    assert "-c queue.max.message.bytes=N, at most 1048576" in batches
    Admin(cluster).create_topic(f"{name}-topic", partitions=1)
    for words in (("--dead-letters", f"{name}-topic"), ("-c", f"queue.dead.letter.topic={name}-topic")):
        assert "is a topic but no queue" in run("create", name, *words, code=1).stderr
    assert f"cannot create queue {name}: " in run("create", name, "-r", "9", code=1).stderr
    assert "there is no queue" in run("describe", name, code=1).stderr


def test_a_name_of_a_fifo_queue_is_for_fifo_queues(cluster: Cluster, name: str) -> None:
    refused = run("create", f"{name}.fifo", code=2)
    assert "add --fifo" in refused.output
    run("create", f"{name}.fifo", "--fifo")
    assert described(f"{name}.fifo")["type"] == "fifo"


def test_peek_takes_nothing(queue: str) -> None:
    assert run("send", queue, "a", "b", "--key", "k", "--header", "size=7").stdout == f"sent 2 messages to {queue}\n"
    assert run("send", queue, "--delay", "600", stdin="later\n").stdout == f"sent 1 message to {queue}\n"
    for _ in range(2):
        first, second, third = lines("peek", queue)
        assert (first["value"], first["key"], first["state"], first["receives"]) == ("a", "k", "visible", 0)
        assert first["headers"] == [{"name": "size", "value": "7"}]
        assert (second["value"], third["value"], third["state"], third["headers"]) == ("b", "later", "delayed", [])
    assert counts(queue) == (2, 0, 1)
    assert described(queue)["oldest_ms"] == first["timestamp"]
    assert [each["value"] for each in lines("peek", queue, "-n", "1")] == ["a"]
    table = run("peek", queue).stdout.splitlines()
    assert table[0].split() == ["STATE", "RECEIVES", "SENT", "KEY", "BODY"]
    assert [row.split()[0] for row in table[1:]] == ["visible", "visible", "delayed"]


def test_receive_deletes_what_it_has_printed(queue: str) -> None:
    run("send", queue, "a", "b", "c")
    assert run("receive", queue).stdout == "a\n"
    (kept,) = lines("receive", queue, "--keep", "--visibility", "3600")
    assert (kept["value"], kept["receives"], kept["state"]) == ("b", 1, "in flight")
    assert counts(queue) == (1, 1, 0)
    assert [each["state"] for each in lines("peek", queue)] == ["in flight", "visible"]
    (last,) = lines("receive", queue, "-n", "10")
    assert (last["value"], "receipt" in last) == ("c", False)
    assert counts(queue) == (0, 1, 0)
    assert run("receive", queue).stdout == ""


def test_what_could_not_be_printed_is_not_deleted(queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(messages: Any) -> None:
        raise BrokenPipeError

    run("send", queue, "a")
    monkeypatch.setattr(queue_messages, "print_bodies", breaks)
    # As `| head` does; CliRunner has no file descriptor to silence.
    monkeypatch.setattr("skidway.cli.output._silence_stdout", lambda: None)
    run("receive", queue, "--visibility", "3600")
    assert counts(queue) == (0, 1, 0)


def test_what_is_kept_comes_again(queue: str) -> None:
    run("send", queue, "a")
    run("receive", queue, "--keep", "--visibility", "0")
    (again,) = lines("receive", queue, "--wait", "20")
    assert (again["value"], again["receives"]) == ("a", 2)
    assert counts(queue) == (0, 0, 0)


def test_a_receipt_and_an_id_are_those_of_the_doors(cluster: Cluster, queue: str) -> None:
    (sent,) = lines("send", queue, "a")
    (kept,) = lines("receive", queue, "--keep")
    topic = cluster.look_up(queue)
    ids = Ids(cluster.refresh([]).cluster_id or "")
    place = ids.place_of(sent["message_id"], [topic.id])
    assert place == (topic.id, sent["partition"], sent["offset"])
    receipt = ids.read_receipt(kept["receipt"])
    assert receipt is not None
    assert receipt[:4] == (topic.id, kept["partition"], kept["offset"], 1)
    assert kept["message_id"] == sent["message_id"]


def test_more_than_one_request_takes(cluster: Cluster, name: str) -> None:
    run("create", name, "-p", "3")
    bodies = [f"{number} {'x' * 2_000}" for number in range(620)]
    sent = [
        json.loads(line) for line in run("send", name, "--json", stdin="\n".join(bodies) + "\n").stdout.split("\n")[:-1]
    ]
    assert len({(each["partition"], each["offset"]) for each in sent}) == len(bodies)
    assert counts(name) == (620, 0, 0)
    assert len(lines("peek", name, "-n", "500")) == 500
    received = run("receive", name, "-n", "600").stdout.splitlines()
    assert len(set(received)) == 600
    assert set(received) < set(bodies)
    assert counts(name) == (20, 0, 0)


def test_messages_of_kafka_producers(cluster: Cluster, queue: str) -> None:
    with Producer(cluster, codec=4) as producer:
        producer.send(queue, b"\xff\x00", key=b"k")
        producer.send(queue, None)
    first, second = lines("peek", queue)
    assert (first["value_base64"], first["key"]) == ("/wA=", "k")
    assert second["value"] is None
    assert CliRunner().invoke(app, ["receive", queue, "-n", "2"]).stdout_bytes == b"\xff\x00\nnull\n"
    assert counts(queue) == (0, 0, 0)


def test_fifo(fifo: str) -> None:
    first = lines("send", fifo, "one", "--message-group", "ann", "--dedup-id", "1")
    again = lines("send", fifo, "one", "--message-group", "ann", "--dedup-id", "1")
    assert [each["duplicate"] for each in first + again] == [False, True]
    assert first[0]["message_id"] == again[0]["message_id"]
    text = run("send", fifo, "one", "--message-group", "ann", "--dedup-id", "1").stdout
    assert text == f"sent 0 messages to {fifo}; 1 had been sent before\n"
    run("send", fifo, "two", "two", "--message-group", "ann")
    run("send", fifo, "other", "--message-group", "bob")
    assert counts(fifo) == (4, 0, 0)
    assert run("receive", fifo, "--keep", "--visibility", "3600").stdout == "one\n"
    assert run("receive", fifo, "-n", "10").stdout == "other\n"
    assert counts(fifo) == (2, 1, 0)
    assert [each["receives"] for each in lines("peek", fifo)] == [1, 0, 0]
    assert "FIFO queue, 1 partition" in run("describe", fifo).stdout


def test_fifo_by_content(cluster: Cluster, name: str) -> None:
    run("create", name, "--fifo", "--content-dedup", "-p", "2", "-c", "queue.deduplication.scope=messageGroup")
    assert (described(name)["content_deduplication"], described(name)["partitions"]) == (True, 2)
    run("send", name, "same", "same", "--message-group", "ann")
    run("send", name, "same", "--message-group", "bob")
    assert counts(name) == (2, 0, 0)


def test_what_cannot_be_sent(cluster: Cluster, queue: str, fifo: str) -> None:
    assert "give --message-group" in run("send", fifo, "a", code=2).stderr
    assert "in the place of --key" in run("send", fifo, "a", "--key", "k", code=2).stderr
    assert "are for FIFO queues" in run("send", queue, "a", "--message-group", "g", code=2).stderr
    assert "give one BODY" in run("send", fifo, "a", "b", "--dedup-id", "1", code=2).stderr
    assert "expected NAME=VALUE" in run("send", queue, "a", "--header", "x", code=2).stderr
    small = f"{queue}-small"
    run("create", small, "-c", "queue.max.message.bytes=1024")
    text = f"a message of 1025 bytes; {small} takes at most 1024; 0 messages sent before that"
    assert text in run("send", small, "fits", "x" * 1_025, code=1).stderr
    assert counts(small) == (0, 0, 0)
    endless = "short\n" + "x" * 3_000_000
    assert "a message of more than 1048576 bytes" in run("send", queue, code=1, stdin=endless).stderr


def test_purge_asks_first(queue: str) -> None:
    run("send", queue, "a", "b")
    run("send", queue, "c", "--delay", "600")
    run("receive", queue, "--keep", "--visibility", "3600")
    asked = run("purge", queue, code=1, stdin="n\n")
    assert f"{queue}: 1 visible, 1 in flight, 1 delayed\ndelete all messages of {queue}?" in asked.stderr
    assert counts(queue) == (1, 1, 1)
    assert run("purge", queue, stdin="y\n").stdout.endswith(f"purged {queue}\n")
    assert counts(queue) == (0, 0, 0)
    run("send", queue, "d")
    assert run("receive", queue).stdout == "d\n"


def test_delete_asks_first(cluster: Cluster, queue: str, fifo: str) -> None:
    run("delete", queue, code=1, stdin="n\n")
    assert "there is no queue nowhere" in run("delete", queue, "nowhere", "--yes", code=1).stderr
    assert queue in run("list", "--names").stdout.split()
    assert run("delete", queue, fifo, "--yes").stdout == f"deleted {queue}\ndeleted {fifo}\n"
    eventually(lambda: not {queue, fifo} & set(run("list", "--names").stdout.split()))


def test_list_counts_queues_and_no_topics(cluster: Cluster, queue: str, fifo: str) -> None:
    Admin(cluster).create_topic(f"{queue}-topic")
    run("send", queue, "a")
    found = {each["queue"]: each for each in json.loads(run("list", "--json").stdout)}
    assert f"{queue}-topic" not in found
    assert (found[queue]["visible"], found[queue]["type"], found[fifo]["type"]) == (1, "standard", "fifo")
    row = next(line for line in run("list").stdout.splitlines() if line.startswith(queue))
    assert row.split() == [queue, "standard", "1", "0", "0", f"{queue}-dlq"]


@pytest.mark.parametrize("verb", ["describe", "peek", "purge", "delete", "send", "receive"])
def test_wrong_names(cluster: Cluster, queue: str, verb: str) -> None:
    more = {"send": ["body"], "purge": ["--yes"], "delete": ["--yes"]}.get(verb, [])
    error = run(verb, queue[:-1], *more, code=1).stderr
    assert error.startswith(f"error: there is no queue {queue[:-1]}; did you mean {queue}? Or: skidway queue create")
    topic = f"{queue}-topic"
    Admin(cluster).create_topic(topic)
    error = run(verb, topic, *more, code=1).stderr
    assert (
        error
        == f"error: {topic} is a topic but no queue; skidway topic alter {topic} -c queue.type=standard makes it one\n"
    )
    assert Admin(cluster).topic(topic).name == topic


def test_a_topic_becomes_a_queue_as_the_error_says(cluster: Cluster, name: str) -> None:
    from skidway.cli.commands.topic import app as topics

    Admin(cluster).create_topic(name)
    with Producer(cluster) as producer:
        producer.send(name, b"before")
    assert CliRunner().invoke(topics, ["alter", name, "-c", "queue.type=standard"]).exit_code == 0
    assert run("receive", name).stdout == "before\n"


def test_a_receive_that_waits_gets_what_comes(queue: str) -> None:
    run("send", queue, "a", "--delay", "2")
    assert run("receive", queue, "--wait", "60").stdout == "a\n"


@pytest.mark.parametrize("is_read", [True, False])
def test_a_receive_that_was_interrupted_takes_nothing(cluster: Cluster, queue: str, is_read: bool) -> None:
    """Ctrl-C while it waits: what comes then is for somebody else, and does not count as received."""
    run("receive", queue)  # now the leader has what is stored of the queue
    topic = cluster.look_up(queue)
    for _ in range(3):
        gone = cluster.connect(next(iter(cluster.picture.brokers.values())))
        gone.send(ReceiveMessagesRequest(topic.id, [0], 1, 1_000_000, 60_000, 60_000))
        assert not (is_read and gone.readable(0.1)), "the broker waits"
        gone.close()
    run("send", queue, "m")
    (message,) = lines("receive", queue, "--wait", "20")
    assert (message["value"], message["receives"]) == ("m", 1)


def test_the_broker_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    with Broker() as broker:
        monkeypatch.setenv("SKIDWAY_BOOTSTRAP", broker.bootstrap)
        run("create", "jobs")
    for verb in (["list"], ["describe", "jobs"], ["peek", "jobs"], ["send", "jobs", "a"], ["receive", "jobs"]):
        error = run(*verb, code=1).stderr
        assert error == f"error: cannot reach {broker.bootstrap}: connection refused; is the broker running?\n"


def test_help_names_the_way_of_dead_letters() -> None:
    text = run("--help").stdout
    assert "skidway dlq redrive" in text
    assert "by Kafka's protocol" in text
