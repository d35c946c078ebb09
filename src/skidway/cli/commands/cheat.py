"""`skidway cheat`: ten commands that are easy to forget. Tests run each of them, in this order, against a broker."""

from dataclasses import dataclass

import typer

from skidway.cli.output import friendly, run

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@dataclass(slots=True, frozen=True)
class Line:
    what: str
    command: str


LINES = (
    Line(
        "create a topic that keeps messages for a day, unless it is there",
        "skidway topic create orders -p 6 -c retention.ms=86400000 --if-missing",
    ),
    Line("send messages with keys", "printf 'ann:apple\\nbob:pears\\n' | skidway produce orders --key-separator :"),
    Line("print the last 10 messages of each partition", "skidway consume orders --from -10 --all"),
    Line(
        "print what came in the last 10 minutes, your way",
        "skidway consume orders --from 10m --format '%p/%o %k: %s\\n'",
    ),
    Line(
        "copy a topic, with keys and headers",
        "skidway consume orders --format json | skidway produce copy --create --format json --repartition",
    ),
    Line("read as a consumer group, and commit", "skidway consume orders --group audit"),
    Line("see how far behind a group is", "skidway group describe audit"),
    Line("let a group read the last hour again", "skidway group reset audit --to 1h --execute"),
    Line("delete a key from a compacted topic", "echo ann: | skidway produce orders --key-separator : --null ''"),
    Line("wait until the cluster is healthy", "skidway cluster health --wait 60 && echo ready"),
)


@app.command(epilog="Example: skidway cheat | grep group")
@friendly
def cheat() -> None:
    """Print ten commands that are easy to forget."""
    for line in LINES:
        typer.echo(f"{typer.style('# ' + line.what, fg=typer.colors.BRIGHT_BLACK)}\n{line.command}")


def main(arguments: list[str]) -> int:
    return run(app, "skidway cheat", arguments)
