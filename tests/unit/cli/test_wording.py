"""What commands say: plurals, names that are misspelt, questions that are asked only where there is something to do."""

import re
from pathlib import Path
from types import ModuleType

import pytest
import typer
from typer.testing import CliRunner

import skidway.client
import skidway.testing
from skidway.cli.commands import bench, group, topic
from skidway.cli.help.completion import whole_app
from skidway.cli.help.help_pages import command_of
from skidway.cli.main import COMMANDS
from skidway.cli.output import count_of
from skidway.testing import Broker

SOURCES = Path(__file__).parents[3] / "src" / "skidway" / "cli"
COUNTED = "partitions|messages|records|members|replicas|letters|voters|batches|brokers|nodes|connections|moves|seeds"


@pytest.mark.parametrize(
    ("count", "noun", "said"),
    [(0, "message", "0 messages"), (1, "partition", "1 partition"), (1234, "batch", "1,234 batches")],
)
def test_one_of_a_thing_is_not_several(count: int, noun: str, said: str) -> None:
    assert count_of(count, noun) == said


def test_no_command_writes_a_plural_by_itself() -> None:
    """Where a number stands before a noun, `count_of` writes both."""
    plural = re.compile(rf"\}} ({COUNTED})\b")
    excused = {"local_cluster.py", "size.py", "segments.py"}  # numbers of two or more, or of bytes
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in SOURCES.glob("*.py")
        if path.name not in excused
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if plural.search(line)
    ]
    assert found == []


def test_completion_knows_every_command() -> None:
    assert set(command_of(whole_app()).commands) == set(COMMANDS)


@pytest.mark.parametrize("module", [skidway.client, skidway.testing])
def test_what_a_package_offers_can_be_listed(module: ModuleType) -> None:
    assert set(module.__all__) <= set(dir(module))


def test_a_topic_of_one_partition(bootstrap: str, name: str) -> None:
    CliRunner().invoke(topic.app, ["create", name, "-p", "1", "-b", bootstrap])
    shown = CliRunner().invoke(topic.app, ["describe", name, "-b", bootstrap]).stdout
    assert "1 partition, 0 messages, 0 B on disk" in shown


@pytest.mark.parametrize(
    "words",
    [
        ("create", "{topic}-x", "-c", "retention.md=1"),
        ("alter", "{topic}", "-c", "retention.md=1"),
        ("alter", "{topic}", "--append", "retention.md=1"),
    ],
)
def test_a_misspelt_topic_config(bootstrap: str, name: str, words: tuple[str, ...]) -> None:
    CliRunner().invoke(topic.app, ["create", name, "-b", bootstrap])
    ended = CliRunner().invoke(topic.app, [*(word.format(topic=name) for word in words), "-b", bootstrap])
    assert ended.exit_code == 1
    assert "retention.md" in ended.stderr
    assert "did you mean retention.ms?" in ended.stderr


def test_a_misspelt_topic_config_of_a_benchmark(bootstrap: str) -> None:
    ended = CliRunner().invoke(bench.app, ["produce", "--config", "segment.byte=1", "-b", bootstrap])
    assert "did you mean segment.bytes?" in ended.stderr


@pytest.mark.parametrize(("app", "said"), [(topic.app, "no such topic"), (group.app, "no such group")])
def test_deleting_what_is_not_there_asks_nothing(bootstrap: str, name: str, app: typer.Typer, said: str) -> None:
    ended = CliRunner().invoke(app, ["delete", name, "-b", bootstrap], input="y\n")
    assert ended.exit_code == 1
    assert said in ended.stderr
    assert "?" not in ended.stdout


def test_one_wrong_name_among_several_deletes_nothing(bootstrap: str, name: str) -> None:
    CliRunner().invoke(topic.app, ["create", name, "-b", bootstrap])
    assert CliRunner().invoke(topic.app, ["delete", name, f"{name}-x", "--yes", "-b", bootstrap]).exit_code == 1
    assert CliRunner().invoke(topic.app, ["describe", name, "-b", bootstrap]).exit_code == 0


def test_a_setting_the_broker_was_started_with() -> None:
    """From a flag, the environment or a file: the protocol does not tell them apart, so neither do we."""
    with Broker(environment={"SKIDWAY_TOPIC_DEFAULTS__RETENTION_MS": "7777777"}) as broker:
        at = ["-b", broker.bootstrap]
        CliRunner().invoke(topic.app, ["create", "a", *at])
        shown = CliRunner().invoke(topic.app, ["describe", "a", "--configs", *at]).stdout
    (line,) = [line for line in shown.splitlines() if line.startswith("retention.ms ")]
    assert line.split(maxsplit=2)[1:] == ["7777777", "broker settings"]
