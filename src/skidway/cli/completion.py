"""Shell completion: `skidway --install-completion`, `skidway --show-completion`, and what the shell then calls.

The commands are loaded one by one when they run; only here are they all put together, because the shell wants to know
what may follow any word.
"""

import inspect
from collections.abc import Callable
from typing import Annotated

import typer
from typer.main import get_command

from skidway.cli.main import COMPLETE_VARIABLE


def whole_app() -> typer.Typer:
    from skidway.cli import bench, cluster, consume, dlq, group, pipeline, produce, size, topic
    from skidway.cli import inspect as inspection

    app = typer.Typer(pretty_exceptions_enable=False, help="Skidway's command line.")
    app.add_typer(cluster.app, name="cluster")
    app.add_typer(topic.app, name="topic")
    app.add_typer(group.app, name="group")
    app.add_typer(dlq.app, name="dlq")
    app.add_typer(pipeline.app, name="pipeline")
    app.add_typer(inspection.app, name="inspect")
    app.add_typer(bench.app, name="bench")
    app.command("serve")(_serve())
    app.command("size")(size.size_command)
    app.command("produce")(produce.produce)
    app.command("consume")(consume.consume)
    return app


def _serve() -> Callable[..., None]:
    """`serve` reads its flags with argparse to be up sooner: here they are only names to complete."""
    from skidway.server.flags import build_parser

    def serve(**flags: str) -> None:
        """Run a broker."""

    names = [name for action in build_parser("serve")._actions for name in action.option_strings if name != "--help"]
    options = {
        name.strip("-").replace("-", "_"): Annotated[str, typer.Option(name)] for name in names if name.startswith("--")
    }
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="", annotation=option)
        for name, option in options.items()
    ]
    serve.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    serve.__annotations__ = dict(options)
    return serve


def main(words: list[str]) -> int:
    try:
        get_command(whole_app()).main(words, prog_name="skidway", complete_var=COMPLETE_VARIABLE)
    except SystemExit as ending:
        return ending.code if isinstance(ending.code, int) else 0
    return 0
