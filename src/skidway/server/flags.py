"""The command line of the broker. Light on purpose: a broker is up in a fraction of a second.

FLAGS is what there is to say about the flags. `skidway serve --help` shows it in the layout of all other commands.
"""

import argparse
import gc
import os
import sys
from typing import NoReturn

import msgspec

from skidway.server.config import ConfigError, Settings, Value, load_settings
from skidway.server.listening import HTTP_OFF

CONFIG_VARIABLE = "SKIDWAY_CONFIG"
EXIT_USAGE = 2
EXIT_FAILED = 1
HELP_COLUMNS = 100


class WrongUsage(Exception):
    """The words are not those of the command; the message is for the person who typed them."""


class Flag(msgspec.Struct, frozen=True):
    name: str
    metavar: str
    help: str
    default: str | None = None
    """What holds without the flag, for people."""
    letter: str | None = None
    variable: str | None = None
    repeatable: bool = False


NO_HTTP = "--no-http"
AUTO_CREATE, NO_AUTO_CREATE = "--auto-create-topics", "--no-auto-create-topics"
FLAGS = (
    Flag("--config", "FILE", "A TOML file with settings.", variable=CONFIG_VARIABLE),
    Flag("--data-dir", "DIR", "Where the data is kept.", "data", letter="-d"),
    Flag(
        "--listen",
        "HOST:PORT",
        "Where it listens; port 0 means any free port; repeatable as NAME=HOST:PORT.",
        "127.0.0.1:9092",
        repeatable=True,
    ),
    Flag(
        "--advertise",
        "HOST:PORT",
        "Where clients connect to it; repeatable as NAME=HOST:PORT.",
        "--listen",
        repeatable=True,
    ),
    Flag(
        "--http",
        "HOST:PORT",
        "Where it answers HTTP; a broker on another port than 9092 does not, unless told where.",
        "127.0.0.1:8082",
    ),
    Flag(NO_HTTP, "", "Do not answer HTTP."),
    Flag("--node-id", "N", "The number of this node in the cluster.", "1"),
    Flag(
        "--cluster-id",
        "ID",
        "The id of the cluster.",
        "derived from --voters on the first start, random without them",
    ),
    Flag("--voters", "NODES", "The nodes that vote on the cluster's metadata, as N@HOST:PORT,….", "this node alone"),
    Flag("--roles", "ROLES", "broker, controller or both.", "broker,controller"),
    Flag("--rack", "NAME", "The rack of this broker: replicas are spread over racks."),
    Flag("--flush", "sync|os", "sync: acks=all waits for fsync; os: it does not.", "sync"),
    Flag(AUTO_CREATE, "", "Create topics on first use.", "yes"),
    Flag(NO_AUTO_CREATE, "", "Create topics only when an admin client asks for it."),
    Flag("--default-partitions", "N", "Partitions of a topic that is created without a number.", "1"),
    Flag("--default-replication-factor", "N", "Replicas of a topic that is created without a number.", "1"),
    Flag("--log-level", "LEVEL", "debug, info, warning or error.", "info"),
    Flag(
        "--set",
        "NAME=VALUE",
        "Any other setting, such as heartbeat_ms=100; repeatable.",
        repeatable=True,
    ),
    Flag("--ready-file", "FILE", "The file to write HOST:PORT to when the broker is ready."),
)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise WrongUsage(message)


def _layout(prog: str) -> argparse.HelpFormatter:
    """argparse lays out every flag as soon as it is added. Without a width it would measure the terminal each time."""
    return argparse.HelpFormatter(prog, width=HELP_COLUMNS)


def build_parser(program: str) -> argparse.ArgumentParser:
    parser = _Parser(prog=program, description="Run a broker.", allow_abbrev=False, formatter_class=_layout)
    for flag in FLAGS:
        names = [flag.name] if flag.letter is None else [flag.letter, flag.name]
        told = flag.help if flag.default is None else f"{flag.help} Default: {flag.default}."
        if flag.name == NO_AUTO_CREATE:
            continue  # argparse makes it from its counterpart
        if flag.name == NO_HTTP:
            parser.add_argument(*names, dest="http", action="store_const", const=HTTP_OFF, help=told)
        elif flag.name == AUTO_CREATE:
            parser.add_argument(*names, action=argparse.BooleanOptionalAction, help=told)
        elif flag.repeatable:
            parser.add_argument(*names, metavar=flag.metavar, action="append", help=told)
        else:
            parser.add_argument(*names, metavar=flag.metavar, help=told)
    return parser


def settings_from(arguments: argparse.Namespace) -> Settings:
    values: dict[str, Value] = {
        name: value for name, value in vars(arguments).items() if name not in ("config", "set", "ready_file")
    }
    assignments: dict[str, str] = {}
    for text in arguments.set or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"flag --set {text}: expected NAME=VALUE")
        assignments[name] = value
    file = arguments.config or os.environ.get(CONFIG_VARIABLE)
    return load_settings(file, os.environ, values, assignments)


def main(arguments: list[str] | None = None, program: str = "python -m skidway.server") -> int:
    try:
        return serve(build_parser(program).parse_args(arguments))
    except WrongUsage as error:
        return _complain(f"{error}; {program} --help lists the flags", EXIT_USAGE)


def serve(parsed: argparse.Namespace) -> int:
    """Until the broker is stopped; the exit code."""
    try:
        settings = settings_from(parsed)
    except ConfigError as error:
        return _complain(str(error), EXIT_USAGE)
    gc.disable()  # modules are no garbage; `run` turns the collector on when clients are served
    from skidway.server.main import StartError, run  # after the settings: a mistake there is reported at once

    try:
        run(settings, ready_file=parsed.ready_file)
    except StartError as error:
        return _complain(str(error), EXIT_FAILED)
    finally:
        gc.enable()
    return 0


def _complain(message: str, code: int) -> int:
    print(f"error: {message}", file=sys.stderr)
    return code
