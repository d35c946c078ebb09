"""What all commands share: options, how errors end a command, how tables, numbers and progress are shown.

A failure a user can cause is one line on standard error and exit code 1, or 2 where the words of the command make no
sense; Ctrl-C is 130; a reader that went away
(`| head`) is no failure. Tables and progress are for people at a terminal; `--json` is for scripts and never changes
with the width of a window.
"""

import functools
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, ParamSpec, TypeVar

import typer

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_DAMAGED = 3
EXIT_INCOMPLETE = 4
"""Some of it was done, and some could not be."""
EXIT_BUSY = 75
"""Somebody else is at it; try again later. As sysexits.h has it (EX_TEMPFAIL)."""
EXIT_INTERRUPTED = 130

Bootstrap = Annotated[
    str,
    typer.Option(
        "--bootstrap",
        "-b",
        envvar="SKIDWAY_BOOTSTRAP",
        metavar="HOST:PORT[,…]",
        help="Brokers to ask first.",
        rich_help_panel="Connection",
    ),
]
Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", metavar="SECONDS", help="How long to wait for an answer.", min=0.1, rich_help_panel="Connection"
    ),
]
ControllerTimeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        metavar="SECONDS",
        help="How long to wait for an answer, and for a controller.",
        min=0.1,
        show_default="30, and 5 for a controller",
        rich_help_panel="Connection",
    ),
]
"""Of commands that may need the controller."""
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
DEFAULT_TIMEOUT_S = 30.0
CONTROLLER_WAIT_S = 5.0
"""One that takes over needs less; a majority of voters that is not there may never come."""

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def group(summary: str) -> typer.Typer:
    """An app of several commands."""
    app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False, help=summary)
    # Without this an app with one command would take that command's name away.
    app.callback()(lambda: None)
    return app


def run(app: typer.Typer, program: str, arguments: list[str], *, profiled: bool = True) -> int:
    """A command's app, as `skidway.cli.main` calls it. `profiled`: the profile in force gives defaults to options."""
    from skidway.cli.help import usage
    from skidway.cli.help.help_pages import command_of

    command = command_of(app)
    try:
        code = command.main(
            arguments,
            prog_name=program,
            standalone_mode=False,
            default_map=_defaults(command) if profiled else None,
        )
    except typer.Exit as ending:
        return ending.exit_code
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except typer.Abort:
        # Questions are asked before anything is changed.
        typer.echo("\naborted: nothing was changed; --yes answers the question", err=True)
        return EXIT_FAILED
    except usage.UsageError as error:
        if usage.is_plea_for_help(error):
            typer.echo(error, nl=False)
        else:
            complain(usage.sentence(error, program))
        return EXIT_USAGE
    return code if isinstance(code, int) else 0


def _defaults(command: Any) -> dict[str, Any]:
    """What the profile says, for the command and its subcommands, as their help pages show it.

    `profile_option` reads it again when the command runs, and refuses what is wrong with it.
    """
    from skidway.cli.profiles import BadProfile, chosen_settings

    try:
        settings: dict[str, Any] = dict(chosen_settings())
    except BadProfile:
        return {}
    return {**settings, **dict.fromkeys(getattr(command, "commands", {}), settings)}


def connect(bootstrap: str, timeout_s: float | None) -> "Cluster":
    """For commands that may need the controller. Who says how long to wait is taken at their word."""
    from skidway.blocking_client.cluster import Cluster

    return Cluster(
        bootstrap,
        client_id="skidway-cli",
        timeout_ms=int((DEFAULT_TIMEOUT_S if timeout_s is None else timeout_s) * 1000),
        controller_wait_ms=int(CONTROLLER_WAIT_S * 1000) if timeout_s is None else None,
    )


def complain(message: str) -> None:
    """The command has failed; the caller chooses its exit code."""
    typer.secho(f"error: {harmless(message)}", fg=typer.colors.RED, err=True)


def fail(message: str, code: int = EXIT_FAILED) -> NoReturn:
    complain(message)
    raise typer.Exit(code)


