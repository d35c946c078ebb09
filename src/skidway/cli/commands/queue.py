"""`skidway queue`: make, alter, list, describe, purge and delete queues; peek into them, send, receive, settle."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from skidway.cli.config_names import topic_names
from skidway.cli.options import DryRun, Yes
from skidway.cli.output import (
    DEFAULT_BOOTSTRAP,
    AsJson,
    Bootstrap,
    ControllerTimeout,
    connect,
    fail,
    friendly,
    group,
    misused,
    print_json,
    run,
    warn,
)
from skidway.cli.queue_finding import Delay, Names, Visibility, find_queue
from skidway.cli.queue_messages import peek, receive, send
from skidway.cli.queue_shown import (
    counts_text,
    document,
    print_description,
    print_summaries,
    summary_document,
)
from skidway.cli.queues.settings import (
    Configs,
    ContentDedup,
    DeadLetters,
    MaxReceives,
    Retention,
    Wait,
    alter,
    check_letters,
    given_settings,
)
from skidway.cli.queues.settling import ack, extend, reject, release
from skidway.cli.schedules.commands import app as schedules

if TYPE_CHECKING:
    from skidway.blocking_client.queues.managing import Queue, Queues

app = group(
    "Create, alter, list, describe, peek into, purge and delete queues; send to them and receive from them.\n\n"
    "It asks the brokers by Kafka's protocol, as all commands do: no HTTP listener is needed."
)
app.info.epilog = "Dead letters of queues: skidway dlq list shows them, skidway dlq redrive sends them back."


Fifo = Annotated[bool, typer.Option("--fifo", help="Keep the order of each message group, and send an id only once.")]
Partitions = Annotated[
    int, typer.Option("--partitions", "-p", metavar="N", help="Partitions of the new queue. -1: the broker's default.")
]
Replication = Annotated[
    int, typer.Option("--replication", "-r", metavar="N", help="Replicas of each partition. -1: the broker's default.")
]
IfMissing = Annotated[bool, typer.Option("--if-missing", help="Succeed if it exists already.")]


@app.command(epilog="Example: skidway queue create jobs --visibility 60 --max-receives 3")
@friendly
def create(
    queues: Names,
    fifo: Fifo = False,
    visibility: Visibility = None,
    delay: Delay = None,
    wait: Wait = None,
    retention: Retention = None,
    max_receives: MaxReceives = None,
    dead_letters: DeadLetters = None,
    content_dedup: ContentDedup = None,
    partitions: Partitions = -1,
    replication: Replication = -1,
    config: Configs = None,
    if_missing: IfMissing = False,
    dry_run: DryRun = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Create queues, and return when they can be used. Messages are kept for 4 days, if you do not say otherwise."""
    from skidway.blocking_client.queues.managing import FIFO, TYPE, Queues

    if content_dedup and not fifo:
        misused("--content-dedup is for FIFO queues: add --fifo")
    configs = given_settings(visibility, delay, wait, retention, max_receives, dead_letters, content_dedup, config)
    if fifo:
        configs[TYPE] = FIFO
        partitions = _of_fifo(partitions, configs)
    with connect(bootstrap, timeout) as cluster:
        known = Queues(cluster)
        check_letters(known, configs.get("queue.dead.letter.topic"), queues)
        for name in queues:
            if name.endswith(".fifo") and not fifo:
                misused(
                    f"{name} would be a standard queue with the name of a FIFO queue: add --fifo, or name it otherwise"
                )
            _create(known, name, configs, partitions, replication, if_missing=if_missing, dry_run=dry_run)


def _of_fifo(partitions: int, configs: dict[str, str]) -> int:
    if configs.get("queue.deduplication.scope") == "messageGroup":
        return partitions
    if partitions > 1:
        misused(
            "a FIFO queue has one partition, unless each message group has ids of its own: "
            "add -c queue.deduplication.scope=messageGroup"
        )
    return 1


def _create(
    queues: "Queues",
    name: str,
    configs: dict[str, str],
    partitions: int,
    replication: int,
    *,
    if_missing: bool,
    dry_run: bool,
) -> None:
    from skidway.blocking_client.errors import BrokerError
    from skidway.errors import ErrorCode

    try:
        with topic_names(configs):
            queues.create(name, configs, partitions=partitions, replication=replication, dry=dry_run)
    except BrokerError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        find_queue(queues, name)
        if not if_missing:
            fail(f"there is a queue {name} already; skidway queue describe {name} shows it, --if-missing accepts it")
        typer.echo(f"{name} exists already")
        return
    typer.echo(f"{name} could be created" if dry_run else f"created {name}")


