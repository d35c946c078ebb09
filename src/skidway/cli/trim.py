"""`skidway topic trim`: delete the oldest messages of a topic, up to a place. Shows what goes, and asks."""

from dataclasses import dataclass
from typing import Annotated

import typer

from skidway.cli.help.names import complete_topic
from skidway.cli.options import DryRun, OnlyPartitions, Yes
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ControllerTimeout,
    connect,
    count_of,
    fail,
    friendly,
    print_json,
    print_table,
)
from skidway.cli.places import EXPECTED, Beginning, find, place_option
from skidway.cli.reachable import listed


@dataclass(slots=True)
class Cut:
    partition: int
    start: int
    new_start: int


@friendly
def trim(
    topic: Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topic)],
    before: Annotated[
        str, typer.Option("--before", metavar="WHERE", help=f"Delete all messages before this place: {EXPECTED}.")
    ],
    partition: OnlyPartitions = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Delete the oldest messages of a topic (DeleteRecords). No consumer can read them any more."""
    from skidway.blocking_client.admin import Admin
    from skidway.blocking_client.cluster import NoSuchPartition
    from skidway.blocking_client.offsets import EARLIEST, offsets_at

    place = place_option(before, Beginning())
    with connect(bootstrap, timeout) as cluster:
        existing = list(cluster.topic(topic).partitions)
        for number in partition or []:
            if number not in existing:
                raise NoSuchPartition(topic, number, len(existing))
        chosen = sorted(set(partition or existing))
        unserved = cluster.unserved(topic, chosen)
        if unserved:
            fail(f"{listed(topic, unserved)}; nothing was deleted, --partition names the others")
        starts = offsets_at(cluster, topic, chosen, EARLIEST)
        targets = find(cluster, topic, chosen, place, 0)
        cuts = [Cut(number, starts[number], targets[number]) for number in chosen if targets[number] > starts[number]]
        _confirm(topic, cuts, asking=not (dry_run or yes), shown=not as_json)
        if not dry_run and cuts:
            Admin(cluster).delete_records(topic, {cut.partition: cut.new_start for cut in cuts})
    if as_json:
        print_json({"topic": topic, "executed": not dry_run, "partitions": [_document(cut) for cut in cuts]})
    elif dry_run:
        typer.echo("dry run: nothing was deleted")
    elif cuts:
        typer.echo(f"deleted {count_of(sum(cut.new_start - cut.start for cut in cuts), 'offset')} of {topic}")


def _confirm(topic: str, cuts: list[Cut], *, asking: bool, shown: bool) -> None:
    if shown:
        if not cuts:
            typer.echo(f"{topic} has nothing before that")
            return
        rows = [(cut.partition, cut.start, cut.new_start, cut.new_start - cut.start) for cut in cuts]
        columns = ("partition", "start", "new start", "deleted")
        print_table(columns, rows, right=columns)
    if asking and cuts:
        typer.confirm(f"delete these from {topic}?", abort=True, err=True)


def _document(cut: Cut) -> dict[str, int]:
    return {"partition": cut.partition, "start": cut.start, "new_start": cut.new_start}
