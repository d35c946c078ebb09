"""`skidway size`: how many brokers, how much disk and network a load needs."""

import re
from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, TypeVar

import typer

from skidway.cli.output import AsJson, count_of, friendly, parse_size, print_json, print_table, run, size
from skidway.cli.sizing import Load, Machine, Margins, Sizing, size_cluster

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

Value = TypeVar("Value")

PERIODS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
REASONS = {
    "replication": "every replica needs its own broker",
    "network in": "of what they receive",
    "network out": "of what they send",
    "cpu": "of the work for one core each",
    "disk": "of the room on their disks",
}


@app.command(epilog="Example: skidway size --messages 50000 --bytes 500 --retention 7d --groups 3")
@friendly
def size_command(
    messages: Annotated[float, typer.Option("--messages", "-m", metavar="N", help="Messages a second, on average.")],
    message_bytes: Annotated[
        str, typer.Option("--bytes", metavar="SIZE", help="Bytes of a message, as compressed: 500, 2k.")
    ] = "1k",
    retention: Annotated[
        str, typer.Option("--retention", metavar="TIME", help="How long messages are kept: 12h, 7d, 4w.")
    ] = "7d",
    replication: Annotated[
        int, typer.Option("--replication", "-r", metavar="N", min=1, max=50, help="Replicas of each partition.")
    ] = 3,
    groups: Annotated[
        int, typer.Option("--groups", metavar="N", min=0, help="Consumer groups that read everything.")
    ] = 1,
    peak: Annotated[
        float, typer.Option("--peak", metavar="N", min=1, help="Busiest time, as a multiple of the average.")
    ] = 2.0,
    batch: Annotated[str, typer.Option("--batch", metavar="SIZE", help="Bytes in a batch, as compressed.")] = "16k",
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="N", min=1, help="Partitions. Default: as many as the load needs."),
    ] = None,
    disk: Annotated[str, typer.Option("--disk", metavar="SIZE", help="Disk of one broker: 500G, 2T.")] = "2T",
    network: Annotated[
        float, typer.Option("--gbit", metavar="N", min=0.001, help="Network of one broker, Gbit/s each way.")
    ] = 1.0,
    spare: Annotated[
        int, typer.Option("--spare", metavar="N", min=0, help="Brokers that may be down at the busiest time.")
    ] = 1,
    as_json: AsJson = False,
) -> None:
    """Compute how many brokers, how much disk and network a load needs. No broker is asked."""
    if not 0 < messages < float("inf"):
        raise typer.BadParameter(f"{messages:g} messages a second; expected more than 0", param_hint="--messages")
    load = Load(
        messages_per_s=messages,
        message_bytes=_parsed("--bytes", message_bytes, parse_size),
        retention_s=_parsed("--retention", retention, parse_period),
        replication=replication,
        groups=groups,
        peak=peak,
        batch_bytes=_parsed("--batch", batch, parse_size),
        partitions=partitions,
    )
    machine = Machine(disk_bytes=_parsed("--disk", disk, parse_size), network_bytes_per_s=network * 1e9 / 8)
    result = size_cluster(load, machine, Margins(spare_brokers=spare))
    if as_json:
        print_json(asdict(result))
    else:
        _print(result, machine)


def _parsed(option: str, text: str, parse: Callable[[str], Value]) -> Value:
    try:
        return parse(text)
    except typer.BadParameter as error:
        raise typer.BadParameter(error.message, param_hint=option) from None


def parse_period(text: str) -> float:
    """`90s`, `15m`, `12h`, `7d`, `4w`: seconds."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smhdw])", text.strip().lower())
    if match is None:
        raise typer.BadParameter(f"{text!r} is not a time; expected e.g. 90s, 12h, 7d or 4w")
    return float(match[1]) * PERIODS[match[2]]


def _print(result: Sizing, machine: Machine) -> None:
    typer.secho(f"{count_of(result.brokers, 'broker')}: because {REASONS[result.because]}", bold=True)
    typer.echo(f"{count_of(result.partitions, 'partition')}; {size(result.in_bytes_per_s)}/s in at the busiest time")
    typer.echo()
    network = size(machine.network_bytes_per_s)
    rows = [
        ("disk", size(result.disk_bytes_per_broker), size(machine.disk_bytes), result.needs["disk"]),
        ("receives", f"{size(result.received_bytes_per_s_per_broker)}/s", f"{network}/s", result.needs["network in"]),
        ("sends", f"{size(result.sent_bytes_per_s_per_broker)}/s", f"{network}/s", result.needs["network out"]),
        ("core", f"{result.cpu_per_broker:.0%}", "100%", result.needs["cpu"]),
        ("page cache", size(result.cache_bytes_per_broker), "", ""),
    ]
    print_table(("each broker", "needs", "of", "brokers"), rows, right=("needs", "of", "brokers"))


def main(arguments: list[str]) -> int:
    return run(app, "skidway size", arguments)