@app.command("list", epilog="Example: skidway queue list --json")
@friendly
def list_queues(
    names_only: Annotated[bool, typer.Option("--names", "-q", help="Print only the names, one a line.")] = False,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """List the queues, with the number of their messages."""
    from skidway.blocking_client.queues.managing import Queues

    with connect(bootstrap, timeout) as cluster:
        queues = Queues(cluster)
        found = queues.all()
        if names_only:
            for queue in found:
                typer.echo(queue.name)
            return
        documents = [_summary(queues, queue) for queue in found]
    if as_json:
        print_json(documents)
    elif documents:
        print_summaries(documents)
    else:
        typer.echo("no queues yet; create one with: skidway queue create NAME", err=True)


@app.command(epilog="Example: skidway queue describe jobs")
@friendly
def describe(
    queues: Names,
    as_json: AsJson = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Show how many messages queues have, how old the oldest is, and their settings."""
    from skidway.blocking_client.queues.managing import Queues, sum_of
    from skidway.blocking_client.queues.messages import QueueMessages
    from skidway.gateways.queues.holding import why_nothing_comes

    documents = []
    with connect(bootstrap, timeout) as cluster:
        known = Queues(cluster)
        for number, queue in enumerate([find_queue(known, name) for name in queues]):
            counted = known.count(queue, 1)
            counts = sum_of(counted)
            oldest = min((each.record.timestamp for each in QueueMessages(cluster).shown(queue, counted)), default=None)
            held_up = why_nothing_comes(counted, is_fifo=queue.is_fifo)
            documents.append(document(queue, counts, held_up, oldest))
            if not as_json:
                if number:
                    typer.echo()
                print_description(queue, counts, documents[-1])
    if as_json:
        print_json(documents)


@app.command(epilog="Example: skidway queue purge jobs --yes")
@friendly
def purge(
    queues: Names,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Delete all messages of queues, also those that are delayed or in flight. The queues stay."""
    from skidway.blocking_client.queues.managing import Queues

    with connect(bootstrap, timeout) as cluster:
        known = Queues(cluster)
        found = [find_queue(known, name) for name in queues]
        if not yes:
            for queue in found:
                typer.echo(f"{queue.name}: {counts_text(known.counts(queue))}", err=True)
            typer.confirm(f"delete all messages of {', '.join(queues)}?", abort=True, err=True)
        for queue in found:
            known.purge(queue)
            typer.echo(f"purged {queue.name}")


@app.command(epilog="Example: skidway queue delete jobs --yes")
@friendly
def delete(
    queues: Names,
    yes: Yes = False,
    bootstrap: Bootstrap = DEFAULT_BOOTSTRAP,
    timeout: ControllerTimeout = None,
) -> None:
    """Delete queues with all their messages. Their dead letters stay."""
    from skidway.blocking_client.queues.managing import Queues

    with connect(bootstrap, timeout) as cluster:
        known = Queues(cluster)
        found = [find_queue(known, name) for name in queues]
        if not yes:
            typer.confirm(f"delete {', '.join(queues)} with all messages?", abort=True, err=True)
        for queue in found:
            known.delete(queue)
            typer.echo(f"deleted {queue.name}")


app.command(
    epilog="Examples:\n\nskidway queue alter jobs --visibility 2m --max-receives 10\n\n"
    "skidway queue alter jobs --reset queue.delay.ms"
)(alter)
app.add_typer(schedules, name="schedule")
app.command(epilog="Example: skidway queue peek jobs -n 3")(peek)
app.command(
    epilog="Examples:\n\nskidway queue send jobs 'resize 17.jpg' --delay 60\n\n"
    "skidway queue send payments '10 EUR' --message-group ann --dedup-id order-17\n\n"
    "skidway queue send jobs < jobs.txt"
)(send)
app.command(epilog="Example: skidway queue receive jobs -n 10 --wait 20")(receive)
app.command(epilog="Example: skidway queue ack AZ8…")(ack)
app.command(epilog="Example: skidway queue release AZ8… --delay 10m")(release)
app.command(epilog="Example: skidway queue reject AZ8… --reason 'no such customer'")(reject)
app.command(epilog="Example: skidway queue extend AZ8… --visibility 1h")(extend)


def _summary(queues: "Queues", queue: "Queue") -> dict[str, Any]:
    """Not counted, with a warning, where some of its partitions are not served."""
    from skidway.blocking_client.queues.managing import sum_of
    from skidway.gateways.queues.holding import why_nothing_comes

    unserved = queues.cluster.unserved(queue.name, range(queue.partitions))
    if not unserved:
        counted = queues.count(queue, 0)
        return summary_document(queue, sum_of(counted), why_nothing_comes(counted, is_fifo=queue.is_fifo))
    partition, reason = next(iter(unserved.items()))
    warn(f"{queue.name} is not counted: partition {partition} is not served: {reason}")
    return summary_document(queue, None)


def main(arguments: list[str]) -> int:
    return run(app, "skidway queue", arguments)
