"""`skidway` as it is typed: help, unknown words, completion, and errors that are one line; some of it as a process."""

import io
import os
import shlex
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from skidway.cli.help import other_tools
from skidway.cli.help.completion import whole_app
from skidway.cli.help.help_pages import command_of
from skidway.cli.main import COMMANDS, main

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


Here = Callable[..., tuple[int, str, str]]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Here:
    """The same without a process: the exit code, and what was printed where."""
    for name in [name for name in os.environ if name.startswith("SKIDWAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))

    def run(*words: str) -> tuple[int, str, str]:
        code = main(list(words))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def deaf_port() -> Iterator[int]:
    """A port where nobody listens, and that nobody else takes meanwhile."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        yield deaf.getsockname()[1]


def test_help_lists_every_command() -> None:
    shown = skidway("--help")
    assert shown.returncode == 0
    for command in COMMANDS:
        assert f"│ {command} " in shown.stdout


@pytest.mark.parametrize(
    "words",
    [
        ("serve",),
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
        ("transaction", "list"),
        ("transaction", "describe"),
        ("transaction", "abort"),
        ("transaction", "hanging"),
        ("dlq", "list"),
        ("dlq", "show"),
        ("dlq", "redrive"),
        ("inspect", "log"),
        ("bench", "produce"),
        ("bench", "consume"),
        ("bench", "latency"),
    ],
    ids=" ".join,
)
def test_every_command_has_help_with_an_example(here: Here, words: tuple[str, ...]) -> None:
    code, shown, _ = here(*words, "--help")
    assert code == 0
    assert f"Usage: skidway {' '.join(words)}" in shown
    assert "Example" in shown


def test_a_misspelt_command() -> None:
    ended = skidway("tpoic", "list")
    assert ended.returncode == 2
    assert "did you mean skidway topic?" in ended.stderr


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("create", "skidway has no command create; did you mean skidway topic create?"),
        ("lag", "skidway has no command lag; did you mean skidway group describe?"),
        ("start", "skidway has no command start; did you mean skidway serve?"),
        ("ls", "skidway has no command ls; did you mean skidway topic list?"),
        ("topics", "skidway has no command topics; did you mean skidway topic list?"),
        ("topics rm orders", "skidway has no command topics; did you mean skidway topic delete?"),
        ("topic move orders", "skidway topic has no command move; did you mean skidway topic reassign?"),
        ("topic lst", "skidway topic has no command lst; did you mean skidway topic list?"),
        ("group seek g", "skidway group has no command seek; did you mean skidway group reset?"),
        ("topic --list", "skidway topic has no option --list; did you mean skidway topic list?"),
        (
            "topic --port 9092",
            "skidway topic has no option --port; options follow the command,"
            " as in skidway topic list --bootstrap HOST:PORT",
        ),
        (
            "topic -b x:1 list",
            "skidway topic has no option -b; options follow the command, as in skidway topic list -b HOST:PORT",
        ),
        ("topic list --brokers x:1", "skidway topic list has no option --brokers; did you mean --bootstrap HOST:PORT?"),
        (
            "consume orders --bootstrap-server=x:1",
            "skidway consume has no option --bootstrap-server; did you mean --bootstrap HOST:PORT?",
        ),
        ("serve --port 1", "skidway serve has no option --port; did you mean --listen HOST:PORT?"),
        ("cluster start --port 1", "skidway cluster start has no option --port; did you mean --base-port PORT?"),
        (
            "topic create --topic orders",
            "skidway topic create has no option --topic; name it without an option: skidway topic create TOPIC",
        ),
        ("consume -t orders", "skidway consume has no option -t; name it without an option: skidway consume TOPIC"),
        (
            "consume a --from-beginning",
            "skidway consume has no option --from-beginning; did you mean --from beginning?",
        ),
        ("consume a --folow", "skidway consume has no option --folow; did you mean --follow?"),
        ("-L", "skidway has no option -L; did you mean skidway cluster describe?"),
        (
            "-b x:1 topic list",
            "skidway has no option -b; options follow the command: skidway COMMAND -b …, and skidway --help lists"
            " the commands",
        ),
    ],
)
def test_words_and_flags_of_other_tools(here: Here, typed: str, said: str) -> None:
    assert here(*typed.split()) == (2, "", f"error: {said}\n")


def test_words_of_other_tools_lead_to_what_exists() -> None:
    whole = command_of(whole_app()).commands
    assert set(other_tools.COMMANDS).isdisjoint(COMMANDS)
    for meant in (*other_tools.COMMANDS.values(), *other_tools.MODES.values()):
        command, *rest = meant.split()
        inner = getattr(whole[command], "commands", {})
        assert not rest or rest[0].startswith("--") or rest[0] in inner, meant
    for command, words in other_tools.SUBCOMMANDS.items():
        inner = whole[command].commands
        assert set(words).isdisjoint(inner), command
        assert set(words.values()) <= set(inner), command
    leaves = [one for each in whole.values() for one in getattr(each, "commands", {"": each}).values()]
    options = {name for one in leaves for option in one.params for name in option.opts}
    for name, candidates in other_tools.FLAGS.items():
        assert {each.split()[0] for each in candidates} <= options, name


EVERYWHERE = [
    pytest.param(words, id=" ".join(words))
    for words in (
        ("serve",),
        ("topic", "list"),
        ("consume",),
        ("cluster", "start"),
        ("size",),
        ("doctor",),
        ("pipeline", "run", "archive"),
        ("sim", "run"),
    )
]


@pytest.mark.parametrize("words", EVERYWHERE)
def test_usage_errors_look_the_same_everywhere(here: Here, words: tuple[str, ...]) -> None:
    path = f"skidway {' '.join(words)}"
    said = f"error: {path} has no option --no-such-thing-at-all; {path} --help lists its options\n"
    assert here(*words, "--no-such-thing-at-all") == (2, "", said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("serve", "--listen"), "option '--listen' requires an argument; skidway serve --help shows what it takes"),
        (
            ("topic", "list", "--timeout"),
            "option '--timeout' requires an argument; skidway topic list --help shows what it takes",
        ),
        (("topic", "create"), "missing argument 'TOPIC'; skidway topic create --help shows what it takes"),
        (("serve", "--flush", "never"), "flush in flag --flush: expected one of 'sync', 'os', got 'never'"),
        (("--profile",), "--profile needs a name; skidway profile list shows them"),
        (
            ("consume", "x", "--isolation", "read_comitted"),
            "invalid value for '--isolation': 'read_comitted' is not one of 'read_uncommitted', 'read_committed'; "
            "skidway consume --help shows what it takes",
        ),
        (
            ("topic", "create", "x", "-p", "many"),
            "invalid value for '--partitions' / '-p': expected a whole number; "
            "skidway topic create --help shows what it takes",
        ),
    ],
)
def test_a_usage_error_is_one_line(here: Here, words: tuple[str, ...], said: str) -> None:
    assert here(*words) == (2, "", f"error: {said}\n")


@pytest.mark.parametrize("words", [(), ("serve",), ("topic",), ("topic", "list"), ("pipeline", "run")], ids=" ".join)
def test_help_pages_look_the_same_everywhere(here: Here, words: tuple[str, ...]) -> None:
    code, shown, _ = here(*words, "--help")
    assert code == 0
    lines = [line.strip() for line in shown.splitlines()]
    assert lines[1].startswith(" ".join(["Usage: skidway", *words, "[OPTIONS]"]))
    assert any(line.startswith("╭─ Options ─") for line in lines)
    assert "Show this message and exit." in shown


def test_the_front_page_shows_no_default_of_a_profile(
    here: Here, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert here("profile", "set", "staging", "-b", "kafka-1.example:9092")[0] == 0
    code, shown, _ = here("--help")
    assert code == 0
    assert "default" not in shown


def test_a_question_that_is_not_answered_changes_nothing(
    here: Here, monkeypatch: pytest.MonkeyPatch, bootstrap: str, name: str
) -> None:
    assert here("topic", "create", name, "-b", bootstrap)[0] == 0
    for answer in ("n\n", ""):
        monkeypatch.setattr("sys.stdin", io.StringIO(answer))
        code, _, said = here("topic", "delete", name, "-b", bootstrap)
        assert code == 1
        assert said.endswith("\naborted: nothing was changed; --yes answers the question\n")
    assert here("topic", "describe", name, "-b", bootstrap)[0] == 0


def test_serve_loads_no_help_pages() -> None:
    """Typer and rich take longer to load than a broker takes to start."""
    program = (
        "import sys; import skidway.cli.main, skidway.cli.commands.serve; print({'typer', 'rich'} & set(sys.modules))"
    )
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert loaded.stdout == "set()\n", loaded.stderr


def test_a_group_without_a_command_shows_its_help(here: Here) -> None:
    for words in ((), ("topic",), ("pipeline", "run")):
        code, shown, _ = here(*words)
        assert code == 2
        assert "╭─ Commands ─" in shown


@pytest.mark.parametrize("words", [("topic", "-h"), ("help", "topic"), ("topic", "create", "-h"), ("consume", "-h")])
def test_help_is_found_where_people_look_for_it(here: Here, words: tuple[str, ...]) -> None:
    code, shown, _ = here(*words)
    assert code == 0
    assert "Usage: skidway " in shown


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
        ("dlq", "redrive", "a"),
        ("bench", "produce"),
    ],
    ids=" ".join,
)
def test_no_broker_is_one_line_and_exit_code_1(
    here: Here, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], deaf_port: int
) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", f"127.0.0.1:{deaf_port}")
    said = f"error: cannot reach 127.0.0.1:{deaf_port}: connection refused; is the broker running?\n"
    assert here(*words) == (1, "", said)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("topic", "list", "-b", "a:b"), "the port must be a number"),
        (("consume", "a", "--from", "yesterday"), "expected beginning, end, an offset"),
        (("consume", "a", "--follow", "--until", "5"), "give one of them"),
        (("consume", "a", "-f", "--from"), "to wait for more messages use --follow"),
        (("consume", "a", "-f", "%q"), "%q is not known; there are %t (topic)"),
        (("consume", "a", "-f", "%s\\q"), "is not known; there are"),
        (("consume", "a", "--no-commit"), "--no-commit is for --group"),
        (("consume", "a", "-g", "g", "-p", "0"), "a group decides which partitions"),
        (("produce", "a", "-H", "x"), "expected NAME=VALUE"),
        (("produce", "a", "--timestamp", "end"), "'end' is not a time"),
        (("profile", "set", "a"), "nothing to set"),
        (("topic", "alter", "a"), "nothing to alter"),
        (("group", "reset", "a"), "either --to WHERE or --shift"),
        (("group", "reset", "a", "--to", "1", "--shift", "-1"), "either --to WHERE or --shift"),
        (("group", "reset", "a", "--to", "yesterday"), "expected beginning, end, an offset"),
        (("dlq", "redrive", "a", "--partition-by", "any"), "key or source"),
        (("bench", "latency", "--acks", "0"), "no latency to measure"),
    ],
)
def test_wrong_options_are_one_line_too(here: Here, words: tuple[str, ...], said: str) -> None:
    code, _, printed = here(*words)
    assert code == 2
    assert said in printed
    assert len(printed.splitlines()) == 1


def test_what_the_machine_refuses_is_one_line_too() -> None:
    ended = skidway("produce", "a", "--file", "/no/such/file")
    assert ended.returncode == 1
    assert ended.stderr == "error: /no/such/file: no such file or directory\n"


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("skidway ", list(COMMANDS)),
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


@pytest.mark.parametrize("words", [("group", "reset", "g", "--to", "0"), ("dlq", "redrive", "a-dlq")], ids=" ".join)
def test_execute_and_dry_run_contradict_each_other(
    here: Here, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], deaf_port: int
) -> None:
    monkeypatch.setenv("SKIDWAY_BOOTSTRAP", f"127.0.0.1:{deaf_port}")
    code, _, said = here(*words, "--execute", "--dry-run")
    assert code == 2
    assert "give one of them" in said
    assert "connection refused" in here(*words, "--dry-run")[2]
