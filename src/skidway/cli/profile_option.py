"""`--profile NAME`, as an option of every command that asks a broker, and of the groups of such commands.

It is the same as `skidway --profile NAME` before the command. `offer` adds it wherever SKIDWAY_BOOTSTRAP counts, so
that no command has to declare it and none can lack it.
"""

import os
from typing import Annotated, Any

import typer
from typer.main import get_command

from skidway.cli.output import fail, misused
from skidway.cli.profiles import NAME_VARIABLE, BadProfile, chosen_settings, complete_profile


def offer(command: Any) -> bool:
    """Whether this command, or one within, asks a broker; those get the option."""
    inner = [offer(each) for each in getattr(command, "commands", {}).values()]
    names = [each.name for each in command.params if "SKIDWAY_BOOTSTRAP" in (each.envvar or "")]
    if not names and not any(inner):
        return False
    after = [each.name for each in command.params].index(names[0]) + 1 if names else 0
    command.params.insert(after, _option())
    return True


def _choose(context: typer.Context, name: str | None) -> None:
    """Before the other options are read: what the profile says is their default."""
    if name == "":
        misused("--profile needs a name; skidway profile list shows them")
    if name is not None:
        os.environ[NAME_VARIABLE] = name
    if context.resilient_parsing or hasattr(context.command, "commands"):
        return
    try:
        context.default_map = dict(chosen_settings())
    except BadProfile as error:
        fail(str(error))


def _declaring(
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile",
            metavar="NAME",
            help="The profile whose brokers to ask; see skidway profile --help.",
            is_eager=True,
            expose_value=False,
            callback=_choose,
            autocompletion=complete_profile,
            rich_help_panel="Connection",
        ),
    ] = None,
) -> None:
    """Typer makes options of a function's parameters only."""


def _option() -> Any:
    app = typer.Typer(add_completion=False)
    app.command()(_declaring)
    (option,) = get_command(app).params
    return option
