"""`skidway doctor`: checks this machine and the brokers it reaches, and says what to do about each problem.

Exit code 0 if every check is ok, 1 with a warning, 2 with a failure, as `cluster health`.
"""

import os
from typing import Annotated, Any

import typer

from skidway.cli.findings import Findings
from skidway.cli.output import AsJson, Timeout, friendly, print_json, run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

ANSWER_S = 5.0


@app.command(
    epilog="Examples: skidway doctor | skidway doctor --data-dir /var/lib/skidway --listen 0.0.0.0:9092 "
    "| skidway doctor -b kafka-1.example:9092"
)
@friendly
def doctor(
    config: Annotated[
        str | None,
        typer.Option("--config", metavar="FILE", help="A TOML file with settings.", envvar="SKIDWAY_CONFIG"),
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option("--data-dir", "-d", metavar="DIR", help="Where the data is kept.", show_default="data")
    ] = None,
    listen: Annotated[
        list[str] | None,
        typer.Option("--listen", metavar="HOST:PORT", help="Where it listens.", show_default="127.0.0.1:9092"),
    ] = None,
    advertise: Annotated[
        list[str] | None,
        typer.Option(
            "--advertise",
            metavar="HOST:PORT",
            help="Where clients connect to it; repeatable as NAME=HOST:PORT.",
            show_default="--listen",
        ),
    ] = None,
    as_json: AsJson = False,
    bootstrap: Annotated[
        str | None,
        typer.Option(
            "--bootstrap",
            "-b",
            envvar="SKIDWAY_BOOTSTRAP",
            metavar="HOST:PORT[,…]",
            help="Brokers to ask first.",
            show_default="the broker on this machine, if one runs",
            rich_help_panel="Connection",
        ),
    ] = None,
    timeout: Timeout = ANSWER_S,
) -> None:
    """Check this machine and the brokers it reaches: versions, clock, disk, descriptors, port, advertised address,
    health. Exit code 0: all ok, 1: warnings, 2: failures."""
    found = Findings()
    flags: dict[str, Any] = {"data_dir": data_dir, "listen": listen or None, "advertise": advertise or None}
    examine(found, flags, config, bootstrap, timeout)
    if as_json:
        print_json(found.document())
    else:
        found.show()
    raise typer.Exit(int(found.worst))


def examine(
    found: Findings, flags: dict[str, Any], config: str | None, bootstrap: str | None, timeout_s: float
) -> None:
    from skidway.cli import broker_checks, machine_checks
    from skidway.server.config import ConfigError, Settings, load_settings

    clock = machine_checks.ClockWatch()
    machine_checks.check_versions(found)
    try:
        settings = load_settings(config, os.environ, flags)
        found.ok("settings", f"valid{f' ({config})' if config else ''}")
    except ConfigError as error:
        found.fail("settings", str(error), "correct it: a broker does not start with it")
        settings = Settings()
    machine_checks.check_descriptors(found, settings.limits)
    machine_checks.check_disk(found, settings.data_dir)
    asked = bootstrap
    answering = machine_checks.check_ports(found, settings)
    if answering is not None and asked is None:
        asked = str(answering)
    if asked is None:
        machine_checks.check_advertised_setting(found, settings)
        found.ok("broker", f"none answers on {settings.listen}; skidway serve starts one")
    else:
        broker_checks.check_brokers(found, asked, timeout_s)
    clock.check(found)


def main(arguments: list[str]) -> int:
    return run(app, "skidway doctor", arguments)
