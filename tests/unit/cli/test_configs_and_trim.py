"""Settings of brokers and deleting the oldest messages, from the command line."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skidway.cli.commands import config, consume, produce, topic
from skidway.testing import Broker

APPS = {"config": config.app, "topic": topic.app, "consume": consume.app, "produce": produce.app}


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    """Settings of brokers are changed: not those of the broker that other tests share."""
    with Broker(node_id=7) as broker:
        yield broker


@pytest.fixture(autouse=True)
def environment(own_broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", own_broker.bootstrap)


def run(command: str, *words: str, stdin: str = "", code: int = 0) -> Result:
    ended = CliRunner().invoke(APPS[command], list(words), input=stdin)
    assert ended.exit_code == code, ended.output
    return ended


def value(name: str) -> dict[str, Any]:
    (row,) = json.loads(run("config", "get", name, "--json").stdout)
    return {"value": row["value"], "source": row["source"]}


def test_a_setting_of_all_brokers_and_of_one() -> None:
    before = value("log.retention.ms")
    assert run("config", "set", "log.retention.ms=7000", "--dry-run").stdout.startswith("log.retention.ms could be")
    assert value("log.retention.ms") == before
    assert run("config", "set", "log.retention.ms=7000").stdout == "changed log.retention.ms for all brokers\n"
    assert value("log.retention.ms") == {"value": "7000", "source": "cluster default"}
    run("config", "set", "log.retention.ms=8000", "--broker", "7")
    assert value("log.retention.ms") == {"value": "8000", "source": "broker"}
    run("config", "reset", "log.retention.ms", "--broker", "7")
    assert value("log.retention.ms") == {"value": "7000", "source": "cluster default"}
    run("config", "reset", "log.retention.ms")
    assert "(not set)" in run("config", "get", "log.retention.ms").stdout, "a column that is empty says nothing"
    assert value("log.retention.ms") == before


def test_what_is_listed() -> None:
    changed = {row["name"] for row in json.loads(run("config", "list", "--json").stdout)}
    everything = {row["name"]: row for row in json.loads(run("config", "list", "--all", "--json").stdout)}
    assert "node.id" in changed
    assert "num.partitions" not in changed
    assert everything["num.partitions"]["brokers"] == [7]
    assert {"num.partitions", *changed} <= set(everything)
    assert "node.id" in run("config", "list", "--broker", "7").stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("get", "log.retention.m"), "did you mean log.retention.ms?"),
        (("set", "log.retention.mss=1"), "did you mean log.retention.ms?"),
        (("set", "log.retention.ms=soon"), "log.retention.ms"),
        (("list", "--broker", "99"), "there is no such broker"),
    ],
)
def test_refusals_are_one_line(words: tuple[str, ...], said: str) -> None:
    ended = run("config", *words, code=1)
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def fill(name: str) -> None:
    run("topic", "create", name, "-p", "2")
    for partition in ("0", "1"):
        run("produce", name, "-p", partition, stdin="\n".join(f"{partition}{number}" for number in range(5)))


def test_the_oldest_messages_are_deleted_up_to_a_place(name: str) -> None:
    fill(name)
    shown = run("topic", "trim", name, "--before", "-2", "--dry-run").stdout
    assert "dry run: nothing was deleted" in shown
    assert len(run("consume", name).stdout.splitlines()) == 10
    kept = run("topic", "trim", name, "--before", "-2", stdin="n\n", code=1)
    assert "delete these from" in kept.output
    assert len(run("consume", name).stdout.splitlines()) == 10
    run("topic", "trim", name, "--before", "-2", "--yes")
    assert sorted(run("consume", name).stdout.splitlines()) == ["03", "04", "13", "14"]
    document = json.loads(run("topic", "trim", name, "--before", "end", "-p", "1", "--yes", "--json").stdout)
    assert document == {"topic": name, "executed": True, "partitions": [{"partition": 1, "start": 3, "new_start": 5}]}
    assert sorted(run("consume", name).stdout.splitlines()) == ["03", "04"]
    assert "has nothing before that" in run("topic", "trim", name, "--before", "1h", "--yes").stdout


def test_trimming_what_is_not_there(name: str) -> None:
    assert "no such topic" in run("topic", "trim", name, "--before", "end", "--yes", code=1).stderr
    fill(name)
    assert "no such partition" in run("topic", "trim", name, "--before", "end", "-p", "9", "--yes", code=1).stderr
    assert "expected beginning" in run("topic", "trim", name, "--before", "yesterday", code=2).stderr
