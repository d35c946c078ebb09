"""`skidway dlq`: see what is in dead-letter topics and send it back to where it came from."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.formats import Format, Shown, iso_time, to_json, writer
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Timeout,
    friendly,
    group,
    misused,
    print_json,
    print_table,
    progress,
    quantity,
    run,
)
from skidway.cli.places import EXPECTED, BeforeEnd, Beginning, End, Place, find, place_option

if TYPE_CHECKING:
    from skidway.client.cluster import Cluster
    from skidway.client.consumer import Consumed
    from skidway.client.replay import Replay, Summary

app = group("List and show dead letters, and send them back to their source.")

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="The dead-letter topic, e.g. orders-dlq.")]
Until = Annotated[str | None, typer.Option("--until", "-u", metavar="WHERE", help="Where to stop. Default: the end.")]
Count = Annotated[int | None, typer.Option("--count", "-n", help="At most this many letters.", min=1)]


def _cluster(bootstrap: str, timeout_s: float) -> "Cluster":
    from skidway.client.cluster import Cluster

    return Cluster(bootstrap, client_id="skidway-cli", timeout_ms=int(timeout_s * 1000))


@app.command("list", epilog="Example: skidway dlq list")
@friendly
def list_topics(
    suffix: Annotated[str, typer.Option("--suffix", help="How dead-letter topics end.")] = "-dlq",
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List dead-letter topics, how much is in them and how much of that was never replayed."""
    from skidway.client.admin import Admin

    with _cluster(bootstrap, timeout) as cluster:
        names = [topic.name for topic in Admin(cluster).topics() if topic.name.endswith(suffix)]
        documents = [_count(cluster, name) for name in names]
    if as_json:
        print_json(documents)
    elif documents:
        columns = ("topic", "letters", "not replayed", "newest")
        rows = [
            (entry["topic"], entry["letters"], entry["not_replayed"], entry["newest"] or "-") for entry in documents
        ]
        print_table(columns, rows, right=columns[1:3])
    else:
        typer.echo(f"no topic ends with {suffix}", err=True)


