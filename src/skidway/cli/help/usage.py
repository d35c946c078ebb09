"""Words of a command that make no sense: one line that says what is wrong and what was probably meant.

It looks the same for every command: `error: …` on standard error, exit code 2. Typer keeps its own copy of click, and
older ones use click itself, so exceptions and parameters are known here by their attributes.
"""

from collections.abc import Iterator
from typing import Any

import typer

from skidway.cli.help import misspelt, other_tools

UsageError: type[Exception] = typer.BadParameter.__bases__[0]

_PLAINER = {
    "Value error, ": "",
    "Input should be a valid integer, unable to parse string as an integer": "expected a whole number",
    "Input should be a valid number, unable to parse string as a number": "expected a number",
}
"""What Typer says of a value, in the words of the library that it asks, and what a person would say."""


def is_plea_for_help(error: Exception) -> bool:
    """Nothing was typed after the name of a group: Typer raises it with the help page as its message."""
    return type(error).__name__ == "NoArgsIsHelpError"


def sentence(error: Any, program: str) -> str:
    """What is wrong, what was meant, and where to read on."""
    context = error.ctx
    path = program if context is None else context.command_path
    if type(error).__name__ == "NoSuchOption" and context is not None:
        return unknown_option(path, context.command, error.option_name)
    text = " ".join(error.format_message().split()).rstrip(".")
    for said, meant in _PLAINER.items():
        text = text.replace(said, meant)
    return f"{text[:1].lower()}{text[1:]}; {path} --help shows what it takes"


def unknown_command(path: str, word: str, rest: list[str], known: list[str]) -> str:
    """`path` is `skidway` or `skidway COMMAND`, `rest` what follows the word."""
    within = path.partition(" ")[2]
    plural = other_tools.PLURALS.get(word)
    if not within and plural is not None and rest and not rest[0].startswith("-"):
        meant: str | None = f"{plural} {other_tools.SUBCOMMANDS[plural].get(rest[0], rest[0])}"
    else:
        words = other_tools.SUBCOMMANDS.get(within, {}) if within else other_tools.COMMANDS
        meant = words.get(word) or misspelt.closest(word, known)
    if meant is None:
        return f"{path} has no command {word}; its commands are {', '.join(known)}"
    return f"{path} has no command {word}; did you mean {path} {meant}?"


def unknown_option(path: str, command: Any, name: str) -> str:
    said = f"{path} has no option {name}"
    if inner := getattr(command, "commands", None):
        return f"{said}; {_of_a_group(path, inner, name)}"
    argument = _argument(command, name)
    if argument is not None:
        return f"{said}; name it without an option: {path} {argument}"
    meant = _option(command, name)
    if meant is None and name.startswith("--"):
        close = misspelt.closest(name, (each for each, _ in _options(command)))
        meant = close and _with_value(command, close)
    if meant is None:
        return f"{said}; {path} --help lists its options"
    return f"{path} has no option {name}; did you mean {meant}?"


def unknown_first_option(name: str) -> str:
    """Where a command should be: `skidway -b HOST:PORT …`."""
    said = f"skidway has no option {name}"
    if name in other_tools.MODES:
        return f"{said}; did you mean skidway {other_tools.MODES[name]}?"
    return f"{said}; options follow the command: skidway COMMAND {name} …, and skidway --help lists the commands"


def _of_a_group(path: str, inner: dict[str, Any], name: str) -> str:
    """Kafka's scripts have `--list` where we have `list`; and options of the command may stand before its name."""
    word = name.lstrip("-")
    subcommand = word if word in inner else other_tools.SUBCOMMANDS.get(path.partition(" ")[2], {}).get(word)
    if subcommand is not None:
        return f"did you mean {path} {subcommand}?"
    # Most people look before they change anything.
    for known, command in sorted(inner.items(), key=lambda each: each[0] not in ("list", "describe")):
        same = next((name for each, _ in _options(command, letters=True) if each == name), None)
        meant = (_with_value(command, same) if same else None) or _option(command, name)
        if meant is not None:
            return f"options follow the command, as in {path} {known} {meant}"
    return f"its commands are {', '.join(inner)}"


def _argument(command: Any, name: str) -> str | None:
    """`--topic orders`, where the topic is named without an option."""
    word = {"-g": "GROUP", "-t": "TOPIC"}.get(name, name.removeprefix("--").upper())
    shown = [str(each.metavar) for each in command.params if each.param_type_name == "argument"]
    return word if word in shown else None


def _option(command: Any, name: str) -> str | None:
    there = {each for each, _ in _options(command)}
    for candidate in other_tools.FLAGS.get(name, ()):
        option, _, value = candidate.partition(" ")
        if option in there:
            return candidate if value else _with_value(command, option)
    return None


def _with_value(command: Any, name: str) -> str:
    (metavar,) = {metavar for each, metavar in _options(command, letters=True) if each == name}
    return f"{name} {metavar}".rstrip()


def _options(command: Any, *, letters: bool = False) -> Iterator[tuple[str, str]]:
    """Each long name, and the placeholder of its value."""
    for option in command.params:
        if option.param_type_name == "option":
            for name in (*option.opts, *option.secondary_opts):
                if letters or name.startswith("--"):
                    yield name, (option.metavar or "").removesuffix("[,…]")
