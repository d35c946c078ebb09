"""`skidway queue schedule`: messages that a queue gets at a later time, or again and again."""

import secrets
import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.commands.group import age
from skidway.cli.commands.produce import HeaderTexts, Key, header_list, raw
from skidway.cli.json_lines import iso_time
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ControllerTimeout,
    connect,
    friendly,
    group,
    misused,
    print_json,
    print_table,
    size,
)
from skidway.cli.queue_finding import Name, find_queue, milliseconds

if TYPE_CHECKING:
    from skidway.wire.schema.manage_schedules import ListedSchedule

AHEAD_MS_MAX = 366 * 86_400_000
ID_BYTES = 8

app = group("Schedule messages of a queue, up to a year ahead or again and again; list and cancel what is scheduled.")

At = Annotated[
    str | None,
    typer.Option(
        "--due", metavar="TIME", help="When: 2027-01-31T08:00 (local, or with Z or +02:00), or @MILLISECONDS."
    ),
]
In = Annotated[str | None, typer.Option("--in", metavar="TIME", help="How long from now: 30s, 12h, 90d, up to 366d.")]
Cron = Annotated[
    str | None,
    typer.Option("--cron", metavar="EXPRESSION", help="Again and again: minute, hour, day, month, day of the week."),
]
Zone = Annotated[
    str, typer.Option("--zone", metavar="NAME", help="The time zone of --cron, such as Europe/Berlin. Default: UTC.")
]
Id = Annotated[
    str | None, typer.Option("--schedule-id", metavar="TEXT", help="By which it is cancelled. Default: a new one.")
]


@app.command(
    epilog="Examples:\n\nskidway queue schedule create jobs 'renew 17' --in 90d --schedule-id renew-17\n\n"
    "skidway queue schedule create jobs report --cron '30 8 * * mon-fri' --zone Europe/Berlin"
)
@friendly
def create(
    queue: Name,
    body: Annotated[str, typer.Argument(metavar="BODY", help="The message.")],
    at: At = None,
    in_: In = None,
    cron: Cron = None,
    zone: Zone = "",
    schedule_id: Id = None,
    key: Key = None,
    header: HeaderTexts = None,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Schedule a message. The same again, with the same --schedule-id and --due or --cron, schedules nothing twice."""
    from skidway.blocking_client.queues.managing import Queues
    from skidway.blocking_client.queues.schedules import Schedules
    from skidway.wire.schema.manage_schedules import ScheduleToCreate

    if sum(each is not None for each in (at, in_, cron)) != 1:
        misused("say when: give one of --due, --in and --cron")
    if zone and cron is None:
        misused("--zone is for --cron: --due says its zone itself, as in 2027-01-31T08:00+02:00")
    wanted = ScheduleToCreate(
        schedule_id or secrets.token_hex(ID_BYTES),
        0 if cron is not None else _due_ms(at, in_),
        cron or "",
        (zone or "UTC") if cron is not None else "",
        message_key=None if key is None else raw(key),
        body=raw(body),
    )
    with connect(bootstrap, timeout) as cluster:
        found = find_queue(Queues(cluster), queue)
        created = Schedules(cluster).create(found, wanted, header_list(header or []))
    state = "is scheduled already" if created.existed else "scheduled"
    typer.echo(f"{wanted.id} {state}, due {iso_time(created.due_ms)}")


@app.command("list", epilog="Example: skidway queue schedule list jobs --json")
@friendly
def list_schedules(
    queue: Name,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """List what is scheduled for a queue and has not been delivered, by id."""
    from skidway.blocking_client.queues.managing import Queues
    from skidway.blocking_client.queues.schedules import Schedules

    with connect(bootstrap, timeout) as cluster:
        found = list(Schedules(cluster).all(find_queue(Queues(cluster), queue)))
    if as_json:
        print_json([_document(each) for each in found])
    elif found:
        now_ms = time.time_ns() // 1_000_000
        rows = [
            (each.id, iso_time(each.due_ms), age(max(0, each.due_ms - now_ms) / 1000), _again(each), size(each.size))
            for each in found
        ]
        print_table(("id", "due", "in", "again", "size"), rows, right=("in", "size"))
    else:
        typer.echo(f"nothing is scheduled for {queue}", err=True)


@app.command(epilog="Example: skidway queue schedule cancel jobs renew-17")
@friendly
def cancel(
    queue: Name,
    ids: Annotated[list[str], typer.Argument(metavar="ID", help="One schedule or more.")],
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Cancel what is scheduled. A message that is being delivered cannot be stopped."""
    from skidway.blocking_client.queues.managing import Queues
    from skidway.blocking_client.queues.schedules import Schedules

    with connect(bootstrap, timeout) as cluster:
        found = find_queue(Queues(cluster), queue)
        schedules = Schedules(cluster)
        for each in ids:
            cancelled = schedules.cancel(found, each)
            last = "; a last message is being delivered" if cancelled.on_its_way else ""
            typer.echo(f"cancelled {each}{last}")


def _due_ms(at: str | None, in_: str | None) -> int:
    if at is None:
        return time.time_ns() // 1_000_000 + (milliseconds("--in", in_, AHEAD_MS_MAX) or 0)
    if at.startswith("@") and at[1:].isascii() and at[1:].isdigit() and len(at) <= 18:
        return int(at[1:])
    try:
        return int(datetime.fromisoformat(at.strip()).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        misused(f"--due {at}: expected a time such as 2027-01-31T08:00, 2027-01-31T08:00Z or @1801382400000")


def _again(listed: "ListedSchedule") -> str:
    return f"{listed.cron} {listed.zone}" if listed.cron else "-"


def _document(listed: "ListedSchedule") -> dict[str, Any]:
    return {
        "id": listed.id,
        "due": iso_time(listed.due_ms),
        "due_ms": listed.due_ms,
        "cron": listed.cron or None,
        "time_zone": listed.zone or None,
        "created_ms": listed.created_ms,
        "bytes": listed.size,
    }
