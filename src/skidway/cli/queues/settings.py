"""Settings of queues as options, and `skidway queue alter`.

A queue is a topic, and its settings are the topic's. What only a queue promises is checked here: its type never
changes, its largest batch follows its largest message, and its dead letters go to a queue.
"""

from typing import TYPE_CHECKING, Annotated

import typer

from skidway.cli.config_names import assignment, topic_names
from skidway.cli.options import DryRun
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    Bootstrap,
    ControllerTimeout,
    connect,
    count_of,
    fail,
    friendly,
    misused,
)
from skidway.cli.places import parse_age_ms
from skidway.cli.queue_finding import (
    QUEUE_DELAY_MS_MAX,
    RECEIVE_WAIT_MS_MAX,
    Delay,
    Names,
    Visibility,
    find_queue,
    milliseconds,
)

if TYPE_CHECKING:
    from skidway.blocking_client.queues.managing import Queue, Queues

Wait = Annotated[
    str | None,
    typer.Option(
        "--wait",
        metavar="TIME",
        help="How long a receive that does not say waits for a message: 20, 20s. New queues: 0.",
    ),
]
Retention = Annotated[
    str | None, typer.Option("--retention", metavar="TIME", help="How long messages are kept: 12h, 7d, 4w.")
]
MaxReceives = Annotated[
    int | None,
    typer.Option(
        "--max-receives",
        metavar="N",
        help="After so many receives without success a message is dead. New queues: 5. 0: never.",
        min=0,
        max=1000,
    ),
]
DeadLetters = Annotated[
    str | None,
    typer.Option(
        "--dead-letters", metavar="QUEUE", help="Where dead messages go. New queues: QUEUE-dlq. '': they are dropped."
    ),
]
ContentDedup = Annotated[
    bool | None,
    typer.Option(
        "--content-dedup/--no-content-dedup",
        help="FIFO queues: the same body within five minutes is the same message.",
        show_default=False,
    ),
]
Configs = Annotated[
    list[str] | None, typer.Option("--config", "-c", metavar="NAME=VALUE", help="A topic setting; repeatable.")
]
Resets = Annotated[
    list[str] | None,
    typer.Option("--reset", metavar="NAME", help="A setting that goes back to its default; repeatable."),
]

OF_BROKERS = ("queue.created.ms", "queue.modified.ms", "queue.move.tasks")
CONTENT_DEDUP, SCOPE = "queue.content.deduplication", "queue.deduplication.scope"
OF_FIFO = (CONTENT_DEDUP, SCOPE)


def given_settings(
    visibility: str | None,
    delay: str | None,
    wait: str | None,
    retention: str | None,
    max_receives: int | None,
    dead_letters: str | None,
    content_dedup: bool | None,
    config: list[str] | None,
) -> dict[str, str]:
    """What the options say, as settings of a topic. What makes no sense ends the command."""
    given = {
        "queue.visibility.timeout.ms": milliseconds("--visibility", visibility),
        "queue.delay.ms": milliseconds("--delay", delay, QUEUE_DELAY_MS_MAX),
        "queue.receive.wait.ms": milliseconds("--wait", wait, RECEIVE_WAIT_MS_MAX),
        "retention.ms": None if retention is None else _age_ms(retention),
        "queue.max.deliveries": max_receives,
        "queue.dead.letter.topic": dead_letters,
        CONTENT_DEDUP: None if content_dedup is None else str(content_dedup).lower(),
    }
    configs = {name: str(value) for name, value in given.items() if value is not None}
    configs |= dict(assignment(text) for text in config or [])
    if "max.message.bytes" in configs:
        misused(
            "max.message.bytes is about batches of a topic: the largest message of a queue is "
            "-c queue.max.message.bytes=N, at most 1048576"
        )
    return configs


def check_letters(known: "Queues", letters: str | None, queues: list[str]) -> None:
    from skidway.blocking_client.queues.managing import NoSuchQueue, NotAQueue

    if not letters:
        return
    if letters in queues:
        misused(f"{letters} cannot be the queue for its own dead letters: name another one")
    try:
        known.find(letters)
    except NotAQueue:
        fail(f"{letters} is a topic but no queue, and dead letters of queues go to a queue: name another one")
    except NoSuchQueue:
        pass  # it is made with the first letter


@friendly
def alter(
    queues: Names,
    visibility: Visibility = None,
    delay: Delay = None,
    wait: Wait = None,
    retention: Retention = None,
    max_receives: MaxReceives = None,
    dead_letters: DeadLetters = None,
    content_dedup: ContentDedup = None,
    config: Configs = None,
    reset: Resets = None,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Change settings of queues. What is reset becomes what a new queue has.

    Messages that are delayed or in flight keep their times.
    """
    from skidway.blocking_client.queues.managing import Queues

    _no_settings_among(queues)
    configs = given_settings(visibility, delay, wait, retention, max_receives, dead_letters, content_dedup, config)
    resets = reset or []
    _check_names(configs, resets)
    with connect(bootstrap, timeout) as cluster:
        known = Queues(cluster)
        found = [find_queue(known, name) for name in queues]
        check_letters(known, configs.get("queue.dead.letter.topic"), queues)
        for queue in found:
            _check_type(queue, configs, resets)
        for queue in found:
            with topic_names([*configs, *resets]):
                known.alter(queue, configs, resets, dry=dry_run)
            typer.echo(f"{queue.name} could be altered" if dry_run else f"altered {queue.name}")


def _no_settings_among(queues: list[str]) -> None:
    for word in queues:
        if "=" in word:
            misused(f"{word} is a setting and no queue: write -c {word}, with its name as a topic setting")


def _check_names(configs: dict[str, str], resets: list[str]) -> None:
    names = [*configs, *resets]
    if not names:
        misused("nothing to alter; give --visibility, --delay and so on, --config NAME=VALUE or --reset NAME")
    twice = next((name for name in configs if name in resets), None)
    if twice is not None:
        misused(f"{twice} is set and reset: give one of them")
    if "queue.type" in names:
        misused("queue.type is chosen when a queue is made: create another queue, with --fifo or without it")
    if "max.message.bytes" in resets:
        misused("max.message.bytes follows the largest message of the queue: --reset queue.max.message.bytes")
    kept = next((name for name in names if name in OF_BROKERS), None)
    if kept is not None:
        misused(f"{kept} is what brokers remember of the queue, and nobody else sets it")


def _check_type(queue: "Queue", configs: dict[str, str], resets: list[str]) -> None:
    own = next((name for name in (*configs, *resets) if name in OF_FIFO), None)
    if own is not None and not queue.is_fifo:
        misused(f"{queue.name} is a standard queue, and {own} is for FIFO queues")
    scope = "queue" if SCOPE in resets else configs.get(SCOPE)
    if scope == "queue" and queue.partitions > 1:
        misused(
            f"{queue.name} has {count_of(queue.partitions, 'partition')}, so each message group has ids of its own: "
            f"{SCOPE} stays messageGroup"
        )


def _age_ms(text: str) -> int:
    try:
        return parse_age_ms(text)
    except ValueError as error:
        misused(f"--retention: {error}")
