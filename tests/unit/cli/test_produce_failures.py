"""A `produce` that fails says which line failed, how many messages were stored and which lines were not."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from disk_faults import small_file_system
from skidway.cli.commands import consume, produce, topic
from skidway.testing import Broker

PROGRAM = [sys.executable, "-c", "import sys; from skidway.cli.main import main; sys.exit(main())"]


@pytest.fixture(autouse=True)
def environment(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bootstrap)


def create(name: str, *words: str) -> None:
    assert CliRunner().invoke(topic.app, ["create", name, *words]).exit_code == 0


def send(name: str, *words: str, stdin: str) -> Result:
    return CliRunner().invoke(produce.app, [name, *words], input=stdin)


def values(name: str, *words: str) -> list[str]:
    return CliRunner().invoke(consume.app, [name, *words]).stdout.splitlines()


def report(ended: Result) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(ended.stdout)
    return document


def test_a_message_that_is_too_large(name: str) -> None:
    create(name, "-c", "max.message.bytes=1000")
    stdin = "\n".join(["one", "two", "x" * 2000, "four", "five"])
    ended = send(name, stdin=stdin)
    assert ended.exit_code == 1
    expected = f"error: line 3: {name} partition 0: "
    assert ended.stderr.startswith(expected)
    assert "(MESSAGE_TOO_LARGE); stored 2 messages before that; not stored: lines 3 to 5" in ended.stderr
    assert values(name) == ["one", "two"]


def test_the_same_for_scripts(name: str) -> None:
    create(name, "-c", "max.message.bytes=1000")
    ended = send(name, "--json", stdin="one\n" + "x" * 2000 + "\nthree")
    assert ended.exit_code == 1
    document = report(ended)
    assert document["messages"] == 1
    assert document["partitions"] == [{"partition": 0, "first_offset": 0, "last_offset": 0}]
    error = document["error"]
    assert (error["line"], error["code"]) == (2, "MESSAGE_TOO_LARGE")
    assert (error["not_stored"], error["not_confirmed"]) == ([[2, 3]], [])
    assert report(send(name, "--json", stdin="fine"))["error"] is None


def test_a_batch_that_is_too_large_is_split(name: str) -> None:
    """Every message is small enough; only together they are not."""
    create(name, "-c", "max.message.bytes=1000")
    lines = [f"{number:03} " + "x" * 100 for number in range(200)]
    ended = send(name, "--json", stdin="\n".join(lines))
    assert ended.exit_code == 0, ended.stderr
    assert report(ended)["messages"] == 200
    assert values(name) == lines


def test_lines_of_several_partitions(name: str) -> None:
    create(name, "-p", "3", "-c", "max.message.bytes=1000")
    good = [json.dumps({"value": f"{number}", "partition": number % 3}) for number in range(9)]
    bad = json.dumps({"value": "x" * 2000, "partition": 1})
    ended = send(name, "-f", "json", "--json", stdin="\n".join([*good[:5], bad, *good[5:]]))
    document = report(ended)
    assert document["error"]["line"] == 6
    missing = [line for first, last in document["error"]["not_stored"] for line in range(first, last + 1)]
    assert 6 in missing
    assert document["messages"] + len(missing) == 10
    assert len(values(name)) == document["messages"]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ('{"key": "ann", "valeu": "b"}', "unknown field 'valeu', did you mean 'value'?"),
        ('{"key": "ann"}', "no value"),
        ('{"value": "b", "partition": 99}', "there is no such partition; the topic has 1 (0 to 0)"),
        ('{"value": "b", "partition": "0"}', "expected a number, 0 or greater"),
        ("plain text", "not JSON"),
    ],
)
def test_a_bad_line_ends_the_input_and_what_came_before_it_is_stored(name: str, bad: str, said: str) -> None:
    create(name)
    ended = send(name, "-f", "json", "--json", stdin=f'{{"value": "a"}}\n\n{bad}\n{{"value": "c"}}\n')
    assert ended.exit_code == 1
    assert ended.stderr.startswith("error: line 3: ")
    assert said in ended.stderr
    assert "stored 1 message before that" in ended.stderr
    assert (report(ended)["messages"], report(ended)["error"]["line"]) == (1, 3)
    assert values(name) == ["a"]


def test_partitions_of_the_input_or_of_the_keys(name: str) -> None:
    create(name, "-p", "2")
    create(f"{name}-small", "-p", "1")
    send(name, "-f", "json", stdin='{"value": "a", "partition": 1}\n{"value": "b", "partition": 0}\n')
    assert values(name, "-p", "1") == ["a"]
    exported = "\n".join(values(name, "-F", "json"))
    refused = send(f"{name}-small", "-f", "json", stdin=exported)
    assert "--repartition chooses partitions by key" in refused.stderr
    assert send(f"{name}-copy", "--create", "-f", "json", "--repartition", stdin=exported).exit_code == 0
    assert sorted(values(f"{name}-copy")) == ["a", "b"]
    assert send(name, "-p", "0", "--repartition", stdin="x").exit_code == 2


def test_each_json_line_as_a_value(name: str) -> None:
    create(name)
    lines = ['{"name": "ann",  "age": 5}', "[1, 2]", '"text"', "null"]
    assert send(name, "-f", "json-value", stdin="\n".join(lines)).exit_code == 0
    assert values(name) == lines
    refused = send(name, "-f", "json-value", stdin='{"a": 1}\n{a: 1}')
    assert "line 2: not JSON" in refused.stderr


def test_an_interrupted_input_says_what_is_stored(name: str) -> None:
    create(name)
    writer = subprocess.Popen(
        [*PROGRAM, "produce", name, "--json"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    reader = subprocess.Popen([*PROGRAM, "consume", name, "--follow", "--from", "0"], stdout=subprocess.PIPE)
    try:
        assert writer.stdin is not None
        assert reader.stdout is not None
        writer.stdin.write(b"one\n")
        writer.stdin.flush()
        assert reader.stdout.readline() == b"one\n"
        writer.send_signal(signal.SIGINT)
        out, err = writer.communicate(timeout=60)
        assert writer.returncode == 130
        assert b"error: interrupted; stored " in err
        document = json.loads(out)
        # The reader may see the message before the writer hears that it is stored.
        confirmed = document["messages"] == 1
        assert confirmed or document["error"]["not_confirmed"] == [[1, 1]]
    finally:
        for process in (writer, reader):
            process.kill()
            process.communicate()


def test_a_full_disk(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "volume", 16) as volume, Broker(data_dir=volume / "data", flush="os") as broker:
        at = ["-b", broker.bootstrap]
        create("a", *at)
        stdin = "\n".join("x" * 50_000 for _ in range(600))
        ended = send("a", "--timeout", "2", "--json", *at, stdin=stdin)
        assert ended.exit_code == 1
        document = report(ended)
        assert document["error"]["code"] == "KAFKA_STORAGE_ERROR"
        assert 0 < document["messages"] < 600
        assert document["error"]["line"] == document["messages"] + 1
        assert len(values("a", *at)) == document["messages"]
