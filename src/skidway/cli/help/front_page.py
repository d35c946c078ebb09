"""`skidway --help`: all commands with what each is for, in the layout of their own help pages. No command is loaded."""

from typing import Annotated

import typer

from skidway.cli.help.help_pages import contents
from skidway.cli.main import COMMANDS
from skidway.cli.output import run

SUMMARY = "A Kafka-compatible message broker and cluster, and the tools for it."
EPILOG = "skidway COMMAND --help explains a command. skidway cheat prints ten commands to begin with."


def app() -> typer.Typer:
    summaries = {name: summary for name, (_, summary) in COMMANDS.items()}
    page = contents(SUMMARY, summaries, epilog=EPILOG)
    page.callback()(_options)
    return page


def _options(
    profile: Annotated[
        str | None,
        typer.Option("--profile", metavar="NAME", help="The profile whose brokers to ask; see skidway profile --help."),
    ] = None,
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and exit.")] = False,
    install: Annotated[
        bool, typer.Option("--install-completion", help="Let your shell complete commands and names.")
    ] = False,
    show: Annotated[bool, typer.Option("--show-completion", help="Print the script for that, to install by hand.")] = (
        False
    ),
) -> None:
    pass


def show() -> int:
    return run(app(), "skidway", ["--help"], profiled=False)
