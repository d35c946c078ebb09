"""`skidway queue ack`, `release`, `reject` and `extend` against a real broker, by receipts of `receive --keep`."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skidway.blocking_client.cluster import Cluster
from skidway.cli.commands.dlq import app as letters
from skidway.cli.commands.queue import app
from waiting import eventually


@pytest.fixture
def cluster(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bootstrap)
    with Cluster(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def queue(cluster: Cluster, name: str) -> str:
    run("create", name, "--visibility", "1h")
    return name


def run(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result


def received(queue: str, count: int = 1, *words: str) -> list[Any]:
    lines = run("receive", queue, "-n", str(count), "--keep", "--json", *words).stdout.splitlines()
    return [json.loads(line) for line in lines]


def receipts(queue: str, count: int = 1) -> list[str]:
    return [message["receipt"] for message in received(queue, count)]


def counts(queue: str) -> tuple[int, int, int]:
    (document,) = json.loads(run("describe", queue, "--json").stdout)
    return document["visible"], document["in_flight"], document["delayed"]


def test_acknowledged_messages_are_gone(queue: str) -> None:
    run("send", queue, "a", "b", "c")
    held = receipts(queue, 3)
    assert run("ack", held[0]).stdout == "acknowledged 1 message\n"
    assert run("ack", held[1], held[2], held[1]).stdout == "acknowledged 2 messages\n"
    assert counts(queue) == (0, 0, 0)
    assert run("ack", held[0]).stdout == "acknowledged 1 message\n"  # as over HTTP: it is done already


def test_a_released_message_is_for_others(queue: str) -> None:
    run("send", queue, "a", "b")
    first, second = receipts(queue, 2)
    assert run("release", first).stdout == "released 1 message\n"
    (again,) = received(queue)
    assert (again["value"], again["receives"]) == ("a", 2)
    run("release", second, "--delay", "10m")
    assert counts(queue) == (0, 1, 1)
    run("release", again["receipt"], "--delay", "10ms")
    (late,) = received(queue, 1, "--wait", "60")
    assert (late["value"], late["receives"]) == ("a", 3)


def test_a_rejected_message_is_among_the_dead_letters_with_its_reason(queue: str) -> None:
    run("create", f"{queue}-dlq")
    run("send", queue, "a")
    (held,) = receipts(queue)
    assert run("reject", held, "--reason", "no such customer").stdout == "rejected 1 message\n"
    (letter,) = received(f"{queue}-dlq", 1, "--wait", "60")
    assert letter["value"] == "a"
    assert {"name": "__dlq.errors.message", "value": "no such customer"} in letter["headers"]
    eventually(lambda: counts(queue) == (0, 0, 0))
    assert "no such customer" in CliRunner().invoke(letters, ["show", f"{queue}-dlq"]).stdout


def test_an_extended_message_stays_with_its_receiver(queue: str) -> None:
    run("send", queue, "a", "b")
    first, second = receipts(queue, 2)
    assert run("extend", first, second, "--visibility", "2h").stdout == "extended 2 messages\n"
    assert counts(queue) == (0, 2, 0)
    run("extend", first, "--visibility", "0")
    assert counts(queue) == (1, 1, 0)
    # Nobody has it: who worked longer than the visibility time takes it back, for the queue's.
    run("extend", first)
    assert counts(queue) == (0, 2, 0)


def test_what_somebody_else_holds_is_refused(queue: str) -> None:
    run("send", queue, "a", "b")
    first, second = receipts(queue, 2)
    run("release", first)
    (other,) = received(queue)
    assert other["value"] == "a"
    error = run("reject", first, code=1).stderr
    assert error.startswith(f"error: {first[:20]}…: rejecting a message of {queue}: ")
    result = run("release", first, second, code=4)
    assert result.stdout == "released 1 message\n"
    assert f"error: {first[:20]}…: releasing a message of {queue}: " in result.stderr
    assert counts(queue) == (1, 1, 0)


def test_receipts_of_several_queues(queue: str) -> None:
    other = f"{queue}-other"
    run("create", other, "-p", "3")
    run("send", queue, "a")
    run("send", other, *"bcdef")
    held = receipts(other, 5) + receipts(queue)
    assert run("release", *held, "--delay", "1h").stdout == "released 6 messages\n"
    assert (counts(queue), counts(other)) == ((0, 0, 1), (0, 0, 5))


def test_what_is_no_receipt(queue: str) -> None:
    run("send", queue, "a")
    (message,) = received(queue)
    held = message["receipt"]
    for word in ("abc", message["message_id"], held[:-1] + ("A" if held[-1] != "A" else "B"), "x" * 10_000):
        error = run("release", held, word, code=2).stderr
        assert "is no receipt of this cluster; skidway queue receive QUEUE --keep --json prints them" in error
        assert len(error) < 200
    assert counts(queue) == (0, 1, 0)
    assert "--delay 13h: at most 12h" in run("release", held, "--delay", "13h", code=2).stderr
    assert "--visibility soon: expected a time" in run("extend", held, "--visibility", "soon", code=2).stderr
    assert "at most 1000 are kept" in run("reject", held, "--reason", "x" * 1_001, code=2).stderr
    run("delete", queue, "--yes")
    eventually(lambda: "was deleted" in CliRunner().invoke(app, ["ack", held]).stderr)
