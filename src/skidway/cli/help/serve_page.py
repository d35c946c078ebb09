"""The flags of `skidway serve` as Typer knows options: for its help page, for usage errors and for completion."""

import inspect
from typing import Annotated, Any

import typer

from skidway.server.flags import FLAGS, Flag

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def serve(**flags: Any) -> None:
    """Run a broker until Ctrl-C or SIGTERM."""


def _annotation(flag: Flag) -> Any:
    names = [flag.name] if flag.letter is None else [flag.name, flag.letter]
    option = typer.Option(
        *names,
        metavar=flag.metavar,
        help=flag.help,
        envvar=flag.variable,
        show_default=flag.default if flag.default is not None else False,
    )
    kind: Any = list[str] if flag.repeatable else str if flag.metavar else bool
    return Annotated[kind | None, option]


def _parameters() -> dict[str, Any]:
    return {flag.name.strip("-").replace("-", "_"): _annotation(flag) for flag in FLAGS}


serve.__annotations__ = _parameters()
serve.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=option)
        for name, option in serve.__annotations__.items()
    ]
)
app.command(epilog="Examples: skidway serve --data-dir data | skidway serve --listen 127.0.0.1:9093")(serve)
