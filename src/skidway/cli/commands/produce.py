"""`skidway produce`: messages from standard input or a file into a topic."""

import io
import itertools
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from skidway.cli.help.names import complete_topic
from skidway.cli.help.suggestions import topic_meant
from skidway.cli.json_lines import Draft, from_json, json_value
from skidway.cli.options import Count
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    EXIT_INTERRUPTED,
    AsJson,
    Bootstrap,
    Meter,
    Timeout,
    count_of,
    fail,
    friendly,
    misused,
    parse_size,
    print_json,
    progress,
    run,
    size,
)
from skidway.cli.places import AtTime, End, place_option
from skidway.cli.receipts import Failure, Receipts

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.producer import Producer

LINGER_S = 0.01
"""Input that pauses this long is sent: `tail -f log | skidway produce` loses no time."""
READ_BYTES = 256 * 1024
LINE_BYTES_MAX = 100 * 1024 * 1024
EPILOG = """
Fields of --format json. value: text, null for a tombstone, or any JSON, whose text is then the message; required.
key: the same, null if left out. value_base64, key_base64: bytes that are not text. headers: a list of objects with name
and value, or an object. partition: a number; left out, the key chooses. timestamp: milliseconds since 1970; or time, as
2026-01-31T12:00:00Z. topic and offset are accepted, as consume prints them, and ignored. Anything else is rejected.\n
Examples:\n
echo hello | skidway produce greetings\n
skidway produce orders --key-separator : --file orders.txt --codec zstd\n
echo '{"key": "ann", "value": "b", "headers": {"from": "me"}}' | skidway produce users --format json\n
skidway produce events --format json-value --file events.jsonl\n
skidway consume a --format json | skidway produce b --format json
"""


class Codec(StrEnum):
    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class Acks(StrEnum):
    NONE = "0"
    LEADER = "1"
    ALL = "all"


class Input(StrEnum):
    LINES = "lines"
    JSON = "json"
    JSON_VALUE = "json-value"
    RAW = "raw"


CODECS = {codec: number for number, codec in enumerate(Codec)}
ACKS = {Acks.NONE: 0, Acks.LEADER: 1, Acks.ALL: -1}


