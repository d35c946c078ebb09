"""Shell completion: `skidway --install-completion`, `skidway --show-completion`, and what the shell then calls.

The commands are loaded one by one when they run; only here are they all put together, because the shell wants to know
what may follow any word.
"""

from importlib import import_module

import typer

from skidway.cli.help.help_pages import command_of
from skidway.cli.main import COMMANDS, COMPLETE_VARIABLE


def whole_app() -> typer.Typer:
    """Every command of COMMANDS, so that a new one cannot be forgotten here."""
    whole = typer.Typer(pretty_exceptions_enable=False, help="Skidway's command line.")
    for name, (module, _) in COMMANDS.items():
        # `serve` reads its flags with argparse to be up sooner: its page knows them too.
        app: typer.Typer = import_module("skidway.cli.help.serve_page" if name == "serve" else module).app
        if app.registered_callback is None:
            # One command without subcommands.
            (command,) = app.registered_commands
            assert command.callback is not None
            whole.command(name)(command.callback)
        else:
            whole.add_typer(app, name=name)
    return whole


def main(words: list[str]) -> int:
    try:
        command_of(whole_app()).main(words, prog_name="skidway", complete_var=COMPLETE_VARIABLE)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0
    return 0
