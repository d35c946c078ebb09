"""The command line of the broker. Light on purpose: a broker is up in a fraction of a second."""

import argparse
import os
import sys

from skidway.server.config import ConfigError, Settings, Value, load_settings

CONFIG_VARIABLE = "SKIDWAY_CONFIG"
EXIT_USAGE = 2
EXIT_FAILED = 1


def build_parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=program, description="Run a broker.", allow_abbrev=False)
    flag = parser.add_argument
    flag("--config", metavar="FILE", help=f"TOML file with settings (or {CONFIG_VARIABLE})")
    flag("--data-dir", metavar="DIR", help="where the logs are kept (data)")
    flag("--listen", metavar="HOST:PORT", help="127.0.0.1:9092; port 0 takes any free one")
    flag("--advertise", metavar="HOST:PORT", help="what clients are told to connect to")
    flag("--node-id", metavar="N", help="the broker's number in its cluster (1)")
    flag(
        "--cluster-id",
        metavar="ID",
        help="unless given: follows from --voters on the first start, or is made up without them; then kept",
    )
    flag("--voters", metavar="N@HOST:PORT,...", help="the nodes that keep the cluster's metadata (this one, alone)")
    flag("--roles", metavar="ROLES", help="broker, controller or both (broker,controller)")
    flag("--rack", metavar="NAME", help="where the broker stands: replicas are spread over racks")
    flag("--flush", metavar="sync|os", help="whether acks=all waits for the disk (sync)")
    flag("--auto-create-topics", action=argparse.BooleanOptionalAction, help="make topics on first use (yes)")
    flag("--default-partitions", metavar="N", help="partitions of topics made without a number (1)")
    flag("--default-replication-factor", metavar="N", help="likewise replicas (1)")
    flag("--log-level", metavar="LEVEL", help="debug, info, warning or error (info)")
    flag(
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="any other setting, such as limits.connections_max=500 or topic_defaults.retention.ms=60000",
    )
    flag("--ready-file", metavar="FILE", help="written with HOST:PORT once the broker serves")
    return parser


def settings_from(arguments: argparse.Namespace) -> Settings:
    values: dict[str, Value] = {
        name: value for name, value in vars(arguments).items() if name not in ("config", "set", "ready_file")
    }
    assignments: dict[str, str] = {}
    for text in arguments.set:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"flag --set {text}: expected NAME=VALUE")
        assignments[name] = value
    file = arguments.config or os.environ.get(CONFIG_VARIABLE)
    return load_settings(file, os.environ, values, assignments)


def main(arguments: list[str] | None = None, program: str = "python -m skidway.server") -> int:
    parsed = build_parser(program).parse_args(arguments)
    try:
        settings = settings_from(parsed)
    except ConfigError as error:
        print(f"skidway: {error}", file=sys.stderr)
        return EXIT_USAGE
    from skidway.server.main import StartError, run  # after the settings: a mistake there is told at once

    try:
        run(settings, ready_file=parsed.ready_file)
    except StartError as error:
        print(f"skidway: {error}", file=sys.stderr)
        return EXIT_FAILED
    return 0
