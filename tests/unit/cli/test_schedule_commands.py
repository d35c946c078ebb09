"""`skidway queue schedule` against a real broker: what is scheduled is listed, comes, and is cancelled."""

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skidway.blocking_client.cluster import Cluster
from skidway.cli.commands.queue import app
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


def run(*words: str, code: int = 0) -> Result:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == code, result.output
    return result


def schedule(*words: str, code: int = 0) -> str:
    return run("schedule", *words, code=code).output


def listed(queue: str) -> list[Any]:
    found: list[Any] = json.loads(run("schedule", "list", queue, "--json").stdout)
    return found


def test_a_scheduled_message_comes_and_is_listed_until_then(queue: str) -> None:
    due = datetime.now(UTC) + timedelta(seconds=1.5)
    assert "soon scheduled, due" in schedule(
        "create", queue, "hello", "--schedule-id", "soon", "--due", due.isoformat()
    )
    assert "far scheduled" in schedule(
        "create", queue, "later", "--schedule-id", "far", "--in", "300d", "--key", "k", "-H", "a=b"
    )
    assert [each["id"] for each in listed(queue)][:1] == ["far"]
    messages = eventually(lambda: run("receive", queue, "--json").stdout.splitlines(), 60)
    assert time.time() >= due.timestamp()
    (message,) = messages
    assert '"hello"' in message
    eventually(lambda: len(listed(queue)) == 1, 60)
    (far,) = listed(queue)
    assert far["id"] == "far"
    assert far["due_ms"] > time.time_ns() // 1_000_000 + 299 * 86_400_000
    table = schedule("list", queue)
    assert table.splitlines()[0].split() == ["ID", "DUE", "IN", "AGAIN", "SIZE"]
    assert "300.0d" in table


def test_a_recurring_schedule_is_listed_with_its_zone_and_cancelled(queue: str) -> None:
    words = ("create", queue, "report", "--schedule-id", "r", "--cron", "30 8 * * mon-fri", "--zone", "Europe/Berlin")
    assert "r scheduled" in schedule(*words)
    assert "r is scheduled already" in schedule(*words)
    (found,) = listed(queue)
    assert (found["cron"], found["time_zone"]) == ("30 8 * * mon-fri", "Europe/Berlin")
    assert schedule("cancel", queue, "r") == "cancelled r\n"
    assert "nothing is scheduled" in schedule("list", queue)
    assert "there is no schedule r" in schedule("cancel", queue, "r", code=1)


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 2, "give one of --due, --in and --cron"),
        (("--in", "1h", "--cron", "* * * * *"), 2, "give one of --due, --in and --cron"),
        (("--in", "400d"), 2, "at most 8784h"),
        (("--in", "1h", "--zone", "UTC"), 2, "--zone is for --cron"),
        (("--due", "tomorrow"), 2, "expected a time such as"),
        (("--cron", "61 * * * *"), 1, "'61' is not understood as minute"),
        (("--cron", "* * * * *", "--zone", "Mars/Olympus"), 1, "does not know the time zone"),
        (("--in", "1h", "--schedule-id", "a b"), 1, "cannot be the id of a schedule"),
        (("--due", "@1"), 1, "in the past"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(queue: str, words: tuple[str, ...], code: int, text: str) -> None:
    assert text in schedule("create", queue, "x", *words, code=code)
    assert listed(queue) == []


def test_a_queue_that_is_not_there_is_named(cluster: Cluster) -> None:
    assert "there is no queue nowhere" in schedule("list", "nowhere", code=1)
