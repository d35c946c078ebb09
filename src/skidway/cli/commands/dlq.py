"""`skidway dlq`: see what is in dead-letter topics and send it back to where it came from."""

import re
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.formats import Format, Shown, writer
from skidway.cli.help.names import complete_topic
from skidway.cli.json_lines import iso_time, to_json
from skidway.cli.options import Count, DryRun, Execute, Until
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    EXIT_INCOMPLETE,
    AsJson,
    Bootstrap,
    Timeout,
    count_of,
    friendly,
    group,
    harmless,
    misused,
    print_json,
    print_table,
    progress,
    quantity,
    run,
    warn,
)
from skidway.cli.places import EXPECTED, BeforeEnd, Beginning, End, Place, find, place_option
from skidway.cli.reachable import Partial

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.consumer import Consumed
    from skidway.client.replay import Replay, Summary
    from skidway.client.replay_position import Position

MESSAGE_ID = re.compile(r".+-[0-9]+-[0-9]+")

app = group("List and show dead letters, and send them back to their source.")

TopicName = Annotated[
    str, typer.Argument(metavar="TOPIC", help="The dead-letter topic, e.g. orders-dlq.", autocompletion=complete_topic)
]
Target = Annotated[
    str | None,
    typer.Option("--to", metavar="TOPIC", help="Send to this topic. Default: the source of each letter."),
]
ErrorType = Annotated[
    str | None,
    typer.Option(
        "--error-type", metavar="NAME", help="Only letters with this error, e.g. TimeoutError or CLIENT_REJECTED."
    ),
]

Ids = Annotated[
    list[str] | None,
    typer.Option("--id", metavar="TOPIC-PARTITION-OFFSET", help="Only the letter of this message. May be given often."),
]


def _cluster(bootstrap: str, timeout_s: float) -> "Cluster":
    from skidway.blocking_client.cluster import Cluster

    return Cluster(bootstrap, client_id="skidway-cli", timeout_ms=int(timeout_s * 1000))