@app.command(epilog="Example: skidway dlq show orders-dlq --from -10")
@friendly
def show(
    topic: TopicName,
    start: Annotated[
        str | None, typer.Option("--from", "-o", metavar="WHERE", help=f"Where to begin: {EXPECTED}.")
    ] = None,
    until: Until = None,
    count: Count = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object a line.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Print dead letters: where each came from, what went wrong and how often."""
    import json

    with _cluster(bootstrap, timeout) as cluster:
        for letter in _letters(cluster, topic, place_option(start, Beginning()), place_option(until, End()), count, {}):
            if as_json:
                typer.echo(json.dumps(_letter_document(letter), ensure_ascii=False))
            else:
                _print_letter(letter)


@app.command(epilog="Example: skidway dlq replay orders-dlq --rate 50 --execute")
@friendly
def replay(
    topic: TopicName,
    to: Annotated[str | None, typer.Option("--to", metavar="TOPIC", help="Another topic than the source.")] = None,
    partition: Annotated[
        str, typer.Option("--partition", metavar="key|source", help="Where the key belongs, or where it came from.")
    ] = "key",
    rate: Annotated[float, typer.Option("--rate", help="Letters a second at most.", min=0.01)] = 100.0,
    max_replays: Annotated[
        int, typer.Option("--max-replays", help="A letter sent back this often already stays where it is.", min=1)
    ] = 3,
    error_type: Annotated[
        str | None, typer.Option("--error-type", help="Only letters with this error, e.g. TimeoutError.")
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", "-o", metavar="WHERE", help="Where to begin. Default: where the last replay ended."),
    ] = None,
    until: Until = None,
    count: Count = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it. Without it, it is only counted.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Send dead letters back to their source, as they were. Letters stay in the dead-letter topic.

    Says what it would do and, unless --execute is given, leaves it at that. It begins where the last replay ended, and
    stops at the end as it is now: what fails again in the meantime waits for the next replay.
    """
    from skidway.client.replay import Replay, Rules, Summary

    if partition not in ("key", "source"):
        misused("--partition is key or source")
    rules = Rules(to, partition == "source", max_replays, error_type, rate)
    summary = Summary()
    with _cluster(bootstrap, timeout) as cluster:
        replay = Replay(cluster, topic, rules, whole=start is None and error_type is None)
        saved = replay.saved_positions() if start is None else {}
        letters = _letters(cluster, topic, place_option(start, Beginning()), place_option(until, End()), count, saved)
        with progress("replaying", None) as meter:
            for verdict in replay.run(letters) if execute else replay.preview(letters):
                summary.count(verdict)
                meter.set(summary.sent, quantity(summary.sent))
    if as_json:
        print_json(_summary_document(topic, summary, execute))
    else:
        _print_summary(topic, summary, replay, execute)


def _letters(
    cluster: "Cluster", topic: str, begin: Place, stop: Place, count: int | None, saved: dict[int, int]
) -> "Iterator[Consumed]":
    """From a place, or from where a replay ended if that is further on."""
    from itertools import islice

    from skidway.client.consumer import Consumer
    from skidway.client.offsets import READ_COMMITTED

    partitions = list(cluster.topic(topic).partitions)
    positions = find(cluster, topic, partitions, begin, READ_COMMITTED)
    ends = find(cluster, topic, partitions, stop, READ_COMMITTED)
    positions = {partition: max(offset, saved.get(partition, 0)) for partition, offset in positions.items()}
    consumer = Consumer(
        cluster, topic, positions, isolation_level=READ_COMMITTED, on_gone=lambda partition, wanted, start: None
    )
    return islice(consumer.read(until=ends), count)


def _count(cluster: "Cluster", topic: str) -> dict[str, Any]:
    from skidway.client.offsets import EARLIEST, LATEST, offsets_at
    from skidway.client.replay import Replay, Rules

    partitions = list(cluster.topic(topic).partitions)
    starts = offsets_at(cluster, topic, partitions, EARLIEST)
    ends = offsets_at(cluster, topic, partitions, LATEST)
    saved = Replay(cluster, topic, Rules()).saved_positions()
    newest = [letter.timestamp for letter in _letters(cluster, topic, BeforeEnd(1), End(), None, {})]
    return {
        "topic": topic,
        "letters": sum(ends[partition] - starts[partition] for partition in partitions),
        "not_replayed": sum(
            ends[partition] - min(max(starts[partition], saved.get(partition, 0)), ends[partition])
            for partition in partitions
        ),
        "newest": iso_time(max(newest)) if newest else None,
    }


def _letter_document(letter: "Consumed") -> dict[str, Any]:
    from skidway.client.dead_letter_headers import own_headers, read_report

    report = read_report(letter.headers)
    document = to_json(letter._replace(headers=own_headers(letter.headers)))
    if report is None:
        return {**document, "death": None}
    death = {name: getattr(report, name) for name in report.__slots__}
    return {**document, "death": death}


def _print_letter(letter: "Consumed") -> None:
    from skidway.client.dead_letter_headers import own_headers, read_report

    report = read_report(letter.headers)
    where = f"{letter.partition}/{letter.offset}"
    if report is None:
        typer.echo(f"{where}  no dead letter: its headers do not say where it came from")
    else:
        replays = f", replayed {report.replays}" if report.replays else ""
        when = iso_time(report.failed_last_ms) or "-"
        told = f"from {report.topic} {report.partition}/{report.offset}  {when}  attempts {report.attempts}{replays}"
        typer.echo(f"{where}  {told}  {harmless(f'{report.error_type}: {report.error_message}')}")
    shown = Shown(key=True, headers=bool(own_headers(letter.headers)))
    line = writer(Format.TEXT, shown, terminal=True)(letter._replace(headers=own_headers(letter.headers)))
    typer.echo("    " + line.decode("utf-8", "backslashreplace").rstrip("\n").replace("\n", "\n    "))


def harmless(text: str) -> str:
    """On one line, and unable to command a terminal."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text)


def _summary_document(topic: str, summary: "Summary", execute: bool) -> dict[str, Any]:
    return {
        "topic": topic,
        "executed": execute,
        "sent": summary.sent,
        "targets": dict(summary.targets),
        "other_partition": summary.moved,
        "kept": dict(summary.kept),
    }


def _print_summary(topic: str, summary: "Summary", replay: "Replay", execute: bool) -> None:
    verb = "sent" if execute else "would send"
    if not summary.sent:
        typer.echo(f"{topic}: nothing to replay")
    for target, count in sorted(summary.targets.items()):
        typer.echo(f"{verb} {quantity(count)} letter{'s' * (count != 1)} from {topic} to {target}")
    for reason, count in sorted(summary.kept.items()):
        typer.echo(f"left {quantity(count)} where {'it is' if count == 1 else 'they are'}: {reason}")
    if summary.moved:
        text = f"{quantity(summary.moved)} with a key go to another partition than they came from: the topic has grown,"
        typer.echo(f"warning: {text} or its producers place keys differently; --partition source goes back", err=True)
    if not execute:
        typer.echo("dry run: nothing was sent; --execute does it")
    elif not replay.saves_position:
        reason = "the broker keeps no groups" if replay.whole else "only chosen letters were replayed"
        typer.echo(f"where this replay ended is not kept: {reason}; the next begins at the same place", err=True)


def main(arguments: list[str]) -> int:
    return run(app, "skidway dlq", arguments)
