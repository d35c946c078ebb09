"""Help pages as people read them: a flag shows no type, an argument shows its name in capitals."""

from typing import Any

from typer.main import Typer, get_command

from skidway.cli.help.usage import UsageError, unknown_command
from skidway.cli.output import misused
from skidway.cli.profile_option import offer


def command_of(app: Typer) -> Any:
    """The command behind an app, with the help of all its subcommands tidied, and `--profile` where it counts."""
    command = get_command(app)
    offer(command)
    _tidy(command)
    return command


def contents(summary: str, commands: dict[str, str], *, epilog: str) -> Typer:
    """An app that is only for its help page: what the commands are for. Nothing of them is loaded."""
    page = Typer(add_completion=False, pretty_exceptions_enable=False, help=summary, epilog=epilog)
    page.callback()(lambda: None)
    for name, what in commands.items():
        page.command(name, help=f"{what[0].upper()}{what[1:]}.")(lambda: None)
    return page


def _tidy(command: Any) -> None:
    # A command that answers `--help` itself has said so.
    command.context_settings.setdefault("help_option_names", ["--help", "-h"])
    given = command.get_params

    def get_params(context: Any) -> Any:
        # Also --help itself, which exists only from here on.
        parameters = given(context)
        for parameter in parameters:
            _tidy_parameter(parameter)
        return parameters

    command.get_params = get_params
    command.parse_args = _parsing(command)
    if hasattr(command, "commands"):
        command.resolve_command = _resolving(command)
    for subcommand in getattr(command, "commands", {}).values():
        _tidy(subcommand)


def _parsing(command: Any) -> Any:
    """An error says which command it is about; some of click's do not."""
    given = command.parse_args

    def parse_args(context: Any, words: list[str]) -> Any:
        try:
            return given(context, words)
        except UsageError as error:
            if getattr(error, "ctx", None) is None:
                error.ctx = context  # type: ignore[attr-defined]
            raise

    return parse_args


def _resolving(group: Any) -> Any:
    """A subcommand that does not exist is answered in our words."""
    given = group.resolve_command

    def resolve_command(context: Any, words: list[str]) -> Any:
        if not context.resilient_parsing and words[0] not in group.commands and not words[0].startswith("-"):
            misused(unknown_command(context.command_path, words[0], words[1:], list(group.commands)))
        return given(context, words)

    return resolve_command


def _tidy_parameter(parameter: Any) -> None:
    if parameter.param_type_name == "argument":
        if parameter.metavar is None:
            parameter.metavar = parameter.name.upper()
        # Newer Typers show a type beside the name; older ones never ask.
        parameter.display_type_rich = lambda ctx: None
    elif parameter.is_flag and parameter.metavar is None:
        parameter.metavar = ""