@app.command("list", epilog="Example: skidway dlq list")
@friendly
def list_topics(
    suffix: Annotated[
        str, typer.Option("--suffix", metavar="TEXT", help="What the names of dead-letter topics end with.")
    ] = "-dlq",
    prefix: Annotated[
        str, typer.Option("--prefix", metavar="TEXT", help="What those of share groups begin with.")
    ] = "dlq.",
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """List dead-letter topics, with the number of letters and of those never replayed.

    They are known by their names, or because a queue sends its dead letters there.
    """
    from skidway.blocking_client.admin import Admin
    from skidway.blocking_client.queues.managing import Queues

    with _cluster(bootstrap, timeout) as cluster:
        there = [topic.name for topic in Admin(cluster).topics()]
        named = {queue.dead_letters for queue in Queues(cluster).all()}
        names = [name for name in there if _is_named(name, prefix, suffix) or name in named]
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
        typer.echo(f"no topic ends with {suffix} or begins with {prefix}, and no queue names one", err=True)


@app.command(epilog="Example: skidway dlq show orders-dlq --from -10")
@friendly
def show(
    topic: TopicName,
    start: Annotated[
        str | None, typer.Option("--from", "-o", metavar="WHERE", help=f"Where to begin: {EXPECTED}.")
    ] = None,
    until: Until = None,
    count: Count = None,
    error_type: ErrorType = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Print dead letters: where each came from, what went wrong and how often."""
    import json

    begin, stop = place_option(start, Beginning()), place_option(until, End())
    partial = Partial(topic)
    with _cluster(bootstrap, timeout) as cluster:
        letters = _letters(cluster, partial, begin, stop, None, {})
        chosen = letters if error_type is None else (one for one in letters if _error_type(one) == error_type)
        for letter in islice(chosen, count):
            if as_json:
                typer.echo(json.dumps(_letter_document(letter), ensure_ascii=False))
            else:
                _print_letter(letter)
    partial.finish()


@app.command("replay", hidden=True)
@app.command(epilog="Example: skidway dlq redrive orders-dlq --rate 50 --execute")
@friendly
def redrive(
    topic: TopicName,
    to: Target = None,
    partition_by: Annotated[
        str,
        typer.Option(
            "--partition-by",
            metavar="key|source",
            help="To the partition that the key chooses, or to the one where the letter came from.",
        ),
    ] = "key",
    rate: Annotated[float, typer.Option("--rate", metavar="N", help="Letters a second, at most.", min=0.01)] = 100.0,
    max_replays: Annotated[
        int,
        typer.Option(
            "--max-replays", metavar="N", help="Do not send a letter that was replayed N times already.", min=1
        ),
    ] = 3,
    error_type: ErrorType = None,
    ids: Ids = None,
    start: Annotated[
        str | None,
        typer.Option("--from", "-o", metavar="WHERE", help="Where to begin. Default: where the last replay ended."),
    ] = None,
    until: Until = None,
    count: Count = None,
    execute: Execute = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Send dead letters back to their source, as they were. Letters stay in the dead-letter topic.

    Without --execute it only shows what it would do. It starts where the last replay ended and stops at the end as it
    is now: letters that fail again meanwhile wait for the next replay. If a letter's topic does not exist, or does not
    take it, the letter stays for the next replay, the others are sent, and the exit code is 4.
    """
    from skidway.client.replay import Replay, Rules, Summary

    if execute and dry_run:
        misused("--execute and --dry-run contradict each other: give one of them")
    if partition_by not in ("key", "source"):
        misused(f"--partition-by {partition_by}: expected key or source")
    rules = Rules(to, partition_by == "source", max_replays, error_type, _chosen(ids), rate)
    begin, stop = place_option(start, Beginning()), place_option(until, End())
    summary, partial = Summary(), Partial(topic)
    with _cluster(bootstrap, timeout) as cluster:
        replay = Replay(cluster, topic, rules, whole=start is None and not rules.chooses)
        saved = replay.saved_positions() if start is None else {}
        letters = _letters(cluster, partial, begin, stop, count, saved)
        with progress("replaying", None) as meter:
            for verdict in replay.run(letters) if execute else replay.preview(letters):
                summary.count(verdict)
                meter.set(summary.sent, quantity(summary.sent))
    if as_json:
        print_json(_summary_document(topic, summary, execute))
    else:
        _print_summary(topic, summary, replay, execute)
    _finish(partial, incomplete=execute and summary.incomplete)


def _finish(partial: Partial, *, incomplete: bool) -> None:
    partial.finish()
    if incomplete:
        raise typer.Exit(EXIT_INCOMPLETE)


def _chosen(ids: list[str] | None) -> frozenset[str]:
    if wrong := next((one for one in ids or () if not MESSAGE_ID.fullmatch(one)), None):
        misused(f"--id {wrong}: expected TOPIC-PARTITION-OFFSET, e.g. orders-0-17")
    return frozenset(ids or ())


def _is_named(name: str, prefix: str, suffix: str) -> bool:
    """An empty text is in no name."""
    return bool((suffix and name.endswith(suffix)) or (prefix and name.startswith(prefix)))


def _letters(
    cluster: "Cluster", partial: Partial, begin: Place, stop: Place, count: int | None, saved: "dict[int, Position]"
) -> "Iterator[Consumed]":
    """From a place, or from where a replay ended if that is further on."""
    from skidway.blocking_client.consumer import Consumer
    from skidway.blocking_client.offsets import READ_COMMITTED

    topic, partitions = partial.topic, partial.choose(cluster, [])
    positions = find(cluster, topic, partitions, begin, READ_COMMITTED)
    ends = find(cluster, topic, partitions, stop, READ_COMMITTED)
    positions = {
        partition: max(offset, saved[partition].start) if partition in saved else offset
        for partition, offset in positions.items()
    }
    consumer = Consumer(
        cluster,
        topic,
        positions,
        isolation_level=READ_COMMITTED,
        on_gone=lambda partition, wanted, start: None,
        on_damaged=partial.leave_out,
    )
    found = consumer.read(until=ends)
    wanted = (one for one in found if one.partition not in saved or saved[one.partition].wants(one.offset))
    return islice(wanted, count)


def _count(cluster: "Cluster", topic: str) -> dict[str, Any]:
    from skidway.blocking_client.offsets import EARLIEST, LATEST, offsets_at
    from skidway.client.replay import Replay, Rules

    partial = Partial(topic)
    partitions = partial.choose(cluster, [])
    starts = offsets_at(cluster, topic, partitions, EARLIEST)
    ends = offsets_at(cluster, topic, partitions, LATEST)
    saved = Replay(cluster, topic, Rules()).saved_positions()
    newest = [letter.timestamp for letter in _letters(cluster, partial, BeforeEnd(1), End(), None, {})]
    return {
        "topic": topic,
        "letters": sum(ends[partition] - starts[partition] for partition in partitions),
        "not_replayed": sum(
            _not_replayed(starts[partition], ends[partition], saved.get(partition)) for partition in partitions
        ),
        "newest": iso_time(max(newest)) if newest else None,
    }


def _not_replayed(start: int, end: int, saved: "Position | None") -> int:
    if saved is None:
        return end - start
    return end - min(max(start, saved.offset), end) + saved.count_again(start)


def _error_type(letter: "Consumed") -> str | None:
    from skidway.records.dead_letter_headers import read_report

    report = read_report(letter.headers)
    return None if report is None else report.error_type


def _letter_document(letter: "Consumed") -> dict[str, Any]:
    from skidway.records.dead_letter_headers import own_headers, read_report

    report = read_report(letter.headers)
    document = to_json(letter._replace(headers=own_headers(letter.headers)))
    if report is None:
        return {**document, "death": None}
    death = {name: getattr(report, name) for name in report.__struct_fields__}
    return {**document, "death": death}


def _print_letter(letter: "Consumed") -> None:
    from skidway.records.dead_letter_headers import own_headers, read_report

    report = read_report(letter.headers)
    where = f"{letter.partition}/{letter.offset}"
    if report is None:
        typer.echo(f"{where}  not a dead letter (no headers that name its source topic, partition and offset)")
    else:
        replays = f", replayed {report.replays}" if report.replays else ""
        when = iso_time(report.failed_last_ms) or "-"
        told = f"from {report.topic} {report.partition}/{report.offset}  {when}  attempts {report.attempts}{replays}"
        typer.echo(f"{where}  {told}  {harmless(f'{report.error_type}: {report.error_message}')}")
    shown = Shown(key=True, headers=bool(own_headers(letter.headers)))
    line = writer(Format.TEXT, shown, terminal=True)(letter._replace(headers=own_headers(letter.headers)))
    typer.echo("    " + line.decode("utf-8", "backslashreplace").rstrip("\n").replace("\n", "\n    "))


def _summary_document(topic: str, summary: "Summary", execute: bool) -> dict[str, Any]:
    return {
        "topic": topic,
        "executed": execute,
        "sent": summary.sent,
        "targets": dict(summary.targets),
        "causes": [
            {"source": source, "error": error, "letters": count}
            for (source, error), count in sorted(summary.causes.items())
        ],
        "other_partition": summary.moved,
        "kept": dict(summary.kept),
        "failed": dict(summary.failed),
        "refused": dict(summary.refused),
    }


def _print_summary(topic: str, summary: "Summary", replay: "Replay", execute: bool) -> None:
    verb = "sent" if execute else "would send"
    if not summary.sent:
        typer.echo(f"{topic}: nothing to replay")
    for target, count in sorted(summary.targets.items()):
        typer.echo(f"{verb} {count_of(count, 'letter')} from {topic} to {target}")
    if summary.causes:
        rows = [(source or "-", error or "-", count) for (source, error), count in sorted(summary.causes.items())]
        print_table(("source", "error", "letters"), rows, right=("letters",))
    for reason, count in sorted(summary.kept.items()):
        typer.echo(f"did not send {count_of(count, 'letter')}: {reason}")
    for reason, count in sorted(summary.failed.items()):
        typer.echo(f"{'could not' if execute else 'cannot'} send {count_of(count, 'letter')}: {reason}")
    for reason, count in sorted(summary.refused.items()):
        typer.echo(f"refused to send {count_of(count, 'letter')}: {reason}")
    if summary.moved:
        moved = count_of(summary.moved, "letter")
        text = f"{moved} with a key, not to the partition where it was before: the topic has grown,"
        warn(
            f"{text} or its producers place keys differently; --partition-by source sends them back to where they were"
        )
    if not execute:
        typer.echo("dry run: nothing was sent; --execute does it")
    elif not replay.saves_position:
        reason = "the broker has no consumer groups" if replay.whole else "only some letters were chosen"
        typer.echo(
            f"the position of this replay was not saved, because {reason}; the next replay starts at the same place",
            err=True,
        )
    else:
        _print_next(summary, replay)


def _print_next(summary: "Summary", replay: "Replay") -> None:
    """What the next replay will do with the letters that stayed."""
    if summary.failed:
        again = sum(summary.failed.values()) - replay.forgotten
        again_text = f"the next replay tries {count_of(again, 'letter')} again"
        typer.echo(f"{again_text}: create or alter the topics, or use --to", err=True)
    if replay.forgotten:
        warn(f"{count_of(replay.forgotten, 'letter')} too many to remember; --from earliest begins with all")
    if summary.kept or summary.refused:
        typer.echo("the next replay starts behind the letters that stayed; --from earliest begins with all", err=True)


def main(arguments: list[str]) -> int:
    return run(app, "skidway dlq", arguments)
