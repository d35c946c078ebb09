"""`skidway` as a process: help, unknown words, completion, and errors that are one line."""

import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

PROGRAM = [sys.executable, "-c", "import sys; from skidway.cli.main import main; sys.exit(main())"]


def skidway(*words: str, stdin: bytes = b"", **environment: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SKIDWAY_")}
    return subprocess.run(
        [*PROGRAM, *words],
        input=stdin.decode(),
        capture_output=True,
        text=True,
        timeout=60,
        env={**kept, "NO_COLOR": "1", "COLUMNS": "100", **environment},
    )


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port where nobody listens, and that nobody else takes meanwhile."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        yield deaf.getsockname()[1]


def test_help_lists_every_command() -> None:
    shown = skidway("--help")
    assert shown.returncode == 0
    for command in ("serve", "topic", "produce", "consume", "group", "dlq", "inspect", "bench", "pipeline"):
        assert f"  {command} " in shown.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create"),
        ("topic", "list"),
        ("topic", "describe"),
        ("topic", "alter"),
        ("topic", "grow"),
        ("topic", "delete"),
        ("produce",),
        ("consume",),
        ("group", "list"),
        ("group", "describe"),
        ("group", "reset"),
        ("group", "delete"),
        ("dlq", "list"),
        ("dlq", "show"),
        ("dlq", "replay"),
        ("inspect", "log"),
        ("bench", "produce"),
        ("bench", "consume"),
        ("bench", "latency"),
    ],
    ids=" ".join,
)
def test_every_command_has_help_with_an_example(words: tuple[str, ...]) -> None:
    shown = skidway(*words, "--help")
    assert shown.returncode == 0
    assert f"Usage: skidway {' '.join(words)}" in shown.stdout
    assert "Example" in shown.stdout


def test_a_misspelt_command() -> None:
    ended = skidway("tpoic", "list")
    assert ended.returncode == 2
    assert "did you mean topic" in ended.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "list"),
        ("topic", "create", "a"),
        ("topic", "describe", "a"),
        ("topic", "delete", "a", "--yes"),
        ("produce", "a"),
        ("consume", "a"),
        ("group", "list"),
        ("group", "describe", "a"),
        ("group", "reset", "a", "--to", "earliest"),
        ("group", "delete", "a", "--yes"),
        ("dlq", "list"),
        ("dlq", "show", "a"),
        ("dlq", "replay", "a"),
        ("bench", "produce"),
    ],
    ids=" ".join,
)
def test_no_broker_is_one_line_and_exit_code_1(words: tuple[str, ...], deaf_port: int) -> None:
    ended = skidway(*words, SKIDWAY_BOOTSTRAP=f"127.0.0.1:{deaf_port}")
    assert ended.returncode == 1
    assert ended.stdout == ""
    expected = f"error: cannot reach 127.0.0.1:{deaf_port}: connection refused; is the broker running?\n"
    assert ended.stderr == expected


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("topic", "list", "-b", "a:b"), "the port must be a number"),
        (("consume", "a", "--from", "yesterday"), "expected beginning, end, an offset"),
        (("consume", "a", "-f", "--until", "5"), "give one of them"),
        (("topic", "alter", "a"), "nothing to alter"),
        (("group", "reset", "a"), "either --to WHERE or --shift"),
        (("group", "reset", "a", "--to", "1", "--shift", "-1"), "either --to WHERE or --shift"),
        (("group", "reset", "a", "--to", "yesterday"), "expected beginning, end, an offset"),
        (("dlq", "replay", "a", "--partition", "any"), "key or source"),
        (("bench", "latency", "--acks", "0"), "no latency to measure"),
    ],
)
def test_wrong_options_are_one_line_too(words: tuple[str, ...], said: str) -> None:
    ended = skidway(*words)
    assert ended.returncode == 2
    assert said in ended.stderr
    assert len(ended.stderr.splitlines()) == 1


def test_what_the_machine_refuses_is_one_line_too() -> None:
    ended = skidway("produce", "a", "--file", "/no/such/file")
    assert ended.returncode == 1
    assert ended.stderr == "error: /no/such/file: no such file or directory\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (
            "skidway ",
            ["serve", "cluster", "topic", "produce", "consume", "group", "dlq", "inspect", "bench", "pipeline", "size"],
        ),
        ("skidway to", ["topic"]),
        ("skidway topic d", ["describe", "delete"]),
        ("skidway serve --data", ["--data-dir"]),
        ("skidway consume x --fo", ["--follow", "--format"]),
    ],
)
def test_shell_completion(typed: str, offered: list[str]) -> None:
    completed = skidway(_SKIDWAY_COMPLETE="complete_bash", COMP_WORDS=typed, COMP_CWORD=str(len(typed.split(" ")) - 1))
    assert set(offered) == set(completed.stdout.split())


def test_the_completion_script_can_be_shown() -> None:
    """For the shell that it is called from, so it is called from one."""
    words = [sys.executable, "-c", PROGRAM[-1], "--show-completion"]
    command = f"{shlex.join(words)}; exit $?"  # more than one command: else bash would make room for it
    shown = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert "_SKIDWAY_COMPLETE" in shown.stdout, shown.stderr
