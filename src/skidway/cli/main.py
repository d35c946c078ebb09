"""The command `skidway`. A command is one line in COMMANDS: a module with `main(arguments) -> int`.

Nothing is imported before the command is known, so that `skidway serve` is up at once.
"""

import sys
from importlib import import_module

EXIT_USAGE = 2

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("skidway.cli.serve", "run a broker"),
}


def usage() -> str:
    width = max(len(name) for name in COMMANDS)
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    return "\n".join(["usage: skidway COMMAND [...]", "", *lines, "", "skidway COMMAND --help tells more about one."])


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage())
        return 0 if words else EXIT_USAGE
    if words[0] in ("-V", "--version", "version"):
        from skidway import __version__

        print(f"skidway {__version__}")
        return 0
    if words[0] not in COMMANDS:
        print(_unknown(words[0]), file=sys.stderr)
        return EXIT_USAGE
    module, _ = COMMANDS[words[0]]
    code: int = import_module(module).main(words[1:])
    return code


def _unknown(word: str) -> str:
    import difflib

    close = difflib.get_close_matches(word, COMMANDS, n=1)
    hint = f"; did you mean {close[0]}?" if close else f"; known are {', '.join(COMMANDS)}"
    return f"skidway: unknown command {word}{hint}"
