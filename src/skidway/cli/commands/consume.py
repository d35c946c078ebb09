"""`skidway consume`: print the messages of topics, from any place or as a member of a group."""

import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice
from typing import TYPE_CHECKING, Annotated

import typer

from skidway.cli.formats import FORMATS, Format, Shown, Writer, parse_format, writer
from skidway.cli.help.names import complete_group, complete_topic
from skidway.cli.options import Count, OnlyPartitions, Until
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    Bootstrap,
    Timeout,
    count_of,
    fail,
    friendly,
    misused,
    run,
    warn,
)
from skidway.cli.places import EXPECTED, Beginning, End, Place, find, place_option
from skidway.cli.reachable import Partials
from skidway.cli.templates import HELP

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.reader import Consumed
    from skidway.cli.group_reading import GroupReading

EPILOG = f"""
Templates: {HELP}.\n
Examples:\n
skidway consume orders -n 10\n
skidway consume orders --from 10m --format json | jq .value\n
skidway consume orders --follow -f '%T %k: %s\\n'\n
skidway consume --regex 'orders-.*' --group audit --follow
"""


class Isolation(StrEnum):
    """As Kafka's own tools have it, and its default is theirs."""

    READ_UNCOMMITTED = "read_uncommitted"
    READ_COMMITTED = "read_committed"


LEVELS = {Isolation.READ_UNCOMMITTED: 0, Isolation.READ_COMMITTED: 1}

