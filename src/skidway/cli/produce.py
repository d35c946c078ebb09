"""`skidway produce`: messages from standard input or a file into a topic."""

import io
import itertools
import os
import select
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from skidway.cli.formats import Draft, from_json
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    DEFAULT_TIMEOUT_S,
    AsJson,
    Bootstrap,
    Meter,
    Timeout,
    fail,
    friendly,
    parse_size,
    print_json,
    progress,
    quantity,
    run,
    size,
)

if TYPE_CHECKING:
    from skidway.client.cluster import Cluster
    from skidway.client.producer import Delivered, Producer

LINGER_S = 0.01
"""Input that pauses this long is sent: `tail -f log | skidway produce` loses no time."""
READ_BYTES = 256 * 1024
LINE_BYTES_MAX = 100 * 1024 * 1024
EPILOG = """
Examples:\n
echo hello | skidway produce greetings\n
skidway produce orders --key-separator : --file orders.txt --codec zstd\n
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
    RAW = "raw"


CODECS = {codec: number for number, codec in enumerate(Codec)}
ACKS = {Acks.NONE: 0, Acks.LEADER: 1, Acks.ALL: -1}


TopicName = Annotated[str, typer.Argument(help="The topic.")]
File = Annotated[
    str | None, typer.Option("--file", "-i", metavar="PATH", help="Read this file and not standard input.")
]
Form = Annotated[
    Input,
    typer.Option(
        "--format", "-F", help="A message a line; a JSON object a line, as consume has it; or all of it one message."
    ),
]
KeySeparator = Annotated[
    str | None, typer.Option("--key-separator", "-k", metavar="TEXT", help="What ends the key in each line, e.g. ':'.")
]
Key = Annotated[str | None, typer.Option("--key", help="One key for all messages.")]
HeaderTexts = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="NAME=VALUE", help="A header for all; repeatable.")
]
Null = Annotated[str | None, typer.Option("--null", metavar="TEXT", help="A line or value that stands for null.")]
PartitionNumber = Annotated[int | None, typer.Option("--partition", "-p", help="To this one, whatever the key.", min=0)]
CodecName = Annotated[Codec, typer.Option("--codec", "-z", help="Compression.")]
AcksName = Annotated[Acks, typer.Option("--acks", help="Who must have a message before it counts as sent.")]
BatchSize = Annotated[str, typer.Option("--batch", metavar="SIZE", help="Bytes in a batch, before compression.")]
Count = Annotated[int | None, typer.Option("--count", "-n", help="Stop after this many messages.", min=0)]
Create = Annotated[bool, typer.Option("--create", help="Make the topic if it is missing.")]
ShowProgress = Annotated[
    bool | None, typer.Option("--progress/--no-progress", help="Default: at a terminal, with --file.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No summary.")]


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
    """Send messages to a topic: one a line from standard input, unless told otherwise."""
    from skidway.client.cluster import Cluster
    from skidway.client.producer import Producer

    common = Common(
        topic, partition, key.encode() if key is not None else None, [_header(text) for text in header or []]
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
            _send_all(producer, drafts, common, meter)
    if as_json:
        print_json(receipts.document())
    elif not quiet:
        typer.echo(receipts.sentence(), err=True)


@dataclass(slots=True)
class Common:
    """What all messages have in common."""

    topic: str
    partition: int | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]


@dataclass(slots=True)
class Receipts:
    """What was acknowledged."""

    topic: str
    messages: int = 0
    bytes: int = 0
    offsets: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, delivered: "Delivered") -> None:
        self.messages += delivered.records
        self.bytes += delivered.bytes
        first, last = delivered.base_offset, delivered.base_offset + delivered.records - 1
        known = self.offsets.get(delivered.partition)
        self.offsets[delivered.partition] = (first if known is None else known[0], last)

    def sentence(self) -> str:
        noun = "message" if self.messages == 1 else "messages"
        return f"sent {quantity(self.messages)} {noun} ({size(self.bytes)}) to {self.topic}"

    def document(self) -> dict[str, Any]:
        partitions = [
            {"partition": partition, "first_offset": first, "last_offset": last}
            for partition, (first, last) in sorted(self.offsets.items())
        ]
        return {"topic": self.topic, "messages": self.messages, "bytes": self.bytes, "partitions": partitions}


def _find_topic(cluster: "Cluster", topic: str, *, create: bool) -> None:
    from skidway.client.admin import Admin
    from skidway.client.cluster import NoSuchTopic

    try:
        cluster.topic(topic)
    except NoSuchTopic:
        if not create:
            fail(f"there is no topic {topic}; make it with --create or: skidway topic create {topic}")
        Admin(cluster).create_topic(topic)


def _send_all(producer: "Producer", drafts: Iterable[Draft], common: Common, meter: Meter) -> None:
    for number, draft in enumerate(drafts):
        producer.send(
            common.topic,
            draft.value,
            key=draft.key if common.key is None else common.key,
            headers=[*draft.headers, *common.headers],
            partition=common.partition,
            timestamp_ms=draft.timestamp,
        )
        if number % 1000 == 0:
            meter.set(number, f"{quantity(number)} messages")
    producer.flush()


def raw(text: str) -> bytes:
    """An argument as it was typed, also where that is not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def _header(text: str) -> tuple[str, bytes | None]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise typer.BadParameter(f"{text!r} is not a header; expected NAME=VALUE")
    return name, raw(value)


def _open(file: str | None) -> AbstractContextManager[BinaryIO]:
    if file is not None and file != "-":
        return open(file, "rb")
    if sys.stdin.isatty():
        typer.echo("one message a line; Ctrl-D ends", err=True)
    return nullcontext(sys.stdin.buffer)


def _drafts(
    source: BinaryIO, form: Input, key_separator: str | None, null: str | None, on_pause: Callable[[], object]
) -> Iterator[Draft]:
    if form is Input.RAW:
        yield Draft(source.read())
        return
    separator = raw(key_separator) if key_separator else None
    for number, line in enumerate(_lines(source, on_pause), start=1):
        if form is Input.JSON and not line.strip():
            continue
        try:
            draft = from_json(line) if form is Input.JSON else _split(line, separator)
        except ValueError as error:
            fail(f"line {number}: {error}")
        if null is not None and draft.value == raw(null):
            draft.value = None
        yield draft


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
        if len(rest) > LINE_BYTES_MAX:
            fail(f"a line of the input is longer than {size(LINE_BYTES_MAX)}")
        yield from whole
    if rest:
        yield rest


app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command(epilog=EPILOG)(produce)


def main(arguments: list[str]) -> int:
    return run(app, "skidway produce", arguments)
