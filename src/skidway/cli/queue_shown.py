"""Queues and their messages as `skidway queue` shows them, for people and as JSON."""

import json
import sys
import time
from typing import TYPE_CHECKING, Any

import typer

from skidway.cli.commands.group import age
from skidway.cli.formats import Format, Shown, writer
from skidway.cli.json_lines import iso_time, to_json
from skidway.cli.output import count_of, harmless, print_table, quantity, size, warn

if TYPE_CHECKING:
    from skidway.blocking_client.queues.managing import Counts, Queue
    from skidway.blocking_client.queues.messages import QueueMessage
    from skidway.gateways.queues.ids import Ids

BODY_SHOWN_MAX = 60


def counts_text(counts: "Counts") -> str:
    visible, in_flight, delayed = map(quantity, (counts.visible, counts.in_flight, counts.delayed))
    blocked = f" ({quantity(counts.blocked)} behind others of their group)" if counts.blocked else ""
    dead = f", {quantity(counts.dead)} dead and waiting for a letter" if counts.dead else ""
    return f"{visible} visible{blocked}, {in_flight} in flight, {delayed} delayed{dead}"


def summary_document(queue: "Queue", counts: "Counts | None", held_up: str = "") -> dict[str, Any]:
    """`held_up`: why a receive finds nothing although messages wait."""
    return {
        "queue": queue.name,
        "type": queue.kind,
        "partitions": queue.partitions,
        "visible": None if counts is None else counts.visible,
        "blocked": None if counts is None else counts.blocked,
        "in_flight": None if counts is None else counts.in_flight,
        "delayed": None if counts is None else counts.delayed,
        "dead": None if counts is None else counts.dead,
        "letter_trouble": None if counts is None else counts.letter_trouble or None,
        "dead_letters": queue.dead_letters or None,
        "held_up": held_up or None,
    }


def document(queue: "Queue", counts: "Counts", held_up: str, oldest_ms: int | None) -> dict[str, Any]:
    now_ms = time.time_ns() // 1_000_000
    return {
        **summary_document(queue, counts, held_up),
        "oldest_ms": oldest_ms,
        "oldest_age_s": None if oldest_ms is None else max(0, now_ms - oldest_ms) / 1000,
        "visibility_ms": queue.visibility_ms,
        "delay_ms": queue.delay_ms,
        "receive_wait_ms": queue.wait_ms,
        "retention_ms": queue.retention_ms,
        "max_message_bytes": queue.message_bytes_max,
        "max_receives": queue.max_receives or None,
        "content_deduplication": queue.content_deduplication if queue.is_fifo else None,
        "deduplication_scope": queue.deduplication_scope if queue.is_fifo else None,
    }


def print_description(queue: "Queue", counts: "Counts", shown: dict[str, Any]) -> None:
    kind = "FIFO" if queue.is_fifo else queue.kind
    name = typer.style(harmless(queue.name), bold=True)
    typer.echo(f"{name}  {kind} queue, {count_of(queue.partitions, 'partition')}")
    oldest = "" if shown["oldest_age_s"] is None else f", oldest {age(shown['oldest_age_s'])}"
    typer.echo(f"{counts_text(counts)}{oldest}")
    if counts.dead and counts.letter_trouble:
        typer.echo(f"dead letters cannot be written: {harmless(counts.letter_trouble)}")
    if shown["held_up"]:
        typer.echo(f"a receive finds nothing: {shown['held_up']}")
    letters = queue.dead_letters or "none: dead messages are dropped"
    rows = [
        ("visibility time-out", _time(queue.visibility_ms)),
        ("delay", _time(queue.delay_ms)),
        ("receive wait", _time(queue.wait_ms)),
        ("retention", "for ever" if queue.retention_ms < 0 else _time(queue.retention_ms)),
        ("largest message", size(queue.message_bytes_max)),
        ("max receives", queue.max_receives or "no limit"),
        ("dead-letter queue", letters if queue.max_receives or queue.dead_letters else "none"),
    ]
    if queue.is_fifo:
        rows.append(("content deduplication", "yes" if queue.content_deduplication else "no"))
        rows.append(("deduplication scope", queue.deduplication_scope))
    print_table(("setting", "value"), rows)


def print_summaries(documents: list[dict[str, Any]]) -> None:
    columns = ("queue", "type", "visible", "in flight", "delayed", "dead letters")
    rows = [
        tuple(
            "-" if entry[column] is None else entry[column]
            for column in ("queue", "type", "visible", "in_flight", "delayed", "dead_letters")
        )
        for entry in documents
    ]
    print_table(columns, rows, right=columns[2:5])
    for entry in documents:
        if entry["held_up"]:
            warn(f"a receive from {entry['queue']} finds nothing: {entry['held_up']}")


def print_peeked(messages: "list[QueueMessage]") -> None:
    rows = [
        (
            message.state,
            message.delivery_count,
            iso_time(message.record.timestamp) or "-",
            "-" if message.record.key is None else _text(message.record.key),
            "-" if message.record.value is None else _text(message.record.value),
        )
        for message in messages
    ]
    print_table(("state", "receives", "sent", "key", "body"), rows, right=("receives",))


def print_bodies(messages: "list[QueueMessage]") -> None:
    """One a line, as `consume` prints values. Returns when they are written: a reader that went away raises."""
    write = writer(Format.TEXT, Shown(), terminal=sys.stdout.isatty())
    sys.stdout.flush()
    for message in messages:
        sys.stdout.buffer.write(write(message.record))
    sys.stdout.buffer.flush()


def print_lines(documents: list[dict[str, Any]]) -> None:
    """One JSON object a line, written when this returns."""
    for entry in documents:
        sys.stdout.write(json.dumps(entry, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def message_document(queue: "Queue", ids: "Ids", message: "QueueMessage") -> dict[str, Any]:
    from skidway.records.queue_headers import DEDUP_ID, QUEUE_DELIVER_AT

    record = message.record
    own = [(name, value) for name, value in record.headers if name not in (DEDUP_ID, QUEUE_DELIVER_AT)]
    return {
        "message_id": ids.message_id(queue.topic_id, record.partition, record.offset),
        "state": message.state,
        "receives": message.delivery_count,
        **to_json(record._replace(headers=own)),
    }


def receipt(queue: "Queue", ids: "Ids", message: "QueueMessage") -> str:
    """What `/ack` and DeleteMessage take."""
    record, now_ms = message.record, time.time_ns() // 1_000_000
    return ids.receipt(queue.topic_id, record.partition, record.offset, message.delivery_count, now_ms)


def _time(milliseconds: int) -> str:
    return age(milliseconds / 1000)


def _text(content: bytes) -> str:
    """The beginning of it; `--json` has all."""
    text = content[: 4 * BODY_SHOWN_MAX].decode("utf-8", "backslashreplace")
    return text if len(text) <= BODY_SHOWN_MAX else text[: BODY_SHOWN_MAX - 1] + "…"
