"""`skidway queue ack`, `release`, `reject` and `extend`: what becomes of messages, by the receipts of their delivery.

A receipt says by itself which message of which queue it is about.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    EXIT_FAILED,
    EXIT_INCOMPLETE,
    Bootstrap,
    ControllerTimeout,
    complain,
    connect,
    count_of,
    fail,
    friendly,
    misused,
)
from skidway.cli.queue_finding import Delay, Visibility, find_queue, ids_of, milliseconds

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster
    from skidway.gateways.queues.ids import Receipt

REASON_LENGTH_MAX = 1_000
RECEIPT_SHOWN_MAX = 20

Receipts = Annotated[
    list[str],
    typer.Argument(metavar="RECEIPT", help="One receipt or more, as skidway queue receive --keep --json prints them."),
]


@dataclass(slots=True, frozen=True)
class Word:
    """What is said of all the messages."""

    verb: int
    done: str
    doing: str
    time_ms: int | None = 0
    """None: the visibility time of the queue."""
    reason: str | None = None


@friendly
def ack(receipts: Receipts, bootstrap: Bootstrap = DEFAULT_BOOTSTRAP, timeout: ControllerTimeout = None) -> None:
    """Delete received messages: they are done."""
    from skidway.blocking_client.queues.messages import ACCEPT

    _tell(receipts, Word(ACCEPT, "acknowledged", "acknowledging a message"), bootstrap, timeout)


@friendly
def release(
    receipts: Receipts,
    delay: Delay = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Give received messages back: others get them at once, or after a delay. The receive counts."""
    from skidway.blocking_client.queues.messages import RELEASE

    word = Word(RELEASE, "released", "releasing a message", milliseconds("--delay", delay) or 0)
    _tell(receipts, word, bootstrap, timeout)


@friendly
def reject(
    receipts: Receipts,
    reason: Annotated[
        str | None, typer.Option("--reason", metavar="TEXT", help="What is wrong with it; the dead letter says so.")
    ] = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Send received messages to the dead letters, or drop them if the queue has none."""
    from skidway.blocking_client.queues.messages import REJECT

    if len(reason or "") > REASON_LENGTH_MAX:
        misused(f"--reason of {len(reason or '')} characters; at most {REASON_LENGTH_MAX} are kept")
    _tell(receipts, Word(REJECT, "rejected", "rejecting a message", reason=reason), bootstrap, timeout)


@friendly
def extend(
    receipts: Receipts,
    visibility: Visibility = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Hide received messages from others for longer, counted from now. Default: the visibility time of the queue."""
    from skidway.blocking_client.queues.messages import RENEW

    word = Word(RENEW, "extended", "extending a message", milliseconds("--visibility", visibility))
    _tell(receipts, word, bootstrap, timeout)


def _tell(texts: list[str], word: Word, bootstrap: str, timeout: float | None) -> None:
    done = refused = 0
    with connect(bootstrap, timeout) as cluster:
        for queue, receipts in _by_queue(cluster, texts).items():
            refusals = _tell_queue(cluster, queue, list(receipts), word)
            for text, refusal in zip(receipts.values(), refusals, strict=True):
                if refusal:
                    complain(f"{_short(text)}: {refusal}")
            refused += sum(map(bool, refusals))
            done += len(refusals) - sum(map(bool, refusals))
    if done:
        typer.echo(f"{word.done} {count_of(done, 'message')}")
    if refused:
        raise typer.Exit(EXIT_INCOMPLETE if done else EXIT_FAILED)


def _by_queue(cluster: "Cluster", texts: list[str]) -> "dict[str, dict[Receipt, str]]":
    """For each queue its receipts, with their texts. One that is none ends the command: nothing is said yet."""
    ids = ids_of(cluster)
    read: dict[Receipt, str] = {}
    for text in texts:
        receipt = ids.read_receipt(text)
        if receipt is None:
            misused(
                f"{_short(text)} is no receipt of this cluster; skidway queue receive QUEUE --keep --json prints them"
            )
        read[receipt] = text
    names = {topic.id: topic.name for topic in cluster.refresh().topics.values()}
    found: dict[str, dict[Receipt, str]] = {}
    for receipt, text in read.items():
        name = names.get(receipt.topic_id)
        if name is None:
            fail(f"{_short(text)} is of a queue that was deleted with its messages; nothing was done")
        found.setdefault(name, {})[receipt] = text
    return found


def _tell_queue(cluster: "Cluster", name: str, receipts: "list[Receipt]", word: Word) -> list[str]:
    from skidway.blocking_client.queues.managing import Queues
    from skidway.blocking_client.queues.messages import QueueMessages
    from skidway.wire.schema.settle_messages import MessageToSettle

    queue = find_queue(Queues(cluster), name)
    time_ms = queue.visibility_ms if word.time_ms is None else word.time_ms
    words = [
        (each.partition, MessageToSettle(each.offset, each.delivery_count, word.verb, time_ms, word.reason))
        for each in receipts
    ]
    return QueueMessages(cluster).settle(queue, words, word.doing)


def _short(receipt: str) -> str:
    return receipt if len(receipt) <= RECEIPT_SHOWN_MAX else f"{receipt[:RECEIPT_SHOWN_MAX]}…"
