"""One meaning, one flag, one letter, one text: what holds for the options of all commands."""

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from skidway.cli.help.completion import whole_app
from skidway.cli.help.help_pages import command_of

TWO_NAMES = {
    "-H": {"--header", "--headers"},  # one that is sent; all that are shown
    "-n": {"--count", "--seeds"},  # how many of what the command is about
    "-p": {"--partition", "--partitions"},  # which one; how many
    "-q": {"--names", "--quiet"},  # print less
    "-r": {"--regex", "--replication"},  # as rpk has both
    "-s": {"--size", "--seed"},  # bench and sim have nothing in common
}
"""Letters that stand for more than one option; all others stand for one."""

TWO_SHAPES = {
    "--config": {"FILE", "NAME=VALUE"},  # settings of a broker in a file; settings of a topic, as kafka-topics has it
    "--format": {"FORMAT", None},
    "--from": {"N", "WHERE"},  # the first seed; a place in a topic
    "--key": {"", "TEXT"},  # show keys; the key to send
    "--partition": {"N"},
    "--timestamp": {"", "TIME"},  # show times; the time to send
    "--to": {"N,N,…", "TOPIC", "WHERE"},  # brokers; a topic; a place in a topic
    "--wait": {"", "SECONDS", "TIME"},  # queues have times as 30s, too
}
"""Options whose values are not the same everywhere, although the word is."""

CHOICES = ("--acks", "--codec", "--format", "--isolation")

OWN_WORDS = {
    *TWO_SHAPES,
    "--all",
    "--batch",  # `size` reckons with compressed bytes
    "--bytes",
    "--count",  # bench fills a topic with them
    "--listen",  # `serve` may be given port 0
    "--json",  # one object a line where messages are printed
    "--nodes",
    "--null",
    "--partitions",
    "--rate",
    "--replication",
    "--set",  # for one node; for all
    "--state",  # of groups; of transactions
    "--timeout",  # for an answer, a controller, a move, a restart
    "--topic",
}
"""Options that say more than one thing; all others have one text."""

ONE_WORD = {
    "--bootstrap": ("--broker-list", "--bootstrap-server", "--brokers", "--server"),
    "--codec": ("--compression", "--compression-type"),
    "--config": ("--setting", "--option"),
    "--count": ("--limit", "--max-messages", "--messages-max", "--number"),
    "--data-dir": ("--dir", "--directory", "--folder"),
    "--dry-run": ("--check", "--preview", "--validate-only", "--what-if"),
    "--format": ("--output", "--output-format"),
    "--json": ("--as-json",),
    "--partition": ("--partition-id",),
    "--replication": ("--replicas", "--replication-factor"),
    "--timeout": ("--timeout-ms", "--patience"),
    "--yes": ("--force", "--no-confirm", "--assume-yes"),
}
"""What a thing is called, and what it is therefore not called."""


def leaves(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if not inner:
        yield " ".join(words), command
        return
    for name, one in inner.items():
        yield from leaves(one, (*words, name))


def all_options() -> dict[str, dict[str, Any]]:
    """Each long option, with the commands that have it."""
    found: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, command in leaves(command_of(whole_app())):
        context = command.context_class(command)
        for option in command.get_params(context):
            if option.param_type_name == "option" and option.name != "help":
                found[next(each for each in option.opts if each.startswith("--"))][name] = option
    return found


@pytest.fixture(scope="module")
def options() -> dict[str, dict[str, Any]]:
    return all_options()


def letters(option: Any) -> set[str]:
    return {each for each in option.opts if not each.startswith("--")}


def test_a_letter_stands_for_one_option(options: dict[str, dict[str, Any]]) -> None:
    names = defaultdict(set)
    for long, uses in options.items():
        for option in uses.values():
            for letter in letters(option):
                names[letter].add(long)
    assert {letter: found for letter, found in names.items() if len(found) > 1} == TWO_NAMES


def test_an_option_has_one_letter_everywhere(options: dict[str, dict[str, Any]]) -> None:
    differing = {
        long: {name: sorted(letters(option)) for name, option in uses.items()}
        for long, uses in options.items()
        if long not in ("--config", "--from") and len({frozenset(letters(option)) for option in uses.values()}) > 1
    }
    assert differing == {}
    # Two meanings: only one of them has the letter.
    assert all(letters(one) == {"-c"} for one in options["--config"].values() if one.metavar == "NAME=VALUE")
    assert all(letters(one) == {"-o"} for one in options["--from"].values() if one.metavar == "WHERE")


def test_an_option_takes_the_same_everywhere(options: dict[str, dict[str, Any]]) -> None:
    for long, uses in options.items():
        shapes = {option.metavar for option in uses.values()}
        assert len(shapes) == 1 or shapes == TWO_SHAPES.get(long), f"{long} takes {shapes}"


def test_every_value_has_a_placeholder(options: dict[str, dict[str, Any]]) -> None:
    """Without one the help page shows a type of Python. Choices show themselves."""
    missing = [
        f"{name} {long}"
        for long, uses in options.items()
        for name, option in uses.items()
        if option.metavar is None and long not in CHOICES
    ]
    assert missing == []


def test_an_option_says_the_same_everywhere(options: dict[str, dict[str, Any]]) -> None:
    several = {
        long: {name: option.help for name, option in uses.items()}
        for long, uses in options.items()
        if len({option.help for option in uses.values()}) > 1 and long not in OWN_WORDS
    }
    assert several == {}


def test_every_option_says_what_it_does(options: dict[str, dict[str, Any]]) -> None:
    odd = {
        f"{name} {long}": option.help
        for long, uses in options.items()
        for name, option in uses.items()
        if not option.help or not option.help.endswith(".") or re.match(r"(Of|That|Who|To this)\b", option.help)
    }
    assert odd == {}


def test_a_thing_has_one_name(options: dict[str, dict[str, Any]]) -> None:
    for name, others in ONE_WORD.items():
        assert name in options
        assert [other for other in others if other in options] == []
