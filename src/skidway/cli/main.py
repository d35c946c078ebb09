"""The command `skidway`. A command is one line in COMMANDS: a module with `main(arguments) -> int`.

Nothing is imported before the command is known, so that `skidway serve` is up at once.
"""

import os
import sys
from importlib import import_module

EXIT_USAGE = 2
COMPLETE_VARIABLE = "_SKIDWAY_COMPLETE"

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("skidway.cli.serve", "run a broker"),
    "cluster": ("skidway.cli.cluster", "run a cluster on this machine; describe, drain and balance any"),
    "topic": ("skidway.cli.topic", "make, list, describe, alter, grow, move and delete topics"),
    "produce": ("skidway.cli.produce", "send messages from standard input or a file"),
    "consume": ("skidway.cli.consume", "print messages, from any place, following or not"),
    "group": ("skidway.cli.group", "list, describe, reset and delete consumer groups"),
    "dlq": ("skidway.cli.dlq", "list, show and replay dead letters"),
    "pipeline": ("skidway.cli.pipeline", "run ready Spark pipelines over topics"),
    "size": ("skidway.cli.size", "how many brokers, how much disk and network a load needs"),
    "inspect": ("skidway.cli.inspect", "dump and verify a partition's files"),
    "sim": ("skidway.cli.sim", "run simulated clusters with faults, from seeds"),
    "bench": ("skidway.cli.bench", "measure throughput and latency of a broker"),
}


def usage() -> str:
    width = max(len(name) for name in COMMANDS)
    lines = [f"  {name:<{width}}  {summary}" for name, (_, summary) in COMMANDS.items()]
    more = ("skidway COMMAND --help tells more about one.", "skidway --install-completion teaches your shell.")
    return "\n".join(["usage: skidway COMMAND [...]", "", *lines, "", *more])


def main(arguments: list[str] | None = None) -> int:
    words = sys.argv[1:] if arguments is None else arguments
    if COMPLETE_VARIABLE in os.environ or words[:1] in (["--install-completion"], ["--show-completion"]):
        from skidway.cli import completion

        return completion.main(words)
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
