"""Why a receive finds nothing although messages wait, as `skidway queue describe` and `list` tell it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skidway.blocking_client.cluster import Cluster
from skidway.blocking_client.producer import Producer
from skidway.cli.commands.queue import app
from skidway.limits import SHARE_ORDERED_SPAN_MAX

BEHIND = "each message that waits is behind an earlier one of its message group that is in flight or delayed"


@pytest.fixture
def cluster(bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", bootstrap)
    with Cluster(bootstrap) as cluster:
        yield cluster


@pytest.fixture
def fifo(cluster: Cluster, name: str) -> str:
    run("create", name, "--fifo", "--visibility", "1h")
    return name


def run(*words: str) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == 0, result.output
    return result


def listed(queue: str) -> Any:
    return next(each for each in json.loads(run("list", "--json").stdout) if each["queue"] == queue)


def test_messages_behind_others_of_their_group(fifo: str) -> None:
    run("send", fifo, "1", "2", "3", "--message-group", "ann")
    run("send", fifo, "1", "--message-group", "bob")
    assert (listed(fifo)["visible"], listed(fifo)["blocked"], listed(fifo)["held_up"]) == (4, 0, None)
    held = json.loads(run("receive", fifo, "--keep", "--json").stdout)
    assert (listed(fifo)["visible"], listed(fifo)["blocked"], listed(fifo)["held_up"]) == (3, 2, None)
    assert "3 visible (2 behind others of their group), 1 in flight" in run("describe", fifo).stdout
    run("receive", fifo)
    assert (listed(fifo)["visible"], listed(fifo)["blocked"]) == (2, 2)
    assert listed(fifo)["held_up"].startswith(BEHIND)
    assert f"\na receive finds nothing: {BEHIND}" in run("describe", fifo).stdout
    assert f"warning: a receive from {fifo} finds nothing: {BEHIND}" in run("list").stderr
    run("ack", held["receipt"])
    assert (listed(fifo)["visible"], listed(fifo)["blocked"], listed(fifo)["held_up"]) == (2, 0, None)


def test_messages_behind_one_that_is_delayed(fifo: str) -> None:
    run("send", fifo, "1", "--message-group", "ann", "--delay", "1h")
    run("send", fifo, "2", "--message-group", "ann")
    assert (listed(fifo)["visible"], listed(fifo)["delayed"]) == (1, 1)
    assert listed(fifo)["held_up"].startswith(BEHIND)


def test_messages_far_behind_the_oldest(cluster: Cluster, fifo: str) -> None:
    with Producer(cluster, codec=4) as producer:
        for _ in range(SHARE_ORDERED_SPAN_MAX + 10):
            producer.send(fifo, b"", key=b"ann")
    assert listed(fifo)["held_up"] is None
    run("receive", fifo, "--keep")
    assert listed(fifo)["held_up"].startswith(
        f"the message at offset 0 of partition 0 is not done, and those that wait are {SHARE_ORDERED_SPAN_MAX:,} off"
    )