Topics = Annotated[list[str], typer.Argument(metavar="TOPIC", help="One topic or more.", autocompletion=complete_topic)]
Regex = Annotated[
    bool,
    typer.Option(
        "--regex", "-r", help="TOPIC is a regular expression (RE2) for whole names; internal topics never match."
    ),
]
Group = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        metavar="GROUP",
        help="Read as a member of this group, from its committed offsets, and commit what was printed.",
        autocompletion=complete_group,
    ),
]
Commit = Annotated[bool, typer.Option("--commit/--no-commit", help="Whether to commit offsets; only with --group.")]
Start = Annotated[
    str | None,
    typer.Option(
        "--from",
        "-o",
        metavar="WHERE",
        help=f"Where to begin: {EXPECTED}. Default: beginning; with --follow: end. With --group it is only for "
        "partitions without a committed offset; default: beginning.",
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-w", help="Wait for more at the end; Ctrl-C stops.")]
Form = Annotated[
    str,
    typer.Option(
        "--format",
        "-f",
        "-F",
        metavar="FORMAT",
        help=f"{FORMATS}; or a template, see below. json: one object per line; raw: values only, nothing between them.",
        autocompletion=lambda: list(Format),
    ),
]
Null = Annotated[
    str | None,
    typer.Option(
        "--null", metavar="TEXT", help="The text to print for null. Default: null; in templates and raw: nothing."
    ),
]
ShowKey = Annotated[bool, typer.Option("--key", "-k", help="Show keys (text, hex).")]
ShowHeaders = Annotated[bool, typer.Option("--headers", "-H", help="Show headers (text, hex).")]
ShowOffset = Annotated[
    bool, typer.Option("--offset", help="Show partition and offset, and the topic if there are several (text, hex).")
]
ShowTime = Annotated[bool, typer.Option("--timestamp", "-T", help="Show times (text, hex).")]
ShowAll = Annotated[bool, typer.Option("--all", "-a", help="Show all of these.")]
IsolationName = Annotated[
    Isolation,
    typer.Option(
        "--isolation",
        help="read_committed leaves out aborted transactions and stops in front of open ones.",
    ),
]


@dataclass(slots=True)
class Asked:
    """Which messages are wanted."""

    topics: list[str]
    regex: bool
    partitions: list[int]
    begin: Place
    stop: Place | None
    """None: never; more is waited for."""
    isolation_level: int


@friendly
def consume(
    topics: Topics,
    regex: Regex = False,
    group: Group = None,
    commit: Commit = True,
    start: Start = None,
    until: Until = None,
    follow: Follow = False,
    count: Count = None,
    partition: OnlyPartitions = None,
    form: Form = "text",
    null: Null = None,
    key: ShowKey = False,
    headers: ShowHeaders = False,
    offset: ShowOffset = False,
    timestamp: ShowTime = False,
    everything: ShowAll = False,
    isolation: IsolationName = Isolation.READ_UNCOMMITTED,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Print the messages of topics that are there now, or wait for more with --follow."""
    from skidway.blocking_client.cluster import Cluster

    _refuse_contradictions(group, follow, until, partition, commit)
    begin = place_option(start, End() if follow and group is None else Beginning())
    stop = None if follow else place_option(until, End())
    asked = Asked(list(dict.fromkeys(topics)), regex, partition or [], begin, stop, LEVELS[isolation])
    offsets = offset or everything
    shown = Shown(
        topic=offsets and (regex or len(asked.topics) > 1),
        offset=offsets,
        timestamp=timestamp or everything,
        key=key or everything,
        headers=headers or everything,
    )
    write = _writer(form, shown, null)
    partials = Partials()
    with Cluster(bootstrap, client_id="skidway-cli", timeout_ms=int(timeout * 1000)) as cluster:
        if group is None:
            polls = _limited(_polls(cluster, asked, partials), count)
        else:
            polls = _group_reading(cluster, group, asked, partials, commit).polls(count)
        with closing(polls):
            _print(polls, write)
    partials.finish()


def _refuse_contradictions(
    group: str | None, follow: bool, until: str | None, partition: list[int] | None, commit: bool
) -> None:
    if follow and until is not None:
        misused("--follow never stops and --until does: give one of them")
    if group is None and not commit:
        misused("--no-commit is for --group: without a group nothing is committed")
    if group is not None and (until is not None or partition):
        misused("a group decides which partitions its members read and from where: leave --until and --partition out")


def _writer(form: str, shown: Shown, null: str | None) -> Writer:
    instead = None if null is None else null.encode("utf-8", "surrogateescape")
    try:
        return writer(parse_format(form), shown, terminal=sys.stdout.isatty(), null=instead)
    except ValueError as error:
        misused(str(error))


def _polls(cluster: "Cluster", asked: Asked, partials: Partials) -> "Iterator[list[Consumed]]":
    """Without a group: every partition whose leader answers, from one place to another."""
    from skidway.blocking_client.reader import Reader

    positions: dict[tuple[str, int], int] = {}
    ends: dict[tuple[str, int], int] = {}
    hidden: dict[str, dict[int, int]] = {}
    for topic in _matching(cluster, asked.topics) if asked.regex else asked.topics:
        chosen = partials.of(topic).choose(cluster, asked.partitions)
        begins = find(cluster, topic, chosen, asked.begin, asked.isolation_level)
        positions |= {(topic, partition): at for partition, at in begins.items()}
        hidden[topic] = _hidden(cluster, asked, topic, chosen)
        if asked.stop is not None:
            stops = find(cluster, topic, chosen, asked.stop, asked.isolation_level)
            ends |= {(topic, partition): at for partition, at in stops.items()}
    reader = Reader(
        cluster,
        positions,
        isolation_level=asked.isolation_level,
        on_gone=partials.tell_gone,
        on_damaged=partials.leave_out,
    )
    yield from reader.read_polls(follow=asked.stop is None, until=ends)
    for topic, held_back in hidden.items():
        _tell_hidden(topic, held_back)


def _hidden(cluster: "Cluster", asked: Asked, topic: str, chosen: list[int]) -> dict[int, int]:
    """Where something lies behind the end of what is committed, and that end: the messages alone do not show it."""
    from skidway.blocking_client.offsets import LATEST, offsets_at

    if not isinstance(asked.stop, End) or asked.isolation_level != LEVELS[Isolation.READ_COMMITTED]:
        return {}
    # In this order: what is committed between the two answers is not taken for open.
    ends = offsets_at(cluster, topic, chosen, LATEST, LEVELS[Isolation.READ_UNCOMMITTED])
    stable = offsets_at(cluster, topic, chosen, LATEST, asked.isolation_level)
    return {partition: stable[partition] for partition in sorted(stable) if stable[partition] < ends[partition]}


def _tell_hidden(topic: str, hidden: dict[int, int]) -> None:
    if not hidden:
        return
    partition, offset = next(iter(hidden.items()))
    others = f" and {count_of(len(hidden) - 1, 'other partition')}" if len(hidden) > 1 else ""
    warn(
        f"{topic} partition {partition}{others}: a transaction is open from offset {offset} on, and what follows is "
        "not shown; skidway transaction list --state Ongoing or skidway transaction hanging names it"
    )


def _group_reading(cluster: "Cluster", group: str, asked: Asked, partials: Partials, commit: bool) -> "GroupReading":
    from skidway.cli.group_reading import GroupOptions, GroupReading

    pattern = "|".join(f"(?:{each})" for each in asked.topics) if asked.regex else None
    if not asked.regex:
        for topic in asked.topics:
            cluster.topic(topic)  # a group would wait for ever for a topic that is misspelt
    options = GroupOptions(group, asked.topics, pattern, asked.begin, asked.stop is None, commit, asked.isolation_level)
    return GroupReading(cluster, options, partials)


def _matching(cluster: "Cluster", expressions: list[str]) -> list[str]:
    """Topics whose whole name fits one of the expressions, as a coordinator would choose them for a group."""
    from skidway.errors import InvalidRegularExpression
    from skidway.groups.consumer.patterns import Pattern

    try:
        patterns = [Pattern(expression) for expression in expressions]
    except InvalidRegularExpression as error:
        misused(str(error))
    names = [topic.name for topic in cluster.refresh().topics.values() if not topic.internal]
    found = sorted(name for name in names if any(pattern.matches(name) for pattern in patterns))
    if not found:
        fail(f"no topic matches {' or '.join(expressions)}")
    return found


def _limited(polls: "Iterator[list[Consumed]]", count: int | None) -> "Generator[list[Consumed], None, None]":
    left = count
    while left is None or left > 0:
        messages = next(polls, None)
        if messages is None:
            return
        yield messages if left is None else list(islice(messages, left))
        if left is not None:
            left -= len(messages)


def _print(polls: "Iterable[list[Consumed]]", write: Writer) -> None:
    """Flushed after each poll, so that nothing waits in a buffer while the topic is quiet."""
    output = sys.stdout.buffer
    for messages in polls:
        output.write(b"".join(map(write, messages)))
        output.flush()


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command(epilog=EPILOG)(consume)


def main(arguments: list[str]) -> int:
    return run(app, "skidway consume", arguments)
