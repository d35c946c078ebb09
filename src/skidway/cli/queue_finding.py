"""What the commands of `skidway queue` share: how a queue is named and found, and ids of its messages."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from skidway.cli.help.names import complete_queue
from skidway.cli.output import fail, misused
from skidway.cli.places import parse_age_ms

if TYPE_CHECKING:
    from skidway.blocking_client.cluster import Cluster
    from skidway.blocking_client.queues.managing import Queue, Queues
    from skidway.gateways.queues.ids import Ids

VISIBILITY_MS_MAX = 43_200_000
QUEUE_DELAY_MS_MAX = 900_000
"""Of a queue; a message may say up to 12 hours."""
RECEIVE_WAIT_MS_MAX = 20_000
"""What a queue may say; a receive may say more."""
SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")

Names = Annotated[list[str], typer.Argument(metavar="QUEUE", help="One queue or more.", autocompletion=complete_queue)]
Name = Annotated[str, typer.Argument(metavar="QUEUE", help="The queue.", autocompletion=complete_queue)]
Visibility = Annotated[
    str | None,
    typer.Option(
        "--visibility",
        metavar="TIME",
        help="How long a message that was received is hidden from others: 30, 30s, 10m, up to 12h.",
    ),
]
Delay = Annotated[
    str | None,
    typer.Option(
        "--delay",
        metavar="TIME",
        help="How long a message waits before anybody gets it: 30, 30s, 10m; of a message up to 12h, of a queue 15m.",
    ),
]
JsonLines = Annotated[bool, typer.Option("--json", help="One JSON object per line.")]


def find_queue(queues: "Queues", name: str) -> "Queue":
    from skidway.blocking_client.queues.managing import NoSuchQueue, NotAQueue
    from skidway.cli.help.misspelt import question

    try:
        return queues.find(name)
    except NoSuchQueue as error:
        meant = question(name, (queue.name for queue in queues.all()))
        todo = f"skidway queue create {name} creates it"
        fail(f"{error}; {f'{meant} Or: ' if meant else ''}{todo}")
    except NotAQueue as error:
        fail(f"{error}; skidway topic alter {name} -c queue.type=standard makes it one")


def ids_of(cluster: "Cluster") -> "Ids":
    from skidway.gateways.queues.ids import Ids

    return Ids(cluster.refresh([]).cluster_id or "")


def milliseconds(option: str, text: str | None, max_ms: int = VISIBILITY_MS_MAX) -> int | None:
    """A time as the other commands take it; a number alone is seconds. What is none ends the command."""
    if text is None:
        return None
    try:
        ms = int(float(text) * 1000) if SECONDS.fullmatch(text.strip()) else parse_age_ms(text)
    except ValueError:
        misused(f"{option} {text}: expected a time such as 30s, 10m or 2h; a number alone is seconds")
    if ms > max_ms:
        misused(f"{option} {text}: at most {shown_ms(max_ms)}")
    return ms


def shown_ms(ms: int) -> str:
    return f"{ms // 3_600_000}h" if ms >= 3_600_000 else f"{ms // 1000}s"