TopicName = Annotated[str, typer.Argument(help="The topic.", autocompletion=complete_topic)]
File = Annotated[
    str | None, typer.Option("--file", "-i", metavar="PATH", help="Read this file instead of standard input.")
]
Form = Annotated[
    Input,
    typer.Option(
        "--format",
        "-f",
        "-F",
        help="lines: one message per line. json: one object per line with the fields below, as consume prints it. "
        "json-value: each line is JSON, and is the value. raw: all of the input is one message.",
    ),
]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", "-K", metavar="TEXT", help="What ends the key in each line, e.g. ':'.")
]
Key = Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="One key for all messages.")]
HeaderTexts = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header for all; repeatable.")
]
Null = Annotated[str | None, typer.Option("--null", metavar="TEXT", help="The text that means null.")]
PartitionNumber = Annotated[
    int | None,
    typer.Option("--partition", "-p", metavar="N", help="Send all to this partition, whatever the key.", min=0),
]
Timestamp = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        "-T",
        metavar="TIME",
        help="One timestamp for all messages: 2026-01-31T12:00, an age such as 10m, or @MILLISECONDS. Default: now.",
    ),
]
Repartition = Annotated[
    bool, typer.Option("--repartition", help="Choose partitions by key, and ignore `partition` in JSON lines.")
]
CodecName = Annotated[Codec, typer.Option("--codec", "-z", help="Compression.")]
AcksName = Annotated[
    Acks,
    typer.Option(
        "--acks",
        help="Count a message as sent when: 0 it was sent, 1 the leader has it, all: every in-sync replica has it.",
    ),
]
BatchSize = Annotated[str, typer.Option("--batch", metavar="SIZE", help="Bytes in a batch, before compression.")]
Create = Annotated[bool, typer.Option("--create", help="Create the topic if it is missing.")]
ShowProgress = Annotated[
    bool | None,
    typer.Option("--progress/--no-progress", help="Show progress. Default: at a terminal, with --file."),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")]


@friendly
def produce(
    topic: TopicName,
    file: File = None,
    form: Form = Input.LINES,
    key_separator: KeySeparator = None,
    key: Key = None,
    header: HeaderTexts = None,
    null: Null = None,
    partition: PartitionNumber = None,
    repartition: Repartition = False,
    timestamp: Timestamp = None,
    codec: CodecName = Codec.NONE,
    acks: AcksName = Acks.ALL,
    batch: BatchSize = "256k",
    count: Count = None,
    create: Create = False,
    show_progress: ShowProgress = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: Timeout = DEFAULT_TIMEOUT_S,
) -> None:
    """Send messages to a topic: by default each line of standard input is a message."""
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.producer import Producer

    if partition is not None and repartition:
        misused("--partition names the partition and --repartition lets the key choose it: give one of them")
    common = Common(
        topic,
        partition,
        repartition,
        raw(key) if key is not None else None,
        header_list(header or []),
        _timestamp_ms(timestamp),
    )
    receipts = Receipts(topic)
    batch_bytes = parse_size(batch)
    visible = show_progress if show_progress is not None else file is not None and sys.stderr.isatty()
    with _open(file) as source, Cluster(bootstrap, client_id="skidway-cli", timeout_ms=int(timeout * 1000)) as cluster:
        _find_topic(cluster, topic, create=create)
        producer = Producer(
            cluster, acks=ACKS[acks], codec=CODECS[codec], batch_bytes=batch_bytes, on_delivered=receipts.add
        )
        drafts = itertools.islice(_drafts(source, form, key_separator, null, producer.flush), count)
        with progress(f"to {topic}", count, shown=visible) as meter:
            failure = _send_all(producer, drafts, common, receipts, meter)
    if as_json:
        print_json(receipts.document() if failure is None else failure.document(receipts))
    if failure is not None:
        fail(failure.sentence(receipts), failure.exit_code)
    if not as_json and not quiet:
        typer.echo(receipts.sentence(), err=True)


@dataclass(slots=True)
class Common:
    """What all messages have in common."""

    topic: str
    partition: int | None
    repartition: bool
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int | None


def _find_topic(cluster: "Cluster", topic: str, *, create: bool) -> None:
    from skidway.blocking_client.admin import Admin
    from skidway.blocking_client.cluster import NoSuchTopic

    try:
        cluster.topic(topic)
    except NoSuchTopic:
        if not create:
            meant = topic_meant(cluster, topic)
            todo = f"create it with --create, or with skidway topic create {topic}"
            fail(f"there is no topic {topic}; {f'{meant} Or ' if meant else ''}{todo}")
        Admin(cluster).create_topic(topic)


def _send_all(
    producer: "Producer", drafts: Iterable[tuple[int, Draft]], common: Common, receipts: Receipts, meter: Meter
) -> Failure | None:
    """Why not everything was sent, if so. What was read before a bad line is sent all the same."""
    from skidway.blocking_client.errors import ClientError

    try:
        for number, (line, draft) in enumerate(drafts):
            _send(producer, line, draft, common, receipts)
            if number % 1000 == 0:
                meter.set(number, count_of(number, "message"))
        producer.flush()
    except _BadInput as bad:
        try:
            producer.flush()
        except ClientError as error:
            return Failure.of(error, receipts)
        return Failure(bad.line, str(bad))
    except ClientError as error:
        return Failure.of(error, receipts)
    except KeyboardInterrupt:
        return Failure(None, "interrupted", uncertain=True, exit_code=EXIT_INTERRUPTED)
    return None


def _send(producer: "Producer", line: int, draft: Draft, common: Common, receipts: Receipts) -> None:
    from skidway.blocking_client.cluster import NoSuchPartition

    partition = draft.partition if common.partition is None and not common.repartition else common.partition
    try:
        chosen = producer.send(
            common.topic,
            draft.value,
            key=draft.key if common.key is None else common.key,
            headers=[*draft.headers, *common.headers],
            partition=partition,
            timestamp_ms=draft.timestamp if common.timestamp_ms is None else common.timestamp_ms,
        )
    except NoSuchPartition as error:
        hint = "; --repartition chooses partitions by key" if common.partition is None else ""
        raise _BadInput(line, f"{error}{hint}") from None
    except BaseException:
        receipts.sent(-1, line)  # read, and in no partition yet
        raise
    receipts.sent(chosen, line)


class _BadInput(Exception):
    """A line that is no message, or none that the topic can take."""

    def __init__(self, line: int, reason: str) -> None:
        super().__init__(reason)
        self.line = line


def raw(text: str) -> bytes:
    """An argument as it was typed, also where that is not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def header_list(texts: list[str]) -> list[tuple[str, bytes | None]]:
    headers: list[tuple[str, bytes | None]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            misused(f"{text!r} is not a header; expected NAME=VALUE")
        headers.append((name, raw(value)))
    return headers


def _timestamp_ms(text: str | None) -> int | None:
    if text is None:
        return None
    place = place_option(text, End())
    if not isinstance(place, AtTime):
        misused(f"{text!r} is not a time; expected e.g. 2026-01-31T12:00, 10m or @1769860800000")
    return place.timestamp_ms


def _open(file: str | None) -> AbstractContextManager[BinaryIO]:
    if file is not None and file != "-":
        return open(file, "rb")
    if sys.stdin.isatty():
        typer.echo("one message a line; Ctrl-D ends", err=True)
    return nullcontext(sys.stdin.buffer)


def _drafts(
    source: BinaryIO, form: Input, key_separator: str | None, null: str | None, on_pause: Callable[[], object]
) -> Iterator[tuple[int, Draft]]:
    """The messages of the input, each with the number of its line."""
    if form is Input.RAW:
        yield 1, Draft(source.read())
        return
    separator = raw(key_separator) if key_separator else None
    for number, line in enumerate(_lines(source, on_pause), start=1):
        if form in (Input.JSON, Input.JSON_VALUE) and not line.strip():
            continue
        try:
            draft = _draft(line, form, separator)
        except ValueError as error:
            raise _BadInput(number, str(error)) from None
        if null is not None and draft.value == raw(null):
            draft.value = None
        yield number, draft


def _draft(line: bytes, form: Input, separator: bytes | None) -> Draft:
    if len(line) > LINE_BYTES_MAX:
        raise ValueError(f"longer than {size(LINE_BYTES_MAX)}")
    if form is Input.JSON:
        return from_json(line)
    if form is Input.JSON_VALUE:
        return json_value(line)
    return _split(line, separator)


def _split(line: bytes, separator: bytes | None) -> Draft:
    if separator is None:
        return Draft(line)
    key, found, value = line.partition(separator)
    if not found:
        raise ValueError(f"there is no key separator {separator.decode()!r} in it")
    return Draft(value, key)


def _lines(source: BinaryIO, on_pause: Callable[[], object]) -> Iterator[bytes]:
    """The lines without their ends. When the input pauses, `on_pause` is called: what was gathered can go out."""
    try:
        descriptor = source.fileno()
    except (OSError, io.UnsupportedOperation):
        yield from (line.removesuffix(b"\n") for line in source)
        return
    rest = b""
    while True:
        if not select.select([descriptor], [], [], LINGER_S)[0]:
            on_pause()
        received = os.read(descriptor, READ_BYTES)
        if not received:
            break
        *whole, rest = (rest + received).split(b"\n")
        yield from whole
        if len(rest) > LINE_BYTES_MAX:
            break  # it is refused as it is
    if rest:
        yield rest


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command(epilog=EPILOG)(produce)


def main(arguments: list[str]) -> int:
    return run(app, "skidway produce", arguments)
