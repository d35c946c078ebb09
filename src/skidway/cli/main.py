"""The command `skidway`. A command is one line in COMMANDS: a module with `main(arguments) -> int`.

Nothing is imported before the command is known, so that `skidway serve` is up at once.
"""

import os
import sys
from importlib import import_module

EXIT_USAGE = 2
COMPLETE_VARIABLE = "_SKIDWAY_COMPLETE"

COMMANDS: dict[str, tuple[str, str]] = {
    "serve": ("skidway.cli.commands.serve", "run a broker"),
    "cluster": (
        "skidway.cli.commands.cluster",
        "run a cluster on this machine; check, describe, drain and balance any cluster",
    ),
    "topic": ("skidway.cli.commands.topic", "create, list, describe, alter, grow, trim, reassign and delete topics"),
    "produce": ("skidway.cli.commands.produce", "send messages from standard input or a file"),
    "consume": ("skidway.cli.commands.consume", "print messages, from any offset or time, and wait for more"),
    "queue": (
        "skidway.cli.commands.queue",
        "create, list, describe, peek into, purge and delete queues; send and receive",
    ),
    "group": ("skidway.cli.commands.group", "list, describe, reset and delete consumer groups"),
    "transaction": (
        "skidway.cli.commands.transaction",
        "list, describe and abort transactions; find those that hang",
    ),
    "dlq": ("skidway.cli.commands.dlq", "list, show and replay dead letters"),
    "pipeline": ("skidway.cli.commands.pipeline", "run ready Spark pipelines over topics"),
    "config": ("skidway.cli.commands.config", "show and change settings of brokers"),
    "profile": ("skidway.cli.commands.profile", "save the addresses of brokers under a name"),
    "size": ("skidway.cli.commands.size", "compute how many brokers, how much disk and network a load needs"),
    "inspect": ("skidway.cli.commands.inspect", "dump and verify a partition's files"),
    "sim": ("skidway.cli.commands.sim", "run simulated clusters with faults, from seeds"),
    "doctor": ("skidway.cli.commands.doctor", "check this machine and its brokers, and say what to do"),
    "cheat": ("skidway.cli.commands.cheat", "print ten commands that are easy to forget"),
    "bench": ("skidway.cli.commands.bench", "measure throughput and latency of a broker"),
}


def main(arguments: list[str] | None = None) -> int:
    words = list(sys.argv[1:] if arguments is None else arguments)
    if COMPLETE_VARIABLE in os.environ or words[:1] in (["--install-completion"], ["--show-completion"]):
        from skidway.cli.help import completion

        return completion.main(words)
    if words and words[0].partition("=")[0] == "--profile":
        _, equals, name = words.pop(0).partition("=")
        if not equals and words:
            name = words.pop(0)
        if not name:
            return _refuse("--profile needs a name; skidway profile list shows them")
        os.environ["SKIDWAY_PROFILE"] = name
    if words[:1] == ["help"] and words[1:2] and words[1] in COMMANDS:
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help", "help"):
        from skidway.cli.help import front_page

        front_page.show()
        return 0 if words else EXIT_USAGE
    if words[0] in ("-V", "--version", "version"):
        from skidway import __version__

        print(f"skidway {__version__}")
        return 0
    if words[0] not in COMMANDS:
        from skidway.cli.help import usage

        if words[0].startswith("-"):
            return _refuse(usage.unknown_first_option(words[0]))
        return _refuse(usage.unknown_command("skidway", words[0], words[1:], list(COMMANDS)))
    module, _ = COMMANDS[words[0]]
    code: int = import_module(module).main(words[1:])
    return code


def _refuse(message: str) -> int:
    from skidway.cli.output import complain

    complain(message)
    return EXIT_USAGE