def harmless(text: str) -> str:
    """On one line, and unable to command a terminal."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def warn(message: str) -> None:
    """The command goes on."""
    typer.secho(f"warning: {harmless(message)}", fg=typer.colors.YELLOW, err=True)


def misused(message: str) -> NoReturn:
    """The words of the command make no sense, whatever the broker holds."""
    fail(message, EXIT_USAGE)


def friendly(command: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Turn what a user or a broker can cause into one line; anything else is a bug and keeps its traceback."""

    @functools.wraps(command)
    def wrapped(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        from skidway.blocking_client.errors import BadAddress, BrokerError, ClientError
        from skidway.errors import ProtocolError

        try:
            return command(*args, **kwargs)
        except BrokenPipeError:
            _silence_stdout()
            raise typer.Exit(0) from None
        except KeyboardInterrupt:
            raise typer.Exit(EXIT_INTERRUPTED) from None
        except BadAddress as error:
            misused(str(error))
        except BrokerError as error:
            from skidway.cli.help.suggestions import with_suggestion

            bootstrap = kwargs.get("bootstrap")
            fail(with_suggestion(error, bootstrap if isinstance(bootstrap, str) else None))
        except (ClientError, ProtocolError) as error:
            fail(str(error))
        except ImportError as error:
            from skidway.client.extras import hint

            todo = hint(error)
            if todo is None:
                raise
            fail(todo)
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            fail(f"{where}{(error.strerror or str(error)).lower()}")

    return wrapped


def _silence_stdout() -> None:
    """Python flushes standard output once more at exit: let it go nowhere, not into the broken pipe."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        pass


def print_json(value: Any) -> None:
    """Indented for one document. Bytes in it must have been turned into text before."""
    sys.stdout.write(json.dumps(value, indent=2, ensure_ascii=False) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, right: Sequence[str] = ()) -> None:
    """Plain aligned columns: easy on the eye, and `awk` can still take them apart. Names may be anybody's."""
    cells = [[harmless(str(cell)) for cell in row] for row in rows]
    widths = [max([len(name), *(len(row[index]) for row in cells)]) for index, name in enumerate(columns)]
    for number, row in enumerate([[name.upper() for name in columns], *cells]):
        fields = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for name, cell, width in zip(columns, row, widths, strict=True)
        ]
        line = "  ".join(fields).rstrip()
        typer.echo(typer.style(line, bold=True) if number == 0 else line)


def size(count: float) -> str:
    """Bytes for people: 1.5 MiB."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def parse_size(text: str) -> int:
    """`100`, `16k`, `1.5M`, `128KiB`, `2T`: powers of 1024."""
    stripped = text.strip().lower().removesuffix("b").removesuffix("i")
    factor = {"k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4}.get(stripped[-1:], 1)
    try:
        count = int(float(stripped.rstrip("kmgt")) * factor)
    except ValueError:
        count = -1
    if count < 1:
        raise typer.BadParameter(f"{text!r} is not a size; expected e.g. 100, 16k or 1M")
    return count


def quantity(count: float) -> str:
    """Counts with thin separators: 1,234,567."""
    return f"{count:,.0f}"


def count_of(count: int, noun: str) -> str:
    """1 partition, 2 partitions, 3 batches."""
    plural = f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
    return f"{quantity(count)} {noun if count == 1 else plural}"


class Meter:
    """A progress display on standard error, or nothing at all when nobody watches."""

    def __init__(self, advance: Callable[[float, str], None]) -> None:
        self._advance = advance

    def set(self, done: float, note: str = "") -> None:
        self._advance(done, note)


@contextmanager
def progress(label: str, total: float | None, *, shown: bool | None = None) -> Iterator[Meter]:
    """`shown` None: if standard error is a terminal. `total` None: how far it is to the end is not known."""
    visible = sys.stderr.isatty() if shown is None else shown
    if not visible:
        yield Meter(lambda done, note: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True, refresh_per_second=8) as display:
        task = display.add_task(label, total=total, note="")
        yield Meter(lambda done, note: display.update(task, completed=done, note=note))
