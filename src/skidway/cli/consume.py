"""`skidway consume`: print the messages of a topic."""

import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from skidway.cli.formats import Format, Shown, Writer, writer
from skidway.cli.output import DEFAULT_BOOTSTRAP, DEFAULT_TIMEOUT_S, Bootstrap, Timeout, friendly, misused, run
from skidway.cli.places import EXPECTED, Beginning, End, find, place_option

if TYPE_CHECKING:
    from skidway.client.consumer import Consumed

EPILOG = """
Examples:\n
skidway consume orders -n 10\n
skidway consume orders --from 10m --format json | jq .value\n
skidway consume orders -f -k -p 0 --from 1234
"""

TopicName = Annotated[str, typer.Argument(help="The topic.")]
Start = Annotated[
    str | None,
    typer.Option(
        "--from", "-o", metavar="WHERE", help=f"Where to begin: {EXPECTED}. Default: beginning; with -f: end."
    ),
]
Until = Annotated[
    str | None, typer.Option("--until", "-u", metavar="WHERE", help="Where to stop. Default: the end as it is now.")
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Wait for more at the end; Ctrl-C stops.")]
Count = Annotated[int | None, typer.Option("--count", "-n", help="Stop after this many messages.", min=0)]
Partitions = Annotated[list[int] | None, typer.Option("--partition", "-p", help="Only this partition; repeatable.")]
Form = Annotated[
    Format, typer.Option("--format", "-F", help="json: one object a line; raw: values only, nothing between them.")
]
ShowKey = Annotated[bool, typer.Option("--key", "-k", help="Show keys (text, hex).")]
ShowHeaders = Annotated[bool, typer.Option("--headers", "-H", help="Show headers (text, hex).")]
ShowOffset = Annotated[bool, typer.Option("--offset", help="Show partition and offset (text, hex).")]
ShowTime = Annotated[bool, typer.Option("--timestamp", "-t", help="Show times (text, hex).")]
ShowAll = Annotated[bool, typer.Option("--all", "-a", help="Show all of these.")]
Committed = Annotated[bool, typer.Option("--committed", help="Leave out aborted and open transactions.")]


@friendly
def consume(
    topic: TopicName,
    start: Start = None,
    until: Until = None,
    follow: Follow = False,
    count: Count = None,
    partition: Partitions = None,
    form: Form = Format.TEXT,
    key: ShowKey = False,
    headers: ShowHeaders = False,
    offset: ShowOffset = False,
    timestamp: ShowTime = False,
    everything: ShowAll = False,
    committed: Committed = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Print the messages of a topic, as they are now or as they come."""
    from skidway.client.cluster import Cluster
    from skidway.client.consumer import Consumer

    if follow and until is not None:
        misused("--follow never stops and --until does: give one of them")
    begin = place_option(start, End() if follow else Beginning())
    stop = place_option(until, End())
    shown = Shown(
        offset=offset or everything,
        timestamp=timestamp or everything,
        key=key or everything,
        headers=headers or everything,
    )
    write = writer(form, shown, terminal=sys.stdout.isatty())
    isolation_level = 1 if committed else 0
    with Cluster(bootstrap, client_id="skidway-cli", timeout_ms=int(timeout * 1000)) as cluster:
        partitions = _partitions(cluster.topic(topic).partitions, topic, partition)
        positions = find(cluster, topic, partitions, begin, isolation_level)
        ends = None if follow else find(cluster, topic, partitions, stop, isolation_level)
        consumer = Consumer(cluster, topic, positions, isolation_level=isolation_level, on_gone=_tell_gone)
        _print(consumer.read_polls(follow=follow, until=ends), write, count)


def _partitions(existing: Iterable[int], topic: str, wanted: list[int] | None) -> list[int]:
    from skidway.client.cluster import NoSuchPartition

    there = list(existing)
    for partition in wanted or []:
        if partition not in there:
            raise NoSuchPartition(topic, partition, len(there))
    return wanted or there


def _tell_gone(partition: int, wanted: int, start: int) -> None:
    text = f"partition {partition}: messages {wanted} to {start - 1} have been deleted, going on at {start}"
    typer.echo(f"warning: {text}", err=True)


def _print(polls: "Iterable[list[Consumed]]", write: Writer, count: int | None) -> None:
    """Flushed after each poll, so that nothing waits in a buffer while the topic is quiet."""
    output = sys.stdout.buffer
    left = count
    if left == 0:
        return
    for messages in polls:
        chosen = messages if left is None else messages[:left]
        output.write(b"".join(map(write, chosen)))
        output.flush()
        if left is not None:
            left -= len(chosen)
            if left == 0:
                return


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command(epilog=EPILOG)(consume)


def main(arguments: list[str]) -> int:
    return run(app, "skidway consume", arguments)
