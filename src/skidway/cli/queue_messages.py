"""`skidway queue peek`, `send` and `receive`: messages of a queue."""

import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from skidway.cli.commands.produce import HeaderTexts, Key, header_list, raw
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ControllerTimeout,
    connect,
    count_of,
    fail,
    friendly,
    misused,
    quantity,
    warn,
)
from skidway.cli.queue_finding import Delay, JsonLines, Name, Visibility, find_queue, ids_of, milliseconds
from skidway.cli.queue_shown import message_document, print_bodies, print_lines, print_peeked, receipt
from skidway.cli.queues.lines import COUNT_MAX as SENT_AT_ONCE
from skidway.cli.queues.lines import in_batches

if TYPE_CHECKING:
    from skidway.blocking_client.queues.managing import Queue
    from skidway.blocking_client.queues.messages import Draft, QueueMessages, Sent
    from skidway.gateways.queues.ids import Ids

WAIT_MS_MAX = 7 * 86_400_000
BODY_BYTES_MAX = 1024 * 1024
PEEKED_MAX = 1_000


@friendly
def peek(
    queue: Name,
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", help="Show at most N messages.", min=1, max=PEEKED_MAX)
    ] = 10,
    as_json: JsonLines = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Show the oldest messages of a queue. It takes none: others receive them all the same."""
    from skidway.blocking_client.queues.managing import Queues
    from skidway.blocking_client.queues.messages import QueueMessages

    with connect(bootstrap, timeout) as cluster:
        found = find_queue(Queues(cluster), queue)
        messages = QueueMessages(cluster).peek(found, count)
        if as_json:
            ids = ids_of(cluster)
            print_lines([message_document(found, ids, message) for message in messages])
        elif messages:
            print_peeked(messages)
        else:
            typer.echo(f"{queue} is empty", err=True)


@friendly
def send(
    queue: Name,
    bodies: Annotated[
        list[str] | None,
        typer.Argument(metavar="[BODY]...", help="Messages. Default: each line of standard input is one."),
    ] = None,
    key: Key = None,
    message_group: Annotated[
        str | None,
        typer.Option("--message-group", metavar="TEXT", help="FIFO queues: the group whose order is kept."),
    ] = None,
    dedup_id: Annotated[
        str | None,
        typer.Option(
            "--dedup-id",
            metavar="TEXT",
            help="FIFO queues: an id that is sent once in five minutes. Default: a new one, or by --content-dedup.",
        ),
    ] = None,
    header: HeaderTexts = None,
    delay: Delay = None,
    as_json: JsonLines = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Send messages to a queue, and return when all in-sync replicas have them.

    Lines of standard input go out as they come: 500 at a time, or what there is after 100 ms.
    """
    from skidway.blocking_client.queues.managing import Queues
    from skidway.blocking_client.queues.messages import Draft, QueueMessages

    if dedup_id is not None and len(bodies or ()) != 1:
        misused("--dedup-id is the id of one message: give one BODY")
    headers, delay_ms = header_list(header or []), milliseconds("--delay", delay)
    with connect(bootstrap, timeout) as cluster:
        found = find_queue(Queues(cluster), queue)
        chosen = _key(found, key, message_group, dedup_id)
        # Of a line that is too long only the beginning was read.
        drafts = (
            [
                Draft(text, chosen, headers, delay_ms, dedup_id, not bodies and len(text) > BODY_BYTES_MAX)
                for text in texts
            ]
            for texts in (_batches(bodies) if bodies else _lines())
        )
        _send_all(QueueMessages(cluster), found, drafts, ids_of(cluster), as_json=as_json)


def _key(queue: "Queue", key: str | None, message_group: str | None, dedup_id: str | None) -> bytes | None:
    if not queue.is_fifo:
        if message_group is not None or dedup_id is not None:
            misused(f"{queue.name} is a standard queue: --message-group and --dedup-id are for FIFO queues")
        return None if key is None else raw(key)
    if key is not None:
        misused(f"{queue.name} is a FIFO queue, where the group is the key: give --message-group in the place of --key")
    if not message_group:
        misused(f"{queue.name} is a FIFO queue: give --message-group, e.g. the customer whose order of messages counts")
    return raw(message_group)


