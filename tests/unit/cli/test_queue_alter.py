"""`skidway queue alter` against a real broker: what it changes, what a reset gives, and what it refuses."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from skidway.blocking_client.admin import Admin
from skidway.blocking_client.cluster import Cluster
from skidway.cli.commands.queue import app


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


def refused(*words: str, code: int = 2) -> str:
    return run("alter", *words, code=code).stderr


def described(queue: str) -> Any:
    (document,) = json.loads(run("describe", queue, "--json").stdout)
    return document


def configs(cluster: Cluster, queue: str) -> dict[str, str | None]:
    return {config.name: config.value for config in Admin(cluster).topic_configs(queue) if config.is_set}


def test_every_setting_of_create_can_be_changed(queue: str) -> None:
    words = ("--visibility", "2m", "--delay", "3", "--wait", "4s", "--retention", "5h", "--max-receives", "7")
    before = described(queue)
    assert run("alter", queue, *words, "--dead-letters", "morgue", "--dry-run").stdout == f"{queue} could be altered\n"
    assert described(queue) == before
    assert run("alter", queue, *words, "--dead-letters", "morgue").stdout == f"altered {queue}\n"
    after = described(queue)
    assert (after["visibility_ms"], after["delay_ms"], after["receive_wait_ms"]) == (120_000, 3_000, 4_000)
    assert (after["retention_ms"], after["max_receives"], after["dead_letters"]) == (18_000_000, 7, "morgue")
    run("alter", queue, "--max-receives", "0", "--dead-letters", "")
    assert (described(queue)["max_receives"], described(queue)["dead_letters"]) == (None, None)


def test_a_reset_gives_what_a_new_queue_has(cluster: Cluster, queue: str) -> None:
    fresh = configs(cluster, queue)
    run("alter", queue, "--visibility", "1s", "--retention", "1h", "--max-receives", "0", "--dead-letters", "")
    names = ("queue.visibility.timeout.ms", "retention.ms", "queue.max.deliveries", "queue.dead.letter.topic")
    run("alter", queue, *(word for name in names for word in ("--reset", name)))
    changed = configs(cluster, queue)
    assert int(changed.pop("queue.modified.ms") or 0) > int(fresh.pop("queue.modified.ms") or 0)
    assert changed == fresh


def test_the_largest_batch_follows_the_largest_message(cluster: Cluster, queue: str) -> None:
    run("alter", queue, "-c", "queue.max.message.bytes=2000")
    assert configs(cluster, queue)["max.message.bytes"] == str(2_000 + 128 * 1024)
    assert described(queue)["max_message_bytes"] == 2_000
    run("alter", queue, "--reset", "queue.max.message.bytes")
    assert configs(cluster, queue)["max.message.bytes"] == str(1024 * 1024 + 128 * 1024)


def test_several_queues_or_none_of_them(queue: str) -> None:
    run("create", f"{queue}-b")
    error = refused(queue, f"{queue}-b", f"{queue}-c", "--delay", "9", code=1)
    assert f"there is no queue {queue}-c" in error
    assert described(queue)["delay_ms"] == 0
    assert run("alter", queue, f"{queue}-b", "--delay", "9").stdout == f"altered {queue}\naltered {queue}-b\n"
    assert described(f"{queue}-b")["delay_ms"] == 9_000


def test_settings_of_fifo_queues(cluster: Cluster, queue: str) -> None:
    fifo, wide = f"{queue}-fifo", f"{queue}-wide"
    run("create", fifo, "--fifo")
    run("alter", fifo, "--content-dedup")
    assert described(fifo)["content_deduplication"] is True
    run("alter", fifo, "--no-content-dedup")
    assert described(fifo)["content_deduplication"] is False
    assert f"{queue} is a standard queue" in refused(queue, "--content-dedup")
    assert f"{queue} is a standard queue" in refused(queue, "--reset", "queue.deduplication.scope")
    run("create", wide, "--fifo", "-p", "2", "-c", "queue.deduplication.scope=messageGroup")
    for words in (("-c", "queue.deduplication.scope=queue"), ("--reset", "queue.deduplication.scope")):
        assert "has 2 partitions, so each message group has ids of its own" in refused(wide, *words)


def test_what_is_refused(cluster: Cluster, queue: str) -> None:
    assert "nothing to alter" in refused(queue)
    assert "write -c visibility=60" in refused(queue, "visibility=60")
    assert "--delay 16m: at most 900s" in refused(queue, "--delay", "16m")
    assert "--wait 21: at most 20s" in refused(queue, "--wait", "21")
    assert "queue.type is chosen when a queue is made" in refused(queue, "-c", "queue.type=fifo")
    assert "-c queue.max.message.bytes=N" in refused(queue, "-c", "max.message.bytes=9")
    assert "--reset queue.max.message.bytes" in refused(queue, "--reset", "max.message.bytes")
    assert "is set and reset" in refused(queue, "--delay", "1", "--reset", "queue.delay.ms")
    assert "nobody else sets it" in refused(queue, "-c", "queue.created.ms=1")
    assert "cannot be the queue for its own dead letters" in refused(queue, "--dead-letters", queue)
    Admin(cluster).create_topic(f"{queue}-topic")
    assert "is a topic but no queue" in refused(queue, "--dead-letters", f"{queue}-topic", code=1)
    assert "did you mean queue.delay.ms?" in refused(queue, "-c", "queue.dely.ms=1", code=1)
    for words in ("queue.delay.ms=900001", "queue.max.message.bytes=abc", "queue.max.message.bytes=9"):
        error = refused(queue, "-c", words, code=1)
        assert error.startswith(f"error: cannot alter queue {queue}: ")
        assert words.partition("=")[0] in error
    assert "queue.max.message.bytes" in run("create", f"{queue}-x", "-c", "queue.max.message.bytes=abc", code=1).stderr