def _batches(bodies: list[str]) -> Iterator[list[bytes]]:
    for start in range(0, len(bodies), SENT_AT_ONCE):
        yield [raw(body) for body in bodies[start : start + SENT_AT_ONCE]]


def _lines() -> Iterator[list[bytes]]:
    if sys.stdin.isatty():
        typer.echo("one message a line; Ctrl-D ends", err=True)
    return in_batches(sys.stdin.buffer, BODY_BYTES_MAX)


def _send_all(
    messages: "QueueMessages", queue: "Queue", drafts: "Iterable[list[Draft]]", ids: "Ids", *, as_json: bool
) -> None:
    from skidway.blocking_client.errors import ClientError

    sent = repeated = 0
    for some in drafts:
        try:
            done = messages.send(queue, some)
        except ClientError as error:
            fail(f"{error}; {count_of(sent, 'message')} sent before that")
        sent += len(done)
        repeated += sum(each.duplicate for each in done)
        if as_json:
            print_lines([_sent_document(queue, ids, each) for each in done])
    if not as_json:
        again = f"; {quantity(repeated)} had been sent before" if repeated else ""
        typer.echo(f"sent {count_of(sent - repeated, 'message')} to {queue.name}{again}")


def _sent_document(queue: "Queue", ids: "Ids", sent: "Sent") -> dict[str, object]:
    message_id = ids.message_id(queue.topic_id, sent.partition, sent.offset)
    told = {"message_id": message_id, "partition": sent.partition, "offset": sent.offset}
    return {**told, "duplicate": sent.duplicate} if queue.is_fifo else told


@friendly
def receive(
    queue: Name,
    count: Annotated[int, typer.Option("--count", "-n", metavar="N", help="Receive at most N messages.", min=1)] = 1,
    wait: Annotated[
        str | None,
        typer.Option(
            "--wait",
            metavar="TIME",
            help="How long to wait for the first message: 20, 20s, 5m. Default: as the queue says.",
        ),
    ] = None,
    visibility: Visibility = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Do not delete what was printed: it comes again after its visibility time.")
    ] = False,
    as_json: JsonLines = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Receive messages of a queue: print them, then delete them.

    What could not be printed is not deleted, and comes again. With --keep and --json each message has a receipt, which
    ack, release, reject and extend take, and the HTTP listener at /ack.
    """
    from skidway.blocking_client.queues.managing import Queues
    from skidway.blocking_client.queues.messages import QueueMessages

    received, refused = 0, list[str]()
    asked_wait_ms = milliseconds("--wait", wait, WAIT_MS_MAX)
    asked_visibility_ms = milliseconds("--visibility", visibility)
    with connect(bootstrap, timeout) as cluster:
        found = find_queue(Queues(cluster), queue)
        box, ids = QueueMessages(cluster), ids_of(cluster)
        wait_ms = found.wait_ms if asked_wait_ms is None else asked_wait_ms
        visibility_ms = found.visibility_ms if asked_visibility_ms is None else asked_visibility_ms
        while received < count:
            messages = box.receive(found, count - received, wait_ms=wait_ms, visibility_ms=visibility_ms)
            if not messages:
                break
            if as_json:
                documents = [message_document(found, ids, message) for message in messages]
                for each, message in zip(documents, messages, strict=True):
                    each |= {"receipt": receipt(found, ids, message)} if keep else {}
                print_lines(documents)
            else:
                print_bodies(messages)
            if not keep:
                refused += box.delete(found, messages)
            received, wait_ms = received + len(messages), 0
    if refused:
        warn(f"{count_of(len(refused), 'message')} could not be deleted and may come again: {refused[0]}")
    if not received:
        typer.echo(f"{queue} has no message to receive now", err=True)
